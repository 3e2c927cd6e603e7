// Package vm boots a guest under QEMU, has it run one command, and says how that ended.
//
//	Spec ──▶ first file system (init, modules, the command, files) ──▶ qemu-system-x86_64 ──▶ console.txt
//	                                                                        │
//	Result ◀── frames of package proto over two virtio-serial ports ◀───────┘
//
// The processor is emulated (TCG), also where the machine could do better: QEMU delivers interrupts of a device that is another process
// differently under KVM, and what was tested should not depend on the machine that tests.
//
// One guest of a user runs at a time, whatever the number of processes that want one: time-outs assume the machine's processors.
package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"bare.wire/test/guest/internal/debian"
	"bare.wire/test/guest/internal/kernel"
	"bare.wire/test/guest/internal/proto"
)

// Spec says what guest is wanted.
type Spec struct {
	Kernel      kernel.Flavour
	Modules     []string // loaded before the command: names, with parameters after a space
	ModuleFiles []string // there, and not loaded
	IOMMU       bool
	Cmdline     []string // further words of the kernel's command line
	Memory      int      // MiB; 0: enough
	HugePages   int      // of 2 MiB
	CPUs        int      // 0: 2, or 1 with ShareRAM
	ShareRAM    bool     // other processes see the guest's memory
	QEMU        []string // further arguments
	Wrap        []string // put before the whole command
	Restarts    int      // how often the guest may boot again

	Files   map[string]string // path in the guest → file or directory here
	Command []string
	Env     []string
	Dir     string

	Limit  time.Duration                // for the command, each time that it is started
	Output io.Writer                    // gets what the command prints, as it comes; nil: nobody
	Again  func()                       // called when the guest has booted again, before its Output
	Answer func(question string) string // nil: there are no answers
}

// whole is the time for everything. After each restart the command begins anew, and so does its time.
func (s *Spec) whole() time.Duration {
	return time.Duration(1+s.Restarts)*(s.Limit+bootTime) + (bootTries-1)*helloTime
}

// Result says how a guest's command ended.
type Result struct {
	proto.Ending
	Dir string // holds console.txt, kernel.txt, command.txt, initrd.txt, qemu.txt, log.txt and out/; the caller removes it
	// Crashes is how often QEMU crashed or stood still before the guest was there, and was started again.
	Crashes int
}

// Failure is what Run returns when the guest itself failed, so that nothing is known about its command.
type Failure struct {
	What string
	Dir  string // like Result.Dir
	Tail string // of what the guest and QEMU said
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s\n%s\neverything about this guest is in %s", f.What, f.Tail, f.Dir)
}

// bootTime is how long a guest may take, beyond its command's time, to boot and to end, on a machine with other things to do; again for each restart.
const bootTime = 3 * time.Minute

// Run boots a guest and returns when it has ended. An error is a *Failure if the guest was started; the context's cause is in it.
func Run(ctx context.Context, s Spec) (*Result, error) {
	c, err := debian.Open()
	if err != nil {
		return nil, err
	}
	k, err := kernel.Get(ctx, c, s.Kernel)
	if err != nil {
		return nil, err
	}
	unlock, err := c.Turn(ctx, "guest")
	if err != nil {
		return nil, err
	}
	defer unlock()

	dir, err := workDir()
	if err != nil {
		return nil, err
	}
	r := &run{spec: s, kernel: k, dir: dir, cache: c, patience: helloTime}
	if err := r.prepare(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.whole(), errTooLong)
	defer cancel()
	end, err := r.start(ctx)
	os.Remove(r.path("initrd")) // large, and made again from what initrd.txt lists
	if err != nil && errors.Is(context.Cause(ctx), ErrInterrupted) {
		return nil, errors.Join(ErrInterrupted, os.RemoveAll(dir)) // nobody wants to know more
	}
	if err != nil {
		return nil, &Failure{What: err.Error(), Dir: dir, Tail: r.tail()}
	}
	return &Result{Ending: *end, Dir: dir, Crashes: r.crashes}, nil
}

// ErrInterrupted is why a guest was ended that nobody wants any more.
var ErrInterrupted = errors.New("interrupted")

// Interruptible returns a context that ends, with the cause ErrInterrupted, when somebody stops this process: by Ctrl-C, kill, or by closing
// the terminal. The process then has the time to end its guest and to tidy up; a second signal ends it at once.
func Interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		defer signal.Stop(signals)
		select {
		case <-signals:
			cancel(ErrInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

var errTooLong = errors.New("the guest did not come to its end in time")

// maxSocketPath is the longest path of a socket, with the name of the socket itself taken off.
const maxSocketPath = 107 - len("/questions.sock")

// workDir makes a directory for a guest. Sockets in it must have short paths.
func workDir() (string, error) {
	dir, err := os.MkdirTemp("", "guest-")
	if err == nil && len(dir) > maxSocketPath {
		if err := os.Remove(dir); err != nil {
			return "", err
		}
		dir, err = os.MkdirTemp("/tmp", "guest-")
	}
	if err != nil {
		return "", fmt.Errorf("a directory for the guest: %w", err)
	}
	return dir, nil
}

// run is one guest.
type run struct {
	spec   Spec
	kernel *kernel.Kernel
	cache  *debian.Cache
	dir    string
	initrd int64 // bytes
	// crashes is how often QEMU died before the guest was there.
	crashes int
	// patience is how long the guest may take to be heard of.
	patience time.Duration
}

func (r *run) path(name string) string { return filepath.Join(r.dir, name) }

// tailLines is how much of a file a failure shows.
const tailLines = 40

// tail is the end of what QEMU and the guest said.
func (r *run) tail() string {
	var b strings.Builder
	for _, f := range []struct{ name, title string }{{"qemu.txt", "QEMU"}, {"log.txt", "the guest's init"}, {"console.txt", "the console"}} {
		text, err := os.ReadFile(r.path(f.name))
		if err != nil || len(strings.TrimSpace(string(text))) == 0 {
			continue
		}
		fmt.Fprintf(&b, "--- %s:\n%s\n", f.title, strings.Join(excerpt(strings.Split(strings.TrimSpace(string(text)), "\n")), "\n"))
	}
	return b.String()
}

// deaths begin what a kernel says when it dies.
var deaths = []string{"Kernel panic", "BUG:", "Oops", "general protection fault"}

// excerpt is the last lines of a text, or, if a kernel died in it, those from there on.
func excerpt(lines []string) []string {
	dies := slices.IndexFunc(lines, func(l string) bool {
		return slices.ContainsFunc(deaths, func(d string) bool { return strings.Contains(l, d) })
	})
	if dies < 0 {
		return lines[max(0, len(lines)-tailLines):]
	}
	lines = lines[max(0, dies-2):]
	return lines[:min(len(lines), tailLines)]
}
