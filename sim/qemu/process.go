package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"bare.wire/clock"
)

const (
	// firstFD is where the first of exec.Cmd's ExtraFiles is in the child.
	firstFD = 3
	// grace is how long QEMU has to end by itself once it is asked to.
	grace = 5 * time.Second
)

// process is QEMU while it runs.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait, once done is closed
}

// start runs QEMU with our sockets. It dies with us: the kernel kills it when the thread that started it ends, so that thread
// belongs to it until it has ended.
func start(path string, args []string, files []*os.File, cfg Config) (*process, error) {
	q := &process{cmd: exec.Command(path, args...), done: make(chan struct{})}
	q.cmd.Stdin, q.cmd.Stdout, q.cmd.Stderr = cfg.Stdin, cfg.Stdout, cfg.Stderr
	q.cmd.ExtraFiles = files
	q.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := q.cmd.Start()
		started <- err
		if err == nil {
			q.err = q.cmd.Wait()
		}
		close(q.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	return q, nil
}

// wait returns QEMU's exit status. When ctx ends it asks QEMU to end, and kills it if it does not: a QEMU that stands still
// in the proxy ignores SIGTERM.
func (q *process) wait(ctx context.Context, clk clock.Clock) (int, error) {
	select {
	case <-q.done:
		return q.status()
	case <-ctx.Done():
	}
	_ = q.cmd.Process.Signal(syscall.SIGTERM) // it may just have ended
	t := clk.At(clk.Nanos()+int64(grace), func() { _ = q.cmd.Process.Kill() })
	defer t.Stop()
	<-q.done
	return q.status()
}

// status is the exit status as a shell gives it: 128 and the number of the signal where one ended QEMU.
func (q *process) status() (int, error) {
	var exit *exec.ExitError
	if q.err != nil && !errors.As(q.err, &exit) {
		return 0, fmt.Errorf("QEMU: %w", q.err)
	}
	if w, ok := q.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal()), nil
	}
	return q.cmd.ProcessState.ExitCode(), nil
}
