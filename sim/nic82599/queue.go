package nic82599

import (
	"bare.wire/ixgbe/reg"
)

// qstate is where a queue stands between its ENABLE being written and being obeyed.
type qstate uint8

const (
	qOff qstate = iota
	qEnabling
	qOn
	qDisabling
)

// cacheLen is how many descriptors a queue fetches ahead at most.
const cacheLen = 64

// maxDesc is the longest ring in descriptors.
const maxDesc = 8192

// queue is what receive and transmit queues have in common. Indices are positions in the ring, in this order going round:
//
//	head ≤ use ≤ fetch ≤ tail
//
// From head to use the card has done its work but not said so in memory; from use to fetch it has the descriptors; up to
// tail it may fetch them; the rest is the driver's.
type queue struct {
	id    int
	state qstate
	seen  bool // ENABLE has been read back set
	wasOn bool // since the last reset
	hung  bool // did something from which only a reset leads out
	late  late

	base  uint64
	n     int // descriptors
	head  int
	use   int
	fetch int
	tail  int

	fetchAt int64 // when the fetch under way arrives; sim.Never: none is
	backAt  int64 // when the write-back under way happens; sim.Never: none is
}

// dist is how far it is from a to b, going round.
func (q *queue) dist(a, b int) int {
	if b -= a; b < 0 {
		b += q.n
	}
	return b
}

func (q *queue) step(i, by int) int {
	if i += by; i >= q.n {
		i -= q.n
	}
	return i
}

func (q *queue) cached() int { return q.dist(q.use, q.fetch) }

// wish is an ENABLE written to a queue.
func (c *Card) wish(q *queue, on bool) {
	switch {
	case on && q.state == qDisabling:
		c.wrong(EnableTwice, q.id, "ENABLE set before it read back clear")
		return
	case on && q.state == qOff:
		q.state, q.seen = qEnabling, false
	case !on && (q.state == qOn || q.state == qEnabling):
		q.state, q.seen = qDisabling, false
	default:
		return
	}
	q.late.start(c.now, c.rng.Delay(c.cfg.Timing.Enable), 2+c.rng.Below(4))
	never := c.cfg.Faults.DisableNever
	if on {
		never = c.cfg.Faults.EnableNever
	}
	if q.id < 64 && never>>q.id&1 != 0 {
		q.late.never()
	}
}

// tailAllowed checks a tail write; false: the write is lost.
func (c *Card) tailAllowed(q *queue, name string, v uint32) bool {
	switch {
	case q.state != qOn || !q.seen:
		if q.state != qOff || int(v) != q.head {
			c.wrong(TailBeforeEnable, q.id, "%s(%d) = %d", name, q.id, v)
		}
		return false
	case int(v) >= q.n:
		c.wrong(TailBeyondRing, q.id, "%s(%d) = %d, ring of %d", name, q.id, v, q.n)
		return false
	case q.dist(q.head, q.tail)+q.dist(q.tail, int(v)) >= q.n:
		c.wrong(TailPassedHead, q.id, "%s(%d) = %d, was %d, head %d", name, q.id, v, q.tail, q.head)
	}
	return true
}

// checkRing checks a ring as it is about to be enabled.
func (c *Card) checkRing(q *queue, length, lo, hi, head, tail uint32) bool {
	q.base = uint64(hi)<<32 | uint64(lo)
	q.n = int(length / reg.DescSize)
	if q.n == 0 || q.n > maxDesc || length%128 != 0 {
		c.wrong(RingLength, q.id, "%d bytes", length)
		return false
	}
	if head != tail {
		c.wrong(EnableNotEmpty, q.id, "head %d, tail %d", head, tail)
	}
	if int(head) >= q.n {
		head = 0
	}
	q.head, q.use, q.fetch, q.tail = int(head), int(head), int(head), int(head)
	return true
}

func (c *Card) ringQueue(rx bool, n int) *queue {
	if rx {
		return &c.rx.q[n].queue
	}
	return &c.tx.q[n].queue
}

func (c *Card) writeRingBase(r *cell, v uint32) {
	n := int(r.index)
	if v&^r.keep&0x7F != 0 && r.keep&0x7F == 0 {
		c.wrong(RingUnaligned, n, "%s = %08X", reg.Name(r.off), v)
	}
	if c.ringQueue(r.rx, n).state != qOff {
		c.wrong(RingChangedEnabled, n, "%s = %08X", reg.Name(r.off), v)
	}
}

func (c *Card) writeRingLen(r *cell, v uint32) {
	n := int(r.index)
	if v%128 != 0 || v > maxDesc*reg.DescSize {
		c.wrong(RingLength, n, "%s = %d", reg.Name(r.off), v)
	}
	if c.ringQueue(r.rx, n).state != qOff {
		c.wrong(RingChangedEnabled, n, "%s = %d", reg.Name(r.off), v)
	}
}

func (c *Card) writeHead(rx bool, n int, v uint32) {
	q := c.ringQueue(rx, n)
	if q.state != qOff {
		c.wrong(HeadWrittenEnabled, n, "head = %d, receive %v", v, rx)
		return
	}
	v &= 0xFFFF
	if rx {
		c.set(reg.RDH(n), v)
	} else {
		c.set(reg.TDH(n), v)
	}
	q.head = int(v)
}

func (c *Card) readHead(rx bool, n int) uint32 { return uint32(c.ringQueue(rx, n).head) }

