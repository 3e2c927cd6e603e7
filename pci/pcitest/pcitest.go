// Package pcitest builds machines that do not exist: a directory with the parts of /sys, /proc and /dev that package pci looks
// at, and the kernel's side of binding. A test of anything that finds, binds or explains PCI devices runs on one, without root
// and on any computer.
//
//	m := pcitest.New(t)
//	m.Driver("ixgbe", "8086:10fb")
//	m.Add(pcitest.Card{Address: "0000:03:00.0", ID: "8086:10fb", Class: 0x020000, Driver: "ixgbe", Group: 17, Interface: "ens1"})
//	err := m.Host().Bind(ctx, a, pci.BindOptions{})
//
// What the kernel does with driver_override, unbind, bind and drivers_probe: Documentation/ABI/testing/sysfs-bus-pci.
package pcitest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"bare.wire/pci"
)

// NoGroup is the Group of a card that no IOMMU watches.
const NoGroup = -1

// Card is a function to be added. Strings that are empty leave out what they say.
type Card struct {
	Address   string // "0000:03:00.0"
	ID        string // "8086:10fb"
	Class     uint32 // 0x020000 is Ethernet
	Driver    string // that has it
	Group     int    // IOMMU group, NoGroup for none
	NUMA      string // content of numa_node
	Interface string // the network interface that it has while a driver of its own has it
	Virtio    bool   // the interface is below virtio0/, as virtio_net's are
	Resource  string // content of resource
	Config    []byte // configuration space
}

// Machine is a tree below Root and the kernel behind it. Its methods may be called from several goroutines.
type Machine struct {
	Root string

	t       testing.TB
	mu      sync.Mutex
	cards   map[string]*Card
	drivers map[string][]string // the identifiers that each knows
	refuse  map[string]error
	writes  []string
	hook    func(name, text string)
}

// New returns a machine with no cards, an IOMMU, and vfio-pci loaded.
func New(t testing.TB) *Machine {
	m := &Machine{Root: t.TempDir(), t: t, cards: map[string]*Card{}, drivers: map[string][]string{}, refuse: map[string]error{}}
	m.Put("sys/bus/pci/drivers_probe", "")
	m.Put("sys/class/iommu/dmar0/name", "dmar0\n")
	m.Put("proc/sys/kernel/random/boot_id", "boot-1\n")
	m.Put("dev/vfio/vfio", "")
	m.dir("sys/bus/pci/devices")
	m.Driver(pci.VFIODriver)
	return m
}

// Host is the machine as package pci sees it.
func (m *Machine) Host() *pci.Host { return &pci.Host{Root: m.Root, Write: m.write} }

// Path is where the machine has a file.
func (m *Machine) Path(name string) string { return filepath.Join(m.Root, name) }

// Put writes a file, and the directories above it.
func (m *Machine) Put(name, text string) {
	m.t.Helper()
	m.dir(filepath.Dir(name))
	m.check(os.WriteFile(m.Path(name), []byte(text), 0o644))
}

// Link makes a symbolic link.
func (m *Machine) Link(name, to string) {
	m.t.Helper()
	m.dir(filepath.Dir(name))
	m.check(os.Symlink(to, m.Path(name)))
}

// Remove removes a file or a whole directory.
func (m *Machine) Remove(name string) {
	m.t.Helper()
	m.check(os.RemoveAll(m.Path(name)))
}

// NoIOMMU takes the IOMMU away.
func (m *Machine) NoIOMMU() { m.Remove("sys/class/iommu/dmar0") }

// Driver loads a driver that knows these identifiers ("8086:10fb").
func (m *Machine) Driver(name string, ids ...string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drivers[name] = ids
	m.Put("sys/bus/pci/drivers/"+name+"/unbind", "")
}

// Unload takes a driver away that has no card.
func (m *Machine) Unload(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.drivers, name)
	m.Remove("sys/bus/pci/drivers/" + name)
}

// Refuse makes the kernel answer writes with err: to what ("unbind", "drivers_probe", "driver_override"), or, with a driver's
// name, has that driver take no card, without an error, as the kernel does. A nil err ends it.
func (m *Machine) Refuse(what string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse[what] = err
}

// OnWrite has f called at the beginning of each write to sysfs, with the name below Root.
func (m *Machine) OnWrite(f func(name, text string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = f
}

// Writes are the writes to sysfs so far, as "name<text".
func (m *Machine) Writes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.writes...)
}

// Add puts a card into the machine.
func (m *Machine) Add(c Card) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cards[c.Address] = &c
	vendor, device, _ := strings.Cut(c.ID, ":")
	dir := m.device(&c)
	for name, text := range map[string]string{
		"vendor": "0x" + vendor + "\n", "device": "0x" + device + "\n", "class": fmt.Sprintf("0x%06x\n", c.Class), "revision": "0x01\n",
		"subsystem_vendor": "0x" + vendor + "\n", "subsystem_device": "0x0003\n",
		"driver_override": "(null)\n", "numa_node": c.NUMA, "resource": c.Resource, "config": string(c.Config),
	} {
		if text != "" {
			m.Put(dir+"/"+name, text)
		}
	}
	if c.Group >= 0 {
		group := fmt.Sprintf("sys/kernel/iommu_groups/%d", c.Group)
		m.Put(group+"/type", "DMA\n")
		m.Link(group+"/devices/"+c.Address, "../../../../bus/pci/devices/"+c.Address)
		m.Link(dir+"/iommu_group", fmt.Sprintf("../../../../kernel/iommu_groups/%d", c.Group))
	}
	if c.Driver != "" {
		if _, loaded := m.drivers[c.Driver]; !loaded {
			m.t.Fatalf("card %s: driver %s is not loaded", c.Address, c.Driver)
		}
		m.attach(&c, c.Driver)
	}
}

