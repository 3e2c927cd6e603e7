package virtio_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

// TestDeviceThatLiesIsGone: a device that breaks a rule of the rings in the midst of traffic is not used any more, whoever
// sleeps on it is told why, and every buffer comes back. What can be said of a frame alone costs that frame.
func TestDeviceThatLiesIsGone(t *testing.T) {
	const split, pack = "split", "packed"
	for _, c := range []struct {
		fault, ring string
		words       string // of Err; "": the port goes on
	}{
		{"used-id", split, "used id 69 of a ring of 64 descriptors"},
		{"used-id", pack, "used id 69 of a ring of 64 descriptors"},
		{"used-length", split, "1048576 bytes written to a buffer of"},
		{"used-length", pack, "1048576 bytes written to a buffer of"},
		{"used-short", split, "3 bytes written, which is less than a header"},
		{"used-short", pack, "3 bytes written, which is less than a header"},
		{"num-buffers-zero", split, "a frame in 0 buffers"},
		{"num-buffers-zero", pack, "a frame in 0 buffers"},
		{"num-buffers-many", split, "buffers, of 64 that there can be"},
		{"num-buffers-many", pack, "buffers, of 64 that there can be"},
		{"index-jump", split, "receive queue 0"},
		{"csum-beyond", split, ""},
		{"csum-beyond", pack, ""},
		{"gso-lie", split, ""},
		{"gso-lie", pack, ""},
		{"event-lie", split, ""},
		{"event-lie", pack, ""},
		{"needs-reset", split, "DEVICE_NEEDS_RESET"},
		{"needs-reset", pack, "DEVICE_NEEDS_RESET"},
	} {
		t.Run(c.fault+" "+c.ring, func(t *testing.T) {
			var cfg rigConfig
			cfg.options.Features = not(inOrder)
			if c.ring == split {
				cfg.options.Features = not(inOrder | packed)
			}
			r := newRig(t, cfg)
			r.start(nic.Config{RxDesc: 64, TxDesc: 64, Offloads: nic.RxL4Checksum})
			fault, err := virtionet.FaultByName(c.fault)
			if err != nil {
				t.Fatal(err)
			}
			r.devs[0].SetFaults(fault)
			cache := r.pool(mbuf.Config{}).NewCache()
			got := 0
			for range 40 {
				b := r.frame(cache, r.ports[0], 100, 1)
				if r.ports[1].Tx(0).Send([]*mbuf.Buf{b}) != 1 {
					b.Free()
				}
				r.sleep(20 * time.Microsecond)
				got += r.drain(0, 0)
				r.ports[1].Tx(0).Reclaim()
			}
			r.housekeep()
			if c.words == "" {
				if err := r.ports[0].Err(); err != nil {
					t.Errorf("the port is gone for a frame: %v", err)
				}
				if got == 0 {
					t.Error("nothing has come")
				}
			} else {
				says(t, r.ports[0].Err(), c.words)
				if err := r.ports[0].Err(); !errors.Is(err, nic.ErrGone) {
					t.Errorf("not ErrGone: %v", err)
				}
				if n := r.ports[0].Rx(0).Recv(make([]*mbuf.Buf, 8)); n != 0 {
					t.Errorf("%d frames of a port that is gone", n)
				}
			}
			cache.Close()
			if err := r.ports[0].Stop(); err != nil {
				t.Errorf("the device can be reset, and Stop says %v", err)
			}
			if n := r.ports[0].Stats().Quarantined; n != 0 {
				t.Errorf("%d buffers in quarantine of a device that has been reset", n)
			}
			r.end()
		})
	}
}

// TestNeedsResetWakesSleepers: who sleeps when the device gives up is told so by the configuration interrupt alone.
func TestNeedsResetWakesSleepers(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	r.devs[0].SetFaults(virtionet.Faults{NeedsReset: true, Every: 1})
	w, err := nic.NewWaiter(r.clk)
	if err != nil {
		t.Fatal(err)
	}
	if !r.ports[0].Rx(0).Arm(w) {
		t.Fatal("something has come")
	}
	cache := r.pool(mbuf.Config{}).NewCache()
	b := r.frame(cache, r.ports[0], 100, 1)
	r.clk.At(r.clk.Nanos()+1000, func() { r.ports[1].Tx(0).Send([]*mbuf.Buf{b}) })
	woken, err := w.Wait(r.clk.Nanos() + int64(time.Second))
	if !woken || !errors.Is(err, nic.ErrGone) {
		t.Errorf("the device gives up, and its sleeper is told %v, %v", woken, err)
	}
	r.settle()
	r.ports[1].Tx(0).Reclaim()
	cache.Close()
	r.end()
	_ = w.Close()
}

