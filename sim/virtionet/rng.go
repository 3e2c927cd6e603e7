package virtionet

import (
	"time"

	"bare.wire/sim"
)

const never = sim.Never

// rng is a small fast generator (xorshift64*), one per device, so that a run is repeated exactly from its seed.
type rng uint64

func newRNG(seed uint64) rng {
	// splitmix64 of the seed: neighbouring seeds give unrelated runs, and the state is never 0.
	z := seed + 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return rng(z ^ z>>31 | 1)
}

func (r *rng) next() uint64 {
	x := uint64(*r)
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	*r = rng(x)
	return x * 0x2545F4914F6CDD1D
}

// below returns a number from 0 to n-1; 0 when n is 0.
func (r *rng) below(n int) int {
	if n <= 0 {
		return 0
	}
	return int((r.next() >> 33) % uint64(n))
}

// delay returns 0 … d, ns.
func (r *rng) delay(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((r.next() >> 20) % uint64(d+1))
}
