package units

import (
	"fmt"
	"math/bits"
)

// PerUnit gives the rate as an exact ratio of what it counts a second: frames for PPS; bits for L1, L2 and Percent, the
// latter of a link of linkBPS bit/s and on L1. It is for frames of many sizes, where PerSecond is for one. Max has no ratio:
// it is an error to ask.
func (r Rate) PerUnit(linkBPS uint64) (num, den uint64, err error) {
	v := ratio{r.num, max(r.den, 1)}
	switch {
	case r.Kind == Max:
		return 0, 0, fmt.Errorf("rate max counts nothing a second")
	case r.Kind == Percent && linkBPS == 0:
		return 0, 0, fmt.Errorf("rate %v: the link's speed is not known; give the rate in pps or bps", r)
	case r.Kind == Percent:
		v, err = percentOf(v, linkBPS, 1)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("rate %v: %w", r, err)
	}
	if hi, _ := bits.Mul64(v.den, 1e9); hi != 0 {
		return 0, 0, fmt.Errorf("rate %v: is finer than the schedule can keep; give fewer digits", r)
	}
	return v.num, v.den, nil
}
