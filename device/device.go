// Package device opens network cards by name.
//
// A name is a URI; what stands before the colon says what kind of card it is:
//
//	sim:                       two software 82599s in this process, at the two ends of one 10 Gb/s wire
//	sim:a, sim:b               one end each; opened together they are the two ends of one wire
//	sim:?delay=5us&loss=1e-4   the wire's properties (package sim/link), and the cards' (see Schemes)
//	null:                      the 82599 driver on a card that only says "done": what the driver itself costs
//	null:?driver=virtio        the same of the virtio driver, with ring=split or ring=packed
//	tap:tap0                   the host's kernel, through a TAP interface: a virtio device whose wire it is
//	vhost-user:/run/pg0        a vhost-user back end at that socket; with ?server it is the one that connects
//	0000:03:00.0               an 82599 or a virtio-net card at that PCI address, bound to vfio-pci ("pktgen devices" lists and
//	                           binds them)
//	0000:03:00.0?access=sysfs  the same without VFIO and without an IOMMU, with a guardian process; see package pci
//
// Open picks the driver, gives all cards of one call one bus address space, so that a buffer can go from one to another,
// and one clock. A software card is stepped by the worker that uses it, inside Recv, Send and Reclaim: no thread spins for
// it, and on a virtual clock a run is the same every time. With mode=threaded a goroutine steps the cards instead.
//
// On a virtual clock time stands still until somebody waits for it to pass: a loop that only polls sees nothing arrive. Wait
// with nic.Waiter, or sleep on the Set's Clock; see the example of OpenSet.
package device

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"bare.wire/clock"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/sim/link"
	"bare.wire/vtop"
)

// Options are for those who want more than Open gives.
type Options struct {
	// Logger gets what drivers have to tell; nil: nothing is logged.
	Logger *slog.Logger
	// Record keeps lists of what the simulated wire did to each frame (link.Config.Record).
	Record bool

	// machine is where PCI functions are; nil: this one.
	machine *machine
}

// Set is a number of cards that were opened together.
type Set struct {
	Ports []nic.Port
	URIs  []string // of each port
	// Space is where pools for these ports have their bus addresses.
	Space *vtop.Space
	// Clock is the cards' clock: a *clock.Virtual for sim:?clock=virtual.
	Clock clock.Clock
	// Wire is the wire between simulated cards, nil without one; Lock guards it while they are in use.
	Wire *link.Wire
	// About says in a few words what the devices are: "in-process pair, link 10 Gb/s".
	About string

	closers []func() error
	world   locker
}

type locker interface {
	Lock()
	Unlock()
}

// WithWire calls f with the wire while no card moves. It does nothing without a wire.
func (s *Set) WithWire(f func(*link.Wire)) {
	if s.Wire == nil {
		return
	}
	s.world.Lock()
	defer s.world.Unlock()
	f(s.Wire)
}

