package virtio

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// refillBatch is how many free descriptors are worth to be filled and published.
const refillBatch = 64

// minFrame is the shortest frame that is sent or received: an Ethernet header.
const minFrame = 14

// maxGSO is the longest frame of joined segments: an IP packet, an Ethernet header and a tag.
const maxGSO = 65535 + minFrame + 4

// rxQueue is a receive ring and the buffers that the device has for it. It gives the device each with its header in front of
// where the frame is to begin; with FeatureMrgRxBuf a frame that is longer goes on in further buffers, without it in further
// descriptors of the same.
type rxQueue struct {
	virtqueue
	batch uint32
	front uint32 // where the frame begins in a buffer's storage
	room  uint32 // bytes from there on
	hdr   uint32
	span  uint32 // of a frame in one buffer: longest − minFrame

	look     bool   // whether the header says anything that the fast path needs
	mrg      bool   // … how many buffers there are
	several  uint32 // … a mask of that, in the word that begins with csum_offset
	single   uint32 // … and what it is of a frame in one buffer
	care     uint64 // … the bits that are to be noted, of its first word
	hash     bool   // … a hash
	valid    uint64 // what a header notes that says HdrDataValid and nothing else
	notes    rxNotes
	descs    uint32 // descriptors of a buffer: 1 on the fast path
	segs     uint32 // segments of a buffer
	capacity uint32 // bytes that the device may write to one

	// A frame that spans buffers is put together here across calls.
	partial, partialLast *mbuf.Buf
	partialLen           uint32
	partialBad           bool
	partialHdr           rxHeader
	left                 uint32 // buffers that it still lacks

	maxFrame       uint32
	cache          *mbuf.Cache
	packets, bytes nic.Counter
	errors         nic.Counter // frames dropped here: too long, too short, or a header that does not fit them
	noBuf          nic.Counter // refills that found too few buffers in the pool
	index          int
	fresh          []*mbuf.Buf // scratch
	parts          []part
}

func newRxQueue(env *queueEnv, vq, index, size int, mem *vtop.Arena, pool *mbuf.Pool) (*rxQueue, error) {
	q := &rxQueue{index: index, hdr: uint32(env.header), maxFrame: uint32(env.maxFrame), segs: 1, descs: 1}
	if err := q.init(env, fmt.Sprintf("receive queue %d", index), vq, size, mem); err != nil {
		return nil, err
	}
	q.front = max(uint32(pool.Headroom()), q.hdr)
	storage := uint32(pool.Headroom() + pool.Size())
	if storage < q.front+minFrame {
		return nil, fmt.Errorf("%s: pool %q has buffers of %d bytes: a header of %d and a frame do not fit", q.what, pool.Name(), storage, q.hdr)
	}
	q.room = storage - q.front
	q.span = min(q.room, q.maxFrame) - minFrame
	if q.mrg = env.features&spec.FeatureMrgRxBuf != 0; q.mrg {
		q.several, q.single = 0xffff<<16, 1<<16
	}
	q.notes = newRxNotes(env)
	q.hash = env.features&spec.FeatureHashReport != 0
	q.care = q.notes.care
	if q.notes.good != 0 {
		q.valid = uint64(mbuf.RxL4Good)
	}
	q.look = q.mrg || q.hash || q.care != 0
	if !q.mrg {
		longest := q.maxFrame
		if env.features&(spec.FeatureGuestTSO4|spec.FeatureGuestTSO6) != 0 {
			longest = maxGSO
		}
		q.segs = (longest + q.room - 1) / q.room
	}
	q.descs = q.segs
	if env.ownHeader() {
		q.descs++
	}
	if q.descs > q.size {
		return nil, fmt.Errorf("%s: a frame takes %d buffers of %d bytes, and the ring has %d descriptors: take larger buffers, or no RxGSO",
			q.what, q.segs, q.room, q.size)
	}
	q.capacity = q.hdr + q.segs*q.room
	q.batch = min(refillBatch, max(1, q.size/4))
	q.fresh, q.parts = make([]*mbuf.Buf, q.segs), make([]part, 0, q.descs)
	if !q.packed {
		for i := range q.desc { // of one descriptor a buffer only the address changes
			q.desc[i].hi = splitHi(q.hdr+q.room, spec.DescWrite, 0)
		}
	}
	q.cache = pool.NewCacheAt(mbuf.Receive)
	return q, nil
}

// start fills the ring, once the device may be notified (StatusDriverOK).
func (q *rxQueue) start(bell Doorbell) {
	q.bell = bell
	q.refill()
}

