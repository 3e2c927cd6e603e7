package pci_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"bare.wire/pci"
	"bare.wire/pci/pcitest"
)

const stateFile = "run/barewire/bind.json"

func bind(t *testing.T, m *pcitest.Machine, address string) {
	t.Helper()
	if err := m.Host().Bind(t.Context(), addr(t, address), pci.BindOptions{}); err != nil {
		t.Fatal(err)
	}
}

// with fails the test unless the device is with that driver, and driver_override says so.
func with(t *testing.T, m *pcitest.Machine, address, driver, override string) {
	t.Helper()
	if d := device(t, m, address); d.Driver != driver || d.Override != override {
		t.Errorf("%s is with driver %q, override %q; want %q, %q", address, d.Driver, d.Override, driver, override)
	}
}

func TestBindAndRestore(t *testing.T) {
	m := machine(t)
	bind(t, m, port0)
	with(t, m, port0, "vfio-pci", "vfio-pci")
	with(t, m, port1, "ixgbe", "") // the other port of the same kind stays
	if i := slices.IndexFunc(m.Writes(), func(w string) bool { return strings.Contains(w, "new_id") }); i >= 0 {
		t.Error("new_id was written")
	}
	info, err := os.Stat(m.Path(stateFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("notes: %v, %v; want mode 0600", info, err)
	}
	if err := m.Host().Restore(t.Context(), addr(t, port0), pci.BindOptions{}); err != nil {
		t.Fatal(err)
	}
	with(t, m, port0, "ixgbe", "")
	if d := device(t, m, port0); len(d.Interfaces) != 1 {
		t.Errorf("its interface did not come back: %+v", d)
	}
}

func TestBindingTwiceChangesNothing(t *testing.T) {
	m := machine(t)
	bind(t, m, port0)
	before := len(m.Writes())
	bind(t, m, port0)
	if n := len(m.Writes()) - before; n != 0 {
		t.Errorf("%d writes", n)
	}
	for range 2 {
		if err := m.Host().Restore(t.Context(), addr(t, port0), pci.BindOptions{}); err != nil {
			t.Fatal(err)
		}
		with(t, m, port0, "ixgbe", "")
	}
}

func TestUnbindBindRestoreFindsTheFirstDriver(t *testing.T) {
	m := machine(t)
	h, a := m.Host(), addr(t, port0)
	for _, step := range []func() error{
		func() error { return h.Unbind(t.Context(), a, pci.BindOptions{}) },
		func() error { return h.Unbind(t.Context(), a, pci.BindOptions{}) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		with(t, m, port0, "", "")
	}
	bind(t, m, port0)
	if err := h.Unbind(t.Context(), a, pci.BindOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := h.Restore(t.Context(), a, pci.BindOptions{}); err != nil {
		t.Fatal(err)
	}
	with(t, m, port0, "ixgbe", "")
}

// What somebody did by hand since is newer than the notes.
func TestADriverChosenByHandSinceIsTheOneToRestore(t *testing.T) {
	m := machine(t)
	bind(t, m, port0)
	h, a := m.Host(), addr(t, port0)
	m.Driver("ixgbe_new")
	if err := h.Bind(t.Context(), a, pci.BindOptions{Driver: "ixgbe_new"}); err != nil {
		t.Fatal(err)
	}
	bind(t, m, port0)
	if err := h.Restore(t.Context(), a, pci.BindOptions{}); err != nil {
		t.Fatal(err)
	}
	with(t, m, port0, "ixgbe_new", "ixgbe_new")
}

// A card that nobody had goes back to nobody.
func TestACardWithoutADriverIsRestoredToNone(t *testing.T) {
	m := pcitest.New(t)
	c := card()
	c.Driver = ""
	m.Add(c)
	bind(t, m, port0)
	if err := m.Host().Restore(t.Context(), addr(t, port0), pci.BindOptions{}); err != nil {
		t.Fatal(err)
	}
	with(t, m, port0, "", "")
}

// An override that somebody else had set is theirs.
func TestSomebodyElsesOverrideComesBack(t *testing.T) {
	m := machine(t)
	m.Put("sys/bus/pci/devices/"+port0+"/driver_override", "ixgbe\n")
	bind(t, m, port0)
	if err := m.Host().Restore(t.Context(), addr(t, port0), pci.BindOptions{}); err != nil {
		t.Fatal(err)
	}
	with(t, m, port0, "ixgbe", "ixgbe")
}

func TestRestoreWithoutNotesLetsTheKernelChoose(t *testing.T) {
	m := machine(t)
	bind(t, m, port0)
	m.Remove(stateFile)
	if err := m.Host().Restore(t.Context(), addr(t, port0), pci.BindOptions{}); err != nil {
		t.Fatal(err)
	}
	with(t, m, port0, "ixgbe", "")

	bind(t, m, port1)
	m.Remove(stateFile)
	m.Unload("ixgbe")
	err := m.Host().Restore(t.Context(), addr(t, port1), pci.BindOptions{})
	if err == nil || !strings.Contains(err.Error(), "modprobe") {
		t.Errorf("nobody wants it: %v", err)
	}
	with(t, m, port1, "vfio-pci", "vfio-pci") // rather than with nobody
}

func TestRestoreToADriverThatIsNotLoaded(t *testing.T) {
	m := machine(t)
	bind(t, m, port0)
	bind(t, m, port1)
	m.Unload("ixgbe")
	err := m.Host().Restore(t.Context(), addr(t, port0), pci.BindOptions{})
	if !errors.Is(err, pci.ErrNoDriver) || !strings.Contains(err.Error(), "modprobe ixgbe") {
		t.Errorf("error: %v", err)
	}
	with(t, m, port0, "vfio-pci", "vfio-pci")
}

func TestRefusalsChangeNothingAndSayWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(m *pcitest.Machine)
		opt    pci.BindOptions
		kind   error
		says   []string
		forced bool // --force gets past it
	}{
		"a default route": {spoil: func(m *pcitest.Machine) { m.Put("proc/net/route", routeHeader+routeAll) }, kind: pci.ErrInUse,
			says: []string{"default route through ens1", "ip link set ens1 nomaster down", "--force"}, forced: true},
		"an IPv6 route": {spoil: func(m *pcitest.Machine) { m.Put("proc/net/ipv6_route", route6) }, kind: pci.ErrInUse, says: []string{"fd00::/64"}, forced: true},
		"a bond":        {spoil: func(m *pcitest.Machine) { m.Link(m.InterfaceDir(port0)+"/master", "bond0") }, kind: pci.ErrInUse, says: []string{"bond0"}, forced: true},
		"a VLAN":        {spoil: func(m *pcitest.Machine) { m.Link(m.InterfaceDir(port0)+"/upper_ens1.5", "x") }, kind: pci.ErrInUse, says: []string{"ens1.5"}, forced: true},
		"a shared group": {spoil: func(m *pcitest.Machine) {
			m.Driver("ahci")
			m.Add(pcitest.Card{Address: "0000:03:00.2", ID: "8086:a102", Class: 0x010601, Driver: "ahci", Group: 17})
		}, kind: pci.ErrNotViable, says: []string{"0000:03:00.2 is with driver ahci", "group 17"}, forced: true},
		"a disk": {spoil: func(m *pcitest.Machine) { m.Put("sys/bus/pci/devices/"+port0+"/class", "0x010802\n") }, kind: pci.ErrNotNetwork,
			says: []string{"010802"}, forced: true},
		"vfio-pci not loaded": {spoil: func(m *pcitest.Machine) { m.Unload("vfio-pci") }, kind: pci.ErrNoDriver, says: []string{"sudo modprobe vfio-pci"}},
		"no IOMMU": {spoil: noIOMMU, kind: pci.ErrNoIOMMU,
			says: []string{"intel_iommu=on", "?access=sysfs", "--allow-noiommu", "anywhere in memory"}},
		"an IOMMU that does not watch it": {spoil: func(m *pcitest.Machine) { m.Remove("sys/bus/pci/devices/" + port0 + "/iommu_group") }, kind: pci.ErrNoIOMMU,
			says: []string{"does not watch it"}},
		"no IOMMU, allowed, and a kernel that cannot": {spoil: noIOMMU, opt: pci.BindOptions{AllowNoIOMMU: true}, kind: pci.ErrNoIOMMU,
			says: []string{"does not know the mode"}},
		"no IOMMU, allowed, and a kernel that may not": {spoil: func(m *pcitest.Machine) {
			noIOMMU(m)
			m.Put("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n")
		}, opt: pci.BindOptions{AllowNoIOMMU: true}, kind: pci.ErrNoIOMMU, says: []string{"echo Y | sudo tee"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(t)
			c.spoil(m)
			err := m.Host().Bind(t.Context(), addr(t, port0), c.opt)
			var refused *pci.RefusedError
			if !errors.Is(err, c.kind) || !errors.As(err, &refused) {
				t.Fatalf("error: %v; want %v", err, c.kind)
			}
			for _, want := range c.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q: %v", want, err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %v", err)
			}
			if w := m.Writes(); len(w) != 0 {
				t.Errorf("written: %q", w)
			}
			c.opt.Force = true
			if err := m.Host().Bind(t.Context(), addr(t, port0), c.opt); (err == nil) != c.forced {
				t.Errorf("by force: %v", err)
			}
		})
	}
}

