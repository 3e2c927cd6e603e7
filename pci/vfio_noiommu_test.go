package pci_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"bare.wire/pci"
	"bare.wire/pci/pcitest"
)

// withoutIOMMU puts a card into the machine that VFIO hands out without protection.
func (r *vfioRig) withoutIOMMU() {
	r.machine.NoIOMMU()
	config := make([]byte, 4096)
	copy(config, []byte{0x86, 0x80, 0xfb, 0x10, 0x06, 0})
	r.machine.Add(pcitest.Card{Address: nic0, ID: "8086:10fb", Driver: pci.VFIODriver, Group: pcitest.NoGroup, Config: config})
	r.kernel.Add(nic0, 99)
	r.kernel.Types = []uintptr{8}
}

// TestGuardianHoldsTheMemoryWhereVFIOHasNoIOMMU: a process that is killed loses its memory before VFIO's files are closed.
func TestGuardianHoldsTheMemoryWhereVFIOHasNoIOMMU(t *testing.T) {
	r := newVFIORig(t, nil)
	r.withoutIOMMU()
	r.use(pci.OpenOptions{Access: pci.VFIONoIOMMU})
	pci.AnySpace(r.opener)
	g := r.region()
	r.add(g)
	f := r.open(nic0)
	held := 0
	entries, err := os.ReadDir(pci.GuardianDir(f))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(pci.GuardianDir(f) + "/" + e.Name()); err == nil && strings.HasPrefix(to, "/memfd:") {
			held++
		}
	}
	if held != 1 {
		t.Errorf("it holds %d regions of 1", held)
	}
	told := make(chan error, 1)
	f.(pci.GoneNotifier).OnGone(func(err error) { told <- err })
	pci.KillGuardian(t, f)
	if err := <-told; !errors.Is(err, pci.ErrGone) || !strings.Contains(err.Error(), "guardian") {
		t.Errorf("told: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestNoIOMMUOnlyByName(t *testing.T) {
	r := newVFIORig(t, nil)
	r.withoutIOMMU()
	r.refused(nic0, "access=noiommu")
	r.use(pci.OpenOptions{Access: pci.VFIONoIOMMU})
	r.refused(nic0, "physical")
	pci.AnySpace(r.opener)
	f := r.open(nic0)
	if bar, err := f.BAR(0); err != nil || bar.Read32(0) != 0 {
		t.Error(err)
	}
	if !strings.Contains(r.log.String(), "overwrite any memory") {
		t.Errorf("no warning in %q", r.log.String())
	}
	// Behind an IOMMU it is refused: that protects and costs nothing.
	behind := newVFIORig(t, map[string]int{nic0: 7})
	behind.use(pci.OpenOptions{Access: pci.VFIONoIOMMU})
	behind.refused(nic0, "there is an IOMMU")
}
