package nictest

import (
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
)

// World is where software devices live that work when somebody has them take a step.
type World interface {
	Step()
	ArmTimer() // has the devices step by themselves from now on
}

// SteppedPort is a port of a device in a World. The world takes a step wherever a worker would wait for the device; whoever goes
// to sleep arms it.
type SteppedPort struct {
	nic.Port
	world World
	rx    map[nic.RxQueue]*steppedRx
	tx    map[nic.TxQueue]*steppedTx
}

// Stepped makes a SteppedPort of a driver's.
func Stepped(p nic.Port, w World) *SteppedPort {
	return &SteppedPort{Port: p, world: w, rx: map[nic.RxQueue]*steppedRx{}, tx: map[nic.TxQueue]*steppedTx{}}
}

// Rx implements nic.Port.
func (p *SteppedPort) Rx(i int) nic.RxQueue {
	q := p.Port.Rx(i)
	if p.rx[q] == nil {
		p.rx[q] = &steppedRx{q, p.world}
	}
	return p.rx[q]
}

// Tx implements nic.Port.
func (p *SteppedPort) Tx(i int) nic.TxQueue {
	q := p.Port.Tx(i)
	if p.tx[q] == nil {
		p.tx[q] = &steppedTx{q, p.world}
	}
	return p.tx[q]
}

// ArmLink implements nic.Port.
func (p *SteppedPort) ArmLink(w *nic.Waiter, seen nic.Link) bool {
	if !p.Port.ArmLink(w, seen) {
		return false
	}
	p.world.ArmTimer()
	return p.Port.ArmLink(w, seen)
}

// Housekeep implements nic.Port.
func (p *SteppedPort) Housekeep(now time.Time) {
	p.world.Step()
	p.Port.Housekeep(now)
}

// Stats implements nic.Port.
func (p *SteppedPort) Stats() nic.Stats {
	p.world.Step()
	return p.Port.Stats()
}

type steppedRx struct {
	nic.RxQueue
	world World
}

func (q *steppedRx) Recv(into []*mbuf.Buf) int {
	q.world.Step()
	return q.RxQueue.Recv(into)
}

func (q *steppedRx) Arm(w *nic.Waiter) bool {
	q.world.Step()
	if !q.RxQueue.Arm(w) {
		return false
	}
	q.world.ArmTimer()
	return q.RxQueue.Arm(w)
}

type steppedTx struct {
	nic.TxQueue
	world World
}

func (q *steppedTx) Send(pkts []*mbuf.Buf) int {
	n := q.TxQueue.Send(pkts)
	q.world.Step()
	return n
}

func (q *steppedTx) Reclaim() int {
	q.world.Step()
	return q.TxQueue.Reclaim()
}

func (q *steppedTx) Arm(w *nic.Waiter) bool {
	q.world.Step()
	if !q.TxQueue.Arm(w) {
		return false
	}
	q.world.ArmTimer()
	return q.TxQueue.Arm(w)
}
