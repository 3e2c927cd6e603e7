package device

import (
	"context"
	"sync/atomic"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim"
)

// steppedPort is a port whose card is stepped by whoever uses it: before it looks for what the card has done, and after
// it has given the card something to do.
type steppedPort struct {
	nic.Port
	world *sim.World
	rx    []steppedRx
	tx    []steppedTx
	link  nap
}

// Start implements nic.Port.
func (p *steppedPort) Start(ctx context.Context, cfg nic.Config) error {
	if err := p.Port.Start(ctx, cfg); err != nil {
		return err
	}
	p.endNaps() // a caller who never called again after Arm
	p.rx = make([]steppedRx, max(1, cfg.RxQueues))
	for i := range p.rx {
		p.rx[i].inner, p.rx[i].nap.world = p.Port.Rx(i), p.world
	}
	p.tx = make([]steppedTx, max(1, cfg.TxQueues))
	for i := range p.tx {
		p.tx[i].inner, p.tx[i].nap.world = p.Port.Tx(i), p.world
	}
	return nil
}

// Stop implements nic.Port. Nobody sleeps on a stopped port.
func (p *steppedPort) Stop() error {
	p.endNaps()
	return p.Port.Stop()
}

// Close implements nic.Port.
func (p *steppedPort) Close() error {
	p.endNaps()
	return p.Port.Close()
}

// endNaps lets the world rest: who sleeps on a port that stops is woken by the driver.
func (p *steppedPort) endNaps() {
	p.link.end()
	for i := range p.rx {
		p.rx[i].nap.end()
	}
	for i := range p.tx {
		p.tx[i].nap.end()
	}
}

func (p *steppedPort) Rx(i int) nic.RxQueue { return &p.rx[i] }
func (p *steppedPort) Tx(i int) nic.TxQueue { return &p.tx[i] }

// ArmLink lets the world step itself until the next Housekeep.
func (p *steppedPort) ArmLink(w *nic.Waiter, seen nic.Link) bool {
	if !p.Port.ArmLink(w, seen) {
		return false
	}
	p.link.begin()
	return p.Port.ArmLink(w, seen)
}

func (p *steppedPort) Housekeep(now time.Time) {
	p.link.end()
	p.world.Step()
	p.Port.Housekeep(now)
}

func (p *steppedPort) Stats() nic.Stats {
	p.world.Step()
	return p.Port.Stats()
}

// Unwrap returns the driver's own port.
func (p *steppedPort) Unwrap() nic.Port { return p.Port }

// nap keeps the world stepping itself while the owner of a queue may be asleep: from Arm to the next call, or until the port
// is stopped, which another goroutine may do.
type nap struct {
	world *sim.World
	on    atomic.Bool
}

func (n *nap) begin() {
	if n.on.CompareAndSwap(false, true) {
		n.world.ArmTimer()
	}
}

// end is called at every burst: mostly it is a load.
func (n *nap) end() {
	if n.on.Load() && n.on.CompareAndSwap(true, false) {
		n.world.DisarmTimer()
	}
}

type steppedRx struct {
	inner nic.RxQueue
	nap   nap
}

func (q *steppedRx) Recv(into []*mbuf.Buf) int {
	q.nap.end()
	q.nap.world.Step()
	return q.inner.Recv(into)
}

// Arm lets the world step itself while the caller sleeps. It may have stepped before the second look.
func (q *steppedRx) Arm(w *nic.Waiter) bool {
	if !q.inner.Arm(w) {
		return false
	}
	q.nap.begin()
	return q.inner.Arm(w)
}

type steppedTx struct {
	inner nic.TxQueue
	nap   nap
}

func (q *steppedTx) Send(pkts []*mbuf.Buf) int {
	q.nap.end()
	n := q.inner.Send(pkts)
	q.nap.world.Step()
	return n
}

func (q *steppedTx) Reclaim() int {
	q.nap.end()
	q.nap.world.Step()
	return q.inner.Reclaim()
}

func (q *steppedTx) Arm(w *nic.Waiter) bool {
	if !q.inner.Arm(w) {
		return false
	}
	q.nap.begin()
	return q.inner.Arm(w)
}
