package link

import (
	"errors"
	"fmt"
	"time"
)

// DefaultHold is how long a frame that is held back for others to overtake it waits for them, unless [Config.Hold] says
// otherwise.
const DefaultHold = time.Millisecond

// maxDelay bounds every duration of a Config, so that no sum of them overflows.
const maxDelay = 24 * time.Hour

// The rates that a wire can have, bit/s: times neither overflow nor all become 0.
const (
	minRate = 1e3
	maxRate = 1e15
)

// Config describes a wire. The zero value is a perfect one: infinitely fast, no delay, nothing lost. It holds for both
// directions; AToB and BToA, where set, replace everything but Seed, Record, RecordLimit and Flap for one of them.
type Config struct {
	// Rate is the wire's own rate in bit/s, 0 for infinite. The wire takes a frame in whole and then sends it on, as a
	// switch would: a lone frame takes its transmission time again. Times are exact; no rounding adds up.
	Rate uint64
	// Queue is how many frames wait for the wire at most, the one being sent among them; 0 is no limit. A frame that
	// finds it full is dropped. Without Rate nothing waits.
	Queue int

	// Delay is the time of flight. Jitter adds up to that much, evenly spread; Delays adds one of its delays, chosen by
	// weight. A frame delayed more holds back those behind it, unless Overtake is set: then it is overtaken.
	Delay    time.Duration
	Jitter   time.Duration
	Delays   []WeightedDelay
	Overtake bool

	// Loss is the probability that a frame is lost; Gilbert, when set, loses more of them, in bursts.
	Loss    float64
	Gilbert *GilbertElliott
	// DropIf, when set, loses the frames for which it returns true. data is valid during the call only.
	DropIf func(id uint64, data []byte) bool

	// Corrupt is the probability that one bit of a frame is flipped. The receiver sees a bad FCS, or, with
	// CorruptKeepFCS, no sign of it.
	Corrupt        float64
	CorruptKeepFCS bool

	// Reorder is the probability that a frame is held back; ReorderEvery n holds back every n-th (ID n-1, 2n-1, …). It is
	// held back by ReorderDelay, or if that is 0 until ReorderBy (0 means 1) further frames have arrived.
	Reorder      float64
	ReorderEvery int
	ReorderBy    int
	ReorderDelay time.Duration

	// Duplicate is the probability that a frame is copied; DuplicateEvery n copies every n-th. There are DuplicateCopies
	// (0 means 1) copies, which arrive right behind it or, with DuplicateBy, when so many further frames have arrived.
	Duplicate       float64
	DuplicateEvery  int
	DuplicateCopies int
	DuplicateBy     int

	// Hold is the longest that ReorderBy and DuplicateBy wait for frames that do not come; 0 is [DefaultHold].
	Hold time.Duration

	// Flap takes the whole wire down at times.
	Flap Flap

	// Seed makes a run another run.
	Seed uint64
	// Record keeps lists of all that happens to frames, at most RecordLimit entries each (0: no limit). Without it there
	// are only counts.
	Record      bool
	RecordLimit int

	AToB, BToA *Config
}

// WeightedDelay is one of several delays; it is chosen in proportion to its weight.
type WeightedDelay struct {
	Delay  time.Duration
	Weight uint32
}

// GilbertElliott is loss in bursts: a wire that is good or bad, and changes sides before each frame with probability P
// (good to bad) or R (bad to good). It starts good. The long-run share of bad is P/(P+R), and 1/R frames is the mean length
// of a bad spell.
// (E. N. Gilbert, Bell System Technical Journal 39, 1960; E. O. Elliott, 42, 1963.)
type GilbertElliott struct {
	P, R              float64
	LossGood, LossBad float64
}

// Loss is the long-run share of frames lost.
func (g GilbertElliott) Loss() float64 {
	if g.P+g.R == 0 {
		return g.LossGood
	}
	bad := g.P / (g.P + g.R)
	return bad*g.LossBad + (1-bad)*g.LossGood
}

// Validate says what is wrong with a configuration.
func (c Config) Validate() error {
	_, _, err := c.directions()
	return err
}

// directions returns the two configurations in use, checked.
func (c Config) directions() (ab, ba Config, err error) {
	if err := errors.Join(c.check(""), c.Flap.check()); err != nil {
		return c, c, err
	}
	if c.RecordLimit < 0 {
		return c, c, fmt.Errorf("link: RecordLimit is %d, want 0 (no limit) or more", c.RecordLimit)
	}
	ab, ba = c, c
	if c.AToB != nil {
		ab = *c.AToB
		err = errors.Join(err, ab.check("AToB."))
	}
	if c.BToA != nil {
		ba = *c.BToA
		err = errors.Join(err, ba.check("BToA."))
	}
	return ab, ba, err
}

// check tests the values of one direction; prefix names it.
func (c Config) check(prefix string) error {
	var errs []error
	bad := func(ok bool, name string, got any, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("link: %s%s is %v, want %s", prefix, name, got, want))
		}
	}
	share := func(name string, p float64) { bad(p >= 0 && p <= 1, name, p, "a probability from 0 to 1") }
	span := func(name string, d time.Duration) {
		bad(d >= 0 && d <= maxDelay, name, d, "a duration from 0 to "+maxDelay.String())
	}
	count := func(name string, n int) { bad(n >= 0 && n <= 1<<24, name, n, "a number from 0 to 16777216") }

	bad(c.Rate == 0 || c.Rate >= minRate && c.Rate <= maxRate, "Rate", c.Rate, "0 (infinite) or 1e3 to 1e15 bit/s")
	count("Queue", c.Queue)
	span("Delay", c.Delay)
	span("Jitter", c.Jitter)
	for _, d := range c.Delays {
		span("Delays", d.Delay)
	}
	if len(c.Delays) > 0 {
		total := weights(c.Delays)
		bad(total > 0, "Delays", "of no weight", "a weight above 0")
	}
	share("Loss", c.Loss)
	if g := c.Gilbert; g != nil {
		share("Gilbert.P", g.P)
		share("Gilbert.R", g.R)
		share("Gilbert.LossGood", g.LossGood)
		share("Gilbert.LossBad", g.LossBad)
	}
	share("Corrupt", c.Corrupt)
	share("Reorder", c.Reorder)
	count("ReorderEvery", c.ReorderEvery)
	count("ReorderBy", c.ReorderBy)
	span("ReorderDelay", c.ReorderDelay)
	share("Duplicate", c.Duplicate)
	count("DuplicateEvery", c.DuplicateEvery)
	bad(c.DuplicateCopies >= 0 && c.DuplicateCopies <= 1000, "DuplicateCopies", c.DuplicateCopies, "a number from 0 to 1000")
	count("DuplicateBy", c.DuplicateBy)
	span("Hold", c.Hold)
	bad(prefix == "" || c.AToB == nil && c.BToA == nil, "AToB, BToA", "set", "them set in the outermost Config only")
	return errors.Join(errs...)
}

func (f Flap) check() error {
	for _, d := range []time.Duration{f.First, f.Every, f.Down} {
		if d < 0 || d > maxDelay {
			return fmt.Errorf("link: Flap has a duration of %v, want 0 to %v", d, maxDelay)
		}
	}
	if f.Every > 0 && f.Down >= f.Every {
		return fmt.Errorf("link: Flap takes the link down for %v every %v, want less than that, so that it comes up again", f.Down, f.Every)
	}
	return nil
}

func weights(ds []WeightedDelay) (sum uint64) {
	for _, d := range ds {
		sum += uint64(d.Weight)
	}
	return sum
}
