package pci

import (
	"testing"
	"unsafe"
)

func structBytes[T any](v T) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v))...)
}

func TestAnswersThatMakeNoSenseAreErrors(t *testing.T) {
	head := vfioIOMMUInfo{flags: vfioIOMMUCaps, capOffset: 24}
	with := func(cap []byte) []byte { return append(structBytes(head), cap...) }
	loop := FakeCap(99)
	loop[4] = 24 // next is itself
	many := FakeCap(vfioCapIOVARange, 0, 1)
	many[8], many[11] = 0xff, 0xff
	for what, answer := range map[string][]byte{
		"short":                    make([]byte, 23),
		"capability beyond it":     structBytes(head),
		"capability cut off":       with(FakeCap(1)[:7]),
		"capabilities in a circle": with(loop),
		"range without a count":    with(FakeCap(vfioCapIOVARange)),
		"range that ends first":    with(FakeCap(vfioCapIOVARange, 2, 1)),
		"more ranges than bytes":   with(many),
		"available without number": with(FakeCap(vfioCapDMAAvail)),
	} {
		if info, err := parseIOMMUInfo(answer); err == nil {
			t.Errorf("%s: %+v", what, info)
		}
	}
	region := vfioRegionInfo{flags: vfioRegionCaps, size: 0x1000, capOffset: 32}
	for what, answer := range map[string][]byte{
		"short":                make([]byte, 31),
		"area beyond it":       append(structBytes(region), FakeCap(vfioCapSparseMmap, 0x1000, 1)...),
		"area that wraps":      append(structBytes(region), FakeCap(vfioCapSparseMmap, 0x800, ^uint64(0))...),
		"capability beyond it": structBytes(region),
		"wraps":                structBytes(vfioRegionInfo{size: 1 << 63, offset: 1 << 63}),
		"beyond a file":        structBytes(vfioRegionInfo{size: 1, offset: 1<<63 - 1}),
	} {
		if h, areas, _, err := parseRegion(answer); err == nil {
			t.Errorf("region %s: %+v %v", what, h, areas)
		}
	}
}

func TestWhatTheIOMMUSays(t *testing.T) {
	answer := structBytes(vfioIOMMUInfo{flags: vfioIOMMUPageSizes | vfioIOMMUCaps, pageSizes: 0x1000, capOffset: 24})
	ranges := FakeCap(vfioCapIOVARange, 0x1000, 0x1fff, 0x4000, 0x7fff)
	ranges[4] = byte(24 + len(ranges))
	avail := append(FakeCap(vfioCapDMAAvail), 0xff, 0xff, 0, 0)
	info, err := parseIOMMUInfo(append(append(answer, ranges...), avail...))
	if err != nil || len(info.ranges) != 2 || info.ranges[1].Last != 0x7fff || info.available != 65535 || info.pageSizes != 0x1000 {
		t.Errorf("%+v, %v", info, err)
	}
}

// FuzzVFIOAnswers: whatever an answer holds, what comes out lies within bounds.
func FuzzVFIOAnswers(f *testing.F) {
	f.Add(append(structBytes(vfioIOMMUInfo{flags: 3, capOffset: 24}), FakeCap(vfioCapIOVARange, 1, 2, 3, 4)...))
	f.Add(append(structBytes(vfioRegionInfo{flags: 15, size: 0x8000, capOffset: 32}), FakeCap(vfioCapSparseMmap, 0, 0x1000)...))
	f.Fuzz(func(t *testing.T, answer []byte) {
		if info, err := parseIOMMUInfo(answer); err == nil {
			for _, r := range info.ranges {
				if r.First > r.Last {
					t.Errorf("range %v", r)
				}
			}
		}
		h, sparse, _, err := parseRegion(answer)
		if err != nil {
			return
		}
		for _, a := range wholePages(sparse, 4096) {
			if a.size == 0 || a.off%4096 != 0 || a.size%4096 != 0 || a.off+a.size > h.size || a.off+a.size < a.off {
				t.Errorf("area %+v of %#x bytes", a, h.size)
			}
		}
	})
}

func TestHoleIsCutOutInWholePages(t *testing.T) {
	for _, c := range []struct {
		size  uint64
		hole  area
		bytes uint64 // that remain
		parts int
	}{
		{0x4000, area{}, 0x4000, 1},
		{0x4000, area{0x1000, 0x10}, 0x3000, 2},
		{0x4000, area{0, 0x10}, 0x3000, 1},
		{0x4000, area{0x3ff0, 0x10}, 0x3000, 1},
		{0x4000, area{0, 0x4000}, 0, 0},
		{0x4000, area{0x4000, 0x10}, 0x4000, 1},
		{0x4000, area{0x3000, 0x8000}, 0x3000, 1},
	} {
		var sum uint64
		areas := cutHole(c.size, c.hole, 0x1000)
		for _, a := range areas {
			sum += a.size
			if a.off < c.hole.off+c.hole.size && c.hole.off < a.off+a.size {
				t.Errorf("%+v without %+v leaves %+v", c.size, c.hole, a)
			}
		}
		if sum != c.bytes || len(areas) != c.parts {
			t.Errorf("%#x without %+v: %+v", c.size, c.hole, areas)
		}
	}
}
