package pci

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"bare.wire/vtop"
)

// maxInfo bounds what an answer of VFIO's may claim to be long, bytes; a thousand IOVA ranges take a quarter of it.
const maxInfo = 64 << 10

// vfioCap is one capability in an answer: what follows its header, to the end of the answer.
type vfioCap struct {
	id   uint16
	body []byte
}

// vfioCaps walks the chain of capabilities in answer that begins at offset first. Each header is id (16 bits), version (16)
// and the offset of the next (32), 0 for the last. Offsets that lead out of the answer, or backwards, are an error.
func vfioCaps(answer []byte, first uint32) ([]vfioCap, error) {
	const header = 8
	var caps []vfioCap
	for at, last := uint64(first), uint64(0); at != 0; {
		if at <= last || at+header > uint64(len(answer)) {
			return nil, fmt.Errorf("capability at offset %d of an answer of %d bytes, after one at %d: the kernel's answer makes no sense", at, len(answer), last)
		}
		caps = append(caps, vfioCap{id: binary.NativeEndian.Uint16(answer[at:]), body: answer[at+header:]})
		last, at = at, uint64(binary.NativeEndian.Uint32(answer[at+4:]))
	}
	return caps, nil
}

// pairs reads what IOVA range and sparse mmap capabilities hold: a count, 32 bits of nothing, and pairs of 64-bit numbers.
func (c vfioCap) pairs() ([][2]uint64, error) {
	const head, pair = 8, 16
	if len(c.body) < head {
		return nil, fmt.Errorf("capability %d has %d bytes, want %d: the kernel's answer makes no sense", c.id, len(c.body), head)
	}
	n := uint64(binary.NativeEndian.Uint32(c.body))
	if n > uint64(len(c.body)-head)/pair {
		return nil, fmt.Errorf("capability %d announces %d entries in %d bytes: the kernel's answer makes no sense", c.id, n, len(c.body))
	}
	list := make([][2]uint64, n)
	for i := range list {
		at := c.body[head+pair*i:]
		list[i] = [2]uint64{binary.NativeEndian.Uint64(at), binary.NativeEndian.Uint64(at[8:])}
	}
	return list, nil
}

// iommuInfo is what a container's IOMMU can do.
type iommuInfo struct {
	pageSizes uint64       // a bit for each, 0 when unknown
	ranges    []vtop.Range // of bus addresses; none when unknown
	available int          // how many more mappings are accepted; -1 when unknown
}

// parseIOMMUInfo reads an answer to vfioIOMMUGetInfo.
func parseIOMMUInfo(answer []byte) (iommuInfo, error) {
	info := iommuInfo{available: -1}
	var h vfioIOMMUInfo
	if !readStruct(answer, &h) {
		return info, fmt.Errorf("an answer of %d bytes about the IOMMU: want %d", len(answer), unsafe.Sizeof(h))
	}
	if h.flags&vfioIOMMUPageSizes != 0 {
		info.pageSizes = h.pageSizes
	}
	if h.flags&vfioIOMMUCaps == 0 {
		return info, nil
	}
	caps, err := vfioCaps(answer, h.capOffset)
	if err != nil {
		return info, err
	}
	for _, c := range caps {
		switch c.id {
		case vfioCapIOVARange:
			list, err := c.pairs()
			if err != nil {
				return info, err
			}
			for _, r := range list {
				if r[0] > r[1] {
					return info, fmt.Errorf("IOVA range %#x to %#x: the kernel's answer makes no sense", r[0], r[1])
				}
				info.ranges = append(info.ranges, vtop.Range{First: r[0], Last: r[1]})
			}
		case vfioCapDMAAvail:
			if len(c.body) < 4 {
				return info, fmt.Errorf("capability %d has %d bytes, want 4: the kernel's answer makes no sense", c.id, len(c.body))
			}
			info.available = int(binary.NativeEndian.Uint32(c.body))
		}
	}
	return info, nil
}

// area is a part of a region, bytes.
type area struct{ off, size uint64 }

// parseRegion reads an answer to vfioDeviceGetRegionInfo: the region, the areas of it that can be mapped (nil: all, or none,
// as the flags say) and whether the MSI-X table may be mapped too.
func parseRegion(answer []byte) (h vfioRegionInfo, sparse []area, msix bool, err error) {
	if !readStruct(answer, &h) {
		return h, nil, false, fmt.Errorf("an answer of %d bytes about a region: want %d", len(answer), unsafe.Sizeof(h))
	}
	if h.offset+h.size < h.size || h.offset+h.size > 1<<63-1 {
		return h, nil, false, fmt.Errorf("region %d has %#x bytes at offset %#x of the file: the kernel's answer makes no sense", h.index, h.size, h.offset)
	}
	if h.flags&vfioRegionCaps == 0 {
		return h, nil, false, nil
	}
	caps, err := vfioCaps(answer, h.capOffset)
	if err != nil {
		return h, nil, false, err
	}
	for _, c := range caps {
		switch c.id {
		case vfioCapMSIXMappable:
			msix = true
		case vfioCapSparseMmap:
			list, err := c.pairs()
			if err != nil {
				return h, nil, false, err
			}
			sparse = []area{}
			for _, a := range list {
				if a[0] > h.size || a[1] > h.size-a[0] {
					return h, nil, false, fmt.Errorf("region %d of %#x bytes has an area of %#x at %#x: the kernel's answer makes no sense", h.index, h.size, a[1], a[0])
				}
				sparse = append(sparse, area{a[0], a[1]})
			}
		}
	}
	return h, sparse, msix, nil
}

// readStruct copies the beginning of an answer into a structure; false when the answer is shorter.
func readStruct[T any](answer []byte, to *T) bool {
	n := int(unsafe.Sizeof(*to))
	if len(answer) < n {
		return false
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(to)), n), answer)
	return true
}
