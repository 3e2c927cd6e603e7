package nic82599

import (
	"math/bits"
	"sync/atomic"

	"bare.wire/ixgbe/reg"
	"bare.wire/sim"
)

const (
	minTx       = 14    // shortest frame that the card takes, bytes without FCS
	maxTx       = 9724  // longest, without FCS: 9728 with it
	maxDataLen  = 16384 // what Linux's driver puts into one; on paper a frame, and with it a buffer, has 15.5 KiB
	fcsLen      = 4
	preamble    = 8  // with the start delimiter
	gap         = 12 // between frames
	maxSegments = 40
)

// wthreshFlush is how long descriptors that are fewer than WTHRESH wait for company, ns. The datasheet ties it to the
// interrupt timer; drivers see the same: DD comes late.
const wthreshFlush = 50_000

// txEngine is everything between transmit rings and wire.
type txEngine struct {
	q       [Queues]txQueue
	live    bitmap   // queues that have anything to do
	turn    int      // whose turn it is
	halt    bool     // nothing could be sent at the last step
	floor   int64    // and so nothing is sent as of before this time
	buf     []byte   // a frame that is gathered
	segment []byte   // a frame that is changed
	out     []byte   // a frame that is tagged
	short   [60]byte // a frame that is padded
	mac     mac
}

// txDesc is a descriptor as fetched.
type txDesc struct {
	addr uint64
	w1   uint64
	sum  uint64 // of the data, with Watch
}

// txReport is a descriptor whose DD is to be written.
type txReport struct {
	index int
	low   uint32 // lower half of its second word, which stays
}

// txQueue is a transmit queue.
type txQueue struct {
	queue
	cache   [cacheLen]txDesc // by ring index, mod cacheLen from first
	first   int              // cache slot of use
	readyAt int64            // when the data of what is cached can be read
	ctx     [2]txContext
	report  []txReport // descriptors with RS that are done and not reported
	done    int        // descriptors done since the last report
	silent  int        // descriptors since the last one with RS
	wthresh int
	headBus uint64 // where the head is written to instead; 0: it is not
	lent    []lentBuf
}

func (e *txEngine) reset() {
	for i := range e.q {
		q := &e.q[i]
		*q = txQueue{queue: queue{id: i, fetchAt: sim.Never, backAt: sim.Never}, report: q.report[:0], lent: q.lent[:0]}
	}
	e.live, e.turn, e.halt = bitmap{}, 0, false
	e.mac.reset()
}

// owes says whether a request is on the bus or a report is due. Without master no request is made.
func (e *txEngine) owes(master bool) bool {
	for i := range e.q {
		if q := &e.q[i]; q.backAt != sim.Never || master && q.fetchAt != sim.Never && !q.hung {
			return true
		}
	}
	return false
}

// begin prepares a queue that is being enabled.
func (q *txQueue) begin(c *Card) {
	q.hung, q.first, q.done, q.silent = false, 0, 0, 0
	q.report, q.lent = q.report[:0], q.lent[:0]
	q.ctx = [2]txContext{}
	q.fetchAt, q.backAt = sim.Never, sim.Never
	ctl := c.val(reg.TXDCTL(q.id))
	q.wthresh = int(reg.Get(ctl, reg.TXDCTL_WTHRESH))
	q.headBus = 0
	if lo := c.val(reg.TDWBAL(q.id)); lo&reg.TDWBAL_HEAD_WB_EN != 0 {
		q.headBus = uint64(c.val(reg.TDWBAH(q.id)))<<32 | uint64(lo&^3)
		if q.wthresh > 0 || c.val(reg.DCA_TXCTRL(q.id))&reg.DCA_TXCTRL_DESC_WRO_EN != 0 {
			c.wrong(HeadWriteBack, q.id, "WTHRESH %d, DCA_TXCTRL %08X", q.wthresh, c.val(reg.DCA_TXCTRL(q.id)))
		}
	}
}

// settleTx moves a queue on from enabling and disabling once it is time.
func (c *Card) settleTx(q *txQueue) {
	if c.now < q.late.at {
		return
	}
	switch q.state {
	case qEnabling:
		q.state, q.wasOn = qOn, true
	case qDisabling:
		if q.backAt != sim.Never && c.busMaster() && !q.hung {
			c.reportTx(q)
		}
		q.state, q.fetchAt, q.backAt = qOff, sim.Never, sim.Never
		c.set(reg.TDH(q.id), uint32(q.head))
	}
}

// txFlows says whether frames leave at all.
func (c *Card) txFlows() bool {
	return c.hot.txOn && c.hot.master && c.phy.up && !c.dmaStopped()
}

func (c *Card) dmaStopped() bool { return c.cfg.Faults.DMAStops > 0 && c.now >= c.cfg.Faults.DMAStops }

