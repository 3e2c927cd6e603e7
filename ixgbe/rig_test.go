package ixgbe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/ixgbe"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/nic/nictest"
	"bare.wire/pci"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/nic82599"
	"bare.wire/vtop"
)

// rig is two software 82599s on one wire, on a virtual clock, each with the driver on it.
type rig struct {
	testing.TB
	clk   *clock.Virtual
	world *sim.World
	wire  *link.Wire
	space *vtop.Space
	cards [2]*nic82599.Card
	fns   [2]*function
	ports [2]*stepped
	pools []*mbuf.Pool
	busy  bool // the cards do little at a step
}

// rigConfig is what tests change of a rig.
type rigConfig struct {
	wire   link.Config
	card   nic82599.Config // of both
	faults [2]nic82599.Faults
	start  time.Duration // what the clock shows when the cards are made
}

// newBareRig makes cards and functions, and opens no driver.
func newBareRig(t testing.TB, cfg rigConfig) *rig {
	t.Helper()
	r := &rig{TB: t, clk: clock.NewVirtual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), space: vtop.NewMapped()}
	r.clk.Advance(cfg.start)
	wire, err := link.New(cfg.wire)
	if err != nil {
		t.Fatal(err)
	}
	r.wire, r.world = wire, sim.NewWorld(r.clk)
	r.busy = cfg.card.MaxStep > 0 || cfg.faults[0].ShuffledStatus || cfg.faults[1].ShuffledStatus
	r.world.Add(wire)
	for i, end := range []*link.End{wire.A(), wire.B()} {
		c := cfg.card
		c.Name, c.Memory, c.World, c.End, c.LAN = "sim:"+string(rune('a'+i)), r.space, r.world, end, i
		c.MAC = [6]byte{2, 0, 0, 0, 0xff, byte(1 + i)}
		c.Seed = 2*c.Seed + uint64(i)
		c.Faults = cfg.faults[i]
		c.BareReset = true
		c.Watch = true
		r.cards[i] = nic82599.New(c)
		r.fns[i] = &function{Card: r.cards[i]}
	}
	return r
}

// newRig opens both drivers too. The test fails when they do not open.
func newRig(t testing.TB, cfg rigConfig) *rig {
	t.Helper()
	r := newBareRig(t, cfg)
	for i := range r.ports {
		p, err := r.open(i)
		if err != nil {
			t.Fatal(err)
		}
		r.ports[i] = p
	}
	return r
}

func (r *rig) open(i int) (*stepped, error) {
	p, err := ixgbe.Open(context.Background(), r.fns[i], ixgbe.Options{Space: r.space, Clock: r.clk, Node: -1, Software: true})
	if err != nil {
		return nil, err
	}
	return r.stepped(p), nil
}

// settle lets everything under way arrive. Cards that do little at a step get many.
func (r *rig) settle() {
	n := time.Duration(1)
	if r.busy {
		n = 1000
	}
	for range n {
		r.sleep(10 * time.Millisecond / n)
	}
}

func (r *rig) sleep(d time.Duration) {
	r.world.Step()
	if err := r.clk.Sleep(context.Background(), d); err != nil {
		r.Fatal(err)
	}
	r.world.Step()
}

