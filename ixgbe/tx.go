package ixgbe

import (
	"sync/atomic"
	"unsafe"

	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/pci"
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
	bufs    []*mbuf.Buf // the head of a frame at its last descriptor, nil at its others
	tail    uint32
	free    uint32
	clean   uint32
	sinceRS uint32 // descriptors since the last one with RS
	odd     []bool // at the last descriptor of a frame that is not plain; there are nOdd of them in the ring
	nOdd    uint32

	allowed  mbuf.TxFlags // what frames may ask for
	contexts contextCache

	reclaimAt uint32

	// reports are the descriptors with RS that have not been seen done, oldest first; a ring of the ring's size.
	reports    []uint16
	reportHead uint32
	reportN    uint32

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

// Send implements nic.TxQueue.
func (q *txQueue) Send(pkts []*mbuf.Buf) int {
	if uint32(len(q.ring))-1-q.free >= q.reclaimAt {
		q.Reclaim()
	}
	if q.dead.Load() {
		return 0
	}
	sent, refused, start := 0, 0, q.tail
	var total uint64
	for sent < len(pkts) && q.free > 0 {
		if pkts[sent].Plain(q.pool) {
			n, bytes := q.fill(pkts[sent:])
			sent += n
			total += bytes
			if n > 0 {
				continue
			}
		}
		taken, bytes := q.sendSlow(pkts[sent])
		if !taken {
			break
		}
		sent++
		total += bytes
		if bytes == 0 {
			refused++
		}
	}
	if q.tail != start {
		q.report()
		q.bar.Write32(q.tdt, q.tail)
		q.packets.Add(uint64(sent - refused))
		q.bytes.Add(total)
	}
	if sent < len(pkts) {
		q.full.Add(1)
	}
	return sent
}

// fill writes descriptors for plain frames (see mbuf.Buf.Plain), up to the first that is not
// one, the end of the ring, the next report or a full ring; it returns how many frames and bytes. 0 frames with room left
// means that the first is not of that kind.
func (q *txQueue) fill(pkts []*mbuf.Buf) (int, uint64) {
	run := min(uint32(len(pkts)), q.free, uint32(len(q.ring))-q.tail, reportEvery-q.sinceRS)
	n, bytes := describe(q.ring[q.tail:q.tail+run], pkts[:run], q.pool, q.span)
	copy(q.bufs[q.tail:q.tail+run], pkts[:n])
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
	at := q.reportHead + q.reportN
	if at >= uint32(len(q.reports)) {
		at -= uint32(len(q.reports))
	}
	q.reports[at] = uint16(last)
	q.reportN++
}

// sendSlow sends one frame of any kind and returns its bytes. taken is false when the ring has no room for it; a frame that
// can never be sent is freed and counted, and has 0 bytes.
func (q *txQueue) sendSlow(b *mbuf.Buf) (taken bool, bytes uint64) {
	if b.TxFlags() != 0 {
		return q.sendOffloaded(b)
	}
	segs, length := b.Segs(), b.FrameLen()
	if reason, bad := q.refuse(b, segs, length); bad {
		q.dropped[reason].Add(1)
		q.cache.Free(b)
		return true, 0
	}
	if uint32(segs) > q.free {
		return false, 0
	}
	b.Seal()
	for s := b; s != nil; s = s.Next() {
		d := &q.ring[q.tail]
		d.lo = s.Bus()
		d.hi = uint64(length)<<reg.TXD_PAYLEN_Shift | txData | uint64(s.Len())
		q.bufs[q.tail] = nil
		if s.Next() == nil {
			d.hi |= txEnd
			q.bufs[q.tail], q.odd[q.tail] = b, true
		}
		q.advance(1)
	}
	q.nOdd++
	if q.sinceRS >= reportEvery {
		q.report()
	}
	return true, uint64(length)
}

// refuse says whether a frame can never be sent, and why.
func (q *txQueue) refuse(b *mbuf.Buf, segs, length int) (nic.TxDropReason, bool) {
	switch {
	case length < minFrame:
		return nic.TxTooShort, true
	case length > int(q.maxFrame):
		return nic.TxTooLong, true
	case segs > maxSegs:
		return nic.TxTooManySeg, true
	}
	for s := b; s != nil; s = s.Next() {
		if s.Len() == 0 {
			return nic.TxTooShort, true // a descriptor of no bytes hangs the transmit unit (§7.2.3.2.4)
		}
		if s.Pool() != q.pool && s.Pool().Space() != q.port.space {
			return nic.TxNoAddress, true
		}
	}
	return 0, false
}

// Reclaim implements nic.TxQueue: it frees the frames up to the newest report that the card has answered with DD.
func (q *txQueue) Reclaim() int {
	answered, last := false, uint32(0)
	for q.reportN > 0 {
		at := uint32(q.reports[q.reportHead])
		if atomic.LoadUint64(&q.ring[at].hi)&reg.TXD_DD == 0 {
			break
		}
		answered, last = true, at
		q.reportHead++
		if q.reportHead == uint32(len(q.reports)) {
			q.reportHead = 0
		}
		q.reportN--
	}
	if !answered {
		return 0
	}
	return q.release(last)
}

// release frees the frames from clean up to and including descriptor last.
func (q *txQueue) release(last uint32) int {
	frames := 0
	if last < q.clean {
		frames = q.releaseRun(q.clean, uint32(len(q.ring)))
		q.clean = 0
	}
	frames += q.releaseRun(q.clean, last+1)
	q.clean = last + 1
	if q.clean == uint32(len(q.ring)) {
		q.clean = 0
	}
	return frames
}

func (q *txQueue) releaseRun(from, to uint32) int {
	run := q.bufs[from:to]
	q.free += to - from
	if q.nOdd == 0 {
		unseal(run)
		q.cache.FreePlain(run)
		return len(run)
	}
	frames := 0
	for i, b := range run {
		if b == nil {
			continue
		}
		if at := from + uint32(i); q.odd[at] {
			q.odd[at] = false
			q.nOdd--
		}
		b.Unseal()
		q.cache.Free(b)
		run[i] = nil
		frames++
	}
	return frames
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
	return q.reportN > 0 && !q.dead.Load() && atomic.LoadUint64(&q.ring[q.reports[q.reportHead]].hi)&reg.TXD_DD != 0
}

// drain takes back the frames that were not reported, once the card may no longer touch them.
func (q *txQueue) drain(free func(*mbuf.Buf)) (frames, bufs int) {
	for q.free < uint32(len(q.ring))-1 {
		if b := q.bufs[q.clean]; b != nil {
			frames++
			bufs += b.Segs()
			free(b)
			q.bufs[q.clean], q.odd[q.clean] = nil, false
		}
		q.free++
		q.clean++
		if q.clean == uint32(len(q.ring)) {
			q.clean = 0
		}
	}
	q.reportN, q.nOdd = 0, 0
	return frames, bufs
}

func newTxQueue(p *Port, index, size int, mem *ringMemory) (*txQueue, error) {
	base, bus, err := mem.cut(size)
	if err != nil {
		return nil, err
	}
	return &txQueue{
		ring:      unsafe.Slice((*txDesc)(base), size),
		bufs:      make([]*mbuf.Buf, size),
		free:      uint32(size) - 1,
		reclaimAt: uint32(min(reclaimBatch, size/2)),
		reports:   make([]uint16, size),
		odd:       make([]bool, size),
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
