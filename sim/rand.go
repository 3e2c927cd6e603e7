package sim

import "time"

// Rand is a small fast generator (xorshift64*), one for each device, so that a run is repeated exactly from its seed.
type Rand uint64

// NewRand returns the generator of a seed.
func NewRand(seed uint64) Rand {
	// splitmix64 of the seed: neighbouring seeds give unrelated runs, and the state is never 0.
	z := seed + 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return Rand(z ^ z>>31 | 1)
}

// Next returns 64 bits.
func (r *Rand) Next() uint64 {
	x := uint64(*r)
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	*r = Rand(x)
	return x * 0x2545F4914F6CDD1D
}

// Below returns a number from 0 to n-1; 0 when n is 0.
func (r *Rand) Below(n int) int {
	if n <= 0 {
		return 0
	}
	return int((r.Next() >> 33) % uint64(n))
}

// Delay returns 0 … d, ns.
func (r *Rand) Delay(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((r.Next() >> 20) % uint64(d+1))
}
