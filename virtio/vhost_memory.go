package virtio

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"bare.wire/hugepage"
	"bare.wire/virtio/spec"
	"bare.wire/virtio/spec/vhost"
	"bare.wire/vtop"
)

// vhostMemory is the memory that the back end gets to see. "Addresses of the front end's process", in which rings are named, are
// names only: the bus addresses are used, so that the back end does not learn where this process has its memory.
type vhostMemory struct {
	table vhost.MemoryTable
	fds   []int // of each region
	shown bool  // the back end has been sent a table, and has to be told of changes at once
}

// reaches says whether all of a queue lies in the memory.
func (m *vhostMemory) reaches(queue int, at QueueArea) error {
	driver, device := splitAreas(at.Size)
	if at.Packed {
		driver, device = spec.EventSize, spec.EventSize
	}
	for _, part := range []struct {
		what       string
		addr, size uint64
	}{{"descriptors", at.Desc, uint64(at.Size) * spec.DescSize}, {"driver area", at.Driver, driver}, {"device area", at.Device, device}} {
		if !slices.ContainsFunc(m.table, func(r vhost.Region) bool { return r.Contains(part.addr, part.size) }) {
			return fmt.Errorf("enable queue %d: its %s (%d bytes at %#x) are in no region of the space that the back end sees", queue, part.what, part.size, part.addr)
		}
	}
	return nil
}

// splitAreas are the lengths of the available and of the used ring, bytes.
func splitAreas(n int) (avail, used uint64) { return 6 + 2*uint64(n), 6 + 8*uint64(n) }

// showMemory sends the table, the first time. It needs the transport's lock, as all here but Name and Ranges.
func (t *vhostTransport) showMemory(ctx context.Context) error {
	if t.memory.shown {
		return nil
	}
	t.memory.shown = true
	return t.sendMemory(ctx)
}

// sendMemory sends the table, and returns when the back end uses no other.
func (t *vhostTransport) sendMemory(ctx context.Context) error {
	if err := t.tell(ctx, vhost.SetMemTable, t.memory.table.Append(nil), t.memory.fds...); err != nil {
		return err
	}
	return t.settle(ctx)
}

var _ vtop.RegionMapper = (*vhostTransport)(nil)

// MapRegion implements vtop.RegionMapper: the back end is sent the region's descriptor, now if it is at work, else with the
// first queue.
func (t *vhostTransport) MapRegion(r *hugepage.Region, va unsafe.Pointer, bus uint64, size int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := &t.memory
	over := t.closed || t.goneError() != nil // nobody is there to see it, which is no reason to keep it from others
	if len(m.table) == vhost.MaxRegions && !over {
		return fmt.Errorf("%s: %v would be region number %d: a vhost-user memory table has %d, and more of them one by one "+
			"(the protocol feature CONFIGURE_MEM_SLOTS) are not implemented: use fewer and larger regions, and a mapped Space", t.Name(), r, vhost.MaxRegions+1, vhost.MaxRegions)
	}
	offset := uint64(uintptr(va) - uintptr(r.Base()))
	m.table = append(m.table, vhost.Region{Addr: bus, Size: uint64(size), UserAddr: bus, Offset: offset})
	m.fds = append(m.fds, r.FD())
	if !m.shown || over {
		return nil
	}
	err := t.sendMemory(context.Background())
	if err == nil {
		return nil
	}
	m.table, m.fds = m.table[:len(m.table)-1], m.fds[:len(m.fds)-1]
	if t.goneError() == nil {
		// It may have taken the region all the same.
		if again := t.sendMemory(context.Background()); again != nil {
			t.fail(fmt.Errorf("the back end does not let go of memory: %w", again))
		}
	}
	return err
}

// Map is not used: a back end needs the descriptor.
func (t *vhostTransport) Map(unsafe.Pointer, uint64, int) error {
	return fmt.Errorf("%s: memory without a descriptor cannot be shared: %w", t.Name(), errors.ErrUnsupported)
}

// Unmap implements vtop.Mapper: the back end is sent a table without the region. A session that is over has let go of all.
func (t *vhostTransport) Unmap(bus uint64, size int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := &t.memory
	i := slices.IndexFunc(m.table, func(r vhost.Region) bool { return r.Addr == bus && r.Size == uint64(size) })
	if i < 0 {
		return fmt.Errorf("%s: nothing is mapped at %#x", t.Name(), bus)
	}
	table, fds := m.table, m.fds
	m.table, m.fds = slices.Delete(slices.Clone(table), i, i+1), slices.Delete(slices.Clone(fds), i, i+1)
	if !m.shown || t.closed || t.goneError() != nil {
		return nil
	}
	err := t.sendMemory(context.Background())
	if err != nil && t.goneError() == nil {
		m.table, m.fds = table, fds
		return err
	}
	return nil
}

// Ranges implements vtop.Mapper: the back end takes any address.
func (t *vhostTransport) Ranges() []vtop.Range { return nil }
