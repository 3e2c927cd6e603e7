package pace

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

const second = int64(time.Second)

func Example() {
	s, _ := NewSchedule(0, 3, 1) // three frames a second
	p := New(Config{Schedule: s, End: second, Budget: time.Millisecond})
	for now := int64(0); !p.Done(now); now = p.Next() {
		n := p.Poll(now)
		fmt.Println(now, "ns: send", n)
		p.Sent(now, n, n)
	}
	fmt.Println("kept:", p.Finish(second).Kept(3, 1))
	// Output:
	// 0 ns: send 1
	// 333333333 ns: send 1
	// 666666666 ns: send 1
	// kept: true
}

// ideal is the exact time of frame i after the start.
func ideal(i, num, den uint64) *big.Rat {
	n := new(big.Int).Mul(new(big.Int).SetUint64(i), big.NewInt(1e9))
	n.Mul(n, new(big.Int).SetUint64(den))
	return new(big.Rat).SetFrac(n, new(big.Int).SetUint64(num))
}

var rates = []struct{ num, den uint64 }{
	{1, 1}, {10, 1}, {1000, 1}, {9999, 1}, {100_000, 1}, {1_000_000, 1}, {14_880_952, 1}, {148_809_523, 1},
	{10_000_000_000, 672}, {10_000_000_000, 12304}, {1, 3}, {37_123_457, 100},
}

// An hour: floor(rate·T) frames, one more at most; times monotone and less than 1 ns from the ideal.
func TestAnHourOfEachRateIsExact(t *testing.T) {
	const start, T = int64(12345), 3600 * second
	for _, r := range rates {
		s, err := NewSchedule(start, r.num, r.den)
		if err != nil {
			t.Fatal(err)
		}
		floor := uint64(3600) * r.num / r.den
		if n := s.Before(start + T); n != floor && n != floor+1 {
			t.Errorf("%d/%d pps: %d frames, want %d", r.num, r.den, n, floor)
		}
		checkAround(t, s, 0)
		checkAround(t, s, floor/2)
		checkAround(t, s, floor)
	}
}

// checkAround compares positions i-50 … i+50 with the ideal, and Before and By with Due.
func checkAround(t *testing.T, s Schedule, i uint64) {
	t.Helper()
	last := int64(math.MinInt64)
	for k := i - min(i, 50); k < i+50; k++ {
		due := s.Due(k)
		if due < last {
			t.Fatalf("%d/%d pps: frame %d is due before its predecessor", s.Num, s.Den, k)
		}
		last = due
		off := new(big.Rat).Sub(ideal(k, s.Num, s.Den), new(big.Rat).SetInt64(due-s.Start))
		if off.Sign() < 0 || off.Cmp(big.NewRat(1, 1)) >= 0 {
			t.Fatalf("%d/%d pps: frame %d is due at %d, %v ns off", s.Num, s.Den, k, due, off)
		}
		if n := s.Before(due); n > k {
			t.Fatalf("%d/%d pps: %d frames before frame %d", s.Num, s.Den, n, k)
		}
		if n := s.By(due); n <= k {
			t.Fatalf("%d/%d pps: %d frames by the time of frame %d", s.Num, s.Den, n, k)
		}
		if n := s.By(due - 1); n > k {
			t.Fatalf("%d/%d pps: frame %d was due early", s.Num, s.Den, k)
		}
	}
}

// Where others' counters wrapped: 2³² frames, 5.4·10⁹ frames, 30 minutes, 2⁴⁸ frames, 2⁵³ ns.
func TestScheduleIsExactBesideEveryWrap(t *testing.T) {
	for _, r := range rates {
		s, _ := NewSchedule(7, r.num, r.den)
		for _, i := range []uint64{1 << 32, 5_400_000_000, 1 << 48} {
			if s.Due(i+60) == math.MaxInt64 {
				continue // 1 pps: beyond 292 years
			}
			checkAround(t, s, i)
		}
		for _, at := range []int64{1801 * second, 1 << 53, 1 << 62} {
			if n := s.Before(at); s.Due(n-1) >= at || s.Due(n) < at {
				t.Errorf("%d/%d pps at %d: %d frames", r.num, r.den, at, n)
			}
		}
	}
}

func TestFarBeyondTheEndOfTimeSaturates(t *testing.T) {
	s, _ := NewSchedule(math.MaxInt64-10, 1, 1)
	if s.Due(1) != math.MaxInt64 || s.Due(math.MaxUint64) != math.MaxInt64 {
		t.Error("due wraps")
	}
	s, _ = NewSchedule(math.MinInt64+1, math.MaxUint64, 1)
	if s.Before(math.MaxInt64) != math.MaxUint64 || s.By(math.MaxInt64) != math.MaxUint64 {
		t.Error("before wraps")
	}
	for _, bad := range [][2]uint64{{0, 1}, {1, 0}, {1, 1 << 40}} {
		if _, err := NewSchedule(0, bad[0], bad[1]); err == nil {
			t.Errorf("%v accepted", bad)
		}
	}
}

