package link

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parameter is one key of a query and what its value does to a Config.
type parameter struct {
	key     string
	means   string
	example string
	set     func(c *Config, v string) error
	whole   bool // for the wire, not for one direction
}

// parameters is the language of ParseConfig.
var parameters = []parameter{
	{"rate", "rate of the wire", "10G, 2.5Gbps, 100M, 1000000", func(c *Config, v string) (err error) { c.Rate, err = parseRate(v); return }, false},
	{"queue", "frames that wait at most", "512", intoInt(func(c *Config) *int { return &c.Queue }), false},
	{"delay", "time of flight", "5us, 1ms", intoSpan(func(c *Config) *time.Duration { return &c.Delay }), false},
	{"jitter", "up to that much more delay", "2us", intoSpan(func(c *Config) *time.Duration { return &c.Jitter }), false},
	{"delays", "further delays with weights", "0s:90,40us:10", parseDelays, false},
	{"overtake", "frames with less delay overtake", "true", intoBool(func(c *Config) *bool { return &c.Overtake }), false},
	{"loss", "share of frames lost", "1e-4, 0.01%", intoShare(func(c *Config) *float64 { return &c.Loss }), false},
	{"ge", "Gilbert-Elliott loss: p, r, loss while bad, loss while good", "0.001,0.1 or 0.001,0.1,0.8,1e-6", parseGilbert, false},
	{"corrupt", "share of frames with a flipped bit", "1e-6", intoShare(func(c *Config) *float64 { return &c.Corrupt }), false},
	{"corrupt-keep-fcs", "flipped bits do not show in the FCS", "true", intoBool(func(c *Config) *bool { return &c.CorruptKeepFCS }), false},
	{"reorder", "share of frames held back", "1e-3", intoShare(func(c *Config) *float64 { return &c.Reorder }), false},
	{"reorder-every", "every n-th frame is held back", "2", intoInt(func(c *Config) *int { return &c.ReorderEvery }), false},
	{"reorder-by", "frames that overtake one held back", "3", intoInt(func(c *Config) *int { return &c.ReorderBy }), false},
	{"reorder-delay", "delay of a frame held back, instead of reorder-by", "50us", intoSpan(func(c *Config) *time.Duration { return &c.ReorderDelay }), false},
	{"dup", "share of frames copied", "1e-3", intoShare(func(c *Config) *float64 { return &c.Duplicate }), false},
	{"dup-every", "every n-th frame is copied", "100", intoInt(func(c *Config) *int { return &c.DuplicateEvery }), false},
	{"dup-copies", "copies of a frame copied", "1", intoInt(func(c *Config) *int { return &c.DuplicateCopies }), false},
	{"dup-by", "frames between a frame and its copies", "10", intoInt(func(c *Config) *int { return &c.DuplicateBy }), false},
	{"hold", "longest that reorder-by and dup-by wait for more frames", "1ms", intoSpan(func(c *Config) *time.Duration { return &c.Hold }), false},
	{"flap", "link goes down: every, for how long", "10s,200ms", parseFlap, true},
	{"seed", "another number is another run", "1", parseSeed, true},
	{"record", "keep lists of what happened to frames", "true", intoBool(func(c *Config) *bool { return &c.Record }), true},
}

// Keys are the parameters that ParseConfig knows, without the prefixes for one direction.
func Keys() []string {
	keys := make([]string, len(parameters))
	for i, p := range parameters {
		keys[i] = p.key
	}
	return keys
}

// Usage describes each parameter on a line of its own.
func Usage() string {
	var b strings.Builder
	for _, p := range parameters {
		fmt.Fprintf(&b, "%-17s %s (%s)\n", p.key, p.means, p.example)
	}
	return b.String()
}

