package ixgbe

import (
	"sync/atomic"
	"unsafe"

	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/vtop"
)

const (
	// reportEvery is how many descriptors may go by without report-status (RS). The last of every Send has it too, or
	// the tail of a burst would never be seen to complete.
	reportEvery = 32
	// reclaimBatch is how many descriptors have to be out for Send to look for what is done: a look for two bursts costs
	// less than one for each.
	reclaimBatch = 64
	// minFrame is the shortest frame that is sent: an Ethernet header. The card pads to 60 bytes (HLREG0.TXPADEN).
	minFrame = 14
	// maxSegs is the number of descriptors that a frame may have: 40 − WTHRESH, and WTHRESH is 0 here (§7.2.1).
	maxSegs = 40

	// txData is what all data descriptors have in common; txEnd what the last of a frame adds (§7.2.3.2.4).
	txData = reg.TXD_DTYP_DATA | reg.TXD_DEXT | reg.TXD_IFCS
	txEnd  = reg.TXD_EOP
)

// txQueue is a transmit ring and the frames that the card has not reported as sent.
//
//	    clean            tail
//	      ▼               ▼
//	free  │ the card's…   │ free           free = len − 1 − (tail − clean)
type txQueue struct {
	ring    []txDesc
	tail    uint32
	free    uint32
	clean   uint32
	sinceRS uint32 // descriptors since the last one with RS

	// segs are the segments that the card has, each by itself: nothing follows it. A ring of the ring's size; there are never
	// more of them than descriptors, which may be contexts or parts of a segment.
	segs          []*mbuf.Buf
	segTail       uint32
	segClean      uint32
	odd           indexes      // those of segs that are not plain, see release
	frames, freed uint32       // given to the card so far, and reported as sent, modulo 2³²
	allowed       mbuf.TxFlags // what frames may ask for
	plans         planCache

	reclaimAt uint32

	reports indexes    // descriptors with RS that have not been seen done
	upTo    []progress // at such a descriptor

	maxFrame uint32
	span     uint32     // maxFrame − minFrame: one comparison checks both
	pool     *mbuf.Pool // the cache's: plain frames of this one take the fast path
	tdt      uint32     // register
	bar      pci.BAR
	cache    *mbuf.Cache
	port     *Port
	dead     atomic.Bool

	packets, bytes nic.Counter
	full           nic.Counter
	dropped        [nic.TxDropReasons]nic.Counter
	sleep          sleeper
	index          int
	bus            uint64
	hang           hangWatch
}

// progress is how far a queue was with a descriptor: its segTail and its frames.
type progress struct{ segTail, frames uint32 }

// Send implements nic.TxQueue.
func (q *txQueue) Send(pkts []*mbuf.Buf) int {
	if uint32(len(q.ring))-1-q.free >= q.reclaimAt {
		q.Reclaim()
	}
	if q.dead.Load() {
		return 0
	}
	sent, start := 0, q.frames
	var total uint64
	for sent < len(pkts) && q.free > 0 {
		var plan *txPlan
		n, bytes := 0, uint64(0)
		b := pkts[sent]
		if b.Plain(q.pool) {
			n, bytes = q.fill(pkts[sent:], nil)
		} else if plan = q.plans.known(b); plan != nil && b.Next() == nil {
			n, bytes = q.fill(pkts[sent:], plan)
		}
		if n == 0 {
			if n, bytes = q.sendSlow(b, plan); n == 0 {
				break
			}
		}
		sent += n
		total += bytes
	}
	if q.frames != start {
		q.report()
		q.bar.Write32(q.tdt, q.tail)
		q.packets.Add(uint64(q.frames - start))
		q.bytes.Add(total)
	}
	if sent < len(pkts) {
		q.full.Add(1)
	}
	return sent
}

// fill writes descriptors for plain frames (see mbuf.Buf.Plain) or, with a plan, for those that ask for what it is for; up to
// the first that is another, the end of a ring, the next report or a full ring. It returns how many frames and bytes. 0 frames
// with room left means that the first is not of that kind.
func (q *txQueue) fill(pkts []*mbuf.Buf, plan *txPlan) (n int, bytes uint64) {
	run := min(uint32(len(pkts)), q.free, uint32(len(q.ring))-max(q.tail, q.segTail), reportEvery-q.sinceRS)
	if plan == nil {
		n, bytes = describe(q.ring[q.tail:q.tail+run], pkts[:run], q.pool, q.span)
	} else {
		n, bytes = describePlanned(q.ring[q.tail:q.tail+run], pkts[:run], q.pool, plan)
	}
	copy(q.segs[q.segTail:q.segTail+run], pkts[:n])
	if q.segTail += uint32(n); q.segTail == uint32(len(q.segs)) {
		q.segTail = 0
	}
	q.frames += uint32(n)
	q.advance(uint32(n))
	if q.sinceRS >= reportEvery {
		q.report()
	}
	return n, bytes
}

