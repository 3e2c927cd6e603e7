package vtop

import (
	"cmp"
	"fmt"
	"slices"
)

// Bus addresses of mapped spaces. Below 4 GiB lie the windows that machines
// reserve (local APIC, MSI doorbells, PCI holes); 39 bits is the least that
// IOMMUs translate, and one bit less keeps clear of sign trouble.
const (
	busFirst = 4 << 30
	busLimit = 1 << 38
)

// choose finds a free bus address for size bytes, aligned to align and to a
// granule, that every attached device can use. It goes round: an address that
// was given back is used again as late as possible, and a granule between two
// regions stays free, so that what a device does with a stale address, or
// behind the end of a region, faults. When addresses run short, it does
// without the gap.
func (s *Space) choose(size, align uint64) (uint64, error) {
	align = max(align, granule)
	var taken []Range
	for _, e := range s.entries {
		for _, r := range e.runs {
			taken = append(taken, r.busRange())
		}
	}
	slices.SortFunc(taken, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	for _, gap := range []uint64{granule, 0} {
		for _, from := range []uint64{s.next, busFirst} {
			if bus, ok := s.fit(taken, from, size, align, gap); ok {
				s.next = roundUp(bus+size+gap, granule)
				return bus, nil
			}
		}
	}
	return 0, fmt.Errorf("no %d free bus addresses below %#x that every attached device can use: remove regions, or use fewer and larger ones",
		size, uint64(busLimit))
}

// fit gives the lowest address from from on where size bytes are free, with
// gap bytes to the next region on both sides.
func (s *Space) fit(taken []Range, from, size, align, gap uint64) (uint64, bool) {
	for bus := roundUp(from, align); bus < busLimit && size <= busLimit-bus; {
		at := roundUp(s.clear(taken, bus, size, gap), align)
		if at == bus {
			return bus, true
		}
		bus = at
	}
	return 0, false
}

// clear gives bus if size bytes are free and usable there, else the next
// higher address where it may be worth looking.
func (s *Space) clear(taken []Range, bus, size, gap uint64) uint64 {
	for _, t := range taken {
		// Regions start at granules, wherever they end.
		end := roundUp(t.Last+1, granule)
		if bus < end+gap && t.First < bus+size+gap {
			bus = end + gap
		}
	}
	for _, m := range s.mappers {
		bus = m.nextUsable(bus, size)
	}
	return bus
}

// nextUsable gives the lowest address from bus on where the device can use
// size bytes, or busLimit.
func (a attached) nextUsable(bus, size uint64) uint64 {
	for _, u := range a.usable {
		at := max(bus, u.First)
		if at < busLimit && at <= u.Last && size-1 <= u.Last-at {
			return at
		}
	}
	return busLimit
}

// roundUp is exact for the addresses used here, which stay far below 2⁶⁴.
func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }
