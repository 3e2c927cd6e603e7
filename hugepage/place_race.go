//go:build race

package hugepage

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// place is the stretch of address space that a region is mapped into. In race
// builds it is a block of the Go heap, for the detector ignores everything
// else. The block holds no pointers, so the collector does not read it; it
// does not move it; and as long as somebody points into it, it is not freed.
type place struct {
	base  unsafe.Pointer
	size  int
	block []byte
}

// reserve takes size bytes that start at a multiple of align.
func reserve(size, align int) (*place, error) {
	block := make([]byte, size+align)
	head := -int(uintptr(unsafe.Pointer(&block[0]))) & (align - 1)
	p := &place{base: unsafe.Pointer(&block[head]), size: size, block: block}
	// A region that was dropped without Close must not go back to the heap
	// with a memfd behind it: the runtime relies on memory that it has
	// returned to the system to read as zeros.
	runtime.SetFinalizer(&block[0], func(first *byte) {
		_ = restore(unsafe.Add(unsafe.Pointer(first), head), size)
	})
	return p, nil
}

// release puts ordinary heap memory back before it lets go of the block.
func (p *place) release() error {
	if err := restore(p.base, p.size); err != nil {
		return err
	}
	runtime.SetFinalizer(&p.block[0], nil)
	p.block = nil
	return nil
}

func restore(base unsafe.Pointer, size int) error {
	err := mapFixed(base, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1)
	if err != nil {
		return fmt.Errorf("map anonymous memory back: %w", err)
	}
	return nil
}