// runTx does what is due and returns when there is more.
func (c *Card) runTx() int64 {
	e := &c.tx
	if e.live.empty() {
		return sim.Never
	}
	flows := c.txFlows()
	if flows && e.halt {
		e.floor = c.now
	}
	e.halt = !flows
	budget := c.cfg.MaxStep
	if budget == 0 {
		budget = 1 << 30
	}
	next := sim.Never
	for {
		moved := false
		next = sim.Never
		for i := range e.live {
			for m := e.live[i]; m != 0; m &= m - 1 {
				q := &e.q[i*64+bits.TrailingZeros64(m)]
				t := c.runTxQueue(q, flows, &budget, &moved)
				next = min(next, t)
			}
		}
		if !moved || budget <= 0 {
			break
		}
	}
	if budget <= 0 {
		return c.now + 1 + c.rng.Delay(c.cfg.Timing.DMA)
	}
	return next
}

// runTxQueue does what one queue has due, at most one frame, and returns when it has more to do.
func (c *Card) runTxQueue(q *txQueue, flows bool, budget *int, moved *bool) int64 {
	next := sim.Never
	if q.state == qEnabling || q.state == qDisabling {
		if c.settleTx(q); q.state == qEnabling || q.state == qDisabling {
			next = q.late.at
			if next > c.now && next >= 1<<62 {
				next = sim.Never
			}
		}
	}
	if q.backAt <= c.now && c.busMaster() {
		c.reportTx(q)
		*moved = true
	}
	if q.state != qOn || q.hung {
		if q.state == qOff || q.hung && q.backAt == sim.Never {
			c.tx.live.clear(q.id)
		}
		return min(next, q.pendingBack(c))
	}
	if q.fetchAt <= c.now && c.hot.master && !c.dmaStopped() {
		c.fetchTx(q)
		*moved = true
	}
	if flows && q.use != q.fetch && *budget > 0 {
		t := c.sendNext(q)
		if t <= c.now {
			*moved = true
			*budget--
		} else {
			next = min(next, t)
		}
	}
	if q.head == q.tail && q.backAt == sim.Never && q.fetchAt == sim.Never {
		c.tx.live.clear(q.id)
	}
	if q.fetchAt != sim.Never && c.hot.master && !c.dmaStopped() {
		next = min(next, q.fetchAt)
	}
	return min(next, q.pendingBack(c))
}

func (q *txQueue) pendingBack(c *Card) int64 {
	if !c.busMaster() {
		return sim.Never
	}
	return q.backAt
}

// wantFetch starts a fetch if there is something to fetch and room for it.
func (q *txQueue) wantFetch(c *Card, t int64) {
	// The longest frame has to find room, however few descriptors come at a time.
	if q.fetchAt == sim.Never && q.fetch != q.tail && q.cached() <= maxSegments {
		q.fetchAt = t + c.rng.Delay(c.cfg.Timing.Fetch)
	}
}

// fetchTx takes descriptors onto the card.
func (c *Card) fetchTx(q *txQueue) {
	t := q.fetchAt
	q.fetchAt = sim.Never
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
			c.logDMA(FetchTx, q.id, q.base+uint64(q.fetch)*reg.DescSize, len(b), t)
		}
		slot := q.first + q.cached()
		for i := range k {
			d := &q.cache[(slot+i)%cacheLen]
			d.addr, d.w1 = load(b[i*reg.DescSize:]), load(b[i*reg.DescSize+8:])
			if d.w1&reg.TXD_DD != 0 {
				c.wrong(TxStale, q.id, "descriptor %d: %016X", q.step(q.fetch, i), d.w1)
			}
			if c.watch.on {
				c.watchTxFetched(d)
			}
		}
		q.fetch = q.step(q.fetch, k)
		n -= k
	}
	q.readyAt = t + c.rng.Delay(c.cfg.Timing.DMA)
	q.wantFetch(c, t)
}

// scan looks at the next frame's descriptors: how many there are and how many bytes; segs 0: the frame is not there yet.
// The first descriptor is a data descriptor.
func (c *Card) scan(q *txQueue) (segs, length int, last uint64) {
	have := q.cached()
	for i := 0; i < have; i++ {
		d := &q.cache[(q.first+i)%cacheLen]
		if i > 0 && d.isContext() {
			c.wrong(TxDescriptor, q.id, "context descriptor %d inside a frame", q.step(q.use, i))
		}
		dl := int(d.w1 & reg.TXD_DTALEN)
		if dl == 0 || dl > maxDataLen {
			c.wrong(TxLengthZero, q.id, "descriptor %d: DTALEN %d", q.step(q.use, i), dl)
			q.hung = true
			return 0, 0, 0
		}
		length += dl
		if d.w1&reg.TXD_EOP != 0 {
			segs, last = i+1, d.w1
			break
		}
		if d.w1&reg.TXD_RS != 0 {
			c.wrong(TxDescriptor, q.id, "descriptor %d: RS without EOP", q.step(q.use, i))
		}
	}
	if segs > maxSegments-q.wthresh || segs == 0 && have > maxSegments-q.wthresh {
		c.wrong(TxTooManySegments, q.id, "%d or more from descriptor %d on", max(segs, have), q.use)
		q.hung = true
		return 0, 0, 0
	}
	if segs == 0 && q.fetch == q.tail {
		c.wrong(TxNotTerminated, q.id, "descriptors %d to %d", q.use, q.tail)
	}
	return segs, length, last
}

