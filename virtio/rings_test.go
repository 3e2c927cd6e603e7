package virtio

import (
	"fmt"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/virtio/spec"
)

// echo sends and receives n frames, one at a time or in bursts, and compares them all.
func (r *queueRig) echo(n, burst int) {
	r.t.Helper()
	bufs := make([]*mbuf.Buf, burst)
	for i := 0; i < n; i += burst {
		for j := range burst {
			if !r.deliver(0, 0, testFrame(i+j, 60+(i+j)%1400)) {
				r.t.Fatalf("no buffer for frame %d", i+j)
			}
		}
		got := 0
		for got < burst {
			k := r.rx.Recv(bufs[got:])
			if k == 0 {
				r.works()
				r.t.Fatalf("%d of %d frames", got, burst)
			}
			got += k
		}
		for j, b := range bufs {
			if string(content(b)) != string(testFrame(i+j, 60+(i+j)%1400)) {
				r.t.Fatalf("frame %d is not what was sent", i+j)
			}
		}
		for sent := 0; sent < burst; {
			k := r.tx.Send(bufs[sent:])
			for range k {
				r.sent(testFrame(i+sent, 60+(i+sent)%1400), true)
				sent++
			}
			if k == 0 && r.tx.Reclaim() == 0 {
				r.t.Fatal("the ring stays full")
			}
		}
		for range burst { // nothing is left
			if c, ok := r.txDev.pop(); ok {
				r.t.Fatalf("more was sent: %+v", c)
			}
		}
	}
}

func TestFramesGoRoundRingsOfAnySize(t *testing.T) {
	for _, size := range []int{2, 3, 4, 6, 255, 256, 1024, 2047, 32768} {
		for _, f := range []spec.Features{version1, version1 | spec.FeatureMrgRxBuf, version1 | spec.FeatureRingPacked, version1 | spec.FeatureRingPacked | spec.FeatureEventIdx} {
			if size&(size-1) != 0 && f&spec.FeatureRingPacked == 0 {
				continue
			}
			t.Run(fmt.Sprint(size, "/", f), func(t *testing.T) {
				r := newQueueRig(t, ringConfig{features: f, size: size, pool: mbuf.Config{Buffers: 2*size + 512}})
				burst := min(size/2, 32)
				r.echo(min(3*size, 5000)/burst*burst, burst)
				r.end()
			})
		}
	}
}

func TestIndexGoesRound(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f, size: 16})
		r.echo(70000/8*8, 8)
		r.works()
		r.end()
	})
}
