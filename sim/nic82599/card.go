// Package nic82599 is an Intel 82599 10 GbE controller in software: the card that the driver in package ixgbe drives when
// there is no silicon.
//
// It is driven the way the silicon is. A driver reads and writes 32-bit registers ([Card.Read32], [Card.Write32]) and
// configuration space ([Card.ReadConfig], [Card.WriteConfig]), and gets interrupts; the card reads descriptors and frames
// from memory, and writes them, through bus addresses only ([sim.Memory]). What a register does comes from the table in
// package ixgbe/reg; what is beyond a table is here, by subject:
//
//	driver ── Read32/Write32 ──► regs.go ─► reset.go eeprom.go interrupt.go link.go     control plane
//	                                  └──► queue.go                                     queues: enable, tail, head
//	memory ◄── fetch, gather, report ── tx.go ──► mac.go ──► link.End                   transmit
//	memory ◄── fetch, scatter, report ── rx.go ◄── rss.go parse.go ◄── filter.go arrive.go ◄── link.End   receive
//
// Nothing happens by itself: the engines do what is due when the card's [sim.World] steps it, and at register accesses.
// Work has a delay drawn from a seed (Timing), so a driver that looks too early finds nothing. The times of what is done
// late, because nobody stepped the world, are those at which the silicon would have done it.
//
// The card is strict. Whatever a driver does that the datasheet forbids is kept as a [Misuse], and a test that finds one
// fails. Where no source gives the reset value of a register it is 0, or the value that hurts most a driver that relies on
// it. With Watch on the card also looks after the buffers it was lent: it notices when one changes before it was given
// back, or is lent twice. Faults make it misbehave in the ways that cards do.
//
// Not modelled (use is a Misuse of kind Unsupported): header split, receive coalescing, legacy receive
// descriptors, IPsec, DCB, VMDq and SR-IOV, flow director, five-tuple, ethertype and SYN filters.
// Not modelled either, and not noticed: time stamps, wake-up, management.
//
// The facts are those of the Intel 82599 10 GbE Controller Datasheet (document 331520) and its specification update
// (331521); § in comments are the datasheet's sections.
package nic82599

import (
	"context"
	"errors"
	"math"
	"time"

	"bare.wire/clock"
	"bare.wire/ixgbe/reg"
	"bare.wire/sim"
	"bare.wire/sim/link"
)

// Queues is the number of receive queues, and of transmit queues.
const Queues = 128

// Config describes a card. Memory and World are required.
type Config struct {
	Name   string     // how the card is called in reports: "sim:a"
	Memory sim.Memory // where its DMA goes
	World  *sim.World // whose clock it lives by and whose lock guards it
	End    *link.End  // its end of the cable; nil: no cable
	MAC    [6]byte    // burnt into the EEPROM
	LAN    int        // which port of the part it is: 0 or 1
	Seed   uint64     // of delays and of faults that are drawn
	Speed  uint64     // of the MAC, bit/s; 0: 10 Gb/s
	Timing Timing
	Faults Faults
	// Watch checks the buffers that the driver lends to the card, at the cost of reading each frame three times.
	Watch bool
	// MaxStep bounds the frames handled in one Step in each direction, so that more interleavings are seen. 0: no bound.
	MaxStep int
	// BareReset leaves registers 0 after a reset where nothing but the habits of a driver says otherwise.
	BareReset bool
	// NoModule: the SFP+ cage is empty until SetModule.
	NoModule bool
	// NoMSIX: configuration space has no MSI-X, so that drivers take MSI.
	NoMSIX bool
}

// Timing is how long the card takes. Each delay is drawn uniformly from 0 to the value; 0 stands for the default, a
// negative value for no delay at all.
type Timing struct {
	Fetch     time.Duration // from a tail write to the descriptors being on the card; default 300 ns
	DMA       time.Duration // from a frame's arrival to its bytes being in memory, or the reverse; default 300 ns
	WriteBack time.Duration // from there to the descriptor's DD; default 500 ns
	Enable    time.Duration // of a queue, a reset, a semaphore; default 20 µs
	AutoRead  time.Duration // of the EEPROM after a reset: ARD, then DMAIDONE; default 4 ms, at least half of it is used
	Link      time.Duration // to come up; default 2 ms, at least half of it is used
}

func (t *Timing) fill() {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&t.Fetch, 300}, {&t.DMA, 300}, {&t.WriteBack, 500},
		{&t.Enable, 20 * time.Microsecond}, {&t.AutoRead, 4 * time.Millisecond}, {&t.Link, 2 * time.Millisecond},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
		*d.v = max(*d.v, 0)
	}
}