// drive runs p on an ideal processor that stalls as told: at most one stall, at time at, for d ns.
func drive(p *Pacer, at, d int64) (end int64) {
	now, stalled := int64(0), false
	for !p.Done(now) {
		n := p.Poll(now)
		p.Sent(now, n, n)
		if n == 0 || p.Poll(now) == 0 {
			now = max(p.Next(), now+1)
		}
		if d > 0 && !stalled && now >= at {
			now, stalled = now+d, true
		}
	}
	return now
}

func TestStallWithinBudgetIsCaughtUpAndBeyondItIsSkipped(t *testing.T) {
	const pps, T = 100_000, int64(4 * time.Second)
	for _, c := range []struct {
		stall  time.Duration
		budget time.Duration
		skip   uint64 // what cannot be sent within the budget
	}{
		{8 * time.Microsecond, time.Millisecond, 0},
		{time.Millisecond, time.Millisecond, 0},
		{1500 * time.Microsecond, time.Millisecond, 50},
		{100 * time.Millisecond, time.Millisecond, 9900},
		{100 * time.Millisecond, 100 * time.Millisecond, 0},
		{2 * time.Second, time.Millisecond, 199_900},
		{2 * time.Second, 100 * time.Millisecond, 190_000},
	} {
		s, _ := NewSchedule(0, pps, 1)
		p := New(Config{Schedule: s, End: T, Budget: c.budget})
		end := drive(p, second, int64(c.stall))
		r := p.Finish(end)
		if end != T {
			t.Errorf("stall %v: the run ended at %d, want %d", c.stall, end, T)
		}
		if r.Sent+r.Skipped+r.Unsent != 400_000 {
			t.Errorf("stall %v: sent %d + skipped %d + unsent %d", c.stall, r.Sent, r.Skipped, r.Unsent)
		}
		if diff := int64(r.Skipped) - int64(c.skip); diff < -1 || diff > 1 {
			t.Errorf("stall %v, budget %v: skipped %d, want %d", c.stall, c.budget, r.Skipped, c.skip)
		}
		if r.Kept(pps, 1) != (r.Skipped == 0) {
			t.Errorf("stall %v: kept %v with %d skipped", c.stall, r.Kept(pps, 1), r.Skipped)
		}
		if lateMax := p.Late().Max(); lateMax > int64(c.budget) {
			t.Errorf("stall %v: a frame was %d ns late, budget %v", c.stall, lateMax, c.budget)
		}
	}
}

func TestStallAcrossTheEndDoesNotStretchTheRun(t *testing.T) {
	s, _ := NewSchedule(0, 1000, 1)
	p := New(Config{Schedule: s, End: second, Budget: 100 * time.Millisecond})
	end := drive(p, 900_000_000, second)
	r := p.Finish(end)
	if r.Stop != second || r.Planned != second || r.Sent != 900 || r.Unsent != 100 || r.Skipped != 0 {
		t.Errorf("%+v", r)
	}
	if r.Kept(1000, 1) {
		t.Error("a tenth of the frames is missing and the rate counts as kept")
	}
}

func TestCatchingUpSendsAtMostTwoBurstsAtATime(t *testing.T) {
	s, _ := NewSchedule(0, 1_000_000, 1)
	p := New(Config{Schedule: s, End: second, Burst: 8, Budget: time.Second})
	if n := p.Poll(0); n != 1 {
		t.Fatalf("first poll: %d", n)
	}
	p.Sent(0, 1, 1)
	if n := p.Poll(500_000); n != 16 {
		t.Errorf("after a stall: %d at once, want 16", n)
	}
	for range 10 {
		p.Sent(500_000, 16, 16)
	}
	if r := p.Totals(); r.Longest != 160 {
		t.Errorf("longest run %d, want 160", r.Longest)
	}
}

func TestFullRingIsCountedAndItsFramesAreOfferedAgain(t *testing.T) {
	s, _ := NewSchedule(0, 1000, 1)
	p := New(Config{Schedule: s, End: second, Budget: 100 * time.Millisecond})
	rng := rand.New(rand.NewPCG(1, 2))
	now := int64(0)
	for !p.Done(now) {
		n := p.Poll(now)
		took := n
		if rng.IntN(3) == 0 {
			took = n / 2
		}
		p.Sent(now, n, took)
		now += 500_000
	}
	r := p.Finish(now)
	if r.Sent != 1000-r.Unsent || r.Skipped != 0 || r.RingFull == 0 || r.Unsent > 8 {
		t.Errorf("%+v", r)
	}
}

