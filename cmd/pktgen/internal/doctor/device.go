package doctor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"bare.wire/cmd/pktgen/internal/inventory"
	"bare.wire/device"
	"bare.wire/pci"
)

// device looks at one of the named devices.
func (e *exam) device(ctx context.Context, uri string) {
	head, query, _ := strings.Cut(uri, "?")
	kind, path, _ := strings.Cut(head, ":")
	address, err := pci.ParseAddress(head)
	switch {
	case err == nil:
		e.card(uri, address, query)
	case kind == "sim" || kind == "null":
		e.software(ctx, uri)
	case kind == "vhost-user" && !e.there(path):
		e.lacks(true, uri, "start its other end first, or look at the name", "there is no socket %s", clean(path))
	case kind == "tap", kind == "vhost-user":
		e.ok(uri, "see above for what it needs")
	case looksLikeAddress(head):
		e.lacks(true, uri, "pktgen devices lists those there are", "%s", clean(err.Error()))
	default:
		if a := e.owner(head); a != "" {
			e.lacks(true, uri, "pktgen doctor "+a, "it is an interface; its card is opened by its address, %s", a)
			return
		}
		e.lacks(true, uri, "pktgen devices lists those there are", "no device is called that")
	}
}

// looksLikeAddress reports whether somebody may have meant a PCI address: hexadecimal digits before the first colon.
func looksLikeAddress(s string) bool {
	domain, _, colon := strings.Cut(s, ":")
	return colon && domain != "" && strings.Trim(domain, "0123456789abcdefABCDEF") == ""
}

// owner is the address of the card that has an interface, "" when there is none.
func (e *exam) owner(name string) string {
	list, _ := e.Host.List() // what cannot be read has no interface to be found by
	for i := range list {
		for _, n := range list[i].Interfaces {
			if n.Name == name {
				return list[i].Address.String()
			}
		}
	}
	return ""
}

// software tries a software device: only its parameters can be wrong.
func (e *exam) software(ctx context.Context, uri string) {
	if e.Software != nil {
		if err := e.Software(ctx, uri); err != nil {
			e.lacks(true, uri, "pktgen run --help lists the parameters", "%s", clean(err.Error()))
			return
		}
	}
	e.ok(uri, "in software: needs nothing")
}

// foreign is a parameter that the card does not take, "" when there is none, and what it takes.
func foreign(d *pci.Device, query string) (word, fix string) {
	fix = "write access=vfio, access=sysfs or access=noiommu, or nothing"
	for _, word := range strings.Split(query, "&") {
		list, features := strings.CutPrefix(word, "features=")
		switch {
		case word == "" || strings.HasPrefix(word, "access="):
		case !features || device.DriverFor(d.Vendor, d.Device) != "virtio":
			return word, fix
		default:
			if err := device.CheckFeatures(list); err != nil {
				return word, err.Error()
			}
		}
	}
	return "", ""
}

// card looks at a PCI card that is to be driven.
func (e *exam) card(uri string, a pci.Address, query string) {
	fail := func(fix, format string, args ...any) { e.lacks(true, uri, fix, format, args...) }
	d, err := e.Host.Device(a)
	if err != nil {
		fail("pktgen devices --all", "%s", clean(err.Error()))
		return
	}
	if !inventory.Supported(d) {
		fail("pktgen devices lists the others", "%04x:%04x: there is no driver for it here", d.Vendor, d.Device)
		return
	}
	if word, fix := foreign(d, query); word != "" {
		fail(clean(fix), "%s: the card has no such parameter", clean(word))
		return
	}
	if use := e.Host.InUse(d); len(use) > 0 {
		fail("pktgen devices show "+a.String(), "in use: %s", clean(strings.Join(use, "; ")))
		return
	}
	switch access := access(query); access {
	case "sysfs":
		e.bySysfs(uri, d)
	case "", "vfio", "noiommu":
		e.byVFIO(uri, d, access)
	default:
		fail("write access=vfio, access=sysfs or access=noiommu", "access=%s: there is no such way to a card", clean(access))
		return
	}
	e.near(uri, d)
	e.linkOf(uri, d)
}

func (e *exam) bySysfs(uri string, d *pci.Device) {
	switch {
	case d.Driver != "":
		e.lacks(true, uri, "sudo pktgen devices unbind "+d.Address.String(), "driver %s has it", clean(d.Driver))
	case d.Group >= 0 && e.domain(d.Group) != "identity":
		e.lacks(true, uri, "sudo pktgen devices bind "+d.Address.String()+"; and leave access=sysfs away", "there is an IOMMU, which physical addresses do not pass (group %d is of type %q)", d.Group, e.domain(d.Group))
	case !e.Root:
		e.lacks(true, uri, "sudo pktgen ...", "only root may drive a card through sysfs")
	default:
		e.ok(uri, "free; no IOMMU will guard the machine from it")
	}
}

// domain is how the IOMMU translates for a group that no process has.
func (e *exam) domain(group int) string {
	return e.read(fmt.Sprintf("/sys/kernel/iommu_groups/%d/type", group))
}

