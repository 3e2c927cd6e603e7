package pci_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"bare.wire/hugepage"
	"bare.wire/pci"
	"bare.wire/pci/pcitest"
	"bare.wire/vtop"
)

const nic0, nic1 = "0000:03:00.0", "0000:03:00.1"

// vfioRig is a machine with cards that are bound to vfio-pci, and the kernel behind it.
type vfioRig struct {
	*testing.T
	machine *pcitest.Machine
	kernel  *pci.FakeKernel
	space   *vtop.Space
	log     bytes.Buffer
	opener  *pci.Opener
}

// newVFIORig puts a card at each address; its group is the number beside it.
func newVFIORig(t *testing.T, groups map[string]int) *vfioRig {
	t.Helper()
	r := &vfioRig{T: t, machine: pcitest.New(t), space: vtop.NewMapped()}
	r.kernel = pci.NewFakeKernel(t, r.machine.Root)
	for address, group := range groups {
		r.machine.Add(pcitest.Card{Address: address, ID: "8086:10fb", Class: 0x020000, Driver: pci.VFIODriver, Group: group})
		r.kernel.Add(address, group)
	}
	r.use(pci.OpenOptions{})
	return r
}

func (r *vfioRig) use(opt pci.OpenOptions) {
	opt.Logger = slog.New(slog.NewTextHandler(&r.log, nil))
	r.opener = r.kernel.OpenerWith(r.machine.Host(), r.space, opt)
}

func parse(t testing.TB, address string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (r *vfioRig) open(address string) pci.Function {
	r.Helper()
	f, err := r.opener.Open(context.Background(), parse(r, address))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := f.Close(); err != nil {
			r.Error(err)
		}
	})
	return f
}

// refused opens a function that must not open, and wants words in the error.
func (r *vfioRig) refused(address string, words ...string) error {
	r.Helper()
	f, err := r.opener.Open(context.Background(), parse(r, address))
	if err == nil {
		f.Close()
		r.Fatal("it opened")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			r.Errorf("error is %q, want %q in it", err, w)
		}
	}
	return err
}

func (r *vfioRig) region() *hugepage.Region {
	r.Helper()
	g, err := hugepage.Alloc(hugepage.Config{Size: 1 << 20, PageSize: os.Getpagesize(), Node: hugepage.AnyNode, Name: "vfio"})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { g.Close() })
	return g
}

func (r *vfioRig) add(g *hugepage.Region) {
	r.Helper()
	if err := r.space.Add(g); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := r.space.Remove(context.Background(), g); err != nil {
			r.Error(err)
		}
	})
}

func TestVFIOFunctionFromOpenToClose(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	r.add(r.region())
	f := r.open(nic0)
	d := r.kernel.Devices[nic0]
	if vendor, device := f.ID(); f.Name() != nic0 || vendor != 0x8086 || device != 0x10fb {
		t.Errorf("%s is %04x:%04x", f.Name(), vendor, device)
	}
	if r.kernel.Maps != 1 {
		t.Errorf("%d mappings, want the region", r.kernel.Maps)
	}
	if v, err := f.ReadConfig(pci.ConfigDevice, 2); err != nil || v != 0x10fb {
		t.Errorf("device id reads %#x, %v", v, err)
	}
	bar, err := f.BAR(0)
	if err != nil {
		t.Fatal(err)
	}
	bar.Write32(0x8, 42)
	if again, err := f.BAR(0); err != nil || again.Read32(0x8) != 42 || again.Size() != 64<<10 {
		t.Errorf("BAR 0 the second time: %v", err)
	}
	if d.Config[4]&pci.CommandMemory == 0 {
		t.Error("memory decoding is off")
	}
	if err := pci.SetBusMaster(f, true); err != nil {
		t.Error(err)
	}
	if err := f.Reset(context.Background()); err != nil || d.Resets != 1 {
		t.Errorf("%d resets, %v", d.Resets, err)
	}
	r.refused(nic0, "open already")
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if d.Open || r.kernel.Maps != 0 || d.Config[4]&pci.CommandBusMaster != 0 {
		t.Errorf("open %v, %d mappings, command %#x", d.Open, r.kernel.Maps, d.Config[4])
	}
	if bar.Read32(8) != 0xffffffff {
		t.Error("registers of a closed function answer")
	}
	if _, err := f.ReadConfig(0, 2); err == nil {
		t.Error("configuration space of a closed function answers")
	}
	if _, err := f.BAR(0); err == nil {
		t.Error("BAR of a closed function")
	}
	if _, err := f.Interrupts(1, func(int) {}); err == nil {
		t.Error("interrupts of a closed function")
	}
	r.open(nic0) // and it can be opened again
}

