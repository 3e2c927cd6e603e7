package tap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"bare.wire/sim"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio/spec"
	"bare.wire/wire"
)

// TUN_F_… of linux/if_tun.h: what we take as it is.
const (
	tunCSum   = 1 << 0
	tunTSO4   = 1 << 1
	tunTSO6   = 1 << 2
	tunTSOECN = 1 << 3
)

// offloads are what Send hands to the kernel, and what the kernel may hand to us.
const offloads = spec.FeatureCSum | spec.FeatureHostTSO4 | spec.FeatureHostTSO6 | spec.FeatureHostECN |
	spec.FeatureGuestCSum | spec.FeatureGuestTSO4 | spec.FeatureGuestTSO6 | spec.FeatureGuestECN

// NetCounts are numbers of frames.
type NetCounts struct {
	FromKernel uint64 // given to the device
	ToKernel   uint64 // taken by the kernel
	Refused    uint64 // lost: the kernel did not take them, as it does while the interface is down or with a header that lies
	Stale      uint64 // lost: segments that were queued for a driver that took them, and came when one was there that does not
}

// Net is an open TAP interface as what lies behind a virtio device: a virtionet.Net. Frames cross it with the kernel's vnet
// header (IFF_VNET_HDR), which is virtio's own: checksums may be partial and TCP segments longer than a frame, in both
// directions, as far as the driver and the kernel have agreed to it.
//
// It reads and writes inside the device's steps; a goroutine waits for the kernel in Go's poller while there is nothing to read.
type Net struct {
	name string
	w    *sim.World
	file *os.File
	conn syscall.RawConn
	fd   int // the file's
	ctl  int // a socket to ask for the interface's flags with

	// Guarded by the world's lock.
	up      bool // the interface is, on the host
	ready   bool // the device is
	closed  bool
	gone    bool          // the interface was deleted
	look    int64         // when the interface is due to be looked at
	since   int64         // there is something to read since then; −1: there is not
	takes   spec.Features // of the FeatureGuest… kind
	arrival func(at int64)
	change  func(up bool)
	lost    func(error)
	in      []byte
	head    [spec.HdrSizeLegacy]byte

	again   chan struct{} // nothing is left: wait
	carrier chan bool     // what the interface is to show
	stop    chan struct{}
	done    sync.WaitGroup
	close   sync.Once
	err     error

	fromKernel, toKernel, refused, stale atomic.Uint64
}

var _ virtionet.Net = (*Net)(nil)

// OpenNet opens a TAP interface for a virtio device of the world. The interface is made if there is none, and goes with us then;
// a % in its name is filled in by the kernel.
func OpenNet(name string, world *sim.World) (*Net, error) {
	file, name, err := open(name, unix.IFF_VNET_HDR)
	if err != nil {
		return nil, err
	}
	n := &Net{
		name: name, w: world, file: file, fd: -1, ctl: -1, since: -1,
		in: make([]byte, spec.HdrSizeLegacy+maxFrame), again: make(chan struct{}, 1), carrier: make(chan bool, 1), stop: make(chan struct{}),
	}
	if err := n.prepare(); err != nil {
		_ = file.Close()
		if n.ctl >= 0 {
			_ = unix.Close(n.ctl)
		}
		return nil, fmt.Errorf("tap %s: %w", name, err)
	}
	n.carrier <- false // until a driver is there
	n.done.Go(n.wait)
	n.done.Go(n.show)
	world.Add(n)
	return n, nil
}

// prepare sets the interface to headers of 10 bytes and no offloads.
func (n *Net) prepare() (err error) {
	if n.conn, err = n.file.SyscallConn(); err != nil {
		return err
	}
	if n.ctl, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	cerr := n.conn.Control(func(fd uintptr) {
		n.fd = int(fd)
		if err = unix.IoctlSetPointerInt(n.fd, unix.TUNSETVNETHDRSZ, spec.HdrSizeLegacy); err != nil {
			err = fmt.Errorf("TUNSETVNETHDRSZ: %w", err)
		} else if err = unix.IoctlSetInt(n.fd, unix.TUNSETOFFLOAD, 0); err != nil {
			err = fmt.Errorf("TUNSETOFFLOAD: %w", err)
		}
	})
	n.up = interfaceUp(n.ctl, n.name)
	return errors.Join(cerr, err)
}