func (m *Machine) device(c *Card) string { return "sys/bus/pci/devices/" + c.Address }

// attach and detach are what a driver's probe and remove do to the tree. m.mu is held.
func (m *Machine) attach(c *Card, driver string) {
	dir := m.device(c)
	m.Link(dir+"/driver", "../../drivers/"+driver)
	m.Link("sys/bus/pci/drivers/"+driver+"/"+c.Address, "../../devices/"+c.Address)
	switch {
	case driver == pci.VFIODriver && c.Group < 0: // VFIO makes up a group
		const invented = "sys/kernel/iommu_groups/99"
		m.Put(invented+"/name", "vfio-noiommu\n")
		m.Link(invented+"/devices/"+c.Address, "../../../../bus/pci/devices/"+c.Address)
		m.Link(dir+"/iommu_group", "../../../../kernel/iommu_groups/99")
		m.Put("dev/vfio/noiommu-99", "")
	case driver == pci.VFIODriver:
		m.Put(fmt.Sprintf("dev/vfio/%d", c.Group), "")
	case c.Interface != "":
		net := m.interfaceDir(c)
		for name, text := range map[string]string{
			"address": "02:00:00:00:00:01\n", "flags": "0x1003\n", "carrier": "1\n", "speed": "10000\n", "mtu": "1500\n", "ifindex": "7\n",
		} {
			m.Put(net+"/"+name, text)
		}
	}
}

func (m *Machine) detach(c *Card, driver string) {
	dir := m.device(c)
	m.Remove(dir + "/driver")
	m.Remove("sys/bus/pci/drivers/" + driver + "/" + c.Address)
	if driver == pci.VFIODriver && c.Group < 0 {
		m.Remove(dir + "/iommu_group")
		m.Remove("sys/kernel/iommu_groups/99")
		m.Remove("dev/vfio/noiommu-99")
	}
	m.Remove(dir + "/net")
	m.Remove(dir + "/virtio0")
}

func (m *Machine) interfaceDir(c *Card) string {
	if c.Virtio {
		return m.device(c) + "/virtio0/net/" + c.Interface
	}
	return m.device(c) + "/net/" + c.Interface
}

// InterfaceDir is where the card's interface is, below Root.
func (m *Machine) InterfaceDir(address string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.interfaceDir(m.cards[address])
}

// write is the kernel.
func (m *Machine) write(name, text string) error {
	short := strings.TrimPrefix(name, m.Root+"/")
	m.mu.Lock()
	hook := m.hook
	m.writes = append(m.writes, short+"<"+text)
	m.mu.Unlock()
	if hook != nil {
		hook(short, text)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	file := filepath.Base(short)
	if err := m.refuse[file]; err != nil {
		return err
	}
	if text == "" {
		return nil // a write of no bytes does not reach the attribute
	}
	parent := filepath.Base(filepath.Dir(short))
	switch file {
	case "driver_override":
		return m.override(m.cards[parent], strings.TrimSuffix(text, "\n"))
	case "unbind":
		c := m.cards[text]
		if c == nil || m.bound(c) != parent {
			return syscall.ENODEV
		}
		m.detach(c, parent)
		return nil
	case "drivers_probe":
		return m.probe(m.cards[text])
	}
	return fmt.Errorf("the kernel of this test does not know %s", short)
}

func (m *Machine) override(c *Card, driver string) error {
	if c == nil {
		return syscall.ENODEV
	}
	if driver == "" {
		driver = "(null)"
	}
	m.Put(m.device(c)+"/driver_override", driver+"\n")
	return nil
}

// probe offers a card to the drivers. A driver that does not want it is no error.
func (m *Machine) probe(c *Card) error {
	if c == nil {
		return syscall.ENODEV
	}
	if m.bound(c) != "" {
		return nil
	}
	b, err := os.ReadFile(m.Path(m.device(c) + "/driver_override"))
	m.check(err)
	override := strings.TrimSpace(string(b))
	for name, ids := range m.drivers {
		wants := override == name
		for _, id := range ids {
			wants = wants || override == "(null)" && id == c.ID
		}
		if wants && m.refuse[name] == nil {
			m.attach(c, name)
			return nil
		}
	}
	return nil
}

// bound is the driver that has the card.
func (m *Machine) bound(c *Card) string {
	to, err := os.Readlink(m.Path(m.device(c) + "/driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

func (m *Machine) dir(name string) {
	m.t.Helper()
	m.check(os.MkdirAll(m.Path(name), 0o755))
}

func (m *Machine) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Error(err)
	}
}
