package device

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"bare.wire/clock"
	"bare.wire/pci"
	"bare.wire/pci/pcitest"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/nic82599"
	"bare.wire/vtop"
)

// cardOpener opens software cards as if they were at PCI addresses.
type cardOpener struct {
	opt    pci.OpenOptions
	cards  map[pci.Address]*nic82599.Card
	stop   func() error
	opened []string
	fail   error // what the second Open says
	closed bool
}

func (o *cardOpener) Open(_ context.Context, a pci.Address) (pci.Function, error) {
	if len(o.opened) == 1 && o.fail != nil {
		return nil, o.fail
	}
	o.opened = append(o.opened, a.String())
	return &cardFunction{o.cards[a]}, nil
}

func (o *cardOpener) Close() error {
	o.closed = true
	return o.stop()
}

const cardA, cardB = "0000:03:00.0", "0000:03:00.1"

// fakeMachine has two 82599s, and what is no 82599.
func fakeMachine(t *testing.T) (Options, *cardOpener, *[]bool) {
	t.Helper()
	tree := pcitest.New(t)
	for _, a := range []string{cardA, cardB} {
		tree.Add(pcitest.Card{Address: a, ID: "8086:10fb", Class: 0x020000, Driver: pci.VFIODriver, Group: 7, NUMA: "-1\n"})
	}
	tree.Driver("e1000e", "8086:10d3")
	tree.Add(pcitest.Card{Address: "0000:04:00.0", ID: "8086:10d3", Class: 0x020000, Group: pcitest.NoGroup, Driver: "e1000e", Interface: "ens7"})
	tree.Add(pcitest.Card{Address: "0000:05:00.0", ID: "15b3:10fb", Class: 0x020000, Group: pcitest.NoGroup})
	o := &cardOpener{cards: map[pci.Address]*nic82599.Card{}}
	var physical []bool
	m := &machine{host: tree.Host()}
	m.space = func(p bool) (*vtop.Space, error) {
		physical = append(physical, p)
		return vtop.NewMapped(), nil
	}
	m.open = func(s *vtop.Space, opt pci.OpenOptions) functionOpener {
		o.opt = opt
		world := sim.NewWorld(clock.Real())
		wire, err := link.New(link.Config{})
		if err != nil {
			t.Fatal(err)
		}
		world.Add(wire)
		for i, end := range []*link.End{wire.A(), wire.B()} {
			address := []string{cardA, cardB}[i]
			a, err := pci.ParseAddress(address)
			if err != nil {
				t.Fatal(err)
			}
			o.cards[a] = nic82599.New(nic82599.Config{Name: address, Memory: s, World: world, End: end, LAN: i, MAC: macOf(address)})
		}
		o.stop = runThread(world)
		return o
	}
	return Options{machine: m}, o, &physical
}

func TestCardsAreOpenedByTheirAddresses(t *testing.T) {
	for _, c := range []struct {
		uris     []string
		access   pci.Access
		physical bool
	}{
		{[]string{cardA, "03:00.1"}, pci.VFIO, false},
		{[]string{"03:00.0?access=vfio", cardB}, pci.VFIO, false},
		{[]string{cardA + "?access=sysfs", cardB + "?access=sysfs"}, pci.Sysfs, true},
		{[]string{cardA + "?access=noiommu", cardB + "?access=noiommu"}, pci.VFIONoIOMMU, true},
	} {
		opt, opener, physical := fakeMachine(t)
		s, err := OpenSet(context.Background(), opt, c.uris...)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(s.URIs) != "["+cardA+" "+cardB+"]" || fmt.Sprint(opener.opened) != fmt.Sprint(s.URIs) || len(s.Ports) != 2 {
			t.Errorf("%q: opened %q as %q", c.uris, opener.opened, s.URIs)
		}
		if opener.opt.Access != c.access || (*physical)[0] != c.physical || opener.opt.Logger == nil {
			t.Errorf("%q: access %v, physical %v", c.uris, opener.opt.Access, *physical)
		}
		if i := s.Ports[0].Info(); i.Name != cardA || i.Software || i.Driver != "ixgbe" || !strings.Contains(s.About, c.access.String()) {
			t.Errorf("%q: %+v, %s", c.uris, i, s.About)
		}
		if err := s.Close(); err != nil || !opener.closed {
			t.Errorf("%q: close: %v", c.uris, err)
		}
	}
}

func TestOneCardThatDoesNotOpenClosesTheOthers(t *testing.T) {
	opt, opener, _ := fakeMachine(t)
	opener.fail = errors.New("bind it first")
	_, err := OpenSet(context.Background(), opt, cardA, cardB)
	if host := new(HostError); !errors.Is(err, opener.fail) || !errors.As(err, &host) {
		t.Errorf("open: %v, want a HostError", err)
	}
	if !opener.closed {
		t.Error("the first card is still open")
	}
}

func TestCardWithoutADriverHereIsNotTouched(t *testing.T) {
	for _, address := range []string{"0000:04:00.0", "0000:05:00.0"} {
		opt, opener, _ := fakeMachine(t)
		_, err := OpenSet(context.Background(), opt, cardA, address)
		if err == nil || !strings.Contains(err.Error(), "no driver here") || !strings.Contains(err.Error(), "pktgen devices") {
			t.Errorf("open %s: %v", address, err)
		}
		if host := new(HostError); errors.As(err, &host) {
			t.Errorf("open %s: %v: a wrong name is laid to the machine", address, err)
		}
		if len(opener.opened) > 0 {
			t.Errorf("%q was opened", opener.opened)
		}
	}
}

func TestNoPhysicalAddressesIsAnErrorThatNamesTheWay(t *testing.T) {
	opt, opener, _ := fakeMachine(t)
	none := errors.New("no CAP_SYS_ADMIN")
	opt.machine.space = func(bool) (*vtop.Space, error) { return nil, none }
	_, err := OpenSet(context.Background(), opt, cardA+"?access=sysfs")
	if host := new(HostError); !errors.Is(err, none) || !errors.As(err, &host) || !strings.Contains(err.Error(), "access=sysfs") {
		t.Errorf("open: %v", err)
	}
	if len(opener.opened) > 0 {
		t.Error("the card was opened")
	}
}

func TestAnInterfaceIsAnsweredWithItsAddress(t *testing.T) {
	opt, _, _ := fakeMachine(t)
	for name, hint := range map[string]bool{"ens7": true, "ens8": false} {
		_, err := OpenSet(context.Background(), opt, name)
		if err == nil || strings.Contains(err.Error(), "is the card 0000:04:00.0") != hint {
			t.Errorf("open %s: %v", name, err)
		}
	}
}
