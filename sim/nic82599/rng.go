package nic82599

import "time"

// rng is a small fast generator (xorshift64*), one per card, so that a run is repeated exactly from its seed.
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

// late is a bit that shows some time after its cause, or after a few reads of it: a driver that polls without a clock gets
// there too.
type late struct {
	at    int64 // ns
	reads int
}

// start begins to wait for d, or for the given number of reads; 0 reads: time only.
func (l *late) start(now, d int64, reads int) { l.at, l.reads = now+d, reads }

// poll says, at a read, whether the bit shows.
func (l *late) poll(now int64) bool {
	if now >= l.at {
		return true
	}
	if l.reads > 0 {
		if l.reads--; l.reads == 0 {
			l.at = now
		}
	}
	return false
}

// never makes the bit never show.
func (l *late) never() { l.at, l.reads = 1<<62, 0 }