// TestBuffersOfADeviceThatCannotBeStoppedAreKept: neither queues nor device say that they have stopped. The buffers are
// nobody's until Close has shown that the device reaches no memory; if that fails too, they stay so.
func TestBuffersOfADeviceThatCannotBeStoppedAreKept(t *testing.T) {
	for _, closes := range []bool{true, false} {
		r := newRig(t, rigConfig{})
		rx := r.pool(mbuf.Config{})
		r.startPort(0, nic.Config{Pool: rx, RxDesc: 64})
		s := r.seats[0]
		s.failReset, s.failDisable, s.failClose = true, true, !closes
		err := r.ports[0].Stop()
		says(t, err, "quarantine", "Close", "reset does not end")
		if n := r.ports[0].Stats().Quarantined; n != 64 || rx.Stats().Quarantined != 64 {
			t.Errorf("%d buffers are in quarantine, want 64; %+v", n, rx.Stats())
		}
		says(t, r.ports[0].Start(context.Background(), nic.Config{Pool: rx}), "64 buffers are in quarantine", "Close")
		err = r.ports[0].Close()
		if n := rx.Stats().Quarantined; closes && n != 0 || !closes && n != 64 {
			t.Errorf("after Close %d buffers are in quarantine", n)
		}
		if closes {
			r.end()
			continue
		}
		says(t, err, "may still write to 64 buffers")
		_ = r.ports[1].Close()
	}
}

// TestStopMayBeTheFirstToNotice that the device is not there any more: the port is gone then, as if a burst had found it out.
func TestStopMayBeTheFirstToNotice(t *testing.T) {
	r := newRig(t, rigConfig{})
	rx := r.pool(mbuf.Config{})
	r.startPort(0, nic.Config{Pool: rx, RxDesc: 64})
	r.devs[0].Remove()
	if err := r.ports[0].Stop(); err != nil && !errors.Is(err, nic.ErrGone) { // nil: its queues had stopped all the same
		t.Errorf("Stop of a device that is not there: %v", err)
	}
	if err := r.ports[0].Err(); !errors.Is(err, nic.ErrGone) {
		t.Errorf("the port says %v after it", err)
	}
	r.end()
}

