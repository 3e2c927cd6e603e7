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

func TestBurstsDoNotAllocate(t *testing.T) {
	if mbuf.Checking {
		return // the sanitizer makes a view for each buffer
	}
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f, size: 64})
		bufs := make([]*mbuf.Buf, 32)
		n := testing.AllocsPerRun(200, func() {
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
