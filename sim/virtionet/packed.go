package virtionet

import (
	"encoding/binary"

	"bare.wire/virtio/spec"
)

// isAvailable says whether flags are those of a descriptor that the driver has made available on this lap (§2.8.1).
func isAvailable(flags uint16, wrap bool) bool {
	avail, used := flags&spec.DescAvail != 0, flags&spec.DescUsed != 0
	return avail == wrap && used != wrap
}

// step moves a position in a packed ring on by n ≤ size.
func (q *queue) step(pos *uint16, wrap *bool, n uint16) {
	if *pos += n; int(*pos) >= q.size {
		*pos -= uint16(q.size)
		*wrap = !*wrap
	}
}

// slot is the bytes of a descriptor of a packed ring.
func (q *queue) slot(pos uint16) []byte {
	return q.at(&q.desc, q.d.out, int(pos)*spec.DescSize, spec.DescSize)
}

// lookPacked says whether there is something available.
func (q *queue) lookPacked() bool {
	flags := load16(word16(q.slot(q.avail)[spec.PackedDescFlags:]))
	return isAvailable(flags, q.availWrap) && !q.d.broken
}

// fetchPacked is fetch in a packed ring. The first descriptor's flags were written last, and are read first; the id is in
// the last.
func (q *queue) fetchPacked(c *chain) bool {
	pos, wrap := q.avail, q.availWrap
	var e descriptor
	for {
		b := q.slot(pos)
		flags := load16(word16(b[spec.PackedDescFlags:]))
		if q.d.broken {
			return false
		}
		if !isAvailable(flags, wrap) {
			if c.count > 0 {
				q.breaks(ChainUnready, "descriptor %d, inside a chain: flags %#04x", pos, flags)
			}
			return false
		}
		e.load(b)
		c.id, e.flags = e.flags, flags // where a split ring has its flags is the id
		c.count++
		switch {
		case int(c.count) > q.size:
			q.breaks(ChainLength, "more than %d descriptors from %d on", q.size, q.avail)
			return false
		case e.flags&spec.DescIndirect != 0:
			if c.count > 1 || e.flags&spec.DescNext != 0 {
				q.breaks(IndirectForm, "descriptor %d: a table inside a chain", pos)
				return false
			}
			if !q.indirect(c, e.addr, e.len) {
				return false
			}
		case !q.push(c, e.addr, e.len, e.flags):
			return false
		}
		q.step(&pos, &wrap, 1)
		if e.flags&spec.DescNext == 0 {
			break
		}
	}
	q.avail, q.availWrap = pos, wrap
	return true
}

// putPacked writes used descriptors. The flags of the first are written last: with them the driver sees all.
func (q *queue) putPacked(list []done) {
	le := binary.LittleEndian
	var first []byte
	var firstWord uint32
	for i, e := range list {
		b := q.slot(q.used)
		flags := uint16(0)
		if q.usedWrap != q.flip() {
			flags = spec.DescAvail | spec.DescUsed
		}
		if e.n > 0 {
			flags |= spec.DescWrite
		}
		le.PutUint32(b[spec.SplitDescLen:], e.n)
		word := uint32(e.id) | uint32(flags)<<16
		if i == 0 {
			first, firstWord = b, word
		} else {
			store32(word32(b[spec.PackedDescID:]), word)
		}
		q.step(&q.used, &q.usedWrap, e.count)
	}
	if first != nil && !q.d.broken {
		store32(word32(first[spec.PackedDescID:]), firstWord)
	}
}

// flip says, now and then, that a fault turns the wrap counter round.
func (q *queue) flip() bool { return q.d.cfg.Faults.WrapFlip && q.d.strikes() }

// wantsPacked says whether the driver wants to hear that used has gone on from old (§2.8.10).
func (q *queue) wantsPacked(old uint16) bool {
	b := q.at(&q.driver, q.d.mem, 0, spec.EventSize)
	at := load16(word16(b))
	switch load16(word16(b[2:])) & 3 {
	case spec.EventDisable:
		return false
	case spec.EventDesc:
		if !q.events {
			q.d.wrong(EventForm, q.i, "a position without event_idx being agreed on")
			return true
		}
	default:
		return true
	}
	pos, now := int(at&^spec.EventWrap), int(q.used)
	if pos >= q.size {
		q.d.wrong(EventForm, q.i, "position %d in a ring of %d", pos, q.size)
		return true
	}
	from := int(old)
	if now <= from {
		from -= q.size
	}
	if at&spec.EventWrap != 0 != q.usedWrap {
		pos -= q.size
	}
	return spec.NeedEvent(uint16(pos), uint16(now), uint16(from))
}

// suppressPacked tells the driver whether, or from which position on, notifications are wanted.
func (q *queue) suppressPacked(quiet bool) {
	b := q.at(&q.device, q.d.out, 0, spec.EventSize)
	flags := uint16(spec.EventEnable)
	switch {
	case quiet:
		flags = spec.EventDisable
	case q.events:
		store16(word16(b), pack(q.avail, q.availWrap))
		flags = spec.EventDesc
	}
	store16(word16(b[2:]), flags)
}
