package pci

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel is what VFIO and sysfs access need of the operating system; tests put another in its place.
type kernel interface {
	open(name string) (fd int, err error) // for reading and writing, close-on-exec
	close(fd int) error
	// ioctl passes a pointer to a structure, or nil; ioctlValue a number.
	ioctl(fd int, request uint, arg unsafe.Pointer) (int, error)
	ioctlValue(fd int, request uint, v uintptr) (int, error)
	pread(fd int, b []byte, off int64) (int, error)
	pwrite(fd int, b []byte, off int64) (int, error)
	// mmap lays the areas of a file, whose offsets count from off, into a window of size bytes. What lies between cannot be
	// touched. An area is a multiple of the page size, as is its offset.
	mmap(fd int, off int64, size int, areas []area) (unsafe.Pointer, error)
	munmap(at unsafe.Pointer, size int) error
	// memlock is how many bytes this process may lock in memory, unlimited when there is no limit for it.
	memlock() (limit uint64, unlimited bool)
}

// linux is the real kernel.
type linux struct{}

func (linux) open(name string) (fd int, err error) {
	for {
		if fd, err = unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0); err != unix.EINTR {
			return fd, err
		}
	}
}

func (linux) close(fd int) error { return unix.Close(fd) }

func (linux) ioctl(fd int, request uint, arg unsafe.Pointer) (int, error) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(arg))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

func (linux) ioctlValue(fd int, request uint, v uintptr) (int, error) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), v)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

func (linux) pread(fd int, b []byte, off int64) (int, error)  { return unix.Pread(fd, b, off) }
func (linux) pwrite(fd int, b []byte, off int64) (int, error) { return unix.Pwrite(fd, b, off) }

func (linux) mmap(fd int, off int64, size int, areas []area) (unsafe.Pointer, error) {
	window, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve a window: %w", err)
	}
	for _, a := range areas {
		if _, err := unix.MmapPtr(fd, off+int64(a.off), unsafe.Add(window, a.off), uintptr(a.size),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
			return nil, errors.Join(err, unix.MunmapPtr(window, uintptr(size)))
		}
	}
	return window, nil
}

func (linux) munmap(at unsafe.Pointer, size int) error { return unix.MunmapPtr(at, uintptr(size)) }

func (linux) memlock() (uint64, bool) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0 {
		return 0, true
	}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil || l.Cur == unix.RLIM_INFINITY {
		return 0, true
	}
	return l.Cur, false
}
