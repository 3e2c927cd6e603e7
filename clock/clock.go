// Package clock gives the rest of the tree its time, real or virtual.
//
// Nothing outside this package reads the machine's clock: whatever has time in it (a pacer, a wire with a delay, a
// retransmission timer) takes a [Clock]. With [Real] a run looks as it would on a card; with [Virtual] the same code runs
// as fast as the processor allows and gives the same answer every time, because time moves only when somebody sleeps or
// calls [Virtual.AdvanceTo].
//
// Two readings are offered. Now is the wall clock, for people. Nanos counts nanoseconds from the clock's origin, never
// goes back, and is what schedules, stamps and deadlines are made of; an int64 of them lasts 292 years.
package clock

import (
	"context"
	"time"
)

// Clock is a source of time. All methods may be called from any goroutine.
type Clock interface {
	// Now is the wall time.
	Now() time.Time
	// Nanos is the time since the clock's origin in nanoseconds. It never goes back.
	Nanos() int64
	// Sleep waits for d; it returns the context's error if that ends first. d <= 0 returns at once.
	Sleep(ctx context.Context, d time.Duration) error
	// SleepUntil waits until Nanos() >= t.
	SleepUntil(ctx context.Context, t int64) error
	// At calls f once, at t or as soon after it as can be. On a Real clock f has a goroutine of its own; on a Virtual
	// one it runs inside the call that moves time past t, with no lock of the clock held, and Nanos() is t meanwhile.
	At(t int64, f func()) Timer
}

// Timer is a call that a clock has yet to make.
type Timer interface {
	// Stop cancels the call. It returns false when the call has been made, is being made, or was stopped before.
	Stop() bool
}

// RealClock is the machine's monotonic clock with its origin at the time of [Real].
type RealClock struct{ origin time.Time }

// Real returns a clock whose origin is now.
func Real() *RealClock { return &RealClock{origin: time.Now()} }

// Now is the machine's wall time.
func (c *RealClock) Now() time.Time { return time.Now() }

// Nanos is the monotonic time since the clock was made, ns.
func (c *RealClock) Nanos() int64 { return int64(time.Since(c.origin)) }

// SleepUntil implements [Clock].
func (c *RealClock) SleepUntil(ctx context.Context, t int64) error {
	return c.Sleep(ctx, time.Duration(t-c.Nanos()))
}

// Sleep implements [Clock]. The machine may oversleep by a millisecond and more; who needs better polls.
func (c *RealClock) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// At implements [Clock].
func (c *RealClock) At(t int64, f func()) Timer {
	return time.AfterFunc(time.Duration(t-c.Nanos()), f)
}