func TestConfigurationSpaceIsReadInWholeOrNotAtAll(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	d := r.kernel.Devices[nic0]
	f := r.open(nic0)
	for _, c := range []struct{ off, size int }{{-4, 4}, {0, 3}, {1, 2}, {2, 4}, {4096, 1}, {4094, 4}, {0, 0}, {0, 8}} {
		if _, err := f.ReadConfig(c.off, c.size); err == nil {
			t.Errorf("%d bytes at %d were read", c.size, c.off)
		}
		if err := f.WriteConfig(c.off, c.size, 0); err == nil {
			t.Errorf("%d bytes at %d were written", c.size, c.off)
		}
	}
	whole := d.Config
	d.Config = d.Config[:0x41]
	if _, err := f.ReadConfig(0x40, 4); err == nil {
		t.Error("a short read gave a value")
	}
	d.Config = whole
}

func TestFunctionsOfOneGroupShareIt(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7, nic1: 7})
	r.add(r.region())
	a, b := r.open(nic0), r.open(nic1)
	if r.kernel.Maps != 1 {
		t.Errorf("%d mappings for one container", r.kernel.Maps)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if r.kernel.Maps != 1 {
		t.Error("the other's mappings are gone")
	}
	if _, err := b.ReadConfig(0, 2); err != nil {
		t.Error(err)
	}
}

func TestGroupsShareAContainerWhereTheKernelLets(t *testing.T) {
	for what, c := range map[string]struct {
		prepare func(*pci.FakeKernel)
		maps    int
	}{
		"it lets":           {func(*pci.FakeKernel) {}, 1},
		"it refuses":        {func(k *pci.FakeKernel) { k.Groups[8].Alone = true }, 2},
		"it narrows ranges": {func(k *pci.FakeKernel) { k.Narrow[8] = []vtop.Range{{First: 0, Last: 1<<38 - 1}} }, 2},
	} {
		t.Run(what, func(t *testing.T) {
			r := newVFIORig(t, map[string]int{nic0: 7, nic1: 8})
			c.prepare(r.kernel)
			r.add(r.region())
			r.open(nic0)
			r.open(nic1)
			r.add(r.region()) // later regions reach both too
			if r.kernel.Maps != 2*c.maps {
				t.Errorf("%d mappings of two regions, want them in %d containers", r.kernel.Maps, c.maps)
			}
		})
	}
}

func TestBusAddressesKeepToWhatTheIOMMUCan(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	r.kernel.Ranges = []vtop.Range{{First: 0, Last: 0xfedfffff}, {First: 0x2_0000_0000, Last: 0x2_3fff_ffff}}
	r.open(nic0)
	r.add(r.region())
	if got := r.space.Regions()[0].Bus[0].First; got != 0x2_0000_0000 {
		t.Errorf("region at %#x", got)
	}
	// A region that is there already, and where this device cannot go, is named.
	other := newVFIORig(t, map[string]int{nic0: 7})
	other.kernel.Ranges = []vtop.Range{{First: 0, Last: 0xffffffff}}
	other.add(other.region())
	other.refused(nic0, "0x100000000", "outside what the device can use")
}

