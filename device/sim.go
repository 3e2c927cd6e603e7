package device

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"bare.wire/clock"
	"bare.wire/ixgbe"
	"bare.wire/pci"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/nic82599"
	"bare.wire/vtop"
)

// epoch is where a virtual clock starts: a fixed day, so that files written by two runs are the same.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func simUsage() string {
	return fmt.Sprintf("%-17s real, or exact and as fast as the processor allows (virtual)\n", "clock") +
		fmt.Sprintf("%-17s who steps the cards: inline, whoever uses them; or a goroutine (threaded)\n", "mode") + link.Usage()
}

// simConfig is what the parameters of sim: say.
type simConfig struct {
	virtual, threaded bool
	wire              link.Config
}

// openSim makes a wire, a card at each end of it, and drivers for those that were named.
func openSim(ctx context.Context, opt Options, s *Set, names []name) error {
	ends, cfg, err := parseSim(names)
	if err != nil {
		return err
	}
	cfg.wire.Record = cfg.wire.Record || opt.Record
	wire, err := link.New(cfg.wire)
	if err != nil {
		return err
	}
	s.Clock = clock.Real()
	if cfg.virtual {
		s.Clock = clock.NewVirtual(epoch)
	}
	world := sim.NewWorld(s.Clock)
	s.Wire, s.world = wire, world
	s.About = about(cfg)
	world.Add(wire)
	cards := map[string]*nic82599.Card{}
	for i, end := range []*link.End{wire.A(), wire.B()} {
		name := "sim:" + string(rune('a'+i))
		cards[name] = nic82599.New(nic82599.Config{
			Name: name, Memory: s.Space, World: world, End: end, LAN: i, Seed: cfg.wire.Seed*2 + uint64(i),
			MAC: macOf(name),
		})
		s.closers = append(s.closers, cards[name].Close)
	}
	if cfg.threaded {
		s.closers = append(s.closers, runThread(world))
		if cfg.virtual {
			// Time stands still until a worker moves it, and then jumps: what is due on the way is done by timers.
			world.ArmTimer()
		}
	}
	for _, name := range ends {
		port, err := ixgbe.Open(ctx, &cardFunction{cards[name]}, ixgbe.Options{Space: s.Space, Clock: s.Clock, Logger: opt.Logger, Node: -1, Software: true})
		if err != nil {
			return err
		}
		s.URIs = append(s.URIs, name)
		if cfg.threaded {
			s.Ports = append(s.Ports, port)
		} else {
			s.Ports = append(s.Ports, &steppedPort{Port: port, world: world, link: nap{world: world}})
		}
	}
	return nil
}

func about(cfg simConfig) string {
	rate := uint64(10e9)
	if r := cfg.wire.Rate; r != 0 && r < rate {
		rate = r
	}
	what := fmt.Sprintf("in-process pair, link %g Gb/s", float64(rate)/1e9)
	if cfg.virtual {
		what += ", virtual clock"
	}
	return what
}

// runThread steps the world on a goroutine of its own; the closer ends it.
func runThread(world *sim.World) func() error {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = world.Run(ctx) // ends with ctx, and only then
	}()
	return func() error {
		cancel()
		<-done
		return nil
	}
}

// parseSim returns the cards that are named and what the parameters say. They may stand with either end; where both say
// something they have to say the same.
func parseSim(names []name) ([]string, simConfig, error) {
	var ends []string
	query := url.Values{}
	for _, n := range names {
		switch n.rest {
		case "":
			ends = append(ends, "sim:a", "sim:b")
		case "a", "b":
			ends = append(ends, "sim:"+n.rest)
		default:
			return nil, simConfig{}, fmt.Errorf("%q: the wire has two ends, sim:a and sim:b", n.uri)
		}
		for key, values := range n.query {
			if old, ok := query[key]; ok && old[0] != values[0] {
				return nil, simConfig{}, fmt.Errorf("%s is %q at one end and %q at the other: there is one wire", key, old[0], values[0])
			}
			query[key] = values
		}
	}
	if len(ends) > 2 || len(ends) == 2 && ends[0] == ends[1] {
		return nil, simConfig{}, fmt.Errorf("%v: each end of the wire can be opened once", ends)
	}
	cfg, err := simParameters(query)
	return ends, cfg, err
}

// simParameters takes the cards' parameters out of query and leaves the rest to the wire.
func simParameters(query url.Values) (cfg simConfig, err error) {
	if cfg.virtual, err = choice(query, "clock", "real", "virtual"); err != nil {
		return cfg, err
	}
	if cfg.threaded, err = choice(query, "mode", "inline", "threaded"); err != nil {
		return cfg, err
	}
	if cfg.wire, err = link.ParseConfig(query); err != nil && !allOfWire(query) {
		return cfg, fmt.Errorf("%w; sim: itself takes clock and mode", err)
	}
	return cfg, err
}

// allOfWire tells whether the wire knows all of these parameters.
func allOfWire(query url.Values) bool {
	for key := range query {
		if direction, name, ok := strings.Cut(key, "."); ok && (direction == "ab" || direction == "ba") {
			key = name
		}
		if !slices.Contains(link.Keys(), key) {
			return false
		}
	}
	return true
}

// choice reads a parameter of two values, the first of which is the default, and removes it.
func choice(query url.Values, key, off, on string) (bool, error) {
	v := query.Get(key)
	query.Del(key)
	switch v {
	case "", off:
		return false, nil
	case on:
		return true, nil
	}
	return false, fmt.Errorf("%s=%s: want %s or %s", key, v, off, on)
}

// macOf is a locally administered address that depends on the name only.
func macOf(name string) [6]byte {
	h := fnv.New32a()
	h.Write([]byte(name))
	v := h.Sum32()
	return [6]byte{0x02, 0x00, byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
}

// cardFunction is a software card as a PCI function.
type cardFunction struct{ *nic82599.Card }

func (f *cardFunction) BAR(n int) (pci.BAR, error) {
	if n != 0 {
		return nil, fmt.Errorf("%s: BAR %s: a software card has BAR 0 only", f.Name(), strconv.Itoa(n))
	}
	v, err := f.ReadConfig(pci.ConfigCommand, 2)
	if err != nil {
		return nil, err
	}
	if err := f.WriteConfig(pci.ConfigCommand, 2, v|pci.CommandMemory); err != nil {
		return nil, err
	}
	return f.Card, nil
}

var (
	_ pci.Function = (*cardFunction)(nil)
	_ sim.Memory   = (*vtop.Space)(nil)
)