func noIOMMU(m *pcitest.Machine) {
	m.NoIOMMU()
	m.Remove("sys/bus/pci/devices/" + port0 + "/iommu_group")
	m.Remove("sys/kernel/iommu_groups/17")
}

func TestWithoutAnIOMMUOnlyWhenAllowed(t *testing.T) {
	m := pcitest.New(t)
	m.NoIOMMU()
	m.Driver("ixgbe", "8086:10fb")
	c := card()
	c.Group = pcitest.NoGroup
	m.Add(c)
	m.Put("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n")
	opt := pci.BindOptions{AllowNoIOMMU: true, Owner: &pci.Owner{UID: os.Getuid(), GID: os.Getgid()}}
	if err := m.Host().Bind(t.Context(), addr(t, port0), opt); err != nil {
		t.Fatal(err)
	}
	d := device(t, m, port0)
	if !d.NoIOMMU || d.GroupNode() != "/dev/vfio/noiommu-99" {
		t.Errorf("%+v", d)
	}
	if info, err := os.Stat(m.Path(d.GroupNode())); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("node: %v, %v; want mode 0660", info, err)
	}
}

// A card that is with a process is not taken from it: the kernel would wait until the process lets go.
func TestACardThatAProcessHasOpenIsNotTaken(t *testing.T) {
	m := machine(t)
	bind(t, m, port0)
	m.Link("proc/812/fd/9", "/dev/vfio/17")
	for name, f := range map[string]func() error{
		"restore": func() error { return m.Host().Restore(t.Context(), addr(t, port0), pci.BindOptions{}) },
		"unbind":  func() error { return m.Host().Unbind(t.Context(), addr(t, port0), pci.BindOptions{}) },
	} {
		if err := f(); !errors.Is(err, pci.ErrInUse) {
			t.Errorf("%s: %v", name, err)
		}
	}
	with(t, m, port0, "vfio-pci", "vfio-pci")
}

