//go:build guest

package vfio

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"bare.wire/clock"
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
	opener *pci.Opener
}

// openPair opens both cards; access is the way to them.
func openPair(t testing.TB, access pci.Access) *pair {
	t.Helper()
	p := &pair{space: vtop.NewMapped(), clk: clock.Real()}
	if access != pci.VFIO {
		var err error
		if p.space, err = vtop.NewPhysical(); err != nil {
			t.Fatal(err)
		}
	}
	p.opener = (&pci.Host{}).NewOpener(p.space, pci.OpenOptions{Access: access})
	for i, c := range cards {
		port, err := p.open(c)
		if err != nil {
			t.Fatal(errors.Join(err, p.opener.Close()))
		}
		p.ports[i] = port
	}
	return p
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
	return &nictest.Bench{
		A: &lockedPort{Port: p.ports[0]}, B: &lockedPort{Port: p.ports[1]}, Clock: p.clk, MinFrame: minFrame,
		NewPool: func(cfg mbuf.Config) (*mbuf.Pool, error) {
			cfg.Space = p.space
			return mbuf.NewPool(cfg)
		},
		ForeignPool: func(cfg mbuf.Config) (*mbuf.Pool, error) {
			cfg.Space = vtop.NewMapped()
			return mbuf.NewPool(cfg)
		},
		Settle: func() { settle(t) },
		Misuse: misuse,
		SetLink: func(up bool) {
			mustAsk(t, `{"do":"link","card":0,"up":%t}`, up)
			mustAsk(t, `{"do":"link","card":1,"up":%t}`, up)
		},
		Close: p.opener.Close,
	}
}

// minFrame is what an 82599 pads shorter frames to, bytes without FCS.
const minFrame = 60

// settleTime is long for cards that take microseconds, and for an emulated processor that is behind.
const settleTime = 30 * time.Millisecond

// settle waits until the wire has delivered what it has.
func settle(t testing.TB) {
	t.Helper()
	for {
		before := mustAsk(t, `{"do":"wire"}`)
		time.Sleep(settleTime)
		if after := mustAsk(t, `{"do":"wire"}`); after.AToB == before.AToB && after.BToA == before.BToA {
			return
		}
	}
}

// lockedPort lets the timers of nictest, which in real time have goroutines of their own, use a queue beside the test.
type lockedPort struct {
	nic.Port
	mu sync.Mutex
}

func (p *lockedPort) Tx(i int) nic.TxQueue { return &lockedTx{p.Port.Tx(i), &p.mu} }

type lockedTx struct {
	q  nic.TxQueue
	mu *sync.Mutex
}

func (q *lockedTx) Send(pkts []*mbuf.Buf) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.q.Send(pkts)
}

func (q *lockedTx) Reclaim() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.q.Reclaim()
}

func (q *lockedTx) Arm(w *nic.Waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.q.Arm(w)
}
