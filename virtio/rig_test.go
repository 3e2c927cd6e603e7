package virtio_test

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
	"bare.wire/sim/virtionet"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// rig is two software virtio devices on one wire, on a virtual clock, each with the driver on it.
type rig struct {
	testing.TB
	clk   *clock.Virtual
	world *sim.World
	wire  *link.Wire
	space *vtop.Space
	devs  [2]*virtionet.Device
	seats [2]*seat
	ports [2]*stepped
	cards [2]*nic82599.Card // where it is no virtio device
	pools []*mbuf.Pool
	busy  bool // the devices do little at a step
	blind bool // the drivers do not hear of the link
}

// rigConfig is what tests change of a rig.
type rigConfig struct {
	wire     link.Config
	device   virtionet.Config // of both
	faults   [2]virtionet.Faults
	options  virtio.Options // of both
	legacy   bool
	vectors  int // 0: as many as are asked for
	noResets bool
	// stuckReset: the first device does not end a reset.
	stuckReset bool
	pci        bool                     // by the PCI transports
	function   virtionet.FunctionConfig // with pci
	other      bool                     // the second port is an 82599
}

// newBareRig makes devices, and opens no driver.
func newBareRig(t testing.TB, cfg rigConfig) *rig {
	t.Helper()
	r := &rig{TB: t, clk: clock.NewVirtual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), space: vtop.NewMapped()}
	wire, err := link.New(cfg.wire)
	if err != nil {
		t.Fatal(err)
	}
	r.wire, r.world = wire, sim.NewWorld(r.clk)
	r.busy = cfg.device.MaxStep > 0
	r.blind = cfg.options.Features.Not&spec.FeatureStatus != 0
	r.world.Add(wire)
	for i, end := range []*link.End{wire.A(), wire.B()} {
		c := cfg.device
		c.Name, c.Memory, c.World, c.Net = "sim:"+string(rune('a'+i)), r.space, r.world, virtionet.OnWire(end)
		c.MAC = [6]byte{2, 0, 0, 0, 0xfe, byte(1 + i)}
		c.Seed = 2*c.Seed + uint64(i)
		c.Faults = cfg.faults[i]
		if c.Size == 0 {
			c.Size = 1024
		}
		if c.MTU == 0 {
			c.MTU = 9000
		}
		if c.Backlog == 0 {
			c.Backlog = -1
		}
		if cfg.other && i == 1 {
			r.cards[i] = nic82599.New(nic82599.Config{Name: c.Name, Memory: r.space, World: r.world, End: end, LAN: i, MAC: c.MAC, Seed: c.Seed, Watch: true})
			break
		}
		if r.devs[i], err = virtionet.New(c); err != nil {
			t.Fatal(err)
		}
		r.seats[i] = &seat{d: r.devs[i], w: r.world, legacy: cfg.legacy, vectors: cfg.vectors, noQueueReset: cfg.noResets, failReset: cfg.stuckReset && i == 0}
	}
	return r
}

// newRig opens both drivers too. The test fails when they do not open.
func newRig(t testing.TB, cfg rigConfig) *rig {
	t.Helper()
	r := newBareRig(t, cfg)
	for i := range r.ports {
		p, err := r.open(i, cfg)
		if err != nil {
			t.Fatal(err)
		}
		r.ports[i] = p
	}
	return r
}

func (r *rig) open(i int, cfg rigConfig) (*stepped, error) {
	ctx := context.Background()
	if r.cards[i] != nil {
		p, err := ixgbe.Open(ctx, &card{r.cards[i]}, ixgbe.Options{Space: r.space, Clock: r.clk, Node: -1, Software: true})
		return &stepped{nictest.Stepped(p, r.world), nil}, err
	}
	var t virtio.Transport = r.seats[i]
	if cfg.pci {
		newTransport := virtio.NewModern
		if cfg.legacy {
			newTransport = virtio.NewLegacy
		}
		var err error
		if t, err = newTransport(ctx, &function{virtionet.NewFunction(r.devs[i], cfg.function)}, virtio.TransportOptions{Clock: r.clk}); err != nil {
			return nil, err
		}
	}
	opt := cfg.options
	opt.Space, opt.Clock, opt.Node, opt.Software = r.space, r.clk, -1, true
	p, err := virtio.Open(ctx, t, opt)
	return &stepped{nictest.Stepped(p, r.world), p}, err
}

