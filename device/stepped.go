package device

import (
	"context"
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
}

// Start implements nic.Port.
func (p *steppedPort) Start(ctx context.Context, cfg nic.Config) error {
	if err := p.Port.Start(ctx, cfg); err != nil {
		return err
	}
	p.rx = make([]steppedRx, max(1, cfg.RxQueues))
	for i := range p.rx {
		p.rx[i] = steppedRx{p.Port.Rx(i), nap{world: p.world}}
	}
	p.tx = make([]steppedTx, max(1, cfg.TxQueues))
	for i := range p.tx {
		p.tx[i] = steppedTx{p.Port.Tx(i), nap{world: p.world}}
	}
	return nil
}

// Stop implements nic.Port. Nobody sleeps on a stopped port.
func (p *steppedPort) Stop() error {
	p.wakeAll()
	return p.Port.Stop()
}

// Close implements nic.Port.
func (p *steppedPort) Close() error {
	p.wakeAll()
	return p.Port.Close()
}

func (p *steppedPort) wakeAll() {
	for i := range p.rx {
		p.rx[i].nap.end()
	}
	for i := range p.tx {
		p.tx[i].nap.end()
	}
}

func (p *steppedPort) Rx(i int) nic.RxQueue { return &p.rx[i] }
func (p *steppedPort) Tx(i int) nic.TxQueue { return &p.tx[i] }

func (p *steppedPort) Housekeep(now time.Time) {
	p.world.Step()
	p.Port.Housekeep(now)
}

func (p *steppedPort) Stats() nic.Stats {
	p.world.Step()
	return p.Port.Stats()
}

// Unwrap returns the driver's own port.
func (p *steppedPort) Unwrap() nic.Port { return p.Port }

// nap keeps the world stepping itself while the owner of a queue may be asleep: from Arm to the next call.
type nap struct {
	world *sim.World
	on    bool
}

func (n *nap) begin() {
	if !n.on {
		n.on = true
		n.world.ArmTimer()
	}
}

func (n *nap) end() {
	if n.on {
		n.on = false
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
