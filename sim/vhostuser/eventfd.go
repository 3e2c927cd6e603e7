package vhostuser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// eventLink is what the kernel calls an eventfd in /proc/self/fd.
const eventLink = "anon_inode:[eventfd]"

// checkEvent looks at an eventfd that the front end has sent and makes it one that does not block; on an error the descriptor is
// closed. What is no eventfd is refused: a regular file would always be readable, a terminal would take what we write.
func checkEvent(fd int, what string) error {
	if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil || name != eventLink {
		if err == nil {
			err = fmt.Errorf("it is %q", name)
		}
		return errors.Join(fmt.Errorf("%s descriptor: want an eventfd: %w", what, err), unix.Close(fd))
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return errors.Join(fmt.Errorf("%s descriptor: %w", what, err), unix.Close(fd))
	}
	return nil
}

// kick waits for an eventfd of the front end in Go's poller.
type kick struct {
	file *os.File
	done sync.WaitGroup
}

// newKick calls f, from a goroutine of the kick's own, whenever the eventfd is written to, until stop.
func newKick(fd int, f func()) (*kick, error) {
	if err := checkEvent(fd, "kick"); err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "kick")
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

// takeEvent takes what there is off an eventfd, EAGAIN if there is nothing. It does not block, whatever the front end makes of the
// flags of a descriptor that it shares.
func takeEvent(fd int) error {
	var count [8]byte
	_, err := unix.Preadv2(fd, [][]byte{count[:]}, -1, unix.RWF_NOWAIT)
	return err
}

// waitEvent returns when the eventfd has been written to; an error says that it is closed.
func waitEvent(conn syscall.RawConn) (err error) {
	rerr := conn.Read(func(fd uintptr) bool {
		err = takeEvent(int(fd))
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
//
// The flags of the eventfd are the front end's as much as ours, which may let writes block, and its counter too, which may be full.
// Both together stop whoever writes, and that must not be the world: so a goroutine does it. It is not in Go's poller, which would
// wake for what we write ourselves.
type call struct {
	fd   int
	wake chan struct{}
	stop chan struct{}
	done chan struct{}
}

func newCall(fd int) (*call, error) {
	if err := checkEvent(fd, "call"); err != nil {
		return nil, err
	}
	c := &call{fd: fd, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go c.run()
	return c, nil
}

// one is what is written to an eventfd, in the byte order of the machine.
var one = binary.NativeEndian.AppendUint64(nil, 1)

func (c *call) run() {
	defer close(c.done)
	for {
		select {
		case <-c.wake:
			c.write()
		case <-c.stop:
			select {
			case <-c.wake: // the last word is not lost
				c.write()
			default:
			}
			return
		}
	}
}

// write adds one to the counter. A counter that is full has been rung already.
func (c *call) write() { _, _ = unix.Write(c.fd, one) }

// send has the front end told. It never waits; several that come at once may be one. It may be called after close, by who was told
// to call it before.
func (c *call) send() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// close returns when nobody writes any more. Whoever the front end has made wait, with a counter that is full, goes on: the counter
// is emptied, as often as it takes. It is called without the world's lock.
func (c *call) close() {
	if c == nil {
		return
	}
	close(c.stop)
	for {
		select {
		case <-c.done:
			_ = unix.Close(c.fd) // of a descriptor that is ours alone
			return
		default:
		}
		room := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(room, 0); n == 0 && err == nil {
			_ = takeEvent(c.fd)
		}
		runtime.Gosched()
	}
}
