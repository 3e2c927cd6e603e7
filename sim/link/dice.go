package link

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"sort"
	"time"
)

// fate is what chance has in store for one frame.
type fate struct {
	lost, corrupt, reorder, duplicate bool
	bit                               uint64 // which bit is flipped, modulo the frame's bits
	delay                             int64  // ns beyond Config.Delay
}

// dice are the random streams of one direction, one per effect. Every effect that is on draws the same number of times for
// every frame, whatever becomes of the frame: so no effect depends on another.
type dice struct {
	cfg                                                              Config
	loss, gilbert, corrupt, bit, reorder, duplicate, jitter, weights rand.PCG
	idle                                                             bool // no effect is on
	bad                                                              bool // Gilbert-Elliott state
	sums                                                             []uint64
}

func newDice(cfg Config, seed uint64, dir Direction) dice {
	d := dice{cfg: cfg}
	d.idle = cfg.Loss == 0 && cfg.Gilbert == nil && cfg.Corrupt == 0 && cfg.Reorder == 0 && cfg.ReorderEvery == 0 &&
		cfg.Duplicate == 0 && cfg.DuplicateEvery == 0 && cfg.Jitter == 0 && len(cfg.Delays) == 0
	for i, s := range []*rand.PCG{&d.loss, &d.gilbert, &d.corrupt, &d.bit, &d.reorder, &d.duplicate, &d.jitter, &d.weights} {
		s.Seed(mix(seed), mix(uint64(dir)<<32|uint64(i)))
	}
	var sum uint64
	for _, w := range cfg.Delays {
		sum += uint64(w.Weight)
		d.sums = append(d.sums, sum)
	}
	return d
}

// roll decides about frame id. It is called once for each, in order.
func (d *dice) roll(id uint64) fate {
	var f fate
	if d.idle {
		return f
	}
	c := &d.cfg
	f.lost = happens(&d.loss, c.Loss)
	if g := c.Gilbert; g != nil && d.burst(g) {
		f.lost = true
	}
	if f.corrupt = happens(&d.corrupt, c.Corrupt); c.Corrupt > 0 {
		f.bit = d.bit.Uint64()
	}
	f.reorder = happens(&d.reorder, c.Reorder) || every(id, c.ReorderEvery)
	f.duplicate = happens(&d.duplicate, c.Duplicate) || every(id, c.DuplicateEvery)
	if c.Jitter > 0 {
		f.delay = int64(below(&d.jitter, uint64(c.Jitter)+1))
	}
	if len(c.Delays) > 0 {
		f.delay += int64(d.weighted())
	}
	return f
}

// burst steps the Gilbert-Elliott chain and tells whether this frame is lost.
func (d *dice) burst(g *GilbertElliott) bool {
	change, loss := g.P, g.LossGood
	if d.bad {
		change = g.R
	}
	if less(d.gilbert.Uint64(), change) {
		d.bad = !d.bad
	}
	if d.bad {
		loss = g.LossBad
	}
	return less(d.gilbert.Uint64(), loss)
}

// weighted chooses one of Config.Delays.
func (d *dice) weighted() time.Duration {
	x := below(&d.weights, d.sums[len(d.sums)-1])
	i := sort.Search(len(d.sums), func(i int) bool { return d.sums[i] > x })
	return d.cfg.Delays[i].Delay
}

// happens draws from s when p is above 0.
func happens(s *rand.PCG, p float64) bool { return p > 0 && less(s.Uint64(), p) }

// less reports whether the random number x, read as a fraction of 2^64, is below p.
func less(x uint64, p float64) bool { return p >= 1 || x < uint64(math.Ldexp(p, 64)) }

func every(id uint64, n int) bool { return n > 0 && (id+1)%uint64(n) == 0 }

// below is a random number in [0, n). The multiplication favours some numbers by less than n in 2^64; what it saves is a
// second draw, ever.
func below(s *rand.PCG, n uint64) uint64 {
	hi, _ := bits.Mul64(s.Uint64(), n)
	return hi
}

// mix spreads the bits of a small number over 64 (the finalizer of SplitMix64; G. Steele et al., OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
