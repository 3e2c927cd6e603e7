package nic82599

import (
	"hash/crc32"
	"math/bits"

	"bare.wire/ixgbe/reg"
	"bare.wire/sim"
)

// rxEngine is everything between wire and receive rings.
type rxEngine struct {
	q       [Queues]rxQueue
	live    bitmap // queues that have descriptors to fetch or to write back, or change state
	secSeen bool   // SECRXSTAT was seen ready since the path was stopped
	halt    bool   // nothing could be stored at the last step
	floor   int64  // and so nothing is stored as of before this time
	lag     int64  // how long the DMA takes to get to a frame that has arrived, drawn anew now and then
	drawn   int    // frames since it was
	buf     packetBuffer
	loop    loopback
	pkt     packet
	scratch []byte
	count   uint64 // frames stored, for Faults.RxErrors
	pause   pauser
	begun   int // bytes of the frame at the front of buf that are stored already
}

// group is how many descriptors are written back together: a cache line's worth.
const group = 4

// rxDesc is a descriptor that is done, to be written back.
type rxDesc struct {
	w0, w1 uint64
	addr   uint64
	late   []byte // the frame's bytes, with Faults.StaleData
}

// rxQueue is a receive queue.
type rxQueue struct {
	queue
	addrs   [cacheLen]uint64 // buffers of the descriptors fetched
	first   int              // slot of use
	done    [group]rxDesc
	nDone   int
	left    int   // of those, not yet written back, with Faults.ShuffledStatus
	readyAt int64 // when the latest fetch arrived

	bufLen int
	dropEn bool
	vme    bool
	lull   int64 // until when the buffers of a queue just disabled are looked after; 0: they are not
}

func (e *rxEngine) reset() {
	for i := range e.q {
		e.q[i] = rxQueue{queue: queue{id: i, fetchAt: sim.Never, backAt: sim.Never}}
	}
	e.live, e.secSeen, e.halt, e.lag, e.drawn, e.begun = bitmap{}, false, false, 0, 0, 0
	e.pause = pauser{}
	e.buf.reset()
	e.loop.reset()
}

// owes says whether a request is on the bus or a descriptor is to be written back. Without master no request is made.
func (e *rxEngine) owes(master bool) bool {
	for i := range e.q {
		if q := &e.q[i]; q.nDone > 0 || master && q.fetchAt != sim.Never && !q.hung {
			return true
		}
	}
	return false
}

// begin prepares a queue that is being enabled.
func (q *rxQueue) begin(c *Card) {
	q.hung, q.first, q.nDone, q.left, q.lull = false, 0, 0, 0, 0
	c.watch.forgetRx(q.id)
	q.fetchAt, q.backAt = sim.Never, sim.Never
	q.reload(c)
}

// reload takes what a frame needs to know of the queue from the registers.
func (q *rxQueue) reload(c *Card) {
	s := c.val(reg.SRRCTL(q.id))
	q.bufLen = int(s&reg.SRRCTL_BSIZEPKT) << 10
	q.dropEn = s&reg.SRRCTL_DROP_EN != 0
	q.vme = c.val(reg.RXDCTL(q.id))&reg.RXDCTL_VME != 0
}

// settleRx moves a queue on from enabling and disabling once it is time.
func (c *Card) settleRx(q *rxQueue) {
	if c.now < q.late.at {
		return
	}
	switch q.state {
	case qEnabling:
		q.state, q.wasOn = qOn, true
	case qDisabling:
		if q.nDone > 0 && c.busMaster() && !q.hung {
			c.reportRx(q)
			c.flushRx(q)
		}
		q.state, q.nDone, q.fetchAt, q.backAt = qOff, 0, sim.Never, sim.Never
		if c.watch.on {
			q.lull = c.now + settleTime
		}
		c.set(reg.RDH(q.id), uint32(q.head))
	}
}

