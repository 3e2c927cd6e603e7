package ixgbe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"bare.wire/clock"
	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/vtop"
)

const (
	vendorIntel = 0x8086
	// maxQueues is the number of queue pairs without traffic classes or pools (§4.6.11.3.4); RSS reaches 16 of them.
	maxQueues = 64
	fcsLen    = 4
	// defaultMaxFrame is 1500 bytes of payload, an Ethernet header and one VLAN tag.
	defaultMaxFrame = 1518
	bufferUnit      = 1024 // SRRCTL.BSIZEPKT
	bufferMost      = 16 * bufferUnit
)

// Options are what Open needs beside the function.
type Options struct {
	// Space is the bus address space that the function has been attached to. Pools given to Start live in it.
	Space *vtop.Space
	// Clock measures every wait. Logger gets what people should know; nil: nothing is logged.
	Clock  clock.Clock
	Logger *slog.Logger
	// Node is the NUMA node of the card and of its rings, -1 when unknown.
	Node int
	// Software says that no silicon is behind the function.
	Software bool
}

// Port drives one 82599 port. It implements nic.Port.
type Port struct {
	fn     pci.Function
	bar    pci.BAR
	space  *vtop.Space
	clk    clock.Clock
	log    *slog.Logger
	info   nic.Info
	device reg.Device
	node   int

	mu       sync.Mutex // Start, Stop, Close, filters
	started  bool
	closed   bool
	enabled  bool // the card may be doing DMA
	cfg      nic.Config
	rings    *vtop.Arena
	rx       []*rxQueue
	tx       []*txQueue
	vectors  atomic.Pointer[[]*vector]
	filters  filterState
	autoc    uint32 // as the EEPROM set it
	heldBack uint64 // buffers in quarantine
	// quarantinePools are those that the buffers belong to.
	quarantinePools []*mbuf.Pool

	link nic.LinkWatch
	pin  bool // one interrupt, MSI or a pin, instead of MSI-X; set while there are none

	gone  atomic.Pointer[error]
	stats statistics
}

// Open takes over a function: it maps its registers, resets it and reads who it is. No traffic flows before Start. On an
// error the function is still the caller's.
func Open(ctx context.Context, fn pci.Function, opt Options) (*Port, error) {
	vendor, id := fn.ID()
	device, known := reg.LookupDevice(id)
	if vendor != vendorIntel || !known || !device.Supported() {
		return nil, fmt.Errorf("%s: device %04x:%04x is not an 82599 (%s): %w", fn.Name(), vendor, id, device.Name, errors.ErrUnsupported)
	}
	if opt.Space == nil || opt.Clock == nil {
		return nil, fmt.Errorf("%s: Options.Space and Options.Clock are required", fn.Name())
	}
	bar, err := fn.BAR(0)
	if err != nil {
		return nil, fmt.Errorf("%s: map the registers: %w", fn.Name(), err)
	}
	if bar.Size() < reg.BARSize {
		return nil, fmt.Errorf("%s: BAR 0 has %#x bytes, an 82599 has %#x", fn.Name(), bar.Size(), reg.BARSize)
	}
	log := opt.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &Port{fn: fn, bar: bar, space: opt.Space, clk: opt.Clock, log: log.With("port", fn.Name()), device: device, node: opt.Node}
	p.stats.build()
	p.watchGone()
	if err := p.reset(ctx); err != nil {
		return nil, err
	}
	mac, err := p.readMAC()
	if err != nil {
		return nil, err
	}
	if err := p.checkEEPROM(ctx); err != nil {
		return nil, err
	}
	p.info = nic.Info{
		Driver: "ixgbe", Name: fn.Name(), Device: "82599 " + device.Name, MAC: mac, NUMANode: opt.Node,
		RxQueues: maxQueues, TxQueues: maxQueues, RSSQueues: reg.RSSQueues,
		MinDesc: minDesc, MaxDesc: maxDesc, DescAlign: descAlign,
		MaxFrame: reg.MaxFrameFCS - fcsLen, MaxSegs: maxSegs,
		MaxTSO: maxTSO, MinMSS: minMSS, MaxInterruptInterval: maxInterruptInterval,
		Offloads: nic.RxRSSHash | nic.RxIPChecksum | nic.RxL4Checksum | nic.RxVLANStrip | nic.RxScatter |
			nic.TxIPChecksum | nic.TxL4Checksum | nic.TxTSO | nic.TxVLANInsert | nic.TxMultiSegment,
		Software: opt.Software,
	}
	return p, nil
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

// Link implements nic.Port.
func (p *Port) Link() nic.Link { return p.link.Link() }

// Rx implements nic.Port.
func (p *Port) Rx(i int) nic.RxQueue { return p.rx[i] }

// Tx implements nic.Port.
func (p *Port) Tx(i int) nic.TxQueue { return p.tx[i] }

// Start implements nic.Port. The order of the steps is the datasheet's (§4.6.3 – §4.6.8).
func (p *Port) Start(ctx context.Context, cfg nic.Config) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return fmt.Errorf("%s: start: the port is closed", p.info.Name)
	case p.started:
		return fmt.Errorf("%s: start: it is started already: call Stop first", p.info.Name)
	case p.rings != nil:
		return fmt.Errorf("%s: start: the last stop could not end DMA (%d buffers are in quarantine): Close the port and open it again", p.info.Name, p.heldBack)
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s: start: %w", p.info.Name, err)
	}
	if err := p.complete(&cfg); err != nil {
		return fmt.Errorf("%s: start: %w", p.info.Name, err)
	}
	p.cfg = cfg
	if err := p.makeQueues(); err != nil {
		return errors.Join(fmt.Errorf("%s: start: %w", p.info.Name, err), p.dropQueues())
	}
	steps := []func(context.Context) error{
		p.reset,           // §4.6.3
		p.enableBusMaster, // §4.6.3, last paragraph: DMA from here on
		p.initFilters,     // §4.6.7: MAC address, multicast, VLAN
		p.initLink,        // §4.6.4
		p.clearStats,      // §4.6.5
		p.initRx,          // §4.6.7
		p.initTx,          // §4.6.8
		p.initInterrupts,  // §4.6.6
		p.announce,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			p.started = true // stop takes apart what has been built
			return errors.Join(fmt.Errorf("%s: start: %w", p.info.Name, err), p.stop())
		}
	}
	p.started = true
	p.updateLink()
	return nil
}

