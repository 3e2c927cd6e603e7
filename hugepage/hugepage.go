// Package hugepage hands out memory that a device may write to.
//
// A [Region] is one memfd, mapped once, shared, populated and sealed against
// shrinking: it lies on huge pages where the kernel has some to give (1 GiB
// when that fits, else 2 MiB) and on ordinary pages otherwise. Buffers and
// descriptor rings are cut out of a Region; package vtop says at which bus
// address a device finds them.
//
//	Alloc -> memfd_create -> mmap -> mbind -> MADV_POPULATE_WRITE -> Region
//
// A memfd rather than a file in a hugetlbfs: nothing has to be mounted, no
// file stays behind when the process is killed, and the descriptor can be
// handed to a vhost-user back end.
//
// In builds with the race detector the mapping is laid over a block of the Go
// heap, because the detector does not watch any other memory. Words that
// synchronise goroutines (counts, ring indices, bitmaps) belong in ordinary Go
// memory nevertheless.
//
// Linux only. Where the rules come from: memfd_create(2), madvise(2),
// mbind(2) and Documentation/admin-guide/mm/hugetlbpage.rst in the kernel.
package hugepage

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AnyNode as Config.Node leaves the choice of the NUMA node to the kernel.
const AnyNode = -1

// Page sizes in bytes that Alloc tries by itself.
const (
	Page2M = 2 << 20
	Page1G = 1 << 30
)

// Align is what the base address of every Region is a multiple of, whatever
// its pages: no two regions ever share an aligned block of this many bytes.
const Align = Page2M

// ErrNoHugePages is wrapped by errors that say that huge pages are missing;
// their text names the command that provides them.
var ErrNoHugePages = errors.New("not enough free huge pages")

// Config says what memory is wanted.
type Config struct {
	// Size in bytes; rounded up to whole pages.
	Size int

	// PageSize in bytes. 0 takes 1 GiB when rounding up to it wastes at most
	// an eighth, else 2 MiB, else ordinary pages. Any other value is used as
	// it is or the call fails.
	PageSize int

	// Node is the NUMA node that the memory must be on, or AnyNode. The zero
	// value is node 0.
	Node int

	// RequireHuge turns the fallback to ordinary pages into an error.
	RequireHuge bool

	// Name shows in /proc/PID/maps and in errors. Default "barewire".
	Name string
}

// Region is a piece of device memory. It stays where it is until Close; it is
// never moved by the garbage collector, which does not look into it either. A
// Region that is dropped without Close stays mapped until the process ends.
//
// All methods may be called from any goroutine.
type Region struct {
	name     string
	size     int
	pageSize int
	huge     bool
	fallback error // why the pages are ordinary; nil when they are huge or were asked for

	mem atomic.Pointer[mapping] // nil after Close

	mu   sync.Mutex // guards pins, and closing against both
	pins int
}

// mapping is what Close gives back.
type mapping struct {
	place *place
	bytes []byte
	fd    int
}

// Alloc gives a Region of at least cfg.Size bytes, filled with zeros and
// backed by memory from the start: using it can no longer fail. The caller
// owns it and calls Close.
//
// An error wraps ErrNoHugePages when more huge pages would have helped.
func Alloc(cfg Config) (*Region, error) { return alloc(cfg, linuxHost()) }

// Bytes is the whole region, nil after Close. The memory may change at any
// time when a device writes to it.
func (r *Region) Bytes() []byte {
	if m := r.mem.Load(); m != nil {
		return m.bytes
	}
	return nil
}

// Base is the address of the first byte, a multiple of Align and of the page
// size; nil after Close. Pointers into the region are made from it with
// unsafe.Add or by slicing Bytes, never from a uintptr.
func (r *Region) Base() unsafe.Pointer {
	if m := r.mem.Load(); m != nil {
		return unsafe.Pointer(unsafe.SliceData(m.bytes))
	}
	return nil
}

// Size is the length in bytes, a multiple of the page size; it does not change
// with Close.
func (r *Region) Size() int { return r.size }

// PageSize is the size in bytes of the pages that the region lies on.
func (r *Region) PageSize() int { return r.pageSize }

// Huge tells whether the pages are huge ones, which is what a device needs
// that reaches memory by physical addresses.
func (r *Region) Huge() bool { return r.huge }

// Fallback says why the region lies on ordinary pages although huge ones would
// have been taken; nil when there is nothing to explain.
func (r *Region) Fallback() error { return r.fallback }

// FD is the memfd behind the region, to be passed to another process that
// shall map the same memory; -1 after Close. It remains the region's: do not
// close it.
func (r *Region) FD() int {
	if m := r.mem.Load(); m != nil {
		return m.fd
	}
	return -1
}

// Name is Config.Name.
func (r *Region) Name() string { return r.name }

// String names the region and what it lies on.
func (r *Region) String() string {
	return fmt.Sprintf("region %q (%s on %s pages)", r.name, sizeText(r.size), sizeText(r.pageSize))
}

// Pin keeps Close from succeeding until unpin is called; to call it again does
// nothing. A vtop.Space pins the regions that devices can reach.
func (r *Region) Pin() (unpin func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mem.Load() == nil {
		return nil, fmt.Errorf("hugepage: pin %v: %w", r, os.ErrClosed)
	}
	r.pins++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pins--
	}), nil
}

// Close unmaps the region and closes its descriptor; every pointer into it is
// invalid from then on. A second Close does nothing. While the region is
// pinned Close changes nothing and returns an error.
func (r *Region) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.mem.Load()
	if m == nil {
		return nil
	}
	if r.pins > 0 {
		return fmt.Errorf("hugepage: close %v: %w: still in %d address space(s), remove it there first (vtop.Space.Remove)",
			r, unix.EBUSY, r.pins)
	}
	if err := m.place.release(); err != nil {
		return fmt.Errorf("hugepage: unmap %v: %w", r, err)
	}
	r.mem.Store(nil)
	if err := unix.Close(m.fd); err != nil {
		return fmt.Errorf("hugepage: close the memfd of %v: %w", r, err)
	}
	return nil
}
