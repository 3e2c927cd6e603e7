package pci

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// regionBAR is a BAR of a function whose registers the kernel gives out as part of a file: areas of it are mapped, the rest
// is reached by reading and writing the file, which takes a system call each.
type regionBAR struct {
	sys    kernel
	fd     int
	off    int64 // of the BAR in the file
	size   int
	name   string
	lost   func(error)
	closed atomic.Bool

	window unsafe.Pointer // size bytes of which areas are mapped; nil: none
	areas  []area
	regs   *GuardedBAR // over the window
}

// view is what a driver gets: without a detour when all of the BAR is mapped.
func (b *regionBAR) view() BAR {
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
	b.closed.Store(true)
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

func (b *regionBAR) mapped(off uint32) bool {
	for _, a := range b.areas {
		if uint64(off) >= a.off && uint64(off)+4 <= a.off+a.size {
			return true
		}
	}
	return false
}

// Read32 implements BAR.
func (b *regionBAR) Read32(off uint32) uint32 {
	if b.mapped(off) {
		return b.regs.Read32(off)
	}
	var v [4]byte
	if !b.access(off, v[:], b.sys.pread) {
		return allOnes
	}
	return binary.LittleEndian.Uint32(v[:])
}

// Write32 implements BAR.
func (b *regionBAR) Write32(off uint32, v uint32) {
	if b.mapped(off) {
		b.regs.Write32(off, v)
		return
	}
	var w [4]byte
	binary.LittleEndian.PutUint32(w[:], v)
	b.access(off, w[:], b.sys.pwrite)
}

// access reads or writes a register by system call; false when there is none any more.
func (b *regionBAR) access(off uint32, v []byte, do func(int, []byte, int64) (int, error)) bool {
	if b.closed.Load() {
		return false
	}
	if uint64(off)+4 > uint64(b.size) || off%4 != 0 {
		panic(fmt.Sprintf("%s: register %#x of %#x", b.name, off, b.size)) // impossible: BAR says that offsets lie within
	}
	if err := transfer(do, b.fd, v, b.off+int64(off)); err != nil {
		b.lost(fmt.Errorf("%s: access to register %#x: %w: %w", b.name, off, err, ErrGone))
		return false
	}
	return true
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
