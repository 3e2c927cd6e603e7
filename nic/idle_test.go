package nic

import (
	"errors"
	"math"
	"testing"
	"time"

	"bare.wire/clock"
)

// fakeQueue is a queue that has work whenever busy says so.
type fakeQueue struct {
	busy             bool
	armed, reclaimed int
	w                *Waiter
}

func (q *fakeQueue) Arm(w *Waiter) bool {
	q.armed++
	q.w = w
	return !q.busy
}

func (q *fakeQueue) Reclaim() int {
	q.reclaimed++
	return 0
}

func idleRig(t *testing.T, rounds int, queues ...Armer) (*clock.Virtual, *Waiter, *Idle) {
	t.Helper()
	clk := clock.NewVirtual(time.Unix(0, 0))
	w, err := NewWaiter(clk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return clk, w, NewIdle(w, rounds, queues...)
}

func TestIdleSleepsAfterEmptyRoundsAlone(t *testing.T) {
	q := &fakeQueue{}
	clk, w, idle := idleRig(t, 3, q)
	clk.At(700, w.Wake)
	for i, step := range []struct {
		work  int
		slept bool
	}{
		{0, false}, {0, false}, {5, false}, // work starts the count anew
		{0, false}, {0, false}, {0, false}, {0, true},
		{0, false}, {0, false}, {0, false}, {0, true}, // and so does a sleep
	} {
		slept, err := idle.Round(step.work, 1000)
		if err != nil || slept != step.slept {
			t.Fatalf("round %d: slept %v, %v", i, slept, err)
		}
	}
	if q.armed != 2 || q.reclaimed != 2 || clk.Nanos() != 1000 {
		t.Errorf("armed %d times, reclaimed %d, at %d ns; want 2, 2, 1000", q.armed, q.reclaimed, clk.Nanos())
	}
}

func TestIdleDoesNotSleepOnWork(t *testing.T) {
	first, second, third := &fakeQueue{}, &fakeQueue{busy: true}, &fakeQueue{}
	_, _, idle := idleRig(t, 0, first, second, third)
	for range 3 {
		if slept, err := idle.Round(0, math.MaxInt64); slept || err != nil {
			t.Fatalf("a queue has work: slept %v, %v", slept, err)
		}
	}
	if first.armed != 3 || third.armed != 0 {
		t.Errorf("armed %d and %d times, want 3 and 0", first.armed, third.armed)
	}
}

func TestIdleReportsWhyItsPortIsGone(t *testing.T) {
	q := &fakeQueue{}
	clk, _, idle := idleRig(t, 0, q)
	clk.At(10, func() { q.w.Fail(ErrGone) })
	if slept, err := idle.Round(0, 1000); !slept || !errors.Is(err, ErrGone) {
		t.Errorf("slept %v, %v", slept, err)
	}
}
