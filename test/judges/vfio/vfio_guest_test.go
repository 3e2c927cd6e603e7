//go:build guest

package vfio

import (
	"testing"
	"time"

	"bare.wire/nic/nictest"
	"bare.wire/pci"
	"bare.wire/test/guest"
)

// TestGuestVFIO is the driver behind vfio-pci and VT-d: bus addresses are not physical addresses.
func TestGuestVFIO(t *testing.T) {
	m := cardsMachine(t, guest.Machine{
		IOMMU: true, Modules: []string{"vfio-pci", "vfio_iommu_type1"}, HugePages: 64, CPUs: 1, Memory: 1024, Timeout: 8 * time.Minute,
	})
	guest.Run(t, m, func(t *testing.T) {
		bind(t, "vfio-pci")
		t.Run("conformance", func(t *testing.T) {
			nictest.TestPort(t, func(t testing.TB, _ uint64) *nictest.Bench { return openPair(t, pci.VFIO).bench(t) })
		})
	})
}
