package virtio_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// TestSoak runs devices on a goroutine of their own and drivers on several more, with whatever goes wrong in the life of a
// device: the link flaps, it falls silent, lies, asks for a reset, is pulled out; pools of 64 buffers run dry, ports stop and
// start. Each round ends with every buffer back. Usually there are a few rounds; with BAREWIRE_SOAK=2m, as make soak sets it, they
// go on for that long. A round follows from its seed as far as goroutines let it.
func TestSoak(t *testing.T) {
	clk := clock.Real()
	end := int64(0)
	if s := os.Getenv("BAREWIRE_SOAK"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		end = int64(d)
	}
	for seed := uint64(1); !t.Failed() && (seed <= misfortunes || clk.Nanos() < end); seed++ {
		newSoak(t, seed, clk).run()
	}
}

// soak is one round.
type soak struct {
	*testing.T
	seed  uint64
	fault int
	rng   *rand.Rand // of the goroutine that runs the round
	clk   clock.Clock
	space *vtop.Space
	world *sim.World
	devs  [2]*virtionet.Device
	ports [2]*virtio.Port
	pools []*mbuf.Pool
	sent  [2]atomic.Uint64 // frames that Send has taken on port i, by all workers so far
	got   [2]atomic.Uint64
	end   func()
}

func newSoak(t *testing.T, seed uint64, clk clock.Clock) *soak {
	s := &soak{T: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), clk: clk, space: vtop.NewMapped()}
	wire, err := link.New(link.Config{})
	if err != nil {
		t.Fatal(err)
	}
	world := sim.NewWorld(clk)
	s.world = world
	world.Add(wire)
	for i, end := range []*link.End{wire.A(), wire.B()} {
		s.devs[i], err = virtionet.New(virtionet.Config{
			Name: fmt.Sprintf("device %d", i), Memory: s.space, World: world, Net: virtionet.OnWire(end), Seed: seed*2 + uint64(i),
			MAC: [6]byte{2, 0, 0, 0, 1, byte(i)}, Pairs: 3, MaxStep: s.rng.IntN(4) * 16, Order: virtionet.Order(s.rng.IntN(2)),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = world.Run(ctx) // until cancelled
	}()
	s.end = func() {
		cancel()
		<-done
	}
	return s
}

func (s *soak) pool(n int) *mbuf.Pool {
	p, err := mbuf.NewPool(mbuf.Config{Name: fmt.Sprintf("pool %d", len(s.pools)), Space: s.space, Buffers: n, Workers: 4, Size: 1024 << s.rng.IntN(2)})
	if err != nil {
		s.Fatal(err)
	}
	s.pools = append(s.pools, p)
	return p
}

func (s *soak) run() {
	defer func() {
		if s.Failed() {
			s.Logf("in the round of seed %d, fault %d", s.seed, s.fault)
		}
	}()
	for i := range s.ports {
		t, err := s.transport(i)
		var p *virtio.Port
		if err == nil {
			p, err = virtio.Open(context.Background(), t, virtio.Options{Space: s.space, Clock: s.clk, Node: -1, Features: s.restriction()})
		}
		if err != nil {
			s.end()
			s.Fatal(err)
		}
		s.ports[i] = p
	}
	s.fault = int(s.seed-1) % misfortunes
	for spell := range 3 {
		s.spell(spell, s.fault)
	}
	for _, p := range s.ports {
		if err := p.Close(); err != nil && !errors.Is(err, nic.ErrGone) {
			s.Errorf("close: %v", err)
		}
	}
	s.end()
	for _, p := range s.pools {
		if err := p.Close(); err != nil {
			s.Error(err)
		}
	}
	for i, d := range s.devs {
		for _, m := range d.Misuse() {
			s.Errorf("device %d: %v", i, m)
		}
	}
}

// transport is one of PCI's, or none.
func (s *soak) transport(i int) (virtio.Transport, error) {
	if s.rng.IntN(2) == 0 {
		return &seat{d: s.devs[i], w: s.world}, nil
	}
	f := virtionet.NewFunction(s.devs[i], virtionet.FunctionConfig{NoMSIX: s.rng.IntN(4) == 0})
	return virtio.NewModern(context.Background(), &function{f}, virtio.TransportOptions{Clock: s.clk})
}

// restriction takes out some of what makes rings differ.
func (s *soak) restriction() (r spec.Restriction) {
	for _, f := range []spec.Features{packed, inOrder, mrg, indirect, eventIdx, spec.FeatureRSS} {
		if s.rng.IntN(2) == 0 {
			r.Not |= f
		}
	}
	return r
}

// spell is from Start to Stop. Something goes wrong in the second one.
func (s *soak) spell(n, fault int) {
	for i, p := range s.ports {
		if p.Err() != nil {
			continue
		}
		cfg := nic.Config{
			Pool: s.pool(64), RxDesc: 64 << s.rng.IntN(3), TxDesc: 64 << s.rng.IntN(3), RxQueues: 1 + s.rng.IntN(3),
		}
		if err := p.Start(context.Background(), cfg); err != nil && !errors.Is(err, nic.ErrGone) {
			s.Errorf("start port %d: %v", i, err)
		}
	}
	var workers sync.WaitGroup
	var stop atomic.Bool
	for i, p := range s.ports {
		if p.Err() != nil {
			continue
		}
		seed := s.rng.Uint64()
		pool := s.pool(64)
		workers.Go(func() { s.sender(i, pool, rand.New(rand.NewPCG(seed, 2)), &stop) })
		for q := range len(p.Stats().Queues) {
			w, err := nic.NewWaiter(s.clk)
			if err != nil {
				s.Fatal(err)
			}
			defer func() { _ = w.Close() }() // after Stop, which lets go of it
			workers.Go(func() { s.receiver(i, q, w, rand.New(rand.NewPCG(seed, uint64(3+q))), &stop) })
		}
		workers.Go(func() { s.keeper(p, &stop) })
	}
	healthy := s.ports[0].Err() == nil && s.ports[1].Err() == nil
	if !s.awhile(200, 20*time.Second) && healthy {
		s.Errorf("spell %d: nothing moves: sent %d and %d, received %d and %d", n, s.sent[0].Load(), s.sent[1].Load(), s.got[0].Load(), s.got[1].Load())
	}
	if n == 1 {
		s.misfortune(fault)
		s.awhile(100, 20*time.Millisecond)
	}
	stop.Store(true)
	workers.Wait()
	for i, p := range s.ports {
		if err := p.Stop(); err != nil && p.Err() == nil {
			s.Errorf("stop port %d: %v", i, err)
		}
	}
	for _, d := range s.devs {
		d.SetFaults(virtionet.Faults{})
		d.SetLink(true)
	}
}

// awhile waits until so many more frames have been received; false: they were not within limit. It does not wait for a
// card that is gone.
func (s *soak) awhile(frames uint64, limit time.Duration) bool {
	from := s.got[0].Load() + s.got[1].Load()
	for end := s.clk.Nanos() + int64(limit); s.clk.Nanos() < end; {
		if s.got[0].Load()+s.got[1].Load() >= from+frames {
			return true
		}
		if s.ports[0].Err() != nil || s.ports[1].Err() != nil {
			return false
		}
		_ = s.clk.Sleep(context.Background(), time.Millisecond)
	}
	return false
}

// misfortune is what goes wrong.
func (s *soak) misfortune(fault int) {
	victim := s.devs[s.rng.IntN(2)]
	switch fault {
	case 0: // nothing does
	case 1:
		for range 3 {
			victim.SetLink(false)
			_ = s.clk.Sleep(context.Background(), time.Millisecond)
			victim.SetLink(true)
			s.awhile(20, 20*time.Millisecond)
		}
	case 2:
		victim.Remove()
	case 3:
		victim.SetFaults(virtionet.Faults{TxSilent: true, RxSilent: true})
	case 4:
		victim.SetFaults(virtionet.Faults{NeedsReset: true})
	case 5:
		victim.SetFaults(virtionet.Faults{UsedID: true})
	case 6:
		victim.SetFaults(virtionet.Faults{NumBuffers: 1, GSOLie: true, CSumBeyond: true})
	case 7:
		victim.SetFaults(virtionet.Faults{NoInterrupts: true, EventLie: true})
	}
}

// misfortunes is how many there are.
const misfortunes = 8

// sender sends frames of all lengths and segments as fast as its pool lets it.
func (s *soak) sender(i int, pool *mbuf.Pool, rng *rand.Rand, stop *atomic.Bool) {
	p, q, cache := s.ports[i], s.ports[i].Tx(0), pool.NewCache()
	defer cache.Close()
	mac := s.ports[1-i].Info().MAC
	var waiting []*mbuf.Buf
	for !stop.Load() {
		for len(waiting) < 1+rng.IntN(16) {
			b := soakFrame(cache, mac, s.sent[i].Load()+uint64(len(waiting)), 60+rng.IntN(900), rng.IntN(3))
			if b == nil {
				break
			}
			waiting = append(waiting, b)
		}
		n := q.Send(waiting)
		s.sent[i].Add(uint64(n))
		waiting = waiting[:copy(waiting, waiting[n:])]
		if n == 0 {
			q.Reclaim()
			_ = p.Link()
			runtime.Gosched()
		}
	}
	for _, b := range waiting {
		b.Free()
	}
}

// soakFrame is a frame of n bytes with number id, in one to three segments; every byte follows from number and place.
func soakFrame(c *mbuf.Cache, dst [6]byte, id uint64, n, cuts int) *mbuf.Buf {
	var head, last *mbuf.Buf
	frame := make([]byte, n)
	copy(frame, dst[:])
	frame[12], frame[13] = 0x88, 0xb5
	binary.BigEndian.PutUint64(frame[14:], id)
	for k := 22; k < n; k++ {
		frame[k] = byte(id) + byte(k)
	}
	for at := 0; at < n; {
		b := c.Alloc()
		if b == nil {
			if head != nil {
				head.Free()
			}
			return nil
		}
		k := n - at
		if cuts > 0 && k > 40 {
			k, cuts = k/2, cuts-1
		}
		room, err := b.Reserve(k)
		if err != nil {
			panic(err) // the pools of this test have buffers of 1 KiB and more
		}
		copy(room, frame[at:])
		at += k
		if head == nil {
			head = b
		} else {
			last.SetNext(b)
		}
		last = b
	}
	return head
}

// receiver checks what comes: every byte, and that numbers only grow. It sleeps when there is nothing.
func (s *soak) receiver(i, queue int, w *nic.Waiter, rng *rand.Rand, stop *atomic.Bool) {
	q := s.ports[i].Rx(queue)
	var into [16]*mbuf.Buf
	last := int64(-1)
	for !stop.Load() {
		n := q.Recv(into[:1+rng.IntN(len(into))])
		for _, b := range into[:n] {
			id, err := soakCheck(b)
			if err != nil || int64(id) <= last || id >= s.sent[1-i].Load()+64 {
				s.Errorf("port %d: frame %d after %d, %d were sent: %v", i, id, last, s.sent[1-i].Load(), err)
			}
			last = int64(id)
			b.Free()
		}
		s.got[i].Add(uint64(n))
		if n == 0 && q.Arm(w) {
			if _, err := w.Wait(s.clk.Nanos() + int64(3*time.Millisecond)); err != nil && !errors.Is(err, nic.ErrGone) {
				s.Error(err)
				return
			}
		}
	}
}

func soakCheck(b *mbuf.Buf) (id uint64, err error) {
	var frame []byte
	for s := b; s != nil; s = s.Next() {
		frame = append(frame, s.Bytes()...)
	}
	if len(frame) < 60 {
		return 0, fmt.Errorf("%d bytes", len(frame))
	}
	id = binary.BigEndian.Uint64(frame[14:])
	for k := 22; k < len(frame); k++ {
		if frame[k] != byte(id)+byte(k) {
			return id, fmt.Errorf("byte %d of %d is %#x", k, len(frame), frame[k])
		}
	}
	return id, nil
}

// keeper does what a program does beside its traffic.
func (s *soak) keeper(p *virtio.Port, stop *atomic.Bool) {
	var last nic.Stats
	for !stop.Load() {
		p.Housekeep(s.clk.Now())
		now := p.Stats()
		if now.RxPackets < last.RxPackets || now.TxBytes < last.TxBytes {
			s.Errorf("statistics go back: %+v, then %+v", last, now)
		}
		last = now
		_ = s.clk.Sleep(context.Background(), time.Millisecond)
	}
}
