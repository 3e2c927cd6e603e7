package pci

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// regionBAR is a BAR of a function whose registers the kernel gives out as part of a file: areas of it are mapped, the rest
// is reached by reading and writing the file, which takes a system call each.
type regionBAR struct {
	sys  kernel
	fd   int
	off  int64 // of the BAR in the file
	size int
	name string
	lost func(error)

	mu      sync.Mutex // held while a register is accessed by system call
	closed  bool
	scratch [4]byte // what such an access reads or writes: a doorbell allocates nothing

	window unsafe.Pointer // size bytes of which areas are mapped; nil: none
	areas  []area
	regs   *GuardedBAR // over the window
}

var errBARClosed = errors.New("the function is closed")

// view is what a driver gets: without a detour when all of the BAR is mapped.
func (b *regionBAR) view() NarrowBAR {
	if len(b.areas) == 1 && b.areas[0].size == uint64(b.size) {
		return b.regs
	}
	return b
}

// mmap maps areas. After an error nothing is mapped, and reading and writing has to do.
func (b *regionBAR) mmap(areas []area) error {
	if len(areas) == 0 {
		return nil
	}
	window, err := b.sys.mmap(b.fd, b.off, b.size, areas)
	if err != nil {
		return err
	}
	regs, err := GuardBAR(unsafe.Slice((*byte)(window), b.size), func(err error) { b.lost(fmt.Errorf("%s: %w", b.name, err)) })
	if err != nil {
		return errors.Join(err, b.sys.munmap(window, b.size))
	}
	b.window, b.areas, b.regs = window, areas, regs
	return nil
}

func (b *regionBAR) unmap() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	if b.window == nil {
		return nil
	}
	b.regs.release()
	err := b.sys.munmap(b.window, b.size)
	b.window = nil
	return err
}

// Size is the length of the window in bytes.
func (b *regionBAR) Size() int { return b.size }

// mapped says whether the register of size bytes at off lies in an area that is mapped.
func (b *regionBAR) mapped(off uint32, size uint64) bool {
	for _, a := range b.areas {
		if uint64(off) >= a.off && uint64(off)+size <= a.off+a.size {
			return true
		}
	}
	return false
}

// Read32 implements BAR.
func (b *regionBAR) Read32(off uint32) uint32 {
	if b.mapped(off, 4) {
		return b.regs.Read32(off)
	}
	return b.load(off, 4)
}

// Read16 implements NarrowBAR.
func (b *regionBAR) Read16(off uint32) uint16 {
	if b.mapped(off, 2) {
		return b.regs.Read16(off)
	}
	return uint16(b.load(off, 2))
}

// Read8 implements NarrowBAR.
func (b *regionBAR) Read8(off uint32) uint8 {
	if b.mapped(off, 1) {
		return b.regs.Read8(off)
	}
	return uint8(b.load(off, 1))
}

// Write32 implements BAR.
func (b *regionBAR) Write32(off uint32, v uint32) {
	if b.mapped(off, 4) {
		b.regs.Write32(off, v)
		return
	}
	b.store(off, 4, v)
}

// Write16 implements NarrowBAR.
func (b *regionBAR) Write16(off uint32, v uint16) {
	if b.mapped(off, 2) {
		b.regs.Write16(off, v)
		return
	}
	b.store(off, 2, uint32(v))
}

// Write8 implements NarrowBAR.
func (b *regionBAR) Write8(off uint32, v uint8) {
	if b.mapped(off, 1) {
		b.regs.Write8(off, v)
		return
	}
	b.store(off, 1, uint32(v))
}

// load reads a register of size bytes by system call; all ones when there is none any more.
func (b *regionBAR) load(off uint32, size int) uint32 {
	b.check(off, size)
	b.mu.Lock()
	clear(b.scratch[:])
	err := b.access(off, size, b.sys.pread)
	v := binary.LittleEndian.Uint32(b.scratch[:])
	b.mu.Unlock()
	if err != nil {
		b.failed(off, err)
		return allOnes
	}
	return v
}

// store writes a register of size bytes by system call.
func (b *regionBAR) store(off uint32, size int, v uint32) {
	b.check(off, size)
	b.mu.Lock()
	binary.LittleEndian.PutUint32(b.scratch[:], v)
	err := b.access(off, size, b.sys.pwrite)
	b.mu.Unlock()
	if err != nil {
		b.failed(off, err)
	}
}

func (b *regionBAR) check(off uint32, size int) {
	if uint64(off)+uint64(size) > uint64(b.size) || off%uint32(size) != 0 {
		panic(fmt.Sprintf("%s: %d bytes at register %#x of %#x", b.name, size, off, b.size)) // impossible: BAR says that offsets lie within and are aligned
	}
}

// access moves size bytes between scratch and the register at off. The caller holds mu.
func (b *regionBAR) access(off uint32, size int, do func(int, []byte, int64) (int, error)) error {
	if b.closed {
		return errBARClosed
	}
	return transfer(do, b.fd, b.scratch[:size], b.off+int64(off))
}

// failed tells that an access did not reach its register, which after Close is no wonder.
func (b *regionBAR) failed(off uint32, err error) {
	if err != errBARClosed {
		b.lost(fmt.Errorf("%s: access to register %#x: %w: %w", b.name, off, err, ErrGone))
	}
}

// cutHole is a region of size bytes without the pages that hold any of hole.
func cutHole(size uint64, hole area, page uint64) []area {
	if hole.size == 0 || hole.off >= size {
		return []area{{0, size}}
	}
	first := hole.off / page * page
	end := (hole.off + hole.size + page - 1) / page * page
	var areas []area
	if first > 0 {
		areas = append(areas, area{0, first})
	}
	if end < size {
		areas = append(areas, area{end, size - end})
	}
	return areas
}

// wholePages keeps of each area what can be mapped.
func wholePages(areas []area, page uint64) []area {
	var whole []area
	for _, a := range areas {
		first, end := (a.off+page-1)/page*page, (a.off+a.size)/page*page
		if first < end {
			whole = append(whole, area{first, end - first})
		}
	}
	return whole
}
