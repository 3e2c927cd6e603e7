package nictest

import (
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
		if now := r.Clock.Nanos(); now > at+int64(k+5)*int64(time.Millisecond) {
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
	for k := range few(400) {
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
