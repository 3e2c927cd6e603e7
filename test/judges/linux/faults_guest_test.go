//go:build guest

package linux

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
	"bare.wire/sim/nic82599"
	"bare.wire/test/guest"
)

// noticedBy says which check has to notice a fault of the card, by any driver's lights. Faults that are not here are put in
// too, and docs/features.md says what is known of them.
var noticedBy = map[string]string{
	"rah-mask": "self-test", "eeprom-sum": "self-test", "no-loopback": "self-test",
	"no-dd": "streams", "rx-byte-64": "streams", "tso-segment-size": "streams", "tso-ip-id": "streams", "tx-checksum": "streams",
	"rss-queue": "placement", "vlan-byte-order": "VLAN", "rx-checksum-flag": "bad checksum", "clear-on-read": "statistics", "mta-bit": "filters",
}

// pinOnly is noticed by the self-test when the card interrupts by its pin: with MSI-X the driver does not try.
const pinOnly = "eics"

// TestGuestFaultsAreNoticed puts faults into the card of a running guest, one at a time, and has the checks look for them.
// With BAREWIRE_FULL it is every fault and every check, and a table of them; else those that must be noticed and by which.
func TestGuestFaultsAreNoticed(t *testing.T) {
	m := guest.Machine{IOMMU: true, CPUs: 2, Timeout: 40 * time.Minute, Files: map[string]string{}}
	if full() && !guest.Inside() {
		m.Files["/full"] = os.DevNull
	}
	guest.Run(t, machine(t, m), func(t *testing.T) {
		_, err := os.Stat("/full")
		everything := err == nil
		b := start(t)
		b.patience, b.stream = faulty, 256<<10
		table := &matrix{}
		for _, name := range faults(everything) {
			list := checks
			if !everything {
				list = only(noticedBy[name])
			} else if strings.HasPrefix(name, "mask:") {
				list = only("self-test")
			}
			t.Run(name, func(t *testing.T) {
				row := b.try(t, name, list)
				table.add(name, row)
				if by := noticedBy[name]; by != "" && row[by] == nil {
					t.Errorf("%s has not noticed", by)
				}
			})
		}
		t.Run(pinOnly, func(t *testing.T) {
			if err := b.usePin(); err != nil {
				t.Fatal(err)
			}
			row := b.try(t, pinOnly, only("self-test"))
			table.add(pinOnly+" (pin)", row)
			if row["self-test"] == nil {
				t.Error("the self-test has not noticed")
			}
		})
		t.Log("\n" + table.String())
	})
}

func only(name string) []check {
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	return checks[i : i+1]
}

// faults are those that are put in: all, or those that must be noticed.
func faults(everything bool) (names []string) {
	for _, name := range nic82599.FaultNames() {
		if name != pinOnly && (everything || noticedBy[name] != "") {
			names = append(names, name)
		}
	}
	if !everything {
		return names
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
func (b *bench) try(t *testing.T, name string, list []check) map[string]error {
	t.Helper()
	row := map[string]error{}
	for _, c := range list {
		if err := b.fault(name); err != nil {
			t.Fatal(err)
		}
		row[c.name] = c.run(b)
		t.Logf("%s: %v", c.name, row[c.name])
		if row[c.name] == nil {
			if err := b.fault(""); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := b.heal(); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
	}
	return row
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

// matrix is a table of faults and of the checks that noticed.
type matrix struct {
	names []string
	rows  []map[string]error
}

func (m *matrix) add(name string, row map[string]error) {
	m.names, m.rows = append(m.names, name), append(m.rows, row)
}

func (m *matrix) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%-20s", "fault")
	for _, c := range checks {
		fmt.Fprintf(&s, " %s", c.name)
	}
	s.WriteByte('\n')
	for i, name := range m.names {
		fmt.Fprintf(&s, "%-20s", name)
		noticed := false
		for _, c := range checks {
			mark := ""
			if err, tried := m.rows[i][c.name]; tried {
				mark = "."
				if err != nil {
					mark, noticed = "X", true
				}
			}
			fmt.Fprintf(&s, " %-*s", len(c.name), mark)
		}
		if !noticed {
			s.WriteString(" unnoticed")
		}
		s.WriteByte('\n')
	}
	return s.String()
}
