// Package virtionet is the device side of virtio-net in software: what the driver in package virtio drives in this process,
// and what is behind a vhost-user socket or a TAP.
//
//	transport ── SetFeatures, SetStatus, SetQueue, Kick ──► status.go queue.go           control plane
//	driver's memory ◄── split.go packed.go, 16 bits at a time ── tx.go ──► Net.Send      transmit
//	driver's memory ◄── split.go packed.go ── rx.go ◄── route.go ◄── Net.Receive         receive
//	driver's memory ◄── control.go                                                       filters, queues, offloads
//
// A [Device] knows no transport. [Function] makes it a PCI function, modern, transitional or legacy; package sim/vhostuser
// serves it on a socket. What lies behind is a [Net]: [OnWire] joins it to a wire.
//
// Like all software devices it is stepped by its [sim.World], and does its work after delays drawn from a seed, so that a
// driver that looks too early finds nothing. It reaches memory by [sim.Memory] only. The memory is the driver's: what it
// says there is checked before it is used, and a driver that breaks a rule of the rings gets NEEDS_RESET, as the
// specification wants it, and an entry in the list of [Misuse]; so does one that breaks a rule that a device could well
// live with. With [Faults] it is the device that breaks the rules.
//
// Specification: Virtual I/O Device (VIRTIO) Version 1.2; § in comments are its sections.
package virtionet

import (
	"errors"
	"fmt"
	"math"
	"time"

	"bare.wire/sim"
	"bare.wire/virtio/spec"
)

// Config describes a device. Memory, World and Net are required.
type Config struct {
	Name   string     // how the device is called in reports
	Memory sim.Memory // where its DMA goes
	World  *sim.World // whose clock it lives by and whose lock guards it
	Net    Net        // what it is joined to
	// Features are offered, as far as there are such and Net can do them; 0: everything but AccessPlatform and OrderPlatform.
	Features spec.Features
	MAC      [6]byte
	MTU      int    // told with FeatureMTU, bytes of payload; 0: 1500
	Pairs    int    // of queues; 0: 1
	Size     int    // most descriptors of a queue; 0: 256
	Seed     uint64 // of delays, order and faults
	Speed    uint64 // told with FeatureSpeedDuplex, and kept to by a Net that is a Pacer, bit/s; 0: 10 Gb/s
	Timing   Timing
	Order    Order
	Faults   Faults
	// Watch looks after the buffers that the driver lends to the device, at the cost of reading each frame three times: one that
	// changes before it is given back is a misuse.
	Watch bool
	// MaxStep bounds the frames handled in one Step of each queue, so that more interleavings are seen. 0: the queue's size.
	MaxStep int
	// Hold leaves frames with the Net while others wait for buffers of a receive queue: for a Net that has a queue of its own, and
	// somebody behind it who sends no faster than it empties, such as a kernel. One queue without buffers then holds all.
	Hold bool
	// Backlog is how many frames wait for buffers of a receive queue before further ones are lost; 0: 256, negative: none.
	Backlog int
}

// Order is the order in which a device gives buffers back.
type Order uint8

// The orders. FeatureInOrder, once it is agreed on, rules out all but the first.
const (
	InOrder  Order = iota
	Shuffled       // as the seed will have it, among those that are done at the same time; QueueBase cannot say where that is
)

// Timing is how long the device takes. Each delay is drawn uniformly from 0 to the value; 0 stands for the default, a
// negative value for no delay at all.
type Timing struct {
	Fetch time.Duration // from a notification to the ring being looked at; default 300 ns
	Used  time.Duration // from a buffer being done with to its being reported; default 500 ns
}

func (t *Timing) fill() {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&t.Fetch, 300}, {&t.Used, 500}} {
		if *d.v == 0 {
			*d.v = d.def
		}
		*d.v = max(*d.v, 0)
	}
}

// pollEvery is how often rings are looked at with Poll, ns, if nothing else happens.
const pollEvery = 1000

// Device is a virtio network device. It is a [sim.Engine].
//
// The methods that a transport calls, from Features to Kick, and Step are called with the world locked; the others take the
// lock, and may be called from any goroutine.
type Device struct {
	cfg   Config
	w     *sim.World
	mem   sim.Memory // for what is read
	out   sim.Memory // for what is written
	net   Net
	pacer Pacer // nil: the Net takes frames as they come
	rng   sim.Rand

	now  int64 // ns; of the access or step under way
	next int64 // when Step has something to do
	turn uint64

	offered  spec.Features
	agreed   spec.Features // as SetFeatures says; the device keeps to them from FEATURES_OK on
	status   uint8
	legacy   bool
	stalled  bool // no bus mastering: no DMA
	broken   bool // NEEDS_RESET
	gone     bool
	closed   bool
	resets   int // reads of the status that have yet to give what is left of it after a reset
	resetOld uint8
	polling  bool

	header int // length of the header with the features agreed on
	queues []queue
	chain  chain // of the frame being sent, or the command
	buf    []byte
	pairs  int           // in use
	guest  spec.Features // what frames may ask of the driver at this time

	conf       [spec.NetConfigSize]byte
	generation uint8
	changed    func()
	linkOff    bool // by SetLink
	announce   bool
	filter     filter
	steer      steering

	count  Counts
	misuse sim.Misuses[Kind]
	dma    sim.DMALog[DMAKind]
}

