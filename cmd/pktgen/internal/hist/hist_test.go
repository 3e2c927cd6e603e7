package hist

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
)

func Example() {
	h := New()
	for i := int64(1); i <= 1000; i++ {
		h.Record(i)
	}
	fmt.Println(h.Count(), h.Min(), h.Percentile(50, 100), h.Percentile(999, 1000), h.Max(), h.Mean())
	// Output: 1000 1 500 999 1000 501
}

// within says whether got is want to 0.1 %.
func within(got, want int64) bool {
	return math.Abs(float64(got-want)) <= float64(want)*0.001
}

func TestFixedDelayHasOneValueEverywhere(t *testing.T) {
	for _, delay := range []int64{0, 1, 1_000, 50_000, 10_000_000, Max} {
		h := New()
		for range 1000 {
			h.Record(delay)
		}
		for _, got := range []int64{h.Min(), h.Percentile(50, 100), h.Percentile(99, 100), h.Max(), h.Mean()} {
			if got != delay {
				t.Errorf("delay %d: min %d p50 %d p99 %d max %d mean %d", delay, h.Min(), h.Percentile(1, 2), h.Percentile(99, 100), h.Max(), h.Mean())
				break
			}
		}
		if h.StdDev() != 0 {
			t.Errorf("delay %d: deviation %d", delay, h.StdDev())
		}
	}
}

func TestTwoPointMixAndTailSpike(t *testing.T) {
	h := New()
	for i := range 100_000 {
		switch {
		case i == 5:
			h.Record(7_000_000_000)
		case i%10 == 0:
			h.Record(90_000)
		default:
			h.Record(12_345)
		}
	}
	for _, c := range []struct{ num, den, want int64 }{{50, 100, 12_345}, {89, 100, 12_345}, {90, 100, 90_000}, {95, 100, 90_000}, {99_999, 100_000, 90_000}, {1, 1, 7_000_000_000}} {
		if got := h.Percentile(uint64(c.num), uint64(c.den)); !within(got, c.want) {
			t.Errorf("%d/%d: %d, want %d", c.num, c.den, got, c.want)
		}
	}
}

// Every percentile against the sorted values themselves.
func TestPercentilesAgainstSortedValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 2, 3, 10, 999, 1000, 1001, 50_000} {
		h, all := New(), make([]int64, n)
		var sum int64
		for i := range all {
			all[i] = rng.Int64N(Max)
			if i%2 == 0 {
				all[i] = 10_000 + rng.Int64N(10_000)
			}
			h.Record(all[i])
			sum += all[i]
		}
		slices.Sort(all)
		for _, p := range []struct{ num, den uint64 }{{0, 1}, {1, 100}, {1, 2}, {9, 10}, {99, 100}, {999, 1000}, {9999, 10000}, {1, 1}} {
			rank := (uint64(n)*p.num + p.den - 1) / p.den
			want := all[max(rank, 1)-1]
			if got := h.Percentile(p.num, p.den); !within(got, want) {
				t.Errorf("n %d, %d/%d: %d, want %d", n, p.num, p.den, got, want)
			}
		}
		if h.Min() != all[0] || h.Max() != all[n-1] || math.Abs(float64(h.Mean())-float64(sum)/float64(n)) > 0.5 {
			t.Errorf("n %d: min %d max %d mean %d", n, h.Min(), h.Max(), h.Mean())
		}
	}
}

func TestWhatDoesNotFitIsCounted(t *testing.T) {
	h := New()
	h.Record(-1)
	h.Record(Max + 1)
	h.RecordN(math.MaxInt64, 2)
	h.Record(5)
	if h.Count() != 1 || h.Overflow() != 3 || h.Negative() != 1 || h.Max() != math.MaxInt64 || h.Min() != 5 || h.Mean() != 5 {
		t.Errorf("count %d overflow %d negative %d min %d max %d", h.Count(), h.Overflow(), h.Negative(), h.Min(), h.Max())
	}
}

func TestMergedHistogramsEqualOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	one, parts := New(), []*Histogram{New(), New(), New(), New()}
	for range 10_000 {
		v := rng.Int64N(2*Max) - 1000
		one.Record(v)
		parts[rng.IntN(4)].Record(v)
	}
	all := New()
	for _, p := range parts {
		all.Merge(p)
	}
	a, _ := one.Encode()
	b, _ := all.Encode()
	if a != b || one.Mean() != all.Mean() || one.Min() != all.Min() || one.Max() != all.Max() || one.Overflow() != all.Overflow() || one.Negative() != all.Negative() {
		t.Error("four merged parts differ from the whole")
	}
	all.Reset()
	if all.Count() != 0 || all.Min() != 0 || all.Max() != 0 || all.Overflow() != 0 {
		t.Error("reset left something")
	}
}

func TestMeanOfManyLongDurationsDoesNotWrap(t *testing.T) {
	h := New()
	h.RecordN(9_999_999_999, 1<<40) // the sum needs 74 bits
	if h.Mean() != 9_999_999_999 {
		t.Errorf("mean %d", h.Mean())
	}
}

func TestEncodingIsReadBack(t *testing.T) {
	h := New()
	for i := int64(0); i < 1000; i++ {
		h.Record(i * i)
	}
	s, err := h.Encode()
	if err != nil || !strings.HasPrefix(s, "HISTFAAAA") {
		t.Fatalf("%.20q, %v", s, err)
	}
	back, err := hdrhistogram.Decode([]byte(s))
	if err != nil || back.TotalCount() != 1000 || back.ValueAtPercentile(50) != h.Percentile(50, 100) {
		t.Errorf("read back: %v, count %d", err, back.TotalCount())
	}
}

func TestRecordingAllocatesNothing(t *testing.T) {
	h := New()
	if n := testing.AllocsPerRun(1000, func() { h.Record(12345) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRecord(b *testing.B) {
	h := New()
	for i := 0; b.Loop(); i++ {
		h.Record(int64(i & 0xfffff))
	}
}
