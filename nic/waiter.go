package nic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bare.wire/clock"
)

// nearDeadline is how close a deadline has to be for Wait to poll rather than sleep: the machine oversleeps by about a
// millisecond.
const nearDeadline = int64(2 * time.Millisecond)

// Waiter is something to sleep on. Queues, interrupt vectors and devices that are armed with it wake it; many may share
// one. It owns an eventfd in Go's network poller, so a sleeper costs no thread, and the descriptor can be handed to the
// kernel (VFIO) or to a vhost back end, which then wake it without a detour.
//
// One goroutine waits; any may wake. A wake that comes before the wait is not lost: the wait returns at once.
type Waiter struct {
	clk    clock.Clock
	event  *os.File
	fd     int
	woken  atomic.Bool
	fault  atomic.Pointer[error] // see Fail
	closed atomic.Bool
	buf    [8]byte

	// The eventfd as the poller knows it, and what is done to it: one attempt to read it, which a sleep repeats, and one
	// write. os.File.Read would make an error value of each deadline that passes. The poller keeps the descriptor open
	// meanwhile, so that whoever wakes late does not write to another file which has the number by now.
	raw     syscall.RawConn
	attempt func(fd uintptr) (done bool)
	look    func(fd uintptr)
	poke    func(fd uintptr)
	readErr error
}

var errClosed = fmt.Errorf("wait on a closed Waiter: %w", os.ErrClosed)

// NewWaiter returns a Waiter that measures its deadlines with clk. On a virtual clock waiting moves the clock.
func NewWaiter(clk clock.Clock) (*Waiter, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd to wait on: %w (is the limit of open files reached? see ulimit -n)", err)
	}
	w := &Waiter{clk: clk, fd: fd, event: os.NewFile(uintptr(fd), "eventfd")}
	if w.raw, err = w.event.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("make an eventfd to wait on: %w", err), w.event.Close())
	}
	w.attempt = func(fd uintptr) bool {
		_, w.readErr = unix.Read(int(fd), w.buf[:])
		return w.readErr != unix.EAGAIN
	}
	w.look = func(fd uintptr) { w.attempt(fd) }
	one := []byte{0: 1, 7: 0}
	// A full counter (EAGAIN) is as good as a written one: the sleeper wakes.
	w.poke = func(fd uintptr) { _, _ = unix.Write(int(fd), one) }
	return w, nil
}

// FD is the eventfd, for a kernel or a device that is to wake this Waiter by itself. It stays the Waiter's.
func (w *Waiter) FD() int { return w.fd }

// Wake ends the wait that is running, or else the next one. On a closed Waiter it does nothing.
func (w *Waiter) Wake() {
	if w.closed.Load() || w.woken.Swap(true) {
		return
	}
	_ = w.raw.Control(w.poke) // an error says that it has been closed since
}

// Fail is Wake with the reason why there is nothing to wait for any more: a port that is gone says so to its sleepers. The
// wait that it ends, or else the next one that is woken, returns err.
func (w *Waiter) Fail(err error) {
	w.fault.Store(&err)
	w.Wake()
}

// Wait returns true when the Waiter was woken, and false when the clock reached deadline (ns of the clock;
// math.MaxInt64: never) first. It does not allocate. Deadlines nearer than 2 ms are polled for, other goroutines running
// in between. A wake that comes while Wait returns for another may end the next wait too: look for work after each. What
// Fail was given is returned once, with true.
func (w *Waiter) Wait(deadline int64) (bool, error) {
	woken, err := w.wait(deadline)
	if woken && err == nil {
		if fault := w.fault.Swap(nil); fault != nil {
			return true, *fault
		}
	}
	return woken, err
}

func (w *Waiter) wait(deadline int64) (bool, error) {
	if w.closed.Load() {
		return false, errClosed
	}
	if w.woken.Load() {
		return true, w.reset()
	}
	if v, ok := w.clk.(*clock.Virtual); ok {
		return w.waitVirtual(v, deadline)
	}
	now := w.clk.Nanos()
	if deadline > now+nearDeadline {
		woken, err := w.sleep(deadline, now)
		if woken || err != nil {
			return woken, err
		}
	}
	for !w.woken.Load() {
		// The kernel and devices write to the eventfd without setting woken.
		if woken, err := w.take(); woken || err != nil {
			return woken, err
		}
		if w.clk.Nanos() >= deadline {
			return false, nil
		}
		runtime.Gosched() // the waker may have no other processor
	}
	return true, w.reset()
}

// sleep reads the eventfd until shortly before the deadline.
func (w *Waiter) sleep(deadline, now int64) (bool, error) {
	var until time.Time
	if deadline != math.MaxInt64 {
		until = w.clk.Now().Add(time.Duration(deadline - now - nearDeadline/2))
	}
	err := w.event.SetReadDeadline(until)
	if err == nil {
		err = w.raw.Read(w.attempt)
	}
	if w.closed.Load() {
		return false, errClosed
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	if err = errors.Join(err, w.readErr); err != nil {
		return false, fmt.Errorf("wait on eventfd: %w", err)
	}
	w.woken.Store(false)
	return true, nil
}

// reset takes the wake that was seen off the eventfd. Whatever wakes meanwhile does so before Wait returns.
func (w *Waiter) reset() error {
	w.woken.Store(false)
	_, err := w.take()
	return err
}

// take takes what there is off the eventfd, and says whether there was something.
func (w *Waiter) take() (bool, error) {
	if w.raw.Control(w.look) != nil {
		return false, errClosed
	}
	switch w.readErr {
	case nil:
		w.woken.Store(false)
		return true, nil
	case unix.EAGAIN, unix.EINTR:
		return false, nil
	}
	return false, fmt.Errorf("read eventfd: %w", w.readErr)
}

// waitVirtual lets time pass, event by event, until one of them wakes the Waiter.
func (w *Waiter) waitVirtual(v *clock.Virtual, deadline int64) (bool, error) {
	for !w.woken.Load() {
		next, ok := v.Next()
		if !ok && deadline == math.MaxInt64 {
			return false, errors.New("wait without a deadline on a virtual clock with nothing left to happen: it would never end")
		}
		if !ok || next > deadline {
			_ = v.SleepUntil(context.Background(), deadline)
			if !w.woken.Load() {
				return false, nil
			}
			break
		}
		v.AdvanceTo(next)
	}
	return true, w.reset()
}

// Close gives the eventfd back; a wait that is running ends with os.ErrClosed. Nothing may be armed with the Waiter any
// more.
func (w *Waiter) Close() error {
	if w.closed.Swap(true) {
		return nil
	}
	return w.event.Close()
}