var _ sim.Engine = (*Device)(nil)

// supported is all that a device can do; more is offered only where the Net can do it.
const supported = netFeatures | spec.FeatureCtrlGuestOffloads | spec.FeatureMTU | spec.FeatureMAC | spec.FeatureMrgRxBuf |
	spec.FeatureStatus | spec.FeatureCtrlVQ | spec.FeatureCtrlRx | spec.FeatureCtrlVLAN | spec.FeatureCtrlRxExtra |
	spec.FeatureGuestAnnounce | spec.FeatureMQ | spec.FeatureCtrlMACAddr | spec.FeatureAnyLayout | spec.FeatureIndirectDesc |
	spec.FeatureEventIdx | spec.FeatureVersion1 | spec.FeatureAccessPlatform | spec.FeatureRingPacked | spec.FeatureInOrder |
	spec.FeatureOrderPlatform | spec.FeatureNotificationData | spec.FeatureNotifConfigData | spec.FeatureRingReset |
	spec.FeatureHashReport | spec.FeatureGuestHdrLen | spec.FeatureRSS | spec.FeatureSpeedDuplex

// netFeatures are those that depend on the Net.
const netFeatures = sendFeatures | guestFeatures

const sendFeatures = spec.FeatureCSum | spec.FeatureHostTSO4 | spec.FeatureHostTSO6 | spec.FeatureHostECN | spec.FeatureHostUSO

const guestFeatures = spec.FeatureGuestCSum | spec.FeatureGuestTSO4 | spec.FeatureGuestTSO6 | spec.FeatureGuestECN

// optional features are offered only when Config.Features names them.
const optional = spec.FeatureAccessPlatform | spec.FeatureOrderPlatform

const (
	maxPairs     = 128
	defaultSize  = 256
	defaultMTU   = 1500
	defaultSpeed = 10e9
	defaultWait  = 256 // frames of a backlog
)

// New returns a device as it is after a reset and adds it to its world.
func New(cfg Config) (*Device, error) {
	if cfg.Memory == nil || cfg.World == nil || cfg.Net == nil {
		return nil, fmt.Errorf("virtio-net device %q: Memory, World and Net are required", cfg.Name)
	}
	setDefault(&cfg.Pairs, 1)
	setDefault(&cfg.Size, defaultSize)
	setDefault(&cfg.MTU, defaultMTU)
	setDefault(&cfg.Backlog, defaultWait)
	setDefault(&cfg.Speed, defaultSpeed)
	cfg.Timing.fill()
	if cfg.Pairs < 1 || cfg.Pairs > maxPairs {
		return nil, fmt.Errorf("virtio-net device %q: %d queue pairs, want 1 to %d", cfg.Name, cfg.Pairs, maxPairs)
	}
	if cfg.Size < 1 || cfg.Size > spec.MaxQueueSize {
		return nil, fmt.Errorf("virtio-net device %q: queues of %d descriptors, want 1 to %d", cfg.Name, cfg.Size, spec.MaxQueueSize)
	}
	if cfg.MTU < 68 || cfg.MTU > 65535 {
		return nil, fmt.Errorf("virtio-net device %q: MTU %d, want 68 to 65535", cfg.Name, cfg.MTU)
	}
	d := &Device{cfg: cfg, w: cfg.World, mem: cfg.Memory, out: cfg.Memory, net: cfg.Net, rng: sim.NewRand(cfg.Seed)}
	if m, ok := cfg.Memory.(sim.GuardedMemory); ok {
		d.mem, d.out = m.ForReads(), m.ForWrites()
	}
	if p, ok := cfg.Net.(Pacer); ok {
		p.SetSpeed(cfg.Speed)
		d.pacer = p
	}
	d.cfg.Faults.prepare()
	d.offer()
	n := 2 * cfg.Pairs
	if d.offered&spec.FeatureCtrlVQ != 0 {
		n++
	}
	d.queues = make([]queue, n)
	for i := range d.queues {
		d.queues[i] = queue{d: d, i: i, call: func() {}}
	}
	d.w.Lock()
	d.now = d.w.Clock().Nanos()
	d.reset()
	d.net.OnArrival(d.arriving)
	d.net.OnChange(func(bool) { d.linkChanged() })
	d.w.Unlock()
	d.w.Add(d)
	return d, nil
}

