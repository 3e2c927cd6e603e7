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

// refillBatch is how many empty descriptors are worth a doorbell.
const refillBatch = 64

// rxErrors are the errors for which a frame is dropped here when the card has not dropped it itself (§7.1.6.2).
const rxErrors = reg.RXD_HBO | reg.RXD_CE | reg.RXD_LE | reg.RXD_PE | reg.RXD_OSE | reg.RXD_USE

// rxCare are the bits of a write-back's second word by which the fast path knows what is for it: it takes DD and EOP alone.
const rxCare = reg.RXD_DD | reg.RXD_EOP | rxErrors

// rxQueue is a receive ring and the buffers that the card has for it.
//
//	      next            tail
//	       ▼               ▼
//	… empty│ the card's…   │ empty …        filled = tail − next
//
// From next on, filled descriptors belong to the card or have been written back; the rest are empty: their address is
// poison and their second word 0.
type rxQueue struct {
	ring     []rxDesc
	bufs     []*mbuf.Buf // the buffer of each descriptor that the card has
	next     uint32      // the descriptor that is written back next
	filled   uint32
	batch    uint32
	notes    *rxNotes // what there is to say of frames beside hash and type; nil: nothing
	room     uint32   // bytes that the card may write to one buffer (SRRCTL.BSIZEPKT)
	tail     uint32   // RDT
	headroom uint32
	rdt      uint32 // its register
	bar      pci.BAR
	cache    *mbuf.Cache
	dead     atomic.Bool // the port is stopped or gone

	// A frame that spans buffers is put together here across calls.
	partial, partialLast *mbuf.Buf
	partialLen           uint32
	partialBad           bool

	maxFrame       uint32
	packets, bytes nic.Counter
	errors         nic.Counter // frames dropped here: an error bit, longer than configured, a length that cannot be
	noBuf          nic.Counter
	sleep          sleeper
	index          int
	bus            uint64
}

// Recv implements nic.RxQueue. It looks at one word of each descriptor in turn and never beyond the first that the card
// has not written back: write-backs become visible in order only (§7.1.6).
func (q *rxQueue) Recv(into []*mbuf.Buf) int {
	if q.dead.Load() {
		return 0
	}
	got, total := 0, uint32(0)
	for {
		// A run of descriptors without the ring's end in it.
		run := min(uint32(len(into)-got), q.filled, uint32(len(q.ring))-q.next)
		if q.partial != nil {
			run = 0 // a frame has begun: what comes next is part of it, even if it looks like a whole one
		}
		n, bytes := q.harvest(into[got:], run)
		q.advance(uint32(n))
		got += n
		total += bytes
		if got == len(into) || q.filled == 0 {
			break
		}
		if uint32(n) == run && q.partial == nil {
			continue // at the ring's end
		}
		if !q.done() {
			break
		}
		k, bytes := q.gather(into[got:])
		got += k
		total += bytes
	}
	if got > 0 {
		q.packets.Add(uint64(got))
		q.bytes.Add(uint64(total))
	}
	if uint32(len(q.ring))-1-q.filled >= q.batch {
		q.refill()
	}
	return got
}

// harvest takes up to run frames that lie in one buffer each. The caller advances.
func (q *rxQueue) harvest(into []*mbuf.Buf, run uint32) (n int, bytes uint32) {
	bufs := q.bufs[q.next : q.next+run]
	if q.notes != nil {
		n, bytes = collectNoted(q.ring[q.next:q.next+run], bufs, q.notes, q.room)
	} else {
		n, bytes = collect(q.ring[q.next:q.next+run], bufs, q.room)
	}
	if n > 0 {
		copy(into, bufs[:n])
	}
	return n, bytes
}

