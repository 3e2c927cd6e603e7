package ixgbe_test

import (
	"context"
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/nic82599"
)

// TestSlowCardIsWaitedFor has a card that takes tens of milliseconds for whatever it is asked: reset, queues, semaphores.
func TestSlowCardIsWaitedFor(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		r := newRig(t, rigConfig{card: nic82599.Config{Seed: seed, Timing: nic82599.Timing{Enable: 60 * time.Millisecond, AutoRead: 100 * time.Millisecond}}})
		for range 2 {
			r.start(nic.Config{RxQueues: 3, TxQueues: 3})
			r.exchange(40)
			for i, p := range r.ports {
				if err := p.Stop(); err != nil {
					t.Error(err)
				}
				for q := range 3 {
					if rx, tx := r.cards[i].Read32(reg.RXDCTL(q)), r.cards[i].Read32(reg.TXDCTL(q)); (rx|tx)&(1<<25) != 0 {
						t.Errorf("port %d, queue %d: stopped, and RXDCTL is %#x, TXDCTL %#x", i, q, rx, tx)
					}
				}
			}
		}
		r.end()
	}
}

// TestBuffersComeBackAfterTheLastWrite measures the pause between the end of a queue and the return of its buffers: writes
// that were under way may land for another 100 µs (§4.6.7.1.2).
func TestBuffersComeBackAfterTheLastWrite(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	r.exchange(10)
	off := int64(0)
	r.fns[1].read = func(at, v uint32) uint32 {
		if at == reg.RXDCTL(0) && v&reg.RXDCTL_ENABLE == 0 {
			off = r.clk.Nanos()
		}
		return v
	}
	if err := r.ports[1].Stop(); err != nil {
		t.Error(err)
	}
	if pause := r.clk.Nanos() - off; off == 0 || pause < 100_000 {
		t.Errorf("the queue was seen to be off at %d ns, Stop returned %d ns later", off, pause)
	}
	r.fns[1].read = nil
	r.end()
}

// TestSemaphoresAreGivenBack looks at the card after Open, Start and Stop: nothing is held.
func TestSemaphoresAreGivenBack(t *testing.T) {
	r := newRig(t, rigConfig{})
	check := func(when string) {
		t.Helper()
		if gssr, swsm := r.cards[0].Peek(reg.GSSR), r.cards[0].Peek(reg.SWSM); gssr != 0 || swsm != 0 {
			t.Errorf("after %s: GSSR %#x, SWSM %#x", when, gssr, swsm)
		}
	}
	check("Open")
	r.start(nic.Config{})
	check("Start")
	if err := r.ports[0].Stop(); err != nil {
		t.Error(err)
	}
	check("Stop")
	r.end()
}

// TestDeadDriversSemaphoreIsFreed has SMBI set by somebody who died, after the reset that would have cleared it.
func TestDeadDriversSemaphoreIsFreed(t *testing.T) {
	r := newBareRig(t, rigConfig{})
	held := false
	r.fns[0].onRead = func(off uint32) {
		if off == reg.SWSM && !held {
			held = true
			r.cards[0].Preset(reg.SWSM, uint64(reg.SWSM_SMBI))
		}
	}
	p, err := r.open(0)
	if err != nil {
		t.Fatal(err)
	}
	r.ports[0] = p
	r.within(patience)
	r.end()
}

// TestStaleInterruptDoesNotEatTheWake arms a queue whose interrupt has been waiting, for a frame that polling has found
// long since: it fires at once, and whoever armed has to be woken by it or by the next frame.
func TestStaleInterruptDoesNotEatTheWake(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	w, err := nic.NewWaiter(r.clk)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	for round := range 3 {
		r.send(1, 60) // its interrupt is masked …
		r.settle()
		if n := r.drain(1, 0); n != 1 { // … and it is found by polling
			t.Fatal(n)
		}
		if !r.ports[1].Port.Rx(0).Arm(w) {
			t.Fatal("nothing is there, and Arm says so")
		}
		r.clk.At(r.clk.Nanos()+1000, func() { r.send(1, 60) })
		r.world.ArmTimer()
		woken, err := w.Wait(r.clk.Nanos() + int64(time.Second))
		if err != nil || !woken {
			t.Fatalf("round %d: Wait: %v, %v", round, woken, err)
		}
		r.settle()
		r.drain(1, 0)
	}
	r.end()
}

