package qemu

import (
	"sync"
	"sync/atomic"

	"bare.wire/clock"
	"bare.wire/sim"
)

// Memory is the guest's memory as one function reaches it: by bus addresses, through the guest's IOMMU tables where it has
// switched them on.
type Memory struct {
	ram       ram
	unit      *vtd
	requester uint16
	clk       clock.Clock

	reads, writes, faults atomic.Uint64
	lastBus               atomic.Uint64
	lastAt                atomic.Int64

	mu        sync.Mutex
	lastFault error
}

var _ sim.GuardedMemory = (*Memory)(nil)

// DMACounts is what a function has done to memory.
type DMACounts struct {
	Reads, Writes uint64 // accesses that were allowed
	Faults        uint64
	LastBus       uint64 // address of the last one that was allowed
	LastAt        int64  // when it was, ns of the machine's clock
	LastFault     error  // a *DMAFault
}

// Counts returns the counts so far.
func (m *Memory) Counts() DMACounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return DMACounts{m.reads.Load(), m.writes.Load(), m.faults.Load(), m.lastBus.Load(), m.lastAt.Load(), m.lastFault}
}

// Bytes implements sim.Memory for accesses that both read and write, such as to a ring.
func (m *Memory) Bytes(bus uint64, n int) ([]byte, error) {
	if _, err := m.bytes(bus, 1, true); err != nil {
		return nil, err
	}
	return m.bytes(bus, n, false)
}

// ForReads implements sim.GuardedMemory.
func (m *Memory) ForReads() sim.Memory { return readOnly{m} }

// ForWrites implements sim.GuardedMemory.
func (m *Memory) ForWrites() sim.Memory { return writeOnly{m} }

type readOnly struct{ m *Memory }

func (r readOnly) Bytes(bus uint64, n int) ([]byte, error) { return r.m.bytes(bus, n, false) }

type writeOnly struct{ m *Memory }

func (w writeOnly) Bytes(bus uint64, n int) ([]byte, error) { return w.m.bytes(bus, n, true) }

// bytes returns up to n bytes at a bus address: as many as lie together.
func (m *Memory) bytes(bus uint64, n int, write bool) ([]byte, error) {
	s := m.unit.now()
	gpa, ok, err := s.walk(m.ram.load64, m.requester, bus, write)
	if err != nil {
		return nil, m.fault(err)
	}
	for ok < uint64(n) { // the next page may follow in memory, too
		next, more, err := s.walk(m.ram.load64, m.requester, bus+ok, write)
		if err != nil || next != gpa+ok {
			break // the card will ask for the rest by itself
		}
		ok += more
	}
	b := m.ram.bytes(gpa, int(min(ok, uint64(max(n, 1)))))
	if b == nil {
		f := &DMAFault{Requester: m.requester, Bus: bus, Write: write, Reason: "the guest has no RAM there"}
		if gpa != bus {
			f.Reason = "mapped to where the guest has no RAM"
		}
		return nil, m.fault(f)
	}
	if write {
		m.writes.Add(1)
	} else {
		m.reads.Add(1)
	}
	m.lastBus.Store(bus)
	m.lastAt.Store(m.clk.Nanos())
	return b, nil
}

func (m *Memory) fault(err error) error {
	m.faults.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastFault = err
	return err
}
