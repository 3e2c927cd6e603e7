package clock

import (
	"container/heap"
	"context"
	"math"
	"sync"
	"time"
)

// Virtual is a clock that stands still until it is told to move. Whoever sleeps on it moves it: Sleep is Advance, and
// the timers that fall due on the way run in order, each at its own time. Two timers of the same time run in the order
// in which they were set, so a run is the same every time.
//
// One goroutine moves the clock at a time, if a run is to be the same every time: with two, each runs what falls due until
// its own time, beside the other, and what was set for t may see a later time. Nothing is lost and time does not go back.
//
// A timer runs inside somebody's Sleep. It must not wait for what that somebody holds meanwhile: Start and Stop of a port, for
// example, sleep with the port's lock, so a timer that calls the same port then would stand still for ever.
type Virtual struct {
	mu     sync.Mutex
	start  time.Time
	now    int64
	seq    uint64
	timers timerHeap
}

// NewVirtual returns a clock that shows start, and whose Nanos are 0.
func NewVirtual(start time.Time) *Virtual { return &Virtual{start: start} }

// Now is the start plus the time that has been let pass.
func (v *Virtual) Now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.start.Add(time.Duration(v.now))
}

// Nanos implements [Clock].
func (v *Virtual) Nanos() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// Sleep moves the clock by d.
func (v *Virtual) Sleep(ctx context.Context, d time.Duration) error {
	return v.SleepUntil(ctx, later(v.Nanos(), d))
}

// later is t plus d; what is beyond the end of time is the end of time.
func later(t int64, d time.Duration) int64 {
	if sum := t + int64(d); d < 0 || sum >= t {
		return sum
	}
	return math.MaxInt64
}

// SleepUntil moves the clock to t, one timer at a time, and stops early when the context ends.
func (v *Virtual) SleepUntil(ctx context.Context, t int64) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !v.runNext(t) {
			return nil
		}
	}
}

// Advance moves the clock by d.
func (v *Virtual) Advance(d time.Duration) { v.AdvanceTo(later(v.Nanos(), d)) }

// AdvanceTo moves the clock to t (never back) and runs the timers due on the way, those set by timers included.
func (v *Virtual) AdvanceTo(t int64) {
	for v.runNext(t) {
	}
}

// Next is the time of the earliest timer.
func (v *Virtual) Next() (t int64, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.timers) == 0 {
		return 0, false
	}
	return v.timers[0].at, true
}

// At implements [Clock]. A time that has passed runs at the next move of the clock, even one by 0.
func (v *Virtual) At(t int64, f func()) Timer {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seq++
	e := &virtualTimer{clock: v, at: t, seq: v.seq, f: f}
	heap.Push(&v.timers, e)
	return e
}

// runNext runs the earliest timer if it is due by t and returns true; otherwise it moves the clock to t.
func (v *Virtual) runNext(t int64) bool {
	v.mu.Lock()
	if len(v.timers) == 0 || v.timers[0].at > t {
		v.now = max(v.now, t)
		v.mu.Unlock()
		return false
	}
	e := heap.Pop(&v.timers).(*virtualTimer)
	v.now = max(v.now, e.at)
	v.mu.Unlock()
	e.f()
	return true
}

// virtualTimer is one entry of the heap; index is -1 once it has left it.
type virtualTimer struct {
	clock *Virtual
	at    int64
	seq   uint64
	index int
	f     func()
}

// Stop implements [Timer].
func (e *virtualTimer) Stop() bool {
	e.clock.mu.Lock()
	defer e.clock.mu.Unlock()
	if e.index < 0 {
		return false
	}
	heap.Remove(&e.clock.timers, e.index)
	return true
}

type timerHeap []*virtualTimer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timerHeap) Push(x any) {
	e := x.(*virtualTimer)
	e.index = len(*h)
	*h = append(*h, e)
}
func (h *timerHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}
