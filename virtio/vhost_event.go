package virtio

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// vhostKick is the Doorbell of a queue: an eventfd that the back end reads.
//
// Its flags are the back end's as much as ours, which may let writes block, and its counter too, which may be full. Both together
// would stop whoever sends; so the counter is looked at first.
type vhostKick struct {
	fd   int
	one  [8]byte
	room [1]unix.PollFd
}

func newVhostKick() (*vhostKick, error) {
	fd, err := newEventfd()
	if err != nil {
		return nil, err
	}
	return &vhostKick{fd: fd, one: [8]byte{0: 1, 7: 0}, room: [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}}, nil
}

// Ring implements Doorbell: a system call, which orders the stores before it. A counter that is full is as good as one that has
// been raised.
func (k *vhostKick) Ring(uint16) {
	if n, err := unix.Poll(k.room[:], 0); n == 0 && err == nil {
		return
	}
	_, _ = unix.Write(k.fd, k.one[:])
}

// close also empties the counter: whoever the back end has made wait in Ring, between the look and the write, goes on.
func (k *vhostKick) close() {
	if k != nil {
		_ = takeEvent(k.fd)
		_ = unix.Close(k.fd) // of a descriptor that is ours alone
	}
}

// takeEvent takes what there is off an eventfd, EAGAIN if there is nothing. It does not block, whatever the flags say.
func takeEvent(fd int) error {
	var count [8]byte
	_, err := unix.Preadv2(fd, [][]byte{count[:]}, -1, unix.RWF_NOWAIT)
	return err
}

func newEventfd() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("make an eventfd: %w (is the limit of open files reached? see ulimit -n)", err)
	}
	return fd, nil
}

// vhostCalls are the interrupts: an eventfd for each vector, which the back end writes to, and a goroutine that reads it. It waits
// in Go's network poller, and costs no thread.
type vhostCalls struct {
	mu      sync.Mutex
	files   []*os.File
	fds     []int // of files: File.Fd would take them out of the poller
	readers sync.WaitGroup
}

// start makes n vectors in place of those that there are.
func (c *vhostCalls) start(n int, f func(vector int)) error {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		fd, err := newEventfd()
		if err != nil {
			return errors.Join(err, c.closeAll())
		}
		c.fds = append(c.fds, fd)
		c.files = append(c.files, os.NewFile(uintptr(fd), "eventfd"))
	}
	for vector, file := range c.files {
		raw, err := file.SyscallConn()
		if err != nil {
			return errors.Join(err, c.closeAll())
		}
		c.readers.Go(func() {
			for awaitEvent(raw) == nil {
				f(vector)
			}
		})
	}
	return nil
}

// awaitEvent returns when an eventfd has been written to; an error says that it has been closed.
func awaitEvent(raw syscall.RawConn) (err error) {
	closed := raw.Read(func(fd uintptr) bool {
		err = takeEvent(int(fd))
		return err != unix.EAGAIN && err != unix.EINTR
	})
	return errors.Join(closed, err)
}

// stop returns when no reader is left.
func (c *vhostCalls) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.closeAll() // of descriptors that are ours alone
	c.readers.Wait()
}

func (c *vhostCalls) closeAll() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	c.files, c.fds = nil, nil
	return errors.Join(errs...)
}

// fd is the descriptor of a vector, if there is one.
func (c *vhostCalls) fd(vector int) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if vector < 0 || vector >= len(c.fds) {
		return -1, false
	}
	return c.fds[vector], true
}