// Name is the interface's name.
func (n *Net) Name() string { return n.name }

// Counts returns the counts so far.
func (n *Net) Counts() NetCounts {
	return NetCounts{n.fromKernel.Load(), n.toKernel.Load(), n.refused.Load(), n.stale.Load()}
}

// Offloads implements virtionet.Net.
func (n *Net) Offloads() spec.Features { return offloads }

// SetOffloads implements virtionet.Net: the kernel is told. What it has queued before may ask for more; Receive sees to that.
func (n *Net) SetOffloads(f spec.Features) {
	if n.closed {
		return
	}
	var flags int
	for _, r := range []struct {
		feature spec.Features
		flag    int
	}{
		{spec.FeatureGuestCSum, tunCSum}, {spec.FeatureGuestTSO4, tunTSO4}, {spec.FeatureGuestTSO6, tunTSO6},
		{spec.FeatureGuestECN, tunTSOECN},
	} {
		if f.Has(r.feature) {
			flags |= r.flag
		}
	}
	if flags&tunCSum == 0 {
		flags = 0 // the kernel refuses the others without it
	}
	n.takes = f
	if err := unix.IoctlSetInt(n.fd, unix.TUNSETOFFLOAD, flags); err != nil {
		n.takes = 0 // it goes on completing everything
	}
}

// Send implements virtionet.Net: the kernel takes the frame, or not, at once.
func (n *Net) Send(h virtionet.Header, frame []byte, _ int64) {
	if n.closed {
		return
	}
	h.Put(n.head[:])
	if _, err := unix.Writev(n.fd, [][]byte{n.head[:], frame}); err != nil {
		n.refused.Add(1)
		return
	}
	n.toKernel.Add(1)
}

// Next implements virtionet.Net.
func (n *Net) Next() (at int64, ok bool) { return n.since, n.since >= 0 }

// Receive implements virtionet.Net.
func (n *Net) Receive(now int64) (virtionet.Header, []byte, bool) {
	for n.since >= 0 && n.since <= now && !n.closed {
		k, err := unix.Read(n.fd, n.in)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			n.empty(errors.Is(err, unix.EAGAIN))
			break
		}
		if h, frame, ok := n.take(n.in[:k]); ok {
			n.fromKernel.Add(1)
			return h, frame, true
		}
		n.stale.Add(1)
	}
	return virtionet.Header{}, nil, false
}

// empty notes that there is nothing to read for the time being, or, without alive, for ever.
func (n *Net) empty(alive bool) {
	n.since = -1
	if alive {
		n.again <- struct{}{} // there is room: the goroutine waits for it
		return
	}
	n.deleted()
}

// OnGone names what is called, once and without the world's lock, when somebody has deleted the interface: nothing is sent or
// received any more.
func (n *Net) OnGone(f func(error)) {
	n.w.Lock()
	defer n.w.Unlock()
	n.lost = f
}

// deleted notes that the interface is there no more.
func (n *Net) deleted() {
	if n.gone {
		return
	}
	n.gone = true
	if n.change != nil {
		n.change(false)
	}
	if lost := n.lost; lost != nil {
		n.w.Defer(func() {
			lost(fmt.Errorf("the interface %s was deleted: make it again (ip tuntap add) and open the device anew", n.name))
		})
	}
}

