package nullvirtio

import "bare.wire/virtio/spec"

// packed is a packed ring (§2.8). Driver and device are one goroutine, so its descriptors are read and written as they are.
type packed struct {
	desc    []desc
	at      int    // the next descriptor to look at
	fresh   uint32 // the two wrap flags, in a descriptor's upper word, of one that is available
	used    uint32 // … of one that is used
	inOrder bool
}

const (
	flagsShift = 16
	availFlag  = spec.DescAvail << flagsShift
	usedFlag   = spec.DescUsed << flagsShift
	wrapFlags  = availFlag | usedFlag
	nextFlag   = spec.DescNext << flagsShift
	writeFlag  = spec.DescWrite << flagsShift
	idMask     = 1<<flagsShift - 1
)

func (d *Device) newPacked(at Area) (*packed, error) {
	desc, err := piece[desc](d, "ring", at.Desc, at.Size)
	if err != nil {
		return nil, err
	}
	event, err := piece[uint16](d, "device event", at.Device, spec.EventSize/2)
	if err != nil {
		return nil, err
	}
	event[1] = spec.EventDisable // no notifications
	return &packed{desc: desc, fresh: availFlag, used: wrapFlags, inOrder: d.agreed.Has(spec.FeatureInOrder)}, nil
}

// step goes n descriptors on.
func (r *packed) step(n int) {
	if r.at += n; r.at >= len(r.desc) {
		r.at -= len(r.desc)
		r.fresh ^= wrapFlags
		r.used ^= wrapFlags
	}
}

// available looks as far as it has to.
func (r *packed) available(max int) int {
	at, fresh := r.at, r.fresh
	for n := range min(max, len(r.desc)) {
		if r.desc[at].hi&wrapFlags != fresh {
			return n
		}
		if at++; at == len(r.desc) {
			at = 0
			fresh ^= wrapFlags
		}
	}
	return min(max, len(r.desc))
}

func (r *packed) receive(d *Device, n, parts int) int {
	if parts == 1 {
		return r.whole(d, n)
	}
	return r.pieces(d, n, parts)
}

// whole is the case that is measured: a frame to a buffer.
func (r *packed) whole(d *Device, n int) int {
	length := uint32(d.cfg.Length) + spec.HdrSize
	h := d.header
	var c chunk
	for left := n; left > 0; {
		run := r.desc[r.at:] // to the end of the ring at most
		run = run[:min(left, len(run))]
		flags := r.used | writeFlag
		for i := range run {
			e := &run[i]
			if !c.has(e.addr) {
				c = d.chunk(e.addr)
			}
			if e.len < length || c.base == nil {
				r.step(i)
				return n - left + i
			}
			h.write(c.at(e.addr))
			e.len = length
			e.hi = e.hi&idMask | flags
		}
		left -= len(run)
		r.step(len(run))
	}
	return n
}

// pieces has each frame fill parts buffers.
func (r *packed) pieces(d *Device, n, parts int) int {
	h := d.header.of(parts)
	for i := range n {
		e := &r.desc[r.at]
		size := uint32(d.cfg.Length)
		if i%parts == 0 {
			size += spec.HdrSize
			c := d.chunk(e.addr)
			if c.base == nil || e.len < size {
				return i
			}
			h.write(c.at(e.addr))
		}
		if e.len < size {
			return i
		}
		e.len = size
		e.hi = e.hi&idMask | r.used | writeFlag
		r.step(1)
	}
	return n
}

// transmit uses each chain by a descriptor at its beginning, with the id of its end (§2.8.6); in order, all of them by one, which
// has the id of the last (§2.8.9).
func (r *packed) transmit() int {
	frames, from, used := 0, r.at, r.used
	id := uint32(0)
	for {
		head, mark := r.at, r.used
		length := 1
		e := r.desc[r.at].hi
		if e&wrapFlags != r.fresh {
			break
		}
		for e&nextFlag != 0 && length < len(r.desc) {
			r.step(1)
			length++
			e = r.desc[r.at].hi
		}
		r.step(1)
		frames++
		id = e & idMask
		if !r.inOrder {
			r.desc[head] = desc{addr: r.desc[head].addr, hi: id | mark}
		}
	}
	if r.inOrder && frames > 0 {
		r.desc[from] = desc{addr: r.desc[from].addr, hi: id | used}
	}
	return frames
}