// writeRXCTRL is the last step of receive set-up, checked for those before it.
func (c *Card) writeRXCTRL(old, v uint32) {
	if v&^old&reg.RXCTRL_RXEN == 0 {
		return
	}
	rings := false
	for i := range c.rx.q {
		rings = rings || c.rx.q[i].state == qOn || c.rx.q[i].state == qEnabling
	}
	if !rings {
		c.wrong(RXENBeforeRings, -1, "RXCTRL = %08X", v)
	}
	if c.val(reg.SECRXCTRL)&reg.SECRXCTRL_RX_DIS == 0 || !c.rx.secSeen {
		c.wrong(RXENWithoutSECRX, -1, "RXCTRL = %08X, SECRXCTRL %08X", v, c.val(reg.SECRXCTRL))
	}
	if (c.val(reg.HLREG0)&reg.HLREG0_RXCRCSTRP != 0) != (c.val(reg.RDRXCTL)&reg.RDRXCTL_CRCSTRIP != 0) {
		c.wrong(CRCStripMismatch, -1, "HLREG0 %08X, RDRXCTL %08X", c.val(reg.HLREG0), c.val(reg.RDRXCTL))
	}
	const one, zero = reg.RDRXCTL_RSCACKC | reg.RDRXCTL_FCOE_WRFIX, reg.RDRXCTL_RSCFRSTSIZE
	if c.val(reg.RDRXCTL)&(one|zero) != one {
		c.wrong(FixedBits, -1, "RDRXCTL %08X", c.val(reg.RDRXCTL))
	}
	if c.val(reg.CTRL_EXT)&reg.CTRL_EXT_NS_DIS == 0 {
		c.wrong(NoSnoopLeft, -1, "CTRL_EXT %08X", c.val(reg.CTRL_EXT))
	}
	c.checkSizes()
}

// checkSizes compares packet buffers and the frame limit with what there is.
func (c *Card) checkSizes() {
	rx, tx := uint32(0), uint32(0)
	for n := range reg.RXPBSIZE_Count {
		rx += c.val(reg.RXPBSIZE(n)) & reg.RXPBSIZE_SIZE
		tx += c.val(reg.TXPBSIZE(n)) & reg.TXPBSIZE_SIZE
	}
	if rx > 512<<10 || tx > 160<<10 {
		c.wrong(PacketBufferSize, -1, "%d KiB to receive, %d to send", rx>>10, tx>>10)
	}
	if c.val(reg.HLREG0)&reg.HLREG0_JUMBOEN != 0 && c.hot.maxRx > maxTx+fcsLen {
		c.wrong(RxFrameLimit, -1, "MAXFRS %08X", c.val(reg.MAXFRS))
	}
}

// checkRxSetup looks at writes that need the receiver to be off.
func (c *Card) checkRxSetup(r *cell, old, v uint32) {
	if c.val(reg.RXCTRL)&reg.RXCTRL_RXEN == 0 || old == v {
		return
	}
	if r.off == reg.HLREG0 && (old^v)&(reg.HLREG0_RXCRCSTRP|reg.HLREG0_JUMBOEN) == 0 {
		return
	}
	c.wrong(ChangedWithRXEN, -1, "%s = %08X, was %08X", reg.Name(r.off), v, old)
}

// runRx does what is due and returns when there is more.
func (c *Card) runRx() int64 {
	e := &c.rx
	next := c.runRxQueues()
	master := c.hot.master && !c.dmaStopped()
	if master && e.halt {
		e.floor = c.now
	}
	e.halt = !master
	budget := c.cfg.MaxStep
	if budget == 0 {
		budget = 1 << 30
	}
	for ; ; budget-- {
		if budget == 0 {
			return c.now + 1 + c.rng.Delay(c.cfg.Timing.DMA)
		}
		if f, at, bad, ok := e.buf.front(); ok {
			if master && c.deliver(f, max(at, e.floor), bad) {
				e.buf.pop()
				continue
			}
		}
		t := c.arrive(master)
		if t > c.now {
			next = min(next, t)
			break
		}
	}
	return min(next, c.runRxQueues(), c.runPause())
}

// runRxQueues does what the queues have due: state, fetches, write-backs.
func (c *Card) runRxQueues() int64 {
	e := &c.rx
	next := sim.Never
	for i := range e.live {
		for m := e.live[i]; m != 0; m &= m - 1 {
			next = min(next, c.runRxQueue(&e.q[i*64+bits.TrailingZeros64(m)]))
		}
	}
	return next
}

