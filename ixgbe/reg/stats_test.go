package reg_test

import (
	"slices"
	"strings"
	"testing"

	"bare.wire/ixgbe/reg"
	"bare.wire/ixgbe/reg/internal/render"
)

func TestStatisticsComeFromCounters(t *testing.T) {
	names := map[string]bool{}
	for _, s := range reg.Stats() {
		if names[s.Name] || s.Doc == "" {
			t.Errorf("%s is twice in the list, or has no doc", s.Name)
		}
		names[s.Name] = true
		lo := mustReg(t, s.Reg)
		if s.High == "" {
			if lo.Mode != reg.RC || isBytes(s.Kind) {
				t.Errorf("%s: %s is %v and counts %v; want a 32-bit counter cleared by reading", s.Name, s.Reg, lo.Mode, s.Kind)
			}
			continue
		}
		hi := mustReg(t, s.High)
		if lo.Mode != reg.RC36Lo || hi.Mode != reg.RC36Hi || !isBytes(s.Kind) {
			t.Errorf("%s: %s is %v, %s is %v, counts %v", s.Name, s.Reg, lo.Mode, s.High, hi.Mode, s.Kind)
		}
		a, _ := lo.Offset(0)
		if b, _ := hi.Offset(0); b != a+4 {
			t.Errorf("%s: %s is not the high half of %s", s.Name, s.High, s.Reg)
		}
	}
}

// TestHighHalfFollowsLowHalf is what lets a card find one half from the other.
func TestHighHalfFollowsLowHalf(t *testing.T) {
	for _, r := range reg.All() {
		if r.Mode != reg.RC36Lo {
			continue
		}
		for n := range r.Count() {
			off, _ := r.Offset(n)
			hi, m, ok := reg.Lookup(off + 4)
			if !ok || hi.Mode != reg.RC36Hi || m != n {
				t.Errorf("%s: 4 bytes above it is %s", reg.Name(off), reg.Name(off+4))
			}
		}
	}
}

func TestDevicesAreListedOnce(t *testing.T) {
	var supported []uint16
	seen := map[uint16]bool{}
	for _, d := range reg.Devices() {
		if seen[d.ID] || d.Name == "" {
			t.Errorf("%04X is twice in the list, or has no name", d.ID)
		}
		seen[d.ID] = true
		if got, ok := reg.LookupDevice(d.ID); !ok || got != d {
			t.Errorf("LookupDevice(%04X) = %v, %v", d.ID, got, ok)
		}
		if d.Supported() {
			supported = append(supported, d.ID)
		}
	}
	slices.Sort(supported)
	want := []uint16{0x10F7, 0x10F8, 0x10F9, 0x10FB, 0x10FC, 0x1507, 0x1514, 0x1517,
		0x151C, 0x1529, 0x152A, 0x154A, 0x154D, 0x154F, 0x1557, 0x1558}
	if !slices.Equal(supported, want) {
		t.Errorf("supported: %04X, want %04X", supported, want)
	}
	if d, ok := reg.LookupDevice(0x1572); ok {
		t.Errorf("an X710 passes for %v", d)
	}
}

// TestPageIsWellFormed counts the cells of every table row, so that a text with
// a bar in it cannot break its row.
func TestPageIsWellFormed(t *testing.T) {
	page := string(render.Markdown())
	cells := 0
	for i, line := range strings.Split(page, "\n") {
		if !strings.HasPrefix(line, "|") {
			cells = 0
			continue
		}
		n := strings.Count(line, "|")
		if cells != 0 && n != cells || strings.Contains(line, "| |") {
			t.Errorf("line %d has %d bars, the row before it %d, or an empty cell: %s", i+1, n, cells, line)
		}
		cells = n
	}
	for _, r := range reg.All() {
		if !strings.Contains(page, r.Group) || !strings.Contains(page, "| "+r.Name) {
			t.Errorf("%s is not on the page", r.Name)
		}
	}
}

func isBytes(k reg.Kind) bool { return k == reg.BytesFCS || k == reg.Bytes }