// Recv implements nic.RxQueue.
func (q *rxQueue) Recv(into []*mbuf.Buf) int {
	if q.dead.Load() {
		return 0
	}
	if q.armed {
		q.disarm()
	}
	got, total := 0, uint64(0)
	for got < len(into) {
		n, bytes, more := q.harvest(into[got:])
		got += n
		total += bytes
		if more == moreNone {
			break
		}
		if more == moreOdd {
			b, length, ok := q.piece()
			if !ok {
				break
			}
			if b != nil {
				into[got] = b
				got++
				total += uint64(length)
			}
		}
	}
	if got > 0 {
		q.packets.Add(uint64(got))
		q.bytes.Add(total)
		q.keepPast()
	}
	if q.size-q.out >= q.batch {
		q.refill()
	}
	return got
}

// What there is after a harvest.
const (
	moreNone  = iota // nothing
	moreMaybe        // it ended where the ring does
	moreOdd          // a buffer that the fast path does not take
)

// harvest takes frames that lie in one buffer each and come in order, up to the end of the ring.
func (q *rxQueue) harvest(into []*mbuf.Buf) (n int, bytes uint64, more int) {
	if q.descs > 1 || q.left > 0 || q.batchLeft > 0 {
		if q.ready() {
			return 0, 0, moreOdd
		}
		return 0, 0, moreNone
	}
	run := min(uint32(len(into)), q.size-q.clean)
	if q.packed {
		run = min(run, q.out)
		n, bytes = q.collectPacked(q.bufs[q.clean : q.clean+run])
	} else {
		used := q.usedSplit()
		at := uint32(q.split.usedIdx) & q.split.mask
		run = min(run, used, q.size-at)
		n, bytes = q.collectSplit(q.bufs[q.clean:q.clean+run], q.split.elems[at:at+run])
		if uint32(n) == used {
			more = moreNone
		} else if more = moreMaybe; uint32(n) < run {
			more = moreOdd
		}
	}
	copy(into, q.bufs[q.clean:q.clean+uint32(n)])
	q.split.usedIdx += uint16(n)
	q.advanceClean(uint32(n))
	if q.packed {
		more = moreMaybe
		if uint32(n) < run || run == 0 {
			more = moreNone
			if q.ready() {
				more = moreOdd
			}
		}
	}
	return n, bytes, more
}

// collectSplit is the loop over used elements: it tells the buffers what the device says of them, up to the first that is not a
// whole good frame in the buffer that comes next.
func (q *rxQueue) collectSplit(bufs []*mbuf.Buf, elems []usedElem) (n int, bytes uint64) {
	order := q.order[q.clean:]
	order, elems = order[:len(bufs)], elems[:len(bufs)]
	hdr, span, look := q.hdr, q.span, q.look
	least, care, several, single := hdr+minFrame, q.care, q.several, q.single
	for n < len(bufs) {
		e := &elems[n]
		id, length := atomic.LoadUint32(&e.id), atomic.LoadUint32(&e.len)-least
		if id != uint32(order[n]) || length > span {
			break
		}
		length += minFrame
		b := bufs[n]
		var info uint64
		if look {
			h := headerAt(b, hdr)
			if *(*uint32)(unsafe.Add(h, spec.HdrCSumOffset))&several != single {
				break
			}
			if says := care & *(*uint64)(h); says == spec.HdrDataValid && !q.hash {
				info = q.valid
			} else if says != 0 || q.hash {
				var ok bool
				if info, ok = q.note(b, q.readHeader(h), length); !ok {
					break
				}
			}
		}
		b.Received(length, info)
		bytes += uint64(length)
		n++
	}
	return n, bytes
}

// collectPacked is collectSplit for a packed ring: used descriptors lie in the ring itself. Behind the last are the event
// structures, so that the pointer stays inside.
func (q *rxQueue) collectPacked(bufs []*mbuf.Buf) (n int, bytes uint64) {
	order := q.order[q.clean:]
	order = order[:len(bufs)]
	d := unsafe.SliceData(q.desc[q.clean:])
	want := q.pack.usedFlags << 16
	hdr, span, look := q.hdr, q.span, q.look
	least, care, several, single := hdr+minFrame, q.care, q.several, q.single
	for n < len(bufs) {
		if atomic.LoadUint32(wordOf(d))&(bothWraps<<16|0xffff) != want|uint32(order[n]) {
			break
		}
		length := atomic.LoadUint32(lenOf(d)) - least
		if length > span {
			break
		}
		length += minFrame
		b := bufs[n]
		var info uint64
		if look {
			h := headerAt(b, hdr)
			if *(*uint32)(unsafe.Add(h, spec.HdrCSumOffset))&several != single {
				break
			}
			if says := care & *(*uint64)(h); says == spec.HdrDataValid && !q.hash {
				info = q.valid
			} else if says != 0 || q.hash {
				var ok bool
				if info, ok = q.note(b, q.readHeader(h), length); !ok {
					break
				}
			}
		}
		b.Received(length, info)
		bytes += uint64(length)
		n++
		d = (*ringDesc)(unsafe.Add(unsafe.Pointer(d), spec.DescSize))
	}
	return n, bytes
}

