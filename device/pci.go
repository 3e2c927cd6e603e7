package device

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"bare.wire/clock"
	"bare.wire/ixgbe"
	"bare.wire/ixgbe/reg"
	"bare.wire/pci"
	"bare.wire/vtop"
)

// pciExample stands for PCI addresses in lists of what can be opened.
const pciExample = "0000:03:00.0"

func pciUsage() string {
	return fmt.Sprintf("%-17s vfio, or, without an IOMMU's protection and with a guardian process: noiommu, sysfs\n", "access")
}

// HostError says that a card was named rightly and could not be had all the same: it is bound to another driver, in use, or
// the system does not allow it. A name that means nothing is no HostError.
type HostError struct{ Err error }

func (e *HostError) Error() string { return e.Err.Error() }
func (e *HostError) Unwrap() error { return e.Err }

// functionOpener is what a *pci.Opener does.
type functionOpener interface {
	Open(context.Context, pci.Address) (pci.Function, error)
	Close() error
}

// machine is where PCI functions are.
type machine struct {
	host  *pci.Host
	space func(physical bool) (*vtop.Space, error)
	open  func(*vtop.Space, pci.OpenOptions) functionOpener
}

// thisMachine is the one that this process runs on.
func thisMachine() *machine {
	host := &pci.Host{}
	return &machine{
		host: host,
		space: func(physical bool) (*vtop.Space, error) {
			if physical {
				return vtop.NewPhysical()
			}
			return vtop.NewMapped(), nil
		},
		open: func(s *vtop.Space, opt pci.OpenOptions) functionOpener { return host.NewOpener(s, opt) },
	}
}

// where is the machine that the options name.
func (o *Options) where() *machine {
	if o.machine == nil {
		return thisMachine()
	}
	return o.machine
}

// pciName takes a URI apart that is a PCI address with parameters: the address in full, and the parameters.
func pciName(uri string) (address, query string, ok bool) {
	text, query, _ := strings.Cut(uri, "?")
	a, err := pci.ParseAddress(text)
	return a.String(), query, err == nil
}

// openPCI opens cards by their addresses. They share one address space, so that a buffer can go from one to the other, which
// has to be a physical one where no IOMMU translates; it is chosen before anything is opened.
func openPCI(ctx context.Context, opt Options, s *Set, names []name) error {
	access, err := parseAccess(names)
	if err != nil {
		return err
	}
	m := opt.where()
	devices, err := m.find(names)
	if err != nil {
		return err
	}
	if s.Space, err = m.space(access != pci.VFIO); err != nil {
		return &HostError{fmt.Errorf("access=%v: %w", access, err)}
	}
	opener := m.open(s.Space, pci.OpenOptions{Logger: opt.Logger, Access: access})
	s.closers = append(s.closers, opener.Close)
	s.Clock = clock.Real()
	s.About = "PCI by " + access.String()
	for _, d := range devices {
		fn, err := opener.Open(ctx, d.Address)
		if err != nil {
			return &HostError{err}
		}
		port, err := ixgbe.Open(ctx, fn, ixgbe.Options{Space: s.Space, Clock: s.Clock, Logger: opt.Logger, Node: d.NUMANode})
		if err != nil {
			return &HostError{err} // opener closes fn
		}
		s.Ports, s.URIs = append(s.Ports, port), append(s.URIs, d.Address.String())
	}
	return nil
}

// parseAccess reads the parameters, which have to say the same for all: there is one address space.
func parseAccess(names []name) (access pci.Access, err error) {
	for i, n := range names {
		got := pci.VFIO
		for key, values := range n.query {
			if key != "access" {
				return 0, fmt.Errorf("%s: parameter %q: a card takes access=vfio, access=sysfs or access=noiommu", n.uri, key)
			}
			known := []pci.Access{pci.VFIO, pci.VFIONoIOMMU, pci.Sysfs}
			at := slices.IndexFunc(known, func(a pci.Access) bool { return a.String() == values[0] })
			if at < 0 {
				return 0, fmt.Errorf("%s: access=%s: want vfio, sysfs or noiommu", n.uri, values[0])
			}
			got = known[at]
		}
		if i > 0 && got != access {
			return 0, fmt.Errorf("%s with access=%v and %s with access=%v: cards that are opened together are reached in one way: say the same for each", names[0].uri, access, n.uri, got)
		}
		access = got
	}
	return access, nil
}

// find looks the cards up, before anything is done to one of them.
func (m *machine) find(names []name) ([]*pci.Device, error) {
	var addresses []pci.Address
	for _, n := range names {
		a, err := pci.ParseAddress(n.rest)
		if err != nil {
			return nil, err
		}
		if slices.Contains(addresses, a) {
			return nil, fmt.Errorf("%s: named twice: a card can be opened once", a)
		}
		addresses = append(addresses, a)
	}
	var devices []*pci.Device
	for _, a := range addresses {
		d, err := m.host.Device(a)
		if err != nil {
			return nil, err
		}
		if known, ok := reg.LookupDevice(d.Device); d.Vendor != reg.PCI_VENDOR_INTEL || !ok || !known.Supported() {
			return nil, fmt.Errorf("%s: no driver here for %04x:%04x %s: \"pktgen devices\" lists the cards, and says which can be driven", a, d.Vendor, d.Device, d.DeviceName)
		}
		devices = append(devices, d)
	}
	return devices, nil
}
