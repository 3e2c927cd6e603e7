package device_test

import (
	"math"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/nic"
)

// TestQueuesOfAStoppedPortDoNothing calls the queues that a port had before it was stopped, whose rings are gone.
func TestQueuesOfAStoppedPortDoNothing(t *testing.T) {
	for _, uri := range []string{"sim:a?clock=virtual", "sim:a?mode=threaded", "null:"} {
		t.Run(uri, func(t *testing.T) {
			s, pool, _ := pair(t, uri, nic.Config{})
			p := s.Ports[0]
			rx, tx := p.Rx(0), p.Tx(0)
			w, err := nic.NewWaiter(s.Clock)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if err := p.Stop(); err != nil {
				t.Fatal(err)
			}
			out := pool.NewCache()
			defer out.Close()
			b := []*mbuf.Buf{out.Alloc()}
			if _, err := b[0].Reserve(60); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if n := rx.Recv(make([]*mbuf.Buf, 8)); n != 0 {
					t.Errorf("Recv returns %d", n)
				}
				if n := tx.Send(b); n != 0 {
					t.Errorf("Send takes %d", n)
				}
				if n := tx.Reclaim(); n != 0 {
					t.Errorf("Reclaim frees %d", n)
				}
				if rx.Arm(w) || tx.Arm(w) {
					t.Error("Arm says that one may sleep")
				}
			}
			out.Free(b[0])
		})
	}
}

// TestStopWakesWhoeverSleeps stops a port while a worker sleeps on its queue, in every mode with real time.
func TestStopWakesWhoeverSleeps(t *testing.T) {
	for _, uri := range []string{"sim:a", "sim:a?mode=threaded"} {
		t.Run(uri, func(t *testing.T) {
			s, _, _ := pair(t, uri, nic.Config{})
			p := s.Ports[0]
			w, err := nic.NewWaiter(s.Clock)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			asleep, awake := make(chan bool), make(chan error)
			go func() {
				asleep <- p.Rx(0).Arm(w)
				_, err := w.Wait(math.MaxInt64)
				awake <- err
			}()
			if !<-asleep {
				t.Fatal("Arm says that something has come")
			}
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
			if err := <-awake; err != nil {
				t.Error(err)
			}
			if n := p.Rx(0).Recv(make([]*mbuf.Buf, 8)); n != 0 {
				t.Errorf("Recv returns %d", n)
			}
		})
	}
}
