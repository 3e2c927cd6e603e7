//go:build guest

package dpdk

import (
	"slices"
	"strings"
	"testing"

	"bare.wire/test/guest"
	"bare.wire/test/judges/internal/faulttable"
)

// TestGuestTestpmd puts one card, joined to the host by a TAP interface, under testpmd.
func TestGuestTestpmd(t *testing.T) {
	guest.Run(t, machine(t, "tap:"+tapName), func(t *testing.T) {
		b := start(t, 1)
		var table faulttable.Table
		for _, c := range checks {
			t.Run(c.name, func(t *testing.T) {
				if err := c.judgeWithFaults(b, &table); err != nil {
					t.Error(err)
				}
			})
		}
		t.Run("no misuse", func(t *testing.T) { noMisuse(t, b, 0) })
		if full {
			t.Run("faults at the start", func(t *testing.T) { startsOnlyWhole(t, b, &table) })
		}
		t.Run("faults are noticed", func(t *testing.T) {
			t.Log(table.Text("DPDK"))
			for _, f := range table.Unnoticed() {
				t.Errorf("DPDK does not notice the fault %s", f)
			}
		})
	})
}

// tolerated is what DPDK's driver does although the datasheet forbids it: the card records it rightly, and that it does no harm
// here is said with it.
var tolerated = []struct{ kind, what, why string }{
	{"MaskWrittenZero", "EIMS = 0", "the driver writes the mask it keeps to EIMS even when nothing is in it; that changes nothing, as the card says"},
	{"RelaxedOrderLeft", "", "the driver leaves bit 12 of DCA_RXCTRL as a reset sets it; the card orders its writes all the same (§4.6.7 wants it clear)"},
	{"HeadWrittenEnabled", "head = 0", "the driver writes 0 to the head of a ring that it has just enabled, where 0 already is (§8.2.3.8.4 wants it before)"},
	{"FixedBits", "RDRXCTL", "the driver prepares RDRXCTL only when it uses RSC; the bits concern RSC and FCoE, neither of which is on (§4.6.7)"},
	{"WriteBeforeReady", "ESDP", "seen once in a while: the driver waits after a reset, but its thread for the link, which switches the laser, does not"},
}

// noMisuse fails for everything that the card has recorded and that is not tolerated.
func noMisuse(t *testing.T, b *bench, card int) {
	t.Helper()
	all, err := b.misuse(card)
	if err != nil {
		t.Fatal(err)
	}
	said := make(map[string]bool)
	for _, m := range all {
		i := slices.IndexFunc(tolerated, func(x struct{ kind, what, why string }) bool {
			return x.kind == m.Kind && strings.Contains(m.Text, x.what)
		})
		switch {
		case i < 0:
			t.Errorf("card %d: %s", card, m.Text)
		case !said[m.Kind]:
			said[m.Kind] = true
			t.Logf("card %d: %s\n  tolerated: %s", card, m.Text, tolerated[i].why)
		}
	}
}

// startsOnlyWhole starts testpmd anew with a fault in the card, which its driver has to refuse, and without one.
func startsOnlyWhole(t *testing.T, b *bench, table *faulttable.Table) {
	b.end(t)
	for _, f := range append(startFaults, "") {
		if err := b.fault(0, f); err != nil {
			t.Fatal(err)
		}
		var err error
		if b.Session, err = launch(1); err != nil {
			t.Fatal(err)
		}
		_, verdict := b.portInfo(0)
		if f == "" {
			if verdict != nil {
				t.Errorf("without a fault: %v", verdict)
			}
			return // as it was found
		}
		table.Ran(f, "start", verdict)
		b.end(t)
	}
}
