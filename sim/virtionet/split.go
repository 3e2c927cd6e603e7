package virtionet

import (
	"encoding/binary"

	"bare.wire/virtio/spec"
)

// Offsets in the available and in the used ring (§2.7.6, §2.7.8).
const (
	ringFlags   = 0
	ringIndex   = 2
	ringEntries = 4
)

// fetchSplit is fetch in a split ring.
func (q *queue) fetchSplit(c *chain) bool {
	if q.avail == q.seen && !q.look() {
		return false
	}
	mask := uint16(q.size - 1)
	head := binary.LittleEndian.Uint16(q.at(&q.driver, q.d.mem, ringEntries+2*int(q.avail&mask), 2))
	if int(head) >= q.size {
		q.breaks(HeadRange, "head %d in a ring of %d", head, q.size)
		return false
	}
	c.id, c.count = head, 1
	var e descriptor
	for i := head; ; i = e.next {
		e.load(q.at(&q.desc, q.d.mem, int(i)*spec.DescSize, spec.DescSize))
		if q.d.broken {
			return false
		}
		if e.flags&spec.DescIndirect != 0 {
			if e.flags&spec.DescNext != 0 {
				q.breaks(IndirectForm, "descriptor %d: NEXT and INDIRECT", i)
				return false
			}
			if !q.indirect(c, e.addr, e.len) {
				return false
			}
			break
		}
		if !q.push(c, e.addr, e.len, e.flags) {
			return false
		}
		if e.flags&spec.DescNext == 0 {
			break
		}
		if int(e.next) >= q.size {
			q.breaks(NextRange, "descriptor %d: next %d in a ring of %d", i, e.next, q.size)
			return false
		}
	}
	q.avail++
	return true
}

// look reads the available index; true: there is something.
func (q *queue) look() bool {
	idx := load16(word16(q.at(&q.driver, q.d.mem, ringIndex, 2)))
	if q.d.broken {
		return false
	}
	// What the device has, and has not reported, is still in the ring.
	if jump := idx - q.used; int(jump) > q.size {
		q.breaks(IndexJump, "available index %d with %d used, in a ring of %d", idx, q.used, q.size)
		return false
	}
	if idx-q.used < q.avail-q.used {
		q.breaks(IndexJump, "available index %d goes back from %d", idx, q.avail)
		return false
	}
	q.seen = idx
	return idx != q.avail
}

// putSplit writes used entries, and publishes them.
func (q *queue) putSplit(list []done) {
	le := binary.LittleEndian
	mask := uint16(q.size - 1)
	for _, e := range list {
		at := ringEntries + 8*int(q.used&mask) // 4-aligned: a page may end between the two
		le.PutUint32(q.at(&q.device, q.d.out, at, 4), uint32(e.id))
		le.PutUint32(q.at(&q.device, q.d.out, at+4, 4), e.n)
		q.used += e.count
	}
	if q.d.broken {
		return
	}
	idx := q.used
	if q.d.cfg.Faults.IndexJump && q.d.strikes() {
		idx += uint16(q.size) + 1
	}
	store16(word16(q.at(&q.device, q.d.out, ringIndex, 2)), idx)
}

// wantsSplit says whether the driver wants to hear that used has gone on from old.
func (q *queue) wantsSplit(old uint16) bool {
	if q.events {
		event := load16(word16(q.at(&q.driver, q.d.mem, ringEntries+2*q.size, 2)))
		return spec.NeedEvent(event, q.used, old)
	}
	return load16(word16(q.at(&q.driver, q.d.mem, ringFlags, 2)))&spec.AvailNoInterrupt == 0
}

// suppressSplit tells the driver whether, or from which index on, notifications are wanted.
func (q *queue) suppressSplit(quiet bool) {
	if q.events {
		event := q.avail
		if quiet {
			event = q.avail - 1 // just passed: it will be some time until it comes again
		}
		store16(word16(q.at(&q.device, q.d.out, ringEntries+8*q.size, 2)), event)
		return
	}
	var flags uint16
	if quiet {
		flags = spec.UsedNoNotify
	}
	store16(word16(q.at(&q.device, q.d.out, ringFlags, 2)), flags)
}
