package ixgbe_test

import (
	"os"
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/nic/nictest"
	"bare.wire/sim/nic82599"
)

// openBench draws delays, faults of the harmless kind and interleavings from the seed.
func openBench(t testing.TB, seed uint64) *nictest.Bench {
	cfg := rigConfig{card: nic82599.Config{Seed: seed}}
	if seed != 0 {
		spread := time.Duration(1 + seed*seed%40)
		cfg.card.Timing = nic82599.Timing{Fetch: spread * 100, DMA: 4000 / spread, WriteBack: spread * 70}
		cfg.card.MaxStep = int(seed % 5)
		for i := range cfg.faults {
			cfg.faults[i].StaleData = seed&1 != 0
			cfg.faults[i].ShuffledStatus = seed&2 != 0
			cfg.faults[i].PartialFetch = seed&4 != 0
		}
	}
	return newRig(t, cfg).bench()
}

func TestConformance(t *testing.T) { nictest.TestPort(t, openBench) }

// TestConformanceSlowCard is the same on a card that takes its time and shows descriptors in the worst order.
func TestConformanceSlowCard(t *testing.T) {
	if raceBuild && !full() {
		return // it takes long there, and TestAnyInterleavingKeepsOrder has such cards too
	}
	nictest.TestPort(t, func(t testing.TB, _ uint64) *nictest.Bench { return openBench(t, 39) })
}

// TestConformanceOfOtherInterrupts is the same with one vector that all queues share, and with MSI or a pin.
func TestConformanceOfOtherInterrupts(t *testing.T) {
	for name, set := range map[string]func(*function){
		"one vector": func(f *function) { f.single = true },
		"pin":        func(f *function) { f.pin = true },
	} {
		t.Run(name, func(t *testing.T) {
			if raceBuild {
				testPinSleepers(t) // what differs, without the rest, which takes long there and is the same code
				return
			}
			nictest.TestPort(t, func(t testing.TB, _ uint64) *nictest.Bench {
				r := newRig(t, rigConfig{})
				set(r.fns[0])
				set(r.fns[1])
				return r.bench()
			})
		})
	}
}

// TestPinSharesCauses has more queues than EICR has causes for: whoever sleeps on one of them wakes.
func TestPinSharesCauses(t *testing.T) { testPinSleepers(t) }

func testPinSleepers(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.fns[1].pin = true
	r.start(nic.Config{RxQueues: 40, TxQueues: 40})
	w, err := nic.NewWaiter(r.clk)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	c := r.pool(mbuf.Config{}).NewCacheAt(mbuf.Control)
	for _, q := range []int{0, 1, 15, 16, 39} {
		if b := r.frame(c, r.ports[0], 60, byte(q)); r.ports[1].Tx(q).Send([]*mbuf.Buf{b}) != 1 {
			t.Fatalf("queue %d does not take a frame", q)
		}
		for !r.ports[1].Tx(q).Arm(w) {
			r.ports[1].Tx(q).Reclaim()
		}
		b := r.frame(c, r.ports[0], 60, byte(q))
		r.clk.At(r.clk.Nanos()+5000, func() {
			if r.ports[1].Tx(q).Send([]*mbuf.Buf{b}) != 1 {
				t.Errorf("queue %d does not take a frame", q)
			}
		})
		if woken, err := w.Wait(r.clk.Nanos() + int64(time.Second)); err != nil || !woken {
			t.Errorf("queue %d has sent, and nobody wakes: %v, %v", q, woken, err)
		}
		if mask := r.cards[1].Read32(reg.EIMS) & reg.EICR_RTX_QUEUE; mask != 0 {
			t.Errorf("woken, and EIMS still has %#x: a queue that is polled interrupts", mask)
		}
		r.settle()
		r.ports[1].Tx(q).Reclaim()
		r.drain(0, 0)
	}
	c.Close()
	r.end()
}

// TestInterruptOfOneLeavesTheOthersArmed: without MSI-X a read of EICR masks all queues, those too that it says nothing of. Who
// sleeps on another queue wakes all the same.
func TestInterruptOfOneLeavesTheOthersArmed(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.fns[1].pin = true
	r.start(nic.Config{RxQueues: 2, TxQueues: 2})
	c := r.pool(mbuf.Config{}).NewCacheAt(mbuf.Control)
	var w [2]*nic.Waiter
	for q := range w {
		var err error
		if w[q], err = nic.NewWaiter(r.clk); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = w[q].Close() }()
		for !r.ports[1].Tx(q).Arm(w[q]) {
			r.ports[1].Tx(q).Reclaim()
		}
	}
	for q := range w {
		if b := r.frame(c, r.ports[0], 60, byte(q)); r.ports[1].Tx(q).Send([]*mbuf.Buf{b}) != 1 {
			t.Fatalf("queue %d does not take a frame", q)
		}
		if woken, err := w[q].Wait(r.clk.Nanos() + int64(time.Second)); err != nil || !woken {
			t.Errorf("queue %d has sent, and nobody wakes: %v, %v", q, woken, err)
		}
	}
	for q := range w {
		r.ports[1].Tx(q).Reclaim()
	}
	r.drain(0, 0)
	c.Close()
	r.end()
}

// TestAnyInterleavingKeepsOrder is the property that every driver has to have: whatever the order of steps, the same frames
// arrive in the same order.
func TestAnyInterleavingKeepsOrder(t *testing.T) {
	n := 200
	switch {
	case full() && raceBuild:
		n = 400
	case full():
		n = 5000
	case raceBuild:
		n = 40
	}
	nictest.TestSeeds(t, openBench, 1, n)
}

// full says whether the long runs are wanted.
func full() bool { return os.Getenv("BAREWIRE_FULL") != "" }
