// Package guardian keeps a process that writes to a device's registers without an IOMMU from leaving a running device behind.
//
// A device without an IOMMU reaches physical memory. When the process that drives it is killed, the kernel gives the
// process's memory to somebody else while the device still writes received frames to it. The guardian is a second process,
// this program started again, that holds the memory and the device's configuration space:
//
//	driver's process ──socket──▶ guardian     the memfds of every region, before a device may use them
//	               ◀──pidfd────               is readable when the process has ended, however it ended
//	                             guardian ──▶ configuration space: bus master off, read back; only then it lets the memory go
//
// The program that imports this package need not do anything for it: a start of it as a guardian is recognised before main, by
// an environment variable.
//
// What it cannot do: survive SIGKILL sent to both processes at once (a container or a service that is killed as a whole), or
// a kernel that stops. An IOMMU can; so this is for machines that have none.
package guardian

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// answerTime is how long the guardian may take to start, or to answer, in milliseconds. A busy machine is slow, not broken.
const answerTime = 15_000

// Guardian is the guardian of one function, as its parent sees it. Its methods may be called from any goroutine.
type Guardian struct {
	cmd    *exec.Cmd
	sock   *os.File
	raw    syscall.RawConn
	exited chan struct{}

	mu     sync.Mutex
	last   uint32 // the number of the last thing held
	closed bool
}

// Start starts a guardian for the function whose configuration space is open as config, for reading and writing. name shows
// in the list of processes. When Start returns without an error the guardian is watching.
func Start(name string, config *os.File) (*Guardian, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("guardian: make a socket: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "guardian's end")
	defer theirs.Close()
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, errors.Join(fmt.Errorf("guardian: %w", err), unix.Close(fds[0]))
	}
	g := &Guardian{sock: os.NewFile(uintptr(fds[0]), "guardian"), exited: make(chan struct{})}
	if g.raw, err = g.sock.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("guardian: %w", err), g.sock.Close())
	}
	if err := g.start(name, theirs, config); err != nil {
		return nil, errors.Join(fmt.Errorf("guardian: %w", err), g.sock.Close())
	}
	if _, err := g.answer(opReady); err != nil {
		return nil, errors.Join(fmt.Errorf("guardian: it does not start: %w", err), g.kill())
	}
	return g, nil
}

// start runs this program again, as a guardian. It has a session of its own, so that no terminal's signal reaches it, and
// none of this process's files beside those it is given: whoever reads this process's output sees its end.
func (g *Guardian) start(name string, sock, config *os.File) error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("open a pidfd of this process: %w (it needs Linux 5.3)", err)
	}
	self := os.NewFile(uintptr(fd), "pidfd")
	defer self.Close()
	g.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"barewire-guardian", name}, Env: []string{environment + "=" + version}, Dir: "/",
		ExtraFiles:  []*os.File{sock, self, config},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := g.cmd.Start(); err != nil {
		return fmt.Errorf("start this program again: %w", err)
	}
	go g.watch()
	return nil
}

// watch waits until the guardian has gone: its end of the socket is closed then. It takes no bytes and, in Go's network
// poller, no thread. Then the process is reaped; whether the program has other ideas about its children does not matter.
func (g *Guardian) watch() {
	_ = g.raw.Read(func(fd uintptr) bool { return hungUp(int(fd)) }) // an error says that the socket was closed here
	_ = g.cmd.Wait()
	close(g.exited)
}

func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	_, err := unix.Poll(p, 0)
	return err == nil && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}

// Exited is closed when the guardian has ended, for whatever reason.
func (g *Guardian) Exited() <-chan struct{} { return g.exited }

// Alive says whether it has not ended.
func (g *Guardian) Alive() bool {
	select {
	case <-g.exited:
		return false
	default:
		return true
	}
}

// PID is the guardian's process id.
func (g *Guardian) PID() int { return g.cmd.Process.Pid }

// Hold has the guardian keep the memory behind the memfd fd until Drop with the number that is returned. When it returns
// without an error the guardian has it.
func (g *Guardian) Hold(fd int) (uint32, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	if err := g.ask(opHold, g.last, unix.UnixRights(fd)); err != nil {
		return 0, fmt.Errorf("guardian: hold memory: %w", err)
	}
	return g.last, nil
}

// Drop has the guardian let go of what Hold gave it.
func (g *Guardian) Drop(number uint32) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.ask(opDrop, number, nil); err != nil {
		return fmt.Errorf("guardian: let memory go: %w", err)
	}
	return nil
}

// Close ends the guardian. It switches bus mastering off and reads that back, as it would if this process had died; a nil
// error says that it has seen it off. After an error it keeps the memory, for as long as the device might write to it.
func (g *Guardian) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	if err := g.ask(opQuit, 0, nil); err != nil {
		return errors.Join(fmt.Errorf("guardian: end DMA: %w", err), g.sock.Close())
	}
	<-g.exited // it has said that it will
	return g.sock.Close()
}

// kill is for a guardian that has not started: there is nothing that it would hold.
func (g *Guardian) kill() error {
	err := g.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-g.exited
	return errors.Join(err, g.sock.Close())
}

// ask sends a request and waits for the answer to it. The caller holds mu.
func (g *Guardian) ask(op byte, number uint32, rights []byte) error {
	var sent error
	if err := g.raw.Control(func(fd uintptr) {
		sent = unix.Sendmsg(int(fd), message(op, 0, number), rights, nil, unix.MSG_NOSIGNAL)
	}); err != nil || sent != nil {
		return errors.Join(err, sent)
	}
	status, err := g.answer(op)
	if err == nil && status != 0 {
		err = fmt.Errorf("it answers: %w", syscall.Errno(status))
	}
	return err
}

// answer waits for the message that belongs to op.
func (g *Guardian) answer(op byte) (status byte, err error) {
	ctlErr := g.raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, pollErr := unix.Poll(p, answerTime)
		for range 100 {
			if pollErr != unix.EINTR {
				break
			}
			n, pollErr = unix.Poll(p, answerTime)
		}
		switch {
		case pollErr != nil:
			err = pollErr
			return
		case n == 0:
			err = fmt.Errorf("no answer in %d ms", answerTime)
			return
		}
		var b [messageSize]byte
		n, _, err = unix.Recvfrom(int(fd), b[:], 0)
		switch {
		case err != nil:
		case n == 0:
			err = errors.New("it has ended")
		case n != len(b) || b[0] != op:
			err = fmt.Errorf("it answers %x to request %d", b[:n], op)
		}
		status = b[1]
	})
	return status, errors.Join(ctlErr, err)
}

// Messages in both directions: what, how it went (0, or an errno), and which.
const messageSize = 8

const (
	opReady = 1 + iota // from the guardian, without being asked
	opHold
	opDrop
	opQuit
)

func message(op, status byte, number uint32) []byte {
	return binary.LittleEndian.AppendUint32([]byte{op, status, 0, 0}, number)
}
