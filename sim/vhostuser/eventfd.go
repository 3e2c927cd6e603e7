package vhostuser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// eventLink is what the kernel calls an eventfd in /proc/self/fd.
const eventLink = "anon_inode:[eventfd]"

// openEvent makes a file of an eventfd that the front end has sent; on an error the descriptor is closed. What is no eventfd is
// refused: a regular file would always be readable, a terminal would take what we write.
func openEvent(fd int, what string) (*os.File, error) {
	if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil || name != eventLink {
		if err == nil {
			err = fmt.Errorf("it is %q", name)
		}
		return nil, errors.Join(fmt.Errorf("%s descriptor: want an eventfd: %w", what, err), unix.Close(fd))
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("%s descriptor: %w", what, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), what), nil
}

// kick waits for an eventfd of the front end in Go's poller.
type kick struct {
	file *os.File
	done sync.WaitGroup
}

// newKick calls f, from a goroutine of the kick's own, whenever the eventfd is written to, until stop.
func newKick(fd int, f func()) (*kick, error) {
	file, err := openEvent(fd, "kick")
	if err != nil {
		return nil, err
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kick descriptor: %w", err), file.Close())
	}
	k := &kick{file: file}
	k.done.Go(func() {
		for waitEvent(conn) == nil {
			f()
		}
	})
	return k, nil
}

// waitEvent returns when the eventfd has been written to; an error says that it is closed. The read never blocks, whatever the
// front end makes of the flags of a descriptor that it shares.
func waitEvent(conn syscall.RawConn) (err error) {
	var b [8]byte
	rerr := conn.Read(func(fd uintptr) bool {
		_, err = unix.Preadv2(int(fd), [][]byte{b[:]}, -1, unix.RWF_NOWAIT)
		if errors.Is(err, unix.EINTR) {
			err = unix.EAGAIN
		}
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(rerr, err)
}

// stop ends the waiting. When it returns f does not run and will not; f must not wait for locks that the caller holds.
func (k *kick) stop() {
	_ = k.file.Close() // an eventfd has nothing to lose
	k.done.Wait()
}

// call tells the front end by its eventfd that there is something for it.
type call struct {
	mu   sync.Mutex
	file *os.File
	fd   int // the file's, −1 once it is closed: its number may be somebody else's then
}

func newCall(fd int) (*call, error) {
	file, err := openEvent(fd, "call")
	if err != nil {
		return nil, err
	}
	return &call{fd: fd, file: file}, nil
}

// one is what is written to an eventfd, in the byte order of the machine.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// send adds one to the counter. A counter that is full has been rung already. It may be called after close, by who was told to
// call it before.
func (c *call) send() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		_, _ = unix.Write(c.fd, one)
	}
}

func (c *call) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fd = -1
	_ = c.file.Close()
}
