package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"bare.wire/test/guest/internal/proto"
)

// exitDone is how QEMU ends when init has said everything (twice 0x10, and one: see init).
const exitDone = 0x10<<1 | 1

const (
	// killTime is how long QEMU, or what is wrapped around it, may take to end after SIGTERM: longer than nicsim gives QEMU, so
	// that nicsim's own words about its end are kept.
	killTime = 8 * time.Second
	// finishTime is how long what QEMU left in the sockets may take to be taken in.
	finishTime = 3 * time.Second
)

type port struct{ name, socket string }

func (r *run) ports() []port {
	return []port{{proto.ResultsPort, r.path("results.sock")}, {proto.QuestionsPort, r.path("questions.sock")}}
}

const (
	// bootTries is how often a guest is booted when QEMU dies, or stands still, before anything of it has been heard.
	bootTries = 3
	// helloTime is how long a guest may take to be heard of: a boot takes seconds, on a busy machine half a minute.
	helloTime = 2 * time.Minute
)

// errStillborn is QEMU's death by a segmentation fault, or its standing still, before the guest said anything. QEMU 7.2 does either now
// and then, while the firmware or the kernel begin.
var errStillborn = errors.New("QEMU crashed or stood still before the guest was there")

// start boots the guest, again when QEMU itself crashed so early that nothing of what the guest is for has run. Later crashes are
// failures like any other.
func (r *run) start(ctx context.Context) (*proto.Ending, error) {
	for {
		end, err := r.boot(ctx)
		if !errors.Is(err, errStillborn) || r.crashes+1 == bootTries {
			return end, err
		}
		r.crashes++
	}
}

// boot starts QEMU and stays until it has ended, which it always does: at the end of the guest, or of the context.
func (r *run) boot(ctx context.Context) (*proto.Ending, error) {
	c, err := r.listen()
	if err != nil {
		return nil, err
	}
	defer c.close()
	args := r.arguments()
	if err := os.WriteFile(r.path("command.txt"), []byte(shellWords(args)+"\n"), 0o666); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath(Program); err != nil {
		return nil, fmt.Errorf("no %s here (Debian's package qemu-system-x86): %w", Program, err)
	}
	log, err := os.Create(r.path("qemu.txt"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c.stop = stop
	c.serve()
	early, heard := context.WithTimeout(ctx, r.patience)
	defer heard()
	go c.awaitHello(early)
	status, err := execute(ctx, args, log)
	c.finish()
	return r.verdict(ctx, c, status, err)
}

// execute runs QEMU. It gets SIGTERM when the context ends, so that what is wrapped around it may clean up, and then SIGKILL. It gets
// SIGKILL too when this process dies. A Ctrl-C is not for it but for this process, which then ends the context.
func execute(ctx context.Context, args []string, log *os.File) (status int, err error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killTime
	// The signal at the parent's death is sent at the death of the thread that started the child: this one is kept.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return -1, fmt.Errorf("starting %s: %w", args[0], err)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal()), err // as a shell says it, and nicsim
	}
	return cmd.ProcessState.ExitCode(), err
}

// verdict makes sense of the end of QEMU.
func (r *run) verdict(ctx context.Context, c *connection, status int, err error) (*proto.Ending, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		return nil, err
	case c.fault != nil:
		return nil, fmt.Errorf("what the guest says is not understood: %w", c.fault)
	case c.end != nil && (status == exitDone || ctx.Err() != nil):
		return c.end, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %s", context.Cause(ctx), c.reached())
	case c.end != nil:
		return nil, fmt.Errorf("the guest ended well, and then %s ended with status %d instead of %d", r.arguments()[0], status, exitDone)
	case status == 128+int(syscall.SIGSEGV) && c.starts == 0:
		return nil, fmt.Errorf("%s ended with status %d: %w", r.arguments()[0], status, errStillborn)
	case status == 0:
		return nil, fmt.Errorf("the guest's kernel panicked, or switched the machine off: %s", c.reached())
	}
	return nil, fmt.Errorf("%s ended with status %d: %s", r.arguments()[0], status, c.reached())
}

// shellWords writes a command as a shell takes it.
func shellWords(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$&|;<>()*?[]#~`!{}") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		quoted[i] = a
	}
	return strings.Join(quoted, " ")
}

// connection is the host's side of the two ports.
type connection struct {
	run     *run
	results net.Listener
	asked   net.Listener
	stop    context.CancelCauseFunc
	wait    sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
	starts int // how often the guest has said hello
	last   int // how many restarts it has announced
	end    *proto.Ending
	fault  error
}

func (r *run) listen() (*connection, error) {
	c := &connection{run: r}
	for i, l := range []*net.Listener{&c.results, &c.asked} {
		var err error
		if *l, err = net.Listen("unix", r.ports()[i].socket); err != nil {
			c.close()
			return nil, fmt.Errorf("a socket for the guest: %w", err)
		}
	}
	return c, nil
}

// awaitHello stops a guest that has not been heard of when early is over.
func (c *connection) awaitHello(early context.Context) {
	<-early.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(early.Err(), context.DeadlineExceeded) && c.starts == 0 && !c.closed && c.end == nil && c.fault == nil {
		c.stop(errStillborn)
	}
}

// finish takes in what QEMU left in the sockets when it ended, and closes them. It does not wait for ever: an answer may never be given.
func (c *connection) finish() {
	c.results.Close()
	c.asked.Close()
	ctx, cancel := context.WithTimeout(context.Background(), finishTime)
	defer cancel()
	go func() {
		c.wait.Wait()
		cancel()
	}()
	<-ctx.Done()
	c.close()
}

// close ends everything that waits for the guest.
func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, l := range []net.Listener{c.results, c.asked} {
		if l != nil {
			l.Close()
		}
	}
	for _, n := range c.conns {
		n.Close()
	}
}

// serve serves both ports in the background.
func (c *connection) serve() {
	for _, s := range []struct {
		l     net.Listener
		serve func(net.Conn) error
	}{{c.results, c.serveResults}, {c.asked, c.serveQuestions}} {
		c.wait.Go(func() {
			conn, err := s.l.Accept()
			if err != nil {
				return // QEMU ended before it connected
			}
			if !c.keep(conn) {
				return
			}
			if err := s.serve(conn); err != nil {
				c.fail(err)
			}
		})
	}
}

// keep remembers a connection, to be closed with the others.
func (c *connection) keep(n net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		n.Close()
		return false
	}
	c.conns = append(c.conns, n)
	return true
}

// fail notes the first fault of what the guest says, and stops the guest.
func (c *connection) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.end != nil {
		return
	}
	if c.fault == nil {
		c.fault = err
	}
	c.stop(err)
}

// reached says how far the guest came.
func (c *connection) reached() string {
	switch {
	case c.starts == 0:
		return "it never came so far as to say so"
	case c.end == nil:
		return "its command had been started, and had not ended"
	}
	return "its command had ended"
}