// writeRDT is the receive doorbell.
func (c *Card) writeRDT(n int, v uint32) {
	q := &c.rx.q[n]
	v &= 0xFFFF
	if !c.tailAllowed(&q.queue, "RDT", v) {
		if q.state == qOff || q.n == 0 { // no ring: a register like any other
			c.set(reg.RDT(n), v)
		}
		return
	}
	if c.watch.on {
		c.watchRxGiven(q, int(v))
	}
	c.set(reg.RDT(n), v)
	q.tail = int(v)
	q.wantFetch(c, c.now)
	c.rx.live.set(n)
	c.kickAt(q.fetchAt)
}

// writeTDT is the transmit doorbell.
func (c *Card) writeTDT(n int, v uint32) {
	q := &c.tx.q[n]
	v &= 0xFFFF
	if !c.tailAllowed(&q.queue, "TDT", v) {
		if q.state == qOff || q.n == 0 { // no ring: a register like any other
			c.set(reg.TDT(n), v)
		}
		return
	}
	c.set(reg.TDT(n), v)
	q.tail = int(v)
	q.wantFetch(c, c.now)
	c.tx.live.set(n)
	c.kickAt(q.fetchAt)
}

// kickAt makes the world run the card at t if it would not have before.
func (c *Card) kickAt(t int64) {
	if t < c.next {
		c.next = t
		c.w.Poke()
	}
}

func (c *Card) writeRXDCTL(n int, old, v uint32) {
	q := &c.rx.q[n]
	c.set(reg.RXDCTL(n), v)
	switch on := v&reg.RXDCTL_ENABLE != 0; {
	case on && q.state == qOff:
		if c.checkRing(&q.queue, c.val(reg.RDLEN(n)), c.val(reg.RDBAL(n)), c.val(reg.RDBAH(n)), c.val(reg.RDH(n)), c.val(reg.RDT(n))) {
			c.checkRxQueue(q)
			q.begin(c)
		} else {
			q.hung = true
		}
		c.wish(&q.queue, true)
	case on != (old&reg.RXDCTL_ENABLE != 0):
		c.wish(&q.queue, on)
	}
	q.reload(c)
	c.rx.live.set(n)
	c.kick()
}

// checkRxQueue looks for what a driver forgets before it enables a receive queue.
func (c *Card) checkRxQueue(q *rxQueue) {
	n := q.id
	if c.val(reg.DCA_RXCTRL(n))&reg.DCA_RXCTRL_MUST_CLEAR != 0 {
		c.wrong(RelaxedOrderLeft, n, "DCA_RXCTRL(%d) = %08X", n, c.val(reg.DCA_RXCTRL(n)))
	}
	s := c.val(reg.SRRCTL(n))
	if s&reg.SRRCTL_BSIZEPKT == 0 {
		c.wrong(BufferSizeZero, n, "SRRCTL(%d) = %08X", n, s)
	}
	if t := reg.Get(s, reg.SRRCTL_DESCTYPE); t != 1 {
		c.wrong(Unsupported, n, "SRRCTL(%d).DESCTYPE = %d: only advanced, one buffer", n, t)
	}
}

func (c *Card) writeTXDCTL(n int, old, v uint32) {
	q := &c.tx.q[n]
	c.set(reg.TXDCTL(n), v)
	switch on := v&reg.TXDCTL_ENABLE != 0; {
	case on && q.state == qOff:
		if c.val(reg.DMATXCTL)&reg.DMATXCTL_TE == 0 {
			c.wrong(TxEnableBeforeTE, n, "TXDCTL(%d) = %08X", n, v)
		}
		if c.checkRing(&q.queue, c.val(reg.TDLEN(n)), c.val(reg.TDBAL(n)), c.val(reg.TDBAH(n)), c.val(reg.TDH(n)), c.val(reg.TDT(n))) {
			q.begin(c)
		} else {
			q.hung = true
		}
		c.wish(&q.queue, true)
	case on != (old&reg.TXDCTL_ENABLE != 0):
		if !on && q.use != q.tail && c.txFlows() && !q.hung {
			c.wrong(DisableBusy, n, "head %d, tail %d", q.head, q.tail)
		}
		c.wish(&q.queue, on)
	}
	c.tx.live.set(n)
	c.kick()
}

// readRXDCTL shows ENABLE as the queue obeys it, not as it was written.
func (c *Card) readRXDCTL(n int) uint32 {
	q := &c.rx.q[n]
	v := c.val(reg.RXDCTL(n))
	if (q.state == qEnabling || q.state == qDisabling) && q.late.poll(c.now) {
		q.late.at = min(q.late.at, c.now)
		c.settleRx(q)
	}
	return c.showEnable(&q.queue, v, reg.RXDCTL_ENABLE)
}

func (c *Card) readTXDCTL(n int) uint32 {
	q := &c.tx.q[n]
	v := c.val(reg.TXDCTL(n))
	if (q.state == qEnabling || q.state == qDisabling) && q.late.poll(c.now) {
		q.late.at = min(q.late.at, c.now)
		c.settleTx(q)
	}
	return c.showEnable(&q.queue, v, reg.TXDCTL_ENABLE)
}

func (c *Card) showEnable(q *queue, v, enable uint32) uint32 {
	v &^= enable
	if q.state == qOn {
		q.seen = true
	}
	if q.state == qOn || q.state == qDisabling {
		v |= enable
	}
	return v
}

// bitmap is a set of queues.
type bitmap [Queues / 64]uint64

func (b *bitmap) set(n int)   { b[n/64] |= 1 << (n % 64) }
func (b *bitmap) clear(n int) { b[n/64] &^= 1 << (n % 64) }
func (b *bitmap) empty() bool { return b[0]|b[1] == 0 }
