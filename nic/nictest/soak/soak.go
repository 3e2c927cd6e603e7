// Package soak runs drivers as a program does, for as long as one likes: devices work on a goroutine of their own, senders,
// receivers and a keeper of the house on several more, all in real time, and things go wrong.
//
//	func TestSoak(t *testing.T) { soak.TestRounds(t, layBed) }
//
// A round lays a bed (two devices at the ends of a wire), opens its ports, and starts and stops them three times. In the second
// of these spells the bed has a misfortune, another one each round. Every byte of what arrives is checked, counts may not go
// back, and each round ends with every buffer back in its pool.
//
// There are as many rounds as misfortunes; with BAREWIRE_SOAK=2m, as make soak sets it, they go on for that long. A round follows
// from its seed as far as goroutines let it.
package soak

import (
	"context"
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
)

// Bed is two devices at the two ends of a wire, which work until End, and what may happen to them.
type Bed struct {
	// Open opens the driver of device i, 0 or 1.
	Open func(i int) (nic.Port, error)
	// NewPool makes a pool in the ports' address space: it fills in Config.Space.
	NewPool func(mbuf.Config) (*mbuf.Pool, error)
	// Vary draws more of a configuration than is drawn already; nil: there is no more.
	Vary func(*nic.Config)
	// Misfortunes are what goes wrong, with one of the devices.
	Misfortunes []func(victim int)
	// Heal ends what went wrong, as far as that is possible.
	Heal func()
	// Misuse is what the devices have to hold against the drivers, a line each.
	Misuse func() []string
	// End has the devices stop working. It is called after the ports' Close.
	End func()
}

// Round is one round. Its Rand is for the goroutine that lays the bed and calls its functions.
type Round struct {
	*testing.T
	Seed  uint64
	Rand  *rand.Rand
	Clock clock.Clock

	bed   *Bed
	fault int // of the misfortunes
	ports [2]nic.Port
	pools []*mbuf.Pool
	sent  [2]atomic.Uint64 // frames that Send has taken on port i, by all workers so far
	got   [2]atomic.Uint64
}

// TestRounds runs rounds. A bed that cannot be laid fails the test.
func TestRounds(t *testing.T, lay func(*Round) *Bed) {
	clk := clock.Real()
	end := int64(0)
	if s := os.Getenv("BAREWIRE_SOAK"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		end = int64(d)
	}
	rounds := uint64(1)
	for seed := uint64(1); !t.Failed() && (seed <= rounds || clk.Nanos() < end); seed++ {
		r := &Round{T: t, Seed: seed, Rand: rand.New(rand.NewPCG(seed, 1)), Clock: clk}
		r.bed = lay(r)
		rounds = uint64(len(r.bed.Misfortunes))
		r.fault = int((seed - 1) % rounds)
		r.run()
	}
}

// Work has devices work on a goroutine of their own, by a function that goes on until its context ends. It returns Bed.End.
func Work(run func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = run(ctx) // until cancelled
	}()
	return func() {
		cancel()
		<-done
	}
}

func (r *Round) run() {
	defer func() {
		if r.Failed() {
			r.Logf("in the round of seed %d, misfortune %d", r.Seed, r.fault)
		}
	}()
	for i := range r.ports {
		p, err := r.bed.Open(i)
		if err != nil {
			r.bed.End()
			r.Fatal(err)
		}
		r.ports[i] = p
	}
	for n := range 3 {
		r.spell(n)
	}
	for _, p := range r.ports {
		if err := p.Close(); err != nil && !errors.Is(err, nic.ErrGone) {
			r.Errorf("close: %v", err)
		}
	}
	r.bed.End()
	for _, p := range r.pools {
		if err := p.Close(); err != nil {
			r.Error(err)
		}
	}
	for _, m := range r.bed.Misuse() {
		r.Error(m)
	}
}

func (r *Round) pool(n int) *mbuf.Pool {
	p, err := r.bed.NewPool(mbuf.Config{Name: fmt.Sprintf("pool %d", len(r.pools)), Buffers: n, Workers: 4, Size: minBuffer << r.Rand.IntN(2)})
	if err != nil {
		r.Fatal(err)
	}
	r.pools = append(r.pools, p)
	return p
}