// Whatever the kernel refuses, the card is with its old driver afterwards.
func TestAFailedBindGivesTheCardBack(t *testing.T) {
	for _, what := range []string{"vfio-pci", "driver_override", "unbind"} {
		m := machine(t)
		m.Refuse(what, syscall.EBUSY)
		err := m.Host().Bind(t.Context(), addr(t, port0), pci.BindOptions{})
		if err == nil {
			t.Fatalf("%s: no error", what)
		}
		m.Refuse(what, nil)
		with(t, m, port0, "ixgbe", "")
		if what == "vfio-pci" && !strings.Contains(err.Error(), "it is with ixgbe again") {
			t.Errorf("the error does not say how it stands: %v", err)
		}
	}
}

// When even that fails, the error says so, and restore does it later.
func TestACardThatCannotBeGivenBackNowIsRestoredLater(t *testing.T) {
	m := machine(t)
	m.Refuse("drivers_probe", syscall.EIO)
	err := m.Host().Bind(t.Context(), addr(t, port0), pci.BindOptions{})
	if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "pktgen devices restore "+port0) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error: %v", err)
	}
	m.Refuse("drivers_probe", nil)
	if err := m.Host().Restore(t.Context(), addr(t, port0), pci.BindOptions{}); err != nil {
		t.Fatal(err)
	}
	with(t, m, port0, "ixgbe", "")
}

