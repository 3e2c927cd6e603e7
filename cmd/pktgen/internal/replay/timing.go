package replay

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"bare.wire/cmd/pktgen/internal/units"
)

// Timing says when frames are sent: as they were captured, faster or slower, or at a rate.
type Timing struct {
	// Rate, when set, replaces the stamps: frames, or bits of each frame's own length, at an even pace; or as fast as the
	// ring takes them.
	Rate *units.Rate
	// Times makes the capture that much faster: the ratio Num/Den. Zero is 1/1.
	Num, Den uint64
	// MaxGap shortens every longer silence between two packets to it; 0 keeps them all. It is measured in the file's time.
	MaxGap time.Duration
}

const timingHelp = `write original, or a speed such as x2 (twice as fast) or x0.5`

// ParseTiming reads "original", "x2", "x0.25".
func ParseTiming(s string) (Timing, error) {
	if s == "original" {
		return Timing{Num: 1, Den: 1}, nil
	}
	factor, ok := strings.CutPrefix(s, "x")
	whole, fraction, _ := strings.Cut(factor, ".")
	n, err := strconv.ParseUint(whole+fraction, 10, 63)
	switch {
	case !ok || err != nil && !isRange(err) || len(whole) == 0:
		return Timing{}, fmt.Errorf("timing %q: %s", s, timingHelp)
	case isRange(err) || len(fraction) > 9:
		return Timing{}, fmt.Errorf("timing %q: too many digits; at most 18 and nine of them behind the point", s)
	case n == 0:
		return Timing{}, fmt.Errorf("timing %q: at speed 0 nothing would ever be sent; %s", s, timingHelp)
	}
	t := Timing{Num: n, Den: 1}
	for range fraction {
		t.Den *= 10
	}
	return t, nil
}

func isRange(err error) bool {
	e, ok := err.(*strconv.NumError)
	return ok && e.Err == strconv.ErrRange
}

// String writes the timing as the user would.
func (t Timing) String() string {
	switch {
	case t.Rate != nil:
		return t.Rate.String()
	case t.Num == t.Den:
		return "original"
	}
	return "x" + strconv.FormatFloat(float64(t.Num)/float64(t.Den), 'f', -1, 64)
}

// schedule gives each packet its time. It is absolute: every time is computed from the start, in whole nanoseconds of the
// capture or whole bits of the rate; nothing is rounded twice, so nothing drifts, however many passes there are.
//
// By stamps, packet i of pass k is due at start + (k·period + t(i) − t(0)) / speed, where the period is the time from the
// first packet to the last plus one mean gap, t(last)/(n−1). A packet whose stamp is lower than one before it in the file is
// due at once, and so is one without a stamp.
type schedule struct {
	start    int64 // ns of the clock
	num, den uint64
	maxGap   int64
	max      bool
	rate     bool

	// What the rate counts: overhead and bits of a frame, or 1.
	perFrame, perByte uint64
	sum               uint64 // of what has been sent

	base    int64 // where this pass begins, ns of the capture
	at      int64 // the latest packet of this pass, ns since its first one; silences shortened
	high    int64 // the same, as stamped
	zero    time.Time
	stamped bool
	packets uint64 // of this pass

	backwards, unstamped, shortened uint64
}

// newSchedule starts at start (ns). linkBPS is the speed of the link, for rates in per cent.
func newSchedule(t Timing, start int64, linkBPS uint64) (*schedule, error) {
	s := &schedule{start: start, num: max(t.Num, 1), den: max(t.Den, 1), maxGap: int64(t.MaxGap)}
	if t.Rate == nil {
		return s, nil
	}
	if s.rate = true; t.Rate.Kind == units.Max {
		s.max = true
		return s, nil
	}
	var err error
	if s.num, s.den, err = t.Rate.PerUnit(linkBPS); err != nil {
		return nil, err
	}
	switch t.Rate.Kind {
	case units.PPS:
		s.perFrame = 1
	case units.L2:
		s.perFrame, s.perByte = 8*units.FCS, 8
	default:
		s.perFrame, s.perByte = 8*(units.FCS+units.L1Overhead), 8
	}
	return s, nil
}

// due is when the next packet of the file is to be sent, ns of the clock; math.MaxInt64: in more than 292 years. Call it
// once for each packet. stamp is the zero time when there is none.
func (s *schedule) due(stamp time.Time) int64 {
	s.packets++
	switch {
	case stamp.IsZero():
		s.unstamped++
	case !s.stamped:
		s.stamped, s.zero = true, stamp
	default:
		s.advance(int64(stamp.Sub(s.zero))) // at most 292 years, by saturation
	}
	switch {
	case s.max:
		return s.start
	case s.rate:
		return s.after(s.sum)
	}
	if s.base > math.MaxInt64-s.at {
		return math.MaxInt64
	}
	return s.after(uint64(s.base + s.at))
}

// advance moves to a packet stamped offset ns after the first.
func (s *schedule) advance(offset int64) {
	if offset < s.high {
		s.backwards++
		return
	}
	gap := uint64(offset) - uint64(s.high) // offset may be negative only before the first: high is at least 0
	s.high = offset
	if s.maxGap > 0 && gap > uint64(s.maxGap) {
		gap = uint64(s.maxGap)
		s.shortened++
	}
	s.at += int64(gap)
}

// sent tells the schedule that the packet it was last asked about leaves as a frame of n bytes without FCS, padding included.
func (s *schedule) sent(n int) { s.sum += s.perFrame + s.perByte*uint64(n) }

// after is start + v·den/num: of nanoseconds, or of what the rate counts in a second.
func (s *schedule) after(v uint64) int64 {
	scale := s.den
	if s.rate {
		scale *= 1e9 // fits: PerUnit sees to it
	}
	hi, lo := bits.Mul64(v, scale)
	if hi >= s.num {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, s.num)
	if q > uint64(math.MaxInt64) || s.start > math.MaxInt64-int64(q) {
		return math.MaxInt64
	}
	return s.start + int64(q)
}

// pass ends a pass through the file.
func (s *schedule) pass() {
	period := s.at
	if s.packets > 1 {
		n := int64(s.packets - 1)
		gap := s.at/n + (s.at%n+n/2)/n
		period += min(gap, math.MaxInt64-period)
	}
	s.base += min(period, math.MaxInt64-s.base)
	s.at, s.high, s.stamped, s.packets = 0, 0, false, 0
}