func (d *txDesc) isContext() bool {
	return d.w1&reg.TXD_DEXT != 0 && reg.Get64(d.w1, reg.TXD_DTYP) == 2
}

// sendNext sends the next frame of q, or takes a context descriptor. It returns when to come back: a time that is not in
// the future if it did something.
func (c *Card) sendNext(q *txQueue) int64 {
	t := max(q.readyAt, c.tx.floor)
	if t > c.now {
		return t
	}
	if d := &q.cache[q.first]; d.isContext() {
		c.takeContext(q, d)
		c.retire(q, 1, t, d.w1)
		return t
	}
	segs, length, last := c.scan(q)
	if segs == 0 {
		q.wantFetch(c, t)
		return sim.Never
	}
	// What is in the packet buffer leaves, whatever the partner asks for; nothing more goes there meanwhile.
	if hold := c.tx.mac.hold; hold > c.now && !c.hot.loopback {
		return hold
	}
	size := length
	if c.hot.pad {
		size = max(size, 60)
	}
	t = c.tx.mac.room(t, c.now, min(max(size, 60), maxTx)+fcsLen, c.hot.txBuf)
	if t > c.now {
		return t
	}
	c.transmit(q, segs, length, last, t)
	c.retire(q, segs, t, last)
	return t
}

// transmit gathers a frame, does to it what its descriptors ask for, and gives it to the MAC.
func (c *Card) transmit(q *txQueue, segs, length int, last uint64, t int64) {
	w1 := q.cache[q.first].w1
	var x *txContext
	if w1&needContext != 0 {
		if x = c.context(q, w1, length); x == nil {
			return
		}
	}
	if !c.checkFrame(q, x, w1, length) {
		return
	}
	frame, err := c.collect(q, segs, length, t)
	if err != nil {
		return
	}
	switch {
	case w1&reg.TXD_TSE != 0:
		c.cut(q, x, w1, frame, t)
		return
	case w1&(reg.TXD_IXSM|reg.TXD_TXSM) != 0:
		frame = append(c.tx.segment[:0], frame...) // not in the driver's memory
		c.tx.segment = frame[:0]
		x.sums(c, frame, w1, 0)
	}
	c.emit(q, x, w1, frame, length, t)
}

// emit gives a frame, which took size bytes of memory, to the MAC, tagged and padded.
func (c *Card) emit(q *txQueue, x *txContext, w1 uint64, frame []byte, size int, t int64) {
	if w1&reg.TXD_VLE != 0 && !c.cfg.Faults.NoTxTag {
		c.count.TxTagged++
		vlan := c.tag(x.vlan)
		out := append(append(c.tx.out[:0], frame[:12]...), byte(c.hot.insertVT>>8), byte(c.hot.insertVT), byte(vlan>>8), byte(vlan))
		frame = append(out, frame[12:]...)
		c.tx.out = frame[:0]
	}
	if c.hot.pad && len(frame) < 60 {
		n := copy(c.tx.short[:], frame)
		clear(c.tx.short[n:])
		frame = c.tx.short[:]
	}
	if c.cfg.Faults.TxByteFlipped && len(frame) > 64 {
		frame = append([]byte(nil), frame...)
		frame[64+int(c.count.TxFrames)%(len(frame)-64)] ^= 0x10
	}
	at := c.tx.mac.send(t, len(frame)+fcsLen, c.hot.psPerByte)
	c.countTx(q.id, frame, size)
	switch {
	case c.hot.loopback:
		if !c.cfg.Faults.NoLoopback {
			c.rx.loop.push(frame, at)
			c.kickAt(at)
		}
	case c.end != nil:
		c.end.Transmit(frame, at)
	}
}

