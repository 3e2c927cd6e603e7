package vtop

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"bare.wire/hugepage"
)

// ArenaConfig describes an Arena.
type ArenaConfig struct {
	Name string // of the region, "0000:03:00.0 rings"; errors begin with it
	Node int    // NUMA node, or hugepage.AnyNode
	Size int    // bytes of all pieces together, each rounded up to its alignment; in a physical space a piece is 1 MiB at most
}

// Arena is one region of a space that is cut into pieces from the front, once: the rings of a device. It may be used by one
// goroutine at a time.
type Arena struct {
	name   string
	space  *Space
	region *hugepage.Region
	unhold func() // lets the region leave the space
	used   int
}

// NewArena allocates memory, adds it to the space and holds it there until Free. In a physical space it is made of huge pages.
func NewArena(space *Space, cfg ArenaConfig) (*Arena, error) {
	return newArena(space, cfg, func(size int) (*hugepage.Region, error) {
		return hugepage.Alloc(hugepage.Config{Size: size, Node: cfg.Node, RequireHuge: space.Physical(), Name: cfg.Name})
	})
}

// newArena is NewArena with memory from alloc. Physical pages need not be neighbours, and no piece lies across two that are
// not: what is left of the first is lost. Where that is so there is twice the memory, which is enough for pieces of up to half
// a page: of every page more than half is used before the next is begun.
func newArena(space *Space, cfg ArenaConfig, alloc func(size int) (*hugepage.Region, error)) (*Arena, error) {
	a, err := takeArena(space, cfg.Name, cfg.Size, alloc)
	if err != nil || space.Contiguous(a.region.Base()) >= cfg.Size {
		return a, err
	}
	if err := a.Free(); err != nil {
		return nil, err
	}
	return takeArena(space, cfg.Name, 2*cfg.Size, alloc)
}

func takeArena(space *Space, name string, size int, alloc func(size int) (*hugepage.Region, error)) (*Arena, error) {
	region, err := alloc(size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	a := &Arena{name: name, space: space, region: region}
	if err := space.Add(region); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), region.Close())
	}
	if a.unhold, err = space.Hold(region); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), a.remove())
	}
	return a, nil
}

// Cut returns size bytes, zeroed and contiguous for the device, at a bus address that is a multiple of align: a power of two,
// at most a page. They are the arena's until Free, after which there are no more.
func (a *Arena) Cut(size, align int) (unsafe.Pointer, uint64, error) {
	if size < 1 || align < 1 || align&(align-1) != 0 || align > pageSize {
		return nil, 0, fmt.Errorf("%s: %d bytes aligned to %d: want some, aligned to a power of two up to %d", a.name, size, align, pageSize)
	}
	// The region begins with a page, in memory and on the bus, so that what is aligned in it is aligned there too.
	at := (a.used + align - 1) &^ (align - 1)
	for at <= a.region.Size()-size {
		p := unsafe.Add(a.region.Base(), at)
		if run := a.space.Contiguous(p); run > 0 && run < size {
			at += run // to the next physical page, which is aligned
			continue
		}
		bus, err := a.space.Bus(p, size)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", a.name, err)
		}
		clear(unsafe.Slice((*byte)(p), size))
		a.used = at + size
		return p, bus, nil
	}
	return nil, 0, fmt.Errorf("%s: %d bytes: no contiguous memory left in a region of %d", a.name, size, a.region.Size())
}

// Free gives the memory back. The device no longer uses it. That somebody else holds the region is an error; Free does not
// wait for that. A nil Arena has nothing to free.
func (a *Arena) Free() error {
	if a == nil {
		return nil
	}
	a.unhold()
	return a.remove()
}

func (a *Arena) remove() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := a.space.Remove(now, a.region); err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	return a.region.Close()
}

// pageSize is the least that regions are aligned to, on any machine.
const pageSize = 4096
