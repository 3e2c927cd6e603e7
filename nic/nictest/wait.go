package nictest

import (
	"errors"
	"math/rand/v2"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
)

// waiter makes a Waiter that lives as long as the test.
func (r *run) waiter() *nic.Waiter {
	r.Helper()
	w, err := nic.NewWaiter(r.Clock)
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.Cleanup(func() { _ = w.Close() })
	return w
}

// later sends frames from A at a time from now on.
func (r *run) later(d time.Duration, pool *mbuf.Pool, frames ...[]byte) {
	bufs := r.buildAll(pool, frames)
	r.Clock.At(r.Clock.Nanos()+int64(d), func() {
		if n := r.A.Tx(0).Send(bufs); n != len(bufs) {
			r.Errorf("Send took %d of %d", n, len(bufs))
			r.free(bufs[n:]...)
		}
	})
}

func testArmAndWait(r *run) {
	r.startBoth(nic.Config{})
	pool := r.pool(mbuf.Config{})
	w := r.waiter()
	for k := range 20 {
		if !r.B.Rx(0).Arm(w) {
			r.Fatal("Arm says that something has come, and nothing was sent")
		}
		f := r.to(r.B, 64)
		at := r.Clock.Nanos()
		r.later(time.Duration(k)*time.Millisecond, pool, f)
		woken, err := w.Wait(at + int64(time.Second))
		if err != nil || !woken {
			r.Fatalf("round %d: Wait: %v, %v", k, woken, err)
		}
		if now := r.Clock.Nanos(); now > at+int64(k+5)*int64(time.Millisecond)+int64(r.Late) {
			r.Errorf("round %d: woken after %v, sent after %d ms", k, time.Duration(now-at), k)
		}
		r.check(r.receive(r.B.Rx(0), 1, 1), [][]byte{f})
	}
	// Nothing comes: the deadline ends the wait.
	r.B.Rx(0).Arm(w)
	if woken, err := w.Wait(r.Clock.Nanos() + int64(10*time.Millisecond)); err != nil || woken {
		r.Errorf("Wait with nothing to wait for: %v, %v", woken, err)
	}
}

func testArmPending(r *run) {
	r.startBoth(nic.Config{})
	pool := r.pool(mbuf.Config{})
	w := r.waiter()
	frames := r.frames(r.B, 3, 64)
	r.sendFrames(r.A.Tx(0), pool, frames...)
	r.Settle()
	if n := r.B.Rx(0).Recv(make([]*mbuf.Buf, 0)); n != 0 {
		r.Fatalf("Recv into nothing: %d", n)
	}
	if r.B.Rx(0).Arm(w) {
		r.Error("three frames wait, and Arm says that one may sleep")
	}
	r.check(r.receive(r.B.Rx(0), 2, 2), frames[:2])
	if r.B.Rx(0).Arm(w) {
		r.Error("one frame waits, and Arm says that one may sleep")
	}
	r.expect(r.B.Rx(0), frames[2])
	if !r.B.Rx(0).Arm(w) {
		r.Error("nothing waits, and Arm says that something has come")
	}
}

func testArmTx(r *run) {
	r.startBoth(nic.Config{})
	pool := r.pool(mbuf.Config{})
	w := r.waiter()
	for range 10 {
		f := r.to(r.B, 1000)
		r.sendFrames(r.A.Tx(0), pool, f)
		if r.A.Tx(0).Arm(w) {
			if woken, err := w.Wait(r.Clock.Nanos() + int64(time.Second)); err != nil || !woken {
				r.Fatalf("Wait for a frame to be sent: %v, %v", woken, err)
			}
		}
		for range 10 { // one Waiter may be woken for other reasons
			if r.A.Tx(0).Reclaim() == 1 {
				break
			}
			r.pass(10 * moment)
		}
		if n := r.out(pool); n != 0 {
			r.Fatalf("woken, and %d buffers are not back", n)
		}
		r.expect(r.B.Rx(0), f)
	}
	r.sendFrames(r.A.Tx(0), pool, r.to(r.B, 60))
	r.Settle()
	if r.A.Tx(0).Arm(w) {
		r.Error("a frame has been sent, and Arm says that one may sleep")
	}
}

