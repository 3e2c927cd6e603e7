package nic

import (
	"errors"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bare.wire/clock"
)

const never = math.MaxInt64

func newWaiter(tb testing.TB, clk clock.Clock) *Waiter {
	tb.Helper()
	w, err := NewWaiter(clk)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := w.Close(); err != nil {
			tb.Error(err)
		}
	})
	return w
}

// expect waits and holds the outcome against want.
func expect(tb testing.TB, w *Waiter, deadline int64, want bool) {
	tb.Helper()
	if woken, err := w.Wait(deadline); woken != want || err != nil {
		tb.Fatalf("Wait says %v, %v, want %v", woken, err, want)
	}
}

// ticking is a clock whose every reading is step later than the last: a wait that polls takes a known number of turns.
type ticking struct {
	clock.Clock
	step, now atomic.Int64
	at        func(now int64) // called with every reading
}

func newTicking(step int64) *ticking {
	c := &ticking{Clock: clock.Real(), at: func(int64) {}}
	c.step.Store(step)
	return c
}

func (c *ticking) Nanos() int64 {
	now := c.now.Add(c.step.Load())
	c.at(now)
	return now
}

func TestWakeBeforeTheWaitIsNotLost(t *testing.T) {
	for name, clk := range map[string]clock.Clock{"real": clock.Real(), "virtual": clock.NewVirtual(time.Time{})} {
		t.Run(name, func(t *testing.T) {
			w := newWaiter(t, clk)
			for _, deadline := range []int64{never, clk.Nanos() + int64(time.Hour), clk.Nanos() + 1000, clk.Nanos(), -1} {
				w.Wake()
				w.Wake() // is the same wake
				expect(t, w, deadline, true)
				expect(t, w, clk.Nanos(), false)
			}
		})
	}
}

// TestWriteToTheEventfdWakes: the kernel, or a vhost back end, which knows nothing of the Waiter.
func TestWriteToTheEventfdWakes(t *testing.T) {
	c := newTicking(1000)
	w := newWaiter(t, c)
	write := func() {
		if _, err := unix.Write(w.FD(), []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Error(err)
		}
	}
	for _, ahead := range []int64{never, int64(time.Hour), 1000_000, 0} {
		write()
		deadline := ahead
		if ahead != never {
			deadline += c.Nanos()
		}
		expect(t, w, deadline, true)
		expect(t, w, 0, false)
	}
	// In the middle of a poll, and of a sleep.
	c.at = func(now int64) {
		if now%100_000 == 0 {
			write()
		}
	}
	expect(t, w, c.now.Load()+1500_000, true)
	c.at = func(int64) {}
	go write()
	expect(t, w, never, true)
}

// TestNearDeadlineIsPolledFor: to the reading, not to the millisecond.
func TestNearDeadlineIsPolledFor(t *testing.T) {
	c := newTicking(1000)
	w := newWaiter(t, c)
	deadline := c.now.Load() + 1900_000
	expect(t, w, deadline, false)
	if now := c.now.Load(); now != deadline {
		t.Errorf("the wait ended %d ns after its deadline", now-deadline)
	}
	c.at = func(now int64) {
		if now == deadline+500_000 {
			w.Wake()
		}
	}
	expect(t, w, deadline+1500_000, true)
	if now := c.now.Load(); now != deadline+500_000 {
		t.Errorf("the wait ended %d ns after the wake", now-deadline-500_000)
	}
}

// TestPollLetsTheWakerRun when there is one processor for both: a poll of 1.9 ms is much shorter than the time after which
// the runtime takes a processor away.
func TestPollLetsTheWakerRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c := newTicking(100_000)
	w := newWaiter(t, c)
	for range 20 {
		go w.Wake()
		expect(t, w, c.now.Load()+1900_000, true)
	}
}

// TestFarDeadlineIsNotMissed: sleeping ends before it, the rest is polled for.
func TestFarDeadlineIsNotMissed(t *testing.T) {
	clk := clock.Real()
	w := newWaiter(t, clk)
	for range 3 {
		deadline := clk.Nanos() + 4_000_000
		expect(t, w, deadline, false)
		if now := clk.Nanos(); now < deadline {
			t.Fatalf("the wait ended %d ns early", deadline-now)
		}
	}
	// The next wait is not cut short by what is left of a deadline that has passed.
	go w.Wake()
	expect(t, w, never, true)
}

func TestDeadlineThatHasPassedDoesNotWait(t *testing.T) {
	for _, clk := range []clock.Clock{clock.Real(), clock.NewVirtual(time.Time{})} {
		w := newWaiter(t, clk)
		for _, deadline := range []int64{0, -1, math.MinInt64} {
			expect(t, w, deadline, false)
		}
	}
}

