package pci

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// InUse says who uses the device, one reason a line: "eth0 has address 10.0.0.5", "default route through eth0", "eth0 is
// enslaved to bond0", "VLAN eth0.5 on eth0", "process 812 (pktgen) has /dev/vfio/17 open". Nothing means that nobody is seen to;
// what cannot be found out is a reason too. Who is not root sees no other user's processes.
func (h *Host) InUse(d *Device) []string { return h.inUse(d, h.readNetwork()) }

// InUseAll is InUse for many devices, which reads the machine's tables once.
func (h *Host) InUseAll(devices []Device) [][]string {
	n := h.readNetwork()
	out := make([][]string, len(devices))
	for i := range devices {
		out[i] = h.inUse(&devices[i], n)
	}
	return out
}

func (h *Host) inUse(d *Device, n *network) []string {
	var reasons []string
	for _, i := range d.Interfaces {
		reasons = append(reasons, n.uses(i.Name)...)
		reasons = append(reasons, h.stacked(d, i.Name)...)
		reasons = append(reasons, h.captured(d, i.Name, n)...)
	}
	if len(d.Interfaces) > 0 {
		reasons = append(reasons, n.unknown...)
	}
	if d.IsNetwork() && len(d.Interfaces) == 0 && d.Driver != "" && !handsOut(d.Driver) {
		reasons = append(reasons, fmt.Sprintf("driver %s has it but shows no interface here: it may be in another network namespace", d.Driver))
	}
	if vfs, err := readText(h.devicePath(d.Address), "sriov_numvfs"); err == nil && vfs != "" && vfs != "0" {
		reasons = append(reasons, fmt.Sprintf("it has virtual functions: %s", vfs))
	}
	return append(reasons, h.holders(d, n.open)...)
}

// uses are the addresses, routes and connections of an interface, the weighty ones first.
func (n *network) uses(name string) (reasons []string) {
	routes := slices.SortedFunc(slices.Values(n.routes[name]), comparePrefixes)
	addresses := slices.SortedFunc(slices.Values(n.addresses[name]), compareAddresses)
	for _, p := range routes {
		switch {
		case p.Bits() > 0:
		case p.Addr().Is4():
			reasons = append(reasons, "default route through "+name)
		default:
			reasons = append(reasons, "IPv6 default route through "+name)
		}
	}
	for _, a := range addresses {
		reasons = append(reasons, fmt.Sprintf("%s has address %s", name, a))
	}
	for _, p := range routes {
		if p.Bits() > 0 {
			reasons = append(reasons, fmt.Sprintf("route to %s through %s", p, name))
		}
	}
	for _, a := range addresses {
		if peers := n.peers[a]; len(peers) > 0 {
			reasons = append(reasons, fmt.Sprintf("open TCP connections over %s: %d, one with %s", name, len(peers), peers[0]))
		}
	}
	return reasons
}

