//go:build guest

package dpdk

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"bare.wire/test/judges/internal/faulttable"
)

// expectation says that a check has to notice faults of the card (nic82599.FaultNames): quick ones are tried in every run, the
// others when everything is.
type expectation struct{ quick, more []string }

var expectations = map[string]expectation{
	"io forwarding":              {[]string{"rx-byte-64"}, []string{"tx-byte-64", "rx-length", "no-dd", "no-rx-dd", "no-tx-dd", "no-link"}},
	"jumbo frames":               {nil, []string{"rx-jumbo"}},
	"counts":                     {[]string{"clear-on-read"}, []string{"queue-count-twice"}},
	"rss":                        {[]string{"rss-queue"}, []string{"rss-hash"}},
	"rx checksums":               {[]string{"rx-checksum-flag"}, []string{"rx-checksum-lost"}},
	"tx checksums":               {[]string{"tx-checksum"}, []string{"tx-ip-checksum"}},
	"tso":                        {[]string{"tso-segment-size", "tso-ip-id"}, []string{"tso-flags"}},
	"vlan tag in the descriptor": {[]string{"vlan-byte-order"}, nil},
	"vlan insert":                {nil, []string{"vlan-no-insert"}},
	"vlan filter":                {nil, []string{"vlan-filter-open", "vfta-bit"}},
	"address filters":            {[]string{"mta-bit"}, []string{"address-bit"}},
	"loopback":                   {nil, []string{"no-loopback"}},
	"link":                       {nil, []string{"no-lsc"}},
}

// Faults that testpmd has no eyes for: it polls, so eics, no-auto-mask and no-queue-irq make no difference to it; it does not show the
// register of count-twice; rah-mask and the masks of other registers are in bits that it leaves alone; and how long a pause lasts
// (no-pause) is too short for it. Linux's driver and its self-test judge those (test/judges/linux).

// startFaults keep the driver from taking the card at all.
var startFaults = []string{"eeprom-sum", "sfp-byte"}

// everyFault says whether every fault is tried: make mutants does.
var everyFault = os.Getenv("BAREWIRE_FAULTS") != ""

// faults are those that are tried in this run.
func (e expectation) faults() []string {
	if everyFault {
		return slices.Concat(e.quick, e.more)
	}
	return e.quick
}

// judgeWithFaults runs a check on a good card, where it must pass, and then with each of the faults in the card that it has to
// notice. What it says of them is written into the table. The error is that of the good card, or that testpmd did not recover.
func (c check) judgeWithFaults(b *bench, table *faulttable.Table) error {
	both := c
	both.run = func(b *bench) error {
		if err := c.run(b); err != nil {
			return err
		}
		for _, f := range expectations[c.name].faults() {
			if err := b.fault(0, f); err != nil {
				return err
			}
			b.patience = faulty
			verdict := c.run(b)
			b.patience = usually
			table.Ran(f, c.name, verdict)
			rest := b.recover
			if c.inward {
				rest = func() error { return b.reconfigure() }
			}
			if err := errors.Join(b.fault(0, ""), rest()); err != nil {
				return fmt.Errorf("after the fault %s, which gave %v: %w", f, verdict, err)
			}
		}
		return nil
	}
	return both.judge(b)
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
