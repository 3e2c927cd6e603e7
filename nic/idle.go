package nic

import "runtime"

// Armer is what can be slept on: an RxQueue, a TxQueue.
type Armer interface {
	Arm(w *Waiter) bool
}

// Idle decides when a worker that polls its queues goes to sleep: after a number of rounds in which there was nothing to do.
// It calls Round at the end of each.
//
//	idle := nic.NewIdle(w, 100, port.Rx(0), port.Tx(0))
//	for {
//		n := port.Rx(0).Recv(bufs)
//		…
//		if _, err := idle.Round(n, clk.Nanos()+int64(time.Second)); err != nil {
//			return err
//		}
//	}
//
// A worker with traffic polls and takes no interrupt; one without sleeps and costs nothing. No wake is lost: the queues are
// armed before the sleep, and one that has work by then says so. context.AfterFunc(ctx, w.Wake) ends a sleep with ctx.
//
// The rounds before a sleep keep a worker awake between frames that come closely, which saves it an interrupt and a wake
// (some microseconds) for each. They give way to other goroutines.
type Idle struct {
	w      *Waiter
	queues []Armer
	rounds int
	empty  int // rounds without work so far
}

// NewIdle returns an Idle that sleeps on w after the given number of rounds without work (0: at the first) until one of queues
// has some. Of what it is given, transmit queues are reclaimed first: frames that have been sent are not kept through a sleep.
func NewIdle(w *Waiter, rounds int, queues ...Armer) *Idle {
	return &Idle{w: w, queues: queues, rounds: rounds}
}

// Round ends a round in which the worker did work things, frames for example. It returns at once when that was more than none,
// or when there have not been enough empty rounds; otherwise it sleeps, at most until deadline (ns of the Waiter's clock;
// math.MaxInt64: for ever), and says so. Look for work after it. The error is the Waiter's, such as why a port is gone: whom
// that finds awake sees it at Port.Err, as nobody can be armed any more.
func (d *Idle) Round(work int, deadline int64) (slept bool, err error) {
	if work > 0 {
		d.empty = 0
		return false, nil
	}
	if d.empty < d.rounds {
		d.empty++
		runtime.Gosched()
		return false, nil
	}
	for _, q := range d.queues {
		if tx, ok := q.(interface{ Reclaim() int }); ok {
			tx.Reclaim()
		}
		if !q.Arm(d.w) {
			return false, nil // what is armed already may wake once for nothing
		}
	}
	d.empty = 0
	_, err = d.w.Wait(deadline)
	return true, err
}
