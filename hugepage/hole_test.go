package hugepage

import (
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestARefusedHugePageLeavesNoHole has no huge page to give. The kernel takes away what lies where a fixed mapping is wanted
// before it finds that it cannot make one, so a stretch that was reserved must not be what the first request is made for:
// others could move into the hole, and would be torn out when the stretch is given back.
func TestARefusedHugePageLeavesNoHole(t *testing.T) {
	h := linuxHost()
	total, err := memoryFigure(h.proc, "MemTotal")
	if err != nil {
		t.Fatal(err)
	}
	// More huge pages than anybody has set aside, and less than the machine has memory.
	size := roundUp(total/2, Page2M)
	h.mapFixed = func(unsafe.Pointer, int, int, int, int) error {
		t.Error("a mapping over the reserved stretch was the first to ask for the pages")
		return unix.ENOMEM
	}
	if _, err = h.try(Config{Size: size, Node: AnyNode, Name: "hole"}, Page2M); !errors.Is(err, ErrNoHugePages) {
		t.Fatalf("half of the memory on huge pages: %v", err)
	}
	probe, err := h.openMemfd("hole", size, Page2M)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(probe)
	if err := reserveHuge(probe, size); err == nil {
		t.Error("reserveHuge gave pages that are not there")
	}
}
