package nic82599

import (
	"math/bits"
	"sync"

	"bare.wire/ixgbe/reg"
	"bare.wire/sim"
)

// Vectors is the number of interrupt vectors: MSI-X has one for each bit of EICR_EX, INTx and MSI use vector 0.
const Vectors = 64

// interrupts are causes, masks, and who is to be told. Queues' causes, as IVAR assigns them, are bits of cause: 0…15 are
// those of EICR, and all are those of the _EX registers. Other causes are bits 16…31 of EICR.
type interrupts struct {
	cause, mask    uint64
	misc, miscMask uint32
	fired          [Vectors]int64 // when each vector last fired: EITR
	held           uint64         // vectors that wait for EITR
	raised         [Vectors]func()

	mu      sync.Mutex
	idle    *sync.Cond
	running int
	handler func(vector int)
}

func (s *interrupts) init(c *Card) {
	s.idle = sync.NewCond(&s.mu)
	for v := range s.raised {
		s.raised[v] = func() { s.deliver(v) }
	}
}

func (s *interrupts) reset() {
	s.cause, s.mask, s.misc, s.miscMask, s.held = 0, 0, 0, 0, 0
	s.fired = [Vectors]int64{}
	for v := range s.fired {
		s.fired[v] = -1 << 62
	}
}

// Interrupts has f called, with the number of the vector, whenever the card interrupts, and returns how many vectors there
// are of the n asked for. f is called on the goroutine that touched the card, without the world's lock. A nil f switches
// interrupts off: when it returns, f is not running and will not run. It must not be called from f.
func (c *Card) Interrupts(n int, f func(vector int)) (int, error) {
	s := &c.irq
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = f
	for f == nil && s.running > 0 {
		s.idle.Wait()
	}
	return max(1, min(n, Vectors)), nil
}

// OnInterrupt is Interrupts with all vectors.
func (c *Card) OnInterrupt(f func(vector int)) { _, _ = c.Interrupts(Vectors, f) }

func (s *interrupts) deliver(v int) {
	s.mu.Lock()
	f := s.handler
	if f == nil {
		s.mu.Unlock()
		return
	}
	s.running++
	s.mu.Unlock()
	f(v)
	s.mu.Lock()
	if s.running--; s.running == 0 {
		s.idle.Broadcast()
	}
	s.mu.Unlock()
}

// miscBits are the bits of EICR, EIMS and the like that are no queue's.
const miscBits = 0xFFFF0000

func (c *Card) msix() bool { return c.val(reg.GPIE)&reg.GPIE_MSIX_MODE != 0 }

// raise sets vectors' causes and misc causes, and interrupts for those that are enabled.
func (c *Card) raise(causes uint64, misc uint32) {
	s := &c.irq
	fresh, freshMisc := causes&^s.cause, misc&^s.misc
	s.cause |= causes
	s.misc |= misc
	c.interrupt(fresh&s.mask, freshMisc&s.miscMask)
}

// interrupt sends messages for causes that are enabled and have just been set, or are set and have just been enabled.
func (c *Card) interrupt(causes uint64, misc uint32) {
	if causes == 0 && misc == 0 {
		return
	}
	if !c.msix() {
		c.fire(0, causes, misc)
		return
	}
	if misc != 0 { // these share the vector of IVAR_MISC
		if v := c.val(reg.IVAR_MISC) >> 8; v&0x80 != 0 {
			c.fire(int(v&0x3F), 0, misc)
		}
	}
	for ; causes != 0; causes &= causes - 1 {
		v := bits.TrailingZeros64(causes)
		c.fire(v, 1<<v, 0)
	}
}

// gap is the shortest time between two interrupts of a vector, ns.
func (c *Card) gap(v int) int64 {
	return int64(reg.Get(c.val(reg.EITR(v)), reg.EITR_INTERVAL)) * 2048
}