func TestOpenSaysWhatToDo(t *testing.T) {
	for what, c := range map[string]struct {
		prepare func(*vfioRig)
		words   []string
		is      error
	}{
		"another driver has it": {func(r *vfioRig) {
			r.machine.Driver("ixgbe", "8086:10fb")
			r.machine.Remove("sys/bus/pci/devices/" + nic0)
			r.machine.Add(pcitest.Card{Address: nic0, ID: "8086:10fb", Driver: "ixgbe", Group: pcitest.NoGroup})
		}, []string{"driver ixgbe", "pktgen devices bind " + nic0}, nil},
		"no driver and no IOMMU": {func(r *vfioRig) {
			r.machine.Remove("sys/bus/pci/devices/" + nic0)
			r.machine.Add(pcitest.Card{Address: nic0, ID: "8086:10fb", Group: pcitest.NoGroup})
		}, []string{"no IOMMU", "intel_iommu=on", nic0 + "?access=sysfs"}, nil},
		"an invented group": {func(r *vfioRig) {
			r.machine.Remove("sys/bus/pci/devices/" + nic0)
			r.machine.Remove("sys/bus/pci/drivers/vfio-pci/" + nic0)
			r.machine.Add(pcitest.Card{Address: nic0, ID: "8086:10fb", Driver: pci.VFIODriver, Group: pcitest.NoGroup})
		}, []string{"no IOMMU", nic0 + "?access=noiommu"}, nil},
		"no such device":        {func(r *vfioRig) { r.machine.Remove("sys/bus/pci/devices/" + nic0) }, []string{nic0}, os.ErrNotExist},
		"no VFIO":               {func(r *vfioRig) { r.kernel.Refuse["open /dev/vfio/vfio"] = unix.ENOENT }, []string{"modprobe vfio-pci"}, unix.ENOENT},
		"no right":              {func(r *vfioRig) { r.kernel.Refuse["open /dev/vfio/7"] = unix.EACCES }, []string{"root", "--user"}, unix.EACCES},
		"in use":                {func(r *vfioRig) { r.kernel.Refuse["open /dev/vfio/7"] = unix.EBUSY }, []string{"another process", "fuser"}, unix.EBUSY},
		"no such group":         {func(r *vfioRig) { delete(r.kernel.Groups, 7) }, []string{"pktgen devices bind"}, unix.ENOENT},
		"no IOMMU driver":       {func(r *vfioRig) { r.kernel.Types = nil }, []string{"modprobe vfio_iommu_type1"}, errors.ErrUnsupported},
		"unsafe interrupts":     {func(r *vfioRig) { r.kernel.Refuse["SET_IOMMU"] = unix.EPERM }, []string{"allow_unsafe_interrupts"}, unix.EPERM},
		"the device will not":   {func(r *vfioRig) { r.kernel.Refuse["GET_DEVICE_FD"] = unix.ENODEV }, []string{"group 7"}, unix.ENODEV},
		"IOMMU info fails":      {func(r *vfioRig) { r.kernel.Refuse["IOMMU_GET_INFO"] = unix.ENOTTY }, []string{"IOMMU"}, unix.ENOTTY},
		"IOMMU info is short":   {func(r *vfioRig) { r.kernel.Info = []byte{4, 0, 0, 0} }, []string{"makes no sense"}, nil},
		"IOMMU info is endless": {func(r *vfioRig) { r.kernel.Info = []byte{0xff, 0xff, 0xff, 0xff} }, []string{"makes no sense"}, nil},
		"notices cannot be had": {func(r *vfioRig) { r.kernel.Refuse["SET_IRQS 4"] = unix.EINVAL }, []string{"wants the device back"}, unix.EINVAL},
	} {
		t.Run(what, func(t *testing.T) {
			r := newVFIORig(t, map[string]int{nic0: 7})
			r.add(r.region())
			c.prepare(r)
			err := r.refused(nic0, c.words...)
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
			if !strings.Contains(err.Error(), nic0) {
				t.Errorf("%v does not name the device", err)
			}
		})
	}
}

func TestGroupThatIsNotViableNamesTheCulprits(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	r.machine.Driver("e1000e", "8086:10d3")
	r.machine.Driver("pcieport")
	r.machine.Add(pcitest.Card{Address: nic1, ID: "8086:10d3", Driver: "e1000e", Group: 7})
	r.machine.Add(pcitest.Card{Address: "0000:02:00.0", ID: "8086:3420", Driver: "pcieport", Group: 7})
	r.kernel.Groups[7].NoViable = true
	err := r.refused(nic0, nic1+" (driver e1000e)", "pktgen devices bind")
	if !errors.Is(err, pci.ErrNotIsolated) || strings.Contains(err.Error(), "pcieport") {
		t.Error(err)
	}
}

func TestOldKernelHasTypeOne(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	r.kernel.Types = []uintptr{1}
	r.add(r.region())
	r.open(nic0)
}

