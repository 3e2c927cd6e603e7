package vtop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"unsafe"

	"bare.wire/hugepage"
)

// entry is a region in a space.
type entry struct {
	region  *hugepage.Region
	unpin   func()         // lets the region be closed again
	runs    []*run         // in the order of the memory
	mapped  map[Mapper]int // how many of runs, from the first on, a mapper has
	holders int

	idle        chan struct{} // a Remove waits; closed by the last release
	unreachable bool          // no longer translated, but a mapper has not let go
}

func (e *entry) leaving() bool { return e.idle != nil || e.unreachable }

// Add gives a region its bus addresses and maps it into every attached device.
// When one of them fails the region is not added and nothing stays mapped; when
// another one then does not let go either, the region stays reserved, not
// translated, until Remove. A region in a space cannot be closed.
func (s *Space) Add(r *hugepage.Region) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(r) != nil {
		return fmt.Errorf("vtop: add %v: it is in the space already", r)
	}
	unpin, err := r.Pin()
	if err != nil {
		return fmt.Errorf("vtop: add: %w", err)
	}
	if err := s.add(r, unpin); err != nil {
		return fmt.Errorf("vtop: add %v: %w", r, err)
	}
	return nil
}

// add does what is left of Add for a pinned region.
func (s *Space) add(r *hugepage.Region, unpin func()) error {
	runs, err := s.assign(r)
	if err != nil {
		unpin()
		return err
	}
	e := &entry{region: r, unpin: unpin, runs: runs, mapped: map[Mapper]int{}}
	for i, m := range s.mappers {
		err := e.mapInto(m.Mapper)
		if err == nil {
			continue
		}
		for _, done := range s.mappers[:i] {
			err = errors.Join(err, e.unmapFrom(done.Mapper))
		}
		if len(e.mapped) > 0 {
			// Somebody kept a mapping: neither the memory nor its bus
			// addresses may be used for anything else. Remove tries again.
			e.unreachable = true
			s.entries = append(s.entries, e)
			return err
		}
		unpin()
		return err
	}
	s.entries = append(s.entries, e)
	s.table.Store(newTable(s.entries))
	return nil
}

// assign finds the bus addresses of a region.
func (s *Space) assign(r *hugepage.Region) ([]*run, error) {
	mem := r.Bytes()
	va := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	if va%granule != 0 {
		return nil, fmt.Errorf("base %#x is not a multiple of %#x", va, granule)
	}
	if !s.Physical() {
		bus, err := s.choose(uint64(len(mem)), uint64(r.PageSize()))
		if err != nil {
			return nil, err
		}
		return []*run{{va: va, bus: bus, mem: mem, region: r}}, nil
	}
	page, err := s.pageOf(r)
	if err != nil {
		return nil, err
	}
	runs, err := physicalRuns(s.pagemap, r, page)
	if err != nil {
		return nil, err
	}
	for _, p := range runs {
		if err := s.checkPhysical(p); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// checkPhysical refuses physical memory that a device cannot reach, and an
// address that two regions claim.
func (s *Space) checkPhysical(p *run) error {
	for _, m := range s.mappers {
		if !m.allows(p.busRange()) {
			return fmt.Errorf("physical addresses %v are outside what %s can use (%s)", p.busRange(), m.Name(), rangeList(m.usable))
		}
	}
	for _, e := range s.entries {
		for _, q := range e.runs {
			if q.busRange().overlaps(p.busRange()) {
				return fmt.Errorf("physical addresses %v belong to %v as well: the page map cannot be trusted", p.busRange(), e.region)
			}
		}
	}
	return nil
}

// Remove takes a region out of the space and away from every device. It waits
// until all holders have released it; meanwhile nobody new can hold it. When
// ctx ends first, the region stays as it was, and the error says how many
// holders there are. When a device does not let go, the region is no longer
// translated but remains pinned, and Remove may be tried again.
func (s *Space) Remove(ctx context.Context, r *hugepage.Region) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(r)
	if e == nil {
		return fmt.Errorf("vtop: remove %v: it is not in the space", r)
	}
	if e.idle != nil {
		return fmt.Errorf("vtop: remove %v: it is being removed already", r)
	}
	if err := s.waitIdle(ctx, e); err != nil {
		return fmt.Errorf("vtop: remove %v: %w", r, err)
	}
	if !e.unreachable {
		e.unreachable = true
		s.table.Store(newTable(s.entries))
	}
	var failed error
	for m := range e.mapped {
		failed = errors.Join(failed, e.unmapFrom(m))
	}
	if failed != nil {
		return fmt.Errorf("vtop: remove %v: %w", r, failed)
	}
	s.entries = slices.DeleteFunc(s.entries, func(x *entry) bool { return x == e })
	e.unpin()
	return nil
}

// waitIdle waits until nobody holds e. It is called, and returns, with s.mu
// held, and lets go of it in between.
func (s *Space) waitIdle(ctx context.Context, e *entry) error {
	if e.holders == 0 {
		return nil
	}
	idle := make(chan struct{})
	e.idle = idle
	s.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	s.mu.Lock()
	e.idle = nil
	if e.holders > 0 {
		return fmt.Errorf("%w while %d holder(s) still use it: stop the devices and close the pools that do", ctx.Err(), e.holders)
	}
	return nil
}

// Hold keeps a region in the space until release is called; calling release
// again does nothing. Whoever keeps bus addresses (a pool, a ring, a device in
// software) holds the region they point into.
func (s *Space) Hold(r *hugepage.Region) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(r)
	if e == nil {
		return nil, fmt.Errorf("vtop: hold %v: it is not in the space: add it first", r)
	}
	if e.leaving() {
		return nil, fmt.Errorf("vtop: hold %v: it is being removed: %w", r, os.ErrClosed)
	}
	e.holders++
	var once sync.Once
	return func() { once.Do(func() { s.release(e) }) }, nil
}

func (s *Space) release(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.holders--
	if e.holders == 0 && e.idle != nil {
		close(e.idle)
	}
}

func (s *Space) find(r *hugepage.Region) *entry {
	for _, e := range s.entries {
		if e.region == r {
			return e
		}
	}
	return nil
}