// function and card are software devices as PCI functions.
type function struct{ *virtionet.Function }

func (f *function) BAR(n int) (pci.BAR, error) { return f.Function.BAR(n) }

type card struct{ *nic82599.Card }

func (c *card) BAR(int) (pci.BAR, error) {
	v, err := c.ReadConfig(pci.ConfigCommand, 2)
	if err != nil {
		return nil, err
	}
	return c.Card, c.WriteConfig(pci.ConfigCommand, 2, v|pci.CommandMemory)
}

// settle lets everything under way arrive. Devices that do little at a step get many.
func (r *rig) settle() {
	n := 10
	if r.busy {
		n = 1000
	}
	for range n {
		r.sleep(10 * time.Microsecond)
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
		cfg.Buffers = 1536
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
	for i := range r.ports {
		r.startPort(i, cfg)
	}
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

// end closes both ports and the pools, and looks whether anything is missing or was misused.
func (r *rig) end() {
	r.Helper()
	for _, p := range r.ports {
		if p == nil {
			continue
		}
		if err := p.Close(); err != nil && !errors.Is(err, nic.ErrGone) {
			r.Errorf("close: %v", err)
		}
	}
	for _, p := range r.pools {
		if err := p.Close(); err != nil {
			r.Error(err)
		}
	}
	for _, m := range r.misuse() {
		r.Error(m)
	}
}

func (r *rig) misuse() (out []string) {
	for i, d := range r.devs {
		if d == nil {
			for _, m := range r.cards[i].Misuse() {
				out = append(out, fmt.Sprintf("card %d: %v", i, m))
			}
			continue
		}
		for _, m := range d.Misuse() {
			out = append(out, fmt.Sprintf("device %d: %v", i, m))
		}
	}
	return out
}

// frame is a frame of n bytes for port to, whose 15th byte is mark.
func (r *rig) frame(c *mbuf.Cache, to nic.Port, n int, mark byte) *mbuf.Buf {
	r.Helper()
	b := c.Alloc()
	room, err := b.Reserve(n)
	if err != nil {
		r.Fatal(err)
	}
	mac := to.Info().MAC
	clear(room)
	copy(room, mac[:])
	room[6], room[12], room[13], room[14] = 2, 0x88, 0xb5, mark
	return b
}

// drain frees all that has come on a queue of port i, and says how much that was.
func (r *rig) drain(i, queue int) (n int) {
	var into [64]*mbuf.Buf
	for {
		k := r.ports[i].Rx(queue).Recv(into[:])
		if k == 0 {
			return n
		}
		for _, b := range into[:k] {
			b.Free()
		}
		n += k
	}
}

// bench makes a nictest.Bench of a rig.
func (r *rig) bench() *nictest.Bench {
	index := func(p nic.Port) int {
		if p == nic.Port(r.ports[0]) {
			return 0
		}
		return 1
	}
	b := &nictest.Bench{
		A: r.ports[0], B: r.ports[1], Clock: r.clk, MinFrame: 60, SilentOnBad: true,
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
		Lost: func(p nic.Port) uint64 {
			if d := r.devs[index(p)]; d != nil {
				return d.Counts().RxNoBuffer
			}
			s := p.Stats()
			return s.RxNoDesc + s.RxMissed
		},
		Remove: func(p nic.Port) {
			if d := r.devs[index(p)]; d != nil {
				d.Remove()
			} else {
				r.cards[index(p)].Remove()
			}
		},
		SetLink: func(up bool) {
			r.world.Step()
			r.devs[0].SetLink(up)
		},
	}
	if r.blind {
		b.SetLink = nil
	}
	return b
}

// seat is a transport without a bus: the device itself, as a driver sees it.
type seat struct {
	d            *virtionet.Device
	w            *sim.World
	legacy       bool
	vectors      int
	noQueueReset bool
	gone         func(error)

	call        func(vector int)
	n           int
	calls       [1024]int // of each queue: its vector
	failReset   bool
	failDisable bool
	failClose   bool
	closed      int
	resets      int
}

func (s *seat) Name() string { return s.d.Name() }
func (s *seat) About() string {
	return map[bool]string{false: "virtio-net (seat)", true: "virtio-net (legacy seat)"}[s.legacy]
}
func (s *seat) Legacy() bool { return s.legacy }

func (s *seat) locked(f func()) {
	s.w.Step()
	s.w.Lock()
	f()
	s.w.Unlock()
}

func (s *seat) Reset(context.Context) error {
	s.resets++
	if s.failReset {
		return fmt.Errorf("%s: the reset does not end", s.Name())
	}
	return s.bounded(func() bool {
		s.d.SetStatus(0)
		if s.legacy {
			s.d.UseLegacy(true)
		}
		return true
	}, func() (bool, error) {
		v, err := s.Status()
		return v == 0, err
	})
}

func (s *seat) bounded(do func() bool, done func() (bool, error)) error {
	s.locked(func() { do() })
	for range 1000 {
		if ok, err := done(); ok || err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: the reset does not end", s.Name())
}

func (s *seat) Status() (v uint8, err error) {
	s.locked(func() { v = s.d.Status() })
	if v == 0xff {
		err = fmt.Errorf("%s: nobody answers: %w", s.Name(), nic.ErrGone)
	}
	return v, err
}

func (s *seat) AddStatus(_ context.Context, bits uint8) error {
	v, err := s.Status()
	if err == nil {
		s.locked(func() { s.d.SetStatus(v | bits) })
	}
	return err
}

func (s *seat) Features() (f spec.Features, err error) {
	s.locked(func() { f = s.d.Features() })
	return f, nil
}

func (s *seat) SetFeatures(f spec.Features) (err error) {
	s.locked(func() { err = s.d.SetFeatures(f) })
	return err
}

func (s *seat) ReadConfig(off int, p []byte) error {
	for range 10 {
		var before, after uint8
		s.locked(func() {
			before = s.d.Generation()
			s.d.ReadConfig(off, p)
			after = s.d.Generation()
		})
		if before == after {
			return nil
		}
	}
	return fmt.Errorf("%s: the configuration changes all the time", s.Name())
}

func (s *seat) WriteConfig(off int, p []byte) error {
	s.locked(func() { s.d.WriteConfig(off, p) })
	return nil
}

func (s *seat) Queues() (int, error) { return s.d.Queues(), nil }

func (s *seat) QueueSize(queue int) (n int, err error) {
	s.locked(func() { n = s.d.QueueMax(queue) })
	return n, nil
}

func (s *seat) EnableQueue(_ context.Context, queue int, at virtio.QueueArea) (bell virtio.Doorbell, err error) {
	s.calls[queue] = at.Vector
	s.locked(func() {
		if err = s.d.SetQueue(queue, at.Size, at.Desc, at.Driver, at.Device); err == nil {
			s.d.OnCall(queue, func() { s.w.Defer(func() { s.interrupt(s.calls[queue]) }) })
			s.d.EnableQueue(queue, true)
		}
	})
	return &bellOf{s, queue, at.NotificationData}, err
}

func (s *seat) DisableQueue(_ context.Context, queue int) error {
	switch {
	case s.noQueueReset:
		return errors.ErrUnsupported
	case s.failDisable:
		return fmt.Errorf("%s: queue %d does not stop", s.Name(), queue)
	}
	s.locked(func() { s.d.ResetQueue(queue) })
	return nil
}

func (s *seat) Interrupts(n int, f func(vector int)) (int, error) {
	if s.vectors > 0 {
		n = min(n, s.vectors)
	}
	s.locked(func() {
		s.call, s.n = f, n
		s.d.OnConfigChange(func() { s.w.Defer(func() { s.interrupt(s.n - 1) }) })
	})
	return n, nil
}

func (s *seat) interrupt(v int) {
	s.w.Lock()
	f := s.call
	s.w.Unlock()
	if f != nil && v >= 0 {
		f(v)
	}
}

func (s *seat) OnGone(f func(error)) { s.gone = f }

func (s *seat) Close() error {
	s.closed++
	if s.failClose {
		return fmt.Errorf("%s: close fails", s.Name())
	}
	return nil
}

type bellOf struct {
	s     *seat
	queue int
	data  bool
}

func (b *bellOf) Ring(position uint16) {
	b.s.locked(func() {
		if b.data {
			b.s.d.KickAt(b.queue, position)
		} else {
			b.s.d.Kick(b.queue)
		}
	})
}

// stepped steps the world where a worker would wait for the device.
type stepped struct {
	*nictest.SteppedPort
	virtio *virtio.Port // nil where it is no virtio device
}
