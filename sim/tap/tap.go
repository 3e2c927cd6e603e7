// Package tap joins an end of a wire to the host's kernel: what arrives at the end comes out of a TAP interface, and what the
// kernel sends through that interface goes onto the wire.
//
//	kernel ── sends ──► /dev/net/tun ── reader goroutine ──► link.End.Transmit ──► the card
//	kernel ◄── receives ── /dev/net/tun ◄── writer goroutine ◄── queue ◄── Step ◄── link.End.Receive
//
// Frames are whole Ethernet frames without FCS, one for each read and write (IFF_TAP, IFF_NO_PI; Linux
// Documentation/networking/tuntap.rst). Offloads are off, so the kernel completes checksums and cuts segments before we see
// them; like a MAC we pad what it sends to 60 bytes.
//
// The link is up while the card is ready and the interface is up on the host; the interface has a carrier while there is a
// link.
//
// That is for cards that know wires only. A virtio device is joined to the kernel without one, by a [Net]: frames go between
// its rings and the kernel with their virtio headers, so that neither side completes checksums or cuts segments that the other
// can take as they are.
package tap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"bare.wire/sim"
	"bare.wire/sim/link"
)

const (
	device   = "/dev/net/tun"
	minFrame = 60      // bytes without FCS: the shortest that a MAC sends
	maxFrame = 1 << 16 // the longest that the kernel hands out
	// lookEvery is how often the interface's state is looked at, ns.
	lookEvery = int64(100 * time.Millisecond)
	// defaultQueue is how many frames wait for the kernel, unless Config.Queue says otherwise.
	defaultQueue = 512
)

// Config describes a TAP.
type Config struct {
	// Name is the interface's; it is made if there is none, and goes with us then. A % is filled in by the kernel ("tap%d").
	Name string
	// World is the world of the wire; End is the wire's end that the kernel gets.
	World *sim.World
	End   *link.End
	// Queue is how many frames may wait for the kernel; 0: 512. When it is full further ones are lost, and counted.
	Queue int
}

// Counts are numbers of frames.
type Counts struct {
	FromKernel uint64 // put onto the wire
	ToKernel   uint64 // taken by the kernel
	QueueFull  uint64 // lost: the queue was full
	Refused    uint64 // lost: the kernel did not take them, as it does while the interface is down
	BadFCS     uint64 // lost: damaged on the wire
}

// Tap is an open TAP interface. It is a sim.Engine of the world it was opened for.
type Tap struct {
	cfg   Config
	name  string
	file  *os.File
	ctl   int           // a socket to ask for the interface's flags with
	out   chan []byte   // frames for the kernel
	free  chan []byte   // their buffers
	turn  chan struct{} // the carrier may have to change
	close sync.Once
	err   error // of Close
	done  sync.WaitGroup
	stop  chan struct{}

	carrier atomic.Bool // what it should be
	look    int64       // when the flags are due to be looked at

	fromKernel, toKernel, queueFull, refused, badFCS atomic.Uint64
}

// Open opens a TAP interface and joins it to the wire. The world must be stepped by somebody.
func Open(cfg Config) (*Tap, error) {
	if cfg.Queue <= 0 {
		cfg.Queue = defaultQueue
	}
	file, name, err := open(cfg.Name, 0)
	if err != nil {
		return nil, err
	}
	ctl, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("tap %s: socket: %w", name, err)
	}
	t := &Tap{
		cfg: cfg, name: name, file: file, ctl: ctl, stop: make(chan struct{}),
		out: make(chan []byte, cfg.Queue), free: make(chan []byte, cfg.Queue+1), turn: make(chan struct{}, 1),
	}
	cfg.World.Lock()
	cfg.End.SetUp(t.interfaceUp())
	t.carrier.Store(cfg.End.Up())
	cfg.End.OnChange(t.linkChanged)
	cfg.End.OnArrival(func(int64) { cfg.World.Poke() })
	cfg.World.Unlock()
	t.changed()
	t.done.Go(t.read)
	t.done.Go(t.write)
	cfg.World.Add(t)
	return t, nil
}

// open makes the interface, with these IFF_… flags besides, and returns its descriptor, which does not block, and its name.
func open(name string, flags uint16) (*os.File, string, error) {
	if name == "" || len(name) >= unix.IFNAMSIZ || strings.ContainsAny(name, "/: \t\n\v\f\r") || name == "." || name == ".." {
		return nil, "", fmt.Errorf("tap %q: the name of an interface has 1 to %d characters, none of them a space or a slash or a colon, and is neither . nor .. itself", name, unix.IFNAMSIZ-1)
	}
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		hint := "it takes CAP_NET_ADMIN or a device node that one may open"
		if errors.Is(err, fs.ErrNotExist) {
			hint = "load the module: modprobe tun"
		}
		return nil, "", fmt.Errorf("tap %s: open %s: %w; %s", name, device, err, hint)
	}
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | flags)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}
	if errors.Is(err, unix.EINVAL) { // one that was made for several queues is used with one
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_MULTI_QUEUE | flags)
		if unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr) == nil {
			err = nil
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, "", fmt.Errorf("tap %s: %w; %s", name, err, remedy(name, err))
	}
	// Only now: before it belongs to an interface, the descriptor is in error for the poller.
	return os.NewFile(uintptr(fd), device), ifr.Name(), nil
}

