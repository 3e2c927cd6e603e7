package nic82599

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"bare.wire/ixgbe/reg"
)

// word returns the 64-bit word at the start of b, which is 8 bytes or more and aligned. Descriptors are shared with a driver
// that looks at them while they are written, so their words are loaded and stored atomically; the frames are not. They are
// little-endian, as are the machines this runs on (amd64, arm64).
func word(b []byte) *uint64 { return (*uint64)(unsafe.Pointer(unsafe.SliceData(b))) }

func half(b []byte) *uint32 { return (*uint32)(unsafe.Pointer(unsafe.SliceData(b))) }

func aligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 == 0 }

func load(b []byte) uint64     { return atomic.LoadUint64(word(b)) }
func store(b []byte, v uint64) { atomic.StoreUint64(word(b), v) }

// errNoBytes is a Memory that breaks its promise of at least one byte.
var errNoBytes = errors.New("no bytes where one was promised")

// descs returns the bytes of up to n descriptors of a ring from index i on, without going round: at least one, or nil after
// an IOMMU fault, which is kept as misuse.
func (c *Card) descs(q *queue, i, n int) []byte {
	n = min(n, q.n-i)
	bus := q.base + uint64(i)*reg.DescSize
	b, err := c.mem.Bytes(bus, n*reg.DescSize)
	if err != nil || len(b) < reg.DescSize || !aligned(b) {
		c.fault(q, "ring", bus, err)
		return nil
	}
	return b[:len(b)/reg.DescSize*reg.DescSize]
}

// fault is DMA to where the card may not go: the queue hangs.
func (c *Card) fault(q *queue, what string, bus uint64, err error) {
	c.wrong(DMAFault, q.id, "%s at bus address %#x: %v", what, bus, err)
	c.count.DMAFaults++
	q.hung = true
}

// gather appends n bytes at bus to dst.
func (c *Card) gather(dst []byte, bus uint64, n int) ([]byte, error) {
	for n > 0 {
		b, err := c.mem.Bytes(bus, n)
		if err == nil && len(b) == 0 {
			err = errNoBytes
		}
		if err != nil {
			return dst, err
		}
		dst = append(dst, b...)
		bus += uint64(len(b))
		n -= len(b)
	}
	return dst, nil
}

// scatter copies src to bus.
func (c *Card) scatter(bus uint64, src []byte) error {
	for len(src) > 0 {
		b, err := c.out.Bytes(bus, len(src))
		if err == nil && len(b) == 0 {
			err = errNoBytes
		}
		if err != nil {
			return err
		}
		n := copy(b, src)
		bus += uint64(n)
		src = src[n:]
	}
	return nil
}