// ParseConfig reads a wire from a query like
//
//	rate=10G&delay=5us&loss=1e-4&queue=512&seed=1
//
// A key is for both directions; "ab.loss" is for the one from A to B, "ba.loss" for the other. An error names every parameter
// that is wrong, what was read, and an example. See [Usage] for the keys.
func ParseConfig(q url.Values) (Config, error) {
	var c Config
	var errs []error
	keys := make([]string, 0, len(q))
	for k := range q {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { // those for one direction build upon those for both
		return strings.Compare(directionOf(a)+"\x00"+a, directionOf(b)+"\x00"+b)
	})
	for _, k := range keys {
		errs = append(errs, c.apply(k, q[k]))
	}
	if err := errors.Join(errs...); err != nil {
		return Config{}, err
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// directionOf is "ab", "ba" or "".
func directionOf(key string) string {
	if d, _, ok := strings.Cut(key, "."); ok && (d == "ab" || d == "ba") {
		return d
	}
	return ""
}

// apply sets one parameter.
func (c *Config) apply(key string, values []string) error {
	dir := directionOf(key)
	name := strings.TrimPrefix(key, dir+".")
	i := slices.IndexFunc(parameters, func(p parameter) bool { return p.key == name })
	if i < 0 {
		return fmt.Errorf("link: no parameter is called %q; %s", clip(key), suggest(name))
	}
	p := parameters[i]
	switch {
	case len(values) != 1:
		return fmt.Errorf("link: %s is given %d times, want it once", key, len(values))
	case p.whole && dir != "":
		return fmt.Errorf("link: %s is for the whole wire: write %s", key, name)
	}
	if err := p.set(c.direction(dir), values[0]); err != nil {
		return fmt.Errorf("link: %s (%s) is %q: %w; examples: %s", key, p.means, clip(values[0]), err, p.example)
	}
	return nil
}

// direction is the part of c that a prefix names; the first time it is a copy of what holds for both.
func (c *Config) direction(dir string) *Config {
	var at **Config
	switch dir {
	case "ab":
		at = &c.AToB
	case "ba":
		at = &c.BToA
	default:
		return c
	}
	if *at == nil {
		d := *c
		d.AToB, d.BToA = nil, nil
		*at = &d
	}
	return *at
}

// clip keeps hostile input out of error messages.
func clip(s string) string {
	if len(s) > 40 {
		return s[:37] + "..."
	}
	return s
}

// suggest names the parameters nearest to an unknown one, or all of them.
func suggest(name string) string {
	best, min := "", 3
	if len(name) <= 40 {
		for _, p := range parameters {
			if d := distance(name, p.key); d < min {
				best, min = p.key, d
			}
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "known are " + strings.Join(Keys(), ", ")
}

// distance is the number of single letters to insert, delete or replace to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diag
			if a[i] != b[j] {
				d++
			}
			diag = row[j+1]
			row[j+1] = min(d, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func intoInt(field func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.ParseUint(v, 10, 24)
		if err != nil {
			return errors.New("want a whole number from 0 to 16777215")
		}
		*field(c) = int(n)
		return nil
	}
}

func intoSpan(field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		*field(c), err = parseSpan(v)
		return err
	}
}

func intoBool(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) error {
		if v == "" { // "overtake" alone
			v = "true"
		}
		on, err := strconv.ParseBool(v)
		if err != nil {
			return errors.New("want true or false")
		}
		*field(c) = on
		return nil
	}
}

func intoShare(field func(*Config) *float64) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		*field(c), err = parseShare(v)
		return err
	}
}

func parseSpan(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || d > maxDelay {
		return 0, fmt.Errorf("want a duration with its unit (ns, us, ms, s), at most %v", maxDelay)
	}
	return d, nil
}

// parseShare reads a probability, plain or in percent.
func parseShare(v string) (float64, error) {
	num, percent := strings.CutSuffix(v, "%")
	p, err := strconv.ParseFloat(num, 64)
	if percent {
		p /= 100
	}
	if err != nil || !(p >= 0 && p <= 1) { // not: NaN
		return 0, errors.New("want a share from 0 to 1, or a percentage")
	}
	return p, nil
}

// parseRate reads a rate in bit/s with a decimal suffix.
func parseRate(v string) (uint64, error) {
	num := v
	for _, unit := range []string{"bit/s", "bps"} {
		num = strings.TrimSuffix(num, unit)
	}
	scale := 1.0
	if i := len(num) - 1; i > 0 {
		switch num[i] {
		case 'k', 'K':
			scale = 1e3
		case 'M':
			scale = 1e6
		case 'G':
			scale = 1e9
		case 'T':
			scale = 1e12
		}
		if scale > 1 {
			num = num[:i]
		}
	}
	r, err := strconv.ParseFloat(num, 64)
	r *= scale
	if err != nil || r != 0 && !(r >= minRate && r <= maxRate) {
		return 0, errors.New("want bit/s, with k, M, G or T for 10^3 to 10^12, from 1k to 1000T; 0 is infinite")
	}
	return uint64(math.Round(r)), nil
}

func parseDelays(c *Config, v string) error {
	c.Delays = nil
	for part := range strings.SplitSeq(v, ",") {
		span, weight, _ := strings.Cut(part, ":")
		d, err := parseSpan(span)
		w, werr := strconv.ParseUint(weight, 10, 32)
		if err != nil || werr != nil {
			return errors.New("want DELAY:WEIGHT, several of them separated by commas")
		}
		c.Delays = append(c.Delays, WeightedDelay{d, uint32(w)})
		if len(c.Delays) > 1000 {
			return errors.New("want at most 1000 delays")
		}
	}
	return nil
}

func parseGilbert(c *Config, v string) error {
	parts := strings.SplitN(v, ",", 5)
	g := &GilbertElliott{LossBad: 1}
	into := []*float64{&g.P, &g.R, &g.LossBad, &g.LossGood}
	if len(parts) < 2 || len(parts) > len(into) {
		return errors.New("want two to four shares separated by commas")
	}
	for i, s := range parts {
		p, err := parseShare(s)
		if err != nil {
			return err
		}
		*into[i] = p
	}
	c.Gilbert = g
	return nil
}

func parseFlap(c *Config, v string) error {
	every, down, ok := strings.Cut(v, ",")
	e, err := parseSpan(every)
	d, derr := parseSpan(down)
	if !ok || err != nil || derr != nil || d >= e {
		return errors.New("want two durations separated by a comma, the second the shorter one")
	}
	c.Flap = Flap{First: e, Every: e, Down: d}
	return nil
}

func parseSeed(c *Config, v string) (err error) {
	if c.Seed, err = strconv.ParseUint(v, 0, 64); err != nil {
		return errors.New("want a whole number below 2^64")
	}
	return nil
}
