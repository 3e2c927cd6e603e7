package pci

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"bare.wire/hugepage"
	"bare.wire/pci/guardian"
	"bare.wire/vtop"
)

// guarded is the guardian of a function whose device reaches physical memory. It has the memory as well: a process that ends
// loses its memory before its files are closed, those of VFIO too, and until then the device writes.
type guarded struct {
	*guardian.Guardian
	opener *Opener
	mapper *guardMapper
	ending chan struct{} // closed before the guardian is ended on purpose
}

// lockConfig opens a function's configuration space in sysfs and keeps others away from it. The guardian shares the lock: a
// device whose guardian is still at work cannot be opened. Until it is locked the device is somebody else's, and nothing is done to it.
func (o *Opener) lockConfig(a Address) (*Config, error) {
	c, err := o.host.OpenConfig(a, true)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(c.File().Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w: another process drives this device, or its guardian is still ending the DMA of one that did", c.File().Name(), err), c.Close())
	}
	return c, nil
}

// startGuardian has a guardian watch over f, hold what is in the Space and what is added later. lost is told should it end first.
func (o *Opener) startGuardian(f Function, config *Config, lost func(error)) (*guarded, error) {
	g, err := guardian.Start(f.Name(), config.File())
	if err != nil {
		return nil, fmt.Errorf("without a guardian the device is not driven: %w", err)
	}
	m := &guardMapper{name: f.Name(), guard: g, held: map[uint64]*held{}}
	if err := o.space.Attach(m); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	out := &guarded{Guardian: g, opener: o, mapper: m, ending: make(chan struct{})}
	go out.watch(f, lost)
	return out, nil
}

// watch ends the device's DMA should the guardian end first: without one it is not driven.
func (g *guarded) watch(f Function, lost func(error)) {
	<-g.Exited()
	select {
	case <-g.ending:
		return
	default:
	}
	err := fmt.Errorf("%s: its guardian (process %d) has ended, and without one the device is not driven: %w", f.Name(), g.PID(), ErrGone)
	err = errors.Join(err, SetBusMaster(f, false))
	g.opener.log.Error("bus mastering is switched off", "device", f.Name(), "err", err)
	lost(err)
}

// end ends the guardian. When this process has not seen that DMA is over, as unseen says, the guardian has to.
func (g *guarded) end(unseen error) error {
	close(g.ending)
	err := g.Close()
	if err != nil && unseen != nil {
		err = fmt.Errorf("the device may still be doing DMA: %w", errors.Join(unseen, err))
	} else {
		err = nil
	}
	g.mapper.over()
	return errors.Join(err, g.opener.space.Detach(g.mapper))
}

// guardMapper hands every region of a physical Space to the guardian before a device may use it. There is nothing to map: the
// device reaches all of memory anyway.
type guardMapper struct {
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
func (m *guardMapper) Name() string { return m.name }

// Ranges implements vtop.Mapper: a PCI Express function addresses 64 bits.
func (m *guardMapper) Ranges() []vtop.Range { return nil }

// Map implements vtop.Mapper. A Space calls MapRegion instead.
func (m *guardMapper) Map(unsafe.Pointer, uint64, int) error {
	return errors.New("only whole regions can be given to a guardian")
}

// MapRegion implements vtop.RegionMapper.
func (m *guardMapper) MapRegion(r *hugepage.Region, _ unsafe.Pointer, bus uint64, _ int) error {
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
func (m *guardMapper) Unmap(bus uint64, _ int) error {
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
func (m *guardMapper) over() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
}
