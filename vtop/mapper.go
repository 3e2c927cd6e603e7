package vtop

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	"bare.wire/hugepage"
)

// Range is a range of bus addresses, both ends included.
type Range struct{ First, Last uint64 }

func (r Range) String() string { return fmt.Sprintf("[%#x, %#x]", r.First, r.Last) }

func (r Range) contains(o Range) bool { return r.First <= o.First && o.Last <= r.Last }

func (r Range) overlaps(o Range) bool { return r.First <= o.Last && o.First <= r.Last }

// Mapper makes memory reachable for a device, or for all devices behind one
// IOMMU. Its methods are called one at a time and must not call the Space. It
// is compared with ==, so it should be a pointer.
type Mapper interface {
	// Map makes size bytes at va reachable at a bus address. After an error
	// nothing is mapped there.
	Map(va unsafe.Pointer, bus uint64, size int) error

	// Unmap takes back exactly what one Map did. When it returns nil the
	// device can no longer reach the memory.
	Unmap(bus uint64, size int) error

	// Ranges are the bus addresses that the device can use: the IOMMU's
	// aperture less what is reserved in it. None at all means that no limit
	// is known. Asked once, by Attach.
	Ranges() []Range

	// Name tells devices apart in errors.
	Name() string
}

// RegionMapper is a Mapper that has to know whose memory it maps, one that
// hands the region's descriptor on say. MapRegion is called instead of Map.
type RegionMapper interface {
	Mapper
	MapRegion(r *hugepage.Region, va unsafe.Pointer, bus uint64, size int) error
}

// attached is a Mapper that every region is mapped into.
type attached struct {
	Mapper
	usable []Range // sorted and merged, never empty
}

func (a attached) allows(r Range) bool {
	return slices.ContainsFunc(a.usable, func(u Range) bool { return u.contains(r) })
}

// Attach lets a device reach all regions, those of now and those added later.
// When one cannot be mapped, or lies where the device cannot go, nothing stays
// mapped, the device is not attached and the error names the region.
func (s *Space) Attach(m Mapper) error {
	usable, err := normalise(m.Ranges())
	if err != nil {
		return fmt.Errorf("vtop: attach %s: %w", m.Name(), err)
	}
	a := attached{Mapper: m, usable: usable}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isAttached(m) {
		return fmt.Errorf("vtop: attach %s: it is attached already", m.Name())
	}
	for _, e := range s.entries {
		for _, r := range e.runs {
			if !e.unreachable && !a.allows(r.busRange()) {
				return fmt.Errorf("vtop: attach %s: %v lies at bus addresses %v, outside what the device can use (%s): attach the device before adding regions",
					m.Name(), e.region, r.busRange(), rangeList(usable))
			}
		}
	}
	for i, e := range s.entries {
		if e.unreachable {
			continue
		}
		if err := e.mapInto(m); err != nil {
			for _, done := range s.entries[:i] {
				err = errors.Join(err, done.unmapFrom(m))
			}
			return fmt.Errorf("vtop: attach %s: %w", m.Name(), err)
		}
	}
	s.mappers = append(s.mappers, a)
	return nil
}

// Detach takes all regions away from a device, which must have stopped using
// memory. When the device does not let go of some, the error names them; they
// stay in the space until another Detach succeeds.
func (s *Space) Detach(m Mapper) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.isAttached(m)
	s.mappers = slices.DeleteFunc(s.mappers, func(a attached) bool { return a.Mapper == m })
	var failed error
	for _, e := range s.entries {
		known = known || e.mapped[m] > 0
		failed = errors.Join(failed, e.unmapFrom(m))
	}
	switch {
	case !known:
		return fmt.Errorf("vtop: detach %s: it is not attached", m.Name())
	case failed != nil:
		return fmt.Errorf("vtop: detach %s: %w", m.Name(), failed)
	}
	return nil
}

func (s *Space) isAttached(m Mapper) bool {
	return slices.ContainsFunc(s.mappers, func(a attached) bool { return a.Mapper == m })
}

// mapInto maps the runs that m has not got yet; after an error m has none,
// unless it does not let go, which is then part of the error.
func (e *entry) mapInto(m Mapper) error {
	for _, r := range e.runs[e.mapped[m]:] {
		if err := e.mapRun(m, r); err != nil {
			err = fmt.Errorf("map %v at bus addresses %v into %s: %w", e.region, r.busRange(), m.Name(), err)
			return errors.Join(err, e.unmapFrom(m))
		}
		e.mapped[m]++
	}
	return nil
}

func (e *entry) mapRun(m Mapper, r *run) error {
	at := unsafe.Pointer(&r.mem[0])
	if rm, ok := m.(RegionMapper); ok {
		return rm.MapRegion(e.region, at, r.bus, len(r.mem))
	}
	return m.Map(at, r.bus, len(r.mem))
}

// unmapFrom takes away from m what it has, the last run first. After an error
// e.mapped says how many are left.
func (e *entry) unmapFrom(m Mapper) error {
	for n := e.mapped[m]; n > 0; n = e.mapped[m] {
		r := e.runs[n-1]
		if err := m.Unmap(r.bus, len(r.mem)); err != nil {
			return fmt.Errorf("unmap %v at bus addresses %v from %s: %w (it stays reserved; close the device and try again)",
				e.region, r.busRange(), m.Name(), err)
		}
		e.mapped[m] = n - 1
	}
	delete(e.mapped, m)
	return nil
}

// normalise sorts ranges and merges those that touch.
func normalise(ranges []Range) ([]Range, error) {
	if len(ranges) == 0 {
		return []Range{{0, math.MaxUint64}}, nil
	}
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	var merged []Range
	for _, r := range sorted {
		if r.First > r.Last {
			return nil, fmt.Errorf("usable range %v ends before it begins", r)
		}
		n := len(merged)
		if n > 0 && (r.First <= merged[n-1].Last || r.First-1 == merged[n-1].Last) {
			merged[n-1].Last = max(merged[n-1].Last, r.Last)
			continue
		}
		merged = append(merged, r)
	}
	return merged, nil
}

func rangeList(ranges []Range) string {
	words := make([]string, len(ranges))
	for i, r := range ranges {
		words[i] = r.String()
	}
	return strings.Join(words, ", ")
}