// testNoLostWake is a worker that sleeps whenever it finds nothing, while frames come at every moment around that.
func testNoLostWake(r *run) {
	r.startBoth(nic.Config{})
	pool := r.pool(mbuf.Config{})
	w := r.waiter()
	rng := rand.New(rand.NewPCG(7, 7))
	for k := range r.few(400) {
		frames := r.frames(r.B, 1+rng.IntN(3), 60+rng.IntN(200))
		for _, f := range frames {
			r.later(time.Duration(rng.IntN(3000)), pool, f)
		}
		var got []*mbuf.Buf
		into := make([]*mbuf.Buf, 4)
		for len(got) < len(frames) {
			if n := r.B.Rx(0).Recv(into); n > 0 {
				got = append(got, into[:n]...)
				continue
			}
			if rng.IntN(2) == 0 {
				r.pass(time.Duration(rng.IntN(500)))
			}
			if !r.B.Rx(0).Arm(w) {
				continue
			}
			if woken, err := w.Wait(r.Clock.Nanos() + int64(time.Second)); err != nil || !woken {
				r.Fatalf("round %d: asleep while a frame waits: Wait %v, %v", k, woken, err)
			}
		}
		r.free(got...)
	}
}

// testIdle is a worker on two queues with nic.Idle: whatever the moment at which frames come, none waits while it sleeps, and
// a worker that has traffic does not sleep.
func testIdle(r *run) {
	queues := max(1, min(2, r.A.Info().RxQueues, r.A.Info().RSSQueues))
	r.startBoth(nic.Config{RxQueues: queues})
	pool := r.pool(mbuf.Config{})
	w := r.waiter()
	rng := rand.New(rand.NewPCG(8, 8))
	into := make([]*mbuf.Buf, 4)
	for k := range r.few(200) {
		armed := []nic.Armer{r.B.Tx(0)}
		for i := range queues {
			armed = append(armed, r.B.Rx(i))
		}
		idle := nic.NewIdle(w, rng.IntN(4), armed...)
		n := 1 + rng.IntN(4)
		for i := range n {
			f := r.packet(r.B, makeFlow(8*k+i, false, protoTCP), 10+rng.IntN(100))
			r.later(time.Duration(rng.IntN(4000)), pool, f)
		}
		if k%4 == 0 { // something that is sent meanwhile, and is reclaimed before the sleep
			r.sendFrames(r.B.Tx(0), pool, r.to(r.A, 60))
		}
		for got, rounds := 0, 0; got < n; rounds++ {
			work := 0
			for i := range queues {
				k := r.B.Rx(i).Recv(into)
				r.free(into[:k]...)
				work += k
			}
			got += work
			at := r.Clock.Nanos()
			slept, err := idle.Round(work, at+int64(time.Second))
			if err != nil || slept && work > 0 || rounds > 10000 {
				r.Fatalf("round %d of %d: work %d, slept %v, %v", rounds, k, work, slept, err)
			}
			if slept && r.Clock.Nanos() >= at+int64(time.Second) {
				r.Fatalf("%d: asleep with %d of %d frames here", k, got, n)
			}
			if !slept && work == 0 {
				r.pass(time.Duration(1 + rng.IntN(100)))
			}
		}
		r.free(r.drainQueue(r.A.Rx(0))...)
	}
}

// testModeration counts the interrupts of a worker that sleeps after each frame, with frames that come all the time.
func testModeration(r *run) {
	longest := r.B.Info().MaxInterruptInterval
	if longest == 0 {
		r.cannot("moderation of interrupts")
		return
	}
	for _, bad := range []time.Duration{-1, longest + 1} {
		if err := r.B.Start(r.ctx, nic.Config{Pool: r.pool(mbuf.Config{}), InterruptInterval: bad}); err == nil {
			r.Fatalf("an InterruptInterval of %v is accepted", bad)
		}
	}
	const frames, apart = 300, 2 * time.Microsecond
	pool := r.pool(mbuf.Config{})
	w := r.waiter()
	wakes := func(interval time.Duration) (n int) {
		r.start(r.A, nic.Config{})
		r.start(r.B, nic.Config{InterruptInterval: interval})
		r.up()
		for k := range frames {
			r.later(time.Duration(k)*apart, pool, r.to(r.B, 60))
		}
		into := make([]*mbuf.Buf, 32)
		for got := 0; got < frames; {
			k := r.B.Rx(0).Recv(into)
			r.free(into[:k]...)
			if got += k; k > 0 || got == frames || !r.B.Rx(0).Arm(w) {
				continue
			}
			if woken, err := w.Wait(r.Clock.Nanos() + int64(time.Second)); err != nil || !woken {
				r.Fatalf("interval %v: asleep after %d of %d frames: %v, %v", interval, got, frames, woken, err)
			}
			n++
		}
		r.stop(r.A, r.B)
		return n
	}
	always := wakes(0)
	if r.Late > 0 { // how many wakes there are depends on when the frames are sent, too
		r.cannot("how much moderation saves")
		return
	}
	for _, interval := range []time.Duration{20 * time.Microsecond, 100 * time.Microsecond, longest} {
		if n, most := wakes(interval), int(frames*apart/interval)+3; n > most || n > always {
			r.Errorf("an interrupt every %v at most: %d wakes in %v, want at most %d; without it there are %d", interval, n, frames*apart, most, always)
		}
	}
}

