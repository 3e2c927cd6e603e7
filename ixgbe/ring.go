package ixgbe

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"bare.wire/hugepage"
	"bare.wire/vtop"
)

// Rings are 128-byte aligned (§8.2.3.8.1, §8.2.3.9.5), their lengths multiples of 8 descriptors.
const (
	descSize  = 16
	ringAlign = 128
	minDesc   = 64
	maxDesc   = 4096
	descAlign = 8
)

// poisonBus is the buffer address in a receive descriptor without a buffer: no region lies there, so a card that used it
// would fault instead of writing over somebody's memory.
const poisonBus = ^uint64(0) &^ 0xffff

// rxDesc is an advanced receive descriptor. The driver writes the buffer's address and 0; the card writes back what it
// found (§7.1.6), the second word last, and in it DD.
type rxDesc struct{ lo, hi uint64 }

// txDesc is an advanced transmit descriptor (§7.2.3.2). The card writes back DD into the second word.
type txDesc struct{ lo, hi uint64 }

// indexes are some of a ring's descriptors, oldest first.
type indexes struct {
	at      []uint16 // a ring, of the ring's size
	head, n uint32
}

func newIndexes(size int) indexes { return indexes{at: make([]uint16, size)} }

func (x *indexes) first() uint32 { return uint32(x.at[x.head]) }

func (x *indexes) pop() {
	x.n--
	if x.head++; x.head == uint32(len(x.at)) {
		x.head = 0
	}
}

func (x *indexes) push(i uint32) {
	at := x.head + x.n
	if at >= uint32(len(x.at)) {
		at -= uint32(len(x.at))
	}
	x.at[at] = uint16(i)
	x.n++
}

// ringMemory is the memory of all rings of a port: one region, cut from the front.
type ringMemory struct {
	space  *vtop.Space
	region *hugepage.Region
	unhold func() // lets the region leave the space
	used   int
}

// ringBytes is the memory of a ring of n descriptors: one more than it has, see collect.
func ringBytes(n int) int { return ((n+1)*descSize + ringAlign - 1) &^ (ringAlign - 1) }

// newRingMemory allocates room for rings of the given numbers of descriptors.
func newRingMemory(space *vtop.Space, name string, node int, sizes []int) (*ringMemory, error) {
	total := 0
	for _, n := range sizes {
		total += ringBytes(n)
	}
	region, err := hugepage.Alloc(hugepage.Config{Size: total, Node: node, RequireHuge: space.Physical(), Name: name + " rings"})
	if err != nil {
		return nil, fmt.Errorf("descriptor rings: %w", err)
	}
	if err := space.Add(region); err != nil {
		return nil, errors.Join(fmt.Errorf("descriptor rings: %w", err), region.Close())
	}
	unhold, err := space.Hold(region)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("descriptor rings: %w", err), remove(space, region))
	}
	return &ringMemory{space: space, region: region, unhold: unhold}, nil
}

// cut returns memory for a ring of n descriptors, zeroed, and its bus address.
func (m *ringMemory) cut(n int) (unsafe.Pointer, uint64, error) {
	size := ringBytes(n)
	for m.used+size <= m.region.Size() {
		p := unsafe.Add(m.region.Base(), m.used)
		if run := m.space.Contiguous(p); run < size {
			m.used += run
			continue
		}
		bus, err := m.space.Bus(p, size)
		if err != nil {
			return nil, 0, fmt.Errorf("descriptor ring: %w", err)
		}
		clear(unsafe.Slice((*byte)(p), size))
		m.used += size
		return p, bus, nil
	}
	return nil, 0, fmt.Errorf("descriptor ring of %d bytes: no contiguous memory left in a region of %d", size, m.region.Size())
}

// free gives the memory back. The card no longer uses it.
func (m *ringMemory) free() error {
	if m == nil {
		return nil
	}
	m.unhold()
	return remove(m.space, m.region)
}

// remove takes a region out of the space and frees it. It does not wait for others who hold it: that they do is an error.
func remove(space *vtop.Space, region *hugepage.Region) error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := space.Remove(now, region); err != nil {
		return fmt.Errorf("descriptor rings: %w", err)
	}
	return region.Close()
}
