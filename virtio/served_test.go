package virtio_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

// TestDeviceThatDoesNotServeAQueueIsToldOfOnce: frames that stay are logged when they have been there for long and the link is up, once
// each time; not those that the device has sent and nobody has reclaimed, nor those that wait for the link. The port goes on.
func TestDeviceThatDoesNotServeAQueueIsToldOfOnce(t *testing.T) {
	for name, f := range map[string]spec.Features{"packed": 0, "packed in any order": inOrder, "split": packed, "split in any order": packed | inOrder} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			r := newRig(t, rigConfig{options: virtio.Options{Features: not(f), Logger: slog.New(slog.NewTextHandler(&log, nil))}})
			r.start(nic.Config{TxDesc: 64})
			told := func() int { return strings.Count(log.String(), "does not serve a transmit queue") }
			cache, tx := r.pool(mbuf.Config{}).NewCache(), r.ports[0].Tx(0)
			send := func(n int) {
				for range n {
					if tx.Send([]*mbuf.Buf{r.frame(cache, r.ports[1], 60, 1)}) != 1 {
						t.Fatalf("the ring is full: %v %+v", r.ports[0].Err(), r.ports[0].Stats())
					}
					r.drain(1, 0)
				}
			}
			wait := func(d time.Duration) {
				r.housekeep()
				r.sleep(d)
				r.housekeep()
			}
			for range 4 { // to other laps of the ring
				send(50)
				r.settle()
				wait(time.Minute) // done, and not reclaimed
				r.drain(1, 0)
				tx.Reclaim()
			}
			wait(time.Minute) // nothing is there
			if n := told(); n != 0 {
				t.Fatalf("told %d times of a device that serves", n)
			}
			r.devs[0].SetFaults(virtionet.Faults{TxSilent: true, Every: 1})
			send(3)
			wait(4 * time.Second)
			if n := told(); n != 0 {
				t.Errorf("told %d times after 4 s", n)
			}
			wait(2 * time.Second)
			wait(time.Minute)
			if n := told(); n != 1 || !strings.Contains(log.String(), "queue=0 for=6s") {
				t.Errorf("told %d times of a device that does not serve, or not for how long", n)
			}
			if err := r.ports[0].Err(); err != nil {
				t.Error(err)
			}
			r.devs[0].SetLink(false)
			r.settle()
			wait(time.Minute)
			if n := told(); n != 1 {
				t.Errorf("told %d times with the link down", n)
			}
			r.devs[0].SetLink(true)
			r.settle()
			wait(time.Minute)
			if n := told(); n != 2 {
				t.Errorf("told %d times once the link is up again and nothing is served", n)
			}
			cache.Close()
			r.end()
		})
	}
}