// runRxQueue does what one queue has due and returns when it has more to do.
func (c *Card) runRxQueue(q *rxQueue) int64 {
	next := sim.Never
	if q.state == qEnabling || q.state == qDisabling {
		if c.settleRx(q); q.state == qEnabling || q.state == qDisabling {
			if next = q.late.at; next >= 1<<62 {
				next = sim.Never
			}
		}
	}
	if q.backAt <= c.now && c.busMaster() {
		c.reportRx(q)
	}
	if q.fetchAt <= c.now && c.hot.master && !c.dmaStopped() && q.state == qOn && !q.hung {
		c.fetchRx(q)
	}
	busy := q.state == qEnabling || q.state == qDisabling
	if q.lull > 0 {
		if next = min(next, q.lull); q.lull <= c.now {
			c.watchRxStopped(q)
		}
		busy = busy || q.lull > 0
	}
	if q.fetchAt != sim.Never && q.state == qOn && !q.hung {
		busy = true
		if c.hot.master && !c.dmaStopped() {
			next = min(next, q.fetchAt)
		}
	}
	if q.nDone > 0 {
		busy = true
		if c.busMaster() {
			next = min(next, q.backAt)
		}
	}
	if !busy {
		c.rx.live.clear(q.id)
	}
	return next
}

// wantFetch starts a fetch if there is something to fetch and room for it.
func (q *rxQueue) wantFetch(c *Card, t int64) {
	if q.fetchAt == sim.Never && q.fetch != q.tail && q.cached() <= cacheLen/2 {
		q.fetchAt = t + c.rng.Delay(c.cfg.Timing.Fetch)
		c.rx.live.set(q.id)
	}
}

// fetchRx takes descriptors onto the card.
func (c *Card) fetchRx(q *rxQueue) {
	t := q.fetchAt
	q.fetchAt, q.readyAt = sim.Never, t
	n := min(cacheLen-q.cached(), q.dist(q.fetch, q.tail))
	if c.cfg.Faults.PartialFetch {
		n = min(n, 1)
	}
	for n > 0 {
		b := c.descs(&q.queue, q.fetch, n)
		if b == nil {
			return
		}
		k := len(b) / reg.DescSize
		if c.dma.On {
			c.logDMA(FetchRx, q.id, q.base+uint64(q.fetch)*reg.DescSize, len(b), t)
		}
		slot := q.first + q.cached()
		for i := range k {
			q.addrs[(slot+i)%cacheLen] = load(b[i*reg.DescSize:])
			// Linux's driver looks at the length, not at DD, and clears only that: with one buffer a descriptor the header
			// address, whose low bit this is, does not count.
			if w1 := load(b[i*reg.DescSize+8:]); w1&reg.RXD_DD != 0 && w1&reg.RXD_LEN != 0 {
				c.wrong(RxStatusNotClear, q.id, "descriptor %d: %016X", q.step(q.fetch, i), w1)
			}
		}
		q.fetch = q.step(q.fetch, k)
		n -= k
	}
	q.wantFetch(c, t)
}

// deliver stores a frame that has arrived at t in its queue's buffers. It returns false when the frame has to wait: for
// descriptors that are on their way, or, without DROP_EN, for descriptors that nobody has given yet; and everything behind
// it waits with it.
func (c *Card) deliver(f []byte, t int64, bad bool) bool {
	p := &c.rx.pkt
	p.parse(f, c.hot.vet)
	n, hash, typ := c.spread(p)
	q := &c.rx.q[n]
	if q.state != qOn || q.hung || q.bufLen == 0 {
		if !q.wasOn {
			c.wrong(RetaBeyondQueues, n, "hash %08X", hash)
		}
		c.rx.begun = 0
		return true
	}
	tagged := q.vme && be16(f[12:]) == c.hot.vet
	size := len(f)
	if tagged {
		size -= tagLen
	}
	if !c.hot.strip {
		size += fcsLen
	}
	if c.cfg.Faults.RxJumboCut && c.rx.begun == 0 && size > q.bufLen {
		f, size = f[:len(f)-(size-q.bufLen)], q.bufLen
	}
	need := (size - c.rx.begun + q.bufLen - 1) / q.bufLen
	if c.refill(q, need, t); q.hung {
		c.rx.begun = 0
		return true
	}
	missing := need > q.cached()
	if missing && c.starve(q, need) {
		return true
	}
	if missing && !c.mayBegin(q, need) {
		return false
	}
	t = max(t, q.readyAt)
	w0, w1 := c.describe(p, hash, typ, bad)
	if tagged {
		w1 |= reg.RXD_VP | uint64(c.tag(be16(f[14:])))<<48
	}
	if tagged || !c.hot.strip || c.cfg.Faults.RxByteFlipped {
		f = c.rebuild(f, tagged, bad)
	}
	if missing {
		part := q.cached() * q.bufLen
		c.fill(q, f[c.rx.begun:c.rx.begun+part], w0, 0, t)
		c.rx.begun += part
		return false
	}
	f = f[c.rx.begun:]
	c.rx.begun = 0
	c.rx.count++
	c.countQueue(q.id, size)
	c.countKinds(w1, tagged, need > 1)
	if w1&(reg.RXD_L4E|reg.RXD_IPE) != 0 {
		c.add(reg.XEC, 1)
	}
	c.fill(q, f, w0, w1|reg.RXD_EOP, t)
	return true
}

