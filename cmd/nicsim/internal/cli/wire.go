package cli

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/tap"
)

// wireKind is what is at the other end of a card's cable.
type wireKind string

const (
	wireNone wireKind = "none"       // no cable
	wirePair wireKind = "pair"       // a second card
	wireTap  wireKind = "tap"        // the host's kernel
	wirePcap wireKind = "pcap"       // a file that keeps what is sent
	wireEcho wireKind = "echo"       // a station that sends everything back
	wireUser wireKind = "vhost-user" // a second device, on a socket of its own
)

// wireFlag is the value of --wire.
type wireFlag struct {
	kind wireKind
	arg  string // of tap: the interface; of pcap: the file; of vhost-user: the socket
	link link.Config
	with bool // it has parameters
}

// bare says that the wire is a perfect one.
func (w wireFlag) bare() bool { return !w.with }

// wireForms are the forms of a wire, and what stands behind the colon of those that have one.
var wireForms = map[wireKind]struct{ form, what string }{
	wireNone: {"none", ""},
	wirePair: {"pair", ""},
	wireEcho: {"echo", ""},
	wireTap:  {"tap:NAME", "the name of an interface"},
	wirePcap: {"pcap:FILE", "the name of a file"},
	wireUser: {"vhost-user:SOCKET", "the path of a socket"},
}

// wireList says which forms a command takes.
func wireList(kinds []wireKind) string {
	var forms []string
	for _, k := range kinds {
		forms = append(forms, wireForms[k].form)
	}
	last := len(forms) - 1
	return strings.Join(forms[:last], ", ") + " or " + forms[last] +
		", with the wire's parameters behind a question mark: " + forms[1] + "?delay=5us&loss=1e-3"
}

// parseWire reads a wire like "tap:tap0?rate=1G", of one of these kinds.
func parseWire(s string, kinds ...wireKind) (w wireFlag, err error) {
	s, query, _ := strings.Cut(s, "?")
	kind, arg, _ := strings.Cut(s, ":")
	w.kind, w.arg = wireKind(kind), arg
	switch f := wireForms[w.kind]; {
	case !slices.Contains(kinds, w.kind):
		return w, fmt.Errorf("--wire %q: want %s", s, wireList(kinds))
	case f.what == "" && arg != "":
		return w, fmt.Errorf("--wire %s:%s: %s takes no name; want %s", kind, arg, kind, wireList(kinds))
	case f.what != "" && arg == "":
		return w, fmt.Errorf("--wire %s: %s is missing after the colon; want %s", kind, f.what, wireList(kinds))
	}
	if query == "" {
		return w, nil
	}
	w.with = true
	if w.kind == wireNone {
		return w, errors.New("--wire none has no parameters: there is no wire")
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return w, fmt.Errorf("--wire: %w; a parameter is written name=value, and & stands between two", err)
	}
	if w.link, err = link.ParseConfig(q); err != nil {
		return w, fmt.Errorf("--wire: %w", err)
	}
	return w, nil
}

// cable is a wire with what nicsim has at its ends.
type cable struct {
	wire    *link.Wire // nil: none
	tap     *tap.Tap
	capture *capture
}

// plug makes the wire that w describes. captureFile, where given, gets every frame that is put onto it.
func plug(world *sim.World, w wireFlag, captureFile string) (c *cable, err error) {
	c = &cable{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if w.kind == wireNone {
		if captureFile != "" {
			return c, usage("--capture: without a wire there is nothing to capture; add one with --wire")
		}
		return c, nil
	}
	if w.kind == wirePcap {
		if captureFile != "" {
			return c, usage("--capture and --wire pcap: both name a file; leave one out")
		}
		captureFile = w.arg
	}
	if captureFile != "" {
		if c.capture, err = newCapture(captureFile, world.Clock()); err != nil {
			return c, environment(err)
		}
		w.link = c.capture.listen(w.link)
	}
	if c.wire, err = link.New(w.link); err != nil {
		return c, usage("--wire: %w", err)
	}
	world.Add(c.wire)
	switch w.kind {
	case wireTap:
		c.tap, err = tap.Open(tap.Config{Name: w.arg, World: world, End: c.wire.B()})
		return c, environment(err)
	case wirePcap, wireEcho:
		addSink(world, c.wire.B(), w.kind == wireEcho)
	}
	return c, nil
}

func (c *cable) close() error {
	var errs []error
	if c.tap != nil {
		errs = append(errs, c.tap.Close())
	}
	if c.capture != nil {
		errs = append(errs, c.capture.close())
	}
	return errors.Join(errs...)
}

// counts counts the frames of the wire: a to b is from the first card.
func (c *cable) counts(world *sim.World) (answer, error) {
	w := c.wire
	if w == nil {
		return nil, errors.New("there is no wire (--wire none)")
	}
	world.Lock()
	defer world.Unlock()
	count := func(d link.Direction) answer {
		n := w.Counts(d)
		lost := answer{}
		for cause := link.CauseLength; cause <= link.CauseLoss; cause++ {
			lost[cause.String()] = n.Dropped(cause)
		}
		return answer{
			"frames": n.Offered, "delivered": n.Delivered, "in_flight": n.InFlight, "copies": n.Copies,
			"reordered": n.Reordered, "corrupted": n.Corrupted, "lost": lost,
		}
	}
	a := answer{"a_to_b": count(link.AToB), "b_to_a": count(link.BToA), "up": w.A().Up()}
	if t := c.tap; t != nil {
		n := t.Counts()
		a["tap"] = answer{
			"name": t.Name(), "from_kernel": n.FromKernel, "to_kernel": n.ToKernel, "queue_full": n.QueueFull,
			"refused": n.Refused, "bad_fcs": n.BadFCS,
		}
	}
	return a, nil
}

// sink takes frames off a wire and forgets them, or sends them back with their addresses exchanged.
type sink struct {
	world *sim.World
	end   *link.End
	echo  bool
	buf   []byte
}

// addSink puts one at an end of a wire.
func addSink(world *sim.World, end *link.End, echo bool) {
	world.Lock()
	end.OnArrival(func(int64) { world.Poke() })
	world.Unlock()
	world.Add(&sink{world: world, end: end, echo: echo})
}

// Step implements sim.Engine.
func (s *sink) Step(now int64) int64 {
	for {
		f, ok := s.end.Receive(now)
		if !ok {
			break
		}
		if s.echo && len(f.Data) >= 12 && !f.BadFCS {
			s.buf = append(append(append(s.buf[:0], f.Data[6:12]...), f.Data[:6]...), f.Data[12:]...)
			s.end.Transmit(s.buf, now)
		}
	}
	if at, ok := s.end.Next(); ok {
		return at
	}
	return sim.Never
}
