package vhostuser

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"bare.wire/sim"
	"bare.wire/virtio/spec/vhost"
)

// dialEvery is how long a back end that connects waits before it tries again.
const dialEvery = 200 * time.Millisecond

// maxPath is the longest path of a socket, bytes (sun_path, with its end).
const maxPath = 107

// Config describes a back end.
type Config struct {
	// Path is the socket's. The back end listens there, and makes and removes the file; with Client it connects to a front end
	// that listens (QEMU's server=on, DPDK's server=1), again and again.
	Path   string
	Client bool
	// World is the device's; the Backend has the device stepped by it.
	World *sim.World
	// Device is what front ends get: a *virtionet.Device whose memory is Memory.
	Device Device
	Memory *Memory
	// Sessions ends Run after so many front ends have come and gone; 0: never.
	Sessions int
	// Logger gets what front ends do; nil: nobody.
	Logger *slog.Logger
}

// Counts are of a Backend's life so far.
type Counts struct {
	Sessions uint64 // that began
	Failed   uint64 // of those that have ended, those that the front end broke
	Messages uint64 // of all sessions that have ended
	Faults   uint64 // accesses to addresses that are in no region
	Active   bool   // a front end is connected
}

// Backend serves front ends, one after another. It is a sim.Engine of its world: it steps the device.
type Backend struct {
	cfg     Config
	log     *slog.Logger
	dev     Device
	mem     *Memory
	ln      *net.UnixListener // nil for a client
	session *session          // under the world's lock

	sessions, failed, messages atomic.Uint64
	active                     atomic.Bool
	last                       atomic.Pointer[error]
}

// New makes a back end and, unless it is a client, its socket. Run serves it.
func New(cfg Config) (*Backend, error) {
	b := &Backend{cfg: cfg, log: cfg.Logger, dev: cfg.Device, mem: cfg.Memory}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if !cfg.Client {
		ln, err := Listen(cfg.Path)
		if err != nil {
			return nil, fmt.Errorf("vhost-user socket: %w", err)
		}
		b.ln = ln
	}
	cfg.World.Remove(cfg.Device) // a device steps itself unless somebody looks after its memory
	cfg.World.Add(b)
	return b, nil
}

// Listen makes a unix socket, in the place of one that nobody listens on, left by a process that was killed. Whatever else there is
// stays.
func Listen(path string) (*net.UnixListener, error) {
	addr := &net.UnixAddr{Name: path, Net: "unix"}
	if path == "" || len(path) > maxPath {
		return nil, fmt.Errorf("%q: the path of a socket has 1 to %d bytes; choose another", path, maxPath)
	}
	ln, err := net.ListenUnix("unix", addr)
	if err == nil {
		return ln, nil
	}
	if !errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("%w; the directory has to exist and be yours", err)
	}
	if st, serr := os.Lstat(path); serr != nil || st.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s exists and is no socket; remove it or name another", path)
	}
	c, err := net.DialUnix("unix", nil, addr)
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) { // one that is too busy to answer, or of another kind, is somebody's, too
		return nil, fmt.Errorf("%s is in use by another process; end that, or name another", path)
	}
	if err := os.Remove(path); err != nil {
		return nil, fmt.Errorf("a socket that nobody listens on any more: %w", err)
	}
	return net.ListenUnix("unix", addr)
}

// Run serves one front end after another until ctx ends, which is no error, or there have been Config.Sessions. The world must be
// stepped by somebody. When it returns nobody is let in any more.
func (b *Backend) Run(ctx context.Context) error {
	if b.ln != nil {
		defer b.ln.Close() // or those who came later would wait for nothing
	}
	for b.cfg.Sessions == 0 || b.sessions.Load() < uint64(b.cfg.Sessions) {
		c, err := b.next(ctx)
		if ctx.Err() != nil {
			if c != nil {
				_ = c.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		b.serve(ctx, c)
		if b.cfg.Client { // a front end that refuses is not asked at once again
			_ = b.cfg.World.Clock().Sleep(ctx, dialEvery)
		}
	}
	return nil
}

// next waits for a front end.
func (b *Backend) next(ctx context.Context) (*net.UnixConn, error) {
	if b.ln != nil {
		stop := context.AfterFunc(ctx, func() { _ = b.ln.Close() })
		defer stop()
		c, err := b.ln.AcceptUnix()
		if err != nil {
			return nil, fmt.Errorf("vhost-user socket: %w", err)
		}
		return c, nil
	}
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", b.cfg.Path)
		switch {
		case err == nil:
			return c.(*net.UnixConn), nil // of "unix" it is nothing else
		case ctx.Err() == nil && !notYet(err):
			return nil, fmt.Errorf("vhost-user socket: %w; it has to be a stream socket that you may write to", err)
		}
		b.log.Debug("vhost-user: no front end yet", "err", err)
		if err := b.cfg.World.Clock().Sleep(ctx, dialEvery); err != nil {
			return nil, err
		}
	}
}

// notYet says whether waiting helps: nobody listens, or whoever does has not the time.
func notYet(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EAGAIN)
}

// serve is one session.
func (b *Backend) serve(ctx context.Context, c *net.UnixConn) {
	b.sessions.Add(1)
	b.active.Store(true)
	defer b.active.Store(false)
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conn := vhost.NewConn(c)
	defer conn.Close()
	b.log.Info("vhost-user: a front end is there", "socket", b.cfg.Path)

	b.cfg.World.Lock()
	s := newSession(conn, b, cancel)
	b.session = s
	b.cfg.World.Unlock()
	err := s.run(run)
	b.cfg.World.Lock()
	b.session = nil
	b.cfg.World.Unlock()

	b.messages.Add(s.messages)
	switch {
	case err == nil || ctx.Err() != nil:
		b.log.Info("vhost-user: the front end has gone", "socket", b.cfg.Path, "messages", s.messages)
	default:
		b.failed.Add(1)
		b.last.Store(&err)
		b.log.Warn("vhost-user: the session is ended", "socket", b.cfg.Path, "err", err)
	}
}

// Step implements sim.Engine.
func (b *Backend) Step(now int64) int64 {
	if b.session == nil {
		return b.dev.Step(now)
	}
	return b.session.step(now)
}

// Counts returns the counts so far.
func (b *Backend) Counts() Counts {
	return Counts{b.sessions.Load(), b.failed.Load(), b.messages.Load(), b.mem.Faults(), b.active.Load()}
}

// LastError is why the latest session that failed has failed; nil if none has.
func (b *Backend) LastError() error {
	if err := b.last.Load(); err != nil {
		return *err
	}
	return nil
}

// Close removes the socket. Run has to have ended.
func (b *Backend) Close() error {
	b.cfg.World.Remove(b)
	if b.ln == nil {
		return nil
	}
	if err := b.ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("vhost-user socket: %w", err)
	}
	return nil
}
