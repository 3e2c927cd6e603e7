package nictest

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bare.wire/clock"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

// InRealTime makes b, whose ports live in the machine's own time, fit for the suite: the suite's timers, which have goroutines of their own
// then, may use the ports' transmit queues beside a test, and short sleeps do without the runtime's timers, which allocate.
func InRealTime(b *Bench) *Bench {
	b.A, b.B, b.Clock = &lockedPort{Port: b.A}, &lockedPort{Port: b.B}, &napClock{Clock: b.Clock}
	return b
}

// lockedPort is a port whose transmit queues take one call at a time.
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

// napClock has the kernel wait for short times.
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