// compareAddresses puts IPv4 first, and last what the kernel gives to every interface by itself.
func compareAddresses(a, b netip.Addr) int {
	rank := func(a netip.Addr) int {
		switch {
		case a.IsLinkLocalUnicast():
			return 2
		case a.Is6():
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Compare(b))
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// stacked are the interfaces that stand on one: what it is a part of, VLANs, and others.
func (h *Host) stacked(d *Device, name string) (reasons []string) {
	dir := h.interfaceDir(d, name)
	master, _ := readLink(dir, "master")
	if master != "" {
		reasons = append(reasons, fmt.Sprintf("%s is enslaved to %s", name, master))
	}
	below, err := readNames(dir)
	if err != nil && !gone(err) {
		return append(reasons, fmt.Sprintf("it cannot be told what stands on %s (%v)", name, err))
	}
	for _, entry := range below {
		upper, ok := strings.CutPrefix(entry, "upper_")
		if !ok || upper == master {
			continue
		}
		kind := "interface"
		if _, err := os.Lstat(h.path("/proc/net/vlan", upper)); err == nil || strings.HasPrefix(upper, name+".") {
			kind = "VLAN"
		}
		reasons = append(reasons, fmt.Sprintf("%s %s on %s", kind, upper, name))
	}
	return reasons
}

// captured tells of packet sockets: a capture, a DHCP client, a bridge in a user's process.
func (h *Host) captured(d *Device, name string, n *network) []string {
	text, err := readText(h.interfaceDir(d, name), "ifindex")
	index, err2 := strconv.Atoi(text)
	if err != nil || err2 != nil || n.captures[index] == 0 {
		return nil
	}
	return []string{fmt.Sprintf("packet sockets on %s (a DHCP client or a capture): %d", name, n.captures[index])}
}

// interfaceDir is where sysfs has an interface of the device.
func (h *Host) interfaceDir(d *Device, name string) string {
	dir := h.devicePath(d.Address)
	found, err := filepath.Glob(filepath.Join(escape(dir), "virtio*", "net", escape(name)))
	if err == nil && len(found) == 1 {
		return found[0]
	}
	return filepath.Join(dir, "net", name)
}

// escape makes a name a pattern that matches itself only.
func escape(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// handsOut reports whether a driver does nothing with a device but give it to a process.
func handsOut(driver string) bool {
	return strings.HasPrefix(driver, "vfio-") || strings.HasPrefix(driver, "uio") || driver == "igb_uio" || driver == "pci-stub"
}

// maxHolders is how many processes InUse names.
const maxHolders = 8

// openFile is a file that gives access to a device, open in a process.
type openFile struct{ pid, name string }

// openFiles lists them for all devices and all processes that can be looked into, but not this one.
func (h *Host) openFiles() (list []openFile) {
	links, err := filepath.Glob(filepath.Join(escape(h.path("/proc")), "[0-9]*", "fd", "[0-9]*"))
	if err != nil {
		return nil // only a malformed pattern, and this is none
	}
	self := strconv.Itoa(os.Getpid())
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil {
			continue // closed meanwhile, or another user's
		}
		pid := filepath.Base(filepath.Dir(filepath.Dir(link)))
		f := openFile{pid, to}
		if h.live() && pid == self || !accessFile(to) || slices.Contains(list, f) {
			continue
		}
		list = append(list, f)
	}
	return list
}

// accessFile reports whether a file gives access to a device, by its name. Below /sys and /dev nobody but root makes names.
func accessFile(name string) bool {
	return strings.HasPrefix(name, "/dev/vfio/") || strings.HasPrefix(name, "/sys/") && strings.Contains(name, "/resource")
}

// holders are the processes that have the device open: through its VFIO group, its VFIO device, or its BARs in sysfs.
func (h *Host) holders(d *Device, open []openFile) (reasons []string) {
	nodes := h.nodes(d)
	resource := "/" + d.Address.String() + "/resource"
	for _, f := range open {
		if !slices.Contains(nodes, f.name) && !strings.Contains(f.name, resource) {
			continue
		}
		if len(reasons) == maxHolders {
			return append(reasons, "and more processes")
		}
		reasons = append(reasons, fmt.Sprintf("process %s (%s) has %s open", f.pid, h.command(f.pid), printable(f.name)))
	}
	return reasons
}

// nodes are the device nodes by which VFIO gives the device away.
func (h *Host) nodes(d *Device) (nodes []string) {
	if d.Group >= 0 && handsOut(d.Driver) {
		nodes = append(nodes, d.GroupNode())
	}
	cdevs, err := readNames(h.devicePath(d.Address), "vfio-dev")
	if err != nil {
		return nodes // it vanished: nobody has it open
	}
	for _, c := range cdevs {
		nodes = append(nodes, "/dev/vfio/devices/"+c)
	}
	return nodes
}

// GroupNode is the device node of the function's VFIO group, "" when it is in no group.
func (d *Device) GroupNode() string {
	switch {
	case d.Group < 0:
		return ""
	case d.NoIOMMU:
		return fmt.Sprintf("/dev/vfio/noiommu-%d", d.Group)
	}
	return fmt.Sprintf("/dev/vfio/%d", d.Group)
}

// command is what a process is called, as far as it is fit to print.
func (h *Host) command(pid string) string {
	b, err := readFile(h.path("/proc", pid, "comm"), maxAttribute)
	if err != nil {
		return "?"
	}
	return printable(string(b))
}

// printable is what of a text that anybody may have chosen is fit for a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
}

// Viable returns nil when the device's IOMMU group can be given to a process as a whole once the device itself is bound to
// VFIO, and otherwise an error that wraps [ErrNotViable] and names who stands in the way. Without a group there is no question.
func (h *Host) Viable(d *Device) error {
	if d.Group < 0 || d.NoIOMMU {
		return nil
	}
	members, err := h.GroupDevices(d.Group)
	if err != nil {
		return fmt.Errorf("PCI device %s: %w", d.Address, err)
	}
	var others []string
	for _, a := range members {
		if a == d.Address {
			continue
		}
		driver, err := readLink(h.devicePath(a), "driver")
		if err != nil && !gone(err) {
			return fmt.Errorf("PCI device %s: %w", d.Address, err)
		}
		// These do no DMA on anybody's behalf (the kernel calls them driver_managed_dma); a uio driver is none of them.
		if driver != "" && driver != "pcieport" && driver != "pci-stub" && !strings.HasPrefix(driver, "vfio-") {
			others = append(others, fmt.Sprintf("%s is with driver %s", a, driver))
		}
	}
	if len(others) == 0 {
		return nil
	}
	return &RefusedError{Address: d.Address, Kind: ErrNotViable, Reasons: others,
		Remedy: fmt.Sprintf("IOMMU group %d is given away as a whole: bind these too, or unbind them", d.Group)}
}
