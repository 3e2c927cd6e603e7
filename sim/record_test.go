package sim_test

import (
	"strings"
	"testing"

	"bare.wire/sim"
)

type wrongKind uint8

func (k wrongKind) String() string { return [...]string{"Early", "Late"}[k] }
func (k wrongKind) Explain() (section, text string) {
	return [...]string{"§1", ""}[k], "text of " + k.String()
}

func TestMisuseIsCountedByKindAndQueue(t *testing.T) {
	var m sim.Misuses[wrongKind]
	m.Add(10, 0, 3, "value %d", 1)
	m.Add(20, 1, -1, "nothing")
	m.Add(30, 0, 3, "value %d", 2)
	m.Add(40, 0, 4, "value %d", 3)
	var lines []string
	for _, e := range m.List() {
		lines = append(lines, e.String())
	}
	want := strings.Join([]string{
		"Early on queue 3: text of Early (value 1; §1; 2 times, first at 10 ns)",
		"Late: text of Late (nothing; 1 times, first at 20 ns)",
		"Early on queue 4: text of Early (value 3; §1; 1 times, first at 40 ns)",
	}, "\n")
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDMALogKeepsTheLast(t *testing.T) {
	for last, want := range map[int]string{0: "01234", 3: "234", 5: "01234", 9: "01234"} {
		l := sim.NewDMALog[wrongKind](last)
		for i := range 5 {
			l.Add(sim.DMA[wrongKind]{Queue: i})
		}
		got := ""
		for _, e := range l.List() {
			got += string(rune('0' + e.Queue))
		}
		if !l.On || got != want {
			t.Errorf("of the last %d there are %s, want %s", last, got, want)
		}
	}
}
