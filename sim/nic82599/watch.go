package nic82599

import (
	"bare.wire/ixgbe/reg"
	"bare.wire/sim"
)

// watcher looks after the buffers that the driver has lent to the card.
type watcher struct {
	on bool
	rx map[uint64]lentBuf // receive buffers given and not yet returned, by bus address
}

// lentBuf is a buffer the card has.
type lentBuf struct {
	bus   uint64
	n     int
	sum   uint64 // of its bytes when it was lent
	queue int
	desc  int
}

// watched is how many bytes of a receive buffer are looked at.
const watched = 128

func (w *watcher) init(on bool) {
	w.on = on
	w.reset()
}

func (w *watcher) reset() { w.rx = make(map[uint64]lentBuf) }

func (w *watcher) forgetRx(q int) {
	for bus, b := range w.rx {
		if b.queue == q {
			delete(w.rx, bus)
		}
	}
}

func (w *watcher) takeRx(bus uint64) { delete(w.rx, bus) }

// sumAt is a checksum of n bytes at bus; ok is false where the card may not read them.
func (c *Card) sumAt(bus uint64, n int) (h uint64, ok bool) {
	h = uint64(n)
	for n > 0 {
		b, err := c.mem.Bytes(bus, n)
		if err != nil || len(b) == 0 {
			return 0, false
		}
		h = sim.Fingerprint(h, b)
		bus += uint64(len(b))
		n -= len(b)
	}
	return h, true
}

// watchRxGiven looks at the descriptors between the old tail and the new one.
func (c *Card) watchRxGiven(q *rxQueue, tail int) {
	for i := q.tail; i != tail; i = q.step(i, 1) {
		b := c.descs(&q.queue, i, 1)
		if b == nil {
			return
		}
		bus := load(b)
		if was, dup := c.watch.rx[bus]; dup {
			c.wrong(RxBufferTwice, q.id, "buffer %#x in descriptor %d, also in %d of queue %d", bus, i, was.desc, was.queue)
		}
		h, _ := c.sumAt(bus, watched)
		c.watch.rx[bus] = lentBuf{bus: bus, n: watched, sum: h, queue: q.id, desc: i}
	}
}

// watchRxFilled looks at a buffer right before the card writes to it.
func (c *Card) watchRxFilled(q *rxQueue, bus uint64) {
	b, ok := c.watch.rx[bus]
	if !ok {
		return
	}
	if h, ok := c.sumAt(bus, b.n); ok && h != b.sum {
		c.wrong(RxBufferTouched, q.id, "buffer %#x, descriptor %d", bus, b.desc)
	}
	// From here on what it holds is the card's own doing, even if it is never written back.
	b.n, b.sum = 0, 0
	c.watch.rx[bus] = b
}

// settleTime is how long a receive queue's buffers stay the card's after ENABLE reads back clear, ns (§4.6.7.1).
const settleTime = 100_000

// watchRxStopped looks at the buffers of a disabled queue at the end of that time.
func (c *Card) watchRxStopped(q *rxQueue) {
	q.lull = 0
	for bus, b := range c.watch.rx {
		if b.queue == q.id {
			c.watchRxFilled(q, bus)
		}
	}
	c.watch.forgetRx(q.id)
}

// watchTxFetched remembers what a transmit buffer holds.
func (c *Card) watchTxFetched(d *txDesc) {
	if !d.isContext() {
		d.sum, _ = c.sumAt(d.addr, int(d.w1&reg.TXD_DTALEN))
	}
}

// watchTxSent notes the buffers of n descriptors that have been sent and not yet reported.
func (c *Card) watchTxSent(q *txQueue, n int) {
	for i := range n {
		d := &q.cache[(q.first+i)%cacheLen]
		if !d.isContext() {
			q.lent = append(q.lent, lentBuf{bus: d.addr, n: int(d.w1 & reg.TXD_DTALEN), sum: d.sum, desc: q.step(q.use, i)})
		}
	}
}

// watchTxReported looks at the buffers of descriptors that are about to be given back.
func (c *Card) watchTxReported(q *txQueue) {
	for _, b := range q.lent {
		if h, ok := c.sumAt(b.bus, b.n); !ok || h != b.sum {
			c.wrong(TxBufferTouched, q.id, "%d bytes at %#x, descriptor %d", b.n, b.bus, b.desc)
		}
	}
	q.lent = q.lent[:0]
}

func (c *Card) writeMTQC(v uint32) {
	if c.val(reg.RTTDCS)&reg.RTTDCS_ARBDIS == 0 {
		c.wrong(MTQCWithoutARBDIS, -1, "MTQC = %08X", v)
	}
	if v != 0 {
		c.wrong(Unsupported, -1, "MTQC = %08X: traffic classes and pools", v)
	}
}
