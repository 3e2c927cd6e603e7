package pci_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"bare.wire/pci"
)

// vanishing maps a file as registers and returns how to take the memory away.
func vanishing(t testing.TB, size int) (mem []byte, vanish func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "resource0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	if mem, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return mem, func() {
		if err := f.Truncate(0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRegistersThatVanishReadAllOnesAndAreReportedOnce(t *testing.T) {
	for what, access := range map[string]func(pci.BAR) uint32{
		"read":  func(b pci.BAR) uint32 { return b.Read32(0x10) },
		"write": func(b pci.BAR) uint32 { b.Write32(0x10, 1); return b.Read32(0x10) },
	} {
		t.Run(what, func(t *testing.T) {
			mem, vanish := vanishing(t, 8192)
			var faults []error
			b, err := pci.GuardBAR(mem, func(err error) { faults = append(faults, err) })
			if err != nil {
				t.Fatal(err)
			}
			b.Write32(0x1000, 7)
			if got := b.Read32(0x1000); got != 7 || b.Size() != 8192 {
				t.Fatalf("read %d of %d bytes", got, b.Size())
			}
			vanish()
			for range 3 {
				if got := access(b); got != 0xffffffff {
					t.Errorf("read %#x, want all ones", got)
				}
			}
			if len(faults) != 1 || !errors.Is(faults[0], pci.ErrGone) {
				t.Errorf("reported: %v", faults)
			}
		})
	}
}

func TestRegistersVanishUnderManyGoroutines(t *testing.T) {
	mem, vanish := vanishing(t, 4096)
	var faults sync.Map
	b, err := pci.GuardBAR(mem, func(err error) {
		if _, again := faults.LoadOrStore("fault", err); again {
			t.Error("reported twice")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for b.Read32(uint32(4*i)) != 0xffffffff {
				b.Write32(uint32(4*i), 0)
			}
		})
	}
	vanish()
	wg.Wait()
	if _, ok := faults.Load("fault"); !ok {
		t.Error("nothing was reported")
	}
}

func TestOffsetBeyondGuardedRegistersIsTheDriversMistake(t *testing.T) {
	mem, _ := vanishing(t, 4096)
	b, err := pci.GuardBAR(mem, func(err error) { t.Errorf("reported as a fault: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("read beyond the window went through")
		}
		if b.Read32(0) != 0 {
			t.Error("the window is not usable any more")
		}
	}()
	b.Read32(4096)
}

func TestGuardedRegistersAllocateNothing(t *testing.T) {
	mem, _ := vanishing(t, 4096)
	b, err := pci.GuardBAR(mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { b.Write32(4, b.Read32(8)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkGuardedDoorbell(b *testing.B) {
	mem, _ := vanishing(b, 4096)
	guarded, err := pci.GuardBAR(mem, nil)
	if err != nil {
		b.Fatal(err)
	}
	plain, err := pci.MapBAR(mem)
	if err != nil {
		b.Fatal(err)
	}
	for name, bar := range map[string]pci.BAR{"guarded": guarded, "plain": plain} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				bar.Write32(0x18, 1)
			}
		})
	}
}
