package sim_test

import (
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/sim"
)

func TestADoorbellSetsATimerOnlyWhileSomebodySleeps(t *testing.T) {
	clk := clock.NewVirtual(time.Time{})
	w := sim.NewWorld(clk)
	poke := func() bool {
		w.Lock()
		w.Poke()
		w.Unlock()
		_, set := clk.Next()
		clk.Advance(1)
		w.Step()
		return set
	}
	if poke() {
		t.Error("a timer for nobody")
	}
	w.ArmTimer()
	w.ArmTimer()
	w.DisarmTimer()
	if !poke() {
		t.Error("no timer, and one still sleeps")
	}
	w.DisarmTimer()
	if poke() {
		t.Error("a timer when all are awake again")
	}
}
