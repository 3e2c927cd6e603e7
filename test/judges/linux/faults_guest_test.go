//go:build guest

package linux

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
	"bare.wire/sim/nic82599"
	"bare.wire/test/guest"
	"bare.wire/test/judges/internal/faulttable"
)

// noticedBy says which check has to notice a fault of the card, by any driver's lights. Faults that are not here are put in
// too, and docs/features.md says what is known of them.
var noticedBy = map[string]string{
	"rah-mask": "self-test", "eeprom-sum": "self-test", "no-loopback": "self-test",
	"no-dd": "streams", "rx-byte-64": "streams", "tso-segment-size": "streams", "tso-ip-id": "streams", "tx-checksum": "streams",
	"rss-queue": "placement", "vlan-byte-order": "VLAN", "rx-checksum-flag": "bad checksum", "sfp-byte": "module", "clear-on-read": "statistics", "mta-bit": "filters",
}

// everyFault says whether every fault is tried, and a table made of them: make mutants does.
func everyFault() bool { return os.Getenv("BAREWIRE_FAULTS") != "" }

// quick are the faults that are put in whenever the tests are run.
var quick = []string{"clear-on-read", "mta-bit", "rss-queue", "rx-checksum-flag", "tso-ip-id", "vlan-byte-order"}

// controlPlane are the faults that the self-test is tried on: it takes longer than all else together.
var controlPlane = []string{"rah-mask", "eeprom-sum", "no-loopback", "no-dd", "no-rx-dd", "no-tx-dd", "no-link", "no-lsc", "no-queue-irq", "no-auto-mask"}

// pinOnly is noticed by the self-test when the card interrupts by its pin: with MSI-X the driver does not try.
const pinOnly = "eics"

// TestGuestFaultsAreNoticed puts faults into the card of a running guest, one at a time, and has the checks look for them.
// With BAREWIRE_FAULTS it is every fault and every check, and a table of them; else a few, and those checks that must notice.
func TestGuestFaultsAreNoticed(t *testing.T) {
	m := guest.Machine{IOMMU: true, CPUs: 2, Timeout: 40 * time.Minute}
	guest.Run(t, machine(t, m), func(t *testing.T) {
		b := start(t)
		b.patience, b.stream = faulty, 256<<10
		var table faulttable.Table
		for _, name := range faults() {
			list := checks[1:]
			switch {
			case !everyFault():
				list = only(noticedBy[name])
			case strings.HasPrefix(name, "mask:"):
				list = only("self-test")
			case name == "sfp-byte": // a reset with it has the driver give up its interface, and it leaks what it would need to make another
				list = only("module")
			case slices.Contains(controlPlane, name):
				list = checks
			}
			if b.broken {
				break
			}
			t.Run(name, func(t *testing.T) {
				row := b.try(t, &table, name, list)
				if by := noticedBy[name]; by != "" && row[by] == nil {
					t.Errorf("%s has not noticed", by)
				}
			})
		}
		if everyFault() {
			t.Run(pinOnly, func(t *testing.T) {
				if err := b.usePin(); err != nil {
					t.Fatal(err)
				}
				if row := b.try(t, &table, pinOnly, only("self-test")); row["self-test"] == nil {
					t.Error("the self-test has not noticed")
				}
			})
		}
		t.Log(table.Text("Linux"))
	})
}

func only(name string) []check {
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	return checks[i : i+1]
}

// faults are those that are put in: all, or the quick ones.
func faults() (names []string) {
	if !everyFault() {
		return quick
	}
	for _, name := range nic82599.FaultNames() {
		if name != pinOnly {
			names = append(names, name)
		}
	}
	// Of each register whose mask is known, the lowest bit that is kept and the highest that is not.
	for _, r := range reg.All() {
		if !r.Mask.Known || r.Mode != reg.RW && r.Name != "STATUS" {
			continue
		}
		keep := r.Mask.Value
		for n := range uint8(32) {
			if keep>>n&1 != 0 {
				names = append(names, fmt.Sprintf("mask:%s:%d", r.Name, n))
				break
			}
		}
		for n := uint8(31); keep != ^uint32(0); n-- {
			if keep>>n&1 == 0 {
				names = append(names, fmt.Sprintf("mask:%s:%d", r.Name, n))
				break
			}
		}
	}
	return names
}

// try puts a fault into the card and runs checks one after the other, each on a card that was well before. It returns what
// each had to say.
func (b *bench) try(t *testing.T, table *faulttable.Table, name string, list []check) map[string]error {
	t.Helper()
	row := map[string]error{}
	for i, c := range list {
		verdict, err := b.verdict(name, c, i == len(list)-1)
		if err != nil {
			b.broken = true
			t.Fatalf("after %s: %v", name, err)
		}
		row[c.name] = verdict
		table.Ran(name, c.name, verdict)
		t.Logf("%s: %v", c.name, verdict)
	}
	return row
}

// verdict is what a check says with a fault in the card. That something has not come in time says nothing if it does not come
// without the fault either: then both are tried again with more patience. The card is healed afterwards if the check has
// noticed something, and at the end always: what nobody noticed may still have its effect. The error is that nothing is known,
// or that the card cannot be healed.
func (b *bench) verdict(name string, c check, end bool) (verdict, err error) {
	patience := b.patience
	defer func() { b.patience = patience }()
	for range 3 {
		if err := b.fault(name); err != nil {
			return nil, err
		}
		verdict = c.run(b)
		if verdict == nil && !end {
			return nil, b.fault("")
		}
		if err := b.heal(); err != nil {
			return verdict, err
		}
		var late net.Error
		if !errors.As(verdict, &late) || !late.Timeout() {
			return verdict, nil
		}
		without := c.run(b)
		if without == nil {
			return verdict, nil
		}
		err = fmt.Errorf("%s says nothing in %v: with the fault %w, without it %w", c.name, b.patience, verdict, without)
		b.patience *= 2
		if err := b.heal(); err != nil {
			return verdict, err
		}
	}
	return verdict, err
}

// heal takes the fault out and brings the interface back to where the next check can start.
func (b *bench) heal() error {
	if err := errors.Join(b.fault(""), b.cable(true)); err != nil {
		return err
	}
	err := errors.Join(b.setMTU(1500), b.restart())
	if err != nil {
		err = b.reload()
	}
	return errors.Join(err, b.control(nil, `{"do":"forget","card":0}`))
}
