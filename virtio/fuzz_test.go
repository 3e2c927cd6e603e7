package virtio

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
)

// fuzzer has a device do what the bytes of data say, to queues that are in use. Whatever it does, the driver does not panic, uses
// no memory outside its space, does not go round in circles, keeps its books, and has every buffer back in the end.
type fuzzer struct {
	*queueRig
	data []byte
	w    *nic.Waiter
	held []devChain
}

func (z *fuzzer) byte() byte {
	if len(z.data) == 0 {
		return 0
	}
	b := z.data[0]
	z.data = z.data[1:]
	return b
}

func (z *fuzzer) u16() uint16 { return uint16(z.byte()) | uint16(z.byte())<<8 }

// value is a number of the kinds that matter: small, close to the size of the ring or of a buffer, or any.
func (z *fuzzer) value() uint32 {
	b := z.byte()
	switch b >> 6 {
	case 0:
		return uint32(b & 63)
	case 1:
		return uint32(z.rx.capacity) + uint32(b&63) - 32
	case 2:
		return uint32(z.u16())
	}
	return uint32(z.u16())<<16 | uint32(z.u16())
}

// scribble writes a value where only the device may write, or where it must not.
func (z *fuzzer) scribble(d *ringDevice) {
	a, v := d.area, z.value()
	at := a.Device + 2*uint64(z.u16()%uint16(2+4*a.Size))
	if a.Packed {
		at = a.Desc + 2*uint64(z.u16()%uint16(8*a.Size))
	} else if z.byte()&3 == 0 {
		at = a.Desc + 2*uint64(z.u16()%uint16(9*a.Size))
	}
	d.put16(at, uint16(v))
}

// reply returns a receive buffer with a header and a length that may be true.
func (z *fuzzer) reply() {
	c, ok := z.rxDev.pop2()
	if !ok {
		return
	}
	n := int(z.value())
	first := c.parts[0]
	if m, err := z.space.Bytes(first.bus, int(min(first.len, 20))); err == nil {
		for i := range m {
			m[i] = 0
		}
		if len(m) >= 12 {
			m[0], m[1] = z.byte()&7, z.byte()&0x87
			binary.LittleEndian.PutUint16(m[4:], z.u16())
			m[6], m[8], m[10] = z.byte(), z.byte()&31, z.byte()&3
		}
	}
	z.rxDev.use(c, n)
}

// pop2 is pop, for rings that the device itself has written over.
func (d *ringDevice) pop2() (c devChain, ok bool) {
	if d.area.Packed {
		at := d.area.Desc + spec.DescSize*uint64(d.availIdx)
		p, id, flags := d.desc(at)
		if avail := flags&spec.DescAvail != 0; avail != d.availWrap || flags&spec.DescUsed != 0 == avail {
			return c, false
		}
		if d.availIdx++; int(d.availIdx) == d.area.Size {
			d.availIdx, d.availWrap = 0, !d.availWrap
		}
		return devChain{id: uint32(id), descs: 1, parts: []devPart{p}}, true
	}
	if d.u16(d.area.Driver+2) == d.availIdx {
		return c, false
	}
	head := d.u16(d.area.Driver + 4 + 2*uint64(d.availIdx%uint16(d.area.Size)))
	d.availIdx++
	if int(head) >= d.area.Size {
		return c, false
	}
	p, _, _ := d.desc(d.area.Desc + spec.DescSize*uint64(head))
	return devChain{id: uint32(head), descs: 1, parts: []devPart{p}}, true
}

