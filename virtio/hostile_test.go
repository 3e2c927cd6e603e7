package virtio

import (
	"encoding/binary"
	"fmt"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/virtio/spec"
)

// lie is something that a device does to a ring that it must not do.
type lie struct {
	name     string
	features spec.Features
	do       func(r *queueRig)
	says     []string
}

const (
	packedRing1 = version1 | spec.FeatureRingPacked
	inOrder1    = version1 | spec.FeatureInOrder
)

// receiveLies are told of the receive queue, with full buffers.
var receiveLies = []lie{
	{"an id beyond the ring", version1, func(r *queueRig) { r.rxDev.use(devChain{id: 700, descs: 1}, 100) },
		[]string{"dev: receive queue 0: used id 700 of a ring of 64 descriptors"}},
	{"an id beyond 16 bits", version1, func(r *queueRig) { r.rxDev.use(devChain{id: 1 << 31, descs: 1}, 100) }, []string{"used id 2147483648"}},
	{"an id beyond the ring", packedRing1, func(r *queueRig) { r.rxDev.use(devChain{id: 64, descs: 1}, 100) },
		[]string{"used id 64 of a ring of 64 descriptors"}},
	{"the same id twice", version1 | spec.FeatureMrgRxBuf, func(r *queueRig) {
		c, _ := r.rxDev.pop()
		r.rxDev.write(c, append(r.header(0, 0, 1), testFrame(1, 60)...))
		r.rxDev.use(c, 72)
		r.rxDev.use(c, 72)
		r.cache.Free(r.recv(testFrame(1, 60)))
	}, []string{"used id 0, which the device does not have"}},
	{"the same id twice", packedRing1, func(r *queueRig) {
		c, _ := r.rxDev.pop()
		r.rxDev.write(c, append(r.header(0, 0, 1), testFrame(1, 60)...))
		r.rxDev.use(c, 72)
		r.rxDev.use(c, 72)
		r.cache.Free(r.recv(testFrame(1, 60)))
	}, []string{"used id 0, which the device does not have"}},
	{"an index that jumps", version1, func(r *queueRig) { r.rxDev.put16(r.rxDev.area.Device+2, 65) }, []string{"index moved by 65", "has 64 buffers"}},
	{"an index that goes back", version1, func(r *queueRig) { r.rxDev.put16(r.rxDev.area.Device+2, 0xffff) }, []string{"index moved by 65535"}},
	{"more than fits", version1, func(r *queueRig) {
		c, _ := r.rxDev.pop()
		r.rxDev.use(c, 12+2048+1)
	}, []string{"2061 bytes written to a buffer of 2060"}},
	{"more than fits", packedRing1, func(r *queueRig) {
		c, _ := r.rxDev.pop()
		r.rxDev.use(c, 1<<31)
	}, []string{"2147483648 bytes written to a buffer of 2060"}},
	{"as much as a number can say", version1, func(r *queueRig) {
		c, _ := r.rxDev.pop()
		r.rxDev.use(c, 1<<32-1)
	}, []string{"4294967294 bytes written to a buffer of 2060"}},
	{"less than a header", version1, func(r *queueRig) {
		c, _ := r.rxDev.pop()
		r.rxDev.use(c, 11)
	}, []string{"11 bytes written, which is less than a header of 12"}},
	{"a frame of no buffers", version1 | spec.FeatureMrgRxBuf, func(r *queueRig) { r.claim(0) }, []string{"a frame in 0 buffers"}},
	{"a frame of more buffers than there are", version1 | spec.FeatureMrgRxBuf, func(r *queueRig) { r.claim(65) }, []string{"a frame in 65 buffers, of 64"}},
	{"a batch of more than the index says", inOrder1, func(r *queueRig) { r.rxDev.useBatch(devChain{id: 9, descs: 1}, 100, 1, 3) },
		[]string{"ends a batch of 10 buffers"}},
	{"an id that is part of a buffer", version1, func(r *queueRig) {
		// Without FeatureMrgRxBuf and with small buffers, a frame is a chain.
		c, _ := r.rxDev.pop()
		if len(c.parts) < 2 {
			r.t.Fatal("not a chain")
		}
		r.rxDev.use(devChain{id: c.id + 1, descs: 1}, 100)
	}, []string{"used id 1, which is not the first of its buffer"}},
}

// claim has the device return one buffer, with a header that says they are n.
func (r *queueRig) claim(n uint16) {
	c, _ := r.rxDev.pop()
	r.rxDev.write(c, append(r.header(0, 0, n), testFrame(1, 60)...))
	r.rxDev.use(c, 72)
}

func TestDeviceThatBreaksARuleOfReceptionIsGone(t *testing.T) {
	for _, l := range receiveLies {
		t.Run(fmt.Sprint(l.name, "/", l.features), func(t *testing.T) {
			c := ringConfig{features: l.features, maxFrame: 1518}
			if l.name == "an id that is part of a buffer" {
				c.pool.Size = 1024
			}
			r := newQueueRig(t, c)
			l.do(r)
			var bufs [8]*mbuf.Buf
			if n := r.rx.Recv(bufs[:]); n != 0 {
				t.Errorf("%d frames", n)
			}
			r.fails(l.says...)
			r.end() // finds every buffer
		})
	}
}