// collect is the loop over written-back descriptors: it tells the buffers what the card says of them and empties the
// descriptors, up to the first that is not a whole good frame of at most room bytes. The next descriptor is found by adding
// to a pointer, which is two instructions less than an index; there is one descriptor of memory behind each ring, so that the
// pointer stays inside.
func collect(descs []rxDesc, bufs []*mbuf.Buf, room uint32) (n int, bytes uint32) {
	bufs = bufs[:len(descs)]
	d := unsafe.SliceData(descs)
	for n < len(descs) {
		hi := atomic.LoadUint64(&d.hi)
		length := uint32(uint16(hi >> 32))
		if hi&rxCare != reg.RXD_DD|reg.RXD_EOP || length > room {
			break
		}
		lo := d.lo
		d.lo, d.hi = poisonBus, 0
		bufs[n].Received(length, lo&rxInfo)
		bytes += length
		n++
		d = (*rxDesc)(unsafe.Add(unsafe.Pointer(d), descSize))
	}
	return n, bytes
}

// done says whether the next descriptor has been written back.
func (q *rxQueue) done() bool {
	return q.filled > 0 && !q.dead.Load() && atomic.LoadUint64(&q.ring[q.next].hi)&reg.RXD_DD != 0
}

func (q *rxQueue) advance(n uint32) {
	q.filled -= n
	q.next += n
	if q.next == uint32(len(q.ring)) {
		q.next = 0
	}
}

// gather takes frames that are not in one plain piece, until there is none, into is full, or a plain one is next.
func (q *rxQueue) gather(into []*mbuf.Buf) (n int, bytes uint32) {
	for n < len(into) && q.done() {
		b, length := q.piece()
		if b == nil {
			continue
		}
		into[n] = b
		n++
		bytes += length
		if q.filled > 0 && atomic.LoadUint64(&q.ring[q.next].hi)&rxCare == reg.RXD_DD|reg.RXD_EOP {
			break
		}
	}
	return n, bytes
}

// piece takes one descriptor that the fast path left: a part of a frame that spans buffers, or a bad one. It returns the
// frame, and its length, when this was its end and it is good.
func (q *rxQueue) piece() (frame *mbuf.Buf, bytes uint32) {
	d := &q.ring[q.next]
	hi, lo := atomic.LoadUint64(&d.hi), d.lo
	b := q.bufs[q.next]
	d.lo, d.hi = poisonBus, 0
	q.advance(1)

	length := uint32(hi>>32) & 0xffff
	if length > q.room {
		length, q.partialBad = 0, true
	}
	b.Received(length, lo&rxInfo)
	if q.notes != nil {
		b.SetInfo(b.Flags()|q.notes.flags(lo, hi), b.Hash())
		b.VLAN = uint16(hi >> 48)
	}
	if q.partial == nil {
		q.partial = b
	} else {
		q.partialLast.SetNext(b)
	}
	q.partialLast = b
	q.partialLen += length
	if q.partialLen > q.maxFrame || hi&rxErrors != 0 {
		q.partialBad = true
	}
	if hi&reg.RXD_EOP == 0 {
		// Parts of no bytes would let a card that never ends a frame take every buffer there is.
		if q.partialBad = q.partialBad || length == 0; q.partialBad {
			q.dropSegments()
		}
		return nil, 0
	}
	return q.finish(b)
}

// finish ends the frame that has been put together. What the card knows of a frame is in its last descriptor.
func (q *rxQueue) finish(last *mbuf.Buf) (frame *mbuf.Buf, bytes uint32) {
	head, bytes, bad := q.partial, q.partialLen, q.partialBad
	q.partial, q.partialLast, q.partialLen, q.partialBad = nil, nil, 0, false
	if bad {
		q.cache.Free(head)
		q.errors.Add(1)
		return nil, 0
	}
	if head != last {
		head.SetInfo(last.Flags(), last.Hash())
		head.VLAN = last.VLAN
		last.SetInfo(0, 0)
	}
	return head, bytes
}

// dropSegments frees what has come of a bad frame so far; the head stays, empty, until the frame ends. A card that never
// ends one cannot take more than a buffer that way.
func (q *rxQueue) dropSegments() {
	if rest := q.partial.Next(); rest != nil {
		q.partial.SetNext(nil)
		q.cache.Free(rest)
		q.partialLast = q.partial
	}
}