// TestOneWayToStopIsEnough: the queues stop and the device does not reset, or the other way round.
func TestOneWayToStopIsEnough(t *testing.T) {
	for _, c := range []struct{ reset, disable bool }{{true, false}, {false, true}} {
		r := newRig(t, rigConfig{})
		rx := r.pool(mbuf.Config{})
		r.startPort(0, nic.Config{Pool: rx})
		s := r.seats[0]
		s.failReset, s.failDisable = c.reset, c.disable
		if err := r.ports[0].Stop(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if out := rx.Stats().Out + rx.Stats().Quarantined; out != 0 {
			t.Errorf("%+v: %d buffers are not back", c, out)
		}
		s.failReset, s.failDisable = false, false
		r.end()
	}
}

// TestTransportThatLosesItsDevice: the transport says so by itself, from inside any call.
func TestTransportThatLosesItsDevice(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	w, err := nic.NewWaiter(r.clk)
	if err != nil {
		t.Fatal(err)
	}
	if !r.ports[0].Rx(0).Arm(w) || !r.ports[0].ArmLink(w, r.ports[0].Link()) {
		t.Fatal("not armed")
	}
	r.seats[0].gone(fmt.Errorf("sim:a: the cable was cut: %w", nic.ErrGone))
	r.seats[0].gone(errors.New("sim:a: for another reason"))
	says(t, r.ports[0].Err(), "the cable was cut")
	if woken, err := w.Wait(r.clk.Nanos() + 1); !woken || !errors.Is(err, nic.ErrGone) {
		t.Errorf("the sleeper is told %v, %v", woken, err)
	}
	if r.ports[0].Link().Up || r.ports[0].Rx(0).Arm(w) || r.ports[0].ArmLink(w, r.ports[0].Link()) {
		t.Error("a port that is gone can be waited for")
	}
	says(t, r.ports[0].Filters().SetPromiscuous(true), "the cable was cut")
	r.end()
	_ = w.Close()
}

// TestInterruptsThatNeverCome: without them a port is polled as before; nothing waits for one.
func TestInterruptsThatNeverCome(t *testing.T) {
	r := newRig(t, rigConfig{faults: [2]virtionet.Faults{{NoInterrupts: true}, {NoInterrupts: true}}})
	r.start(nic.Config{})
	cache := r.pool(mbuf.Config{}).NewCache()
	r.ports[0].Tx(0).Send([]*mbuf.Buf{r.frame(cache, r.ports[1], 100, 1)})
	r.settle()
	if n := r.drain(1, 0); n != 1 {
		t.Errorf("%d frames", n)
	}
	r.devs[1].SetLink(false)
	r.settle()
	r.housekeep()
	if r.ports[1].Link().Up {
		t.Error("Housekeep does not see that the link is down")
	}
	r.ports[0].Tx(0).Reclaim()
	cache.Close()
	r.end()
}

// TestAnnouncementIsPassedOn: the device asks, the user is told, the device hears that it was; nobody is asked who gave no
// function for it.
func TestAnnouncementIsPassedOn(t *testing.T) {
	asked := make(chan struct{}, 1)
	r := newBareRig(t, rigConfig{})
	var cfg rigConfig
	cfg.options.Announce = func() { asked <- struct{}{} }
	var err error
	if r.ports[0], err = r.open(0, cfg); err != nil {
		t.Fatal(err)
	}
	if r.ports[1], err = r.open(1, rigConfig{}); err != nil {
		t.Fatal(err)
	}
	r.start(nic.Config{})
	for range 2 { // the second is heard only if the first was acknowledged
		r.devs[0].Announce()
		r.housekeep()
		<-asked
	}
	if n := r.devs[0].Counts().Announced; n != 2 {
		t.Errorf("%d acknowledged, want 2", n)
	}
	if f := r.ports[1].virtio.Negotiated(); f.Has(spec.FeatureGuestAnnounce) {
		t.Error("announcements are agreed on, and nobody wants them")
	}
	r.end()
}

// TestTooManyAddressesOpenTheFilter: with more than can be told apart all come in, which is counted; other filters stay.
func TestTooManyAddressesOpenTheFilter(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	p := r.ports[0].virtio
	mac := func(i int) [6]byte { return [6]byte{2, 1, 0, 0, byte(i >> 8), byte(i)} }
	cache := r.pool(mbuf.Config{}).NewCache()
	comes := func(dst [6]byte) bool {
		b := r.frame(cache, r.ports[0], 60, 1)
		copy(b.Bytes(), dst[:])
		r.ports[1].Tx(0).Send([]*mbuf.Buf{b})
		r.settle()
		r.ports[1].Tx(0).Reclaim()
		return r.drain(0, 0) == 1
	}
	for i := range 257 {
		if err := p.Filters().AddMAC(mac(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.ExtendedStats()["filter_overflows"]; n != 1 || !comes(mac(256)) || !comes([6]byte{2, 9}) || comes([6]byte{3, 9}) {
		t.Errorf("overflows %d; one of 257 comes %v, a stranger %v, a group %v", n, comes(mac(256)), comes([6]byte{2, 9}), comes([6]byte{3, 9}))
	}
	for i := range 257 - 64 { // the device itself knows 64 of a kind
		if err := p.Filters().RemoveMAC(mac(i)); err != nil {
			t.Fatal(err)
		}
	}
	if !comes(mac(256)) || comes(mac(0)) || comes([6]byte{2, 9}) {
		t.Error("with 64 the filter is not exact again")
	}
	for i := range 300 {
		if err := p.Filters().AddMAC([6]byte{1, 2, 0, 0, byte(i >> 8), byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.ExtendedStats()["filter_overflows"]; n != 2 || !comes([6]byte{3, 9}) || comes([6]byte{2, 9}) {
		t.Errorf("overflows %d; a group comes %v, a stranger %v", n, comes([6]byte{3, 9}), comes([6]byte{2, 9}))
	}
	cache.Close()
	r.end()
}

// TestAddressesThatTheDeviceRefusesAreLetIn: a table that is refused opens the filter; it is told again at the next change.
func TestAddressesThatTheDeviceRefusesAreLetIn(t *testing.T) {
	r, comes, end := hearing(t, rigConfig{})
	p := r.ports[0].virtio
	r.devs[0].SetFaults(virtionet.Faults{ControlAnswer: spec.CtrlErr})
	refused, added := [6]byte{2, 9, 9, 9, 9, 9}, [6]byte{2, 9, 9, 9, 9, 8}
	says(t, p.Filters().AddMAC(refused), "refuses", "add MAC filter", "features=-ctrl_rx") // not even the mode is taken
	r.devs[0].SetFaults(virtionet.Faults{})
	if err := p.Filters().AddMAC(added); err != nil {
		t.Error(err)
	}
	if comes(refused) || !comes(added) {
		t.Errorf("the one that was refused comes %v, the other %v", comes(refused), comes(added))
	}
	end()
}

// TestVLANsAreToldOnlyWhenFiltered: whoever does not filter VLANs does not wait for 4096 commands, and hears what to do.
func TestVLANsAreToldOnlyWhenFiltered(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	if n := r.devs[0].Counts().Commands; n > 10 {
		t.Errorf("%d commands at a start that filters no VLAN", n)
	}
	err := r.ports[0].Filters().AddVLAN(7)
	says(t, err, "Config.VLANFilter")
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("not ErrUnsupported: %v", err)
	}
	r.end()
}

// TestQueueSizesOfAllKinds: sizes that a device has no right to, or of which a split ring can use a part.
func TestQueueSizesOfAllKinds(t *testing.T) {
	for _, c := range []struct {
		size int
		not  spec.Features
		want int // Info.MaxDesc
	}{
		{300, packed, 256}, {300, 0, 300}, {256, packed, 256}, {33, packed, 32}, {33, 0, 33},
	} {
		cfg := rigConfig{device: virtionet.Config{Size: c.size}, options: virtio.Options{Features: not(c.not)}}
		r := newRig(t, cfg)
		if i := r.ports[0].Info(); i.MaxDesc != c.want || i.MinDesc > i.MaxDesc || i.MaxSegs >= i.MinDesc {
			t.Errorf("queues of %d: %d to %d descriptors, %d segments, want at most %d", c.size, i.MinDesc, i.MaxDesc, i.MaxSegs, c.want)
		}
		r.start(nic.Config{})
		r.end()
	}
}
