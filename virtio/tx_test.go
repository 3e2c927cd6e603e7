package virtio

import (
	"fmt"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
)

// TestWhereTheHeaderOfASentFrameIs: in front of the frame where that is allowed, else in memory of the ring's own.
func TestWhereTheHeaderOfASentFrameIs(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f})
		p := testFrame(1, 300)
		check := func(what string, b *mbuf.Buf, front bool, parts int) {
			t.Helper()
			bus := b.Bus()
			r.send(b)
			h, c := r.sent(p, true)
			if string(h) != string(make([]byte, len(h))) {
				t.Errorf("%s: header %x", what, h)
			}
			if got := c.parts[0].bus == bus-uint64(len(h)); got != front || len(c.parts) != parts {
				t.Errorf("%s: in front: %v, want %v; %d parts, want %d", what, got, front, len(c.parts), parts)
			}
			if len(c.parts) > 1 && f&spec.FeatureIndirectDesc != 0 && c.descs != 1 {
				t.Errorf("%s: %d descriptors of the ring", what, c.descs)
			}
			if n := r.tx.Reclaim(); n != 1 {
				t.Errorf("%s: %d reclaimed", what, n)
			}
		}
		check("plain", r.packet(p), true, 1)
		check("segments", r.packet(p, 14, 100), true, 3)
		b := r.packet(p)
		view := b.Clone(r.cache)
		check("shared", b, false, 2)
		check("shared once, by a view", view, true, 1)
		b = r.packet(p, 50)
		view = b.Clone(r.cache)
		check("shared segments", b, false, 3)
		view.Free()
		b = r.packet(p)
		if _, _, err := b.Prepend(r.cache, b.Headroom()-11); err != nil {
			t.Fatal(err)
		}
		p = content(b)
		check("11 bytes of headroom", b, false, 2)
		r.consistent()
		r.end()
	})
}

func TestFramesThatCanNeverBeSent(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f})
		asks := func(flags mbuf.TxFlags) *mbuf.Buf {
			b := r.packet(testFrame(1, 100))
			b.SetTxFlags(flags)
			return b
		}
		empty := r.packet(testFrame(1, 100))
		empty.SetNext(r.cache.Alloc())
		var cuts []int
		for range maxSegs {
			cuts = append(cuts, 2)
		}
		other := newQueueRig(t, ringConfig{features: f}) // another space
		for i, c := range []struct {
			b      *mbuf.Buf
			reason nic.TxDropReason
		}{
			{r.cache.Alloc(), nic.TxTooShort},
			{r.packet(testFrame(1, 13)), nic.TxTooShort},
			{empty, nic.TxTooShort},
			{r.packet(testFrame(1, 1519)), nic.TxTooLong},
			{r.packet(testFrame(1, 3000), 1500), nic.TxTooLong},
			{r.packet(testFrame(1, 100), cuts...), nic.TxTooManySeg},
			{asks(mbuf.TxL4Sum), nic.TxBadOffload},
			{asks(mbuf.TxVLAN), nic.TxBadOffload},
			{asks(mbuf.TxIPSum), nic.TxBadOffload},
			{other.packet(testFrame(1, 100)), nic.TxNoAddress},
		} {
			before := r.tx.dropped[c.reason].Load()
			good := r.packet(testFrame(i, 60))
			if n := r.tx.Send([]*mbuf.Buf{c.b, good}); n != 2 {
				t.Fatalf("case %d: %d taken", i, n)
			}
			if n := r.tx.dropped[c.reason].Load() - before; n != 1 {
				t.Errorf("case %d: %d counted as %v", i, n, c.reason)
			}
			r.sent(testFrame(i, 60), true)
			if _, more := r.txDev.pop(); more {
				t.Errorf("case %d was sent", i)
			}
		}
		if n := r.tx.packets.Load(); n != 10 {
			t.Errorf("%d packets counted", n)
		}
		other.end()
		r.end()
	})
}

