package capture

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// A clock finer than 64 bits can count would be converted wrongly, without an error.
func TestClockFinerThanCanBeConvertedIsRefused(t *testing.T) {
	o := orders["little"]
	file := func(resolution byte) []byte {
		return join(section(o), iface(o, 1, 0, resolution), enhanced(o, 0, 1<<60, 60, frame(60)))
	}
	if _, _, err := all(file(20)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "10^-20 s") || strings.Contains(err.Error(), "editcap") {
		t.Errorf("10⁻²⁰ s: %v", err)
	}
	recs, _, err := all(file(19))
	if err != nil || len(recs) != 1 || recs[0].At.UnixNano() != 1<<60/10_000_000_000 {
		t.Errorf("10⁻¹⁹ s: %v %v", recs, err)
	}
}

// Interfaces are kept until the section ends; a small compressed file may describe any number of them.
func TestInterfacesWithoutEndAreRefused(t *testing.T) {
	o := orders["little"]
	one, packet := iface(o, 1, 0, 0), enhanced(o, 0, 1, 60, frame(60))
	many := func(n int) []byte { return bytes.Repeat(one, n) }
	if recs, _, err := all(join(section(o), many(40_000), packet, many(40_000), packet)); !errors.Is(err, errInterfaces) || len(recs) != 1 {
		t.Errorf("%d packets, %v", len(recs), err)
	}
	if recs, _, err := all(join(section(o), many(40_000), packet, section(o), many(40_000), packet)); err != nil || len(recs) != 2 {
		t.Errorf("in two sections: %d packets, %v", len(recs), err)
	}
}