// TestNoticeThatCannotBeHadLeavesNothingBehind: the one before it was had.
func TestNoticeThatCannotBeHadLeavesNothingBehind(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	r.kernel.Refuse["SET_IRQS 3"] = unix.EINVAL
	events := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == "anon_inode:[eventfd]" {
				n++
			}
		}
		return n
	}
	before := events()
	r.refused(nic0, "cannot be corrected")
	if n := events(); n != before {
		t.Errorf("%d eventfds, %d before", n, before)
	}
}

// TestBARIsMappedOnceByWhoeverAsks: a second mapping would keep the device open after Close.
func TestBARIsMappedOnceByWhoeverAsks(t *testing.T) {
	for range 20 {
		r := newVFIORig(t, map[string]int{nic0: 7})
		f := r.open(nic0)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if _, err := f.BAR(0); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := r.kernel.Devices[nic0].BARs[0].Mapped; len(got) != 1 {
			t.Fatalf("mapped are %v", got)
		}
		// Close may come at any time.
		all.Go(func() { _, _ = f.BAR(0) })
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
}

func TestMemoryLimitIsToldBeforeItBitesAndWhenItDoes(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	r.kernel.Lock = 64 << 10
	r.open(nic0)
	if !strings.Contains(r.log.String(), "limit=65536") || !strings.Contains(r.log.String(), "ulimit -l") {
		t.Errorf("no warning in %q", r.log.String())
	}
	for errno, words := range map[error][]string{
		unix.ENOMEM: {"65536", "ulimit -l", "1048576"}, unix.ENOSPC: {"dma_entry_limit", "65535"}, unix.EEXIST: {"already"}, unix.EFAULT: {"VFIO group 7"},
	} {
		r.kernel.Refuse["MAP_DMA"] = errno
		err := r.space.Add(r.region())
		if !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
			continue
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v: %q, want %q in it", errno, err, w)
			}
		}
	}
}

func TestUnmapThatTakesLessIsAnError(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	g := r.region()
	f := r.open(nic0)
	if err := r.space.Add(g); err != nil {
		t.Fatal(err)
	}
	r.kernel.Short = 4096
	err := r.space.Remove(context.Background(), g)
	if err == nil || !strings.Contains(err.Error(), "unmapped") {
		t.Errorf("remove: %v", err)
	}
	r.kernel.Short = 0
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := r.space.Remove(context.Background(), g); err != nil {
		t.Errorf("after the device is closed: %v", err)
	}
}

func TestCloseUnmapsEvenWhatTheKernelWouldNotGiveBack(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	r.add(r.region())
	f := r.open(nic0)
	r.kernel.Short = 4096
	if err := f.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if r.kernel.Maps != 0 {
		t.Error("something is mapped")
	}
}