func TestRingFullKeepsFrames(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f, size: 16})
		var bufs []*mbuf.Buf
		for i := range 20 {
			bufs = append(bufs, r.packet(testFrame(i, 60)))
		}
		if n := r.tx.Send(bufs); n != 16 {
			t.Fatalf("%d taken by a ring of 16", n)
		}
		if n := r.tx.Send(bufs[16:]); n != 0 || r.tx.full.Load() != 2 {
			t.Fatalf("%d taken by a full ring, full %d times", n, r.tx.full.Load())
		}
		_, c := r.sent(testFrame(0, 60), false)
		if n := r.tx.Reclaim(); n != 0 {
			t.Error("a frame is reclaimed that the device has")
		}
		r.txDev.use(c, 0)
		if n := r.tx.Send(bufs[16:]); n != 1 {
			t.Errorf("%d taken with one place free", n)
		}
		for i := range 16 {
			r.sent(testFrame(i+1, 60), true)
		}
		if n := r.tx.Reclaim(); n != 16 {
			t.Errorf("%d reclaimed", n)
		}
		r.cache.FreeBulk(bufs[17:])
		r.end()
	})
}

// Frames that take more descriptors than there are free are kept, not cut short.
func TestChainThatDoesNotFit(t *testing.T) {
	for _, f := range []spec.Features{version1, packedRing1} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			r := newQueueRig(t, ringConfig{features: f, size: 8})
			p := testFrame(1, 300)
			frames := []*mbuf.Buf{r.packet(p, 50, 50), r.packet(p, 50, 50), r.packet(p, 50, 50)}
			if n := r.tx.Send(frames); n != 2 {
				t.Fatalf("%d taken", n)
			}
			r.sent(p, true)
			if n := r.tx.Send(frames[2:]); n != 1 {
				t.Fatalf("%d taken with 5 places", n)
			}
			r.sent(p, true)
			r.sent(p, true)
			if n := r.tx.Reclaim(); n != 2 {
				t.Error(n)
			}
			long := r.packet(p, 20, 20, 20, 20, 20, 20, 20, 20) // 9 segments, a ring of 8
			r.send(long)
			if r.tx.dropped[nic.TxTooManySeg].Load() != 1 {
				t.Error("not refused")
			}
			r.end()
		})
	}
}

// Indirect tables that are used up are done without.
func TestMoreFramesOfSegmentsThanTables(t *testing.T) {
	for _, f := range []spec.Features{version1, packedRing1} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			r := newQueueRig(t, ringConfig{features: f | spec.FeatureIndirectDesc, size: 1024})
			p := testFrame(1, 100)
			for range 3 {
				sent, chained := 0, 0
				for range 400 {
					b := r.packet(p, 50)
					if r.tx.Send([]*mbuf.Buf{b}) == 0 {
						r.cache.Free(b)
						break
					}
					if _, c := r.sent(p, true); c.descs > 1 {
						chained++
					}
					sent++
					r.tx.reclaimAt = 1 << 30
				}
				if sent != 400 || chained != 400-maxTables {
					t.Errorf("%d sent, %d of them as chains", sent, chained)
				}
				if n := r.tx.Reclaim(); n != sent || r.tx.tables.n != 0 {
					t.Errorf("%d reclaimed, %d tables in use", n, r.tx.tables.n)
				}
			}
			r.consistent()
			r.end()
		})
	}
}

// A frame is freed when the device has used it, and by nothing else.
func TestFramesThatAreNotUsedComeBackByDrain(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f})
		r.send(r.packet(testFrame(1, 100)))
		r.send(r.packet(testFrame(2, 100), 30, 30))
		r.send(r.packet(testFrame(3, 100)))
		r.sent(testFrame(1, 100), true)
		if n := r.tx.Reclaim(); n != 1 {
			t.Error(n)
		}
		r.tx.kill(nil)
		got := 0
		frames, bufs := r.tx.drain(func(b *mbuf.Buf) {
			if b.Next() != nil {
				t.Error("a segment comes with another")
			}
			got++
			b.Free()
		})
		if frames != 2 || bufs != 4 || got != 4 {
			t.Errorf("%d frames, %d segments, %d given", frames, bufs, got)
		}
		r.end()
	})
}
