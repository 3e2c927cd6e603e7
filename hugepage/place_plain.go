//go:build !race

package hugepage

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// place is the stretch of address space that a region is mapped into.
type place struct {
	base unsafe.Pointer
	size int
}

// reserve takes size bytes of address space that start at a multiple of align,
// with no access and no memory behind them.
func reserve(size, align int) (*place, error) {
	whole, err := unix.MmapPtr(-1, 0, nil, uintptr(size+align), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve %s of address space: %w", sizeText(size+align), err)
	}
	head := -int(uintptr(whole)) & (align - 1)
	p := &place{base: unsafe.Add(whole, head), size: size}
	// What is cut off costs nothing; if the kernel refuses (too many
	// mappings), it stays reserved.
	if head > 0 {
		_ = unix.MunmapPtr(whole, uintptr(head))
	}
	if tail := align - head; tail > 0 {
		_ = unix.MunmapPtr(unsafe.Add(p.base, size), uintptr(tail))
	}
	return p, nil
}

// release gives the address space back together with what is mapped there.
func (p *place) release() error { return unix.MunmapPtr(p.base, uintptr(p.size)) }