// TestVirtualWaitGoesFromEventToEvent: time moves to the one that wakes, no further, or to the deadline.
func TestVirtualWaitGoesFromEventToEvent(t *testing.T) {
	v := clock.NewVirtual(time.Unix(0, 0))
	w := newWaiter(t, v)
	var ran []int64
	for _, at := range []int64{10, 20, 30, 40} {
		v.At(at, func() {
			ran = append(ran, v.Nanos())
			if at == 30 {
				w.Wake()
			}
		})
	}
	state := func(now int64, events int) {
		t.Helper()
		if v.Nanos() != now || len(ran) != events {
			t.Fatalf("it is %d after %d events, want %d after %d", v.Nanos(), len(ran), now, events)
		}
	}
	expect(t, w, 15, false)
	state(15, 1)
	expect(t, w, never, true)
	state(30, 3)
	expect(t, w, 35, false)
	state(35, 3)
	expect(t, w, 1000, false)
	state(1000, 4)
	// An event at the deadline itself is in time.
	v.At(2000, w.Wake)
	expect(t, w, 2000, true)
	state(2000, 4)
	// One that sets another.
	v.At(2500, func() { v.At(2600, w.Wake) })
	expect(t, w, never, true)
	state(2600, 4)
}

// TestVirtualWaitForNothingIsAnError and not a program that stands for ever.
func TestVirtualWaitForNothingIsAnError(t *testing.T) {
	w := newWaiter(t, clock.NewVirtual(time.Time{}))
	if woken, err := w.Wait(never); woken || err == nil {
		t.Errorf("%v, %v", woken, err)
	}
}

// TestEveryWakeIsSeen has many goroutines make work and wake: the one that waits sees all of it, and is never left asleep
// with work to do.
func TestEveryWakeIsSeen(t *testing.T) {
	const wakers, each = 8, 2000
	clk := clock.Real()
	w := newWaiter(t, clk)
	var work atomic.Int64
	var wg sync.WaitGroup
	for range wakers {
		wg.Go(func() {
			for i := range each {
				work.Add(1)
				w.Wake()
				if i%64 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	far := int64(time.Minute)
	for turn := int64(0); work.Load() < wakers*each; turn++ {
		wait := []int64{far, int64(time.Millisecond)}[turn%2]
		woken, err := w.Wait(clk.Nanos() + wait)
		if err != nil || !woken && wait == far {
			t.Fatalf("asleep with %d of %d done: %v", work.Load(), wakers*each, err)
		}
	}
	wg.Wait()
}

// TestPingPong has two sleepers wake each other in turn: one wake that is lost stops both.
func TestPingPong(t *testing.T) {
	const rounds = 3000
	clk := clock.Real()
	ping, pong := newWaiter(t, clk), newWaiter(t, clk)
	var turn atomic.Int64
	play := func(own, other *Waiter, parity int64) error {
		for i := parity; i < rounds; i += 2 {
			for turn.Load() != i {
				if woken, err := own.Wait(clk.Nanos() + int64(time.Minute)); err != nil || !woken {
					return errors.Join(errors.New("a wake is lost"), err)
				}
			}
			turn.Add(1)
			other.Wake()
		}
		return nil
	}
	result := make(chan error)
	go func() { result <- play(pong, ping, 1) }()
	if err := errors.Join(play(ping, pong, 0), <-result); err != nil {
		t.Error(err)
	}
}

func TestCloseEndsTheWait(t *testing.T) {
	w, err := NewWaiter(clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error)
	go func() {
		_, err := w.Wait(never)
		result <- err
	}()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, os.ErrClosed) {
		t.Errorf("the wait ends with %v", err)
	}
	if _, err := w.Wait(0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a later wait ends with %v", err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

// TestLateWakeDoesNotWriteToAnotherFile that has got the descriptor's number since.
func TestLateWakeDoesNotWriteToAnotherFile(t *testing.T) {
	w, err := NewWaiter(clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	fd := w.FD()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	other, err := NewWaiter(clock.Real()) // the lowest number that is free: most likely the same
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if other.FD() != fd {
		t.Logf("descriptor %d instead of %d: nothing to see", other.FD(), fd)
	}
	w.Wake()
	expect(t, other, 0, false)
}

func TestWaitDoesNotAllocate(t *testing.T) {
	if raceBuild {
		return // the detector allocates
	}
	real, virtual := clock.Real(), clock.NewVirtual(time.Time{})
	w, wv := newWaiter(t, real), newWaiter(t, virtual)
	for name, f := range map[string]func(){
		"wake and wait": func() { w.Wake(); _, _ = w.Wait(never) },
		"near deadline": func() { _, _ = w.Wait(real.Nanos() + 1000) },
		"far deadline":  func() { _, _ = w.Wait(real.Nanos() + 2_500_000) },
		"eventfd": func() {
			var one = [8]byte{1}
			_, _ = unix.Write(w.FD(), one[:])
			_, _ = w.Wait(never)
		},
		"virtual": func() { _, _ = wv.Wait(virtual.Nanos() + 1000) },
	} {
		f()
		if n := testing.AllocsPerRun(20, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkWakeWait(b *testing.B) {
	w := newWaiter(b, clock.Real())
	b.ReportAllocs()
	for b.Loop() {
		w.Wake()
		_, _ = w.Wait(never)
	}
}
