package ixgbe

import (
	"unsafe"

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

// ringBytes is the memory of a ring of n descriptors: one more than it has, see collect.
func ringBytes(n int) int { return ((n+1)*descSize + ringAlign - 1) &^ (ringAlign - 1) }

// newRings allocates room for rings of the given numbers of descriptors.
func newRings(space *vtop.Space, name string, node int, sizes []int) (*vtop.Arena, error) {
	total := 0
	for _, n := range sizes {
		total += ringBytes(n)
	}
	return vtop.NewArena(space, vtop.ArenaConfig{Name: name + " rings", Node: node, Size: total})
}

// cutRing returns memory for a ring of n descriptors, zeroed, and its bus address.
func cutRing(mem *vtop.Arena, n int) (unsafe.Pointer, uint64, error) {
	return mem.Cut(ringBytes(n), ringAlign)
}