func TestCountEndsTheRunAndIsAllSent(t *testing.T) {
	s, _ := NewSchedule(0, 10, 1)
	p := New(Config{Schedule: s, Count: 10, End: 100 * second, Budget: time.Millisecond})
	end := drive(p, 0, 0)
	if r := p.Finish(end); r.Sent != 10 || r.Planned != second || !r.Kept(10, 1) || r.PPS() != 10 {
		t.Errorf("%+v", r)
	}
	// The same, one frame too few.
	if (Result{Sent: 9_000, Planned: second}).Kept(10_000, 1) {
		t.Error("nine tenths count as kept")
	}
	if !(Result{Sent: 9_990, Planned: second}).Kept(10_000, 1) || (Result{Sent: 9_989, Planned: second}).Kept(10_000, 1) {
		t.Error("the line is not at 99.9 %")
	}
}

func TestInterruptedRunIsMeasuredUpToTheInterrupt(t *testing.T) {
	s, _ := NewSchedule(0, 100, 1)
	p := New(Config{Schedule: s, End: 10 * second, Budget: time.Millisecond})
	for now := int64(0); now < 2*second; now = p.Next() {
		p.Sent(now, 1, p.Poll(now))
	}
	if r := p.Finish(2 * second); r.Sent != 200 || r.Planned != 2*second || !r.Kept(100, 1) || r.Unsent != 0 {
		t.Errorf("%+v", r)
	}
}

func TestMaxSendsBurstsUntilTheEnd(t *testing.T) {
	p := New(Config{Schedule: Schedule{Num: 1, Den: 1}, Max: true, End: 1000, Burst: 4, Count: 10})
	var sizes []int
	for now := int64(0); !p.Done(now); now++ {
		n := p.Poll(now)
		p.Sent(now, n, n)
		sizes = append(sizes, n)
	}
	if fmt.Sprint(sizes) != "[4 4 2]" {
		t.Error(sizes)
	}
	p = New(Config{Schedule: Schedule{Num: 1, Den: 1}, Max: true, End: 1000})
	if p.Poll(999) != DefaultBurst || p.Poll(1000) != 0 || !p.Done(1000) {
		t.Error("max does not stop at the end")
	}
}

// Any sequence of polls at growing times: every position of the schedule is accounted for exactly once.
func FuzzPacerAccountsForEveryFrame(f *testing.F) {
	f.Add(uint64(1000), uint64(1), uint8(32), uint64(1), uint16(100))
	f.Add(uint64(10_000_000_000), uint64(672), uint8(1), uint64(2), uint16(3))
	f.Fuzz(func(t *testing.T, num, den uint64, burst uint8, seed uint64, budget uint16) {
		s, err := NewSchedule(0, num%(1<<40), den%(1<<20))
		if err != nil {
			return
		}
		const end = int64(time.Millisecond)
		p := New(Config{Schedule: s, End: end, Burst: int(burst), Budget: time.Duration(budget) * time.Microsecond})
		rng := rand.New(rand.NewPCG(seed, 1))
		now := int64(0)
		for k := 0; !p.Done(now) && k < 10_000; k++ {
			n := p.Poll(now)
			if n < 0 || n > 2*max(int(burst), 1) && burst != 0 || burst == 0 && n > 2*DefaultBurst {
				t.Fatalf("asked to send %d, burst %d", n, burst)
			}
			p.Sent(now, n, rng.IntN(n+1))
			if p.Next() < 0 {
				t.Fatal("next is negative")
			}
			now += rng.Int64N(20_000)
		}
		r := p.Finish(max(now, end))
		if r.Sent+r.Skipped+r.Unsent != s.Before(end) {
			t.Fatalf("%+v, schedule has %d", r, s.Before(end))
		}
	})
}

func TestPollingAllocatesNothing(t *testing.T) {
	s, _ := NewSchedule(0, 14_880_952, 1)
	p := New(Config{Schedule: s, Budget: time.Second})
	now := int64(0)
	if n := testing.AllocsPerRun(1000, func() { now += 1000; k := p.Poll(now); p.Sent(now, k, k) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPoll(b *testing.B) {
	s, _ := NewSchedule(0, 14_880_952, 1)
	p := New(Config{Schedule: s, Budget: time.Second})
	for now := int64(0); b.Loop(); now += 67 {
		n := p.Poll(now)
		p.Sent(now, n, n)
	}
}