func TestCloseThatCannotEndDMASaysSo(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	f, err := r.opener.Open(context.Background(), parse(t, nic0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.BAR(0); err != nil {
		t.Fatal(err)
	}
	if err := pci.SetBusMaster(f, true); err != nil {
		t.Fatal(err)
	}
	r.kernel.Refuse["munmap"], r.kernel.Refuse["config"] = unix.ENOMEM, unix.EIO
	for range 2 { // asking again makes it no better
		if err := f.Close(); err == nil || !strings.Contains(err.Error(), "DMA") {
			t.Errorf("close: %v", err)
		}
	}
	r.kernel.Wrong = nil // the mapping that it could not give back
}

func TestResetThatTheKernelCannotDoIsUnsupported(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	r.kernel.Devices[nic0].CanReset = false
	f := r.open(nic0)
	if err := f.Reset(context.Background()); !errors.Is(err, errors.ErrUnsupported) || r.kernel.Devices[nic0].Resets != 0 {
		t.Errorf("reset: %v", err)
	}
}

func TestRegistersAreReachedWhateverTheKernelMaps(t *testing.T) {
	const msixMappable, sparse = 3, 1
	for what, c := range map[string]struct {
		bar    pci.FakeBAR
		mapped string
	}{
		"all of it":              {pci.FakeBAR{Size: 0x8000, Mmap: true, Caps: pci.FakeCap(msixMappable)}, "[0x0+0x8000]"},
		"around the table":       {pci.FakeBAR{Size: 0x8000, Mmap: true}, "[0x0+0x2000 0x4000+0x4000]"},
		"areas":                  {pci.FakeBAR{Size: 0x8000, Mmap: true, Caps: pci.FakeCap(sparse, 0, 0x1000, 0x6000, 0x2000)}, "[0x0+0x1000 0x6000+0x2000]"},
		"areas of odd pieces":    {pci.FakeBAR{Size: 0x8000, Mmap: true, Caps: pci.FakeCap(sparse, 0x10, 0x2000, 0x4000, 0x10)}, "[0x1000+0x1000]"},
		"no areas":               {pci.FakeBAR{Size: 0x8000, Mmap: true, Caps: []byte{sparse, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}, "[]"},
		"nothing":                {pci.FakeBAR{Size: 0x8000}, "[]"},
		"it says so and refuses": {pci.FakeBAR{Size: 0x8000, Mmap: true, NoMmap: unix.EINVAL}, "[]"},
	} {
		t.Run(what, func(t *testing.T) {
			r := newVFIORig(t, map[string]int{nic0: 7})
			d := r.kernel.Devices[nic0]
			b := c.bar
			d.BARs[0] = &b
			// An MSI-X capability at 0x40: 3 vectors, the table at 0x2ff0 of BAR 0, so on two pages.
			d.Config[0x06], d.Config[0x34] = 0x10, 0x40
			copy(d.Config[0x40:], []byte{0x11, 0, 2, 0, 0xf0, 0x2f, 0, 0, 0, 0x50, 0, 0})
			f := r.open(nic0)
			bar, err := f.BAR(0)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(b.Mapped); got != c.mapped {
				t.Errorf("mapped are %s, want %s", got, c.mapped)
			}
			for off := uint32(0); off < 0x8000; off += 0x7fc {
				bar.Write32(off, off+1)
			}
			for off := uint32(0); off < 0x8000; off += 0x7fc {
				if got := bar.Read32(off); got != off+1 {
					t.Errorf("register %#x reads %#x", off, got)
				}
			}
			if bar.Size() != 0x8000 {
				t.Errorf("size %#x", bar.Size())
			}
			gone := 0
			f.(pci.GoneNotifier).OnGone(func(err error) {
				if gone++; !errors.Is(err, pci.ErrGone) {
					t.Error(err)
				}
			})
			r.kernel.Remove(d)
			for off := uint32(0); off < 0x8000; off += 0x7fc {
				bar.Write32(off, 0)
				if got := bar.Read32(off); got != 0xffffffff {
					t.Errorf("register %#x of a removed device reads %#x", off, got)
				}
			}
			if gone != 1 {
				t.Errorf("told %d times that the device has gone", gone)
			}
		})
	}
}

func TestBARThatHasNoRegistersIsRefused(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	d := r.kernel.Devices[nic0]
	d.BARs[2] = &pci.FakeBAR{Size: 2, Mmap: true}
	d.BARs[3] = &pci.FakeBAR{Size: 0x1000, Mmap: true, Caps: pci.FakeCap(1, 0x1000, 0x1000)}
	f := r.open(nic0)
	for _, n := range []int{-1, 1, 2, 3, 6, 7} {
		if _, err := f.BAR(n); err == nil || !strings.Contains(err.Error(), nic0) {
			t.Errorf("BAR %d: %v", n, err)
		}
	}
}

func TestOpenerClosesWhatIsLeft(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7, nic1: 8})
	for _, a := range []string{nic0, nic1} {
		if _, err := r.opener.Open(context.Background(), parse(t, a)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.opener.Close(); err != nil {
		t.Error(err)
	}
	if r.kernel.Devices[nic0].Open || r.kernel.Devices[nic1].Open {
		t.Error("a device is open")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.opener.Open(ctx, parse(t, nic0)); !errors.Is(err, context.Canceled) {
		t.Errorf("opened although the context has ended: %v", err)
	}
}

func TestAccessHasANameInURIs(t *testing.T) {
	if got := fmt.Sprint(slices.Collect(func(yield func(pci.Access) bool) {
		for a := range pci.Access(4) {
			yield(a)
		}
	})); got != "[vfio noiommu sysfs Access(3)]" {
		t.Error(got)
	}
}
