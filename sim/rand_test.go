package sim_test

import (
	"testing"
	"time"

	"bare.wire/sim"
)

func TestRunsOfNeighbouringSeedsDiffer(t *testing.T) {
	seen := map[uint64]uint64{}
	for seed := range uint64(1000) {
		a, b := sim.NewRand(seed), sim.NewRand(seed)
		x := a.Next()
		if y := b.Next(); x != y {
			t.Fatalf("seed %d gives %#x and %#x", seed, x, y)
		}
		if other, twice := seen[x>>32]; twice { // 1000 of 2³²: none by chance
			t.Errorf("seeds %d and %d begin alike", seed, other)
		}
		seen[x>>32] = seed
	}
	// The one seed whose state would be 0 but for a bit, and 0 for ever.
	zero := sim.NewRand(0x61C8864680B583EB)
	if first, second := zero.Next(), zero.Next(); first == second {
		t.Error("a generator that stands still")
	}
}

func TestNumbersAreWithinTheirBounds(t *testing.T) {
	r := sim.NewRand(1)
	var below [3]int
	var delay [3]int
	for range 3000 {
		below[r.Below(3)]++
		delay[r.Delay(2*time.Nanosecond)]++
	}
	for i := range 3 {
		if below[i] < 900 || delay[i] < 900 {
			t.Errorf("%d came %d times of 3000 below 3, %d times as a delay of up to 2 ns", i, below[i], delay[i])
		}
	}
	if r.Below(0) != 0 || r.Below(-1) != 0 || r.Delay(0) != 0 || r.Delay(-time.Second) != 0 {
		t.Error("nothing to choose from is not 0")
	}
}

func TestFingerprintNoticesEachByte(t *testing.T) {
	for n := range 40 {
		b := make([]byte, n)
		was := sim.Fingerprint(uint64(n), b)
		for i := range b {
			for bit := range 8 {
				b[i] ^= 1 << bit
				if sim.Fingerprint(uint64(n), b) == was {
					t.Errorf("bit %d of byte %d of %d is not noticed", bit, i, n)
				}
				b[i] ^= 1 << bit
			}
		}
		if sim.Fingerprint(uint64(n), b) != was {
			t.Errorf("%d bytes: another each time", n)
		}
	}
}