// TestPlainFramesOfThePortsOwnPool takes the way of a frame that is in one buffer of the pool that the port was started
// with: of all lengths, in bursts that go round the ring, and mixed with frames that are not so plain.
func TestPlainFramesOfThePortsOwnPool(t *testing.T) {
	r := newRig(t, rigConfig{})
	own, other := r.pool(mbuf.Config{Buffers: 2048}), r.pool(mbuf.Config{})
	r.startPort(0, nic.Config{Pool: own, TxDesc: 72})
	r.startPort(1, nic.Config{})
	r.settle()
	r.housekeep()
	caches := []*mbuf.Cache{own.NewCache(), other.NewCache()}
	sent, bytes := uint64(0), uint64(0)
	for round := range 60 {
		var bufs []*mbuf.Buf
		for k := range 1 + round%70 {
			n := 60 + (round*k)%1458
			c := caches[0]
			if round%3 == 2 && k%5 == 4 {
				c = caches[1]
			}
			bufs = append(bufs, r.frame(c, r.ports[1], n, byte(sent)))
			sent++
			bytes += uint64(n)
		}
		for want, tries := len(bufs), 0; ; tries++ {
			if tries > 100 {
				t.Fatalf("round %d: %d frames do not come", round, want)
			}
			bufs = bufs[r.ports[0].Tx(0).Send(bufs):]
			r.settle()
			want -= r.drainChecked(byte(sent - uint64(want)))
			if want == 0 {
				break
			}
		}
	}
	r.ports[0].Tx(0).Reclaim()
	for _, c := range caches {
		c.Close()
	}
	if s := r.ports[0].Stats(); s.TxPackets != sent || s.Queues[0].TxBytes != bytes || s.TxBytes != bytes {
		t.Errorf("%d packets, %d bytes, of the queue %d; want %d and %d", s.TxPackets, s.TxBytes, s.Queues[0].TxBytes, sent, bytes)
	}
	if n := other.Stats().Out; n != 0 {
		t.Errorf("%d buffers of the other pool are not back", n)
	}
	r.end()
}

// drainChecked receives on port 1 and checks that frames are numbered from k on.
func (r *rig) drainChecked(k byte) (n int) {
	r.Helper()
	into := make([]*mbuf.Buf, 16)
	for {
		got := r.ports[1].Rx(0).Recv(into)
		for _, b := range into[:got] {
			if f := b.Bytes(); f[20] != k || f[len(f)-1] != k {
				r.Fatalf("frame %d has %d … %d in it", k, f[20], f[len(f)-1])
			}
			k++
			b.Free()
		}
		if n += got; got == 0 {
			return n
		}
	}
}

// TestCloseOfAPortThatWasNeverStarted gives the function back all the same.
func TestCloseOfAPortThatWasNeverStarted(t *testing.T) {
	r := newRig(t, rigConfig{})
	if err := r.ports[0].Close(); err != nil || r.fns[0].closed != 1 || r.fns[0].resets != 1 {
		t.Errorf("%v; %d times closed, %d times reset", err, r.fns[0].closed, r.fns[0].resets)
	}
	if err := r.ports[0].Start(context.Background(), nic.Config{Pool: r.pool(mbuf.Config{})}); err == nil {
		t.Error("started after Close")
	}
	r.end()
}

// TestArmOfADeadPortTouchesNothing has a worker that has not noticed yet.
func TestArmOfADeadPortTouchesNothing(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	w, err := nic.NewWaiter(r.clk)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	rx, tx := r.ports[0].Port.Rx(0), r.ports[0].Port.Tx(0)
	r.cards[0].Remove()
	r.housekeep()
	r.fns[0].onWrite = func(off uint32) { t.Errorf("%s is written", reg.Name(off)) }
	if rx.Arm(w) || tx.Arm(w) {
		t.Error("Arm says that one may sleep")
	}
	r.fns[0].onWrite = nil
	r.end()
}
