package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"bare.wire/clock"
	"bare.wire/pci"
	"bare.wire/pci/pcitest"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// virtioMachine has virtio cards, and an 82599 among them.
type virtioMachine struct {
	*testing.T
	tree     *pcitest.Machine
	cards    map[string]virtioCard
	spaces   []bool // of each that was asked for, whether it is physical
	refuse   error  // what a physical one says
	accesses []pci.Access
	opened   []string
	closed   int
}

type virtioCard struct {
	kind     virtionet.PCIKind
	features spec.Features
	later    spec.Features // from the second time on that it is opened, when that is not 0
}

// everything that a device offers but what says how it reaches memory.
const everyFeature = ^(spec.FeatureAccessPlatform | spec.FeatureOrderPlatform)

const (
	cardBehind       = "0000:00:03.0" // modern, goes through the IOMMU
	cardPast         = "0000:00:04.0" // modern, does not
	cardTransitional = "0000:00:05.0"
	cardLegacy       = "0000:00:06.0"
)

func newVirtioMachine(t *testing.T) (*virtioMachine, Options) {
	m := &virtioMachine{T: t, tree: pcitest.New(t), cards: map[string]virtioCard{
		cardBehind:       {kind: virtionet.Modern, features: everyFeature | spec.FeatureAccessPlatform},
		cardPast:         {kind: virtionet.Modern, features: everyFeature},
		cardTransitional: {kind: virtionet.Transitional, features: everyFeature},
		cardLegacy:       {kind: virtionet.Legacy, features: everyFeature},
	}}
	for address, c := range m.cards {
		id := spec.PCITransitionalNet
		if c.kind == virtionet.Modern {
			id = spec.PCIModernNet
		}
		m.tree.Add(pcitest.Card{Address: address, ID: fmt.Sprintf("%04x:%04x", spec.PCIVendor, id), Class: 0x020000, Driver: pci.VFIODriver, Group: 7, NUMA: "-1\n"})
	}
	m.tree.Add(pcitest.Card{Address: cardA, ID: "8086:10fb", Class: 0x020000, Driver: pci.VFIODriver, Group: 7, NUMA: "-1\n"})
	m.tree.Add(pcitest.Card{Address: "0000:07:00.0", ID: "1af4:1042", Class: 0x010000, Driver: pci.VFIODriver, Group: 7})
	space := func(physical bool) (*vtop.Space, error) {
		if m.spaces = append(m.spaces, physical); physical && m.refuse != nil {
			return nil, m.refuse
		}
		return vtop.NewMapped(), nil
	}
	open := func(s *vtop.Space, opt pci.OpenOptions) functionOpener {
		m.accesses = append(m.accesses, opt.Access)
		return &virtioOpener{m: m, space: s, world: sim.NewWorld(clock.Real())}
	}
	return m, Options{machine: &machine{host: m.tree.Host(), space: space, open: open}}
}

// virtioOpener opens software devices as if they were at PCI addresses.
type virtioOpener struct {
	m     *virtioMachine
	space *vtop.Space
	world *sim.World
	stop  []func() error
}

func (o *virtioOpener) Open(_ context.Context, a pci.Address) (pci.Function, error) {
	c, ok := o.m.cards[a.String()]
	if !ok {
		return nil, fmt.Errorf("%s is not there", a)
	}
	if c.later != 0 && slices.Contains(o.m.opened, a.String()) {
		c.features = c.later
	}
	wire, err := link.New(link.Config{})
	if err != nil {
		return nil, err
	}
	o.world.Add(wire)
	d, err := virtionet.New(virtionet.Config{
		Name: a.String(), Memory: o.space, World: o.world, Net: virtionet.OnWire(wire.A()), Features: c.features, MAC: macOf(a.String()),
	})
	if err != nil {
		return nil, err
	}
	o.m.opened = append(o.m.opened, a.String())
	o.stop = append(o.stop, func() error {
		for _, w := range d.Misuse() {
			o.m.Errorf("%s: %s", a, w)
		}
		return d.Close()
	})
	return &tapFunction{Function: virtionet.NewFunction(d, virtionet.FunctionConfig{Kind: c.kind})}, nil
}

