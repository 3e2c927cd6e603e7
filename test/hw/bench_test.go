package hw

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"bare.wire/device"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/nic/nictest"
	"bare.wire/vtop"
)

const (
	// minFrame is what an 82599 pads shorter frames to, bytes without FCS.
	minFrame = 60
	// wakeTime is how late an interrupt may come, on whatever machine this is.
	wakeTime = 5 * time.Second
	// settleTime is long for cards that take microseconds, and for emulated ones that are behind.
	settleTime = 20 * time.Millisecond
)

// softwareCard is what is looked at when nobody names a card.
const softwareCard = "sim:a?clock=virtual"

// deviceURI is the card as package device calls it.
func deviceURI() string {
	address := os.Getenv("PCI")
	if address == "" {
		return softwareCard
	}
	if access := os.Getenv("ACCESS"); access != "" {
		return address + "?access=" + access
	}
	return address
}

// realCard says that the card is in another place than this process, and has a time of its own.
func realCard() bool { return os.Getenv("PCI") != "" }

func openCard(t testing.TB) *device.Set {
	t.Helper()
	set, err := device.OpenSet(context.Background(), device.Options{}, deviceURI())
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// openBench opens the card as the two ends of a wire.
func openBench(t testing.TB) *nictest.Bench {
	t.Helper()
	set := openCard(t)
	l := newLoop(set.Ports[0])
	b := &nictest.Bench{
		A: &l.sides[sending], B: &l.sides[receiving], Clock: set.Clock, MinFrame: minFrame,
		NewPool: func(cfg mbuf.Config) (*mbuf.Pool, error) {
			cfg.Space = set.Space
			return mbuf.NewPool(cfg)
		},
		ForeignPool: func(cfg mbuf.Config) (*mbuf.Pool, error) {
			cfg.Space = vtop.NewMapped()
			return mbuf.NewPool(cfg)
		},
		Settle: func() { settle(t, set) },
		Close:  set.Close,
	}
	if realCard() {
		b.Late = wakeTime
		return nictest.InRealTime(b)
	}
	return b
}

// settle waits until the port has received what it has sent.
func settle(t testing.TB, set *device.Set) {
	t.Helper()
	port, wait := set.Ports[0], settleTime
	for {
		before := port.Stats()
		if err := set.Clock.Sleep(context.Background(), wait); err != nil {
			t.Fatal(err)
		}
		after := port.Stats()
		if after.TxPackets == before.TxPackets && after.RxPackets+after.RxNoDesc+after.RxMissed == before.RxPackets+before.RxNoDesc+before.RxMissed {
			return
		}
	}
}

// station is the port in loopback with a pool, for tests of its own.
type station struct {
	testing.TB
	set   *device.Set
	port  nic.Port
	pool  *mbuf.Pool
	cache *mbuf.Cache
}

func newStation(t testing.TB) *station {
	t.Helper()
	s := &station{TB: t, set: openCard(t)}
	s.port = s.set.Ports[0]
	t.Cleanup(func() {
		if err := s.set.Close(); err != nil {
			t.Error(err)
		}
	})
	pool, err := mbuf.NewPool(mbuf.Config{Name: "hw", Space: s.set.Space, Buffers: 16384})
	if err != nil {
		t.Fatal(err)
	}
	s.pool, s.cache = pool, pool.NewCache()
	return s
}

// start starts the port in loopback and waits for the link, which is forced.
func (s *station) start(cfg nic.Config) {
	s.Helper()
	cfg.Pool, cfg.Loopback = s.pool, true
	if err := s.port.Start(context.Background(), cfg); err != nil {
		s.Fatal(err)
	}
	for range 20 {
		settle(s, s.set)
		if s.port.Housekeep(s.set.Clock.Now()); s.port.Link().Up {
			return
		}
	}
	s.Fatalf("in loopback the link is %v", s.port.Link())
}

func (s *station) stop() {
	s.Helper()
	if err := s.port.Stop(); err != nil {
		s.Error(err)
	}
}

// end closes everything, and wants every buffer back.
func (s *station) end() {
	s.Helper()
	err := s.set.Close()
	s.cache.Close()
	if err := errors.Join(err, s.pool.Close()); err != nil {
		s.Error(err)
	}
}