func (r *rig) pool(cfg mbuf.Config) *mbuf.Pool {
	r.Helper()
	cfg.Space = r.space
	if cfg.Buffers == 0 {
		cfg.Buffers = 1024
	}
	p, err := mbuf.NewPool(cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.pools = append(r.pools, p)
	return p
}

// start starts both ports with pools of their own and waits for the link.
func (r *rig) start(cfg nic.Config) {
	r.Helper()
	r.startPort(0, cfg)
	r.startPort(1, cfg)
	r.settle()
	r.housekeep()
}

func (r *rig) startPort(i int, cfg nic.Config) {
	r.Helper()
	if cfg.Pool == nil {
		cfg.Pool = r.pool(mbuf.Config{Name: r.ports[i].Info().Name})
	}
	if err := r.ports[i].Start(context.Background(), cfg); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) housekeep() {
	for _, p := range r.ports {
		p.Housekeep(r.clk.Now())
	}
}

// misuse is what both cards have to hold against the drivers.
func (r *rig) misuse() (out []string) {
	for i, c := range r.cards {
		for _, m := range c.Misuse() {
			out = append(out, fmt.Sprintf("card %d: %v", i, m))
		}
	}
	return out
}

// end closes everything; every buffer has to be back, and the cards have nothing to hold against the drivers.
func (r *rig) end() {
	r.Helper()
	for _, p := range r.ports {
		if p == nil {
			continue
		}
		if err := p.Close(); err != nil && p.Err() == nil {
			r.Errorf("close: %v", err)
		}
	}
	r.home()
	for _, m := range r.misuse() {
		r.Error(m)
	}
}

func (r *rig) home() {
	r.Helper()
	for _, p := range r.pools {
		if err := p.Close(); err != nil {
			r.Error(err)
		}
	}
	r.pools = nil
}

// frame builds a frame of n bytes for port to, all of them k after the header.
func (r *rig) frame(c *mbuf.Cache, to *stepped, n int, k byte) *mbuf.Buf {
	r.Helper()
	b := c.Alloc()
	if b == nil {
		r.Fatal("the pool is dry")
	}
	room, err := b.Reserve(n)
	if err != nil {
		r.Fatal(err)
	}
	mac := to.Info().MAC
	for i := range room {
		room[i] = k
		if i < 6 {
			room[i] = mac[i]
		}
	}
	if n >= 14 {
		room[12], room[13] = 0x88, 0xb5
	}
	return b
}

// send sends n frames of length bytes from port 0 to 1, from a pool of their own.
func (r *rig) send(n, length int) {
	r.Helper()
	c := r.pool(mbuf.Config{Buffers: max(16, n)}).NewCacheAt(mbuf.Control)
	defer c.Close()
	for i := range n {
		b := []*mbuf.Buf{r.frame(c, r.ports[1], length, byte(i))}
		for range 1000 {
			if r.ports[0].Tx(0).Send(b) == 1 {
				b = nil
				break
			}
			r.sleep(time.Microsecond)
		}
		if b != nil {
			r.Fatalf("frame %d of %d finds the ring full", i, n)
		}
	}
}

// drain receives and frees everything that has come on queue q of port i.
func (r *rig) drain(i, q int) (n int) {
	into := make([]*mbuf.Buf, 64)
	for {
		k := r.ports[i].Rx(q).Recv(into)
		for _, b := range into[:k] {
			b.Free()
		}
		if n += k; k == 0 {
			return n
		}
		if n > 1<<16 {
			r.Fatalf("port %d hands out frames without end", i)
		}
	}
}

// exchange sends n frames and checks that they come, with drains in between.
func (r *rig) exchange(n int) {
	r.Helper()
	for left := n; left > 0; {
		k := min(left, 32)
		r.send(k, 100)
		r.settle()
		if got := r.drain(1, 0); got != k {
			r.Fatalf("%d of %d frames came: %+v", got, k, r.ports[1].Stats())
		}
		left -= k
	}
	r.ports[0].Tx(0).Reclaim()
}

// function is a card as a PCI function, with hooks for tests.
type function struct {
	*nic82599.Card
	noReset bool             // Reset fails
	noClose bool             // Close fails
	deaf    bool             // configuration space does not answer
	id      uint16           // another device id
	small   bool             // BAR 0 is too small
	onWrite func(off uint32) // before each register write …
	// onWrite32 is told the value too, onRead comes before each read.
	onWrite32 func(off, v uint32)
	onRead    func(off uint32)
	read      func(off, v uint32) uint32 // what a read returns instead of v
	resets    int
	closed    int
	pin       bool                        // one interrupt, and it is no MSI-X
	single    bool                        // one interrupt
	raised    func(call func(vector int)) // called with what interrupts call, before the driver knows how many there are
}

func (f *function) MSIX() bool { return !f.pin }

func (f *function) Interrupts(n int, call func(vector int)) (int, error) {
	if f.pin || f.single {
		n = 1
	}
	n, err := f.Card.Interrupts(n, call)
	if f.raised != nil && call != nil {
		f.raised(call)
	}
	return n, err
}

func (f *function) BAR(n int) (pci.BAR, error) {
	if n != 0 {
		return nil, fmt.Errorf("BAR %d: no such", n)
	}
	v, err := f.ReadConfig(pci.ConfigCommand, 2)
	if err != nil {
		return nil, err
	}
	if err := f.WriteConfig(pci.ConfigCommand, 2, v|pci.CommandMemory); err != nil {
		return nil, err
	}
	return &hookedBAR{f}, nil
}

type hookedBAR struct{ f *function }

func (b *hookedBAR) Size() int {
	if b.f.small {
		return 4096
	}
	return b.f.Card.Size()
}

func (b *hookedBAR) Read32(off uint32) uint32 {
	if b.f.onRead != nil {
		b.f.onRead(off)
	}
	v := b.f.Card.Read32(off)
	if b.f.read != nil {
		v = b.f.read(off, v)
	}
	return v
}

func (b *hookedBAR) Write32(off, v uint32) {
	if b.f.onWrite != nil {
		b.f.onWrite(off)
	}
	if b.f.onWrite32 != nil {
		b.f.onWrite32(off, v)
	}
	b.f.Card.Write32(off, v)
}

func (f *function) ID() (vendor, device uint16) {
	vendor, device = f.Card.ID()
	if f.id != 0 {
		device = f.id
	}
	return vendor, device
}

// ReadConfig answers for vendor and device by itself, as VFIO does, even when there is no card any more.
func (f *function) ReadConfig(off, size int) (uint32, error) {
	if off < pci.ConfigCommand {
		vendor, device := f.ID()
		return (uint32(device)<<16 | uint32(vendor)) >> (8 * off) & (1<<(8*size) - 1), nil
	}
	if f.deaf {
		return 1<<(8*size) - 1, nil
	}
	return f.Card.ReadConfig(off, size)
}

func (f *function) Reset(ctx context.Context) error {
	f.resets++
	if f.noReset {
		return errors.New("no function-level reset")
	}
	return f.Card.Reset(ctx)
}

func (f *function) Close() error {
	f.closed++
	if f.noClose {
		return errors.New("close fails")
	}
	return nil
}

// stepped steps the world where a worker would wait for the card.
type stepped struct {
	*nictest.SteppedPort
	ixgbe *ixgbe.Port
}

func (r *rig) stepped(p *ixgbe.Port) *stepped { return &stepped{nictest.Stepped(p, r.world), p} }

// bench makes a nictest.Bench of a rig.
func (r *rig) bench() *nictest.Bench {
	index := func(p nic.Port) int {
		if p == nic.Port(r.ports[0]) {
			return 0
		}
		return 1
	}
	return &nictest.Bench{
		A: r.ports[0], B: r.ports[1], Clock: r.clk, MinFrame: 60,
		NewPool: func(cfg mbuf.Config) (*mbuf.Pool, error) {
			cfg.Space = r.space
			return mbuf.NewPool(cfg)
		},
		ForeignPool: func(cfg mbuf.Config) (*mbuf.Pool, error) {
			cfg.Space = vtop.NewMapped()
			return mbuf.NewPool(cfg)
		},
		Settle: r.settle,
		Misuse: r.misuse,
		Remove: func(p nic.Port) { r.cards[index(p)].Remove() },
		SetLink: func(up bool) {
			r.world.Step()
			r.cards[0].SetCable(up)
		},
	}
}