// A driver may take its time to let go. Who does not want to wait is told that the kernel has not finished.
func TestADriverThatDoesNotLetGo(t *testing.T) {
	m := machine(t)
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	m.OnWrite(func(name, _ string) {
		if strings.HasSuffix(name, "unbind") {
			cancel()
			<-release
		}
	})
	err := m.Host().Bind(ctx, addr(t, port0), pci.BindOptions{})
	close(release)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "restore "+port0) {
		t.Errorf("error: %v", err)
	}
}

func TestTwoBindsWaitForEachOther(t *testing.T) {
	m := machine(t)
	entered, release := make(chan struct{}), make(chan struct{})
	first := true
	m.OnWrite(func(string, string) {
		if first {
			first = false
			close(entered)
			<-release
		}
	})
	done := make(chan error, 1)
	go func() { done <- m.Host().Bind(t.Context(), addr(t, port0), pci.BindOptions{}) }()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := m.Host().Bind(ctx, addr(t, port1), pci.BindOptions{})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("while the first is at work: %v", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	bind(t, m, port1)
	for _, p := range []string{port0, port1} {
		if err := m.Host().Restore(t.Context(), addr(t, p), pci.BindOptions{}); err != nil {
			t.Error(err)
		}
		with(t, m, p, "ixgbe", "")
	}
}

func TestNotesThatCannotBeTrustedAreRefused(t *testing.T) {
	good := `{"version":1,"boot":"boot-1","devices":{}}`
	for name, spoil := range map[string]func(m *pcitest.Machine){
		"a link":             func(m *pcitest.Machine) { m.Put("elsewhere", good); m.Link(stateFile, m.Path("elsewhere")) },
		"others may write":   func(m *pcitest.Machine) { m.Put(stateFile, good); chmod(t, m.Path(stateFile), 0o666) },
		"its group may":      func(m *pcitest.Machine) { m.Put(stateFile, good); chmod(t, m.Path(stateFile), 0o620) },
		"a directory":        func(m *pcitest.Machine) { m.Put(stateFile+"/x", "") },
		"no JSON":            func(m *pcitest.Machine) { m.Put(stateFile, "\x00\xff") },
		"another version":    func(m *pcitest.Machine) { m.Put(stateFile, `{"version":2}`) },
		"a path as a driver": func(m *pcitest.Machine) { m.Put(stateFile, entry(port0, "../../../tmp/x")) },
		"two lines as one":   func(m *pcitest.Machine) { m.Put(stateFile, entry(port0, `ixgbe\nahci`)) },
		"no address":         func(m *pcitest.Machine) { m.Put(stateFile, entry("03:00.0", "ixgbe")) },
		"endless":            func(m *pcitest.Machine) { m.Put(stateFile, good+strings.Repeat(" ", 2<<20)) },
	} {
		m := machine(t)
		spoil(m)
		if err := m.Host().Bind(t.Context(), addr(t, port0), pci.BindOptions{}); err == nil {
			t.Errorf("%s: bound", name)
		} else if name != "endless" && !errors.Is(err, pci.ErrState) {
			t.Errorf("%s: %v", name, err)
		}
		if w := m.Writes(); len(w) != 0 {
			t.Errorf("%s: written: %q", name, w)
		}
	}
}

func chmod(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

// entry is the notes with one device of the given driver in it.
func entry(address, driver string) string {
	return `{"version":1,"boot":"boot-1","devices":{"` + address + `":{"vendor":32902,"device":4347,"driver":"` + driver + `","override":""}}}`
}

// Notes of an earlier boot, and those about another card that was in the slot, say nothing about this one.
func TestStaleNotesAreNone(t *testing.T) {
	for name, notes := range map[string]string{
		"an earlier boot": strings.Replace(entry(port0, "nosuch"), "boot-1", "boot-0", 1),
		"another card":    strings.Replace(entry(port0, "nosuch"), "4347", "4348", 1),
	} {
		m := machine(t)
		bind(t, m, port0)
		m.Put(stateFile, notes)
		if err := m.Host().Restore(t.Context(), addr(t, port0), pci.BindOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		with(t, m, port0, "ixgbe", "")
	}
}

func TestNotesAreWrittenWhole(t *testing.T) {
	m := machine(t)
	bind(t, m, port0)
	bind(t, m, port1)
	b, err := os.ReadFile(m.Path(stateFile))
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Devices map[string]struct{ Driver string }
	}
	if err := json.Unmarshal(b, &s); err != nil || s.Devices[port0].Driver != "ixgbe" || s.Devices[port1].Driver != "ixgbe" {
		t.Errorf("%s: %v", b, err)
	}
	names, err := os.ReadDir(m.Path("run/barewire"))
	if err != nil || len(names) != 2 {
		t.Errorf("left in /run/barewire: %v, %v; want bind.json and bind.lock", names, err)
	}
}

func TestADriversNameIsNotAPath(t *testing.T) {
	for _, name := range []string{"../x", "a/b", ".", "..", "a b", "a\n", strings.Repeat("a", 64)} {
		m := machine(t)
		if err := m.Host().Bind(t.Context(), addr(t, port0), pci.BindOptions{Driver: name}); err == nil || len(m.Writes()) != 0 {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A node can be given away when there is one; the card stays bound when that fails.
func TestTheOwnerGetsTheNode(t *testing.T) {
	m := machine(t)
	opt := pci.BindOptions{Owner: &pci.Owner{UID: -1, GID: os.Getgid()}}
	if err := m.Host().Bind(t.Context(), addr(t, port0), opt); err != nil {
		t.Fatal(err)
	}
	m.Remove("dev/vfio/17")
	if err := m.Host().Bind(t.Context(), addr(t, port0), opt); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "it is bound to vfio-pci, but") {
		t.Errorf("no node: %v", err)
	}
	with(t, m, port0, "vfio-pci", "vfio-pci")
}

// TestWhoWaitedLooksAgain: while one waited for another's binding, the card was bound, and is in use.
func TestWhoWaitedLooksAgain(t *testing.T) {
	for what, c := range map[string]struct {
		do func(*pci.Host, pci.Address) error
		is error
	}{
		"to bind it alike": {func(h *pci.Host, a pci.Address) error { return h.Bind(t.Context(), a, pci.BindOptions{}) }, nil},
		"to bind it":       {func(h *pci.Host, a pci.Address) error { return h.Bind(t.Context(), a, pci.BindOptions{Driver: "uio"}) }, pci.ErrInUse},
		"to unbind it":     {func(h *pci.Host, a pci.Address) error { return h.Unbind(t.Context(), a, pci.BindOptions{}) }, pci.ErrInUse},
		"to restore it":    {func(h *pci.Host, a pci.Address) error { return h.Restore(t.Context(), a, pci.BindOptions{}) }, pci.ErrInUse},
	} {
		t.Run(what, func(t *testing.T) {
			m := machine(t)
			m.Driver("uio")
			bind(t, m, port0) // makes the lock's file
			if err := m.Host().Restore(t.Context(), addr(t, port0), pci.BindOptions{}); err != nil {
				t.Fatal(err)
			}
			name := m.Path("run/barewire/bind.lock")
			lock, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			waiting := make(chan error, 1)
			go func() { waiting <- c.do(m.Host(), addr(t, port0)) }()
			for opened(t, name) < 2 {
				runtime.Gosched()
			}
			dir := "sys/bus/pci/devices/" + port0
			m.Remove(dir + "/driver")
			m.Remove(dir + "/net")
			m.Link(dir+"/driver", "../../drivers/vfio-pci")
			m.Put(dir+"/driver_override", "vfio-pci\n")
			m.Link("proc/812/fd/9", "/dev/vfio/17")
			before := len(m.Writes())
			lock.Close()
			if err := <-waiting; !errors.Is(err, c.is) || c.is == nil && err != nil {
				t.Errorf("%v, want %v", err, c.is)
			}
			if after := m.Writes(); len(after) != before {
				t.Errorf("it was taken away: %q", after[before:])
			}
		})
	}
}

// opened is how often this process has a file open.
func opened(t *testing.T, name string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == name {
			n++
		}
	}
	return n
}
