package virtio

import (
	"fmt"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
)

func newTestWaiter(t *testing.T) *nic.Waiter {
	t.Helper()
	w, err := nic.NewWaiter(clock.NewVirtual(time.Unix(0, 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func TestInterruptsAreOffUntilArm(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f})
		w := newTestWaiter(t)
		var bufs [8]*mbuf.Buf
		receive := func(i int) (interrupt bool) {
			old := r.rxDev.usedIdx
			r.deliver(0, 0, testFrame(i, 100))
			return r.rxDev.wants(old)
		}
		for i := range 3 {
			if receive(i) {
				t.Fatal("an interrupt that nobody has asked for")
			}
			if r.rx.Arm(w) {
				t.Fatal("armed with a frame waiting")
			}
			for _, b := range bufs[:r.rx.Recv(bufs[:])] {
				r.cache.Free(b)
			}
			if !r.rx.Arm(w) {
				t.Fatal("cannot sleep")
			}
			if !receive(i) {
				t.Fatal("the frame that was waited for does not interrupt")
			}
			r.rx.fired()
			if woken, err := w.Wait(0); !woken || err != nil {
				t.Fatal("not woken", err)
			}
			for _, b := range bufs[:r.rx.Recv(bufs[:])] {
				r.cache.Free(b)
			}
			if receive(i) {
				t.Fatal("an interrupt after the sleep")
			}
			for _, b := range bufs[:r.rx.Recv(bufs[:])] {
				r.cache.Free(b)
			}
		}
		r.end()
	})
}

func TestTransmitQueueWakesWhenAFrameIsDone(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f})
		w := newTestWaiter(t)
		for i := range 3 {
			r.send(r.packet(testFrame(i, 100)))
			if !r.tx.Arm(w) {
				t.Fatal("cannot sleep")
			}
			old := r.txDev.usedIdx
			r.sent(testFrame(i, 100), true)
			if !r.txDev.wants(old) {
				t.Fatal("the end of the frame does not interrupt")
			}
			r.tx.fired()
			if r.tx.Arm(w) {
				t.Fatal("armed with a frame to reclaim")
			}
			if n := r.tx.Reclaim(); n != 1 {
				t.Fatal(n)
			}
			r.send(r.packet(testFrame(i, 100)))
			old = r.txDev.usedIdx
			r.sent(testFrame(i, 100), true)
			if r.txDev.wants(old) {
				t.Fatal("an interrupt after the sleep")
			}
			r.tx.Reclaim()
		}
		r.end()
	})
}

// A frame that comes while Arm is at work is not slept over: the device has looked at the old event, and the driver looks at
// the ring once more. The moment is met by laying the event over the device's index: that changes when the event is written.
func TestFrameThatComesWhileArming(t *testing.T) {
	r := newQueueRig(t, ringConfig{features: version1 | spec.FeatureEventIdx})
	w := newTestWaiter(t)
	r.deliver(0, 0, testFrame(1, 100))
	r.cache.Free(r.recv(testFrame(1, 100)))
	r.send(r.packet(testFrame(1, 100)))
	r.sent(testFrame(1, 100), true)
	r.tx.Reclaim()
	r.send(r.packet(testFrame(1, 100)))
	for _, v := range []*virtqueue{&r.rx.virtqueue, &r.tx.virtqueue} {
		v.split.usedEvent = v.split.used
	}
	if r.rx.Arm(w) {
		t.Error("the receive queue sleeps over a frame")
	}
	if r.tx.Arm(w) {
		t.Error("the transmit queue sleeps over a frame")
	}
	r.end()
}