// tagLen is the length of a VLAN tag.
const tagLen = 4

// describe returns what the descriptors of a frame say of it, length and tag apart.
func (c *Card) describe(p *packet, hash uint32, typ rssType, bad bool) (w0, w1 uint64) {
	w0 = p.ptype | uint64(typ) | uint64(hash)<<32
	if c.hot.ipidInsteadOfHash {
		w0 = p.ptype | uint64(p.ipID)<<32
	}
	w1 = p.status
	if c.cfg.Faults.BadRSSHash {
		w0 ^= 1 << 32
	}
	if c.cfg.Faults.RxChecksumLies {
		w1 &^= reg.RXD_L4E
	}
	if c.cfg.Faults.RxChecksumLost {
		w1 &^= reg.RXD_L4CS | reg.RXD_L4E | reg.RXD_IPCS | reg.RXD_IPE
	}
	if bad {
		w1 |= reg.RXD_CE | reg.RXD_RXE
	}
	if e := uint64(max(c.cfg.Faults.RxErrors, 0)); e > 0 && c.rx.count%e == e-1 {
		w1 |= reg.RXD_RXE
	}
	return w0, w1
}

// refill gets descriptors onto the card until there are need of them, as far as their fetches are due.
func (c *Card) refill(q *rxQueue, need int, t int64) {
	for need > q.cached() && q.cached() < cacheLen && q.fetch != q.tail && !q.hung {
		if q.fetchAt == sim.Never {
			q.fetchAt = t + c.rng.Delay(c.cfg.Timing.Fetch)
			c.rx.live.set(q.id)
		}
		if q.fetchAt > c.now || !c.hot.master || c.dmaStopped() {
			return
		}
		c.fetchRx(q)
	}
}

// starve is a frame that needs more descriptors than its queue has on the card; true: it is dropped, because there are no
// others and DROP_EN says so.
func (c *Card) starve(q *rxQueue, need int) bool {
	if need <= q.dist(q.use, q.tail) || !q.dropEn || c.rx.begun > 0 {
		return false
	}
	c.add(reg.QPRDC(c.counterRx(q.id)), 1)
	c.count.RxNoDescriptor++
	return true
}

// mayBegin says whether a frame for which there are not enough descriptors is begun with those that there are: without
// DROP_EN, at the front of the packet buffer, where it waits for the others.
func (c *Card) mayBegin(q *rxQueue, need int) bool {
	return q.cached() > 0 && need > q.dist(q.use, q.tail) && !c.rx.buf.empty()
}

// rebuild returns the frame as it goes to memory when that is not as it came: without its tag, or with its FCS.
func (c *Card) rebuild(f []byte, tagged, bad bool) []byte {
	b := c.rx.scratch[:0]
	if tagged {
		b = append(append(b, f[:12]...), f[16:]...)
	} else {
		b = append(b, f...)
	}
	if !c.hot.strip {
		fcs := crc32.ChecksumIEEE(f)
		if bad {
			fcs = ^fcs
		}
		b = append(b, byte(fcs), byte(fcs>>8), byte(fcs>>16), byte(fcs>>24))
	}
	c.rx.scratch = b[:0]
	if c.cfg.Faults.RxByteFlipped && len(b) > 64 {
		b[64+int(c.rx.count)%(len(b)-64)] ^= 0x10
	}
	return b
}

