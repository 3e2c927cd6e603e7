// Package pace decides when frames are sent, and says honestly afterwards how well that was kept.
//
// The schedule is absolute: frame i is due at t0 + i·10⁹·den/num ns, in 128-bit integer arithmetic. Nothing is accumulated,
// so it cannot drift, whatever the rate and however long the run. A [Pacer] follows it: asked "what now?" it answers how
// many frames to send; small delays are caught up, larger ones are skipped and counted, and the end is the end: a run is
// never stretched to get its frames out. It reads no clock; times are int64 ns of whatever clock the caller uses.
//
// Why so: the reference notes on generators that stretched their runs, drifted, or trusted their timers.
package pace

import (
	"fmt"
	"math"
	"math/bits"
)

// Schedule gives each frame its time. The rate is Num/Den frames a second.
type Schedule struct {
	Start    int64 // when frame 0 is due, ns
	Num, Den uint64
}

// NewSchedule checks the ratio: both above 0, Den at most 2⁶⁴/10⁹ (units.Rate.PerSecond gives nothing else).
func NewSchedule(start int64, num, den uint64) (Schedule, error) {
	if hi, _ := bits.Mul64(den, 1e9); num == 0 || den == 0 || hi != 0 {
		return Schedule{}, fmt.Errorf("a rate of %d/%d frames a second cannot be scheduled; both must be above 0 and the second below 1.8e10", num, den)
	}
	return Schedule{start, num, den}, nil
}

// Due is when frame i is to be sent, rounded down to a nanosecond; math.MaxInt64 when that is beyond 292 years.
func (s Schedule) Due(i uint64) int64 {
	hi, lo := bits.Mul64(i, s.Den*1e9)
	if hi >= s.Num {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, s.Num)
	if q > uint64(math.MaxInt64) || s.Start > math.MaxInt64-int64(q) {
		return math.MaxInt64
	}
	return s.Start + int64(q)
}

// Before is how many frames are due before t: those i with Due(i) < t.
func (s Schedule) Before(t int64) uint64 {
	if t <= s.Start {
		return 0
	}
	// Due(i) < t  ⇔  i·den·10⁹/num < t-start, because t is whole  ⇔  i < (t-start)·num / (den·10⁹)
	per := s.Den * 1e9
	hi, lo := bits.Mul64(uint64(t-s.Start), s.Num)
	if hi >= per {
		return math.MaxUint64
	}
	q, rem := bits.Div64(hi, lo, per)
	if rem != 0 {
		q++
	}
	return q
}

// By is how many frames are due at t or before.
func (s Schedule) By(t int64) uint64 {
	if t == math.MaxInt64 {
		return math.MaxUint64
	}
	return s.Before(t + 1)
}
