package pci

import (
	"errors"
	"sync"
	"unsafe"

	"bare.wire/hugepage"
	"bare.wire/pci/guardian"
	"bare.wire/vtop"
)

// sysfsMapper hands every region of a physical Space to the guardian before a device may use it. There is nothing to map: the
// device reaches all of memory anyway.
type sysfsMapper struct {
	name  string
	guard *guardian.Guardian

	mu    sync.Mutex
	held  map[uint64]*held // by bus address
	ended bool             // the guardian holds nothing any more
}

// held is a region that the guardian has, in as many pieces as it has on the bus.
type held struct {
	region *hugepage.Region
	number uint32
	pieces int
}

// Name implements vtop.Mapper.
func (m *sysfsMapper) Name() string { return m.name }

// Ranges implements vtop.Mapper: a PCI Express function addresses 64 bits.
func (m *sysfsMapper) Ranges() []vtop.Range { return nil }

// Map implements vtop.Mapper. A Space calls MapRegion instead.
func (m *sysfsMapper) Map(unsafe.Pointer, uint64, int) error {
	return errors.New("only whole regions can be given to a guardian")
}

// MapRegion implements vtop.RegionMapper.
func (m *sysfsMapper) MapRegion(r *hugepage.Region, _ unsafe.Pointer, bus uint64, _ int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.held {
		if h.region == r {
			h.pieces++
			m.held[bus] = h
			return nil
		}
	}
	number, err := m.guard.Hold(r.FD())
	if err != nil {
		return err
	}
	m.held[bus] = &held{region: r, number: number, pieces: 1}
	return nil
}

// Unmap implements vtop.Mapper. That the device no longer uses the memory is for the Space's holders to know: nothing can be
// taken away from it.
func (m *sysfsMapper) Unmap(bus uint64, _ int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.held[bus]
	if h == nil {
		return nil
	}
	if h.pieces == 1 && !m.ended && m.guard.Alive() {
		if err := m.guard.Drop(h.number); err != nil {
			return err
		}
	}
	h.pieces--
	delete(m.held, bus)
	return nil
}

// over says that DMA has ended, and the guardian with it.
func (m *sysfsMapper) over() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
}
