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
		p.rx[i] = steppedRx{p.Port.Rx(i), p.world}
	}
	p.tx = make([]steppedTx, max(1, cfg.TxQueues))
	for i := range p.tx {
		p.tx[i] = steppedTx{p.Port.Tx(i), p.world}
	}
	return nil
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

type steppedRx struct {
	inner nic.RxQueue
	world *sim.World
}

func (q *steppedRx) Recv(into []*mbuf.Buf) int {
	q.world.Step()
	return q.inner.Recv(into)
}

// Arm lets the world step itself while the caller sleeps.
func (q *steppedRx) Arm(w *nic.Waiter) bool {
	if !q.inner.Arm(w) {
		return false
	}
	q.world.ArmTimer()
	return q.inner.Arm(w)
}

type steppedTx struct {
	inner nic.TxQueue
	world *sim.World
}

func (q *steppedTx) Send(pkts []*mbuf.Buf) int {
	n := q.inner.Send(pkts)
	q.world.Step()
	return n
}

func (q *steppedTx) Reclaim() int {
	q.world.Step()
	return q.inner.Reclaim()
}

func (q *steppedTx) Arm(w *nic.Waiter) bool {
	if !q.inner.Arm(w) {
		return false
	}
	q.world.ArmTimer()
	return q.inner.Arm(w)
}
