package nullvirtio

import (
	"errors"

	"bare.wire/virtio/spec"
)

var errSize = errors.New("want a power of two of descriptors")

// split is a split ring (§2.7). Driver and device are one goroutine, so its words are read and written as they are.
type split struct {
	desc  []desc
	mask  uint16
	avail []uint16 // flags, index, entries
	used  []usedWord
	head  []uint16 // of the used ring: flags, index
	next  uint16   // the next available entry, and the next used one: all that is taken is used at once
}

// desc is a descriptor of either ring.
type desc struct {
	addr uint64
	len  uint32
	hi   uint32 // split: flags, next; packed: id, flags
}

// usedWord is an entry of the used ring.
type usedWord struct{ id, len uint32 }

func (d *Device) newSplit(at Area) (*split, error) {
	if at.Size&(at.Size-1) != 0 {
		return nil, errSize
	}
	desc, err := piece[desc](d, "descriptor table", at.Desc, at.Size)
	if err != nil {
		return nil, err
	}
	avail, err := piece[uint16](d, "available ring", at.Driver, 2+at.Size)
	if err != nil {
		return nil, err
	}
	head, err := piece[uint16](d, "used ring", at.Device, 2+4*at.Size+1)
	if err != nil {
		return nil, err
	}
	used, err := piece[usedWord](d, "used ring", at.Device+4, at.Size)
	if err != nil {
		return nil, err
	}
	// No notifications: said by the flag, or by an event index that is passed once in 2¹⁶ buffers.
	head[0] = spec.UsedNoNotify
	head[2+4*at.Size] = 1 << 15
	return &split{desc: desc, mask: uint16(at.Size - 1), avail: avail, used: used, head: head[:2], next: head[1]}, nil
}

// waiting is how many available entries have not been used. An index that has gone further than the ring is long gives 0.
func (r *split) waiting() int {
	n := int(r.avail[1] - r.next)
	if n > len(r.desc) {
		return 0
	}
	return n
}

func (r *split) available(max int) int { return min(max, r.waiting()) }

func (r *split) receive(d *Device, n, parts int) int {
	at, length := r.next, uint32(d.cfg.Length)
	whole := length + spec.HdrSize
	if parts == 1 { // the case that is measured
		for range n {
			id, e := r.peek(at)
			if e == nil || e.len < whole || !d.put(e.addr, 1) {
				break
			}
			r.used[at&r.mask] = usedWord{uint32(id), whole}
			at++
		}
	} else {
		for i := range n {
			size := length
			if i%parts == 0 {
				size = whole
			}
			id, e := r.peek(at)
			if e == nil || e.len < size || i%parts == 0 && !d.put(e.addr, parts) {
				at -= uint16(i % parts)
				break
			}
			r.used[at&r.mask] = usedWord{uint32(id), size}
			at++
		}
	}
	done := int(at - r.next)
	r.next = at
	r.head[1] = at
	return done
}

// peek returns the available entry of an index, and its descriptor; nil for one that is none.
func (r *split) peek(at uint16) (id uint16, e *desc) {
	id = r.avail[2:][at&r.mask]
	if int(id) >= len(r.desc) {
		return id, nil
	}
	return id, &r.desc[id]
}

func (r *split) transmit() int {
	entries := r.avail[2:]
	n := r.waiting()
	at := r.next
	for range n {
		r.used[at&r.mask] = usedWord{uint32(entries[at&r.mask]), 0}
		at++
	}
	r.next = at
	r.head[1] = at
	return n
}