// spell is from Start to Stop. Something goes wrong in the second one.
func (r *Round) spell(n int) {
	r.start()
	var workers sync.WaitGroup
	var stop atomic.Bool
	for i, p := range r.ports {
		if p.Err() != nil {
			continue
		}
		seed := r.Rand.Uint64()
		pool := r.pool(64)
		workers.Go(func() { r.sender(i, pool, rand.New(rand.NewPCG(seed, 2)), &stop) })
		for q := range len(p.Stats().Queues) {
			w, err := nic.NewWaiter(r.Clock)
			if err != nil {
				r.Fatal(err)
			}
			defer func() { _ = w.Close() }() // after Stop, which lets go of it
			workers.Go(func() { r.receiver(i, q, w, rand.New(rand.NewPCG(seed, uint64(3+q))), &stop) })
		}
		workers.Go(func() { r.keeper(p, &stop) })
	}
	healthy := r.ports[0].Err() == nil && r.ports[1].Err() == nil
	if !r.awhile(200, 20*time.Second) && healthy {
		r.Errorf("spell %d: nothing moves: sent %d and %d, received %d and %d", n, r.sent[0].Load(), r.sent[1].Load(), r.got[0].Load(), r.got[1].Load())
	}
	if n == 1 {
		r.bed.Misfortunes[r.fault](r.Rand.IntN(2))
		r.awhile(100, 20*time.Millisecond)
	}
	stop.Store(true)
	workers.Wait()
	for i, p := range r.ports {
		if err := p.Stop(); err != nil && p.Err() == nil {
			r.Errorf("stop port %d: %v", i, err)
		}
	}
	r.bed.Heal()
}

// start starts the ports that are not gone, with rings and pools that run dry.
func (r *Round) start() {
	for i, p := range r.ports {
		if p.Err() != nil {
			continue
		}
		cfg := nic.Config{
			Pool: r.pool(64), RxDesc: 64 << r.Rand.IntN(3), TxDesc: 64 << r.Rand.IntN(3), RxQueues: 1 + r.Rand.IntN(3),
		}
		if r.bed.Vary != nil {
			r.bed.Vary(&cfg)
		}
		if err := p.Start(context.Background(), cfg); err != nil && !errors.Is(err, nic.ErrGone) {
			r.Errorf("start port %d: %v", i, err)
		}
	}
}

// awhile waits until so many more frames have been received; false: they were not within limit. It does not wait for a
// device that is gone.
func (r *Round) awhile(frames uint64, limit time.Duration) bool {
	from := r.got[0].Load() + r.got[1].Load()
	for end := r.Clock.Nanos() + int64(limit); r.Clock.Nanos() < end; {
		if r.got[0].Load()+r.got[1].Load() >= from+frames {
			return true
		}
		if r.ports[0].Err() != nil || r.ports[1].Err() != nil {
			return false
		}
		_ = r.Clock.Sleep(context.Background(), time.Millisecond)
	}
	return false
}

// Flap is a misfortune that every device can have: its link goes away and comes back, and again.
func (r *Round) Flap(setLink func(up bool)) {
	for range 3 {
		setLink(false)
		_ = r.Clock.Sleep(context.Background(), time.Millisecond)
		setLink(true)
		r.awhile(20, 20*time.Millisecond)
	}
}

// sender sends frames of all lengths and segments as fast as its pool lets it.
func (r *Round) sender(i int, pool *mbuf.Pool, rng *rand.Rand, stop *atomic.Bool) {
	p, q, cache := r.ports[i], r.ports[i].Tx(0), pool.NewCache()
	defer cache.Close()
	mac := r.ports[1-i].Info().MAC
	var waiting []*mbuf.Buf
	for !stop.Load() {
		for len(waiting) < 1+rng.IntN(16) {
			b := frame(cache, mac, r.sent[i].Load()+uint64(len(waiting)), minFrame+rng.IntN(maxFrame-minFrame), rng.IntN(3))
			if b == nil {
				break
			}
			waiting = append(waiting, b)
		}
		n := q.Send(waiting)
		r.sent[i].Add(uint64(n))
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

// receiver checks what comes: every byte, and that numbers only grow. It sleeps when there is nothing.
func (r *Round) receiver(i, queue int, w *nic.Waiter, rng *rand.Rand, stop *atomic.Bool) {
	q := r.ports[i].Rx(queue)
	var into [16]*mbuf.Buf
	last := int64(-1)
	for !stop.Load() {
		n := q.Recv(into[:1+rng.IntN(len(into))])
		for _, b := range into[:n] {
			id, err := check(b)
			if err != nil || int64(id) <= last || id >= r.sent[1-i].Load()+64 {
				r.Errorf("port %d: frame %d after %d, %d were sent: %v", i, id, last, r.sent[1-i].Load(), err)
			}
			last = int64(id)
			b.Free()
		}
		r.got[i].Add(uint64(n))
		if n == 0 && q.Arm(w) {
			if _, err := w.Wait(r.Clock.Nanos() + int64(3*time.Millisecond)); err != nil && !errors.Is(err, nic.ErrGone) {
				r.Error(err)
				return
			}
		}
	}
}

// keeper does what a program does beside its traffic.
func (r *Round) keeper(p nic.Port, stop *atomic.Bool) {
	var last nic.Stats
	for !stop.Load() {
		p.Housekeep(r.Clock.Now())
		now := p.Stats()
		if now.RxPackets < last.RxPackets || now.TxBytes < last.TxBytes {
			r.Errorf("statistics go back: %+v, then %+v", last, now)
		}
		last = now
		_ = r.Clock.Sleep(context.Background(), time.Millisecond)
	}
}