// fire sends the message of a vector, or holds it back until EITR allows it.
func (c *Card) fire(v int, causes uint64, misc uint32) {
	s := &c.irq
	if c.now < s.fired[v]+c.gap(v) {
		s.held |= 1 << v
		return
	}
	s.fired[v] = c.now
	c.count.Interrupts++
	if c.msix() {
		auto := c.val(reg.EIAC)
		s.cause &^= causes & uint64(auto&^miscBits)
		s.misc &^= misc & auto
	}
	if c.val(reg.GPIE)&reg.GPIE_EIAME != 0 && !c.cfg.Faults.NoAutoMask {
		am := c.val(reg.EIAM)
		ex := uint64(c.val(reg.EIAM_EX(0))) | uint64(c.val(reg.EIAM_EX(1)))<<32
		s.mask &^= causes & (uint64(am&^miscBits) | ex)
		s.miscMask &^= misc & am
	}
	c.w.Defer(s.raised[v])
}

// runInterrupts sends what EITR held back and is due now.
func (c *Card) runInterrupts() int64 {
	s := &c.irq
	next := sim.Never
	for held := s.held; held != 0; held &= held - 1 {
		v := bits.TrailingZeros64(held)
		if due := s.fired[v] + c.gap(v); c.now < due {
			next = min(next, due)
			continue
		}
		s.held &^= 1 << v
		causes, misc := s.cause&s.mask, s.misc&s.miscMask
		if c.msix() {
			causes &= 1 << v
			if m := c.val(reg.IVAR_MISC) >> 8; m&0x80 == 0 || int(m&0x3F) != v {
				misc = 0
			}
		}
		if causes != 0 || misc != 0 {
			c.fire(v, causes, misc)
		}
	}
	return next
}

// causes is what EICR holds.
func (c *Card) causes() uint32 { return c.irq.misc | uint32(c.irq.cause)&^miscBits }

// readEICR returns the causes and clears them, all or, with GPIE.OCD, those that are no queue's.
func (c *Card) readEICR() uint32 {
	s := &c.irq
	v := c.causes()
	s.misc = 0
	if c.val(reg.GPIE)&reg.GPIE_OCD == 0 {
		s.cause &^= 0xFFFF
	}
	c.autoMask()
	return v
}

// writeEICR clears the causes that are written.
func (c *Card) writeEICR(v uint32) {
	causes, misc := split(v)
	c.irq.cause &^= causes
	c.irq.misc &^= misc
	c.autoMask()
}

// autoMask is what an access to EICR does unless messages do it (GPIE.EIAME): all that EIAM names is masked, whether or not
// it is a cause of this interrupt. Whoever waits for another cause has to unmask it again.
func (c *Card) autoMask() {
	if c.msix() && c.val(reg.GPIE)&reg.GPIE_EIAME != 0 || c.cfg.Faults.NoAutoMask {
		return
	}
	causes, misc := split(c.val(reg.EIAM))
	c.irq.mask &^= causes
	c.irq.miscMask &^= misc
}

// enableInterrupts is a write of ones to the mask; a cause that is waiting interrupts at once.
func (c *Card) enableInterrupts(m uint64, misc uint32) {
	s := &c.irq
	fresh, freshMisc := m&^s.mask, misc&^s.miscMask
	s.mask |= m
	s.miscMask |= misc
	if fresh != 0 {
		// Who enables all vectors at once, the unused with them, means no harm.
		if mapped := c.mappedVectors(); fresh&mapped == 0 && bits.OnesCount64(m) < 16 {
			c.wrong(InterruptUnmapped, -1, "mask bit %d", bits.TrailingZeros64(fresh))
		}
	}
	c.interrupt(s.cause&fresh, s.misc&freshMisc)
}

// split divides a value of EIMS and the like into queues' bits and others.
func split(v uint32) (causes uint64, misc uint32) { return uint64(v &^ miscBits), v & miscBits }

// mappedVectors are the cause bits of queues that some valid IVAR entry leads to.
func (c *Card) mappedVectors() (m uint64) {
	for n := range reg.IVAR_Count {
		for v := c.val(reg.IVAR(n)); v != 0; v >>= 8 {
			if v&0x80 != 0 {
				m |= 1 << (v & 0x3F)
			}
		}
	}
	return m
}

// queueCause raises the interrupt of a queue, if it has one.
func (c *Card) queueCause(q int, tx bool) {
	shift := q & 1 * 16
	if tx {
		shift += 8
	}
	if v := c.val(reg.IVAR(q/2)) >> shift; v&0x80 != 0 && !c.cfg.Faults.NoQueueIRQ {
		c.raise(1<<(v&0x3F), 0)
	}
}
