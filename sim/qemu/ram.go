package qemu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxFiles bounds how many files a guest's memory may consist of.
const maxFiles = 16

// files are the files that guest memory consists of, each mapped once, whole, until the machine is closed: a section that goes
// away may still be in use by a copy that has begun.
type files struct {
	mu   sync.Mutex
	list []mappedFile
}

type mappedFile struct {
	dev, ino uint64
	b        []byte
}

// open returns the bytes of the file that fd refers to. It does not keep fd.
func (f *files) open(fd int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("guest memory: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.list {
		if m.dev == st.Dev && m.ino == st.Ino {
			return m.b, nil
		}
	}
	if len(f.list) == maxFiles {
		return nil, fmt.Errorf("guest memory: of more than %d files", maxFiles)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size <= 0 || int64(int(st.Size)) != st.Size {
		return nil, fmt.Errorf("guest memory: a descriptor of mode %#o and size %d, want a memfd or a file", st.Mode, st.Size)
	}
	b, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of guest memory: %w", st.Size, err)
	}
	f.list = append(f.list, mappedFile{st.Dev, st.Ino, b})
	return b, nil
}

func (f *files) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, m := range f.list {
		errs = append(errs, unix.Munmap(m.b))
	}
	f.list = nil
	return errors.Join(errs...)
}

// view is a section of guest memory.
type view struct {
	gpa uint64
	b   []byte
}

// ram is the guest's physical memory as one proxy was told of it last. It may be read from any goroutine.
type ram struct {
	files *files
	views atomic.Pointer[[]view]
}

// sync replaces the map. It does not keep the descriptors. What cannot be mapped is left out, and told.
func (r *ram) sync(sections []section, fds []int) error {
	var errs []error
	list := make([]view, 0, len(sections))
	for i, s := range sections {
		b, err := r.files.open(fds[i])
		switch {
		case err != nil:
			errs = append(errs, err)
		case s.off+s.size > uint64(len(b)):
			errs = append(errs, fmt.Errorf("guest memory at %#x: bytes %#x to %#x of a file of %#x", s.gpa, s.off, s.off+s.size, len(b)))
		default:
			list = append(list, view{s.gpa, b[s.off : s.off+s.size : s.off+s.size]})
		}
	}
	r.views.Store(&list)
	return errors.Join(errs...)
}

// bytes returns up to n bytes at a guest-physical address, fewer where the section ends; nil where there is no RAM.
func (r *ram) bytes(gpa uint64, n int) []byte {
	views := r.views.Load()
	if views == nil {
		return nil
	}
	for i := range *views {
		v := &(*views)[i]
		if off := gpa - v.gpa; gpa >= v.gpa && off < uint64(len(v.b)) {
			end := min(off+uint64(n), uint64(len(v.b)))
			return v.b[off:end:end]
		}
	}
	return nil
}

// load64 reads a word of a table. The guest may be writing it: an aligned word is read in one piece.
func (r *ram) load64(gpa uint64) (uint64, bool) {
	b := r.bytes(gpa, 8)
	if len(b) < 8 {
		return 0, false
	}
	if gpa%8 != 0 {
		return binary.LittleEndian.Uint64(b), true
	}
	return atomicLoad64(b), true
}
