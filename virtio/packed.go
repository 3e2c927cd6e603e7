package virtio

import (
	"sync/atomic"
	"unsafe"

	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// bothWraps are the two flags by which a packed descriptor says whose it is (§2.8.1).
const bothWraps = spec.DescAvail | spec.DescUsed

// packedRing is the memory of a packed ring (§2.8) beside its descriptors, and how far it is. Places in the ring are the
// positions of the virtqueue: the next descriptor to be made available is at the tail, the next to be used at clean.
//
// Id and flags of a descriptor are one aligned word. The driver publishes what it has added by writing that of the first
// descriptor last: until then the device looks no further (§2.8.6). held is that word; the one in the descriptor, which the device
// may be looking at, says meanwhile what it said before: that it is not available.
type packedRing struct {
	availFlags uint32 // bothWraps of a descriptor that is made available now: one of them
	usedFlags  uint32 // bothWraps of one that the device uses now: both or none
	held       uint32
	heldAt     uint32
	holds      bool
	added      uint32 // descriptors, not published yet

	driverEvent *uint32 // position, flags: the driver's
	deviceEvent *uint32

	bus, driverBus, deviceBus uint64
}

// wordOf is a descriptor's id and flags.
func wordOf(d *ringDesc) *uint32 { return word(unsafe.Pointer(d), spec.PackedDescID) }

// lenOf is a descriptor's length.
func lenOf(d *ringDesc) *uint32 { return word(unsafe.Pointer(d), spec.SplitDescLen) }

func (v *virtqueue) layPacked(mem *vtop.Arena) error {
	l, err := spec.NewPackedLayout(int(v.size))
	if err != nil {
		return err
	}
	base, bus, err := mem.Cut(l.Bytes, ringLine)
	if err != nil {
		return err
	}
	v.desc = unsafe.Slice((*ringDesc)(base), v.size)
	v.pack = packedRing{
		availFlags:  spec.DescAvail,
		usedFlags:   bothWraps,
		driverEvent: word(base, l.DriverEvent),
		deviceEvent: word(base, l.DeviceEvent),
		bus:         bus, driverBus: bus + uint64(l.DriverEvent), deviceBus: bus + uint64(l.DeviceEvent),
	}
	v.disarmPacked()
	return nil
}

// hold has the word of the descriptor at the tail be written last, if it is the first to be published. It says whether it is:
// then only address and length are written now.
func (v *virtqueue) hold(id, flags uint32) bool {
	p := &v.pack
	if p.holds {
		return false
	}
	p.holds, p.heldAt, p.held = true, v.tail, id|(flags|p.availFlags)<<16
	return true
}

func (v *virtqueue) addPacked(parts []part, write int) {
	v.chained(uint32(len(parts)))
	id := uint32(v.order[v.tail])
	for i, p := range parts {
		var flags uint32
		if i >= write {
			flags |= spec.DescWrite
		}
		if i+1 < len(parts) {
			flags |= spec.DescNext
		}
		v.putPacked(p, id, flags)
	}
}

// putPacked writes a descriptor. The device looks for the id in the last of a buffer only.
func (v *virtqueue) putPacked(p part, id, flags uint32) {
	d := &v.desc[v.tail]
	if d.addr = p.bus; v.hold(id, flags) {
		*lenOf(d) = p.len
	} else {
		d.hi = packedHi(p.len, id, flags|v.pack.availFlags)
	}
	v.pack.added++
	v.advanceTail(1)
}

// publishPacked makes what was added visible, and says whether the device wants to hear of it.
func (v *virtqueue) publishPacked() (want bool, position uint16) {
	p := &v.pack
	atomic.StoreUint32(wordOf(&v.desc[p.heldAt]), p.held)
	wrap := p.availFlags&spec.DescAvail != 0
	position = uint16(v.tail)
	if wrap {
		position |= spec.EventWrap
	}
	added := uint16(p.added)
	p.holds, p.added = false, 0
	event := atomic.LoadUint32(p.deviceEvent)
	switch event >> 16 & 3 {
	case spec.EventEnable:
		return true, position
	case spec.EventDesc:
		if !v.eventIdx {
			return true, position // means nothing: better once too often
		}
		at := uint16(event) &^ spec.EventWrap
		if (event&spec.EventWrap != 0) != wrap {
			at -= uint16(v.size)
		}
		now := uint16(v.tail)
		return spec.NeedEvent(at, now, now-added), position
	}
	return false, position
}

func (v *virtqueue) readyPacked() bool {
	return atomic.LoadUint32(wordOf(&v.desc[v.clean]))>>16&bothWraps == v.pack.usedFlags
}

// headPacked reads the descriptor at clean, which is used; its flags have been read before.
func (v *virtqueue) headPacked() (id, written uint32) {
	d := &v.desc[v.clean]
	return atomic.LoadUint32(wordOf(d)) & 0xffff, atomic.LoadUint32(lenOf(d))
}

// matchesPacked counts the descriptors from clean on, up to n, that are used and return what comes next in order, up to the end
// of the ring.
func (v *virtqueue) matchesPacked(n uint32) uint32 {
	n = min(n, v.size-v.clean)
	order := v.order[v.clean : v.clean+n]
	want := v.pack.usedFlags << 16
	d := unsafe.SliceData(v.desc[v.clean:])
	for i, id := range order {
		if atomic.LoadUint32(wordOf(d))&(bothWraps<<16|0xffff) != want|uint32(id) {
			return uint32(i)
		}
		d = (*ringDesc)(unsafe.Add(unsafe.Pointer(d), spec.DescSize))
	}
	return n
}

// armPacked: see virtqueue.arm.
func (v *virtqueue) armPacked() {
	event := uint32(spec.EventEnable) << 16
	if v.eventIdx {
		event = spec.EventDesc<<16 | v.clean
		if v.pack.usedFlags != 0 {
			event |= spec.EventWrap
		}
	}
	atomic.StoreUint32(v.pack.driverEvent, event)
}

func (v *virtqueue) disarmPacked() {
	atomic.StoreUint32(v.pack.driverEvent, spec.EventDisable<<16)
}
