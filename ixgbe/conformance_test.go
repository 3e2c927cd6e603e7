package ixgbe_test

import (
	"os"
	"testing"
	"time"

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
