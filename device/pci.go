package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"bare.wire/clock"
	"bare.wire/pci"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// pciExample stands for PCI addresses in lists of what can be opened.
const pciExample = "0000:03:00.0"

func pciUsage() string {
	return fmt.Sprintf("%-17s vfio, or, without an IOMMU's protection and with a guardian process: noiommu, sysfs\n", "access") +
		fmt.Sprintf("%-17s of a virtio card: those that are taken, or with a minus not taken: -event_idx,-mrg_rxbuf\n", "features")
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

// card is one that is to be opened.
type card struct {
	*pci.Device
	driver   *driver
	features spec.Restriction
}

// openPCI opens cards by their addresses. They share one address space, so that a buffer can go from one to the other, which
// has to be a physical one where no IOMMU translates for one of them; it is chosen before anything is opened for good.
func openPCI(ctx context.Context, opt Options, s *Set, names []name) error {
	access, err := parseAccess(names)
	if err != nil {
		return err
	}
	m := opt.where()
	cards, err := m.find(names)
	if err != nil {
		return err
	}
	s.Clock = clock.Real()
	s.About = "PCI by " + access.String()
	space, physical, err := m.chooseSpace(ctx, opt, s.Clock, access, cards)
	if err != nil {
		return &HostError{err}
	}
	s.Space = space
	opener := m.open(s.Space, pci.OpenOptions{Logger: opt.Logger, Access: access})
	s.closers = append(s.closers, opener.Close)
	for _, c := range cards {
		fn, err := opener.Open(ctx, c.Address)
		if err != nil {
			return &HostError{err}
		}
		to := c.options(opt, s.Space, s.Clock)
		to.physical = physical
		port, err := c.driver.open(ctx, fn, to)
		if err != nil {
			return &HostError{err} // opener closes fn
		}
		s.Ports, s.URIs = append(s.Ports, port), append(s.URIs, c.Address.String())
	}
	return nil
}

func (c *card) options(opt Options, space *vtop.Space, clk clock.Clock) cardOptions {
	return cardOptions{Options: opt, space: space, clock: clk, node: c.NUMANode, features: c.features}
}

// chooseSpace makes the address space for cards, and says whether its addresses are physical ones. Some cards say only when they
// are open that they reach memory past the IOMMU, and where that is has to be settled before: those are opened and closed once.
func (m *machine) chooseSpace(ctx context.Context, opt Options, clk clock.Clock, access pci.Access, cards []card) (space *vtop.Space, physical bool, err error) {
	if access != pci.VFIO {
		space, err := m.space(true)
		if err != nil {
			err = fmt.Errorf("access=%v: %w", access, err)
		}
		return space, true, err
	}
	for _, c := range cards {
		past, err := m.reachesPast(ctx, opt, clk, c)
		if err != nil {
			return nil, false, err
		}
		if !past {
			continue
		}
		space, err := m.space(true)
		if err != nil {
			return nil, false, fmt.Errorf("%s: the device reaches memory past the IOMMU, by physical addresses (it does not offer %s), and those cannot be had: %w; or have it go through the IOMMU (QEMU: disable-legacy=on,iommu_platform=on)",
				c.Address, spec.FeatureAccessPlatform, err)
		}
		return space, true, nil
	}
	space, err = m.space(false)
	return space, false, err
}

// reachesPast asks a card whether it reaches memory past the IOMMU. It does no DMA meanwhile: a function opens with bus mastering
// off, and nobody switches that on.
func (m *machine) reachesPast(ctx context.Context, opt Options, clk clock.Clock, c card) (physical bool, err error) {
	if c.driver.physical == nil {
		return false, nil
	}
	space, err := m.space(false)
	if err != nil {
		return false, err
	}
	opener := m.open(space, pci.OpenOptions{Logger: opt.Logger, Access: pci.VFIO})
	defer func() { err = errors.Join(err, opener.Close()) }()
	fn, err := opener.Open(ctx, c.Address)
	if err != nil {
		return false, err
	}
	return c.driver.physical(ctx, fn, c.options(opt, space, clk))
}

// parseAccess reads how cards are reached, which has to be the same for all: there is one address space.
func parseAccess(names []name) (access pci.Access, err error) {
	for i, n := range names {
		got := pci.VFIO
		for key, values := range n.query {
			if key == "features" {
				continue // for find, which knows what the card is
			}
			if key != "access" {
				return 0, fmt.Errorf("%s: parameter %q: a card takes access=vfio, access=sysfs or access=noiommu, and a virtio card features=", n.uri, key)
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
func (m *machine) find(names []name) ([]card, error) {
	var cards []card
	for _, n := range names {
		a, err := pci.ParseAddress(n.rest)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(cards, func(c card) bool { return c.Address == a }) {
			return nil, fmt.Errorf("%s: named twice: a card can be opened once", a)
		}
		c := card{Device: &pci.Device{Address: a}}
		if c.features, err = spec.ParseRestriction(n.query.Get("features")); err != nil {
			return nil, fmt.Errorf("%s: features: %w", n.uri, err)
		}
		cards = append(cards, c)
	}
	for i := range cards {
		c := &cards[i]
		d, err := m.host.Device(c.Address)
		if err != nil {
			return nil, err
		}
		c.Device = d
		if c.driver = driverFor(d.Vendor, d.Device); c.driver == nil {
			return nil, fmt.Errorf("%s: no driver here for %04x:%04x %s: there are drivers for %s; \"pktgen devices\" lists the cards, and says which can be driven",
				d.Address, d.Vendor, d.Device, d.DeviceName, drivable())
		}
		if names[i].query.Has("features") && !c.driver.features {
			return nil, fmt.Errorf("%s: parameter \"features\": the card is driven by %s, and features= is for virtio", names[i].uri, c.driver.name)
		}
	}
	return cards, nil
}