// headerAt is where the header of hdr bytes is in front of the frame that begins in b.
func headerAt(b *mbuf.Buf, hdr uint32) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(b.Bytes())), -int(hdr))
}

// piece takes one buffer that the fast path left. It returns the frame, and its length, when it is complete and good; false when
// nothing could be taken.
func (q *rxQueue) piece() (frame *mbuf.Buf, bytes uint32, ok bool) {
	id, written, ok := q.take()
	if !ok {
		return nil, 0, false
	}
	if written == whole {
		written = q.capacity
	}
	if written > q.capacity {
		q.broke("%d bytes written to a buffer of %d", written, q.capacity)
		return nil, 0, false
	}
	first := q.left == 0
	if first && !q.begin(id, written) {
		return nil, 0, false
	}
	q.left--
	length := q.unchain(id, written, first)
	q.partialLen += length
	if q.partialLen > maxGSO || length == 0 {
		q.partialBad = true
	}
	if q.left == 0 {
		frame, bytes = q.finish()
	} else if q.partialBad {
		q.dropSegments()
	}
	return frame, bytes, true
}

// begin looks at the header of a frame, whose first buffer begins with id.
func (q *rxQueue) begin(id, written uint32) bool {
	if written < q.hdr {
		q.broke("%d bytes written, which is less than a header of %d", written, q.hdr)
		return false
	}
	at := uint32(q.pos[id])
	if q.env.ownHeader() {
		at = uint32(q.pos[q.link[id]])
	}
	q.partialHdr = q.readHeader(headerAt(q.bufs[at], q.hdr))
	q.left = 1
	if q.mrg {
		q.left = q.partialHdr.buffers()
		if most := q.size / q.descs; q.left == 0 || q.left > most {
			q.broke("a frame in %d buffers, of %d that there can be", q.left, most)
			return false
		}
	}
	return true
}

// unchain takes a buffer out of the ring, and hangs those of its segments in which bytes were written behind the frame that is
// put together. It returns how many bytes of the frame they have.
func (q *rxQueue) unchain(id, written uint32, first bool) (length uint32) {
	before := q.partialLast
	if first {
		written -= q.hdr
		before = nil
	}
	next := id
	for range q.chain[id] {
		b := q.bufs[q.pos[next]]
		next = uint32(q.link[next])
		if b == nil {
			continue // the header's descriptor
		}
		room := q.room
		if !first && length == 0 {
			b.Renew(q.front - q.hdr) // no header: the frame goes on where it would be
			room += q.hdr
		}
		n := min(room, written-length)
		if n == 0 && before != nil {
			q.cache.Free(b)
			continue
		}
		b.Received(n, 0)
		length += n
		if before == nil {
			q.partial = b
		} else {
			before.SetNext(b)
		}
		before = b
	}
	q.partialLast = before
	q.retire(id)
	return length
}

// finish ends the frame that has been put together.
func (q *rxQueue) finish() (frame *mbuf.Buf, bytes uint32) {
	head, length, bad := q.partial, q.partialLen, q.partialBad
	q.partial, q.partialLast, q.partialLen, q.partialBad = nil, nil, 0, false
	if !bad && length >= minFrame {
		if info, ok := q.note(head, q.partialHdr, length); ok {
			head.SetInfo(mbuf.Flags(info), uint32(info>>32))
			return head, length
		}
	}
	q.cache.Free(head)
	q.errors.Add(1)
	return nil, 0
}

// dropSegments frees what has come of a bad frame so far; the head stays, until the frame ends.
func (q *rxQueue) dropSegments() {
	if rest := q.partial.Next(); rest != nil {
		q.partial.SetNext(nil)
		q.cache.Free(rest)
		q.partialLast = q.partial
	}
}

