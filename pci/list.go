package pci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Device is what the kernel says about one function, at one moment.
type Device struct {
	Address    Address
	Vendor     uint16
	Device     uint16
	SubVendor  uint16
	SubDevice  uint16
	Class      uint32 // base class, sub-class and interface: 0x020000 is Ethernet
	Revision   uint8
	VendorName string // "" where the identifiers are in no list
	DeviceName string

	Driver   string // the kernel driver that has it, "" for none
	Override string // the driver that driver_override forces upon it, "" for none
	NUMANode int    // -1: the machine does not say
	Group    int    // IOMMU group, -1: there is no IOMMU, or it does not watch this device
	// NoIOMMU says that the group is VFIO's invention for machines without an IOMMU and isolates nothing.
	NoIOMMU bool

	Interfaces []Interface
	Resources  []Resource // BAR i is Resources[i], the expansion ROM is Resources[6]; shorter or empty where sysfs says less
}

// Interface is a network interface of the kernel's.
type Interface struct {
	Name  string
	MAC   string
	Up    bool // administratively
	Link  bool // there is a carrier
	Speed int  // Mb/s, 0 when unknown
	MTU   int  // bytes, without the Ethernet header; 0 when unknown
}

// Resource is a range of bus or port addresses.
type Resource struct{ Start, End, Flags uint64 }

// Flags of a Resource (Linux include/linux/ioport.h).
const (
	ResourceIO       = 0x100
	ResourceMemory   = 0x200
	ResourcePrefetch = 0x2000
	Resource64       = 0x100000
)

// Size is the length in bytes, 0 for a resource that is not there.
func (r Resource) Size() uint64 {
	if r.Flags == 0 || r.End < r.Start {
		return 0
	}
	return r.End - r.Start + 1
}

// IsNetwork reports whether the function says that it is a network controller (PCI Code and ID Assignment §1.3).
func (d *Device) IsNetwork() bool { return d.Class>>16 == 0x02 }

// List returns every PCI function, ordered by address. What vanishes while it is being read is left out. The error names
// those that are there and could not be understood; the others are returned with it.
//
// u-root's reader is not used for this: it looks at /sys only, and one function that vanishes fails its whole scan. Its list
// of names is (names.go).
func (h *Host) List() ([]Device, error) {
	names, err := readNames(h.path("/sys/bus/pci/devices"))
	if err != nil {
		return nil, fmt.Errorf("list PCI devices: %w", err)
	}
	var devices []Device
	var errs []error
	for _, name := range names {
		a, err := ParseAddress(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("list PCI devices: %w", err))
			continue
		}
		d, err := h.Device(a)
		switch {
		case gone(err):
		case err != nil:
			errs = append(errs, err)
		default:
			devices = append(devices, *d)
		}
	}
	slices.SortFunc(devices, func(a, b Device) int { return a.Address.Compare(b.Address) })
	return devices, errors.Join(errs...)
}

// Device reads one function. The error is fs.ErrNotExist when there is none at that address.
func (h *Host) Device(a Address) (*Device, error) {
	dir := h.devicePath(a)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("PCI device %s: nothing is there (%w); \"pktgen devices --all\" lists what is", a, fs.ErrNotExist)
	}
	d, err := h.read(a, dir)
	if err != nil {
		return nil, fmt.Errorf("PCI device %s: %w", a, err)
	}
	d.VendorName, d.DeviceName = Names(d.Vendor, d.Device)
	return d, nil
}

