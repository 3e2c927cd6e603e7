package nic_test

import (
	"errors"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/nic"
)

// TestLinkWatchTellsEachChangeOnce: who is armed hears of the next change, and not of one that is none.
func TestLinkWatchTellsEachChangeOnce(t *testing.T) {
	clk := clock.NewVirtual(time.Unix(0, 0))
	w, err := nic.NewWaiter(clk)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	woken := func() bool {
		t.Helper()
		ok, err := w.Wait(clk.Nanos() + 1)
		if err != nil && !errors.Is(err, nic.ErrGone) {
			t.Fatal(err)
		}
		return ok
	}
	set := func(l *nic.LinkWatch, up bool) bool {
		_, changed := l.Update(func() (nic.Link, bool) { return nic.Link{Up: up}, true })
		return changed
	}
	var l nic.LinkWatch
	if l.Link().Up || !l.Arm(w, nic.Link{}) {
		t.Error("the zero value is not a link that is down")
	}
	if set(&l, false) || woken() {
		t.Error("no change, and somebody is told")
	}
	if !set(&l, true) || !woken() {
		t.Error("a change, and nobody is told")
	}
	if l.Arm(w, nic.Link{}) {
		t.Error("the link is up, was seen down, and one may sleep")
	}
	if _, changed := l.Update(func() (nic.Link, bool) { return nic.Link{}, false }); changed || !l.Link().Up {
		t.Error("what is not known is a change")
	}
	if set(&l, false); woken() {
		t.Error("who is not armed is told")
	}
	if l.Arm(w, l.Link()); true {
		l.Wake(nic.ErrGone)
	}
	if _, err := w.Wait(clk.Nanos() + 1); !errors.Is(err, nic.ErrGone) {
		t.Errorf("the port is gone, and its sleeper is told %v", err)
	}
	if l.Arm(w, l.Link()); true {
		l.End()
	}
	if !woken() || l.Arm(w, l.Link()) {
		t.Error("the link of a closed port is waited for")
	}
}

// TestSleeperWakesOnce: a sleeper is told once, and with the reason if there is one.
func TestSleeperWakesOnce(t *testing.T) {
	clk := clock.NewVirtual(time.Unix(0, 0))
	w, err := nic.NewWaiter(clk)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	var s nic.Sleeper
	s.Fire(nil) // nobody is there
	s.Note(w)
	if !s.Noted() {
		t.Error("who was noted is not there")
	}
	for k, want := range []bool{true, false} {
		s.Fire(nil)
		if ok, err := w.Wait(clk.Nanos() + 1); ok != want || err != nil {
			t.Errorf("wake %d: %v, %v", k, ok, err)
		}
	}
	s.Note(w)
	s.Fire(nic.ErrGone)
	if ok, err := w.Wait(clk.Nanos() + 1); !ok || !errors.Is(err, nic.ErrGone) {
		t.Errorf("the port is gone, and its sleeper is told %v, %v", ok, err)
	}
}