// Card is one 82599 port. It is a [sim.Engine]; its methods may be called from any goroutine, except Step, which the world
// calls.
type Card struct {
	cfg Config
	w   *sim.World
	clk clock.Clock
	mem sim.Memory // for what is read, and for rings
	out sim.Memory // for what is written
	end *link.End
	rng sim.Rand

	now  int64 // ns; of the access or step under way
	next int64 // when Step has something to do
	gone bool  // removed

	vals  [reg.BARSize / 4]uint32 // register contents by canonical offset
	latch map[uint32]uint64       // 36-bit counters whose low half has been read, by its offset

	nvm    []uint16
	config [256]byte

	resetting bool // CTRL.RST has not cleared itself yet
	resetDone late // when it does
	ready     late // EEC.ARD
	dmaReady  late // RDRXCTL.DMAIDONE
	eerd      late // EERD.DONE
	secrx     late // SECRXSTAT.RDY
	sectx     late // SECTXSTAT.RDY
	gioIdle   late // STATUS.GIO after CTRL.GIO_DIS
	sticky    int  // SWESMBI writes that do not stick, left
	lanMAC    bool // RAL/RAH(0) loaded
	tx        txEngine
	rx        rxEngine
	irq       interrupts
	phy       phy
	mod       module
	spi       spi
	count     Counts
	flt       filters
	rss       rssState
	hot       hotRegs
	misuse    sim.Misuses[Kind]
	dma       sim.DMALog[DMAKind]
	watch     watcher
}

// hotRegs are register fields that the engines look at for every frame, taken from the registers when one is written.
type hotRegs struct {
	txOn, rxOn          bool // may frames move at all
	master              bool // may the card use the bus
	loopback            bool
	pad, strip          bool
	maxRx               int // longest frame that is accepted, bytes with FCS, without a tag
	vet                 uint16
	rxBuf, txBuf        int // packet buffers, bytes
	psPerByte           int64
	insertVT            uint16
	ipidInsteadOfHash   bool
	honourPause, passMC bool
	dropPause           bool
	countLenErr, sbp    bool
}

var _ sim.Engine = (*Card)(nil)

// New returns a card as it is after power-on and adds it to its world.
func New(cfg Config) *Card {
	cfg.Timing.fill()
	if cfg.Speed == 0 {
		cfg.Speed = 10e9
	}
	c := &Card{cfg: cfg, w: cfg.World, clk: cfg.World.Clock(), mem: cfg.Memory, out: cfg.Memory, end: cfg.End, latch: make(map[uint32]uint64)}
	if m, ok := cfg.Memory.(sim.GuardedMemory); ok {
		c.mem, c.out = m.ForReads(), m.ForWrites()
	}
	c.rng = sim.NewRand(cfg.Seed)
	c.irq.init(c)
	c.watch.init(cfg.Watch)
	c.mod.init(cfg.NoModule)
	c.nvm = makeNVM(cfg.MAC, cfg.LAN)
	c.w.Lock()
	c.now = c.clk.Nanos()
	c.powerOn()
	c.w.Unlock()
	c.w.Add(c)
	return c
}

// Name is the name the card was given.
func (c *Card) Name() string { return c.cfg.Name }

// ID returns Intel's vendor id and the device id of an 82599ES SFP+.
func (c *Card) ID() (vendor, device uint16) { return vendorID, deviceID }

// Step does what is due. It is called by the world, locked.
func (c *Card) Step(now int64) int64 {
	if now < c.next {
		return c.next
	}
	c.now = now
	return c.run()
}

// run does what is due at c.now.
func (c *Card) run() int64 {
	if c.gone {
		c.next = sim.Never
		return c.next
	}
	if at := c.cfg.Faults.RemoveAt; at > 0 && c.now >= at {
		c.remove()
		return c.next
	}
	next := c.runControl()
	next = min(next, c.runTx())
	next = min(next, c.runRx())
	next = min(next, c.runInterrupts())
	if at := c.cfg.Faults.RemoveAt; at > 0 {
		next = min(next, at)
	}
	if next <= c.now {
		next = c.now + 1
	}
	c.next = next
	return next
}

// touch brings the card up to the present before a register access. The caller holds the world's lock.
func (c *Card) touch() {
	c.now = c.clk.Nanos()
	if c.next <= c.now {
		c.run()
	}
}

// kick makes the world run the card at the next step.
func (c *Card) kick() {
	c.next = math.MinInt64
	c.w.Poke()
}

// Remove pulls the card out: reads give all ones from now on, writes go nowhere, no DMA, no interrupt.
func (c *Card) Remove() {
	c.w.Lock()
	defer c.w.Unlock()
	c.now = c.clk.Nanos()
	c.remove()
}

func (c *Card) remove() {
	if c.gone {
		return
	}
	c.gone, c.next = true, sim.Never
	if c.end != nil {
		c.end.SetUp(false)
	}
	c.w.Poke()
}

// errRemoved is what is left of a removed card's configuration space.
var errRemoved = errors.New("the card was removed")

// Reset is a function-level reset: no DMA when it returns, registers and configuration space at their defaults.
func (c *Card) Reset(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.w.Lock()
	defer c.w.Unlock()
	c.touch()
	if c.gone {
		return errRemoved
	}
	c.powerOn()
	c.kick()
	return nil
}

// Close gives the card back to its world. It does no DMA any more.
func (c *Card) Close() error {
	c.w.Remove(c)
	c.w.Lock()
	defer c.w.Unlock()
	if c.end != nil {
		c.end.SetUp(false)
	}
	return nil
}