func (o *virtioOpener) Close() error {
	o.m.closed++
	var errs []error
	for _, f := range o.stop {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

func TestVirtioCardsAreOpenedInTheSpaceThatTheyReach(t *testing.T) {
	for _, c := range []struct {
		uris    []string
		spaces  string // of which kind those were that were asked for, the last being the one
		devices string
	}{
		{[]string{cardBehind}, "[false false]", "virtio-net (modern)"},
		{[]string{cardPast}, "[false true]", "virtio-net (modern)"},
		{[]string{cardTransitional}, "[false true]", "virtio-net (transitional, modern interface)"},
		{[]string{cardTransitional + "?features=-version_1"}, "[false true]", "virtio-net (legacy)"},
		{[]string{cardLegacy}, "[false true]", "virtio-net (legacy)"},
		{[]string{cardBehind, cardPast}, "[false false true]", "virtio-net (modern) virtio-net (modern)"},
		{[]string{cardPast + "?access=sysfs"}, "[true]", "virtio-net (modern)"},
		{[]string{cardLegacy + "?access=noiommu", cardBehind + "?access=noiommu"}, "[true]", "virtio-net (legacy) virtio-net (modern)"},
	} {
		t.Run(strings.Join(c.uris, " "), func(t *testing.T) {
			m, opt := newVirtioMachine(t)
			s, err := OpenSet(context.Background(), opt, c.uris...)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(m.spaces); got != c.spaces {
				t.Errorf("spaces %s, want %s", got, c.spaces)
			}
			var devices []string
			for i, p := range s.Ports {
				info := p.Info()
				address, _, _ := strings.Cut(c.uris[i], "?")
				if info.Driver != "virtio" || info.Name != address || s.URIs[i] != address || info.Software || info.MAC != macOf(address) {
					t.Errorf("port %d is %+v", i, info)
				}
				devices = append(devices, info.Device)
			}
			if got := strings.Join(devices, " "); got != c.devices {
				t.Errorf("they are %s, want %s", got, c.devices)
			}
			if err := s.Close(); err != nil || m.closed != len(m.accesses) {
				t.Errorf("close: %v, %d of %d closed", err, m.closed, len(m.accesses))
			}
		})
	}
}

func TestPhysicalAddressesThatAreMissingNameTheWaysOut(t *testing.T) {
	m, opt := newVirtioMachine(t)
	m.refuse = errors.New("no CAP_SYS_ADMIN")
	_, err := OpenSet(context.Background(), opt, cardBehind, cardPast)
	if host := new(HostError); !errors.Is(err, m.refuse) || !errors.As(err, &host) {
		t.Fatalf("open: %v", err)
	}
	for _, word := range []string{cardPast, "access_platform", "iommu_platform=on"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
	if m.closed != len(m.accesses) {
		t.Error("a card is still open")
	}
}

// A card that was looked at is opened a second time, and says something else then: its bus addresses would be physical ones of
// other memory.
func TestCardThatNoLongerGoesThroughTheIOMMUIsRefused(t *testing.T) {
	m, opt := newVirtioMachine(t)
	m.cards[cardBehind] = virtioCard{kind: virtionet.Modern, features: everyFeature | spec.FeatureAccessPlatform, later: everyFeature}
	s, err := OpenSet(context.Background(), opt, cardBehind)
	if err == nil {
		s.Close()
		t.Fatal("it opened")
	}
	for _, word := range []string{cardBehind, "access_platform", "open it again"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
	if m.closed != len(m.accesses) {
		t.Error("the card is still open")
	}
}

func TestFeaturesOfACardAreChecked(t *testing.T) {
	for uri, want := range map[string]string{
		cardBehind + "?features=-warp":           "mrg_rxbuf", // among those that there are
		cardA + "?features=-mrg_rxbuf":           "driven by ixgbe",
		cardBehind + "?features=-version_1":      "version_1",
		cardBehind + "?features=-mrg_rxbuf&mq=1": `"mq"`,
		"0000:07:00.0":                           "1af4:1000, 1af4:1041",
	} {
		_, opt := newVirtioMachine(t)
		s, err := OpenSet(context.Background(), opt, uri)
		if err == nil {
			s.Close()
			t.Errorf("%s opened", uri)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %q does not say %q", uri, err, want)
		}
	}
}

func TestDriversAreKnownByIdentifiers(t *testing.T) {
	for _, c := range []struct {
		vendor, device uint16
		driver         string
	}{
		{0x8086, 0x10fb, "ixgbe"}, {0x8086, 0x1528, ""}, {0x1af4, 0x10fb, ""}, {0x1af4, 0x1000, "virtio"}, {0x1af4, 0x1041, "virtio"},
		{0x1af4, 0x1001, ""}, {0x1af4, 0x1042, ""}, {0x8086, 0x1041, ""},
	} {
		if got := DriverFor(c.vendor, c.device); got != c.driver {
			t.Errorf("%04x:%04x is driven by %q, want %q", c.vendor, c.device, got, c.driver)
		}
	}
}
