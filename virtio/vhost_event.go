package virtio

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// vhostKick is the Doorbell of a queue: an eventfd that the back end reads.
type vhostKick struct {
	fd  int
	one [8]byte
}

func newVhostKick() (*vhostKick, error) {
	fd, err := newEventfd()
	if err != nil {
		return nil, err
	}
	return &vhostKick{fd: fd, one: [8]byte{0: 1, 7: 0}}, nil
}

// Ring implements Doorbell: a system call, which orders the stores before it. A counter that is full (EAGAIN) is as good as one
// that has been raised.
func (k *vhostKick) Ring(uint16) { _, _ = unix.Write(k.fd, k.one[:]) }

func (k *vhostKick) close() {
	if k != nil {
		_ = unix.Close(k.fd) // of a descriptor that is ours alone
	}
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
		c.readers.Go(func() {
			var count [8]byte
			for {
				if _, err := file.Read(count[:]); err != nil {
					return // it has been closed
				}
				f(vector)
			}
		})
	}
	return nil
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
