// Package inventory says which network cards a machine has, who uses each, and what it takes to drive it from here.
//
//	pci.Host -> Make -> List -> WriteText (a table), WriteJSON (schema pktgen.devices/1)
//
// Everything comes from sysfs and procfs (package pci); nothing is opened, nothing is changed, no privilege is needed.
package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"bare.wire/device"
	"bare.wire/pci"
)

// Schema names the form of the JSON.
const Schema = "pktgen.devices/1"

// State says in a word what can be done with a card.
type State string

// States.
const (
	Ready       State = "ready"       // bound to VFIO and free: it can be opened
	Bindable    State = "bindable"    // free, and can be bound to VFIO
	InUse       State = "in-use"      // somebody uses it
	Shared      State = "shared"      // its IOMMU group has members that others drive
	Unsupported State = "unsupported" // there is no driver for it here
)

// List is the machine's cards.
type List struct {
	Schema  string   `json:"schema"`
	Devices []Device `json:"devices"`
	// Problems are devices that could not be read.
	Problems []string `json:"problems"`
	// Software are the kinds of device that need no card.
	Software []string `json:"software"`
}

// Device is one card as people want to see it.
type Device struct {
	URI        string      `json:"uri"` // what pktgen run takes
	Vendor     string      `json:"vendor"`
	Device     string      `json:"device"`
	SubVendor  string      `json:"sub_vendor"`
	SubDevice  string      `json:"sub_device"`
	Class      string      `json:"class"`
	Revision   int         `json:"revision"`
	VendorName string      `json:"vendor_name"`
	DeviceName string      `json:"device_name"`
	Driver     string      `json:"driver"`    // the kernel's that has it
	DrivenBy   string      `json:"driven_by"` // the driver here; "" for none
	Override   string      `json:"override"`
	NUMANode   int         `json:"numa_node"`
	Group      int         `json:"iommu_group"`
	NoIOMMU    bool        `json:"no_iommu"`
	Interfaces []Interface `json:"interfaces"`
	InUse      []string    `json:"in_use"`
	State      State       `json:"state"`
	// Next is what to do to drive it: a command, or words.
	Next   string  `json:"next"`
	Node   *Node   `json:"node,omitempty"`
	Detail *Detail `json:"detail,omitempty"`
}

// Interface is a network interface of the kernel's on the card.
type Interface struct {
	Name      string `json:"name"`
	MAC       string `json:"mac"`
	Up        bool   `json:"up"`
	Link      bool   `json:"link"`
	SpeedMbps int    `json:"speed_mbps"` // 0: unknown
	MTU       int    `json:"mtu"`
}

// Node is the device node of the card's VFIO group.
type Node struct {
	Path  string `json:"path"`
	UID   int    `json:"uid"`
	GID   int    `json:"gid"`
	Mode  string `json:"mode"`
	Opens bool   `json:"opens"` // for whoever runs this
}

// Supported reports whether there is a driver for the card here.
func Supported(d *pci.Device) bool { return device.DriverFor(d.Vendor, d.Device) != "" }

// Make looks at the machine. With all it lists what is no network card too. Devices that cannot be read are named in Problems.
func Make(h *pci.Host, all bool) *List {
	l := &List{Schema: Schema, Devices: []Device{}, Problems: []string{}, Software: []string{}}
	found, err := h.List()
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			l.Problems = append(l.Problems, clean(strings.TrimSpace(line)))
		}
	}
	devices := found[:0]
	for _, d := range found {
		if all || d.IsNetwork() {
			devices = append(devices, d)
		}
	}
	use := h.InUseAll(devices)
	for i := range devices {
		l.Devices = append(l.Devices, describe(h, &devices[i], use[i]))
	}
	return l
}

// One looks at one device, with all that is known about it.
func One(h *pci.Host, a pci.Address) (*List, error) {
	d, err := h.Device(a)
	if err != nil {
		return nil, err
	}
	out := describe(h, d, h.InUse(d))
	if out.Detail, err = detail(h, d); err != nil {
		return nil, err
	}
	return &List{Schema: Schema, Devices: []Device{out}, Problems: []string{}, Software: []string{}}, nil
}

func describe(h *pci.Host, d *pci.Device, use []string) Device {
	out := Device{
		URI: d.Address.String(), Vendor: hex4(d.Vendor), Device: hex4(d.Device), SubVendor: hex4(d.SubVendor), SubDevice: hex4(d.SubDevice),
		Class: fmt.Sprintf("%06x", d.Class), Revision: int(d.Revision), VendorName: d.VendorName, DeviceName: d.DeviceName,
		Driver: clean(d.Driver), DrivenBy: device.DriverFor(d.Vendor, d.Device), Override: clean(d.Override), NUMANode: d.NUMANode, Group: d.Group, NoIOMMU: d.NoIOMMU,
		Interfaces: []Interface{}, InUse: []string{},
	}
	for _, i := range d.Interfaces {
		out.Interfaces = append(out.Interfaces, Interface{Name: clean(i.Name), MAC: clean(i.MAC), Up: i.Up, Link: i.Link, SpeedMbps: i.Speed, MTU: i.MTU})
	}
	for _, u := range use {
		out.InUse = append(out.InUse, clean(u))
	}
	out.Node = node(h, d)
	out.State, out.Next = judge(h, d, out.Node, use)
	return out
}

// judge says what can be done with a card, and how.
func judge(h *pci.Host, d *pci.Device, n *Node, use []string) (State, string) {
	switch {
	case !Supported(d):
		return Unsupported, "no driver for it here"
	case len(use) > 0:
		return InUse, "pktgen devices show " + d.Address.String()
	}
	if err := h.Viable(d); errors.Is(err, pci.ErrNotViable) {
		return Shared, "pktgen devices show " + d.Address.String()
	}
	bind := "sudo pktgen devices bind " + d.Address.String()
	switch {
	case d.Driver != pci.VFIODriver && d.Group < 0:
		return Bindable, "no IOMMU guards it: pktgen doctor " + d.Address.String()
	case d.Driver != pci.VFIODriver:
		return Bindable, bind
	case n == nil:
		return Ready, "its device node " + d.GroupNode() + " is not there: is /dev the kernel's own?"
	case !n.Opens:
		return Ready, "sudo, or once " + bind + " --user $USER"
	}
	uri := d.Address.String()
	if d.NoIOMMU {
		uri += "?access=noiommu"
	}
	return Ready, "pktgen run " + uri
}

// node looks at the device node through which the card would be opened; nil when there is none.
func node(h *pci.Host, d *pci.Device) *Node {
	if !strings.HasPrefix(d.Driver, "vfio-") || d.GroupNode() == "" {
		return nil
	}
	name := h.Path(d.GroupNode())
	info, err := os.Stat(name)
	if err != nil {
		return nil
	}
	n := &Node{Path: d.GroupNode(), Mode: fmt.Sprintf("%04o", info.Mode().Perm()), Opens: unix.Access(name, unix.R_OK|unix.W_OK) == nil}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		n.UID, n.GID = int(s.Uid), int(s.Gid)
	}
	return n
}

// WriteJSON writes the list as one indented object.
func (l *List) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(l); err != nil {
		return fmt.Errorf("write the devices: %w", err)
	}
	return nil
}

func hex4(v uint16) string { return fmt.Sprintf("%04x", v) }

// clean makes text that comes from the machine fit to be printed on a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\ufffd' {
			return '?'
		}
		return r
	}, s)
}