// checkFrame looks at what the descriptors say of a frame; false: it is not sent.
func (c *Card) checkFrame(q *txQueue, x *txContext, w1 uint64, length int) bool {
	ok := true
	tso := w1&reg.TXD_TSE != 0
	if length < minTx || length > maxTx && !tso {
		c.wrong(TxFrameLength, q.id, "%d bytes", length)
		ok = false
	}
	if w1&reg.TXD_IFCS == 0 {
		c.wrong(TxNoFCS, q.id, "descriptor %d: %016X", q.use, w1)
		ok = false
	}
	if w1&reg.TXD_DEXT == 0 {
		c.wrong(TxDescriptor, q.id, "descriptor %d: DEXT is clear (%016X)", q.use, w1)
		return ok
	}
	if t := reg.Get64(w1, reg.TXD_DTYP); t != 3 {
		c.wrong(TxDescriptor, q.id, "descriptor %d: DTYP %d", q.use, t)
	}
	if w1&reg.TXD_IPSEC != 0 {
		c.wrong(Unsupported, q.id, "IPsec")
	}
	want := length
	if tso {
		want -= x.headers()
	}
	if p := int(reg.Get64(w1, reg.TXD_PAYLEN)); p != want {
		c.wrong(TxPayloadLength, q.id, "PAYLEN %d, data %d", p, want)
	}
	return ok
}

// collect returns the bytes of a frame: in place when they lie together, else gathered.
func (c *Card) collect(q *txQueue, segs, length int, t int64) ([]byte, error) {
	buf := c.tx.buf[:0]
	for i := range segs {
		d := &q.cache[(q.first+i)%cacheLen]
		n := int(d.w1 & reg.TXD_DTALEN)
		if c.dma.On {
			c.logDMA(ReadData, q.id, d.addr, n, t)
		}
		if segs == 1 {
			b, err := c.mem.Bytes(d.addr, n)
			if err == nil && len(b) == n {
				return b, nil
			}
		}
		var err error
		if buf, err = c.gather(buf, d.addr, n); err != nil {
			c.fault(&q.queue, "frame", d.addr, err)
			return nil, err
		}
	}
	c.tx.buf = buf[:0]
	return buf, nil
}

// retire is done with n descriptors at time t, the last of which is w1.
func (c *Card) retire(q *txQueue, n int, t int64, w1 uint64) {
	if q.hung {
		return
	}
	if c.watch.on {
		c.watchTxSent(q, n)
	}
	lastIndex := q.step(q.use, n-1)
	q.use = q.step(q.use, n)
	q.first = (q.first + n) % cacheLen
	q.done += n
	q.silent += n
	if w1&reg.TXD_RS != 0 {
		q.silent = 0
		q.report = append(q.report, txReport{lastIndex, uint32(w1)})
		if q.backAt == sim.Never {
			q.backAt = t + wthreshFlush
		}
		if q.done >= q.wthresh {
			q.backAt = min(q.backAt, t+c.rng.Delay(c.cfg.Timing.WriteBack))
		}
	} else if q.silent >= q.n-1 {
		c.wrong(TxNoReport, q.id, "%d descriptors", q.silent)
	}
	if len(q.report) == 0 {
		q.head, q.done = q.use, 0
		q.lent = q.lent[:0]
	}
	q.wantFetch(c, t)
}

// reportTx tells the driver what is done: DD in each descriptor that asked for it, or the head.
func (c *Card) reportTx(q *txQueue) {
	t := q.backAt
	q.backAt = sim.Never
	if c.cfg.Faults.NoWriteBack || c.cfg.Faults.NoTxWriteBack {
		return
	}
	if c.watch.on {
		c.watchTxReported(q)
	}
	if q.headBus != 0 {
		c.reportHead(q, t)
	} else {
		for _, r := range q.report {
			c.reportDesc(q, r, t)
		}
	}
	if n := len(q.report); n > 0 {
		c.queueCause(q.id, true)
	}
	q.report = q.report[:0]
	q.head, q.done = q.use, 0
}

// reportDesc sets DD in a descriptor. The card changes the status dword alone; the store is of the whole word, with the
// other half as it was, because that is what drivers load.
func (c *Card) reportDesc(q *txQueue, r txReport, t int64) {
	b := c.descs(&q.queue, r.index, 1)
	if b == nil {
		return
	}
	store(b[8:], reg.TXD_DD|uint64(r.low))
	if c.dma.On {
		c.logDMA(ReportTx, q.id, q.base+uint64(r.index)*reg.DescSize+12, 4, t)
	}
}

// reportHead writes the head to where TDWBAL says.
func (c *Card) reportHead(q *txQueue, t int64) {
	b, err := c.out.Bytes(q.headBus, 4)
	if err != nil || len(b) < 4 {
		c.fault(&q.queue, "head write-back", q.headBus, err)
		return
	}
	atomic.StoreUint32(half(b), uint32(q.use))
	if c.dma.On {
		c.logDMA(ReportTx, q.id, q.headBus, 4, t)
	}
}