// take makes of what was read a frame that asks for no more than the driver takes.
func (n *Net) take(b []byte) (virtionet.Header, []byte, bool) {
	if len(b) <= spec.HdrSizeLegacy {
		return virtionet.Header{}, nil, false
	}
	h, frame := virtionet.ParseHeader(b), b[spec.HdrSizeLegacy:]
	if h.GSOType != spec.GSONone && !n.takesSegments(h.GSOType) {
		return h, nil, false
	}
	if len(frame) < minFrame { // as a MAC does
		k := len(frame)
		frame = frame[:minFrame]
		clear(frame[k:])
	}
	if !n.takes.Has(spec.FeatureGuestCSum) {
		if h.Flags&spec.HdrNeedsCSum != 0 && !complete(h, frame) {
			return h, nil, false
		}
		h = virtionet.Header{}
	}
	return h, frame, true
}

func (n *Net) takesSegments(kind uint8) bool {
	var need spec.Features
	switch kind &^ spec.GSOECN {
	case spec.GSOTCPv4:
		need = spec.FeatureGuestTSO4
	case spec.GSOTCPv6:
		need = spec.FeatureGuestTSO6
	default:
		return false
	}
	if kind&spec.GSOECN != 0 {
		need |= spec.FeatureGuestECN
	}
	return n.takes.Has(need)
}

// complete fills a partial checksum in; false: the header lies.
func complete(h virtionet.Header, frame []byte) bool {
	at := int(h.CSumStart) + int(h.CSumOffset)
	if at+2 > len(frame) || int(h.CSumStart) >= len(frame) {
		return false
	}
	sum := wire.SumOf(frame[h.CSumStart:]).Checksum()
	if sum == 0 {
		sum = 0xffff // of UDP 0 says that there is none; of TCP it is the same number
	}
	binary.BigEndian.PutUint16(frame[at:], sum)
	return true
}

// wait tells the device when there is something to read.
func (n *Net) wait() {
	for {
		readable := func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			k, err := unix.Poll(p, 0)
			return err == nil && k > 0
		}
		if err := n.conn.Read(readable); err != nil {
			return // closed
		}
		n.w.Lock()
		n.since = n.w.Clock().Nanos()
		if n.arrival != nil {
			n.arrival(n.since)
		}
		n.w.Unlock()
		select {
		case <-n.again:
		case <-n.stop:
			return
		}
	}
}

// show keeps the interface's carrier as the device is: that may take the kernel a while, so it is not done in a step.
func (n *Net) show() {
	for {
		select {
		case up := <-n.carrier:
			setCarrier(n.file, up)
		case <-n.stop:
			return
		}
	}
}

// Step implements sim.Engine: it looks whether the interface is up.
func (n *Net) Step(now int64) int64 {
	if now >= n.look {
		n.look = now + lookEvery
		if !n.closed && !attached(n.fd) {
			n.deleted()
		}
		if up := interfaceUp(n.ctl, n.name); up != n.up {
			n.up = up
			if n.change != nil {
				n.change(n.Up())
			}
		}
	}
	return n.look
}

// Up implements virtionet.Net: there is a link while the interface is up on the host.
func (n *Net) Up() bool { return n.up && !n.closed && !n.gone }

// SetUp implements virtionet.Net: the interface has a carrier while the device is ready.
func (n *Net) SetUp(up bool) {
	if n.ready == up {
		return
	}
	n.ready = up
	for {
		select {
		case n.carrier <- up:
			return
		case <-n.carrier: // one that was not shown yet
		}
	}
}

// OnArrival implements virtionet.Net.
func (n *Net) OnArrival(f func(at int64)) { n.arrival = f }

// OnChange implements virtionet.Net.
func (n *Net) OnChange(f func(up bool)) { n.change = f }

// Close closes the interface. The device has to be closed before.
func (n *Net) Close() error {
	n.close.Do(func() {
		n.w.Remove(n)
		n.w.Lock()
		n.closed = true
		n.w.Unlock()
		close(n.stop)
		n.err = errors.Join(n.file.Close(), unix.Close(n.ctl))
		n.done.Wait()
	})
	return n.err
}
