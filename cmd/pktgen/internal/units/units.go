// Package units reads the quantities a user writes on pktgen's command line: rates, frame sizes, durations, counts,
// addresses, ports and VLAN tags.
//
// A word comes in as a string and leaves as an exact integer or as an exact ratio of integers; no float is involved, so
// that the schedule made from a rate never drifts. Every error repeats the word it could not read and says what would
// have been understood.
//
// Conventions, said once: sizes are bytes with the FCS (RFC 1242 §3.5); "bps" is L1, what the wire carries including the
// 20 bytes of preamble, start delimiter and gap; "bpsL2" counts the frame with its FCS only; a per cent is of the link's L1
// rate.
package units

import (
	"fmt"
	"math/bits"
	"strings"
)

const (
	// FCS is the length of the frame check sequence in bytes; devices count without it, users count with it.
	FCS = 4
	// L1Overhead is what a frame costs on the wire beyond itself, in bytes: preamble 7, start delimiter 1, gap 12.
	L1Overhead = 20
	// MinSize and MaxSize bound a frame, bytes with FCS. MaxSize is the 82599's largest (9.5 KiB jumbo, 9728).
	MinSize = 64
	MaxSize = 9728
)

// A ratio is num/den in lowest terms, den > 0.
type ratio struct{ num, den uint64 }

// maxFraction is how many digits may stand behind the decimal point.
const maxFraction = 9

// decimal reads "12", "1.5", "1e6", "2.5e3" exactly and returns what follows the number.
func decimal(s string) (r ratio, rest string, err error) {
	r = ratio{0, 1}
	i, digits, fraction := 0, 0, 0
	seenPoint := false
	for ; i < len(s); i++ {
		c := s[i]
		if c == '.' && !seenPoint {
			seenPoint = true
			continue
		}
		if c == '_' && digits > 0 && !seenPoint { // 1_000_000, as in Go
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		if seenPoint {
			fraction++
			if fraction > maxFraction {
				return r, s, fmt.Errorf("at most %d digits behind the point", maxFraction)
			}
			r.den *= 10
		}
		hi, lo := bits.Mul64(r.num, 10)
		sum, carry := bits.Add64(lo, uint64(c-'0'), 0)
		if hi != 0 || carry != 0 {
			return r, s, fmt.Errorf("the number is too large")
		}
		r.num = sum
		digits++
	}
	if digits == 0 && strings.HasPrefix(s, "-") {
		return r, s, fmt.Errorf("is negative")
	}
	if digits == 0 {
		return r, s, fmt.Errorf("a number is missing")
	}
	rest = s[i:]
	if len(rest) >= 2 && (rest[0] == 'e' || rest[0] == 'E') && rest[1] >= '0' && rest[1] <= '9' {
		exp := 0
		j := 1
		for ; j < len(rest) && rest[j] >= '0' && rest[j] <= '9'; j++ {
			if exp = exp*10 + int(rest[j]-'0'); exp > 19 {
				return r, s, fmt.Errorf("the exponent is too large")
			}
		}
		rest = rest[j:]
		for ; exp > 0; exp-- {
			if r, err = r.mul(10); err != nil {
				return r, s, err
			}
		}
	}
	return r.reduce(), rest, nil
}

// mul multiplies by n, staying exact; it fails when the numerator does not fit 64 bits.
func (r ratio) mul(n uint64) (ratio, error) {
	if g := gcd(n, r.den); g > 1 {
		n, r.den = n/g, r.den/g
	}
	hi, lo := bits.Mul64(r.num, n)
	if hi != 0 {
		return r, fmt.Errorf("the number is too large")
	}
	return ratio{lo, r.den}.reduce(), nil
}

// div divides by n, staying exact; it fails when the denominator does not fit 64 bits.
func (r ratio) div(n uint64) (ratio, error) {
	if g := gcd(n, r.num); g > 1 {
		n, r.num = n/g, r.num/g
	}
	hi, lo := bits.Mul64(r.den, n)
	if hi != 0 {
		return r, fmt.Errorf("the number is too fine")
	}
	return ratio{r.num, lo}.reduce(), nil
}

func (r ratio) reduce() ratio {
	if r.num == 0 {
		return ratio{0, 1}
	}
	if g := gcd(r.num, r.den); g > 1 {
		return ratio{r.num / g, r.den / g}
	}
	return r
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// String writes the ratio as a decimal when that is exact within maxFraction digits, else as a fraction.
func (r ratio) String() string {
	whole, rem := r.num/r.den, r.num%r.den
	if rem == 0 {
		return fmt.Sprint(whole)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d.", whole)
	for i := 0; i < maxFraction && rem != 0; i++ {
		hi, lo := bits.Mul64(rem, 10)
		var digit uint64
		digit, rem = bits.Div64(hi, lo, r.den) // hi < den because rem < den
		b.WriteByte('0' + byte(digit))
	}
	if rem != 0 {
		return fmt.Sprintf("%d/%d", r.num, r.den)
	}
	return b.String()
}

// multipliers are the decimal prefixes; nothing here is binary.
var multipliers = map[string]uint64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "m": 1e6, "G": 1e9, "g": 1e9, "T": 1e12}

// Count reads a number of frames: "3000000", "1e6", "10M", "2.5k".
func Count(s string) (uint64, error) {
	r, rest, err := decimal(s)
	if err != nil {
		return 0, fmt.Errorf("count %q: %w; write a number such as 1000, 1e6 or 10M", s, err)
	}
	mult, ok := multipliers[rest]
	if !ok {
		return 0, fmt.Errorf("count %q: %q is no multiplier; use k, M or G, as in 10M", s, rest)
	}
	if r, err = r.mul(mult); err != nil {
		return 0, fmt.Errorf("count %q: %w; the largest count is %d", s, err, uint64(1<<64-1))
	}
	if r.den != 1 {
		return 0, fmt.Errorf("count %q: is not a whole number of frames", s)
	}
	return r.num, nil
}

// A Limit is a number of frames, or a share of them.
type Limit struct {
	num, den uint64
	share    bool
	text     string
}

// ParseLimit reads "0", "12" (frames) or "0.1%".
func ParseLimit(s string) (Limit, error) {
	word, percent := strings.CutSuffix(s, "%")
	r, rest, err := decimal(word)
	if err == nil && rest != "" {
		err = fmt.Errorf("%q is not understood", rest)
	}
	if err == nil && percent {
		r, err = r.div(100)
	}
	if err == nil && percent && r.num > r.den {
		err = fmt.Errorf("is more than all of them")
	}
	if err == nil && !percent && r.den != 1 {
		err = fmt.Errorf("is not a whole number of frames; did you mean %s%%?", s)
	}
	if err != nil {
		return Limit{}, fmt.Errorf("limit %q: %w; write a number of frames, as in 0, or a share, as in 0.1%%", s, err)
	}
	return Limit{r.num, r.den, percent, s}, nil
}

// Allows reports whether n out of total are within the limit.
func (l Limit) Allows(n, total uint64) bool {
	if !l.share {
		return n <= l.num
	}
	nhi, nlo := bits.Mul64(n, l.den)
	lhi, llo := bits.Mul64(total, l.num)
	return nhi < lhi || nhi == lhi && nlo <= llo
}

// Share reports whether the limit is a share, so that its value is a ratio.
func (l Limit) Share() bool { return l.share }

// String writes the limit as it was read.
func (l Limit) String() string { return l.text }