// complete fills in defaults and refuses what the card cannot do.
func (p *Port) complete(cfg *nic.Config) error {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&cfg.RxQueues, 1)
	def(&cfg.TxQueues, 1)
	def(&cfg.RxDesc, 512)
	def(&cfg.TxDesc, 512)
	def(&cfg.MaxFrame, defaultMaxFrame)
	for _, c := range []struct {
		what      string
		v, lo, hi int
		multiple  int
	}{
		{"RxQueues", cfg.RxQueues, 1, p.info.RxQueues, 1},
		{"TxQueues", cfg.TxQueues, 1, p.info.TxQueues, 1},
		{"RxDesc", cfg.RxDesc, minDesc, maxDesc, descAlign},
		{"TxDesc", cfg.TxDesc, minDesc, maxDesc, descAlign},
		{"MaxFrame", cfg.MaxFrame, 60, p.info.MaxFrame, 1},
	} {
		if c.v < c.lo || c.v > c.hi || c.v%c.multiple != 0 {
			return fmt.Errorf("%s is %d: want %d to %d, a multiple of %d", c.what, c.v, c.lo, c.hi, c.multiple)
		}
	}
	if d := cfg.InterruptInterval; d < 0 || d > maxInterruptInterval {
		return fmt.Errorf("InterruptInterval is %v: want 0 to %v", d, maxInterruptInterval)
	}
	if no := cfg.Offloads &^ p.info.Offloads; no != 0 {
		return fmt.Errorf("offloads %#x: %w", no, errors.ErrUnsupported)
	}
	if err := completePools(cfg, p.space); err != nil {
		return err
	}
	return completeRSS(cfg)
}

// completePools gives every receive queue a pool, and checks each.
func completePools(cfg *nic.Config, space *vtop.Space) error {
	if cfg.Pool == nil {
		return errors.New("Config.Pool is nil: make one with mbuf.NewPool in the Space that the port was opened with")
	}
	if len(cfg.RxPools) == 0 {
		for range cfg.RxQueues {
			cfg.RxPools = append(cfg.RxPools, cfg.Pool)
		}
	}
	if len(cfg.RxPools) != cfg.RxQueues {
		return fmt.Errorf("%d RxPools for %d queues: give each queue one", len(cfg.RxPools), cfg.RxQueues)
	}
	for i, pool := range append(cfg.RxPools[:len(cfg.RxPools):len(cfg.RxPools)], cfg.Pool) {
		if pool == nil {
			return fmt.Errorf("RxPools[%d] is nil", i)
		}
		if pool.Space() != space {
			return fmt.Errorf("pool %q lives in another address space than the card: make it with the Space that the port was opened with", pool.Name())
		}
		if pool.Size() < bufferUnit {
			return fmt.Errorf("pool %q has %d bytes of room after the headroom: the card counts receive buffers in units of %d and would write beyond it", pool.Name(), pool.Size(), bufferUnit)
		}
	}
	return nil
}

// makeQueues allocates rings. The card has not seen them yet.
func (p *Port) makeQueues() (err error) {
	var sizes []int
	for range p.cfg.RxQueues {
		sizes = append(sizes, p.cfg.RxDesc)
	}
	for range p.cfg.TxQueues {
		sizes = append(sizes, p.cfg.TxDesc)
	}
	p.rx, p.tx = nil, nil
	if p.rings, err = newRings(p.space, p.info.Name, p.node, sizes); err != nil {
		return err
	}
	for i := range p.cfg.RxQueues {
		q, err := newRxQueue(p, i, p.cfg.RxDesc, p.rings, p.cfg.RxPools[i])
		if err != nil {
			return err
		}
		p.rx = append(p.rx, q)
	}
	for i := range p.cfg.TxQueues {
		q, err := newTxQueue(p, i, p.cfg.TxDesc, p.rings)
		if err != nil {
			return err
		}
		p.tx = append(p.tx, q)
	}
	return nil
}

func (p *Port) enableBusMaster(context.Context) error {
	p.enabled = true
	return pci.SetBusMaster(p.fn, true)
}

// announce tells the firmware that a driver is at work.
func (p *Port) announce(context.Context) error {
	p.set(reg.CTRL_EXT, reg.CTRL_EXT_DRV_LOAD)
	return nil
}

// Housekeep implements nic.Port.
func (p *Port) Housekeep(time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started || p.Err() != nil {
		return
	}
	if p.checkGone() {
		return
	}
	p.stats.collect(p)
	p.updateLink()
	p.checkHang()
}
