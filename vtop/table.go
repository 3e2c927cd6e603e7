package vtop

import (
	"math/bits"

	"bare.wire/hugepage"
)

// granule is the block that both directions of translation are looked up by,
// in bytes. Regions start at multiples of it in memory and on the bus, so a
// granule never belongs to two of them.
const (
	granuleShift = 21
	granule      = 1 << granuleShift
)

// A compile error here says that hugepage.Align is not a multiple of granule.
const _ = uint(-(hugepage.Align % granule))

// run is memory that is contiguous both for the process and on the bus.
type run struct {
	va     uint64 // address of mem[0], for arithmetic only
	bus    uint64
	mem    []byte
	region *hugepage.Region
}

func (r *run) size() uint64 { return uint64(len(r.mem)) }

func (r *run) busRange() Range { return Range{First: r.bus, Last: r.bus + r.size() - 1} }

// table is an immutable picture of all translations.
type table struct{ byVA, byBus index }

func newTable(entries []*entry) *table {
	granules := 0
	for _, e := range entries {
		for _, r := range e.runs {
			granules += int((r.size() + granule - 1) / granule)
		}
	}
	t := &table{byVA: newIndex(granules), byBus: newIndex(granules)}
	for _, e := range entries {
		if e.unreachable {
			continue
		}
		for _, r := range e.runs {
			for off := uint64(0); off < r.size(); off += granule {
				t.byVA.insert(r.va+off, r)
				t.byBus.insert(r.bus+off, r)
			}
		}
	}
	return t
}

// contiguous is Space.Contiguous by number.
func (t *table) contiguous(va uint64) int {
	r := t.byVA.find(va)
	if r == nil || va-r.va >= r.size() {
		return 0
	}
	return int(r.size() - (va - r.va))
}

// index finds the run that an address belongs to: a hash table by granule,
// open addressing, at most half full, so that a look-up touches one slot or
// two. Radix trees and sorted arrays need more dependent loads.
type index struct {
	slots []slot // a power of two of them, at least one empty
	shift uint   // keeps the upper bits of the hash
}

type slot struct {
	granule uint64
	run     *run // nil: empty
}

func newIndex(n int) index {
	b := uint(bits.Len(uint(2*n + 1)))
	return index{slots: make([]slot, 1<<b), shift: 64 - b}
}

// start is where the search for a granule begins: Fibonacci hashing, which
// spreads neighbours.
func (x *index) start(g uint64) uint64 { return g * 0x9e3779b97f4a7c15 >> x.shift }

// find gives the run whose granule addr is in, or nil. The caller checks that
// addr is within the run: its last granule may be used in part.
func (x *index) find(addr uint64) *run {
	g := addr >> granuleShift
	mask := uint64(len(x.slots) - 1)
	for i := x.start(g); ; i++ {
		s := &x.slots[i&mask]
		if s.run == nil || s.granule == g {
			return s.run
		}
	}
}

func (x *index) insert(addr uint64, r *run) {
	g := addr >> granuleShift
	mask := uint64(len(x.slots) - 1)
	i := x.start(g)
	for x.slots[i&mask].run != nil {
		i++
	}
	x.slots[i&mask] = slot{granule: g, run: r}
}