// TestDeviceIsNotifiedWhenItWants counts doorbells.
func TestDeviceIsNotifiedWhenItWants(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f, size: 16})
		if r.rxDev.rings != 1 {
			t.Errorf("%d notifications for a ring that was filled", r.rxDev.rings)
		}
		event := f&spec.FeatureEventIdx != 0
		one := func(want int) {
			t.Helper()
			before := r.txDev.rings
			r.send(r.packet(testFrame(1, 100)))
			if n := r.txDev.rings - before; n != want {
				t.Fatalf("%d notifications, want %d (available %d)", n, want, r.txDev.availIdx)
			}
			r.sent(testFrame(1, 100), true)
		}
		if event && !r.tx.packed {
			one(1) // the event of a fresh ring is at 0
			for range 20 {
				one(0)
			}
			for range 40 {
				r.txDev.notifyAt(r.txDev.availIdx + 1) // the one after the next
				one(0)
				one(1)
				one(0)
			}
			r.end()
			return
		}
		for range 20 {
			one(1)
		}
		r.txDev.quiet(true)
		for range 20 {
			one(0)
		}
		r.txDev.quiet(false)
		one(1)
		if event {
			for range 40 {
				at := r.txDev.availIdx + 1
				wrap := r.txDev.availWrap
				if at >= 16 {
					at, wrap = at-16, !wrap
				}
				if wrap {
					at |= spec.EventWrap
				}
				r.txDev.notifyAt(at)
				one(0)
				one(1)
				one(0)
			}
		}
		r.end()
	})
}

// TestNotificationSaysWhereTheRingIs: §2.9.
func TestNotificationSaysWhereTheRingIs(t *testing.T) {
	for _, f := range []spec.Features{version1, packedRing1} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			r := newQueueRig(t, ringConfig{features: f | spec.FeatureNotificationData, size: 8})
			if !r.tx.area().NotificationData {
				t.Error("the area does not say so")
			}
			for i := range 20 {
				r.send(r.packet(testFrame(i, 100)))
				r.sent(testFrame(i, 100), true)
				want := uint16(i + 1)
				if r.tx.packed {
					if want %= 8; (i+1)/8%2 == 0 {
						want |= spec.EventWrap
					}
				}
				if r.txDev.position != want {
					t.Fatalf("frame %d: position %#x, want %#x", i, r.txDev.position, want)
				}
			}
			r.end()
		})
	}
}

// TestEventStaysBehind: an interrupt that nobody has asked for does not come after 2¹⁶ buffers either.
func TestEventStaysBehind(t *testing.T) {
	r := newQueueRig(t, ringConfig{features: version1 | spec.FeatureEventIdx, size: 32})
	var bufs [16]*mbuf.Buf
	for i := 0; i < fewer(70000); i += 16 {
		old := r.rxDev.usedIdx
		for range 16 {
			r.deliver(0, 0, testFrame(i, 20))
		}
		if r.rxDev.wants(old) {
			t.Fatalf("an interrupt after %d frames", i)
		}
		n := r.rx.Recv(bufs[:])
		old = r.txDev.usedIdx
		if sent := r.tx.Send(bufs[:n]); sent != 16 || r.txDev.turn(16, 0) != 16 {
			t.Fatal(sent)
		}
		if r.txDev.wants(old) {
			t.Fatalf("an interrupt after %d frames were sent", i)
		}
		r.tx.Reclaim()
	}
	r.end()
}

func TestSleepersOfAQueueThatEndsAreWoken(t *testing.T) {
	r := newQueueRig(t, ringConfig{features: version1})
	w := newTestWaiter(t)
	if !r.rx.Arm(w) {
		t.Fatal("cannot sleep")
	}
	r.rx.kill(nic.ErrGone)
	if woken, err := w.Wait(0); !woken || err != nic.ErrGone {
		t.Error(woken, err)
	}
	if r.rx.Arm(w) {
		t.Error("armed on a queue that has ended")
	}
	r.end()
}

func TestRingWithoutBuffersCannotBeSleptOn(t *testing.T) {
	r := newQueueRig(t, ringConfig{features: version1, size: 16, pool: mbuf.Config{Buffers: 20, ReserveReceive: -1, ReserveControl: -1}})
	var kept []*mbuf.Buf
	for {
		b := r.cache.Alloc()
		if b == nil {
			break
		}
		kept = append(kept, b)
	}
	var bufs [16]*mbuf.Buf
	for r.deliver(0, 0, testFrame(1, 60)) {
		kept = append(kept, bufs[:r.rx.Recv(bufs[:])]...)
	}
	if r.rx.out != 0 {
		t.Fatalf("%d buffers left", r.rx.out)
	}
	if r.rx.Arm(newTestWaiter(t)) {
		t.Error("armed")
	}
	if r.rx.noBuf.Load() == 0 {
		t.Error("nobody counts that the pool was dry")
	}
	for _, b := range kept {
		r.cache.Free(b)
	}
	r.cache.Flush()
	if !r.rx.Arm(newTestWaiter(t)) {
		t.Error("not armed with buffers again")
	}
	r.end()
}
