package nic82599

import (
	"testing"
	"time"
)

func TestFrameCrossesBetweenTwoCards(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	r.start()
	f := frameTo(macB, 100, 7)
	if !r.a.send(0, f, 0, true) {
		t.Fatal("ring full")
	}
	r.b.expect(0, f)
	r.run(200 * time.Microsecond)
	r.a.reclaim(0)
	if r.a.tx[0].busy != 0 {
		t.Error("the descriptor did not come back")
	}
	r.clean()
}
