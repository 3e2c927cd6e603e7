package sim_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/sim"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// alarm is an engine with a list of times at which it has something to do.
type alarm struct {
	due   []int64
	rang  []int64 // when it did it
	steps int
	then  func(now int64) // called for each
}

func (a *alarm) Step(now int64) int64 {
	a.steps++
	for len(a.due) > 0 && a.due[0] <= now {
		a.due = a.due[1:]
		a.rang = append(a.rang, now)
		if a.then != nil {
			a.then(now)
		}
	}
	if len(a.due) == 0 {
		return sim.Never
	}
	return a.due[0]
}

// world is a world on a virtual clock with engines in it.
func world(engines ...sim.Engine) (*sim.World, *clock.Virtual) {
	v := clock.NewVirtual(start)
	w := sim.NewWorld(v)
	for _, e := range engines {
		w.Add(e)
	}
	return w, v
}

// poke does what a register access does.
func poke(w *sim.World, f func()) {
	w.Lock()
	defer w.Unlock()
	f()
	w.Poke()
}

func TestEnginesRunWhenTheyAreDueAndNotBefore(t *testing.T) {
	a := &alarm{due: []int64{0, 10, 30}}
	w, v := world(a)
	w.Step()
	steps := a.steps
	v.AdvanceTo(9)
	w.Step()
	if a.steps != steps || !slices.Equal(a.rang, []int64{0}) {
		t.Fatalf("before its time: %d steps more, rang at %v", a.steps-steps, a.rang)
	}
	v.AdvanceTo(10)
	w.Step()
	v.AdvanceTo(45) // late is when the worker comes, once
	w.Step()
	w.Step()
	if want := []int64{0, 10, 45}; !slices.Equal(a.rang, want) {
		t.Fatalf("rang at %v, want %v", a.rang, want)
	}
}

func TestAPokeRunsEveryEngine(t *testing.T) {
	a, b := &alarm{due: []int64{1000}}, &alarm{}
	w, _ := world(a, b)
	w.Step()
	x, y := a.steps, b.steps
	w.Step()
	if a.steps != x || b.steps != y {
		t.Fatal("stepped with nothing due")
	}
	poke(w, func() { b.due = []int64{0} })
	w.Step()
	if a.steps == x || len(b.rang) != 1 {
		t.Fatalf("after a poke: a stepped %d times, b rang %v", a.steps-x, b.rang)
	}
	w.Step()
	if b.steps != y+1 {
		t.Fatalf("one poke, %d steps", b.steps-y)
	}
}

func TestWorkGivenToAnEarlierEngineIsDoneInTheSameStep(t *testing.T) {
	first := &alarm{}
	second := &alarm{due: []int64{5}}
	w, v := world(first, second)
	second.then = func(now int64) { // a card sends to the card that was stepped before it
		first.due = append(first.due, now, now+7)
		w.Poke()
	}
	v.AdvanceTo(5)
	w.Step()
	v.AdvanceTo(11)
	w.Step()
	if !slices.Equal(first.rang, []int64{5}) {
		t.Fatalf("rang at %v", first.rang)
	}
	v.AdvanceTo(12)
	w.Step()
	if !slices.Equal(first.rang, []int64{5, 12}) {
		t.Fatalf("rang at %v", first.rang)
	}
}

func TestARemovedEngineIsNotStepped(t *testing.T) {
	a, b := &alarm{due: []int64{5, 6}}, &alarm{due: []int64{5}}
	w, v := world(a, b)
	w.Step()
	w.Remove(a)
	w.Remove(a)
	v.AdvanceTo(6)
	w.Step()
	if len(a.rang) != 0 || !slices.Equal(b.rang, []int64{6}) {
		t.Fatalf("a rang %v, b %v", a.rang, b.rang)
	}
}

func TestInterruptsAreDeliveredOutsideTheLock(t *testing.T) {
	var w *sim.World
	var order []string
	a := &alarm{due: []int64{3}}
	a.then = func(int64) {
		for i := range 2 {
			w.Defer(func() {
				w.Lock() // a handler reads a register
				order = append(order, fmt.Sprint("handler ", i))
				w.Defer(func() { order = append(order, fmt.Sprint("handler of handler ", i)) })
				w.Unlock()
			})
		}
		order = append(order, "step")
	}
	w, v := world(a)
	v.AdvanceTo(3)
	w.Step()
	want := []string{"step", "handler 0", "handler of handler 0", "handler 1", "handler of handler 1"}
	if !slices.Equal(order, want) {
		t.Fatalf("order %q, want %q", order, want)
	}
	w.Lock()
	w.Defer(func() { order = nil })
	if order == nil {
		t.Fatal("ran under the lock")
	}
	w.Unlock()
	if order != nil {
		t.Fatal("did not run when the lock was given back")
	}
}

