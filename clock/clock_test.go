package clock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"bare.wire/clock"
)

var (
	_  clock.Clock = (*clock.RealClock)(nil)
	_  clock.Clock = (*clock.Virtual)(nil)
	t0             = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

func TestTimersRunInOrderEachAtItsOwnTime(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	v := clock.NewVirtual(t0)
	var want, got []int64
	for range 500 {
		at := rng.Int64N(1000)
		want = append(want, at)
		v.At(at, func() {
			if n := v.Nanos(); n != at {
				t.Fatalf("a timer of %d ns ran at %d", at, n)
			}
			got = append(got, at)
		})
	}
	slices.Sort(want)
	v.AdvanceTo(2000)
	if !slices.Equal(got, want) {
		t.Fatalf("order: got %v", got)
	}
	if v.Nanos() != 2000 {
		t.Fatalf("clock stands at %d, want 2000", v.Nanos())
	}
}

func TestTimersOfOneTimeKeepTheirOrder(t *testing.T) {
	v := clock.NewVirtual(t0)
	var got []int
	for i := range 100 {
		v.At(7, func() { got = append(got, i) })
	}
	v.Advance(7)
	if !slices.IsSorted(got) || len(got) != 100 {
		t.Fatalf("got %v", got)
	}
}

func TestATimerMaySetTheNext(t *testing.T) {
	v := clock.NewVirtual(t0)
	n := 0
	var tick func()
	tick = func() { n++; v.At(v.Nanos()+10, tick) }
	v.At(10, tick)
	v.AdvanceTo(100)
	if n != 10 {
		t.Fatalf("%d ticks of 10 ns in 100 ns, want 10", n)
	}
	if at, ok := v.Next(); !ok || at != 110 {
		t.Fatalf("next timer at %d, %v; want 110", at, ok)
	}
}

func TestAStoppedTimerNeverRuns(t *testing.T) {
	v := clock.NewVirtual(t0)
	tm := v.At(5, func() { t.Error("ran") })
	if !tm.Stop() || tm.Stop() {
		t.Fatal("Stop: want true, then false")
	}
	ran := v.At(6, func() {})
	v.Advance(10)
	if ran.Stop() {
		t.Fatal("Stop after the timer ran: want false")
	}
}

func TestSleepMovesTimeAndHonoursTheContext(t *testing.T) {
	v := clock.NewVirtual(t0)
	ctx, cancel := context.WithCancel(context.Background())
	v.At(50, cancel)
	if err := v.SleepUntil(ctx, 100); !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v, want canceled", err)
	}
	if v.Nanos() != 50 {
		t.Fatalf("a sleep cut short at 50 ns left the clock at %d", v.Nanos())
	}
	if err := v.Sleep(context.Background(), 25*time.Nanosecond); err != nil || v.Nanos() != 75 {
		t.Fatalf("err %v, clock %d, want 75", err, v.Nanos())
	}
}

func TestTimeNeverGoesBack(t *testing.T) {
	v := clock.NewVirtual(t0)
	v.AdvanceTo(10)
	v.AdvanceTo(5)
	if v.Nanos() != 10 {
		t.Fatalf("clock went back to %d", v.Nanos())
	}
	late := false
	v.At(3, func() { late = v.Nanos() == 10 })
	v.Advance(0)
	if !late {
		t.Fatal("a timer of the past has to run at the next move, at the present time")
	}
}

func TestALongSleepDoesNotEndBeforeItBegins(t *testing.T) {
	v := clock.NewVirtual(t0)
	v.Advance(time.Second)
	ran := false
	v.At(int64(time.Hour), func() { ran = true })
	v.Advance(math.MaxInt64)
	if !ran || v.Nanos() != math.MaxInt64 {
		t.Fatalf("the clock stands at %d, the timer ran: %v; want the end of time", v.Nanos(), ran)
	}
}

func TestRealSleepEndsWithItsContext(t *testing.T) {
	c := clock.Real()
	ctx, cancel := context.WithCancel(context.Background())
	c.At(c.Nanos(), cancel)
	if err := c.Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v, want canceled", err)
	}
	a := c.Nanos()
	if b := c.Nanos(); b < a {
		t.Fatalf("%d after %d", b, a)
	}
}

func ExampleVirtual() {
	v := clock.NewVirtual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	v.At(int64(3*time.Second), func() { fmt.Println("three seconds:", v.Now().Format(time.TimeOnly)) })
	_ = v.Sleep(context.Background(), time.Minute)
	fmt.Println("one minute:", v.Now().Format(time.TimeOnly))
	// Output:
	// three seconds: 00:00:03
	// one minute: 00:01:00
}