// step is one thing that somebody does.
func (z *fuzzer) step() {
	op := z.byte()
	switch op % 12 {
	case 0, 1, 2:
		z.reply()
	case 3, 4:
		if c, ok := z.txDev.pop2(); ok {
			z.held = append(z.held, c)
		}
		if n := len(z.held); n > 0 && op&16 != 0 {
			i := int(z.byte()) % n
			z.txDev.use(z.held[i], int(op))
			z.held = append(z.held[:i], z.held[i+1:]...)
		}
	case 5:
		z.scribble(z.rxDev)
	case 6:
		z.scribble(z.txDev)
	case 7, 8:
		var bufs [5]*mbuf.Buf
		for _, b := range bufs[:z.rx.Recv(bufs[:1+op>>4%5])] {
			content(b) // is memory
			z.cache.Free(b)
		}
	case 9:
		b := z.cache.Alloc()
		if b == nil {
			return
		}
		if _, err := b.Reserve(20 + int(op)); err != nil {
			z.t.Fatal(err)
		}
		if op&32 != 0 {
			if n := z.cache.Alloc(); n != nil {
				_, _ = n.Reserve(30)
				b.SetNext(n)
			}
		}
		if z.tx.Send([]*mbuf.Buf{b}) == 0 {
			z.cache.Free(b)
		}
	case 10:
		z.tx.Reclaim()
	case 11:
		z.rx.Arm(z.w)
		z.tx.Arm(z.w)
	}
}

func fuzzRing(f *testing.F, ring spec.Features, sizes [2]int) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x10\x02\x00\x00\x00\x00\x00\x01\x07\x07\x09\x13\x0a\x29\x03\x13\x00\x0a\x0b"))
	f.Add([]byte("\x01\x40\x00\x00\x00\x00\x00\x00\x01\x08\x05\x45\x00\x00\x07"))
	f.Add([]byte("\x06\x00\x48\x00\x00\x00\x00\x00\x02\x00\x70\x00\x00\x00\x00\x00\x00\x00\x07\x07\x08"))
	f.Add([]byte("\x29\x29\x29\x03\x13\x13\x13\x01\x0a\x06\x41\x02\x00\x01\x0a"))
	f.Add([]byte("\x19\x09\x09\x03\x03\x03\x13\x02\x13\x00\x0a\x0b\x06\xc1\x02\x03\x04\x05\x06\x0a"))
	w, err := nic.NewWaiter(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzOnce(t, w, ring, sizes, data[:min(len(data), 2000)])
	})
}

// fuzzOnce says whether the device was found out.
func fuzzOnce(t *testing.T, w *nic.Waiter, ring spec.Features, sizes [2]int, data []byte) bool {
	z := &fuzzer{data: data, w: w}
	kind := z.byte()
	features := version1 | ring
	for i, f := range []spec.Features{spec.FeatureMrgRxBuf, spec.FeatureEventIdx, spec.FeatureInOrder, spec.FeatureIndirectDesc, spec.FeatureGuestCSum | spec.FeatureGuestTSO4} {
		if kind&(1<<i) != 0 {
			features |= f
		}
	}
	c := ringConfig{features: features, size: sizes[kind>>5%2], maxFrame: 3000, offloads: nic.RxL4Checksum, pool: mbuf.Config{Size: 4096, Buffers: 60}}
	if features&spec.FeatureGuestTSO4 != 0 && features&spec.FeatureMrgRxBuf == 0 {
		c.pool = mbuf.Config{Size: 16384, Buffers: 60} // a ring of 8 has room for a frame then
	}
	z.queueRig = newQueueRig(t, c)
	for len(z.data) > 0 && z.failed == nil {
		z.step()
		z.consistent()
	}
	if z.failed != nil {
		z.fails("dev: ")
	}
	z.end()
	return z.failed != nil
}

func FuzzUsedRing(f *testing.F) { fuzzRing(f, 0, [2]int{8, 8}) }

func FuzzPackedRing(f *testing.F) { fuzzRing(f, spec.FeatureRingPacked, [2]int{8, 7}) }

// TestDeviceThatDoesAnything is the fuzz target on random bytes.
func TestDeviceThatDoesAnything(t *testing.T) {
	w := newTestWaiter(t)
	gone := 0
	for seed := range uint64(fewer(300)) {
		rng := rand.New(rand.NewPCG(seed, 7))
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		if fuzzOnce(t, w, spec.FeatureRingPacked*spec.Features(seed&1), [2]int{8, 8 - int(seed&1)}, data) {
			gone++
		}
	}
	if gone < fewer(100) {
		t.Errorf("only %d devices were found out", gone)
	}
}
