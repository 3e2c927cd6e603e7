package pci_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"bare.wire/pci"
)

// exerciseWidths writes and reads registers of each width and checks, against accesses of 32 bits, that neighbours are left alone.
func exerciseWidths(t *testing.T, bar pci.NarrowBAR) {
	t.Helper()
	bar.Write32(0x10, 0x44332211)
	bar.Write32(0x14, 0x88776655)
	for i, want := range []uint8{0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88} {
		if got := bar.Read8(0x10 + uint32(i)); got != want {
			t.Errorf("byte %#x reads %#x, want %#x", 0x10+i, got, want)
		}
	}
	for i, want := range []uint16{0x2211, 0x4433, 0x6655, 0x8877} {
		if got := bar.Read16(0x10 + 2*uint32(i)); got != want {
			t.Errorf("half at %#x reads %#x, want %#x", 0x10+2*i, got, want)
		}
	}
	bar.Write8(0x11, 0xa1)
	bar.Write8(0x14, 0xa2)
	bar.Write16(0x12, 0xb1b2)
	bar.Write16(0x16, 0xb3b4)
	if a, b := bar.Read32(0x10), bar.Read32(0x14); a != 0xb1b2a111 || b != 0xb3b466a2 {
		t.Errorf("registers are %#08x %#08x after narrow writes", a, b)
	}
}

func TestNarrowAccessesTouchTheirBytesOnly(t *testing.T) {
	words := make([]uint32, 16)
	mapped, err := pci.MapBAR(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 64))
	if err != nil {
		t.Fatal(err)
	}
	exerciseWidths(t, mapped)
	mem, _ := vanishing(t, 4096)
	guarded, err := pci.GuardBAR(mem, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	exerciseWidths(t, guarded)
}

func TestNarrowRegistersThatVanishReadAllOnes(t *testing.T) {
	for what, access := range map[string]func(pci.NarrowBAR) bool{
		"read 8":   func(b pci.NarrowBAR) bool { return b.Read8(0x15) == 0xff },
		"read 16":  func(b pci.NarrowBAR) bool { return b.Read16(0x16) == 0xffff },
		"write 8":  func(b pci.NarrowBAR) bool { b.Write8(3, 1); return b.Read8(3) == 0xff },
		"write 16": func(b pci.NarrowBAR) bool { b.Write16(2, 1); return b.Read16(2) == 0xffff },
	} {
		t.Run(what, func(t *testing.T) {
			mem, vanish := vanishing(t, 4096)
			var faults []error
			b, err := pci.GuardBAR(mem, func(err error) { faults = append(faults, err) })
			if err != nil {
				t.Fatal(err)
			}
			vanish()
			for range 3 {
				if !access(b) {
					t.Error("not all ones")
				}
			}
			if len(faults) != 1 || !errors.Is(faults[0], pci.ErrGone) {
				t.Errorf("reported: %v", faults)
			}
		})
	}
}

func TestOddOffsetOfA16BitRegisterIsTheDriversMistake(t *testing.T) {
	mem, _ := vanishing(t, 4096)
	b, err := pci.GuardBAR(mem, func(err error) { t.Errorf("reported as a fault: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []uint32{3, 1, 4096} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("16 bits at %#x went through", off)
				}
			}()
			b.Read16(off)
		}()
	}
}

