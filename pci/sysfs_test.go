package pci_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"bare.wire/hugepage"
	"bare.wire/pci"
	"bare.wire/pci/pcitest"
	"bare.wire/vtop"
)

// sysfsRig is a machine without an IOMMU whose card has files for registers and configuration space.
type sysfsRig struct {
	*testing.T
	machine *pcitest.Machine
	space   *vtop.Space
	log     bytes.Buffer
	opener  *pci.Opener
}

const sysfsDir = "sys/bus/pci/devices/" + nic0

func newSysfsRig(t *testing.T) *sysfsRig {
	t.Helper()
	r := &sysfsRig{T: t, machine: pcitest.New(t), space: vtop.NewMapped()}
	r.machine.NoIOMMU()
	config := make([]byte, 4096)
	copy(config, []byte{0x86, 0x80, 0xfb, 0x10, 0x04, 0})
	r.machine.Add(pcitest.Card{
		Address: nic0, ID: "8086:10fb", Class: 0x020000, Group: pcitest.NoGroup, Config: config,
		Resource: "0x00000000fe000000 0x00000000fe01ffff 0x0000000000040200\n0x000000000000e000 0x000000000000e01f 0x0000000000040101\n",
	})
	r.machine.Put(sysfsDir+"/enable", "0\n")
	r.machine.Put(sysfsDir+"/resource0", string(make([]byte, 128<<10)))
	r.opener = pci.SysfsOpener(r.machine.Host(), r.space, slog.New(slog.NewTextHandler(&r.log, nil)))
	return r
}

func (r *sysfsRig) open() pci.Function {
	r.Helper()
	f, err := r.opener.Open(context.Background(), parse(r, nic0))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = f.Close() })
	return f
}

func (r *sysfsRig) refused(words ...string) error {
	r.Helper()
	f, err := r.opener.Open(context.Background(), parse(r, nic0))
	if err == nil {
		f.Close()
		r.Fatal("it opened")
	}
	for _, w := range append(words, nic0) {
		if !strings.Contains(err.Error(), w) {
			r.Errorf("error is %q, want %q in it", err, w)
		}
	}
	return err
}

func (r *sysfsRig) read(name string) string {
	r.Helper()
	b, err := os.ReadFile(r.machine.Path(sysfsDir + "/" + name))
	if err != nil {
		r.Fatal(err)
	}
	return string(b)
}

func (r *sysfsRig) region() *hugepage.Region {
	r.Helper()
	g, err := hugepage.Alloc(hugepage.Config{Size: 1 << 20, PageSize: os.Getpagesize(), Node: hugepage.AnyNode, Name: "guarded"})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { g.Close() })
	return g
}

// holds is how many memfds the guardian of f has.
func (r *sysfsRig) holds(f pci.Function) int {
	r.Helper()
	n := 0
	entries, err := os.ReadDir(pci.GuardianDir(f))
	if err != nil {
		r.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(pci.GuardianDir(f) + "/" + e.Name()); err == nil && strings.HasPrefix(to, "/memfd:guarded") {
			n++
		}
	}
	return n
}