// describe is the loop over plain frames: one descriptor each, up to the first frame that is none. A frame has minFrame to
// minFrame+span bytes.
func describe(descs []txDesc, pkts []*mbuf.Buf, pool *mbuf.Pool, span uint32) (n int, bytes uint64) {
	pkts = pkts[:len(descs)]
	d := unsafe.SliceData(descs) // see collect
	for n < len(descs) {
		b := pkts[n]
		length := uint64(b.Len())
		if !b.Plain(pool) || uint32(length)-minFrame > span {
			break
		}
		b.Seal()
		d.lo = b.PlainBus()
		d.hi = length<<reg.TXD_PAYLEN_Shift | length | txData | txEnd
		bytes += length
		n++
		d = (*txDesc)(unsafe.Add(unsafe.Pointer(d), descSize))
	}
	return n, bytes
}

// advance moves the tail over n descriptors that have been written.
func (q *txQueue) advance(n uint32) {
	q.free -= n
	q.sinceRS += n
	q.tail += n
	if q.tail >= uint32(len(q.ring)) {
		q.tail -= uint32(len(q.ring))
	}
}

// report sets RS on the descriptor before the tail, which ends a frame, and remembers it.
func (q *txQueue) report() {
	if q.sinceRS == 0 {
		return
	}
	q.sinceRS = 0
	last := q.tail - 1
	if q.tail == 0 {
		last = uint32(len(q.ring)) - 1
	}
	q.ring[last].hi |= reg.TXD_RS
	q.upTo[last] = progress{q.segTail, q.frames}
	q.reports.push(last)
}

// sendSlow sends one frame of any kind, with a plan if there is one for what it asks for; 0 when the ring has no room for it,
// and then nothing has been changed. A frame that can never be sent is freed and counted, and has 0 bytes.
func (q *txQueue) sendSlow(b *mbuf.Buf, plan *txPlan) (n int, bytes uint64) {
	descs, length, reason, ok := q.measure(b)
	var fresh txPlan
	if plan == nil || !ok || !plan.fits(b, length) {
		plan = &fresh
	}
	switch {
	case !ok || plan != &fresh:
	case b.TxFlags() == 0:
		reason, ok = nic.TxTooLong, length <= int(q.maxFrame)
	default:
		reason, ok = q.plan(plan, b, length)
	}
	if !ok {
		q.dropped[reason].Add(1)
		q.cache.Free(b)
		return 1, 0
	}
	if need := descs + q.plans.missing(plan); uint32(need) > q.free {
		return 0, 0
	}
	if plan.context.hi != 0 {
		plan = q.use(plan)
		plan.edit(b)
	}
	b.SetTxFlags(0) // with its segments apart, each is plain now that can be
	b.Seal()
	q.putData(b, plan.bits|txData|uint64(length-int(plan.cutHeaders))<<reg.TXD_PAYLEN_Shift)
	q.frames++
	if q.sinceRS >= reportEvery {
		q.report()
	}
	return 1, uint64(length)
}

// measure adds up the descriptors and bytes of a frame, and refuses those that cannot be sent whatever they ask for.
func (q *txQueue) measure(b *mbuf.Buf) (descs, length int, reason nic.TxDropReason, ok bool) {
	for s := b; s != nil; s = s.Next() {
		n := s.Len()
		if n == 0 {
			return 0, 0, nic.TxTooShort, false // a descriptor of no bytes hangs the transmit unit (§7.2.3.2.4)
		}
		if s.Pool() != q.pool && s.Pool().Space() != q.port.space {
			return 0, 0, nic.TxNoAddress, false
		}
		descs++
		if n > maxData {
			descs += (n - 1) / maxData
		}
		length += n
	}
	switch {
	case length < minFrame:
		return 0, 0, nic.TxTooShort, false
	case descs > maxSegs:
		return 0, 0, nic.TxTooManySeg, false
	}
	return descs, length, 0, true
}

// putData writes the data descriptors of a frame, with these bits in each, and takes it apart: its segments come back one by
// one, so that most of them can take the fast way (see release).
func (q *txQueue) putData(b *mbuf.Buf, bits uint64) {
	segs, at := q.segs, q.segTail
	for s := b; s != nil; {
		next, bus, left := s.Next(), s.Bus(), uint64(s.Len())
		for left > maxData {
			q.put(bus, bits|maxData)
			bus, left = bus+maxData, left-maxData
		}
		if next == nil {
			bits |= txEnd
		} else {
			s.SetNext(nil)
		}
		q.put(bus, bits|left)
		if !s.Plain(q.pool) {
			q.odd.push(at)
		}
		segs[at] = s
		if at++; at == uint32(len(segs)) {
			at = 0
		}
		s = next
	}
	q.segTail = at
}