func setDefault[T int | uint64](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// offer decides which features there are.
func (d *Device) offer() {
	f := d.cfg.Features
	if f == 0 {
		f = supported &^ optional
		if d.cfg.Pairs == 1 {
			f &^= spec.FeatureMQ
		}
	}
	f &= supported
	f &^= netFeatures &^ d.net.Offloads()
	d.offered, _ = f.Consistent()
}

// Name is the name the device was given.
func (d *Device) Name() string { return d.cfg.Name }

// Step does what is due. It is called by the world, locked.
func (d *Device) Step(now int64) int64 {
	if now < d.next {
		return d.next
	}
	d.now = now
	return d.run()
}

// live says whether the device does anything at all.
func (d *Device) live() bool {
	return d.status&spec.StatusDriverOK != 0 && !d.broken && !d.stalled && !d.gone
}

// run does what is due at d.now.
func (d *Device) run() int64 {
	d.turn++
	if at := d.cfg.Faults.RemoveAt; at > 0 && d.now >= at {
		d.remove()
	}
	next := sim.Never
	if d.live() {
		next = d.runQueues()
	}
	if d.live() { // still: a ring may have turned out to be broken
		next = min(next, d.runReceive())
		if d.polling {
			next = min(next, d.now+pollEvery)
		}
	}
	if !d.live() {
		next = d.discard()
	}
	if at := d.cfg.Faults.RemoveAt; at > 0 && !d.gone {
		next = min(next, at)
	}
	d.next = max(next, d.now+1)
	return d.next
}

// runQueues runs transmit queues and the control queue, and reports what is done with of all.
func (d *Device) runQueues() int64 {
	next := sim.Never
	for i := range d.queues {
		q := &d.queues[i]
		if !q.on {
			continue
		}
		if q.due <= d.now || d.polling {
			q.due = sim.Never
			switch {
			case i == d.controlQueue():
				d.runControl(q)
			case i&1 == 1:
				d.runTransmit(q)
			default:
				d.refilled(q)
			}
		}
		if q.pubAt <= d.now {
			q.publish()
		}
		if !d.live() {
			return sim.Never
		}
		next = min(next, q.due, q.pubAt)
	}
	return next
}

// discard takes what arrives while nobody wants it.
func (d *Device) discard() int64 {
	for {
		at, ok := d.net.Next()
		switch {
		case !ok:
			return sim.Never
		case at > d.now:
			return at
		}
		if _, _, ok = d.net.Receive(d.now); !ok { // what was there is not worth receiving; more may be under way
			if at, ok = d.net.Next(); !ok {
				return sim.Never
			}
			return max(at, d.now+1)
		}
		d.count.RxUnready++
	}
}

// touch brings the device up to the present.
func (d *Device) touch() {
	d.now = d.w.Clock().Nanos()
	if d.next <= d.now {
		d.run()
	}
}

// kick makes the world run the device at the next step.
func (d *Device) kick() {
	d.next = math.MinInt64
	d.w.Poke()
}

// arriving is told by the Net, with the world locked.
func (d *Device) arriving(at int64) {
	if at < d.next && !d.gone {
		d.next = at
		d.w.Poke()
	}
}

// SetLink takes the link down, or lets it come up.
func (d *Device) SetLink(up bool) {
	d.w.Lock()
	defer d.w.Unlock()
	d.linkOff = !up
	d.ready()
	d.linkChanged()
}

// ready tells the Net whether there is anybody.
func (d *Device) ready() {
	d.net.SetUp(d.status&spec.StatusDriverOK != 0 && !d.linkOff && !d.gone)
}

// Poll makes the device look at its rings at every step, and tell drivers that it needs no notifications. A world with a
// device that polls is never idle. The caller holds the lock.
func (d *Device) Poll(on bool) {
	d.polling = on
	for i := range d.queues {
		d.queues[i].due = d.now
	}
	d.kick()
}

// SetBusMaster says whether the device may reach memory. The caller holds the lock.
func (d *Device) SetBusMaster(on bool) {
	if d.stalled == !on {
		return
	}
	d.stalled = !on
	d.kick()
}

// errRemoved is what a removed device answers.
var errRemoved = errors.New("the device was removed")

// Remove pulls the device out: it does nothing from now on.
func (d *Device) Remove() {
	d.w.Lock()
	defer d.w.Unlock()
	d.remove()
}

func (d *Device) remove() {
	if d.gone {
		return
	}
	d.gone = true
	d.ready()
	d.kick()
}

// Close takes the device out of its world and leaves its Net. It does no DMA any more. It may be called twice.
func (d *Device) Close() error {
	d.w.Remove(d)
	d.w.Lock()
	defer d.w.Unlock()
	if d.closed {
		return nil // the Net may be another device's by now
	}
	d.closed = true
	d.net.OnArrival(nil)
	d.net.OnChange(nil)
	d.net.SetUp(false)
	d.status, d.gone = 0, true
	return nil
}

// SetFaults changes the faults from now on.
func (d *Device) SetFaults(f Faults) {
	d.w.Lock()
	defer d.w.Unlock()
	f.prepare()
	d.cfg.Faults = f
	d.fillConfig()
	d.kick()
}
