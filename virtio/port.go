package virtio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"bare.wire/clock"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// Port drives one virtio network device. It implements nic.Port.
type Port struct {
	t    Transport
	opt  Options
	clk  clock.Clock
	log  *slog.Logger
	info nic.Info

	offered        spec.Features
	usableFeatures spec.Features
	agreed         atomic.Uint64 // spec.Features
	device         deviceConfig

	// mu is for Start, Stop, Close, filters, and whatever calls the transport. Give it back by unlock: an interrupt that comes
	// meanwhile cannot wait for it.
	mu      sync.Mutex
	started bool
	closed  bool
	enabled bool // the device may be reading and writing memory
	cfg     nic.Config
	arena   *vtop.Arena
	queues  atomic.Pointer[queues] // those of the last Start
	rx      []nic.RxQueue          // as the user sees them
	control *control               // nil: there is no control queue
	served  []servedWatch          // of each transmit queue
	counts  totals
	filters filterState
	// announcing: a goroutine is about to acknowledge a wish for an announcement.
	announcing bool
	heldBack   uint64 // buffers in quarantine
	// quarantinePools are those that the buffers belong to.
	quarantinePools []*mbuf.Pool

	vectors       atomic.Pointer[[][]interruptible]
	configChanged atomic.Bool // an interrupt said so, and nobody has looked yet
	link          nic.LinkWatch
	gone          atomic.Pointer[error]
}

// queues are the device's, in pairs, those that the user does not see too.
type queues struct {
	rx               []*rxQueue
	tx               []*txQueue
	rxBells, txBells []Doorbell // for when they start
}

// Open takes over a device: it resets it and reads who it is. No traffic flows before Start. On an error the transport is still
// the caller's; Close closes it.
func Open(ctx context.Context, t Transport, opt Options) (*Port, error) {
	if opt.Space == nil || opt.Clock == nil {
		return nil, fmt.Errorf("%s: Options.Space and Options.Clock are required", t.Name())
	}
	log := opt.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &Port{t: t, opt: opt, clk: opt.Clock, log: log.With("port", t.Name())}
	t.OnGone(p.fail)
	if err := p.open(ctx); err != nil {
		return nil, errors.Join(err, p.letGo(ctx))
	}
	return p, nil
}

// open reads what the device is, and leaves it reset.
func (p *Port) open(ctx context.Context) (err error) {
	if err := p.greet(ctx); err != nil {
		return err
	}
	if p.offered, err = p.t.Features(); err != nil {
		return err
	}
	p.usableFeatures = p.usable(p.offered)
	if err := p.needed(p.offered, p.usableFeatures); err != nil {
		return p.refused(ctx, err)
	}
	if p.device, err = p.readDeviceConfig(p.usableFeatures); err != nil {
		return err
	}
	p.dropUseless()
	if p.device.pairs > 1 {
		// A device may have the queues of further pairs only once it knows that they are wanted: QEMU's does.
		if err := p.t.SetFeatures(p.usableFeatures); err != nil {
			return p.refused(ctx, err)
		}
	}
	if err := p.inform(); err != nil {
		return err
	}
	return p.t.Reset(ctx)
}

// dropUseless leaves out what the device's own limits make useless: hashes of other keys than package nic's, and tables that
// are too short for it. Further pairs are of no use where neither command for them is left.
func (p *Port) dropUseless() {
	if !p.device.canHash() {
		p.usableFeatures &^= spec.FeatureHashReport
	}
	if !p.device.canSpread() {
		p.usableFeatures &^= spec.FeatureRSS
	}
	if p.usableFeatures&(spec.FeatureMQ|spec.FeatureRSS) == 0 {
		p.device.pairs = 1
	}
}

// letGo leaves a device that Open could not use as it is for whoever has it next.
func (p *Port) letGo(ctx context.Context) error {
	p.t.OnGone(func(error) {})
	if p.Err() != nil || ctx.Err() != nil {
		return nil
	}
	return p.t.Reset(ctx)
}

