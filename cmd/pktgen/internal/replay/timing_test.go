package replay

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"bare.wire/cmd/pktgen/internal/units"
)

var day = time.Date(2020, 2, 3, 4, 5, 6, 7, time.UTC)

func ExampleParseTiming() {
	for _, s := range []string{"original", "x2", "x0.5", "2"} {
		t, err := ParseTiming(s)
		fmt.Println(t, err)
	}
	// Output:
	// original <nil>
	// x2 <nil>
	// x0.5 <nil>
	// original timing "2": write original, or a speed such as x2 (twice as fast) or x0.5
}

func TestTimingsThatMakeNoSense(t *testing.T) {
	for _, s := range []string{"", "x", "x0", "x0.0", "x-1", "x.5", "x1e3", "x1.0000000001", "x99999999999999999999", "Original", "x1.2.3", "x 2"} {
		if got, err := ParseTiming(s); err == nil {
			t.Errorf("%q is understood as %v", s, got)
		}
	}
}

// play asks when each of the offsets (ns since the first) of each pass is due.
func play(t *testing.T, timing Timing, passes int, offsets ...int64) ([]int64, *schedule) {
	t.Helper()
	s, err := newSchedule(timing, 1000, 10e9)
	if err != nil {
		t.Fatal(err)
	}
	var out []int64
	for range passes {
		for _, o := range offsets {
			stamp := day.Add(time.Duration(o))
			if o == unstamped {
				stamp = time.Time{}
			}
			out = append(out, s.due(stamp))
			s.sent(60)
		}
		s.pass()
	}
	return out, s
}

const unstamped = math.MinInt64

func timing(s string) Timing {
	t, err := ParseTiming(s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestTimesAreThoseOfTheFile(t *testing.T) {
	for _, c := range []struct {
		name    string
		timing  Timing
		passes  int
		offsets []int64
		want    []int64 // since the start
	}{
		{"original", timing("original"), 1, []int64{0, 1, 5, 5, 1e18}, []int64{0, 1, 5, 5, 1e18}},
		{"twice as fast", timing("x2"), 1, []int64{0, 3, 100, 1e18}, []int64{0, 1, 50, 5e17}},
		{"slower", timing("x0.1"), 1, []int64{0, 3, 100}, []int64{0, 30, 1000}},
		{"a third pass", timing("original"), 3, []int64{0, 10, 40}, []int64{0, 10, 40, 60, 70, 100, 120, 130, 160}},
		{"passes of one packet", timing("original"), 3, []int64{0}, []int64{0, 0, 0}},
		{"backwards at once", timing("original"), 1, []int64{0, 10, 5, 7, 12, -3}, []int64{0, 10, 10, 10, 12, 12}},
		{"without a stamp at once", timing("original"), 1, []int64{unstamped, 0, unstamped, 9, unstamped}, []int64{0, 0, 0, 9, 9}},
		{"silences shortened", Timing{MaxGap: 10}, 2, []int64{0, 10, 21, 1e12, 1e12 + 3}, []int64{0, 10, 20, 30, 33, 41, 51, 61, 71, 74}},
		{"292 years and no end", timing("x0.5"), 1, []int64{0, math.MaxInt64/2 - 1000, math.MaxInt64}, []int64{0, math.MaxInt64 - 2001, math.MaxInt64 - 1000}},
	} {
		got, _ := play(t, c.timing, c.passes, c.offsets...)
		for i := range got {
			got[i] -= 1000
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestOddStampsAreCounted(t *testing.T) {
	_, s := play(t, Timing{MaxGap: 10}, 2, 0, 10, 5, unstamped, 12, -3, 100)
	if s.backwards != 4 || s.unstamped != 2 || s.shortened != 2 {
		t.Errorf("%d backwards, %d without, %d shortened", s.backwards, s.unstamped, s.shortened)
	}
}

// A million passes: packet i of pass k is due at k times the period plus its own offset, to the nanosecond.
func TestManyPassesDoNotDrift(t *testing.T) {
	offsets := []int64{0, 333, 1001}
	for _, speed := range []string{"original", "x3", "x0.7"} {
		s, _ := newSchedule(timing(speed), 0, 0)
		const period = 1001 + 501 // 1001/2 rounded
		tm := timing(speed)
		for k := range int64(1_000_000) {
			for _, o := range offsets {
				got := s.due(day.Add(time.Duration(o)))
				if want := (k*period + o) * int64(tm.Den) / int64(tm.Num); got != want {
					t.Fatalf("%s, pass %d: %d, want %d", speed, k, got, want)
				}
			}
			s.pass()
		}
	}
}

// At a rate in bits each frame takes the time of its own length, whatever the mix: the sum is exact at every frame.
func TestRatesCountEachFramesOwnBits(t *testing.T) {
	for _, c := range []struct {
		rate     string
		bps      int64
		overhead int64
	}{{"1Gbps", 1e9, 24}, {"1GbpsL2", 1e9, 4}, {"37.5%", 3.75e9, 24}, {"3bps", 3, 24}, {"0.7Mbps", 7e5, 24}} {
		r, err := units.ParseRate(c.rate)
		if err != nil {
			t.Fatal(err)
		}
		s, err := newSchedule(Timing{Rate: &r}, 77, 10e9)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		sum := new(big.Int)
		for range 10_000 {
			want := new(big.Int).Mul(sum, big.NewInt(1e9))
			want.Div(want, big.NewInt(c.bps)).Add(want, big.NewInt(77))
			if got := s.due(day); got != want.Int64() {
				t.Fatalf("%s: %d, want %v", c.rate, got, want)
			}
			n := 60 + rng.Int64N(9000)
			s.sent(int(n))
			sum.Add(sum, big.NewInt(8*(n+c.overhead)))
		}
	}
}

func TestRateInFramesAndMax(t *testing.T) {
	r, _ := units.ParseRate("3pps")
	if got, _ := play(t, Timing{Rate: &r}, 2, 0, 1e9); !slices.Equal(got, []int64{1000, 1000 + 333_333_333, 1000 + 666_666_666, 1000 + 1e9}) {
		t.Error(got)
	}
	r, _ = units.ParseRate("max")
	if got, _ := play(t, Timing{Rate: &r}, 1, 0, 1e9); !slices.Equal(got, []int64{1000, 1000}) {
		t.Error(got)
	}
	r, _ = units.ParseRate("10%")
	if _, err := newSchedule(Timing{Rate: &r}, 0, 0); err == nil {
		t.Error("per cent of an unknown link")
	}
}

func FuzzParseTiming(f *testing.F) {
	for _, s := range []string{"original", "x2", "x0.5", "x1.000000001", "x184467440737095516"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tm, err := ParseTiming(s)
		if err == nil && (tm.Num == 0 || tm.Den == 0) {
			t.Fatalf("%q is %d/%d", s, tm.Num, tm.Den)
		}
	})
}
