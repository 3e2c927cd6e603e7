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
	before := r.next
	if parts == 1 {
		r.next += r.whole(d, n)
	} else {
		r.next += r.pieces(d, n, parts)
	}
	r.head[1] = r.next
	return int(r.next - before)
}

// whole is the case that is measured: a frame to a buffer.
func (r *split) whole(d *Device, n int) (done uint16) {
	length := uint32(d.cfg.Length) + spec.HdrSize
	desc, used, entries, h := r.desc, r.used, r.avail[2:], d.header
	entries = entries[:len(used)]
	var c chunk
	for range n {
		at := int(r.next+done) & (len(used) - 1)
		id := int(entries[at])
		if id >= len(desc) {
			return done
		}
		e := &desc[id]
		if !c.has(e.addr) {
			c = d.chunk(e.addr)
		}
		if e.len < length || c.base == nil {
			return done
		}
		h.write(c.at(e.addr))
		used[at] = usedWord{uint32(id), length}
		done++
	}
	return done
}

// pieces has each frame fill parts buffers. A frame that there are not all buffers for does not arrive.
func (r *split) pieces(d *Device, n, parts int) (done uint16) {
	h := d.header.of(parts)
	for i := range n {
		at := (r.next + uint16(i)) & r.mask
		id, size := r.avail[2:][at], uint32(d.cfg.Length)
		if int(id) >= len(r.desc) {
			return done
		}
		e := &r.desc[id]
		if i%parts == 0 {
			size += spec.HdrSize
			c := d.chunk(e.addr)
			if c.base == nil || e.len < size {
				return done
			}
			h.write(c.at(e.addr))
		}
		if e.len < size {
			return done
		}
		r.used[at] = usedWord{uint32(id), size}
		if (i+1)%parts == 0 {
			done += uint16(parts)
		}
	}
	return done
}

func (r *split) transmit() int {
	n := r.waiting()
	for left := n; left > 0; {
		at := int(r.next & r.mask)
		entries := r.avail[2+at:] // to the end of the ring at most
		entries = entries[:min(left, len(entries))]
		used := r.used[at:][:len(entries)]
		for i, id := range entries {
			used[i] = usedWord{uint32(id), 0}
		}
		left -= len(entries)
		r.next += uint16(len(entries))
	}
	r.head[1] = r.next
	return n
}
