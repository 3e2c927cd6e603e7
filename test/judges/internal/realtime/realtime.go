// Package realtime makes ports and clocks fit for the conformance suite (nic/nictest) where time is the machine's and not virtual.
package realtime

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bare.wire/clock"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

// Locked lets the suite's timers, which in real time have goroutines of their own, use a port's transmit queues beside the test.
func Locked(p nic.Port) nic.Port { return &lockedPort{Port: p} }

type lockedPort struct {
	nic.Port
	mu  sync.Mutex
	txs [64]*lockedTx
}

func (p *lockedPort) Tx(i int) nic.TxQueue {
	q := p.Port.Tx(i)
	if p.txs[i] == nil || p.txs[i].q != q { // a Start makes new ones
		p.txs[i] = &lockedTx{q, &p.mu}
	}
	return p.txs[i]
}

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

// Clock is a clock that sleeps short times without the timers of the runtime, which allocate.
func Clock(c clock.Clock) clock.Clock { return &napClock{Clock: c} }

type napClock struct {
	clock.Clock
	nap unix.Timespec
}

// Sleep implements clock.Clock, for one goroutine.
func (c *napClock) Sleep(ctx context.Context, d time.Duration) error {
	if d > 100*time.Microsecond {
		return c.Clock.Sleep(ctx, d)
	}
	c.nap = unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&c.nap, nil) // a signal makes it shorter
	return ctx.Err()
}
