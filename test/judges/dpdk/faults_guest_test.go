//go:build guest

package dpdk

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"bare.wire/test/judges/internal/faulttable"
)

// expectations say by which check each fault of the card has to be noticed (nic82599.FaultNames). Those marked quick are tried in
// every run, the others when everything is.
var expectations = []struct {
	check string
	quick []string
	more  []string
}{
	{"io forwarding", []string{"rx-byte-64"}, []string{"tx-byte-64", "rx-length", "no-dd", "no-rx-dd", "no-tx-dd", "no-link"}},
	{"jumbo frames", nil, []string{"rx-jumbo"}},
	{"counts", []string{"clear-on-read"}, []string{"count-twice", "queue-count-twice"}},
	{"rss", []string{"rss-queue"}, []string{"rss-hash"}},
	{"rx checksums", []string{"rx-checksum-flag"}, []string{"rx-checksum-lost"}},
	{"tx checksums", []string{"tx-checksum"}, []string{"tx-ip-checksum"}},
	{"tso", []string{"tso-segment-size", "tso-ip-id"}, []string{"tso-flags"}},
	{"vlan tag in the descriptor", []string{"vlan-byte-order"}, nil},
	{"vlan insert", nil, []string{"vlan-no-insert"}},
	{"vlan filter", nil, []string{"vlan-filter-open", "vfta-bit"}},
	{"address filters", []string{"mta-bit"}, []string{"address-bit"}},
	{"loopback", nil, []string{"no-loopback"}},
	{"link", nil, []string{"no-lsc"}},
}

// faultsAreNoticed puts faults into the card, one after the other.
func faultsAreNoticed(t *testing.T, b *bench) {
	var table faulttable.Table
	for _, e := range expectations {
		faults := e.quick
		if full {
			faults = slices.Concat(e.quick, e.more)
		}
		if len(faults) == 0 {
			continue
		}
		i := slices.IndexFunc(checks, func(c check) bool { return c.name == e.check })
		if i < 0 {
			t.Fatalf("there is no check %q", e.check)
		}
		if err := b.tryFaults(checks[i], faults, &table); err != nil {
			t.Fatalf("%s: %v", e.check, err)
		}
	}
	t.Log(table.Text("DPDK"))
	for _, f := range table.Unnoticed() {
		t.Errorf("DPDK does not notice the fault %s", f)
	}
}

// tryFaults runs a check with each of some faults in the card. The error is that the card or testpmd did not recover.
func (b *bench) tryFaults(c check, faults []string, table *faulttable.Table) error {
	faulted := c
	faulted.run = func(b *bench) (err error) {
		for _, f := range faults {
			if err := b.fault(0, f); err != nil {
				return err
			}
			b.patience = faulty
			verdict := c.run(b)
			b.patience = usually
			table.Ran(f, c.name, verdict)
			if err := errors.Join(b.fault(0, ""), b.recover()); err != nil {
				return fmt.Errorf("after the fault %s, which gave %v: %w", f, verdict, err)
			}
		}
		return nil
	}
	return faulted.judge(b)
}

// recover brings everything to rest: the cable is in, no frame is under way, and one sent now comes back.
func (b *bench) recover() error {
	if err := b.control(nil, `{"do":"link","card":0,"up":true}`); err != nil {
		return err
	}
	settle := func() error {
		_, err := b.forward("io", func() error {
			_, err := b.ask(question{Settle: &exchange{Traffic: "broadcast", Seed: uint64(b.Mark())}})
			return err
		})
		return err
	}
	b.patience = faulty
	err := settle()
	b.patience = usually
	if err == nil {
		return nil
	}
	// A ring may have a hole where a descriptor was never written back.
	if err := b.reconfigure(); err != nil {
		return err
	}
	return settle()
}
