package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bare.wire/test/guest/internal/guestside"
	"bare.wire/test/guest/internal/proto"
)

// How long a command whose time is up has for writing its stacks, and how long what it printed may take to be read after its end.
const (
	dumpTime  = 10 * time.Second
	drainTime = 5 * time.Second
)

// run runs the command, passes on what it prints, and says how it ended. Processes that lose their parent meanwhile are reaped; those that
// are left at the end are killed.
func run(l *line, w *proto.Work, start int) proto.Ending {
	r, out, err := os.Pipe()
	if err != nil {
		return proto.Ending{Status: -1, Failure: err.Error()}
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1) // before anybody can ask: a signal that nobody waits for is lost
	pid, err := launch(w, start, out)
	out.Close()
	if err != nil {
		return proto.Ending{Status: -1, Failure: err.Error()}
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		if _, err := io.CopyBuffer(sender{l, proto.Output}, r, make([]byte, 1<<16)); err != nil {
			l.logf("passing on what the command prints: %v", err)
		}
	}()
	var restarting atomic.Bool
	go restartOnDemand(l, pid, asked, &restarting, drained)
	overrun := make(chan struct{})
	limit := time.AfterFunc(w.Limit, func() {
		close(overrun)
		l.logf("the command is still running after %v: SIGQUIT, and SIGKILL in %v", w.Limit, dumpTime)
		unix.Kill(-pid, unix.SIGQUIT)
		time.Sleep(dumpTime)
		unix.Kill(-pid, unix.SIGKILL)
	})
	ws := reap(pid)
	limit.Stop()
	unix.Kill(-1, unix.SIGKILL) // everybody but this process
	select {
	case <-drained:
	case <-time.After(drainTime):
		l.logf("the command's output has no end")
	}
	if restarting.Load() {
		select {} // the machine is about to boot again
	}
	return ending(ws, overrun)
}

// sender sends what is written to it as frames of a kind.
type sender struct {
	l *line
	k proto.Kind
}

func (s sender) Write(p []byte) (int, error) {
	for piece := range slices.Chunk(p, proto.MaxPayload) {
		if err := s.l.send(s.k, piece); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// launch starts the command, as the leader of a process group.
func launch(w *proto.Work, start int, out *os.File) (pid int, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	env := append([]string{"PATH=" + guestside.Path, "HOME=/tmp", "TMPDIR=/tmp", guestside.StartVariable + "=" + strconv.Itoa(start)}, w.Env...)
	os.Setenv("PATH", guestside.Path)
	program, err := exec.LookPath(w.Command[0])
	if err != nil {
		return 0, fmt.Errorf("the command: %w", err)
	}
	pid, err = syscall.ForkExec(program, w.Command, &syscall.ProcAttr{
		Dir: w.Dir, Env: env, Files: []uintptr{null.Fd(), out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("starting %s: %w", program, err)
	}
	return pid, nil
}

// reap waits for children until pid is one of them.
func reap(pid int) syscall.WaitStatus {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		if got == pid || err != nil && !errors.Is(err, syscall.EINTR) {
			return ws
		}
	}
}

func ending(ws syscall.WaitStatus, overrun chan struct{}) proto.Ending {
	e := proto.Ending{Status: ws.ExitStatus()}
	if ws.Signaled() {
		e.Signal = ws.Signal().String()
	}
	select {
	case <-overrun:
		e.Overrun = true
	default:
	}
	return e
}

// restartOnDemand boots the machine again when somebody in it sends SIGUSR1, after what the command has printed has been passed on.
func restartOnDemand(l *line, pid int, asked <-chan os.Signal, restarting *atomic.Bool, drained <-chan struct{}) {
	<-asked
	restarting.Store(true)
	unix.Kill(-pid, unix.SIGKILL)
	<-drained
	if _, err := l.ask(proto.Restart, nil, proto.Ack); err != nil {
		fmt.Println("init:", err)
	}
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

// sendKernelMessages sends what the kernel has in its ring of messages.
func sendKernelMessages(l *line) error {
	const readAll, size = 3, 10 // syslog(2): SYSLOG_ACTION_READ_ALL, SYSLOG_ACTION_SIZE_BUFFER
	n, err := unix.Klogctl(size, nil)
	if err != nil {
		return err
	}
	b := make([]byte, n)
	if n, err = unix.Klogctl(readAll, b); err != nil {
		return err
	}
	_, err = sender{l, proto.Kernel}.Write(b[:n])
	return err
}

// sendOutputs sends an archive of a directory, unless it is empty.
func sendOutputs(l *line, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return err
	}
	tw := tar.NewWriter(sender{l, proto.Tar})
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir || !d.IsDir() && !d.Type().IsRegular() {
			return err
		}
		return archive(tw, strings.TrimPrefix(p, dir+"/"), p, d)
	})
	return errors.Join(err, tw.Close())
}

func archive(tw *tar.Writer, name, file string, d fs.DirEntry) error {
	st, err := d.Info()
	if err != nil {
		return err
	}
	h, err := tar.FileInfoHeader(st, "")
	if err != nil {
		return err
	}
	h.Name = name
	if d.IsDir() {
		h.Name += "/"
		return tw.WriteHeader(h)
	}
	// Read first: a file that grows meanwhile would not fit its header.
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	h.Size = int64(len(b))
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err = tw.Write(b)
	return err
}
