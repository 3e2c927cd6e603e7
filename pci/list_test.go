package pci_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"bare.wire/pci"
	"bare.wire/pci/pcitest"
)

// resource82599 is what sysfs says of an 82599's BARs: registers, ports, the MSI-X table, and a ROM that is not there.
const resource82599 = `0x00000000d0000000 0x00000000d007ffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x000000000000e000 0x000000000000e01f 0x0000000000040101
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x00000000d0080000 0x00000000d0083fff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000000000 0x0000000000000000 0x0000000000000000
`

const (
	port0 = "0000:03:00.0"
	port1 = "0000:03:00.1"
)

// card is port 0 of an 82599 with Linux's driver.
func card() pcitest.Card {
	return pcitest.Card{Address: port0, ID: "8086:10fb", Class: 0x020000, Driver: "ixgbe", Group: 17, NUMA: "1\n", Interface: "ens1", Resource: resource82599}
}

// machine has both ports of an 82599 with Linux's driver, each in a group of its own.
func machine(t *testing.T) *pcitest.Machine {
	m := pcitest.New(t)
	m.Driver("ixgbe", "8086:10fb")
	m.Add(card())
	second := card()
	second.Address, second.Group, second.Interface = port1, 18, "ens2"
	m.Add(second)
	return m
}

