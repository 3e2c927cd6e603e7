// Package sim holds software network cards and the wire between them.
//
// A software card is driven as a real one is, through register reads and writes, and reaches memory as a real one does,
// through bus addresses only ([Memory]). It is made of engines ([Engine]) that do work when they are stepped; a [World]
// steps them, at the times they asked for.
//
// Who steps: by default the worker that uses the card, inline, at each Recv and Send, so that there is no second thread
// and a run is the same every time; while that worker sleeps, a timer of the clock ([World.ArmTimer]); in threaded mode a
// goroutine of the card's own ([World.Run]).
package sim

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"bare.wire/clock"
)

// Never is the answer of an engine that has nothing to do until somebody pokes it.
const Never = int64(math.MaxInt64)

// nearStep is how near the next step has to be for Run to poll the clock, ns: a sleep cannot be aimed better.
const nearStep = int64(2 * time.Millisecond)

// Memory is the only way by which a software device reaches memory.
type Memory interface {
	// Bytes returns the bytes at bus address bus: n of them, or fewer, at least one, where the memory is not contiguous.
	// An address that the device may not touch is an error, as an IOMMU fault would be.
	Bytes(bus uint64, n int) ([]byte, error)
}

// GuardedMemory is a Memory that tells reads from writes, as an IOMMU does.
type GuardedMemory interface {
	Memory
	ForReads() Memory
	ForWrites() Memory
}

// Engine is a part of a device that works in steps.
type Engine interface {
	// Step does what is due at now (ns of the world's clock) and returns the time of the next thing it has to do:
	// Never, or a time > now. It is called with the world locked.
	Step(now int64) (next int64)
}

// World steps engines on one clock. Its lock is the lock of every device in it: register accesses take it, and Step holds
// it, so an engine needs none of its own.
type World struct {
	clk      clock.Clock
	mu       sync.Mutex
	engines  []Engine
	due      atomic.Int64 // when the next step is due
	sleepers int          // ArmTimer less DisarmTimer
	timer    clock.Timer  // nil: none is set
	timerAt  int64
	timerID  uint64   // of the timer in use: one that came too late to be stopped does nothing
	after    []func() // interrupts to deliver once the lock is given back
	spare    []func()
	wake     chan struct{}
}

// NewWorld returns a world without engines.
func NewWorld(clk clock.Clock) *World {
	w := &World{clk: clk, wake: make(chan struct{}, 1)}
	w.due.Store(Never)
	return w
}

// Clock is the world's clock.
func (w *World) Clock() clock.Clock { return w.clk }

// Add puts an engine into the world. It is stepped for the first time at the next Step.
func (w *World) Add(e Engine) {
	w.Lock()
	defer w.Unlock()
	w.engines = append(w.engines, e)
	w.Poke()
}

// Remove takes an engine out. When it returns the engine is not being stepped and will not be.
func (w *World) Remove(e Engine) {
	w.Lock()
	defer w.Unlock()
	for i, x := range w.engines {
		if x == e {
			w.engines = append(w.engines[:i:i], w.engines[i+1:]...)
			return
		}
	}
}

// Lock is taken around a register access.
func (w *World) Lock() { w.mu.Lock() }

// Unlock gives the lock back and then delivers the interrupts that were raised under it.
func (w *World) Unlock() {
	if len(w.after) == 0 {
		w.mu.Unlock()
		return
	}
	after := w.after
	w.after, w.spare = w.spare, nil
	w.mu.Unlock()
	for _, f := range after {
		f()
	}
	clear(after)
	w.mu.Lock()
	w.spare = after[:0] // for the next, so that an interrupt allocates nothing
	w.mu.Unlock()
}

// Defer runs f once the lock is given back: an interrupt must not run under the lock of the card that raised it. The
// caller holds the lock.
func (w *World) Defer(f func()) { w.after = append(w.after, f) }

// Poke makes the next Step run every engine, whatever they said they were waiting for. The caller holds the lock.
func (w *World) Poke() {
	w.due.Store(math.MinInt64)
	select {
	case w.wake <- struct{}{}:
	default:
	}
	if w.sleepers > 0 {
		w.setTimer(w.clk.Nanos())
	}
}

// Step runs what is due now. It costs one atomic load and a look at the clock when nothing is.
func (w *World) Step() {
	if due := w.due.Load(); due == Never || due > w.clk.Nanos() {
		return
	}
	w.Lock()
	w.step()
	w.Unlock()
}

// step runs all engines until each has nothing left to do now.
func (w *World) step() {
	for {
		now := w.clk.Nanos()
		if w.due.Load() > now {
			return
		}
		w.due.Store(Never)
		next := Never
		for _, e := range w.engines {
			next = min(next, e.Step(now))
		}
		// An engine may have poked the world, or given an engine before it something to do.
		if next > w.due.Load() {
			continue
		}
		w.due.Store(next)
	}
}

// ArmTimer lets the world step itself by the clock's timers whenever something is due, until DisarmTimer: whoever goes to
// sleep on a card's interrupt calls it first, and DisarmTimer when awake again. The world is armed while anybody sleeps.
func (w *World) ArmTimer() {
	w.Lock()
	defer w.Unlock()
	w.sleepers++
	w.step()
	w.setTimer(w.due.Load())
}

// DisarmTimer takes one ArmTimer back.
func (w *World) DisarmTimer() {
	w.Lock()
	defer w.Unlock()
	if w.sleepers--; w.sleepers == 0 && w.timer != nil {
		w.timer.Stop()
		w.timer = nil
		w.timerID++
	}
}

// setTimer makes the timer run at t if it would run later or not at all. The caller holds the lock.
func (w *World) setTimer(t int64) {
	if t == Never || w.sleepers == 0 || w.timer != nil && w.timerAt <= t {
		return
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timerID++
	id := w.timerID
	w.timerAt = t
	w.timer = w.clk.At(t, func() { w.tick(id) })
}

// tick is timer id: step, then set the next one while there is something to wait for.
func (w *World) tick(id uint64) {
	w.Lock()
	defer w.Unlock()
	if id != w.timerID {
		return
	}
	w.timer = nil
	w.step()
	w.setTimer(w.due.Load())
}

// Run steps the world from this goroutine until ctx ends: threaded mode.
func (w *World) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		w.Step()
		due := w.due.Load()
		now := w.clk.Nanos()
		if due <= now {
			continue
		}
		if due-now < nearStep {
			runtime.Gosched() // whoever uses the cards may have no other processor
			continue
		}
		if err := w.rest(ctx, due); err != nil {
			break
		}
	}
	return ctx.Err()
}

// rest sleeps until due or the next poke.
func (w *World) rest(ctx context.Context, due int64) error {
	sleep, cancel := context.WithCancel(ctx)
	defer cancel()
	if due != Never {
		t := w.clk.At(due-nearStep/2, cancel)
		defer t.Stop()
	}
	select {
	case <-w.wake:
	case <-sleep.Done():
	}
	return ctx.Err()
}
