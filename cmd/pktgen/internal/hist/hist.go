// Package hist counts durations in nanoseconds from 0 to 10 s at three significant digits: latencies of frames, lateness of
// the pacer.
//
// It is an HDR histogram (github.com/HdrHistogram/hdrhistogram-go, 205 kB each, no allocation per value) with exact minimum,
// maximum and mean beside it, and with counts of what does not fit: a duration above 10 s is overflow, one below 0 (clocks
// that disagree) is negative; neither is dropped silently.
//
// The percentile p of n values is the value at rank ceil(p/100·n) of the sorted values, counted from 1, to within 0.1 %
// (reference: benchmark methods, RFC 8219).
package hist

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Max is the largest duration with a bucket of its own, ns.
const Max = 10_000_000_000

// Histogram is made by New. One goroutine records.
type Histogram struct {
	h          *hdrhistogram.Histogram
	min, max   int64
	sumHi, sum uint64
	overflow   uint64 // above Max
	negative   uint64 // below 0
}

// New returns an empty histogram.
func New() *Histogram {
	h := &Histogram{h: hdrhistogram.New(1, Max, 3)}
	h.Reset()
	return h
}

// Record counts one duration of ns nanoseconds.
func (h *Histogram) Record(ns int64) { h.RecordN(ns, 1) }

// RecordN counts ns n times.
func (h *Histogram) RecordN(ns int64, n int64) {
	if ns < 0 {
		h.negative += uint64(n)
		return
	}
	if ns > Max || h.h.RecordValues(ns, n) != nil {
		h.overflow += uint64(n)
		h.max = max(h.max, ns)
		return
	}
	h.min = min(h.min, ns)
	h.max = max(h.max, ns)
	hi, lo := bits.Mul64(uint64(ns), uint64(n))
	var carry uint64
	h.sum, carry = bits.Add64(h.sum, lo, 0)
	h.sumHi += hi + carry
}

// Reset empties it.
func (h *Histogram) Reset() {
	h.h.Reset()
	h.min, h.max = math.MaxInt64, 0
	h.sumHi, h.sum, h.overflow, h.negative = 0, 0, 0, 0
}

// Merge adds all that o has counted.
func (h *Histogram) Merge(o *Histogram) {
	h.h.Merge(o.h) // same geometry: nothing can be dropped
	h.min, h.max = min(h.min, o.min), max(h.max, o.max)
	var carry uint64
	h.sum, carry = bits.Add64(h.sum, o.sum, 0)
	h.sumHi += o.sumHi + carry
	h.overflow += o.overflow
	h.negative += o.negative
}

// Count is the number of durations in the buckets, Overflow of those above 10 s, Negative of those below 0.
func (h *Histogram) Count() uint64    { return uint64(h.h.TotalCount()) }
func (h *Histogram) Overflow() uint64 { return h.overflow }
func (h *Histogram) Negative() uint64 { return h.negative }

// Min is the smallest duration counted, ns, exactly; 0 when there is none.
func (h *Histogram) Min() int64 {
	if h.Count() == 0 {
		return 0
	}
	return h.min
}

// Max is the largest duration seen, ns, exactly, overflow included; 0 when there is none.
func (h *Histogram) Max() int64 { return h.max }

// Mean is the mean of what is in the buckets, rounded to a nanosecond.
func (h *Histogram) Mean() int64 {
	n := h.Count()
	if n == 0 {
		return 0
	}
	q, r := bits.Div64(h.sumHi, h.sum, n) // a mean is at most Max, so the quotient fits
	if r >= n-r {
		q++
	}
	return int64(q)
}

// StdDev is the standard deviation, ns, at the precision of the buckets.
func (h *Histogram) StdDev() int64 {
	if h.Count() == 0 || h.min == h.max {
		return 0
	}
	return int64(math.Round(h.h.StdDev()))
}

// Percentile returns the duration at num/den of the values: Percentile(999, 1000) is p99.9. It is never outside Min and Max.
func (h *Histogram) Percentile(num, den uint64) int64 {
	n := h.Count()
	if n == 0 {
		return 0
	}
	hi, lo := bits.Mul64(n, min(num, den))
	rank, rem := bits.Div64(hi, lo, den) // at most n
	if rem != 0 {
		rank++
	}
	v := h.h.ValueAtPercentile(float64(max(rank, 1)) / float64(n) * 100)
	return min(max(v, h.min), h.max)
}

// Encode returns the buckets as HDR V2 compressed base64, what other HDR histogram tools read ("HISTFAAAA…").
func (h *Histogram) Encode() (string, error) {
	b, err := h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return "", fmt.Errorf("encode the latency histogram: %w", err)
	}
	return string(b), nil
}