func TestAnArmedWorldStepsItselfEachTimeAtTheTime(t *testing.T) {
	a := &alarm{due: []int64{10, 20, 500}}
	w, v := world(a)
	w.ArmTimer()
	if at, ok := v.Next(); !ok || at != 10 {
		t.Fatalf("timer at %d, %v; want 10", at, ok)
	}
	v.AdvanceTo(1000)
	if want := []int64{10, 20, 500}; !slices.Equal(a.rang, want) {
		t.Fatalf("rang at %v, want %v", a.rang, want)
	}
	if at, ok := v.Next(); ok {
		t.Fatalf("nothing is due, and there is a timer at %d", at)
	}
	// Armed it stays: a poke is enough.
	poke(w, func() { a.due = []int64{1100} })
	v.AdvanceTo(2000)
	if a.rang[len(a.rang)-1] != 1100 {
		t.Fatalf("rang at %v after a poke", a.rang)
	}
}

func TestArmedWithNothingDueAPokeIsEnough(t *testing.T) {
	a := &alarm{}
	w, v := world(a)
	w.ArmTimer()
	if _, ok := v.Next(); ok {
		t.Fatal("a timer for nothing")
	}
	v.AdvanceTo(100)
	poke(w, func() { a.due = []int64{100, 150} })
	v.AdvanceTo(200)
	if want := []int64{100, 150}; !slices.Equal(a.rang, want) {
		t.Fatalf("rang at %v, want %v", a.rang, want)
	}
}

func TestAnUnarmedWorldSetsNoTimers(t *testing.T) {
	a := &alarm{due: []int64{10}}
	w, v := world(a)
	w.Step()
	poke(w, func() {})
	if at, ok := v.Next(); ok {
		t.Fatalf("timer at %d", at)
	}
}

func TestAnEarlierThingMovesTheTimer(t *testing.T) {
	a := &alarm{due: []int64{1000}}
	w, v := world(a)
	w.ArmTimer()
	poke(w, func() { a.due = []int64{50, 1000} })
	v.AdvanceTo(60)
	if !slices.Equal(a.rang, []int64{50}) {
		t.Fatalf("rang at %v", a.rang)
	}
	if at, _ := v.Next(); at != 1000 {
		t.Fatalf("timer at %d, want 1000", at)
	}
}

// lateClock is a clock whose timers are as on a busy machine: by the time one is stopped, its call is under way.
type lateClock struct {
	clock.Clock
	mu     sync.Mutex
	timers []*lateTimer
}

type lateTimer struct {
	at int64
	f  func()
}

func (*lateTimer) Stop() bool { return false }

func (c *lateClock) At(t int64, f func()) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers = append(c.timers, &lateTimer{t, f})
	return c.timers[len(c.timers)-1]
}

// fire makes all calls that were set before.
func (c *lateClock) fire() int {
	c.mu.Lock()
	timers := c.timers
	c.timers = nil
	c.mu.Unlock()
	for _, t := range timers {
		t.f()
	}
	return len(timers)
}

func TestATimerThatCannotBeStoppedDoesNotBreed(t *testing.T) {
	v := clock.NewVirtual(start)
	c := &lateClock{Clock: v}
	w := sim.NewWorld(c)
	a := &alarm{}
	for i := range int64(1000) {
		a.due = append(a.due, 100+i*10)
	}
	w.Add(a)
	w.ArmTimer()
	for range 20 { // each poke moves the timer, too late
		v.Advance(10)
		poke(w, func() {})
		c.fire()
	}
	v.Advance(10)
	for range 5 {
		c.fire()
	}
	if n := c.fire(); n != 1 {
		t.Fatalf("%d timers for one world", n)
	}
}

func TestRunStopsWithItsContext(t *testing.T) {
	for _, due := range [][]int64{nil, {math.MaxInt64 - 1}, {1}} {
		w := sim.NewWorld(clock.Real())
		w.Add(&alarm{due: due})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		cancel()
		if err := <-done; err != context.Canceled {
			t.Fatalf("due %v: %v", due, err)
		}
	}
}