// refill gives the device buffers for all free descriptors, as far as the pool has them.
func (q *rxQueue) refill() {
	if q.dead.Load() {
		return
	}
	before := q.out
	if q.descs == 1 {
		q.refillPlain()
	} else {
		q.refillChains()
	}
	if q.out != before {
		q.publish()
	}
}

func (q *rxQueue) refillPlain() {
	for q.out < q.size {
		run := min(q.size-q.out, q.size-q.tail)
		bufs := q.bufs[q.tail : q.tail+run]
		n := uint32(q.cache.AllocRaw(bufs))
		if n > 0 {
			if q.packed {
				q.lendPacked(bufs[:n])
			} else {
				q.lendSplit(bufs[:n])
				q.offer(q.tail, n)
			}
			q.advanceTail(n)
		}
		if n < run {
			q.noBuf.Add(1)
			return
		}
	}
}

// lendSplit is the loop that writes the addresses of fresh buffers into descriptors, the rest of which does not change.
func (q *rxQueue) lendSplit(bufs []*mbuf.Buf) {
	front, hdr := q.front, uint64(q.hdr)
	if q.split.identity {
		d := unsafe.SliceData(q.desc[q.tail:])
		for _, b := range bufs {
			d.addr = b.Renew(front) - hdr
			d = (*ringDesc)(unsafe.Add(unsafe.Pointer(d), spec.DescSize))
		}
		return
	}
	order := q.order[q.tail:][:len(bufs)]
	for i, b := range bufs {
		q.desc[order[i]].addr = b.Renew(front) - hdr
	}
}

func (q *rxQueue) lendPacked(bufs []*mbuf.Buf) {
	front, hdr := q.front, uint64(q.hdr)
	order := q.order[q.tail:][:len(bufs)]
	hi := packedHi(q.hdr+q.room, 0, spec.DescWrite|q.pack.availFlags)
	d := unsafe.SliceData(q.desc[q.tail:])
	at := 0
	if q.hold(uint32(order[0]), spec.DescWrite) {
		d.addr = bufs[0].Renew(front) - hdr
		*lenOf(d) = uint32(hi)
		d = (*ringDesc)(unsafe.Add(unsafe.Pointer(d), spec.DescSize))
		at = 1
	}
	order = order[at:]
	for i, b := range bufs[at:] {
		d.addr = b.Renew(front) - hdr
		d.hi = hi | uint64(order[i])<<32
		d = (*ringDesc)(unsafe.Add(unsafe.Pointer(d), spec.DescSize))
	}
	q.pack.added += uint32(len(bufs))
}

// refillChains is refillPlain for buffers of several descriptors.
func (q *rxQueue) refillChains() {
	bufs := q.fresh
	for q.size-q.out >= q.descs {
		if n := q.cache.AllocRaw(bufs); n < len(bufs) {
			for _, b := range bufs[:n] {
				q.cache.Free(b)
			}
			q.noBuf.Add(1)
			return
		}
		parts := q.parts[:0]
		for i, b := range bufs {
			bus, room := b.Renew(q.front), q.room
			switch {
			case i > 0:
			case q.env.ownHeader():
				parts = append(parts, part{bus - uint64(q.hdr), q.hdr})
			default:
				bus, room = bus-uint64(q.hdr), room+q.hdr
			}
			parts = append(parts, part{bus, room})
		}
		at := q.add(parts, 0)
		for i := range parts {
			q.bufs[at] = nil
			if k := i + len(bufs) - len(parts); k >= 0 {
				q.bufs[at] = bufs[k]
			}
			if at++; at == q.size {
				at = 0
			}
		}
	}
}

// Arm implements nic.RxQueue.
func (q *rxQueue) Arm(w *nic.Waiter) bool {
	if q.size-q.out >= q.descs {
		q.refill() // sleeping with a ring that is not full invites drops
	}
	// A ring without a buffer receives nothing: nobody would wake who slept on it, not even once there are buffers again.
	if q.ready() || q.out == 0 || q.dead.Load() {
		return false
	}
	q.arm(w)
	// A port that stops or goes away wakes those that are armed, once; after that there is nobody to wake.
	return !q.ready() && !q.dead.Load()
}

// drain takes back what the device had, once it may no longer touch it, and returns how many buffers that were.
func (q *rxQueue) drain(free func(*mbuf.Buf)) (n int) {
	for ; q.out > 0; q.advanceClean(1) {
		if b := q.bufs[q.clean]; b != nil {
			free(b)
			n++
		}
	}
	clear(q.bufs)
	n += give(q.partial, free)
	q.partial, q.partialLast, q.left = nil, nil, 0
	return n
}