// remedy is what to do about an error of TUNSETIFF.
func remedy(name string, err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Sprintf("without CAP_NET_ADMIN the interface has to be yours already: sudo ip tuntap add dev %s mode tap user $USER", name)
	case errors.Is(err, unix.EBUSY):
		return "another process has it; ip -d link show says what it is"
	case errors.Is(err, unix.EINVAL):
		return "there is an interface of that name which is no TAP; take another name"
	}
	return fmt.Sprintf("try: sudo ip tuntap add dev %s mode tap user $USER", name)
}

// Name is the interface's name.
func (t *Tap) Name() string { return t.name }

// Counts returns the counts so far.
func (t *Tap) Counts() Counts {
	return Counts{t.fromKernel.Load(), t.toKernel.Load(), t.queueFull.Load(), t.refused.Load(), t.badFCS.Load()}
}

// Step implements sim.Engine: it takes what has arrived off the wire.
func (t *Tap) Step(now int64) int64 {
	if now >= t.look {
		t.look = now + lookEvery
		t.cfg.End.SetUp(t.interfaceUp())
	}
	for {
		f, ok := t.cfg.End.Receive(now)
		if !ok {
			break
		}
		if f.BadFCS {
			t.badFCS.Add(1)
			continue
		}
		t.enqueue(f.Data)
	}
	if at, ok := t.cfg.End.Next(); ok {
		return min(at, t.look)
	}
	return t.look
}

// enqueue gives a copy of a frame to the writer.
func (t *Tap) enqueue(frame []byte) {
	var b []byte
	select {
	case b = <-t.free:
	default:
	}
	select {
	case t.out <- append(b[:0], frame...):
	default:
		t.queueFull.Add(1)
	}
}

// interfaceUp says whether the interface is up on the host. While that cannot be found out it counts as up.
func (t *Tap) interfaceUp() bool { return interfaceUp(t.ctl, t.name) }

func interfaceUp(ctl int, name string) bool {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return true
	}
	if err := unix.IoctlIfreq(ctl, unix.SIOCGIFFLAGS, ifr); err != nil {
		return true
	}
	return ifr.Uint16()&unix.IFF_UP != 0
}

// attached says whether the interface behind a TAP's file is still there (EBADFD says that it is not).
func attached(fd int) bool {
	ifr, err := unix.NewIfreq("-") // the kernel fills in the name
	return err != nil || !errors.Is(unix.IoctlIfreq(fd, unix.TUNGETIFF, ifr), unix.EBADFD)
}

// linkChanged is told by the wire, with the world locked. The kernel is told by the writer: that may take a while.
func (t *Tap) linkChanged(up bool) {
	t.carrier.Store(up)
	t.changed()
}

func (t *Tap) changed() {
	select {
	case t.turn <- struct{}{}:
	default:
	}
}

// read moves frames from the kernel to the wire until the file is closed.
func (t *Tap) read() {
	buf := make([]byte, maxFrame)
	for {
		n, err := t.file.Read(buf)
		if err != nil {
			return // closed, or the interface was deleted
		}
		if n < minFrame {
			clear(buf[n:minFrame])
			n = minFrame
		}
		t.fromKernel.Add(1)
		t.cfg.World.Lock()
		t.cfg.End.Transmit(buf[:n], t.cfg.World.Clock().Nanos())
		t.cfg.World.Unlock()
	}
}

// write moves frames from the queue to the kernel, and keeps the carrier as the link is.
func (t *Tap) write() {
	for {
		select {
		case <-t.stop:
			return
		case <-t.turn:
			t.setCarrier(t.carrier.Load())
		case b := <-t.out:
			if _, err := t.file.Write(b); err != nil {
				t.refused.Add(1)
			} else {
				t.toKernel.Add(1)
			}
			select {
			case t.free <- b:
			default:
			}
		}
	}
}

// setCarrier tells the kernel whether there is a link. An old kernel that cannot be told shows a carrier always.
func (t *Tap) setCarrier(up bool) { setCarrier(t.file, up) }

func setCarrier(file *os.File, up bool) {
	rc, err := file.SyscallConn()
	if err != nil {
		return
	}
	v := 0
	if up {
		v = 1
	}
	_ = rc.Control(func(fd uintptr) { _ = unix.IoctlSetPointerInt(int(fd), unix.TUNSETCARRIER, v) })
}

// Close takes the kernel off the wire. What waits for it is lost.
func (t *Tap) Close() error {
	t.close.Do(func() {
		t.cfg.World.Remove(t)
		t.cfg.World.Lock()
		t.cfg.End.OnChange(nil)
		t.cfg.End.OnArrival(nil)
		t.cfg.End.SetUp(false)
		t.cfg.World.Unlock()
		close(t.stop)
		t.err = errors.Join(t.file.Close(), unix.Close(t.ctl))
		t.done.Wait()
	})
	return t.err
}