func TestAPokeFromAnotherGoroutineWakesRun(t *testing.T) {
	w := sim.NewWorld(clock.Real())
	rang := make(chan struct{}, 1)
	a := &alarm{then: func(int64) { w.Defer(func() { rang <- struct{}{} }) }}
	w.Add(a)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	for range 200 {
		poke(w, func() { a.due = append(a.due, 0) })
		<-rang // or the test hangs
	}
	cancel()
	<-done
}

func TestRunComesInTimeForWhatIsDue(t *testing.T) {
	c := clock.Real()
	w := sim.NewWorld(c)
	rang := make(chan int64)
	now := c.Nanos()
	a := &alarm{due: []int64{now + 1e6, now + 5e6, now + 6e6}, then: func(at int64) { w.Defer(func() { rang <- at }) }}
	due := slices.Clone(a.due)
	w.Add(a)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	for _, want := range due {
		if at := <-rang; at < want {
			t.Errorf("rang at %d, before %d", at, want)
		}
	}
	cancel()
	<-done
}

func TestManyGoroutinesShareAWorld(t *testing.T) {
	w := sim.NewWorld(clock.Real())
	var total int // guarded by the world
	var delivered atomic.Int64
	a := &alarm{}
	a.then = func(int64) {
		total++
		w.Defer(func() { delivered.Add(1) })
	}
	w.Add(a)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 300 {
				poke(w, func() { a.due = append(a.due, 0) })
				switch i % 100 {
				case 10:
					w.ArmTimer()
				case 20:
					extra := &alarm{}
					w.Add(extra)
					w.Remove(extra)
				default:
					w.Step()
				}
			}
		})
	}
	wg.Wait()
	w.Step()
	cancel()
	<-done
	w.Lock()
	defer w.Unlock()
	if total != 4*300 {
		t.Fatalf("%d things done, want %d", total, 4*300)
	}
}

func TestTheSameCallsMakeTheSameRun(t *testing.T) {
	run := func() string {
		log := ""
		a, b := &alarm{due: []int64{1, 4, 9}}, &alarm{due: []int64{2, 4, 8}}
		w, v := world(a, b)
		a.then = func(now int64) {
			log += fmt.Sprint("a", now, " ")
			b.due = append([]int64{now + 1}, b.due...)
			w.Poke()
		}
		b.then = func(now int64) { log += fmt.Sprint("b", now, " ") }
		w.ArmTimer()
		v.AdvanceTo(20)
		return log
	}
	want := run()
	if want != "a1 b2 b2 a4 b5 b5 b8 a9 b10 " {
		t.Errorf("run: %s", want)
	}
	for range 5 {
		if got := run(); got != want {
			t.Fatalf("%s, then %s", want, got)
		}
	}
}

func TestAStepWithNothingDueAllocatesNothing(t *testing.T) {
	a := &alarm{due: []int64{1 << 40}}
	w, v := world(a)
	if n := testing.AllocsPerRun(100, func() {
		v.Advance(1)
		w.Step()
		poke(w, func() {})
		w.Step()
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// ticker counts; it is due every ten nanoseconds.
type ticker int

func (t *ticker) Step(now int64) int64 {
	*t++
	return now/10*10 + 10
}

// An engine is stepped when it is due: by whoever calls Step, or, once the world is armed, by the clock.
func ExampleWorld() {
	clk := clock.NewVirtual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	world := sim.NewWorld(clk)
	var t ticker
	world.Add(&t)

	world.Step()
	fmt.Println("at 0:", t)
	clk.AdvanceTo(35) // nobody steps
	fmt.Println("at 35:", t)
	world.ArmTimer()
	clk.AdvanceTo(100)
	fmt.Println("at 100:", t)
	// Output:
	// at 0: 1
	// at 35: 1
	// at 100: 9
}

func BenchmarkStepNothingDue(b *testing.B) {
	for name, clk := range map[string]clock.Clock{"real": clock.Real(), "virtual": clock.NewVirtual(start)} {
		for what, due := range map[string]int64{"never": sim.Never, "later": 1 << 60} {
			b.Run(name+"/"+what, func(b *testing.B) {
				w := sim.NewWorld(clk)
				w.Add(&alarm{due: []int64{due}})
				for b.Loop() {
					w.Step()
				}
			})
		}
	}
}