// put writes a descriptor.
func (q *txQueue) put(lo, hi uint64) {
	d := &q.ring[q.tail]
	d.lo, d.hi = lo, hi
	q.advance(1)
}

// Reclaim implements nic.TxQueue: it frees the frames up to the newest report that the card has answered with DD.
func (q *txQueue) Reclaim() int {
	answered, last := false, uint32(0)
	for q.reports.n > 0 {
		at := q.reports.first()
		if atomic.LoadUint64(&q.ring[at].hi)&reg.TXD_DD == 0 {
			break
		}
		answered, last = true, at
		q.reports.pop()
	}
	if !answered {
		return 0
	}
	return q.release(last)
}

// release frees the frames up to and including descriptor last, and returns how many.
func (q *txQueue) release(last uint32) int {
	done := last + 1 - q.clean
	if last < q.clean {
		done += uint32(len(q.ring))
	}
	q.free += done
	if q.clean = last + 1; q.clean == uint32(len(q.ring)) {
		q.clean = 0
	}
	to := q.upTo[last]
	if to.segTail < q.segClean {
		q.releaseRun(q.segClean, uint32(len(q.segs)))
		q.segClean = 0
	}
	q.releaseRun(q.segClean, to.segTail)
	q.segClean = to.segTail
	n := to.frames - q.freed
	q.freed = to.frames
	return int(n)
}

// releaseRun frees plain segments many at a time, and the odd ones between them one by one.
func (q *txQueue) releaseRun(from, to uint32) {
	for q.odd.n > 0 {
		at := q.odd.first()
		if at < from || at >= to {
			break
		}
		q.odd.pop()
		if from < at {
			unseal(q.segs[from:at])
			q.cache.FreePlain(q.segs[from:at])
		}
		q.segs[at].Unseal()
		q.cache.Free(q.segs[at])
		from = at + 1
	}
	unseal(q.segs[from:to])
	q.cache.FreePlain(q.segs[from:to])
}

// unseal has something to do in the sanitizer's build only.
func unseal(bufs []*mbuf.Buf) {
	if !mbuf.Checking {
		return
	}
	for _, b := range bufs {
		b.Unseal()
	}
}

// Arm implements nic.TxQueue.
func (q *txQueue) Arm(w *nic.Waiter) bool {
	if q.pending() || q.dead.Load() {
		return false
	}
	q.sleep.arm(w)
	return !q.pending() && !q.dead.Load()
}

// pending says whether the oldest report has been answered.
func (q *txQueue) pending() bool {
	return q.reports.n > 0 && !q.dead.Load() && atomic.LoadUint64(&q.ring[q.reports.first()].hi)&reg.TXD_DD != 0
}

// drain takes back the frames that were not reported, once the card may no longer touch them, segment by segment.
func (q *txQueue) drain(free func(*mbuf.Buf)) (frames, bufs int) {
	for q.segClean != q.segTail {
		free(q.segs[q.segClean])
		bufs++
		if q.segClean++; q.segClean == uint32(len(q.segs)) {
			q.segClean = 0
		}
	}
	q.free, q.clean = uint32(len(q.ring))-1, q.tail
	frames = int(q.frames - q.freed)
	q.freed = q.frames
	q.reports.n, q.odd.n = 0, 0
	return frames, bufs
}

func newTxQueue(p *Port, index, size int, mem *vtop.Arena) (*txQueue, error) {
	base, bus, err := cutRing(mem, size)
	if err != nil {
		return nil, err
	}
	return &txQueue{
		ring:      unsafe.Slice((*txDesc)(base), size),
		segs:      make([]*mbuf.Buf, size),
		free:      uint32(size) - 1,
		reclaimAt: uint32(min(reclaimBatch, size/2)),
		reports:   newIndexes(size),
		odd:       newIndexes(size),
		upTo:      make([]progress, size),
		allowed:   allowedFlags(p.cfg.Offloads),
		pool:      p.cfg.Pool,
		maxFrame:  uint32(p.cfg.MaxFrame),
		span:      uint32(p.cfg.MaxFrame) - minFrame,
		tdt:       reg.TDT(index),
		bar:       p.bar,
		cache:     p.cfg.Pool.NewCache(),
		port:      p,
		index:     index,
		bus:       bus,
	}, nil
}
