//go:build guest

package pci_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bare.wire/hugepage"
	"bare.wire/pci"
	"bare.wire/test/guest"
	"bare.wire/vtop"
)

// Two of QEMU's e1000e, with MSI-X, MSI and INTx: one on the root bus, one behind a port.
const onRoot, behindPort = "0000:00:04.0", "0000:01:00.0"

// TestGuestFunctions has a real kernel's VFIO judge what FakeKernel stands for.
func TestGuestFunctions(t *testing.T) {
	guest.Run(t, guest.Machine{
		IOMMU:     true,
		HugePages: 8,
		Modules:   []string{"vfio-pci", "vfio_iommu_type1"},
		QEMU: []string{
			"-device", "e1000e,addr=4,romfile=", "-device", "pcie-root-port,id=port1,chassis=1,addr=5", "-device", "e1000e,bus=port1,romfile=",
		},
	}, func(t *testing.T) {
		for _, a := range []string{onRoot, behindPort} {
			if err := guest.BindVFIO(a); err != nil {
				t.Fatal(err)
			}
		}
		t.Run("registers are mapped, reset and taken away", guestRegisters)
		t.Run("memory has the bus addresses that were chosen", guestMemory)
		t.Run("MSI-X, MSI and INTx arrive", guestInterrupts)
		t.Run("a card is opened once", guestBusy)
		t.Run("the limit of locked memory is named", guestMemlock)
		t.Run("sysfs is refused behind an IOMMU", guestSysfs)
		t.Run("the kernel gets a card back that it wants", guestUnbind)
	})
}

// guestOpen opens cards of the guest in a space of their own.
func guestOpen(t *testing.T, opt pci.OpenOptions, addresses ...string) (*vtop.Space, []pci.Function) {
	t.Helper()
	space := vtop.NewMapped()
	opener := (&pci.Host{}).NewOpener(space, opt)
	t.Cleanup(func() {
		if err := opener.Close(); err != nil {
			t.Error(err)
		}
	})
	var list []pci.Function
	for _, a := range addresses {
		f, err := opener.Open(t.Context(), parse(t, a))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
	}
	return space, list
}

// Registers of the e1000e (Intel 82574 datasheet §10.2).
const e1000Status, e1000FCAL = 0x8, 0x28

func guestRegisters(t *testing.T) {
	_, list := guestOpen(t, pci.OpenOptions{}, onRoot, behindPort)
	for _, f := range list {
		if v, d := f.ID(); v != 0x8086 || d != 0x10d3 {
			t.Errorf("%s is %04x:%04x", f.Name(), v, d)
		}
		if id, err := f.ReadConfig(0, 4); err != nil || id != 0x10d38086 {
			t.Errorf("%s: configuration space reads %#x, %v", f.Name(), id, err)
		}
		told := make(chan error, 1)
		f.(pci.GoneNotifier).OnGone(func(err error) { told <- err })
		bar, err := f.BAR(0)
		if err != nil {
			t.Fatal(err)
		}
		if n := pci.Windows(f, 0); bar.Size() != 128<<10 || n != 1 {
			t.Errorf("%s: BAR 0 has %#x bytes in %d windows", f.Name(), bar.Size(), n)
		}
		if ports, err := f.BAR(2); err != nil || pci.Windows(f, 2) != 0 || ports.Size() != 32 {
			t.Errorf("%s: I/O ports, by reading and writing: %v", f.Name(), err)
		}
		if table, err := f.BAR(3); err != nil || table.Read32(0) == 0xffffffff {
			t.Errorf("%s: the MSI-X table: %v", f.Name(), err)
		}
		bar.Write32(e1000FCAL, 0x1234)
		if got := bar.Read32(e1000FCAL); got != 0x1234 || bar.Read32(e1000Status) == 0xffffffff {
			t.Errorf("%s: a register reads %#x", f.Name(), got)
		}
		// QEMU takes the card through D3, which its registers survive.
		if err := f.Reset(t.Context()); err != nil || bar.Read32(e1000Status) == 0xffffffff {
			t.Errorf("%s: reset: %v", f.Name(), err)
		}
		if len(told) > 0 {
			t.Errorf("%s: gone: %v", f.Name(), <-told)
		}
		// With decoding off the kernel takes the mapping away: the access faults.
		if err := f.WriteConfig(pci.ConfigCommand, 2, 0); err != nil {
			t.Fatal(err)
		}
		if got := bar.Read32(e1000Status); got != 0xffffffff {
			t.Errorf("%s: a register that is not there reads %#x", f.Name(), got)
		}
		if err := <-told; !errors.Is(err, pci.ErrGone) {
			t.Errorf("%s: told %v", f.Name(), err)
		}
	}
}

