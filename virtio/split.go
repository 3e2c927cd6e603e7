package virtio

import (
	"sync/atomic"
	"unsafe"

	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// splitRing is the memory of a split ring (§2.7) beside its descriptors, and how far it is. Indices count buffers, modulo 2¹⁶.
//
// All 16-bit words that both sides look at while the other works are read and written as the aligned word of 32 bits that they
// are part of, whose other half is the same side's, or nobody's (see spec.SplitLayout).
type splitRing struct {
	avail      *uint32 // flags, idx: the driver's
	entries    []uint16
	usedEvent  *uint32
	used       *uint32 // flags, idx: the device's
	elems      []usedElem
	availEvent *uint32

	mask     uint32
	availIdx uint16 // of what has been added
	added    uint16 // of that, not published yet
	usedIdx  uint16 // of what has been taken
	event    uint16 // used_event as it was written last
	flags    uint32 // avail.flags

	// identity says that entries hold order, and that the next entry is at the tail: as long as the device uses buffers in their
	// order, and all have one descriptor. Then entries need not be written at all.
	identity bool

	bus, availBus, usedBus uint64
}

// usedElem is an element of the used ring (§2.7.8).
type usedElem struct{ id, len uint32 }

func (v *virtqueue) laySplit(mem *vtop.Arena) error {
	align := ringLine
	if v.env.legacy {
		align = spec.LegacyAlign
	}
	l, err := spec.NewSplitLayout(int(v.size), align)
	if err != nil {
		return err
	}
	base, bus, err := mem.Cut(l.Bytes, align)
	if err != nil {
		return err
	}
	v.desc = unsafe.Slice((*ringDesc)(base), v.size)
	v.split = splitRing{
		avail:      word(base, l.Avail),
		entries:    unsafe.Slice((*uint16)(unsafe.Add(base, l.AvailEntries)), v.size),
		usedEvent:  word(base, l.UsedEvent),
		used:       word(base, l.Used),
		elems:      unsafe.Slice((*usedElem)(unsafe.Add(base, l.UsedEntries)), v.size),
		availEvent: word(base, l.AvailEvent),
		mask:       v.size - 1,
		identity:   true,
		bus:        bus, availBus: bus + uint64(l.Avail), usedBus: bus + uint64(l.Used),
	}
	for i := range v.split.entries {
		v.split.entries[i] = uint16(i)
	}
	v.disarmSplit()
	return nil
}

// offer puts n buffers of one descriptor each, the first at position at, into the available ring.
func (v *virtqueue) offer(at, n uint32) {
	s := &v.split
	if !s.identity {
		for _, id := range v.order[at : at+n] {
			s.entries[uint32(s.availIdx)&s.mask] = id
			s.availIdx++
		}
	} else {
		s.availIdx += uint16(n)
	}
	s.added += uint16(n)
}

func (v *virtqueue) addSplit(parts []part, write int) {
	n := uint32(len(parts))
	v.chained(n)
	at := v.tail
	for i, p := range parts {
		next := at + 1
		if next == v.size {
			next = 0
		}
		var flags uint32
		if i >= write {
			flags |= spec.DescWrite
		}
		if i+1 < len(parts) {
			flags |= spec.DescNext
		}
		v.desc[v.order[at]] = ringDesc{p.bus, splitHi(p.len, flags, uint32(v.order[next]))}
		at = next
	}
	v.split.identity = v.split.identity && n == 1
	v.offer(v.tail, 1)
	for range n {
		v.advanceTail(1)
	}
}

// putSplit adds a buffer of one descriptor.
func (v *virtqueue) putSplit(p part, flags uint32) {
	v.desc[v.order[v.tail]] = ringDesc{p.bus, splitHi(p.len, flags, 0)}
	v.offer(v.tail, 1)
	v.advanceTail(1)
}

// publishSplit makes what was added visible, and says whether the device wants to hear of it. The store orders what was written
// before it, and is seen before the device's wish is read.
func (v *virtqueue) publishSplit() (want bool, position uint16) {
	s := &v.split
	now, before := s.availIdx, s.availIdx-s.added
	s.added = 0
	atomic.StoreUint32(s.avail, uint32(now)<<16|s.flags)
	if v.eventIdx {
		return spec.NeedEvent(uint16(atomic.LoadUint32(s.availEvent)), now, before), now
	}
	return atomic.LoadUint32(s.used)&spec.UsedNoNotify == 0, now
}

func (v *virtqueue) readySplit() bool {
	return uint16(atomic.LoadUint32(v.split.used)>>16) != v.split.usedIdx
}

// usedSplit is the number of buffers that the device has returned and that have not been taken; 0 when it returns more than
// it has.
func (v *virtqueue) usedSplit() uint32 {
	n := uint32(uint16(atomic.LoadUint32(v.split.used)>>16) - v.split.usedIdx)
	if n > v.buffers() {
		v.broke("the used index moved by %d, but the device has %d buffers", n, v.buffers())
		return 0
	}
	return n
}

// headSplit reads the next element, each half once.
func (v *virtqueue) headSplit() (id, written uint32) {
	e := &v.split.elems[uint32(v.split.usedIdx)&v.split.mask]
	return atomic.LoadUint32(&e.id), atomic.LoadUint32(&e.len)
}

// matchesSplit counts the first elements, up to n, that return what comes next in order, up to the end of the ring.
func (v *virtqueue) matchesSplit(n uint32) (k uint32) {
	at := uint32(v.split.usedIdx) & v.split.mask
	n = min(n, v.size-at, v.size-v.clean)
	order := v.order[v.clean : v.clean+n]
	elems := v.split.elems[at : at+n][:len(order)]
	for i, id := range order {
		if atomic.LoadUint32(&elems[i].id) != uint32(id) {
			return uint32(i)
		}
	}
	return n
}

// armSplit: see virtqueue.arm.
func (v *virtqueue) armSplit() {
	s := &v.split
	if v.eventIdx {
		s.event = s.usedIdx
		atomic.StoreUint32(s.usedEvent, uint32(s.event))
		return
	}
	s.flags = 0
	atomic.StoreUint32(s.avail, uint32(s.availIdx-s.added)<<16|s.flags)
}

// disarmSplit leaves the event at an index that has been passed (§2.7.7): in 2¹⁵ buffers it is to be moved on, see keepPast.
func (v *virtqueue) disarmSplit() {
	s := &v.split
	if v.eventIdx {
		s.event = s.usedIdx - 1
		atomic.StoreUint32(s.usedEvent, uint32(s.event))
		return
	}
	s.flags = spec.AvailNoInterrupt
	atomic.StoreUint32(s.avail, uint32(s.availIdx-s.added)<<16|s.flags)
}

// keepPast keeps the event of a queue that is not armed from being in front of the device again, once indices come round.
func (v *virtqueue) keepPast() {
	if v.eventIdx && !v.packed && !v.armed && v.split.usedIdx-v.split.event >= 1<<15 {
		v.disarmSplit()
	}
}
