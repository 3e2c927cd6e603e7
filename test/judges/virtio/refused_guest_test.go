//go:build guest

package virtio

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// refused is what QEMU 7.2 cannot do, so that no cell has it. docs/virtio.md has the same table.
var refused = []struct {
	what string   // as docs/virtio.md says it
	args []string // that ask for it
	says string   // QEMU, which does not start
}{
	{"a legacy device behind the IOMMU", withDevice("disable-modern=on,disable-legacy=off,iommu_platform=on"), "neither legacy nor transitional"},
	{"a transitional device behind the IOMMU", withDevice("disable-legacy=off,iommu_platform=on"), "neither legacy nor transitional"},
	{"neither interface", withDevice("disable-modern=on,disable-legacy=on"), "neither modern nor legacy"},
	{"in order (IN_ORDER)", withDevice("in_order=on"), "in_order' not found"},
	{"notification data (NOTIFICATION_DATA)", withDevice("notification_data=on"), "notification_data' not found"},
	{"a ring whose size is no power of two", withDevice("packed=on,rx_queue_size=300"), "must be a power of 2"},
	{"a receive ring of more than 1024 descriptors, or fewer than 256", withDevice("rx_queue_size=2048"), "between 256 and 1024"},
	{"several queue pairs without TAP", []string{"-netdev", "hubport,id=n,hubid=0,queues=4"}, "queues"},
}

// withDevice asks for a network device with properties.
func withDevice(properties string) []string {
	return []string{"-netdev", "hubport,id=n,hubid=0", "-device", "virtio-net-pci,netdev=n,romfile=," + properties}
}

// TestGuestHostKnowsWhatQEMUCannotDo tries everything that the cells leave out: it is refused still.
func TestGuestHostKnowsWhatQEMUCannotDo(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/virtio.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range refused {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		// It would stand still before its first instruction, were it to start: -S.
		args := append([]string{"-nodefaults", "-no-user-config", "-machine", "q35", "-accel", "tcg", "-display", "none", "-S"}, r.args...)
		out, err := exec.CommandContext(ctx, "qemu-system-x86_64", args...).CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), r.says) {
			t.Errorf("%s: QEMU is not against it by %q: %v\n%s", r.what, r.says, err, out)
		}
		if !strings.Contains(string(doc), "| "+r.what+" |") {
			t.Errorf("docs/virtio.md has no row for %s", r.what)
		}
	}
}
