//go:build guest

package vfio

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/device"
	"bare.wire/ixgbe"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/nic/nictest"
	"bare.wire/pci"
	"bare.wire/vtop"
)

// pair is both cards, opened by the project's driver.
type pair struct {
	ports  [2]nic.Port
	space  *vtop.Space
	clk    clock.Clock
	opener *pci.Opener // nil after openSet
	close  func() error
	access pci.Access
}

// newPair opens nothing yet; access is the way to the cards.
func newPair(access pci.Access) (*pair, error) {
	p := &pair{space: vtop.NewMapped(), clk: realTime}
	if access != pci.VFIO {
		var err error
		if p.space, err = vtop.NewPhysical(); err != nil {
			return nil, err
		}
	}
	p.opener = (&pci.Host{}).NewOpener(p.space, pci.OpenOptions{Access: access})
	p.close = p.opener.Close
	return p, nil
}

// testPair is newPair for a test. What a test that failed has left open is closed.
func testPair(t testing.TB, access pci.Access) *pair {
	t.Helper()
	p, err := newPair(access)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// openPair opens both cards.
func openPair(t testing.TB, access pci.Access) *pair {
	t.Helper()
	p := testPair(t, access)
	for i := range cards {
		p.ports[i] = p.mustOpen(t, i)
	}
	return p
}

// openSet opens both cards as users do, by their names.
func openSet(t testing.TB, access pci.Access) *pair {
	t.Helper()
	var uris []string
	for _, c := range cards {
		uris = append(uris, c+"?access="+access.String())
	}
	set, err := device.OpenSet(context.Background(), device.Options{}, uris...)
	if err != nil {
		t.Fatal(err)
	}
	return &pair{ports: [2]nic.Port(set.Ports), space: set.Space, clk: set.Clock, close: set.Close, access: access}
}

// mustOpen opens a card.
func (p *pair) mustOpen(t testing.TB, card int) nic.Port {
	t.Helper()
	port, err := p.open(cards[card])
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (p *pair) open(card string) (nic.Port, error) {
	a, err := pci.ParseAddress(card)
	if err != nil {
		return nil, err
	}
	f, err := p.opener.Open(context.Background(), a)
	if err != nil {
		return nil, err
	}
	port, err := ixgbe.Open(context.Background(), f, ixgbe.Options{Space: p.space, Clock: p.clk, Node: -1})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return port, nil
}

// bench is the pair for nictest.
func (p *pair) bench(t testing.TB) *nictest.Bench {
	link := func(up bool) {
		for i := range cards {
			mustAsk(t, `{"do":"link","card":%d,"up":%t}`, i, up)
		}
	}
	link(true) // a test that failed may have left it
	var b *nictest.Bench
	removed := make(chan error, len(cards))
	removals := 0
	b = nictest.InRealTime(&nictest.Bench{
		A: p.ports[0], B: p.ports[1], Clock: p.clk, MinFrame: minFrame, Late: wakeTime,
		NewPool: func(cfg mbuf.Config) (*mbuf.Pool, error) {
			cfg.Space = p.space
			return mbuf.NewPool(cfg)
		},
		ForeignPool: func(cfg mbuf.Config) (*mbuf.Pool, error) {
			cfg.Space = vtop.NewMapped()
			return mbuf.NewPool(cfg)
		},
		Settle:  func() { settle(t) },
		Misuse:  misuse,
		SetLink: link,
		Close: func() error {
			err := p.close()
			for range removals {
				err = errors.Join(err, <-removed)
			}
			if removals > 0 {
				rescan(t)
			}
			return err
		},
	})
	if p.access != pci.VFIO {
		return b // without VFIO nobody is told that the kernel wants a card back
	}
	b.Remove = func(port nic.Port) {
		i := 0
		if port == b.B {
			i = 1
		}
		removals++
		go func() { removed <- os.WriteFile("/sys/bus/pci/devices/"+cards[i]+"/remove", []byte("1"), 0) }()
		for port.Err() == nil {
			pause(time.Millisecond)
		}
		pause(settleTime) // the queues stand still a little later
	}
	return b
}

// minFrame is what an 82599 pads shorter frames to, bytes without FCS.
const minFrame = 60

// wakeTime is how late an interrupt may come here, where it goes through two processes that others keep from the processor.
const wakeTime = 5 * time.Second

// settleTime is long for cards that take microseconds, and for an emulated processor that is behind.
const settleTime = 30 * time.Millisecond

// settle waits until the wire has delivered what it has.
func settle(t testing.TB) {
	t.Helper()
	for {
		before := mustAsk(t, `{"do":"wire"}`)
		pause(settleTime)
		if after := mustAsk(t, `{"do":"wire"}`); after.AToB == before.AToB && after.BToA == before.BToA {
			return
		}
	}
}