// refill gives the card buffers for all empty descriptors, as far as the pool has them. A ring may hold fewer buffers
// than it has descriptors; it is refilled as soon as there are some.
func (q *rxQueue) refill() {
	if q.dead.Load() {
		return
	}
	size := uint32(len(q.ring))
	want := size - 1 - q.filled // one stays empty: RDH == RDT means none (§7.1.7)
	before := q.filled
	for want > 0 {
		run := min(want, size-q.tail)
		bufs := q.bufs[q.tail : q.tail+run]
		n := uint32(q.cache.AllocRaw(bufs))
		lend(q.ring[q.tail:q.tail+n], bufs[:n], q.headroom)
		q.filled += n
		q.tail += n
		if q.tail == size {
			q.tail = 0
		}
		want -= n
		if n < run {
			q.noBuf.Add(1)
			break
		}
	}
	if q.filled == before {
		return // a dry pool is no news to the card
	}
	q.bar.Write32(q.rdt, q.tail)
}

// lend is the loop that writes the addresses of fresh buffers into empty descriptors, whose second word is 0 already.
func lend(descs []rxDesc, bufs []*mbuf.Buf, headroom uint32) {
	d := unsafe.SliceData(descs) // see collect
	for _, b := range bufs {
		d.lo = b.Renew(headroom)
		d = (*rxDesc)(unsafe.Add(unsafe.Pointer(d), descSize))
	}
}

// Arm implements nic.RxQueue.
func (q *rxQueue) Arm(w *nic.Waiter) bool {
	if uint32(len(q.ring))-1-q.filled > 0 {
		q.refill() // sleeping with a ring that is not full invites drops
	}
	// A ring without a buffer receives nothing: nobody would wake who slept on it, not even once there are buffers again.
	if q.filled == 0 || q.done() || q.dead.Load() {
		return false
	}
	q.sleep.arm(w)
	// A port that stops or goes away wakes those that are armed, once; after that there is nobody to wake.
	return !q.done() && !q.dead.Load()
}

// drain takes back what the card had, once it may no longer touch it.
func (q *rxQueue) drain(free func(*mbuf.Buf)) (n int) {
	for ; q.filled > 0; n++ {
		free(q.bufs[q.next])
		q.bufs[q.next] = nil
		q.advance(1)
	}
	if q.partial != nil {
		n += q.partial.Segs()
		free(q.partial)
		q.partial, q.partialLast, q.partialLen, q.partialBad = nil, nil, 0, false
	}
	return n
}

// newRxQueue lays the ring out, every descriptor empty.
func newRxQueue(p *Port, index, size int, mem *vtop.Arena, pool *mbuf.Pool) (*rxQueue, error) {
	base, bus, err := cutRing(mem, size)
	if err != nil {
		return nil, err
	}
	q := &rxQueue{
		ring:     unsafe.Slice((*rxDesc)(base), size),
		bufs:     make([]*mbuf.Buf, size),
		batch:    uint32(min(refillBatch, size/4)),
		room:     uint32(min(pool.Size(), bufferMost)) &^ (bufferUnit - 1),
		headroom: uint32(pool.Headroom()),
		rdt:      reg.RDT(index),
		bar:      p.bar,
		cache:    pool.NewCacheAt(mbuf.Receive),
		notes:    newRxNotes(p.cfg.Offloads),
		maxFrame: uint32(p.cfg.MaxFrame),
		index:    index,
		bus:      bus,
	}
	for i := range q.ring {
		q.ring[i] = rxDesc{lo: poisonBus}
	}
	return q, nil
}

// rxInfo is what mbuf takes over of a write-back's first word: the hash, and the kinds of packet, which are bits of
// mbuf.Flags (§7.1.6.2).
const rxInfo = reg.RXD_RSSHASH | uint64(mbuf.RxTypes)
