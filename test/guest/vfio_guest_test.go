//go:build guest

package guest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bare.wire/test/guest"
)

// TestGuestVFIO is also the example: what a guest is good for, in one boot.
func TestGuestVFIO(t *testing.T) {
	const address = "0000:00:03.0"
	m := guest.Machine{
		IOMMU:     true,
		Modules:   []string{"vfio-pci", "vfio_iommu_type1"},
		HugePages: 16,
		QEMU:      []string{"-device", "virtio-net-pci,addr=3,disable-legacy=on,iommu_platform=on"},
		Answer:    func(question string) string { return strings.ToUpper(question) },
	}
	guest.Run(t, m, func(t *testing.T) {
		t.Run("binds a device to vfio-pci", func(t *testing.T) {
			if err := guest.BindVFIO(address); err != nil {
				t.Fatal(err)
			}
			group, err := os.Readlink("/sys/bus/pci/devices/" + address + "/iommu_group")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat("/dev/vfio/" + filepath.Base(group)); err != nil {
				t.Fatal(err)
			}
		})
		t.Run("has huge pages", func(t *testing.T) {
			b, err := unix.Mmap(-1, 0, 2<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB)
			if err != nil {
				t.Fatal(err)
			}
			b[0] = 1
			if err := unix.Munmap(b); err != nil {
				t.Fatal(err)
			}
		})
		t.Run("asks the machine's monitor", func(t *testing.T) {
			got, err := guest.Monitor(t.Context(), "query-status", nil)
			if err != nil || !strings.Contains(string(got), `"running": true`) {
				t.Errorf("the status of a machine that runs: %s, %v", got, err)
			}
			if _, err := guest.Monitor(t.Context(), "device_del", map[string]string{"id": "nothing"}); err == nil || !strings.Contains(err.Error(), "nothing") {
				t.Errorf("a device that is not there was taken away: %v", err)
			}
		})
		t.Run("asks the host", func(t *testing.T) {
			for _, q := range []string{"what", "else", ""} {
				a, err := guest.Ask(t.Context(), q)
				if err != nil || a != strings.ToUpper(q) {
					t.Fatalf("asked %q: got %q, %v", q, a, err)
				}
			}
		})
	})
}
