package nic

import (
	"errors"
	"testing"
	"time"

	"bare.wire/clock"
)

func TestAFailedWaitSaysWhyOnce(t *testing.T) {
	for _, clk := range []clock.Clock{clock.Real(), clock.NewVirtual(time.Time{})} {
		w, err := NewWaiter(clk)
		if err != nil {
			t.Fatal(err)
		}
		w.Fail(ErrGone)
		if woken, err := w.Wait(clk.Nanos() + 1000); !woken || !errors.Is(err, ErrGone) {
			t.Errorf("first wait: %v, %v", woken, err)
		}
		if woken, err := w.Wait(clk.Nanos() + 1000); woken || err != nil {
			t.Errorf("second wait: %v, %v", woken, err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