func TestSysfsFunctionFromOpenToClose(t *testing.T) {
	r := newSysfsRig(t)
	f := r.open()
	if v, d := f.ID(); f.Name() != nic0 || v != 0x8086 || d != 0x10fb {
		t.Errorf("%s is %04x:%04x", f.Name(), v, d)
	}
	if r.read("enable")[0] != '1' || r.read("config")[4:6] != "\x02\x04" {
		t.Errorf("enable %q, command %x: want memory, no bus master, no INTx", r.read("enable"), r.read("config")[4:6])
	}
	if !strings.Contains(r.log.String(), "overwrite any memory") {
		t.Errorf("no warning in %q", r.log.String())
	}
	bar, err := f.BAR(0)
	if err != nil {
		t.Fatal(err)
	}
	bar.Write32(0x1f00, 0x2a)
	if again, err := f.BAR(0); err != nil || again.Read32(0x1f00) != 0x2a || r.read("resource0")[0x1f00] != 0x2a || again.Size() != 128<<10 {
		t.Errorf("BAR 0 the second time: %v", err)
	}
	for _, n := range []int{-1, 1, 2, 6} {
		if _, err := f.BAR(n); err == nil {
			t.Errorf("BAR %d", n)
		}
	}
	if err := pci.SetBusMaster(f, true); err != nil {
		t.Fatal(err)
	}
	if err := f.Reset(context.Background()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("reset without a way to: %v", err)
	}
	r.machine.Put(sysfsDir+"/reset", "0")
	if err := f.Reset(context.Background()); err != nil || r.read("reset") != "1" {
		t.Errorf("reset: %v", err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if r.read("enable")[0] != '0' || r.read("config")[4]&pci.CommandBusMaster != 0 {
		t.Errorf("enable %q, command %#x", r.read("enable"), r.read("config")[4])
	}
	if bar.Read32(0) != 0xffffffff {
		t.Error("registers of a closed function answer")
	}
	if _, err := f.Interrupts(1, func(int) {}); err == nil {
		t.Error("interrupts of a closed function")
	}
	if err := f.Reset(context.Background()); err == nil {
		t.Error("reset of a closed function")
	}
	r.open() // and it can be opened again
}

func TestGuardianHoldsWhatTheDeviceCanReach(t *testing.T) {
	r := newSysfsRig(t)
	before := r.region()
	if err := r.space.Add(before); err != nil {
		t.Fatal(err)
	}
	f := r.open()
	if r.holds(f) != 1 {
		t.Errorf("it holds %d of 1", r.holds(f))
	}
	later := r.region()
	if err := r.space.Add(later); err != nil {
		t.Fatal(err)
	}
	if r.holds(f) != 2 {
		t.Errorf("it holds %d of 2", r.holds(f))
	}
	if err := r.space.Remove(context.Background(), later); err != nil {
		t.Fatal(err)
	}
	if r.holds(f) != 1 {
		t.Errorf("it holds %d of 1 after one was removed", r.holds(f))
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := r.space.Remove(context.Background(), before); err != nil {
		t.Error(err)
	}
}

func TestTimerStandsInForInterrupts(t *testing.T) {
	r := newSysfsRig(t)
	f := r.open()
	fired := make(chan int)
	if n, err := f.Interrupts(17, func(v int) {
		select {
		case fired <- v:
		default:
		}
	}); n != 1 || err != nil {
		t.Fatalf("%d vectors, %v", n, err)
	}
	for range 3 {
		if v := <-fired; v != 0 {
			t.Errorf("vector %d", v)
		}
	}
	if n, err := f.Interrupts(0, nil); n != 0 || err != nil {
		t.Errorf("off: %d, %v", n, err)
	}
}

// TestTimerIsNotStartedWhileTheFunctionIsClosed: it would go on for ever.
func TestTimerIsNotStartedWhileTheFunctionIsClosed(t *testing.T) {
	timers := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == "anon_inode:[timerfd]" {
				n++
			}
		}
		return n
	}
	before := timers()
	for range 10 {
		r := newSysfsRig(t)
		f := r.open()
		var all sync.WaitGroup
		var closed atomic.Bool
		all.Go(func() {
			for !closed.Load() {
				_, _ = f.Interrupts(1, func(int) {})
			}
		})
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		closed.Store(true)
		all.Wait()
	}
	if n := timers(); n != before {
		t.Errorf("%d timers, %d before", n, before)
	}
}

func TestFunctionWhoseGuardianDiesIsGone(t *testing.T) {
	r := newSysfsRig(t)
	g := r.region()
	if err := r.space.Add(g); err != nil {
		t.Fatal(err)
	}
	f := r.open()
	if err := pci.SetBusMaster(f, true); err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	f.(pci.GoneNotifier).OnGone(func(err error) { told <- err })
	pci.KillGuardian(t, f)
	if err := <-told; !errors.Is(err, pci.ErrGone) || !strings.Contains(err.Error(), "guardian") {
		t.Errorf("told: %v", err)
	}
	if r.read("config")[4]&pci.CommandBusMaster != 0 {
		t.Error("bus mastering is on")
	}
	if err := r.space.Add(r.region()); err == nil {
		t.Error("a region that nobody holds was added")
	}
	if err := f.Close(); err != nil { // this process has seen that DMA is off
		t.Errorf("close: %v", err)
	}
	if err := r.space.Remove(context.Background(), g); err != nil {
		t.Error(err)
	}
}

func TestUnpluggedSysfsFunctionCloses(t *testing.T) {
	r := newSysfsRig(t)
	f := r.open()
	bar, err := f.BAR(0)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	f.(pci.GoneNotifier).OnGone(func(err error) { told <- err })
	if err := os.Truncate(r.machine.Path(sysfsDir+"/resource0"), 0); err != nil {
		t.Fatal(err)
	}
	r.machine.Put(sysfsDir+"/config", strings.Repeat("\xff", 4096))
	if bar.Read32(8) != 0xffffffff || !errors.Is(<-told, pci.ErrGone) {
		t.Error("it is still there")
	}
	if err := f.Close(); err != nil {
		t.Errorf("what is not there does no DMA: %v", err)
	}
}

func TestSysfsOpenSaysWhatToDo(t *testing.T) {
	for what, c := range map[string]struct {
		prepare func(*sysfsRig)
		words   []string
		is      error
	}{
		"a driver has it": {func(r *sysfsRig) {
			r.machine.Driver("ixgbe")
			r.machine.Link(sysfsDir+"/driver", "../../drivers/ixgbe")
		}, []string{"driver ixgbe", "pktgen devices unbind"}, nil},
		"there is an IOMMU": {func(r *sysfsRig) {
			r.machine.Put("sys/kernel/iommu_groups/5/type", "DMA-FQ\n")
			r.machine.Link(sysfsDir+"/iommu_group", "../../../../kernel/iommu_groups/5")
		}, []string{"IOMMU", "pktgen devices bind"}, nil},
		"it cannot be enabled":  {func(r *sysfsRig) { r.machine.Remove(sysfsDir + "/enable") }, []string{"enable"}, unix.ENOENT},
		"no configuration":      {func(r *sysfsRig) { r.machine.Remove(sysfsDir + "/config") }, nil, unix.ENOENT},
		"short configuration":   {func(r *sysfsRig) { r.machine.Put(sysfsDir+"/config", "\x86\x80") }, nil, nil},
		"it has gone":           {func(r *sysfsRig) { r.machine.Put(sysfsDir+"/config", strings.Repeat("\xff", 4096)) }, []string{"all ones"}, pci.ErrGone},
		"the space is a mapped": {func(r *sysfsRig) { r.opener = r.machine.Host().NewOpener(r.space, pci.OpenOptions{Access: pci.Sysfs}) }, []string{"vtop.NewPhysical"}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			r := newSysfsRig(t)
			c.prepare(r)
			if err := r.refused(c.words...); c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
		})
	}
}

// TestDeviceOfAnotherProcessIsLeftAlone: its bus mastering stays on.
func TestDeviceOfAnotherProcessIsLeftAlone(t *testing.T) {
	r := newSysfsRig(t)
	f := r.open()
	if err := pci.SetBusMaster(f, true); err != nil {
		t.Fatal(err)
	}
	second := *r
	second.opener = pci.SysfsOpener(r.machine.Host(), vtop.NewMapped(), slog.New(slog.DiscardHandler))
	if err := second.refused("another process"); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Error(err)
	}
	if r.read("config")[4]&pci.CommandBusMaster == 0 {
		t.Error("its bus mastering was switched off")
	}
}