func addr(t *testing.T, s string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func device(t *testing.T, m *pcitest.Machine, address string) *pci.Device {
	t.Helper()
	d, err := m.Host().Device(addr(t, address))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestEveryPropertyOfADeviceIsRead(t *testing.T) {
	m := machine(t)
	got := device(t, m, port0)
	want := &pci.Device{
		Address: addr(t, port0), Vendor: 0x8086, Device: 0x10fb, SubVendor: 0x8086, SubDevice: 3, Class: 0x020000, Revision: 1,
		VendorName: "Intel Corporation", DeviceName: "82599ES 10-Gigabit SFI/SFP+ Network Connection",
		Driver: "ixgbe", NUMANode: 1, Group: 17,
		Interfaces: []pci.Interface{{Name: "ens1", MAC: "02:00:00:00:00:01", Up: true, Link: true, Speed: 10000, MTU: 1500}},
		Resources: []pci.Resource{
			{Start: 0xd0000000, End: 0xd007ffff, Flags: 0x14220c}, {}, {Start: 0xe000, End: 0xe01f, Flags: 0x40101}, {},
			{Start: 0xd0080000, End: 0xd0083fff, Flags: 0x14220c}, {}, {},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if size := got.Resources[0].Size(); size != 512<<10 {
		t.Errorf("BAR 0 has %d bytes, want 512 KiB", size)
	}
	if size := got.Resources[1].Size(); size != 0 {
		t.Errorf("BAR 1 is not there and has %d bytes", size)
	}
}

func TestAnInterfaceBehindVirtioIsFound(t *testing.T) {
	m := pcitest.New(t)
	m.Driver("virtio-pci", "1af4:1041")
	m.Add(pcitest.Card{Address: "0000:00:04.0", ID: "1af4:1041", Class: 0x020000, Driver: "virtio-pci", Group: pcitest.NoGroup, Interface: "eth0", Virtio: true})
	d := device(t, m, "0000:00:04.0")
	if len(d.Interfaces) != 1 || d.Interfaces[0].Name != "eth0" || d.Group != -1 || d.NUMANode != -1 {
		t.Errorf("%+v", d)
	}
	m.Link(m.InterfaceDir("0000:00:04.0")+"/master", "../../br0")
	if use := m.Host().InUse(d); len(use) != 1 || use[0] != "eth0 is enslaved to br0" {
		t.Errorf("in use: %q", use)
	}
}

// A directory that is there but whose files are not is what a device looks like that is being removed.
func TestDevicesThatVanishAreLeftOut(t *testing.T) {
	m := machine(t)
	m.Remove("sys/bus/pci/devices/" + port1 + "/device")
	list, err := m.Host().List()
	if err != nil || len(list) != 1 || list[0].Address.String() != port0 {
		t.Errorf("%+v, %v; want %s alone", list, err, port0)
	}
	if _, err := m.Host().Device(addr(t, "0000:09:00.0")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a device that never was: %v", err)
	}
}

func TestDevicesThatSayNonsenseAreNamedAndTheOthersListed(t *testing.T) {
	for file, text := range map[string]string{
		"vendor": "0x8086ff\n", "device": "", "class": "network\n", "revision": "-1\n",
		"resource": "0x1 0x2\n", "subsystem_device": strings.Repeat("0", 70<<10),
	} {
		m := machine(t)
		name := "sys/bus/pci/devices/" + port1 + "/" + file
		m.Put(name, text)
		list, err := m.Host().List()
		if len(list) != 1 || err == nil || !strings.Contains(err.Error(), port1) {
			t.Errorf("%s: %d devices, %v", file, len(list), err)
		} else if len(err.Error()) > 400 {
			t.Errorf("%s: the error is %d bytes long", file, len(err.Error()))
		}
	}
}

func TestAFileThatNeverEndsIsNotRead(t *testing.T) {
	m := machine(t)
	m.Remove("sys/bus/pci/devices/" + port1 + "/vendor")
	m.Link("sys/bus/pci/devices/"+port1+"/vendor", "/dev/zero")
	m.Remove("sys/bus/pci/devices/" + port0 + "/vendor")
	if err := syscall.Mkfifo(m.Path("sys/bus/pci/devices/"+port0+"/vendor"), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := m.Host().List(); len(list) != 0 || err == nil {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestAStrangeNameAmongDevicesIsTold(t *testing.T) {
	m := machine(t)
	m.Put("sys/bus/pci/devices/nonsense/vendor", "0x8086\n")
	if list, err := m.Host().List(); len(list) != 2 || err == nil {
		t.Errorf("%d devices, %v", len(list), err)
	}
}

func TestAMachineWithoutPCIHasNoDevices(t *testing.T) {
	h := &pci.Host{Root: t.TempDir()}
	if list, err := h.List(); len(list) != 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
}

func TestThisMachineCanBeListedByAnybody(t *testing.T) {
	h := new(pci.Host)
	list, err := h.List()
	if err != nil {
		t.Errorf("list: %v", err)
	}
	h.InUseAll(list)
}

func TestNamesThatAreInNoList(t *testing.T) {
	if v, d := pci.Names(0x8086, 0xfffe); v != "Intel Corporation" || d != "" {
		t.Errorf("%q %q", v, d)
	}
	if v, d := pci.Names(0x0003, 1); v != "" || d != "" {
		t.Errorf("%q %q", v, d)
	}
}

func TestConfigurationSpaceIsReadAndWritten(t *testing.T) {
	m := pcitest.New(t)
	c := card()
	c.Driver, c.Config = "", make([]byte, 256)
	c.Config[4] = 7
	m.Add(c)
	a := addr(t, port0)
	config, err := m.Host().OpenConfig(a, true)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := config.ReadConfig(4, 2); v != 7 || err != nil {
		t.Errorf("command: %#x, %v", v, err)
	}
	if err := config.WriteConfig(4, 2, 3); err != nil {
		t.Error(err)
	}
	for _, bad := range [][3]int{{3, 2, 0}, {0, 3, 0}, {-4, 4, 0}, {4096, 4, 0}, {4094, 4, 0}, {4, 1, 256}} {
		if err := config.WriteConfig(bad[0], bad[1], uint32(bad[2])); err == nil {
			t.Errorf("%d bytes at %d: written", bad[1], bad[0])
		}
	}
	if v, err := config.ReadConfig(256, 4); err == nil {
		t.Errorf("beyond the end: %#x", v)
	}
	if err := config.Close(); err != nil {
		t.Error(err)
	}
	b, err := m.Host().ReadConfigSpace(a)
	if err != nil || len(b) != 256 || b[4] != 3 {
		t.Errorf("%d bytes, command %d, %v", len(b), b[4], err)
	}
	m.Put("sys/bus/pci/devices/"+port0+"/config", "short")
	if _, err := m.Host().ReadConfigSpace(a); err == nil {
		t.Error("5 bytes are taken for a configuration space")
	}
	if err := os.Remove(m.Path("sys/bus/pci/devices/" + port0 + "/config")); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Host().OpenConfig(a, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("gone: %v", err)
	}
}

func ExampleHost_List() {
	var h pci.Host // this machine
	devices, err := h.List()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range devices {
		if d.IsNetwork() && d.Vendor == 0x8086 && d.Device == 0x10fb {
			fmt.Println(d.Address, d.Driver, h.InUse(&d))
		}
	}

}

func TestARootMayBeRelative(t *testing.T) {
	m := machine(t)
	t.Chdir(m.Root)
	h := &pci.Host{Root: "."}
	if list, err := h.List(); err != nil || len(list) != 2 {
		t.Errorf("%d devices, %v", len(list), err)
	}
}
