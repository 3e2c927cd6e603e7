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
// its name, an environment variable, and a socket that its parent has made. Initialisers of other packages may run before that.
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
	closes error // what Close returned
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
	if _, err := g.answer(opReady, 0); err != nil {
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
		Path: "/proc/self/exe", Args: []string{processName, name}, Env: []string{environment + "=" + version}, Dir: "/",
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
// error says that it has seen it off. After an error it keeps the memory, for as long as the device might write to it. A second
// Close returns what the first did.
func (g *Guardian) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return g.closes
	}
	g.closed = true
	if err := g.ask(opQuit, 0, nil); err != nil {
		g.closes = errors.Join(fmt.Errorf("guardian: end DMA: %w", err), g.sock.Close())
		return g.closes
	}
	<-g.exited // it has said that it will
	g.closes = g.sock.Close()
	return g.closes
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
	status, err := g.answer(op, number)
	if err == nil && status != 0 {
		err = fmt.Errorf("it answers: %w", syscall.Errno(status))
	}
	return err
}

// answer waits for the message that belongs to op and number. Answers to what was given up for lack of one are passed over.
func (g *Guardian) answer(op byte, number uint32) (status byte, err error) {
	ctlErr := g.raw.Control(func(fd uintptr) {
		for range 100 {
			var b [messageSize]byte
			switch err = receiveAnswer(int(fd), &b); {
			case err == unix.EINTR, err == unix.EAGAIN:
			case err != nil:
				return
			case b[0] == op && binary.LittleEndian.Uint32(b[4:]) == number:
				status = b[1]
				return
			}
		}
		err = errors.Join(fmt.Errorf("no answer to request %d", op), err)
	})
	return status, errors.Join(ctlErr, err)
}

// receiveAnswer takes the next message. EINTR and EAGAIN come back as they are.
func receiveAnswer(fd int, b *[messageSize]byte) error {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, answerTime)
	if err == nil && n == 0 {
		return fmt.Errorf("no answer in %d ms", answerTime)
	}
	if err == nil {
		n, _, err = unix.Recvfrom(fd, b[:], 0)
	}
	switch {
	case err != nil:
		return err
	case n == 0:
		return errors.New("it has ended")
	case n != len(b):
		return fmt.Errorf("an answer of %d bytes", n)
	}
	return nil
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
