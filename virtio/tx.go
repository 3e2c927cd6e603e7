package virtio

import (
	"fmt"
	"unsafe"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// reclaimBatch is how many descriptors have to be out for Send to look for what is done: a look costs a cache line that the
// device is writing to.
const reclaimBatch = 64

// txQueue is a transmit ring and the frames that the device has not used yet.
//
// A frame is one descriptor, header and bytes, where its first segment has room for the header and is writable. Otherwise the
// header is in memory of the ring's own, and the frame takes several descriptors: in a table, of which the ring has one
// descriptor, or, if there is none, in the ring.
type txQueue struct {
	virtqueue
	maxFrame uint32
	span     uint32 // maxFrame − minFrame: one comparison checks both
	hdr      uint32
	fast     bool // a frame and its header may share a descriptor
	oddOut   uint32
	plans    planCache
	allowed  mbuf.TxFlags
	ecn      bool // FeatureHostECN

	headers    unsafe.Pointer // hdrStride bytes for each id
	headersBus uint64
	tables     tableStore

	reclaimAt uint32
	parts     []part // scratch
	pool      *mbuf.Pool
	cache     *mbuf.Cache

	packets, bytes       nic.Counter // frames
	cutPackets, cutBytes nic.Counter // what TxTSO adds: segments beyond the first, and their headers
	full                 nic.Counter
	taken                nic.Counter // descriptors that have come back
	dropped              [nic.TxDropReasons]nic.Counter
	index                int
}

func newTxQueue(env *queueEnv, vq, index, size int, mem *vtop.Arena, pool *mbuf.Pool) (*txQueue, error) {
	q := &txQueue{
		index:     index,
		maxFrame:  uint32(env.maxFrame),
		span:      uint32(env.maxFrame) - minFrame,
		hdr:       uint32(env.header),
		fast:      !env.ownHeader(),
		allowed:   allowedFlags(env.offloads),
		ecn:       env.features&spec.FeatureHostECN != 0,
		reclaimAt: uint32(min(reclaimBatch, size/2)),
		parts:     make([]part, 0, tableParts),
		pool:      pool,
	}
	if err := q.init(env, fmt.Sprintf("transmit queue %d", index), vq, size, mem); err != nil {
		return nil, err
	}
	q.odd = make([]bool, size)
	var err error
	if q.headers, q.headersBus, err = mem.Cut(hdrStride*size, ringLine); err != nil {
		return nil, fmt.Errorf("%s: %w", q.what, err)
	}
	if env.features&spec.FeatureIndirectDesc != 0 {
		if err := q.tables.lay(size, mem); err != nil {
			return nil, fmt.Errorf("%s: %w", q.what, err)
		}
	}
	q.cache = pool.NewCache()
	return q, nil
}

// start gives the queue its doorbell.
func (q *txQueue) start(bell Doorbell) { q.bell = bell }

// Send implements nic.TxQueue.
func (q *txQueue) Send(pkts []*mbuf.Buf) int {
	if q.out >= q.reclaimAt {
		q.Reclaim()
	}
	if q.dead.Load() {
		return 0
	}
	sent, frames, total := 0, 0, uint64(0)
	for sent < len(pkts) && q.out < q.size {
		n, bytes := 0, uint64(0)
		b := pkts[sent]
		var plan *txPlan
		if b.Plain(q.pool) {
			n, bytes = q.fill(pkts[sent:], 0, 0)
		} else if plan = q.plans.known(b); plan != nil && b.Next() == nil && q.fast {
			n, bytes = q.fillPlanned(pkts[sent:], plan)
		}
		frames += n
		if n == 0 {
			if n, bytes = q.sendSlow(b, plan); n == 0 {
				break
			}
			if bytes > 0 {
				frames++
			}
		}
		sent += n
		total += bytes
	}
	if frames > 0 {
		q.publish()
		q.packets.Add(uint64(frames))
		q.bytes.Add(total)
	}
	if sent < len(pkts) {
		q.full.Add(1)
	}
	return sent
}

// fill makes plain frames available (see mbuf.Buf.Plain), one descriptor each, all with this header (see txPlan), up to the
// first that is another or the end of the ring. It returns how many frames and bytes.
func (q *txQueue) fill(pkts []*mbuf.Buf, lo uint64, hi uint32) (n int, bytes uint64) {
	if !q.fast {
		return 0, 0
	}
	run := min(uint32(len(pkts)), q.size-q.out, q.size-q.tail)
	if n, bytes = q.putHeaders(pkts[:run], lo, hi); n == 0 {
		return 0, 0
	}
	pkts = pkts[:n]
	if q.packed {
		q.describePacked(pkts)
	} else {
		q.describeSplit(pkts)
		q.offer(q.tail, uint32(n))
	}
	copy(q.bufs[q.tail:], pkts)
	q.advanceTail(uint32(n))
	return n, bytes
}

// putHeaders is the loop that looks whether frames are plain, and writes their headers, up to the first that is not.
func (q *txQueue) putHeaders(pkts []*mbuf.Buf, lo uint64, hi uint32) (n int, bytes uint64) {
	pool, span, hdr := q.pool, q.span, q.hdr
	for _, b := range pkts {
		if !b.Plain(pool) {
			break
		}
		length := uint32(b.Len())
		if length-minFrame > span || uint32(b.Headroom()) < hdr {
			break
		}
		if !b.Writable() {
			break
		}
		h := headerAt(b, hdr)
		if hdr == spec.HdrSize {
			*(*uint64)(h) = lo
			*(*uint32)(unsafe.Add(h, spec.HdrCSumOffset)) = hi
		} else {
			writeHeader(h, hdr, lo, hi)
		}
		b.Seal()
		bytes += uint64(length)
		n++
	}
	return n, bytes
}

// describeSplit is the loop that writes the descriptors of frames that have their headers in front.
func (q *txQueue) describeSplit(pkts []*mbuf.Buf) {
	hdr := uint64(q.hdr)
	if q.split.identity {
		d := unsafe.SliceData(q.desc[q.tail:]) // see collectPacked
		for _, b := range pkts {
			d.addr = b.PlainBus() - hdr
			d.hi = uint64(b.Len()) + hdr
			d = (*ringDesc)(unsafe.Add(unsafe.Pointer(d), spec.DescSize))
		}
		return
	}
	order := q.order[q.tail:][:len(pkts)]
	for i, b := range pkts {
		q.desc[order[i]] = ringDesc{b.PlainBus() - hdr, uint64(b.Len()) + hdr}
	}
}

func (q *txQueue) describePacked(pkts []*mbuf.Buf) {
	hdr := uint64(q.hdr)
	order := q.order[q.tail:][:len(pkts)]
	flags := uint64(q.pack.availFlags) << 48
	d := unsafe.SliceData(q.desc[q.tail:])
	at := 0
	if q.hold(uint32(order[0]), 0) {
		d.addr = pkts[0].PlainBus() - hdr
		*lenOf(d) = uint32(uint64(pkts[0].Len()) + hdr)
		d = (*ringDesc)(unsafe.Add(unsafe.Pointer(d), spec.DescSize))
		at = 1
	}
	order = order[at:]
	for i, b := range pkts[at:] {
		d.addr = b.PlainBus() - hdr
		d.hi = flags | uint64(order[i])<<32 | uint64(b.Len()) + hdr
		d = (*ringDesc)(unsafe.Add(unsafe.Pointer(d), spec.DescSize))
	}
	q.pack.added += uint32(len(pkts))
}

// sendSlow sends one frame of any kind, with a plan if there is one for what it asks for; 0 when the ring has no room for it,
// and then nothing has been changed. A frame that can never be sent is freed and counted, and has 0 bytes.
func (q *txQueue) sendSlow(b *mbuf.Buf, plan *txPlan) (n int, bytes uint64) {
	segs, length, reason, ok := q.measure(b)
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
	inFront := q.fast && b.Headroom() >= int(q.hdr) && b.Writable()
	descs := segs
	if !inFront {
		descs++
	}
	if ok && descs > int(q.size) {
		reason, ok = nic.TxTooManySeg, false
	}
	if !ok {
		q.dropped[reason].Add(1)
		q.cache.Free(b)
		return 1, 0
	}
	inTable := descs > 1 && q.tables.some()
	if descs > int(q.size-q.out) && !inTable {
		return 0, 0
	}
	q.plans.keep(plan)
	plan.edit(b, length)
	q.countCut(plan, length)
	b.SetTxFlags(0)
	b.Seal()
	q.parts = q.layOut(b, plan, inFront)
	if inTable {
		at := q.tail
		q.addTable(q.tables.fill(q.order[at], q.parts, q.packed), len(q.parts))
		q.bufs[at] = b
		q.mark(at, true)
	} else {
		at := q.add(q.parts, len(q.parts))
		q.bufs[at] = b
		q.mark(at, descs > 1 || !b.Plain(q.pool))
		for range q.parts[1:] {
			if at++; at == q.size {
				at = 0
			}
			q.bufs[at] = nil
		}
	}
	return 1, uint64(length)
}

// mark notes that the frame at a position has to be looked at when it comes back.
func (q *txQueue) mark(at uint32, odd bool) {
	if odd {
		q.odd[at] = true
		q.oddOut++
	}
}

// layOut returns where header and segments of a frame are, whose first id is the one at the tail, and writes the header.
func (q *txQueue) layOut(b *mbuf.Buf, plan *txPlan, inFront bool) []part {
	parts := q.parts[:0]
	bus, n := b.Bus(), uint32(b.Len())
	switch {
	case inFront:
		writeHeader(headerAt(b, q.hdr), q.hdr, plan.lo, plan.hi)
		bus, n = bus-uint64(q.hdr), n+q.hdr
	default:
		off := hdrStride * int(q.order[q.tail])
		writeHeader(unsafe.Add(q.headers, off), q.hdr, plan.lo, plan.hi)
		parts = append(parts, part{q.headersBus + uint64(off), q.hdr})
	}
	parts = append(parts, part{bus, n})
	for s := b.Next(); s != nil; s = s.Next() {
		parts = append(parts, part{s.Bus(), uint32(s.Len())})
	}
	return parts
}

// measure adds up the segments and bytes of a frame, and refuses those that cannot be sent whatever they ask for.
func (q *txQueue) measure(b *mbuf.Buf) (segs, length int, reason nic.TxDropReason, ok bool) {
	for s := b; s != nil; s = s.Next() {
		n := s.Len()
		if n == 0 {
			return 0, 0, nic.TxTooShort, false // there is no descriptor of no bytes
		}
		if s.Pool() != q.pool && s.Pool().Space() != q.env.space {
			return 0, 0, nic.TxNoAddress, false
		}
		segs++
		length += n
	}
	switch {
	case length < minFrame:
		return 0, 0, nic.TxTooShort, false
	case segs > maxSegs:
		return 0, 0, nic.TxTooManySeg, false
	}
	return segs, length, 0, true
}

// Reclaim implements nic.TxQueue.
func (q *txQueue) Reclaim() int {
	if q.dead.Load() {
		return 0
	}
	if q.armed {
		q.disarm()
	}
	frames, out := 0, q.out
	for {
		n := q.matches()
		if n > 0 {
			q.releaseRun(q.clean, q.clean+n)
			q.split.usedIdx += uint16(n)
			q.advanceClean(n)
			frames += int(n)
			continue
		}
		if !q.ready() {
			break
		}
		id, _, ok := q.take() // what a device says it has written to a frame that it was to read means nothing
		if !ok {
			break
		}
		at := uint32(q.pos[id])
		b, odd := q.bufs[at], q.odd[at]
		q.odd[at] = false
		if q.tables.n > 0 {
			q.tables.release(uint16(id))
		}
		q.retire(id)
		if odd {
			q.oddOut--
		}
		b.Unseal()
		q.cache.Free(b)
		frames++
	}
	if frames > 0 {
		q.taken.Add(uint64(out - q.out))
		q.keepPast()
	}
	return frames
}

// matches is how many plain frames the device has used in their order, up to the end of the ring. The caller releases them.
func (q *txQueue) matches() uint32 {
	if q.oddOut > 0 || q.extra > 0 || q.out == 0 {
		return 0
	}
	if q.batchLeft > 0 {
		n := min(q.batchLeft, q.size-q.clean)
		q.batchLeft -= n
		return n
	}
	if q.packed {
		return q.matchesPacked(q.out)
	}
	n := q.usedSplit()
	if n == 0 || q.inOrder {
		return min(n, q.size-q.clean) // the index says it all
	}
	return q.matchesSplit(n)
}

// releaseRun frees plain frames many at a time.
func (q *txQueue) releaseRun(from, to uint32) {
	bufs := q.bufs[from:to]
	if mbuf.Checking { // unseal has something to do in the sanitizer's build only
		for _, b := range bufs {
			b.Unseal()
		}
	}
	q.cache.FreePlain(bufs)
}

// Arm implements nic.TxQueue.
func (q *txQueue) Arm(w *nic.Waiter) bool {
	if q.ready() || q.dead.Load() {
		return false
	}
	q.arm(w)
	return !q.ready() && !q.dead.Load()
}

// drain takes back the frames that were not used, once the device may no longer touch them, segment by segment.
func (q *txQueue) drain(free func(*mbuf.Buf)) (frames, bufs int) {
	for ; q.out > 0; q.advanceClean(1) {
		if b := q.bufs[q.clean]; b != nil {
			frames++
			bufs += give(b, free)
		}
	}
	clear(q.bufs)
	clear(q.odd)
	q.oddOut, q.extra = 0, 0
	return frames, bufs
}

// tableStore is the memory of indirect tables (§2.7.5.3, §2.8.7).
type tableStore struct {
	mem  unsafe.Pointer
	bus  uint64
	free []uint8 // numbers of those that are not in use
	of   []int16 // by id: its table, −1: none
	n    int     // in use
}

func (t *tableStore) lay(size int, mem *vtop.Arena) (err error) {
	n := min(size, maxTables)
	if t.mem, t.bus, err = mem.Cut(n*tableBytes, ringLine); err != nil {
		return err
	}
	t.of = make([]int16, size)
	for i := range t.of {
		t.of[i] = -1
	}
	for i := range n {
		t.free = append(t.free, uint8(i))
	}
	return nil
}

func (t *tableStore) some() bool { return len(t.free) > 0 }

// fill writes parts into a table for the buffer with this id, and returns where it is. There is one; see some.
func (t *tableStore) fill(id uint16, parts []part, packed bool) (bus uint64) {
	k := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.of[id] = int16(k)
	t.n++
	off := int(k) * tableBytes
	table := unsafe.Slice((*ringDesc)(unsafe.Add(t.mem, off)), len(parts))
	for i, p := range parts {
		table[i] = ringDesc{p.bus, uint64(p.len)}
		if !packed && i+1 < len(parts) {
			table[i].hi = splitHi(p.len, spec.DescNext, uint32(i+1))
		}
	}
	return t.bus + uint64(off)
}

// release has the table of a buffer, if it has one, be used again.
func (t *tableStore) release(id uint16) {
	k := t.of[id]
	if k < 0 {
		return
	}
	t.of[id] = -1
	t.free = append(t.free, uint8(k))
	t.n--
}