func guestMemory(t *testing.T) {
	space, _ := guestOpen(t, pci.OpenOptions{}, onRoot, behindPort)
	for _, cfg := range []hugepage.Config{
		{Size: 2 << 20, PageSize: hugepage.Page2M}, {Size: 12 << 10, PageSize: os.Getpagesize()},
	} {
		cfg.Node, cfg.Name = hugepage.AnyNode, "guest"
		g, err := hugepage.Alloc(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := space.Add(g); err != nil {
			t.Fatal(err)
		}
		if bus, err := space.Bus(g.Base(), g.Size()); err != nil || bus < 4<<30 {
			t.Errorf("%v is at %#x, %v", g, bus, err)
		}
		if err := space.Remove(context.Background(), g); err != nil {
			t.Error(err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

func guestInterrupts(t *testing.T) {
	_, list := guestOpen(t, pci.OpenOptions{}, onRoot)
	f := list[0]
	for _, kind := range []struct {
		index     uint32
		ask, want int
	}{{irqMSIX, 3, 3}, {irqMSI, 1, 1}, {irqINTx, 1, 1}, {irqMSIX, 5, 5}} {
		fired := make(chan int)
		n, err := pci.InterruptsOf(f, kind.index, kind.ask, func(v int) { fired <- v })
		if err != nil || n != kind.want {
			t.Fatalf("kind %d: %d vectors, %v", kind.index, n, err)
		}
		for v := range n {
			if err := pci.Trigger(f, kind.index, v); err != nil {
				t.Fatalf("kind %d: %v", kind.index, err)
			}
			if got := <-fired; got != v {
				t.Errorf("kind %d: vector %d fired as %d", kind.index, v, got)
			}
		}
	}
	if n, err := f.Interrupts(64, func(int) {}); err != nil || n != 5 || !f.(interface{ MSIX() bool }).MSIX() {
		t.Errorf("of 64 vectors it has %d, %v", n, err)
	}
}

func guestBusy(t *testing.T) {
	guestOpen(t, pci.OpenOptions{}, onRoot)
	other := (&pci.Host{}).NewOpener(vtop.NewMapped(), pci.OpenOptions{})
	if _, err := other.Open(t.Context(), parse(t, onRoot)); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("opened twice: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}

// guestMemlock gives up CAP_IPC_LOCK, in a thread that ends with the test.
func guestMemlock(t *testing.T) {
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			t.Error(err)
			return
		}
		data[0].Effective &^= 1 << unix.CAP_IPC_LOCK
		if err := unix.Capset(&header, &data[0]); err != nil {
			t.Error(err)
			return
		}
		limit := unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
			t.Error(err)
			return
		}
		var log bytes.Buffer
		space := vtop.NewMapped()
		opener := (&pci.Host{}).NewOpener(space, pci.OpenOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer opener.Close()
		if _, err := opener.Open(context.Background(), parse(t, onRoot)); err != nil {
			t.Error(err)
			return
		}
		if !strings.Contains(log.String(), "limit=65536") {
			t.Errorf("no warning in %q", log.String())
		}
		g, err := hugepage.Alloc(hugepage.Config{Size: 1 << 20, PageSize: os.Getpagesize(), Node: hugepage.AnyNode, Name: "guest"})
		if err != nil {
			t.Error(err)
			return
		}
		defer g.Close()
		if err := space.Add(g); !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "ulimit -l") {
			t.Errorf("more than may be locked: %v", err)
		}
	}()
	<-done
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited); err != nil {
		t.Error(err)
	}
}

func guestSysfs(t *testing.T) {
	opener := (&pci.Host{}).NewOpener(vtop.NewMapped(), pci.OpenOptions{Access: pci.Sysfs})
	if _, err := opener.Open(t.Context(), parse(t, onRoot)); err == nil || !strings.Contains(err.Error(), "driver vfio-pci") {
		t.Errorf("a bound card: %v", err)
	}
	space, err := vtop.NewPhysical()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("/sys/bus/pci/drivers/vfio-pci/unbind"), []byte(behindPort), 0); err != nil {
		t.Fatal(err)
	}
	opener = (&pci.Host{}).NewOpener(space, pci.OpenOptions{Access: pci.Sysfs})
	if _, err := opener.Open(t.Context(), parse(t, behindPort)); err == nil || !strings.Contains(err.Error(), "there is an IOMMU") {
		t.Errorf("behind an IOMMU: %v", err)
	}
	if err := guest.BindVFIO(behindPort); err != nil {
		t.Fatal(err)
	}
}

// guestUnbind takes the card from a program that has it open: the kernel asks, and waits until it is closed.
func guestUnbind(t *testing.T) {
	_, list := guestOpen(t, pci.OpenOptions{}, onRoot)
	told := make(chan error, 1)
	list[0].(pci.GoneNotifier).OnGone(func(err error) { told <- err })
	unbound := make(chan error, 1)
	go func() {
		unbound <- os.WriteFile(filepath.Join("/sys/bus/pci/drivers/vfio-pci/unbind"), []byte(onRoot), 0)
	}()
	if err := <-told; !errors.Is(err, pci.ErrGone) || !strings.Contains(err.Error(), "wants the device back") {
		t.Errorf("told: %v", err)
	}
	if err := list[0].Close(); err != nil {
		t.Error(err)
	}
	if err := <-unbound; err != nil {
		t.Error(err)
	}
}