var transmitLies = []lie{
	{"an id beyond the ring", version1, func(r *queueRig) { r.txDev.use(devChain{id: 64, descs: 1}, 0) }, []string{"dev: transmit queue 0: used id 64 of a ring"}},
	{"an id that it does not have", version1, func(r *queueRig) { r.txDev.use(devChain{id: 5, descs: 1}, 0) }, []string{"used id 5, which the device does not have"}},
	{"an id that it does not have", packedRing1, func(r *queueRig) { r.txDev.use(devChain{id: 5, descs: 1}, 0) }, []string{"used id 5, which"}},
	{"an id that it does not have", inOrder1, func(r *queueRig) {
		r.send(r.packet(testFrame(1, 200), 50)) // which is not plain, so that ids are looked at
		r.txDev.use(devChain{id: 40, descs: 1}, 0)
	}, []string{"used id 40, which"}},
	{"the rest of a chain", version1, func(r *queueRig) {
		r.send(r.packet(testFrame(1, 200), 50))
		r.txDev.use(devChain{id: 4, descs: 1}, 0)
	}, []string{"used id 4, which is not the first"}},
	{"an index that jumps", version1, func(r *queueRig) { r.txDev.put16(r.txDev.area.Device+2, 4) }, []string{"index moved by 4, but the device has 3"}},
	{"an index that jumps", inOrder1, func(r *queueRig) { r.txDev.put16(r.txDev.area.Device+2, 4) }, []string{"index moved by 4, but the device has 3"}},
}

func TestDeviceThatBreaksARuleOfTransmissionIsGone(t *testing.T) {
	for _, l := range transmitLies {
		t.Run(fmt.Sprint(l.name, "/", l.features), func(t *testing.T) {
			r := newQueueRig(t, ringConfig{features: l.features})
			for i := range 3 {
				r.send(r.packet(testFrame(i, 100)))
			}
			l.do(r)
			if n := r.tx.Reclaim(); n != 0 {
				t.Errorf("%d frames are said to be sent", n)
			}
			r.fails(l.says...)
			if n := r.tx.Send(nil); n != 0 {
				t.Error("a queue that is gone sends")
			}
			r.end()
		})
	}
}

// A device returns a buffer although it has none at all.
func TestDeviceThatHasNothingReturnsSomething(t *testing.T) {
	r := newQueueRig(t, ringConfig{features: version1})
	r.txDev.use(devChain{id: 0, descs: 1}, 0)
	if r.tx.Arm(nil) {
		t.Error("the queue can be slept on")
	}
	r.fails("transmit queue 0: the used index moved by 1, but the device has 0 buffers")
	r.end()
}

// TestListOfBuffersThatIsShortOrLies: what there is of the frame is freed, and counted as an error.
func TestListOfBuffersThatIsShortOrLies(t *testing.T) {
	mergeable(t, func(t *testing.T, f spec.Features) {
		for _, c := range []struct {
			name string
			lens []int // written to each buffer, header included
		}{
			{"longer than any frame", slicesRepeat(2060, 40)},
			{"longer than configured", []int{2060, 500}},
			{"nothing in the second", []int{72, 0}},
			{"nothing at all", []int{12, 0, 0}},
			{"shorter than a frame", []int{12 + 13}},
		} {
			t.Run(c.name, func(t *testing.T) {
				r := newQueueRig(t, ringConfig{features: f})
				for i, n := range c.lens {
					x, ok := r.rxDev.pop()
					if !ok {
						t.Fatal("no buffer")
					}
					if i == 0 {
						r.rxDev.write(x, r.header(0, 0, uint16(len(c.lens))))
					}
					r.rxDev.use(x, n)
					r.nothing()
				}
				r.works()
				if n := r.rx.errors.Load(); n != 1 {
					t.Errorf("%d errors", n)
				}
				r.deliver(0, 0, testFrame(7, 1000)) // and on it goes
				r.cache.Free(r.recv(testFrame(7, 1000)))
				r.end()
			})
		}
	})
}

func slicesRepeat(v, n int) (s []int) {
	for range n {
		s = append(s, v)
	}
	return s
}

// A list that ends in the middle is waited for, and given back at the end.
func TestFrameThatNeverEnds(t *testing.T) {
	r := newQueueRig(t, ringConfig{features: version1 | spec.FeatureMrgRxBuf})
	for i := range 3 {
		x, _ := r.rxDev.pop()
		if i == 0 {
			r.rxDev.write(x, r.header(0, 0, 4))
		}
		r.rxDev.use(x, 500)
		r.nothing()
	}
	if r.rx.partial == nil {
		t.Fatal("nothing is kept")
	}
	r.end()
}

// The device may write where it can: what it writes into memory that the driver has given it to read changes nothing for the
// driver.
func TestDeviceThatWritesOverTheDriversPartOfTheRing(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f})
		r.send(r.packet(testFrame(1, 300), 100))
		d := r.txDev
		c, _ := d.pop()
		for i := range uint64(d.area.Size) {
			m := d.mem(d.area.Desc+16*i, 16)
			binary.LittleEndian.PutUint64(m, ^uint64(0))
			binary.LittleEndian.PutUint64(m[8:], ^uint64(0)) // in a packed ring: used
			if !d.area.Packed {
				d.put16(d.area.Driver+4+2*i, 0xffff)
			}
		}
		d.use(c, 0)
		if n := r.tx.Reclaim(); n != 1 {
			t.Errorf("%d frames are back", n)
		}
		r.works()
		if d.area.Packed { // descriptors are written as a whole, each time
			for i := range 3 * d.area.Size {
				r.send(r.packet(testFrame(i, 60)))
				r.sent(testFrame(i, 60), true)
			}
			r.works()
		}
		r.end()
	})
}