// fill writes a frame, or part of one, into the next buffers of q. w1 is for the last of them.
func (c *Card) fill(q *rxQueue, f []byte, w0, w1 uint64, t int64) {
	for {
		c.flushRx(q)
		n := min(len(f), q.bufLen)
		addr := q.addrs[q.first]
		d := &q.done[q.nDone]
		*d = rxDesc{w0: w0, addr: addr, late: d.late[:0]}
		if c.watch.on {
			c.watchRxFilled(q, addr)
		}
		if !c.put(q, d, f[:n]) {
			return
		}
		if c.dma.On {
			c.logDMA(WriteData, q.id, addr, n, t)
		}
		f = f[n:]
		d.w1 = reg.RXD_DD | uint64(n)<<32
		if c.cfg.Faults.RxLengthShort && len(f) == 0 {
			d.w1 -= 1 << 32
		}
		if len(f) == 0 {
			d.w1 |= w1
		}
		if q.nDone == 0 {
			q.backAt = t + c.rng.Delay(c.cfg.Timing.WriteBack)
			c.rx.live.set(q.id)
		}
		q.nDone++
		full := q.use%group == group-1 || q.nDone == group
		q.use = q.step(q.use, 1)
		q.first = (q.first + 1) % cacheLen
		if full {
			q.backAt = t
			if c.busMaster() {
				c.reportRx(q)
			}
		}
		if len(f) == 0 {
			break
		}
	}
	q.wantFetch(c, t)
}

// put writes the bytes of one buffer, now or, with Faults.StaleData, right before DD.
func (c *Card) put(q *rxQueue, d *rxDesc, b []byte) bool {
	if c.cfg.Faults.StaleData {
		d.late = append(d.late, b...)
		return true
	}
	if err := c.scatter(d.addr, b); err != nil {
		c.fault(&q.queue, "receive buffer", d.addr, err)
		return false
	}
	return true
}

// reportRx writes back the descriptors that are done: for each the first word, then the second with DD.
func (c *Card) reportRx(q *rxQueue) {
	t := q.backAt
	q.backAt = sim.Never
	if q.nDone == 0 || c.cfg.Faults.NoWriteBack || c.cfg.Faults.NoRxWriteBack {
		q.nDone = 0
		return
	}
	if c.cfg.Faults.ShuffledStatus {
		c.reportLastFirst(q, t)
		return
	}
	for i := range q.nDone {
		if !c.reportRxDesc(q, i, t) {
			return
		}
	}
	c.reportedRx(q)
}

// reportLastFirst writes back one descriptor, the last of those that are left, and the rest a little later.
func (c *Card) reportLastFirst(q *rxQueue, t int64) {
	if q.left == 0 {
		q.left = q.nDone
	}
	q.left--
	if !c.reportRxDesc(q, q.left, t) {
		return
	}
	if q.left == 0 {
		c.reportedRx(q)
		return
	}
	q.backAt = c.now + 1 + c.rng.Delay(c.cfg.Timing.WriteBack)
	c.rx.live.set(q.id)
}

// flushRx writes back at once what has begun to be, last first.
func (c *Card) flushRx(q *rxQueue) {
	for q.left > 0 && !q.hung {
		c.reportRx(q)
	}
}

// reportedRx gives the descriptors back that have been written back.
func (c *Card) reportedRx(q *rxQueue) {
	q.head, q.nDone, q.left, q.backAt = q.step(q.head, q.nDone), 0, 0, sim.Never
	c.queueCause(q.id, false)
}

// reportRxDesc writes back the i-th of the descriptors that are done.
func (c *Card) reportRxDesc(q *rxQueue, i int, t int64) bool {
	d := &q.done[i]
	if len(d.late) > 0 {
		if err := c.scatter(d.addr, d.late); err != nil {
			c.fault(&q.queue, "receive buffer", d.addr, err)
			return false
		}
	}
	at := q.step(q.head, i)
	b := c.descs(&q.queue, at, 1)
	if b == nil {
		return false
	}
	if c.watch.on {
		c.watch.takeRx(d.addr)
	}
	store(b, d.w0)
	store(b[8:], d.w1)
	if c.dma.On {
		c.logDMA(ReportRx, q.id, q.base+uint64(at)*reg.DescSize, reg.DescSize, t)
	}
	return true
}
