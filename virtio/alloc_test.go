package virtio

import (
	"testing"

	"bare.wire/mbuf"
	"bare.wire/virtio/spec"
)

// marks puts the number of buffers, 1, into the header of every buffer that the device has: turn does not write headers.
func (r *queueRig) marks() {
	for i := range r.rx.out {
		b := r.rx.bufs[(r.rx.clean+i)%r.rx.size]
		*(*uint32)(headerAt(b, r.rx.hdr)) = 0
		if r.rx.mrg {
			r.rxDev.put16(b.Bus()-uint64(r.rx.hdr)+spec.HdrNumBuffers, 1)
		}
	}
}

// allocs is how often f, which it calls runs+1 times, allocates. The sanitizer makes a view for each buffer, and is not asked.
func allocs(runs int, f func()) float64 {
	n := testing.AllocsPerRun(runs, f)
	if mbuf.Checking {
		return 0
	}
	return n
}

func TestBurstsDoNotAllocate(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f, size: 64})
		bufs := make([]*mbuf.Buf, 32)
		n := allocs(200, func() {
			r.marks()
			r.rxDev.turn(len(bufs), 72)
			got := 0
			for got < len(bufs) {
				got += r.rx.Recv(bufs[got:])
			}
			for sent := 0; sent < got; {
				sent += r.tx.Send(bufs[sent:])
			}
			r.txDev.turn(len(bufs), 0)
			r.tx.Reclaim()
		})
		if n != 0 {
			t.Errorf("%v allocations in a burst", n)
		}
		r.works()
		r.end()
	})
}

// Frames that take another way do not allocate either.
func TestFramesThatAreNotPlainDoNotAllocate(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f | spec.FeatureCSum, size: 256, offloads: sendOffloads})
		p, l3 := packetOf(false, false, 500)
		for name, b := range map[string]func() *mbuf.Buf{
			"segments": func() *mbuf.Buf { return r.packet(p, 100, 100) },
			"to cut":   func() *mbuf.Buf { b := r.asking(p, l3, mbuf.TxTSO, 200); b.MSS = 100; return b },
			"checksum": func() *mbuf.Buf { return r.asking(p, l3, mbuf.TxL4Sum, 200) },
			"too long": func() *mbuf.Buf { return r.packet(testFrame(1, 1519)) },
		} {
			var frames [][]*mbuf.Buf
			for range 11 {
				frames = append(frames, []*mbuf.Buf{b()})
			}
			n := allocs(len(frames)-1, func() {
				r.tx.Send(frames[0])
				frames = frames[1:]
			})
			if n != 0 || len(frames) != 0 {
				t.Errorf("%s: %v allocations for a frame", name, n)
			}
		}
		r.works()
		r.end()
	})
}

func benchQueues(b *testing.B, f spec.Features) {
	r := newQueueRig(b, ringConfig{features: f, size: 512})
	bufs := make([]*mbuf.Buf, 32)
	for i := 0; i < b.N; i += len(bufs) {
		r.rxDev.turn(len(bufs), 72)
		got := 0
		for got < len(bufs) {
			got += r.rx.Recv(bufs[got:])
		}
		r.tx.Send(bufs)
		r.txDev.turn(len(bufs), 0)
	}
	r.works()
	r.tx.Reclaim()
	r.end()
}

// BenchmarkForward is a frame in and out again, on a device in the same goroutine which costs more than the driver.
func BenchmarkForward(b *testing.B) {
	for _, f := range []spec.Features{version1, packedRing1, version1 | spec.FeatureEventIdx} {
		b.Run(f.String(), func(b *testing.B) { benchQueues(b, f) })
	}
}
