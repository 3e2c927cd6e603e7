package ixgbe

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"bare.wire/ixgbe/reg"
	"bare.wire/nic"
)

// vector is one interrupt cause of queues and those who sleep on it: bit number of EIMS_EX, which with MSI-X is a vector of
// its own. A queue that is polled has its interrupt masked; Arm unmasks it for one wake, after which the card masks it again by
// itself (EIAM).
type vector struct {
	port     *Port
	number   int
	enable   uint32 // the register that unmasks it
	sleepers []*nic.Sleeper
}

// sleeper is a queue's place for the Waiter that is to be woken, and the vector that wakes it.
type sleeper struct {
	nic.Sleeper
	vector *vector
}

// arm notes w and lets the interrupt through. The caller then looks at its ring once more: what came in between raised
// none.
func (s *sleeper) arm(w *nic.Waiter) {
	s.Note(w)
	v := s.vector
	v.port.write(v.enable, 1<<(v.number%32))
}

// fire wakes everybody who sleeps on the vector; with an error, for good.
func (v *vector) fire(err error) {
	for _, s := range v.sleepers {
		s.Fire(err)
	}
}

// hasSleepers says whether somebody is armed and has not been woken.
func (v *vector) hasSleepers() bool {
	return slices.ContainsFunc(v.sleepers, (*nic.Sleeper).Noted)
}

// messages is what a function says that may have no MSI-X: whether the vectors of its last Interrupts are MSI-X. If they are
// not there is one, MSI or a pin (INTx), and the cause is in EICR. Functions that do not say have MSI-X.
type messages interface {
	MSIX() bool
}

// initInterrupts gives queues their vectors (§7.3.4.1): with MSI-X, vector 0 is for the link and other causes, the rest are
// dealt out to the queues in turn, and if there is only one all share it. Otherwise the queues share the 16 causes that EICR
// has for them.
func (p *Port) initInterrupts(context.Context) error {
	pairs := max(len(p.rx), len(p.tx))
	n, err := p.fn.Interrupts(min(1+pairs, maxQueues), p.interrupt)
	if err != nil {
		return fmt.Errorf("%s: interrupts: %w", p.fn.Name(), err)
	}
	fn, says := p.fn.(messages)
	p.pin = says && !fn.MSIX()
	if p.pin {
		n = pinCauses
	}
	vectors := make([]*vector, n)
	for i := range vectors {
		vectors[i] = &vector{port: p, number: i, enable: reg.EIMS}
		if !p.pin {
			vectors[i].enable = reg.EIMS_EX(i / 32)
		}
	}
	for i, q := range p.rx {
		p.assign(vectors, i, &q.sleep, reg.IVAR_RX0_Shift)
	}
	for i, q := range p.tx {
		p.assign(vectors, i, &q.sleep, reg.IVAR_TX0_Shift)
	}
	p.vectors.Store(&vectors)
	if p.pin {
		p.initPin()
	} else {
		p.initVectors(n)
	}
	p.write(reg.EIMS, reg.EICR_LSC)
	return nil
}

// initVectors is MSI-X: auto-mask and auto-clear for queue vectors; EICR is not needed for them then (§7.3.1.4).
func (p *Port) initVectors(n int) {
	p.write(reg.IVAR_MISC, reg.IVAR_MISC_OTHER_VALID)
	p.write(reg.GPIE, reg.GPIE_MSIX_MODE|reg.GPIE_PBA_SUPPORT|reg.GPIE_OCD|reg.GPIE_EIAME)
	p.write(reg.EIAC, reg.EICR_RTX_QUEUE)
	for i := range reg.EIAM_EX_Count {
		p.write(reg.EIAM_EX(i), allOnes)
	}
	// Vector 0 is moderated only where queues share it: the link is in no hurry, but it is rare too.
	for i := min(1, n-1); i < n; i++ {
		p.write(reg.EITR(i), interruptInterval(p.cfg.InterruptInterval))
	}
}

// pinCauses is the number of queue causes in EICR.
const pinCauses = 16

// initPin is MSI and INTx: a read of EICR clears all causes and masks those of the queues (§7.3.1.3, §7.3.1.5).
func (p *Port) initPin() {
	p.write(reg.GPIE, 0)
	p.write(reg.EIAC, 0)
	p.write(reg.EIAM, reg.EICR_RTX_QUEUE)
	p.write(reg.EITR(0), interruptInterval(p.cfg.InterruptInterval))
}

// maxInterruptInterval is the longest time that EITR can count.
const maxInterruptInterval = time.Duration(reg.EITR_INTERVAL>>reg.EITR_INTERVAL_Shift) * reg.EITRUnitNanos

// interruptInterval is the value of EITR (§8.2.3.5.12) for a shortest time between interrupts, rounded up.
func interruptInterval(d time.Duration) uint32 {
	return uint32((d+reg.EITRUnitNanos-1)/reg.EITRUnitNanos) << reg.EITR_INTERVAL_Shift
}

// assign writes the queue's byte of IVAR and makes its sleeper known to the vector.
func (p *Port) assign(vectors []*vector, queue int, s *sleeper, shift int) {
	number, n := 0, len(vectors)
	switch {
	case p.pin:
		number = queue % n
	case n > 1:
		number = 1 + queue%(n-1)
	}
	s.vector = vectors[number]
	s.vector.sleepers = append(s.vector.sleepers, &s.Sleeper)
	shift += 16 * (queue % 2)
	p.put(reg.IVAR(queue/2), 0xff<<shift, (uint32(number)|reg.IVAR_ALLOC_VAL)<<shift)
}

// interrupt is called, on any goroutine, when a vector fires.
func (p *Port) interrupt(n int) {
	vectors := p.vectors.Load()
	if vectors == nil || n < 0 || n >= len(*vectors) {
		return
	}
	if p.pin {
		p.pinRaised(*vectors)
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

// pinRaised looks up who interrupts. Reading EICR also takes the request away, and masks all queues, those too that it has
// nothing of: for those who go on sleeping they are unmasked.
func (p *Port) pinRaised(vectors []*vector) {
	if p.Err() != nil {
		return
	}
	cause := p.read(reg.EICR)
	if cause == allOnes {
		return // nobody answers; Housekeep will find out
	}
	for queues := cause & reg.EICR_RTX_QUEUE; queues != 0; queues &= queues - 1 {
		vectors[bits.TrailingZeros32(queues)].fire(nil)
	}
	var asleep uint32
	for _, v := range vectors {
		if v.hasSleepers() {
			asleep |= 1 << v.number
		}
	}
	if asleep != 0 {
		p.write(reg.EIMS, asleep)
	}
	if cause&reg.EICR_LSC != 0 {
		p.updateLink()
	}
}

// wakeAll wakes every sleeper: the port has stopped or gone, and they will see it.
func (p *Port) wakeAll(err error) {
	p.link.Wake(err)
	if vectors := p.vectors.Load(); vectors != nil {
		for _, v := range *vectors {
			v.fire(err)
		}
	}
}
