package units

import (
	"fmt"
	"math/bits"
	"strings"
)

// A RateKind says what a rate counts.
type RateKind uint8

// What a rate may count.
const (
	PPS     RateKind = iota // frames a second
	L1                      // bit/s on the wire: frame, FCS, preamble, start delimiter, gap
	L2                      // bit/s of frames with FCS
	Percent                 // of the link's L1 rate
	Max                     // as fast as the device takes frames
)

// A Rate is what the user asked for, exactly: value Num/Den in the unit of Kind.
type Rate struct {
	Kind     RateKind
	num, den uint64
}

const rateHelp = "write 10kpps, 1Mpps, 1Gbps (wire bits), 1GbpsL2 (frame with FCS), 37.5% or max"

// rateUnits is searched by suffix, longest first; L2 forms before the plain ones they end in.
var rateUnits = []struct {
	suffix string
	kind   RateKind
}{
	{"bpsl2", L2}, {"bit/sl2", L2}, {"b/sl2", L2},
	{"bpsl1", L1}, {"bit/s", L1}, {"b/s", L1}, {"bps", L1},
	{"pps", PPS}, {"p/s", PPS}, {"%", Percent},
}

// ParseRate reads "10kpps", "1Mpps", "1Gbps" (L1), "1GbpsL2", "37.5%" or "max".
func ParseRate(s string) (Rate, error) {
	word := strings.TrimSpace(s)
	if strings.EqualFold(word, "max") {
		return Rate{Kind: Max, den: 1}, nil
	}
	r, rest, err := decimal(word)
	if err != nil {
		return Rate{}, fmt.Errorf("rate %q: %w; %s", s, err, rateHelp)
	}
	unit := strings.ToLower(rest)
	for _, u := range rateUnits {
		prefix, ok := strings.CutSuffix(unit, u.suffix)
		if !ok {
			continue
		}
		mult, known := multipliers[prefix]
		if !known || (u.kind == Percent && prefix != "") {
			return Rate{}, fmt.Errorf("rate %q: %q is no multiplier; %s", s, prefix, rateHelp)
		}
		if prefix == "m" && strings.HasPrefix(rest, "m") {
			return Rate{}, fmt.Errorf("rate %q: a small m is a thousandth; did you mean M (million)? %s", s, rateHelp)
		}
		if r, err = r.mul(mult); err != nil {
			return Rate{}, fmt.Errorf("rate %q: %w; %s", s, err, rateHelp)
		}
		return checkRate(s, Rate{u.kind, r.num, r.den})
	}
	if rest == "" {
		if r.num == 0 {
			return Rate{}, fmt.Errorf("rate %q: nothing would be sent; %s", s, rateHelp)
		}
		return Rate{}, fmt.Errorf("rate %q: the unit is missing; did you mean %spps? %s", s, word, rateHelp)
	}
	return Rate{}, fmt.Errorf("rate %q: unknown unit %q; %s", s, rest, rateHelp)
}

func checkRate(s string, r Rate) (Rate, error) {
	if r.num == 0 {
		return Rate{}, fmt.Errorf("rate %q: is zero, nothing would be sent; %s", s, rateHelp)
	}
	hi, hundred := bits.Mul64(100, r.den) // den is at most 10^maxFraction, so hi is 0
	if r.Kind == Percent && hi == 0 && r.num > hundred {
		return Rate{}, fmt.Errorf("rate %q: more than 100%% of the link; write 100%% or max", s)
	}
	return r, nil
}

// NeedsLink reports whether the rate can be turned into frames a second only once the link's speed is known.
func (r Rate) NeedsLink() bool { return r.Kind == Percent }

// PerSecond gives the rate as an exact ratio of frames a second for frames of sizeFCS bytes (with FCS) on a link of linkBPS
// bit/s (needed for per cents only). Max has no ratio: it is an error to ask.
func (r Rate) PerSecond(sizeFCS int, linkBPS uint64) (num, den uint64, err error) {
	v := ratio{r.num, max(r.den, 1)}
	switch r.Kind {
	case PPS:
	case L1:
		v, err = v.div(8 * uint64(sizeFCS+L1Overhead))
	case L2:
		v, err = v.div(8 * uint64(sizeFCS))
	case Percent:
		if linkBPS == 0 {
			return 0, 0, fmt.Errorf("rate %v: the link's speed is not known; give the rate in pps or bps", r)
		}
		v, err = percentOf(v, linkBPS, 8*uint64(sizeFCS+L1Overhead))
	default:
		return 0, 0, fmt.Errorf("rate max has no frames a second")
	}
	if err != nil {
		return 0, 0, fmt.Errorf("rate %v: %w", r, err)
	}
	if hi, _ := bits.Mul64(v.den, 1e9); hi != 0 {
		return 0, 0, fmt.Errorf("rate %v: is finer than the schedule can keep; give fewer digits", r)
	}
	return v.num, v.den, nil
}

func percentOf(v ratio, link, bitsPerFrame uint64) (ratio, error) {
	v, err := v.div(100)
	if err == nil {
		v, err = v.div(bitsPerFrame)
	}
	if err == nil {
		v, err = v.mul(link)
	}
	return v, err
}

// String writes the rate as ParseRate reads it.
func (r Rate) String() string {
	v := ratio{r.num, max(r.den, 1)}
	if r.Kind == Percent {
		return v.String() + "%"
	}
	if r.Kind == Max {
		return "max"
	}
	prefix := ""
	for _, p := range []struct {
		name string
		by   uint64
	}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if v.den == 1 && v.num >= p.by {
			// an exact decimal with a prefix is at most nine digits behind the point, which decimal accepts
			v, prefix = ratio{v.num, p.by}.reduce(), p.name
			break
		}
	}
	return v.String() + prefix + [...]string{PPS: "pps", L1: "bps", L2: "bpsL2"}[r.Kind]
}

// LineRate is the most frames of sizeFCS bytes a second that a link of linkBPS bit/s carries, rounded down
// (RFC 2544 appendix B: 64 bytes at 10 Gb/s is 14 880 952).
func LineRate(sizeFCS int, linkBPS uint64) uint64 {
	return linkBPS / (8 * uint64(sizeFCS+L1Overhead))
}
