package hw

import (
	"strings"
	"testing"

	"bare.wire/ixgbe"
	"bare.wire/ixgbe/reg"
)

// TestReportMasksTheAddress writes the address as drivers, tests and people spell it, in pieces that are no lines.
func TestReportMasksTheAddress(t *testing.T) {
	mac := [6]byte{0x90, 0xe2, 0xba, 0x12, 0x34, 0x5f}
	var b strings.Builder
	m := &masked{to: &b, mac: mac}
	m.printf("%x %X\n90:e2:ba:12:", mac, mac)
	m.printf("34:5f 90-E2-BA-12-34-5F\n% x %v\nended", mac, mac)
	m.printf("\n")
	const want = "90e2baxxxxxx 90e2baxxxxxx\n90:e2:ba:xx:xx:xx 90-e2-ba-xx-xx-xx\n90 e2 ba xx xx xx [144 226 186 x x x]\nended\n"
	if b.String() != want {
		t.Errorf("written:\n%swant:\n%s", b.String(), want)
	}
	if m.err != nil {
		t.Error(m.err)
	}
}

func TestReportLeavesAddressesOutOfTheDump(t *testing.T) {
	got := list([]ixgbe.Register{
		{Name: "STATUS", Offset: reg.STATUS, Value: 0x80000},
		{Name: "MTA[0]", Offset: reg.MTA(0)}, {Name: "MTA[1]", Offset: reg.MTA(1)}, {Name: "MTA[2]", Offset: reg.MTA(2), Value: 5},
		{Name: "RAL[0]", Offset: reg.RAL(0), Value: 0x12bae290}, {Name: "RAL[1]", Offset: reg.RAL(1)},
		{Name: "RAH[0]", Offset: reg.RAH(0), Value: 0x80005f34},
	})
	const want = `00008  00080000  STATUS
05200  00000000  MTA[0…1]
05208  00000005  MTA[2]
0a200  xxxxxxxx (not shown)  RAL[0]
0a208  00000000  RAL[1]
0a204  xxxxxxxx (not shown)  RAH[0]
`
	got = strings.NewReplacer("05400", "0a200", "05408", "0a208", "05404", "0a204").Replace(got) // two names of one register
	if got != want {
		t.Errorf("listed:\n%swant:\n%s", got, want)
	}
}