func (e *exam) byVFIO(uri string, d *pci.Device, access string) {
	address := d.Address.String()
	bind := "sudo pktgen devices bind " + address
	if access == "noiommu" && d.Group >= 0 && !d.NoIOMMU {
		e.lacks(true, uri, "leave access=noiommu away: "+address, "there is an IOMMU, and doing without it is refused")
		return
	}
	var refused *pci.RefusedError
	if err := e.Host.Viable(d); errors.As(err, &refused) {
		e.lacks(true, uri, refused.Remedy, "%s: %s", refused.Kind, clean(strings.Join(refused.Reasons, "; ")))
		return
	}
	if d.Driver != pci.VFIODriver {
		if access == "noiommu" {
			bind += " --allow-noiommu"
		}
		has := "no driver"
		if d.Driver != "" {
			has = "driver " + d.Driver
		}
		e.lacks(true, uri, bind, "%s has it, not vfio-pci", clean(has))
		return
	}
	if d.NoIOMMU && access != "noiommu" {
		e.lacks(true, uri, "pktgen run "+address+"?access=noiommu   (nothing keeps the card from writing anywhere in memory)", "it is bound to VFIO without an IOMMU")
		return
	}
	l, err := inventory.One(e.Host, d.Address)
	switch {
	case err != nil:
		e.lacks(true, uri, "look again", "%s", clean(err.Error()))
	case l.Devices[0].Node == nil:
		e.lacks(true, uri, bind, "its device node %s is not there", d.GroupNode())
	case !l.Devices[0].Node.Opens:
		e.lacks(true, uri, bind+" --user $USER", "its device node %s does not open for you", d.GroupNode())
	case access == "noiommu" && !e.Root:
		e.lacks(true, uri, "sudo pktgen ...", "only root may drive a card that no IOMMU guards")
	case device.PhysicalByID(d.Vendor, d.Device) && !e.Root:
		e.lacks(true, uri, "sudo pktgen ...; or a device without the legacy interface (QEMU: disable-legacy=on,iommu_platform=on)",
			"a transitional virtio device reaches memory past the IOMMU, by physical addresses, which only root is told")
	default:
		e.ok(uri, "bound to vfio-pci, %s opens", d.GroupNode())
	}
}

// near compares the card's NUMA node with the processors that this process may use.
func (e *exam) near(uri string, d *pci.Device) {
	if d.NUMANode < 0 {
		return
	}
	local := e.read(filepath.Join("/sys/devices/system/node", fmt.Sprintf("node%d", d.NUMANode), "cpulist"))
	allowed := ""
	for line := range strings.Lines(e.read("/proc/self/status")) {
		if v, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			allowed = strings.TrimSpace(v)
		}
	}
	if local == "" || allowed == "" || e.names("/sys/devices/system/node/node1") == nil && d.NUMANode == 0 {
		return // one node only, or not known
	}
	switch far, all := far(allowed, local); {
	case all:
		e.warn(uri, "taskset -c "+local+" pktgen ...", "it is on NUMA node %d, and none of the processors that may be used (%s) is", d.NUMANode, allowed)
	case far:
		e.warn(uri, "taskset -c "+local+" pktgen ...", "it is on NUMA node %d, and not all processors that may be used (%s) are", d.NUMANode, allowed)
	}
}

// far reports whether some, and whether all, of the processors of one list are missing in the other.
func far(list, in string) (some, all bool) {
	there := processors(in)
	all = true
	for cpu := range processors(list) {
		if there[cpu] {
			all = false
		} else {
			some = true
		}
	}
	return some, some && all
}

// maxProcessors is more than any machine has.
const maxProcessors = 1 << 14

// processors reads a list such as "0-3,8"; what makes no sense is left out.
func processors(list string) map[int]bool {
	out := map[int]bool{}
	for _, part := range strings.Split(list, ",") {
		first, last, ranged := strings.Cut(strings.TrimSpace(part), "-")
		if !ranged {
			last = first
		}
		a, err := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || a < 0 || b >= maxProcessors {
			continue
		}
		for cpu := a; cpu <= b; cpu++ {
			out[cpu] = true
		}
	}
	return out
}

// linkOf compares what the card's slot gives with what the card could use: an 82599 with two ports wants 8 lanes of 5 GT/s.
func (e *exam) linkOf(uri string, d *pci.Device) {
	l, err := inventory.One(e.Host, d.Address)
	if err != nil || l.Devices[0].Detail == nil || l.Devices[0].Detail.Link == nil {
		return // not shown to the unprivileged
	}
	x := l.Devices[0].Detail.Link
	if x.Lanes > 0 && (x.Lanes < x.MaxLanes || x.Speed < x.MaxSpeed) {
		e.warn(uri, "put it into another slot", "its slot gives %d lanes at %d MT/s, and it could use %d at %d", x.Lanes, x.Speed, x.MaxLanes, x.MaxSpeed)
	}
}
