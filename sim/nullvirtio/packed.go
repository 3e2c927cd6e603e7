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
	length := uint32(d.cfg.Length)
	whole := length + spec.HdrSize
	done := 0
	if parts == 1 { // the case that is measured
		for ; done < n; done++ {
			e := &r.desc[r.at]
			if e.len < whole || !d.put(e.addr, 1) {
				break
			}
			e.len = whole
			e.hi = e.hi&idMask | r.used | writeFlag
			r.step(1)
		}
		return done
	}
	for ; done < n; done++ {
		e := &r.desc[r.at]
		size := length
		if done%parts == 0 {
			size = whole
		}
		if e.len < size || done%parts == 0 && !d.put(e.addr, parts) {
			break
		}
		e.len = size
		e.hi = e.hi&idMask | r.used | writeFlag
		r.step(1)
	}
	return done
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
