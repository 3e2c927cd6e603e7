package vtop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"bare.wire/hugepage"
)

// An entry of /proc/PID/pagemap, Documentation/admin-guide/mm/pagemap.rst.
const (
	entrySize    = 8         // bytes
	entryPresent = 1 << 63   // the page is in memory
	entryFrame   = 1<<55 - 1 // page frame number, in ordinary pages
)

// maxPhysical bounds physical addresses: neither amd64 nor arm64 has more than
// 52 bits of them.
const maxPhysical = 1 << 52

var errUnprivileged = errors.New("the kernel hides page frame numbers: CAP_SYS_ADMIN is needed (run as root), or a device behind an IOMMU")

// probePagemap finds out whether physical addresses can be read at all, by
// asking for one of a page that is certainly there.
func probePagemap(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnprivileged, err)
	}
	defer f.Close()
	return probe(f)
}

func probe(f io.ReaderAt) error {
	page := make([]byte, os.Getpagesize())
	page[0] = 1
	_, err := readPhysical(f, uint64(uintptr(unsafe.Pointer(&page[0]))))
	return err
}

// physicalRuns reads where the pages of a region are, once a page, and merges
// those that follow each other.
func physicalRuns(path string, r *hugepage.Region, page uint64) ([]*run, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnprivileged, err)
	}
	defer f.Close()
	mem := r.Bytes()
	va := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	var runs []*run
	seen := map[uint64]bool{}
	for off := uint64(0); off < uint64(len(mem)); off += page {
		bus, err := readPhysical(f, va+off)
		if err != nil {
			return nil, err
		}
		if bus%page != 0 {
			return nil, fmt.Errorf("page map: physical address %#x of a page of %d bytes is not a multiple of its size", bus, page)
		}
		if seen[bus] {
			return nil, fmt.Errorf("page map: physical address %#x occurs twice", bus)
		}
		seen[bus] = true
		if n := len(runs); n > 0 && runs[n-1].bus+runs[n-1].size() == bus {
			last := runs[n-1]
			last.mem = mem[last.va-va : off+page : off+page]
			continue
		}
		runs = append(runs, &run{va: va + off, bus: bus, mem: mem[off : off+page : off+page], region: r})
	}
	return runs, nil
}

// hugePageOf gives the page size of a region in bytes, if its pages are such
// that physical addresses can be relied on.
func hugePageOf(r *hugepage.Region) (uint64, error) {
	if !r.Huge() || r.PageSize() < granule {
		return 0, refuseOrdinary(r)
	}
	return uint64(r.PageSize()), nil
}

// refuseOrdinary says why ordinary pages will not do and how to get others.
func refuseOrdinary(r *hugepage.Region) error {
	if why := r.Fallback(); why != nil {
		return fmt.Errorf("its ordinary pages have no stable physical addresses: %w", why)
	}
	need := (r.Size() + hugepage.Page2M - 1) / hugepage.Page2M
	return fmt.Errorf("its pages of %d bytes have no stable physical addresses: %w: provide them with `sysctl -w vm.nr_hugepages=%d` (or more) and allocate with RequireHuge",
		r.PageSize(), hugepage.ErrNoHugePages, need)
}

// readPhysical gives the physical address of the first byte of a page.
func readPhysical(f io.ReaderAt, va uint64) (uint64, error) {
	base := uint64(os.Getpagesize())
	var raw [entrySize]byte
	if _, err := f.ReadAt(raw[:], int64(va/base*entrySize)); err != nil {
		return 0, fmt.Errorf("page map: entry of address %#x: %w", va, err)
	}
	entry := binary.NativeEndian.Uint64(raw[:])
	if entry&entryPresent == 0 {
		return 0, fmt.Errorf("page map: the page at %#x is not in memory", va)
	}
	frame := entry & entryFrame
	switch {
	case frame == 0:
		return 0, fmt.Errorf("page map: page frame number 0 for address %#x: %w", va, errUnprivileged)
	case frame >= maxPhysical/base:
		return 0, fmt.Errorf("page map: page frame number %#x for address %#x is beyond 52 bits of address", frame, va)
	}
	return frame * base, nil
}