func (h *Host) read(a Address, dir string) (*Device, error) {
	d := &Device{Address: a, NUMANode: -1, Group: -1}
	for _, f := range []struct {
		name string
		bits int
		need bool
		set  func(uint64)
	}{
		{"vendor", 16, true, func(v uint64) { d.Vendor = uint16(v) }},
		{"device", 16, true, func(v uint64) { d.Device = uint16(v) }},
		{"class", 24, true, func(v uint64) { d.Class = uint32(v) }},
		{"subsystem_vendor", 16, false, func(v uint64) { d.SubVendor = uint16(v) }},
		{"subsystem_device", 16, false, func(v uint64) { d.SubDevice = uint16(v) }},
		{"revision", 8, false, func(v uint64) { d.Revision = uint8(v) }},
	} {
		text, err := readText(dir, f.name)
		if !f.need && errors.Is(err, fs.ErrNotExist) {
			continue // older kernels
		}
		if err != nil {
			return nil, err
		}
		v, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, f.bits)
		if err != nil {
			return nil, fmt.Errorf("its file %s says %.40q, which is no number of %d bits", f.name, text, f.bits)
		}
		f.set(v)
	}
	var err error
	if d.Driver, err = readLink(dir, "driver"); err != nil {
		return nil, err
	}
	if text, err := readText(dir, "driver_override"); err == nil && text != "(null)" {
		d.Override = text
	}
	if text, err := readText(dir, "numa_node"); err == nil {
		if n, err := strconv.Atoi(text); err == nil && n >= 0 {
			d.NUMANode = n
		}
	}
	if err := h.readGroup(d, dir); err != nil {
		return nil, err
	}
	if d.Resources, err = readResources(dir); err != nil {
		return nil, err
	}
	d.Interfaces, err = readInterfaces(dir)
	return d, err
}

func (h *Host) readGroup(d *Device, dir string) error {
	text, err := readLink(dir, "iommu_group")
	if err != nil || text == "" {
		return err
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return fmt.Errorf("its IOMMU group is called %.40q, which is no number", text)
	}
	d.Group = int(n)
	name, err := readText(h.path("/sys/kernel/iommu_groups", text, "name"))
	d.NoIOMMU = err == nil && name == "vfio-noiommu"
	return nil
}

// readResources reads the BARs and the ROM; what follows them (bridge windows) is left out.
func readResources(dir string) ([]Resource, error) {
	text, err := readText(dir, "resource")
	if errors.Is(err, fs.ErrNotExist) || text == "" && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Resource
	for line := range strings.Lines(text) {
		if len(list) == 7 {
			break
		}
		var r Resource
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("its file resource has the line %.80q, want three numbers", line)
		}
		for i, to := range []*uint64{&r.Start, &r.End, &r.Flags} {
			if *to, err = strconv.ParseUint(strings.TrimPrefix(fields[i], "0x"), 16, 64); err != nil {
				return nil, fmt.Errorf("its file resource has the line %.80q, want three numbers", line)
			}
		}
		list = append(list, r)
	}
	return list, nil
}

// readInterfaces finds the network interfaces of a function: in net/, or, where another bus lies between (virtio), one level
// further down.
func readInterfaces(dir string) ([]Interface, error) {
	dirs := []string{filepath.Join(dir, "net")}
	below, err := readNames(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range below {
		if strings.HasPrefix(name, "virtio") {
			dirs = append(dirs, filepath.Join(dir, name, "net"))
		}
	}
	var list []Interface
	for _, d := range dirs {
		names, err := readNames(d)
		if err != nil && !gone(err) {
			return nil, err
		}
		for _, name := range names {
			list = append(list, readInterface(filepath.Join(d, name), name))
		}
	}
	return list, nil
}

// readInterface reads what it can: an interface that is down refuses some of it, and one may vanish at any time.
func readInterface(dir, name string) Interface {
	text := func(attribute string) string {
		s, _ := readText(dir, attribute) // "" when it cannot be read
		return s
	}
	i := Interface{Name: name, MAC: text("address"), Link: text("carrier") == "1"}
	if flags, err := strconv.ParseUint(strings.TrimPrefix(text("flags"), "0x"), 16, 32); err == nil {
		i.Up = flags&1 != 0 // IFF_UP
	}
	if speed, err := strconv.Atoi(text("speed")); err == nil && speed > 0 {
		i.Speed = speed
	}
	if mtu, err := strconv.Atoi(text("mtu")); err == nil && mtu > 0 {
		i.MTU = mtu
	}
	return i
}

// GroupDevices are the functions that an IOMMU group isolates together; only all of them can be given to a process.
func (h *Host) GroupDevices(group int) ([]Address, error) {
	names, err := readNames(h.path("/sys/kernel/iommu_groups", strconv.Itoa(group), "devices"))
	if err != nil {
		return nil, fmt.Errorf("IOMMU group %d: %w", group, err)
	}
	var list []Address
	for _, name := range names {
		a, err := ParseAddress(name)
		if err != nil {
			continue // not a PCI device (a group may hold platform devices)
		}
		list = append(list, a)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("IOMMU group %d: %w", group, fs.ErrNotExist)
	}
	slices.SortFunc(list, Address.Compare)
	return list, nil
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
