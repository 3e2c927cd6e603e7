package guest_test

import (
	"testing"

	"bare.wire/test/guest"
)

// A test that gives a card to vfio-pci, in a guest that has an IOMMU. In a file of its own it begins with //go:build guest.
func ExampleRun() {
	_ = func(t *testing.T) { // TestGuestBindsToVFIO
		m := guest.Machine{
			IOMMU:   true,
			Modules: []string{"vfio-pci", "vfio_iommu_type1"},
			QEMU:    []string{"-device", "virtio-net-pci,addr=3,disable-legacy=on,iommu_platform=on"},
			Answer:  func(question string) string { return "the host knows of " + question },
		}
		guest.Run(t, m, func(t *testing.T) {
			t.Run("vfio-pci takes it", func(t *testing.T) {
				if err := guest.BindVFIO("0000:00:03.0"); err != nil {
					t.Fatal(err)
				}
			})
			t.Run("the host answers", func(t *testing.T) {
				answer, err := guest.Ask(t.Context(), "this")
				if err != nil || answer != "the host knows of this" {
					t.Errorf("got %q, %v", answer, err)
				}
			})
		})
	}
}