// inform fills in Info.
func (p *Port) inform() error {
	f := p.usableFeatures
	most, err := p.queueSizes()
	if err != nil {
		return err
	}
	least := min(most, leastDesc)
	if p.t.Legacy() {
		least = most // there is no choice
	}
	maxFrame := mostFrame
	if p.device.mtu > 0 {
		maxFrame = min(maxFrame, p.device.mtu+frameOverhead)
	}
	p.info = nic.Info{
		Driver: "virtio", Name: p.t.Name(), Device: p.t.About(), MAC: p.device.mac, NUMANode: p.opt.Node,
		RxQueues: p.device.pairs, TxQueues: p.device.pairs,
		MinDesc: least, MaxDesc: most, DescAlign: 1,
		MaxFrame: maxFrame, MaxSegs: min(maxSegs, least-1), // and a header
		Offloads: offloads(f), Software: p.opt.Software,
	}
	if f.Has(spec.FeatureRSS) {
		p.info.RSSQueues = min(p.device.pairs, 1<<8) // nic.RSSConfig.Table
	}
	if p.info.Offloads&nic.TxTSO != 0 {
		p.info.MaxTSO, p.info.MinMSS = maxTSO, minMSS
	}
	return nil
}

// queueSizes returns the most descriptors that a ring of the device may have, and takes pairs away that it does not have.
func (p *Port) queueSizes() (most int, err error) {
	n, err := p.t.Queues()
	if err != nil {
		return 0, err
	}
	if n < 2 {
		return 0, fmt.Errorf("%s: the device has %d queues: a network device has two or more", p.t.Name(), n)
	}
	if have := max(1, n/2); p.device.pairs > have {
		p.log.Warn("fewer queues than the device says it has pairs", "queues", n, "pairs", p.device.pairs)
		p.device.pairs = have
	}
	most = spec.MaxQueueSize
	for q := range 2 * p.device.pairs {
		size, err := p.t.QueueSize(q)
		if err != nil {
			return 0, err
		}
		most = min(most, size)
	}
	if most < minRing {
		return 0, fmt.Errorf("%s: the device has queues of %d descriptors: the driver needs %d", p.t.Name(), most, minRing)
	}
	if !p.usableFeatures.Has(spec.FeatureRingPacked) {
		most = powerBelow(most)
	}
	return most, nil
}

// powerBelow is the largest power of two that is not above n, which is positive.
func powerBelow(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// ringSize is what a ring of n descriptors becomes on virtqueue: a power of two unless it is packed, and on legacy what the
// device has.
func (p *Port) ringSize(virtqueue, n int) (int, error) {
	have, err := p.t.QueueSize(virtqueue)
	if err != nil {
		return 0, err
	}
	if p.t.Legacy() {
		n = have
	}
	if !p.Negotiated().Has(spec.FeatureRingPacked) {
		n = 1 << bits.Len(uint(n-1))
	}
	if n < 1 || n > have {
		return 0, fmt.Errorf("%s: queue %d has %d descriptors at most: a ring of %d is not possible", p.t.Name(), virtqueue, have, n)
	}
	return n, nil
}

// Info implements nic.Port.
func (p *Port) Info() nic.Info { return p.info }

// Err implements nic.Port.
func (p *Port) Err() error {
	if e := p.gone.Load(); e != nil {
		return *e
	}
	return nil
}

// Link implements nic.Port. Without spec.FeatureStatus a link is up while the port is started.
func (p *Port) Link() nic.Link { return p.link.Link() }

// ArmLink implements nic.Port.
func (p *Port) ArmLink(w *nic.Waiter, seen nic.Link) bool {
	return p.link.Arm(w, seen) && p.Err() == nil
}

// Rx implements nic.Port.
func (p *Port) Rx(i int) nic.RxQueue { return p.rx[i] }

// Tx implements nic.Port.
func (p *Port) Tx(i int) nic.TxQueue { return p.queues.Load().tx[i] }

// unlock gives mu back, and looks after what interrupted meanwhile.
func (p *Port) unlock() {
	p.mu.Unlock()
	p.lookAtConfig()
}

// Housekeep implements nic.Port.
func (p *Port) Housekeep(time.Time) {
	p.mu.Lock()
	defer p.unlock()
	if !p.started || p.Err() != nil || !p.healthy() {
		return
	}
	p.updateLink()
	p.checkServed()
}
