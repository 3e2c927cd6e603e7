package ixgbe

import (
	"context"
	"fmt"
	"sync/atomic"

	"bare.wire/ixgbe/reg"
	"bare.wire/nic"
)

// vector is one interrupt vector and those who sleep on it. A queue that is polled has its interrupt masked; Arm unmasks
// it for one wake, after which the card masks it again by itself (EIAM).
type vector struct {
	port    *Port
	number  int
	waiters []*atomic.Pointer[nic.Waiter]
}

// sleeper is a queue's place for the Waiter that is to be woken.
type sleeper struct {
	vector *vector
	waiter atomic.Pointer[nic.Waiter]
}

// arm notes w and lets the interrupt through. The caller then looks at its ring once more: what came in between raised
// none.
func (s *sleeper) arm(w *nic.Waiter) {
	s.waiter.Store(w)
	v := s.vector
	v.port.write(reg.EIMS_EX(v.number/32), 1<<(v.number%32))
}

// fire wakes everybody who sleeps on the vector; with an error, for good.
func (v *vector) fire(err error) {
	for _, s := range v.waiters {
		w := s.Swap(nil)
		switch {
		case w == nil:
		case err != nil:
			w.Fail(err)
		default:
			w.Wake()
		}
	}
}

// initInterrupts gives queues their vectors (§7.3.4.1): vector 0 is for the link and other causes, the rest are dealt out
// to the queues in turn. Without more than one vector all share it.
func (p *Port) initInterrupts(context.Context) error {
	pairs := max(len(p.rx), len(p.tx))
	n, err := p.fn.Interrupts(min(1+pairs, maxQueues), p.interrupt)
	if err != nil {
		return fmt.Errorf("%s: interrupts: %w", p.fn.Name(), err)
	}
	vectors := make([]*vector, n)
	for i := range vectors {
		vectors[i] = &vector{port: p, number: i}
	}
	for i, q := range p.rx {
		p.assign(vectors, i, &q.sleep, reg.IVAR_RX0_Shift)
	}
	for i, q := range p.tx {
		p.assign(vectors, i, &q.sleep, reg.IVAR_TX0_Shift)
	}
	p.vectors.Store(&vectors)
	p.write(reg.IVAR_MISC, reg.IVAR_MISC_OTHER_VALID)
	// MSI-X, auto-mask and auto-clear for queue vectors; EICR is not needed for them then (§7.3.1.4).
	p.write(reg.GPIE, reg.GPIE_MSIX_MODE|reg.GPIE_PBA_SUPPORT|reg.GPIE_OCD|reg.GPIE_EIAME)
	p.write(reg.EIAC, reg.EICR_RTX_QUEUE)
	for i := range reg.EIAM_EX_Count {
		p.write(reg.EIAM_EX(i), allOnes)
	}
	for i := 1; i < n; i++ {
		p.write(reg.EITR(i), 0)
	}
	p.write(reg.EIMS, reg.EICR_LSC)
	return nil
}

// assign writes the queue's byte of IVAR and makes its sleeper known to the vector.
func (p *Port) assign(vectors []*vector, queue int, s *sleeper, shift int) {
	number := 0
	if n := len(vectors); n > 1 {
		number = 1 + queue%(n-1)
	}
	s.vector = vectors[number]
	s.vector.waiters = append(s.vector.waiters, &s.waiter)
	shift += 16 * (queue % 2)
	p.put(reg.IVAR(queue/2), 0xff<<shift, (uint32(number)|reg.IVAR_ALLOC_VAL)<<shift)
}

// interrupt is called, on any goroutine, when a vector fires.
func (p *Port) interrupt(n int) {
	vectors := p.vectors.Load()
	if vectors == nil || n < 0 || n >= len(*vectors) {
		return
	}
	(*vectors)[n].fire(nil)
	if n == 0 && p.Err() == nil {
		if cause := p.read(reg.EICR); cause&reg.EICR_LSC != 0 && cause != allOnes {
			p.updateLink()
		}
		p.write(reg.EIMS, reg.EICR_LSC)
	}
}

// wakeAll wakes every sleeper: the port has stopped or gone, and they will see it.
func (p *Port) wakeAll(err error) {
	if vectors := p.vectors.Load(); vectors != nil {
		for _, v := range *vectors {
			v.fire(err)
		}
	}
}
