package pci

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// signal is a descriptor that becomes readable when something happens, an eventfd or a timerfd, and the goroutine that waits
// for that in Go's network poller: a sleeper costs no thread.
type signal struct {
	file *os.File
	done chan struct{}
}

// newSignal makes a signal from a descriptor that yields 8 bytes for each time it fired, and takes it over. f is called by
// its goroutine each time, until stop. A descriptor that the poller does not take would be silent: that is an error.
func newSignal(fd int, name string, f func()) (*signal, error) {
	s := &signal{file: os.NewFile(uintptr(fd), name), done: make(chan struct{})}
	if err := s.file.SetReadDeadline(time.Time{}); err != nil { // none; only what is polled for can have one
		return nil, errors.Join(fmt.Errorf("wait for %s: %w (is the limit of polled files reached? see /proc/sys/fs/epoll)", name, err), s.file.Close())
	}
	go func() {
		defer close(s.done)
		var count [8]byte
		for {
			if _, err := s.file.Read(count[:]); err != nil {
				return // closed by stop
			}
			f()
		}
	}()
	return s, nil
}

// stop ends the goroutine: when it returns, f is not running and will not run. f must not call it.
func (s *signal) stop() error {
	err := s.file.Close()
	<-s.done
	return err
}

// newEvent is a signal that somebody, the kernel say, raises by writing to an eventfd.
func newEvent(name string, f func()) (s *signal, fd int, err error) {
	if fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, -1, fmt.Errorf("make an eventfd: %w (is the limit of open files reached? see ulimit -n)", err)
	}
	s, err = newSignal(fd, name, f)
	return s, fd, err
}

// newTick is a signal that a timer raises every period nanoseconds. The kernel keeps the time, as it would for interrupts.
func newTick(name string, period int64, f func()) (*signal, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make a timer: %w (is the limit of open files reached? see ulimit -n)", err)
	}
	every := unix.NsecToTimespec(period)
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("set a timer: %w", err), unix.Close(fd))
	}
	return newSignal(fd, name, f)
}

func stopAll(list []*signal) error {
	var errs []error
	for _, s := range list {
		errs = append(errs, s.stop())
	}
	return errors.Join(errs...)
}