// testLinkWakes waits for the link to go and to come back, with nobody to look after it meanwhile.
func testLinkWakes(r *run) {
	if r.SetLink == nil {
		r.cannot("a wire that is taken off")
		return
	}
	r.startBoth(nic.Config{})
	w := r.waiter()
	if r.B.ArmLink(w, nic.Link{}) {
		r.Error("the link is up, was said to be seen down, and ArmLink says that one may sleep")
	}
	for _, up := range []bool{false, true, false, true} {
		asked := false // a second time might come late, and undo what the next round asks for
		for seen := r.B.Link(); seen.Up != up; seen = r.B.Link() {
			r.B.ArmLink(w, seen) // twice is as good as once
			if !r.B.ArmLink(w, seen) {
				continue
			}
			if !asked {
				asked = true
				r.Clock.At(r.Clock.Nanos()+1000, func() { r.SetLink(up) })
			}
			if woken, err := w.Wait(r.Clock.Nanos() + int64(20*time.Second)); err != nil || !woken {
				r.Fatalf("the link is to be up %v, and nobody wakes: %v, %v; it is %v", up, woken, err, r.B.Link())
			}
		}
	}
	if !r.B.ArmLink(w, r.B.Link()) {
		r.Error("the link is as it was seen, and ArmLink says no")
	}
	r.stop(r.B)
	if woken, err := w.Wait(r.Clock.Nanos() + int64(time.Millisecond)); err != nil || !woken {
		r.Errorf("the port has stopped, and who waits for its link is not told: %v, %v", woken, err)
	}
	if err := r.B.Close(); err != nil {
		r.Errorf("close: %v", err)
	}
	if r.B.ArmLink(w, r.B.Link()) {
		r.Error("the port is closed, its link will never change, and ArmLink says that one may sleep")
	}
}

// testPause has B asked to be silent for a while.
func testPause(r *run) {
	if r.Late > 0 { // a pause lasts 3 ms, and so may anything else
		r.cannot("how long a pause is")
		return
	}
	r.start(r.A, nic.Config{})
	if err := r.B.Start(r.ctx, nic.Config{Pool: r.pool(mbuf.Config{}), HonourPause: true}); errors.Is(err, errors.ErrUnsupported) {
		r.cannot("pause frames")
		return
	} else if err != nil {
		r.Fatal(err)
	}
	r.up()
	pool := r.pool(mbuf.Config{})
	pause := func() int64 { // how long a frame of B's takes behind a pause frame of A's
		f := header(60, [6]byte{1, 0x80, 0xc2, 0, 0, 1}, r.A.Info().MAC, 0x8808)
		f[15], f[16], f[17] = 1, 0xff, 0xff
		r.sendFrames(r.A.Tx(0), pool, f)
		r.pass(100 * time.Microsecond)
		at := r.Clock.Nanos()
		g := r.to(r.A, 60)
		r.sendFrames(r.B.Tx(0), pool, g)
		r.check(r.receive(r.A.Rx(0), 1, 1), [][]byte{g})
		took := r.Clock.Nanos() - at
		r.nothing(r.B.Rx(0)) // a pause frame is for the card
		return took
	}
	whole := int64(0xffff * 512 * 1e9 / float64(r.B.Link().Speed)) // IEEE 802.3 annex 31B: quanta of 512 bit times
	if took := pause(); took < whole-int64(200*time.Microsecond) {
		r.Errorf("asked to be silent for %d ns, B sends after %d", whole, took)
	}
	r.stop(r.B)
	r.start(r.B, nic.Config{})
	r.up()
	if took := pause(); took > whole/2 {
		r.Errorf("not told to honour pause frames, B sends only after %d ns", took)
	}
}
