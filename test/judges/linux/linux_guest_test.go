//go:build guest

package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bare.wire/test/guest"
)

// full says whether everything is run, or what is enough before a change goes in.
func full() bool { return os.Getenv("BAREWIRE_FULL") != "" }

// TestGuestIxgbe is everything in one guest with several queues and VT-d, first with MSI-X, and then with a pin.
func TestGuestIxgbe(t *testing.T) { judge(t, guest.Machine{IOMMU: true, CPUs: 2}) }

// TestGuestIxgbeWithoutIOMMU is the same on physical addresses, in a guest that is booted twice, with a card that has no
// MSI-X: first with MSI, and then with a pin; without BAREWIRE_FULL the self-test alone. The other guest is not booted again: QEMU 7.2 now and then dies of it when there is a VT-d (docs/qemu.md).
func TestGuestIxgbeWithoutIOMMU(t *testing.T) { judge(t, guest.Machine{}) }

func judge(t *testing.T, m guest.Machine) {
	queues, messages, flags := max(1, m.CPUs), "msix", []string(nil)
	if !m.IOMMU {
		m.Restarts = 1
		messages, flags = "msi", []string{"--no-msix"}
	}
	guest.Run(t, machine(t, m, flags...), func(t *testing.T) {
		b := start(t)
		if err := interruptsBy(messages); err != nil {
			t.Fatal(err)
		}
		brief := !m.IOMMU && !full()
		if m.Restarts > 0 && guest.Start() == 1 {
			// A card that was in use is met again by a kernel that knows nothing of it.
			if err := b.streamOut(1 << 20); err != nil {
				t.Fatal(err)
			}
			if err := guest.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		list, onPin := checks, checks[:2]
		if brief {
			list, onPin = checks[:1], checks[:1]
		}
		for _, c := range list {
			if c.name == "placement" && queues == 1 {
				continue
			}
			t.Run(c.name, func(t *testing.T) { b.judge(t, c) })
		}
		rounds := 3
		switch {
		case full():
			rounds = 20
		case brief:
			rounds = 1
		}
		t.Run("reload", func(t *testing.T) {
			for i := range rounds {
				if err := errors.Join(b.reload(), b.streamIn(100_000)); err != nil {
					t.Fatalf("round %d: %v", i, err)
				}
			}
			b.noMisuse(t, nil)
		})
		t.Run("pin", func(t *testing.T) {
			if err := b.usePin(); err != nil {
				t.Fatal(err)
			}
			for _, c := range onPin {
				t.Run(c.name, func(t *testing.T) { b.judge(t, c) })
			}
		})
	})
}

// judge runs a check and looks for misuse after it.
func (b *bench) judge(t *testing.T, c check) {
	begun := real.Now()
	if err := c.run(b); err != nil {
		t.Error(err)
	}
	t.Logf("%v", real.Now().Sub(begun).Round(time.Millisecond))
	on := tolerated
	if c.name == "self-test" {
		on = onPurpose
	}
	b.noMisuse(t, on)
}

// usePin has the driver use INTx: MSI is forbidden for the device, and the driver loaded again.
func (b *bench) usePin() error {
	if err := guest.UnloadModule("ixgbe"); err != nil {
		return err
	}
	if err := os.WriteFile("/sys/bus/pci/devices/"+cardAddress+"/msi_bus", []byte("0"), 0); err != nil {
		return err
	}
	if err := errors.Join(guest.LoadModule("ixgbe"), b.find()); err != nil {
		return err
	}
	return interruptsBy("")
}

// interruptsBy checks what the driver has the card interrupt by: "msix", "msi", or "" for its pin.
func interruptsBy(want string) error {
	dir := "/sys/bus/pci/devices/" + cardAddress + "/msi_irqs"
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) == 0 && want != "" {
		return fmt.Errorf("the card interrupts by its pin, want %s", want)
	}
	for _, e := range entries {
		got, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if kind := strings.TrimSpace(string(got)); kind != want {
			return fmt.Errorf("interrupt %s of the card is %s, want %q", e.Name(), kind, want)
		}
	}
	return nil
}

// tolerated is what the card takes amiss, or does not have, and the driver does all the same.
var tolerated = map[string]string{
	"Unsupported FDIRCTRL": "the flow director, which the driver turns on with several queues; without it RSS chooses the queue",
	"Unsupported ETQF":     "the filter for time stamps",
	"CounterOrder":         "the driver reads its statistics from two places without a lock",
}

// onPurpose is what the self-test does to see how the card takes it, besides. It writes patterns into registers of rings
// and enables queues that have none; its own rings are set up by a shorter way than the datasheet's.
var onPurpose = map[string]string{
	"ReadOnlyWrite": "STATUS is written to see that it stays", "RingLength": "patterns", "RingUnaligned": "patterns",
	"TailBeforeEnable": "patterns", "TailBeyondRing": "patterns", "EnableNotEmpty": "patterns", "RXENBeforeRings": "patterns",
	"InterruptUnmapped": "EICS without IVAR", "RXENWithoutSECRX": "its rings", "CRCStripMismatch": "its rings",
	"FixedBits": "its rings", "RelaxedOrderLeft": "its rings", "NoSnoopLeft": "its rings", "BufferSizeZero": "patterns", "Unsupported SRRCTL": "patterns",
}

// noMisuse fails the test for all misuse but what is tolerated, and what a second list has.
func (b *bench) noMisuse(t *testing.T, also map[string]string) {
	t.Helper()
	all, err := b.misuse()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		name := m.Kind
		if name == "Unsupported" {
			register, _, _ := strings.Cut(m.Detail, " ")
			register, _, _ = strings.Cut(register, "(")
			name += " " + register
		}
		if tolerated[name] == "" && also[name] == "" {
			t.Errorf("misuse: %s", m.Text)
		}
	}
}