// Close closes every port and what is behind it. Pools are the caller's to close, after it.
func (s *Set) Close() error {
	var errs []error
	for _, p := range s.Ports {
		errs = append(errs, p.Close())
	}
	for _, f := range slices.Backward(s.closers) {
		errs = append(errs, f())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// Open opens the cards that uris name, in their order; sim: alone gives two ports. The closer closes them all. It is the
// *Set, whose Space the pools for Start live in; OpenSet returns it as such.
func Open(ctx context.Context, uris ...string) ([]nic.Port, io.Closer, error) {
	s, err := OpenSet(ctx, Options{}, uris...)
	if err != nil {
		return nil, nil, err
	}
	return s.Ports, s, nil
}

// scheme is a kind of card.
type scheme struct {
	name  string // with the colon
	usage string // in a line
	more  string // parameters, a line each
	open  func(ctx context.Context, opt Options, s *Set, names []name) error
}

func schemes() []scheme {
	return []scheme{
		{"sim:", "two software 82599s on one 10 Gb/s wire; sim:a and sim:b are its ends", simUsage(), openSim},
		{"null:", "a driver on a card that only says \"done\", to measure the driver", nullUsage(), openNull},
		{"tap:", "the host's kernel, through the TAP interface tap:NAME", tapUsage(), openTap},
		{"vhost-user:", "a vhost-user back end, such as DPDK's, at the socket vhost-user:PATH", vhostUsage(), openVhost},
		{pciExample, "a network card by its PCI address, bound to vfio-pci", pciUsage(), openPCI},
	}
}

// Schemes returns what Open understands, for help texts: a line for each kind of card, and below it, indented, one for each
// parameter.
func Schemes() []string {
	var out []string
	for _, s := range schemes() {
		out = append(out, s.line())
		for more := range strings.Lines(s.more) {
			out = append(out, "  ?"+strings.TrimSuffix(more, "\n"))
		}
	}
	return out
}

func (s *scheme) line() string { return fmt.Sprintf("%-13s %s", s.name, s.usage) }

// kinds lists what Open understands without parameters, for errors.
func kinds() string {
	var b strings.Builder
	for _, s := range schemes() {
		b.WriteString("\n  " + s.line())
	}
	return b.String()
}

// name is a URI taken apart.
type name struct {
	uri   string
	rest  string // between the colon and the question mark
	query url.Values
}

// OpenSet is Open for those who need the clock, the address space or the wire.
func OpenSet(ctx context.Context, opt Options, uris ...string) (*Set, error) {
	if len(uris) == 0 {
		return nil, errors.New("open: no device named: name one, such as sim:, or a card")
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	kind, names, err := parse(opt.where().host, uris)
	if err != nil {
		return nil, err
	}
	s := &Set{Space: vtop.NewMapped()}
	if err := kind.open(ctx, opt, s, names); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", strings.Join(uris, " "), err), s.Close())
	}
	return s, nil
}

// parse takes the URIs apart. All have to be of one kind, for the time being: one kind, one clock.
func parse(host *pci.Host, uris []string) (*scheme, []name, error) {
	var kind *scheme
	var names []name
	for _, uri := range uris {
		k, n, err := parseOne(host, uri)
		if err != nil {
			return nil, nil, err
		}
		if kind != nil && k.name != kind.name {
			return nil, nil, fmt.Errorf("open %q with %q: devices of different kinds cannot be opened together yet: name two of one kind", uris[0], uri)
		}
		kind = k
		names = append(names, n)
	}
	return kind, names, nil
}

func parseOne(host *pci.Host, uri string) (*scheme, name, error) {
	head, rest, _ := strings.Cut(uri, ":")
	kind := head + ":"
	rest, query, _ := strings.Cut(rest, "?")
	if address, q, ok := pciName(uri); ok {
		kind, rest, query = pciExample, address, q
	}
	all := schemes()
	i := slices.IndexFunc(all, func(s scheme) bool { return s.name == kind })
	if i < 0 || !strings.Contains(uri, ":") {
		return nil, name{}, unknown(host, uri)
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, name{}, fmt.Errorf("device %q: parameters %q: %w: write them as key=value&key=value", uri, query, err)
	}
	for key, values := range q {
		if len(values) > 1 {
			return nil, name{}, fmt.Errorf("device %q: parameter %q is given %d times: give it once", uri, key, len(values))
		}
	}
	return &all[i], name{uri: uri, rest: rest, query: q}, nil
}

// unknown is the error for a name that no scheme takes, with those that there are.
func unknown(host *pci.Host, uri string) error {
	if looksLikePCI(uri) {
		text, _, _ := strings.Cut(uri, "?")
		_, err := pci.ParseAddress(text)
		return fmt.Errorf("device %q: %w", clip(uri), err)
	}
	hint := ""
	for _, s := range schemes() {
		if uri+":" == s.name {
			hint = fmt.Sprintf("did you mean %s? ", s.name)
		}
	}
	devices, _ := host.List() // what cannot be read is no hint
	for _, d := range devices {
		if slices.ContainsFunc(d.Interfaces, func(i pci.Interface) bool { return i.Name == uri }) {
			hint = fmt.Sprintf("the interface %s is the card %s; ", uri, d.Address)
		}
	}
	return fmt.Errorf("device %q: unknown kind; %sknown are:%s", clip(uri), hint, kinds())
}

// clip keeps what somebody typed short enough for a line.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// looksLikePCI says whether uri was meant to be a PCI address: hexadecimal digits and a colon, before a dot.
func looksLikePCI(uri string) bool {
	head, _, dotted := strings.Cut(uri, ".")
	return dotted && strings.Contains(head, ":") && strings.Trim(head, "0123456789abcdefABCDEF:") == ""
}