func TestNarrowAccessesAllocateNothing(t *testing.T) {
	mem, _ := vanishing(t, 4096)
	b, err := pci.GuardBAR(mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { b.Write16(4, b.Read16(8)); b.Write8(4, b.Read8(8)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestVFIOReachesPortsAndPagesThatAreNotMapped(t *testing.T) {
	each := []string{"r1", "r2", "r4", "w1", "w2", "w4"}
	for what, c := range map[string]struct {
		bar     pci.FakeBAR
		io      bool
		command byte
		sizes   []string // of system calls
	}{
		"ports":              {pci.FakeBAR{Size: 0x20}, true, pci.CommandIO, each},
		"memory, all mapped": {pci.FakeBAR{Size: 0x4000, Mmap: true, Caps: pci.FakeCap(3)}, false, pci.CommandMemory, nil},
		// The interrupt table lies at its beginning, and the registers are on the same page.
		"memory, the table's page": {pci.FakeBAR{Size: 0x4000, Mmap: true}, false, pci.CommandMemory, each},
		"memory, not mapped":       {pci.FakeBAR{Size: 0x4000, Mmap: true, NoMmap: unix.EINVAL}, false, pci.CommandMemory, each},
	} {
		for n := range 6 {
			t.Run(fmt.Sprintf("%s in BAR %d", what, n), func(t *testing.T) {
				r := newVFIORig(t, map[string]int{nic0: 7})
				d := r.kernel.Devices[nic0]
				bar := c.bar
				d.BARs = map[int]*pci.FakeBAR{n: &bar}
				d.Config[0x06], d.Config[0x34] = 0x10, 0x40
				copy(d.Config[0x40:], []byte{0x11, 0, 2, 0, byte(n)})
				if c.io {
					d.Config[pci.ConfigBAR+4*n] = 0xe001 & 0xff
				}
				f := r.open(nic0)
				b, err := f.BAR(n)
				if err != nil {
					t.Fatal(err)
				}
				narrow, ok := b.(pci.NarrowBAR)
				if !ok {
					t.Fatalf("%T has no narrow access", b)
				}
				if got := d.Config[pci.ConfigCommand]; got != c.command {
					t.Errorf("command %#x, want %#x: decoding of the other space is nobody's business", got, c.command)
				}
				exerciseWidths(t, narrow)
				slices.Sort(bar.Sizes)
				if got := slices.Compact(bar.Sizes); !slices.Equal(got, c.sizes) {
					t.Errorf("system calls are %v, want %v", got, c.sizes)
				}
				if allocs := testing.AllocsPerRun(20, func() { narrow.Write16(0x10, narrow.Read16(0x12)) }); c.sizes == nil && allocs != 0 {
					t.Errorf("%v allocations", allocs)
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
				if narrow.Read16(0x10) != 0xffff || narrow.Read8(0x10) != 0xff {
					t.Error("registers of a closed function answer")
				}
			})
		}
	}
}

func TestUpperHalfOfABARSwitchesNothingOn(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	d := r.kernel.Devices[nic0]
	d.BARs = map[int]*pci.FakeBAR{4: {Size: 0x4000, Mmap: true, Caps: pci.FakeCap(3)}}
	d.Config[pci.ConfigBAR+4*4] = 0x4 // memory, 64 bits
	d.Config[pci.ConfigBAR+4*5] = 0x1 // at 4 GiB: no I/O space
	f := r.open(nic0)
	before := d.Config[pci.ConfigCommand]
	if _, err := f.BAR(5); err == nil {
		t.Error("BAR 5 opened")
	}
	if got := d.Config[pci.ConfigCommand]; got != before {
		t.Errorf("command %#x, before %#x", got, before)
	}
	if _, err := f.BAR(4); err != nil || d.Config[pci.ConfigCommand] != before|pci.CommandMemory {
		t.Errorf("BAR 4: command %#x, %v", d.Config[pci.ConfigCommand], err)
	}
}

func TestSysfsReachesPorts(t *testing.T) {
	r := newSysfsRig(t)
	r.machine.Put(sysfsDir+"/resource1", string(make([]byte, 0x20)))
	f := r.open()
	b, err := f.BAR(1)
	if err != nil {
		t.Fatal(err)
	}
	if b.Size() != 0x20 || r.read("config")[4]&pci.CommandIO == 0 {
		t.Errorf("%d bytes, command %#x", b.Size(), r.read("config")[4])
	}
	exerciseWidths(t, b.(pci.NarrowBAR))
	if got := r.read("resource1"); got[0x10] != 0x11 || got[0x11] != 0xa1 || len(got) != 0x20 {
		t.Errorf("the file holds %x", got)
	}
	ports := b.(pci.NarrowBAR)
	if n := testing.AllocsPerRun(20, func() { ports.Write16(0x10, ports.Read16(0x12)) }); n != 0 {
		t.Errorf("an access by system call makes %v allocations", n)
	}
	memory, err := f.BAR(0)
	if err != nil {
		t.Fatal(err)
	}
	exerciseWidths(t, memory.(pci.NarrowBAR))
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if b.Read32(0x10) != 0xffffffff {
		t.Error("ports of a closed function answer")
	}
}

func TestSysfsSaysWhichBARsItCannotReach(t *testing.T) {
	r := newSysfsRig(t)
	r.machine.Put(sysfsDir+"/resource",
		"0xfe000000 0xfe0000ff 0x40200\n0x0 0x0 0x0\n0xe000 0xe001 0x40101\n0xfe000000 0xfe000fff 0x0\n")
	for n := range 4 {
		r.machine.Put(fmt.Sprintf("%s/resource%d", sysfsDir, n), string(make([]byte, 4096)))
	}
	f, err := r.opener.Open(context.Background(), parse(t, nic0))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for n := range 6 {
		if _, err := f.BAR(n); err == nil {
			t.Errorf("BAR %d", n)
		}
	}
}

func BenchmarkGuardedDoorbell16(b *testing.B) {
	mem, _ := vanishing(b, 4096)
	bar, err := pci.GuardBAR(mem, nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		bar.Write16(0x18, 1)
	}
}
