package cli

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/tap"
)

// wireKind is what is at the other end of a card's cable.
type wireKind string

const (
	wireNone wireKind = "none" // no cable
	wirePair wireKind = "pair" // a second card
	wireTap  wireKind = "tap"  // the host's kernel
	wirePcap wireKind = "pcap" // a file that keeps what is sent
)

// wireFlag is the value of --wire.
type wireFlag struct {
	kind wireKind
	arg  string // of tap: the interface; of pcap: the file
	link link.Config
}

const wireForms = "none, pair, tap:NAME or pcap:FILE, with the wire's parameters behind a question mark: pair?delay=5us&loss=1e-3"

// parseWire reads a wire like "tap:tap0?rate=1G".
func parseWire(s string) (w wireFlag, err error) {
	s, query, _ := strings.Cut(s, "?")
	kind, arg, _ := strings.Cut(s, ":")
	w.kind, w.arg = wireKind(kind), arg
	switch w.kind {
	case wireNone, wirePair:
		if arg != "" {
			return w, fmt.Errorf("--wire %s:%s: %s takes no name; want %s", kind, arg, kind, wireForms)
		}
	case wireTap, wirePcap:
		if arg == "" {
			what := map[wireKind]string{wireTap: "the name of an interface", wirePcap: "the name of a file"}[w.kind]
			return w, fmt.Errorf("--wire %s: %s is missing after the colon; want %s", kind, what, wireForms)
		}
	default:
		return w, fmt.Errorf("--wire %q: want %s", s, wireForms)
	}
	if query == "" {
		return w, nil
	}
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
			return c, usage("--capture: without a wire there is nothing to capture; add --wire pair, tap:NAME or pcap:FILE")
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
	case wirePcap:
		s := &sink{world: world, end: c.wire.B()}
		world.Lock()
		s.end.OnArrival(func(int64) { world.Poke() })
		world.Unlock()
		world.Add(s)
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

// sink takes frames off a wire and forgets them.
type sink struct {
	world *sim.World
	end   *link.End
}

// Step implements sim.Engine.
func (s *sink) Step(now int64) int64 {
	for {
		if _, ok := s.end.Receive(now); !ok {
			break
		}
	}
	if at, ok := s.end.Next(); ok {
		return at
	}
	return sim.Never
}
