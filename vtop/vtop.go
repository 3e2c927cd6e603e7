// Package vtop is the bus address space of the process: it says at which
// address a device finds the memory that the process sees at a pointer.
//
// A buffer has one bus address, valid for every attached device:
//
//	region := hugepage.Alloc(...)   memory
//	space.Add(region)               gets bus addresses, every device can reach it
//	space.Bus(pointer, n)           what goes into a descriptor
//	space.Bytes(bus, n)             what a device in software finds there
//
// A [Space] is of one of two kinds. In a mapped one the addresses are chosen
// here, and an IOMMU (or nothing but software) makes them true. In a physical
// one they are the physical addresses of huge pages, read from
// /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst in the kernel).
// In both, an address outside every region is an error, never a wrong address.
package vtop

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"bare.wire/hugepage"
)

var (
	// ErrOutside is wrapped when an address, or part of the range that
	// starts there, belongs to no region of the space.
	ErrOutside = errors.New("address outside every region")

	// ErrSplit is wrapped when a range lies inside a region but not in one
	// piece of bus addresses.
	ErrSplit = errors.New("range crosses a physical discontinuity")
)

// Space translates between pointers and bus addresses for a set of regions and
// the devices that can reach them. Make one with NewMapped or NewPhysical.
//
// All methods may be called from any goroutine. Bus, Bytes and Contiguous take
// no lock, make no system call and allocate nothing unless they fail.
type Space struct {
	table atomic.Pointer[table] // read by translations, replaced by Add and Remove

	// Physical spaces: where page frame numbers are read, and what pages a
	// region has, or why they will not do (tests say otherwise).
	pagemap string
	pageOf  func(*hugepage.Region) (uint64, error)

	mu      sync.Mutex // guards everything below, and the replacing of table
	entries []*entry   // regions in the order they were added
	mappers []attached
	next    uint64 // mapped spaces: where the search for an address starts
}

// NewMapped gives an empty space whose addresses are chosen by Add: from 4 GiB
// up to 2³⁸, clear of what the attached devices cannot use. It suits devices
// in software and devices behind an IOMMU, on any kind of memory.
func NewMapped() *Space {
	s := &Space{next: busFirst}
	s.table.Store(newTable(nil))
	return s
}

// NewPhysical gives an empty space of physical addresses, which accepts regions
// on huge pages only: the kernel moves ordinary pages about. The error says
// what is missing when the process may not read physical addresses.
//
// The kernel is asked once a page, in Add. Whoever migrates huge pages by hand
// (move_pages, memory hot-remove) breaks a device without an IOMMU.
func NewPhysical() (*Space, error) { return newPhysical("/proc/self/pagemap") }

func newPhysical(pagemap string) (*Space, error) {
	if err := probePagemap(pagemap); err != nil {
		return nil, fmt.Errorf("vtop: physical addresses: %w", err)
	}
	s := &Space{pagemap: pagemap, pageOf: hugePageOf}
	s.table.Store(newTable(nil))
	return s, nil
}

// Physical tells the kind of the space.
func (s *Space) Physical() bool { return s.pagemap != "" }

// Bus gives the bus address of p for a transfer of n bytes, n >= 1. The whole
// range lies in one region and is contiguous for the device, else the error
// wraps ErrOutside or ErrSplit. The address is good until the region is
// removed; Hold keeps that from happening.
func (s *Space) Bus(p unsafe.Pointer, n int) (uint64, error) { return s.bus(uint64(uintptr(p)), n) }

func (s *Space) bus(va uint64, n int) (uint64, error) {
	t := s.table.Load()
	r := t.byVA.find(va)
	if r == nil {
		return 0, errVA(t, va, n)
	}
	off := va - r.va
	if n < 1 || off >= r.size() || uint64(n) > r.size()-off {
		return 0, errVA(t, va, n)
	}
	return r.bus + off, nil
}

// Bytes gives the memory at a bus address: n bytes, or fewer but at least one
// where the memory goes on somewhere else; the caller then asks again for the
// rest. It is how a device in software reaches memory. The error wraps
// ErrOutside and stands for the fault that an IOMMU would raise.
//
// The caller makes sure, by Hold, that the region is not removed while the
// bytes are in use.
func (s *Space) Bytes(bus uint64, n int) ([]byte, error) {
	r := s.table.Load().byBus.find(bus)
	if r == nil || n < 1 {
		return nil, errBus(bus, n)
	}
	off := bus - r.bus
	if off >= r.size() {
		return nil, errBus(bus, n)
	}
	end := off + min(uint64(n), r.size()-off)
	return r.mem[off:end:end], nil
}

// Contiguous gives the number of bytes from p on that have consecutive bus
// addresses; 0 outside every region.
func (s *Space) Contiguous(p unsafe.Pointer) int {
	return s.table.Load().contiguous(uint64(uintptr(p)))
}

// errVA says why a range of n bytes at va has no bus address. It is apart from
// Bus so that the arguments of the message cost nothing when there is none.
//
//go:noinline
func errVA(t *table, va uint64, n int) error {
	if n < 1 {
		return fmt.Errorf("vtop: bus address of %d bytes at %#x: at least 1 byte is needed", n, va)
	}
	have := t.contiguous(va)
	if have == 0 {
		return fmt.Errorf("vtop: bus address of %#x: %w: memory that a device uses must come from a region added to the space", va, ErrOutside)
	}
	// The range starts in a region: does it also end there?
	first, last := t.byVA.find(va), t.byVA.find(va+uint64(n)-1)
	if last != nil && last.region == first.region && va+uint64(n)-1-last.va < last.size() {
		return fmt.Errorf("vtop: bus address of %d bytes at %#x: %w after %d bytes", n, va, ErrSplit, have)
	}
	return fmt.Errorf("vtop: bus address of %d bytes at %#x: %w: %v ends before", n, va, ErrOutside, first.region)
}

//go:noinline
func errBus(bus uint64, n int) error {
	if n < 1 {
		return fmt.Errorf("vtop: %d bytes at bus address %#x: at least 1 byte is needed", n, bus)
	}
	return fmt.Errorf("vtop: %d bytes at bus address %#x: %w", n, bus, ErrOutside)
}

// Info describes a region of a space.
type Info struct {
	Region  *hugepage.Region
	Bus     []Range // in the order of the memory; one range in a mapped space
	Holders int     // Holds not yet released
	Leaving bool    // Remove has begun: waiting for holders, or for a device to let go
}

// Regions lists what is in the space, in the order it was added.
func (s *Space) Regions() []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Info
	for _, e := range s.entries {
		i := Info{Region: e.region, Holders: e.holders, Leaving: e.leaving()}
		for _, r := range e.runs {
			i.Bus = append(i.Bus, r.busRange())
		}
		list = append(list, i)
	}
	return list
}
