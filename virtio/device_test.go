package virtio

import (
	"encoding/binary"
	"testing"

	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// ringDevice is a device's side of one ring, of either kind, as plain as can be. What is written into the ring and how much is
// claimed is the test's choice: it can lie.
type ringDevice struct {
	t     testing.TB
	space *vtop.Space
	area  QueueArea
	event bool // FeatureEventIdx

	availIdx, usedIdx   uint16 // split; packed: places in the ring
	availWrap, usedWrap bool
	rings               int    // notifications
	position            uint16 // of the last
}

// devChain is a buffer as the device sees it.
type devChain struct {
	id    uint32
	descs int
	parts []devPart
}

type devPart struct {
	bus   uint64
	len   uint32
	write bool
}

func newRingDevice(t testing.TB, space *vtop.Space, area QueueArea, features spec.Features) *ringDevice {
	return &ringDevice{t: t, space: space, area: area, event: features&spec.FeatureEventIdx != 0, availWrap: true, usedWrap: true}
}

func (d *ringDevice) Ring(position uint16) {
	d.rings++
	d.position = position
}

// mem is memory at a bus address; a driver that names another is found out here.
func (d *ringDevice) mem(bus uint64, n int) []byte {
	b, err := d.space.Bytes(bus, n)
	if err != nil || len(b) != n {
		d.t.Fatalf("the driver names %d bytes at %#x: %v", n, bus, err)
	}
	return b
}

func (d *ringDevice) u16(bus uint64) uint16 { return binary.LittleEndian.Uint16(d.mem(bus, 2)) }
func (d *ringDevice) put16(bus uint64, v uint16) {
	binary.LittleEndian.PutUint16(d.mem(bus, 2), v)
}

func (d *ringDevice) desc(bus uint64) (p devPart, a, b uint16) {
	m := d.mem(bus, spec.DescSize)
	return devPart{bus: binary.LittleEndian.Uint64(m), len: binary.LittleEndian.Uint32(m[8:])},
		binary.LittleEndian.Uint16(m[12:]), binary.LittleEndian.Uint16(m[14:])
}

// pop takes the next buffer that the driver has made available.
func (d *ringDevice) pop() (c devChain, ok bool) {
	if d.area.Packed {
		return d.popPacked()
	}
	return d.popSplit()
}

func (d *ringDevice) popSplit() (c devChain, ok bool) {
	idx := d.u16(d.area.Driver + 2)
	if idx == d.availIdx {
		return c, false
	}
	size := uint16(d.area.Size)
	if n := idx - d.availIdx; int(n) > d.area.Size {
		d.t.Fatalf("the available index is %d ahead in a ring of %d", n, size)
	}
	head := d.u16(d.area.Driver + 4 + 2*uint64(d.availIdx%size))
	d.availIdx++
	c.id = uint32(head)
	for at := head; ; c.descs++ {
		if at >= size || c.descs > d.area.Size {
			d.t.Fatalf("descriptor %d of a ring of %d, or a loop", at, size)
		}
		p, flags, next := d.desc(d.area.Desc + spec.DescSize*uint64(at))
		p.write = flags&spec.DescWrite != 0
		if flags&spec.DescIndirect != 0 {
			d.table(&c, p, flags)
		} else {
			c.parts = append(c.parts, p)
		}
		if at = next; flags&spec.DescNext == 0 {
			c.descs++
			return c, true
		}
	}
}

func (d *ringDevice) table(c *devChain, p devPart, flags uint16) {
	if flags&spec.DescNext != 0 || p.len == 0 || p.len%spec.DescSize != 0 || int(p.len/spec.DescSize) > d.area.Size {
		d.t.Fatalf("an indirect table of %d bytes, flags %#x", p.len, flags)
	}
	n := p.len / spec.DescSize
	for i := range n {
		e, a, b := d.desc(p.bus + spec.DescSize*uint64(i))
		more := i+1 < n
		if d.area.Packed && b&^spec.DescWrite != 0 || !d.area.Packed && (a&spec.DescNext != 0) != more || !d.area.Packed && more && uint32(b) != i+1 {
			d.t.Fatalf("entry %d of %d of a table: %#x %#x", i, n, a, b)
		}
		c.parts = append(c.parts, e)
	}
}

func (d *ringDevice) popPacked() (c devChain, ok bool) {
	for {
		p, id, flags := d.desc(d.area.Desc + spec.DescSize*uint64(d.availIdx))
		avail, used := flags&spec.DescAvail != 0, flags&spec.DescUsed != 0
		if avail != d.availWrap || used == d.availWrap {
			if c.descs > 0 {
				d.t.Fatalf("a chain of packed descriptors is available in part")
			}
			return c, false
		}
		p.write = flags&spec.DescWrite != 0
		if flags&spec.DescIndirect != 0 {
			d.table(&c, p, flags)
		} else {
			c.parts = append(c.parts, p)
		}
		c.descs++
		if d.availIdx++; int(d.availIdx) == d.area.Size {
			d.availIdx, d.availWrap = 0, !d.availWrap
		}
		if flags&spec.DescNext == 0 {
			c.id = uint32(id)
			return c, true
		}
	}
}

// use returns a buffer.
func (d *ringDevice) use(c devChain, written int) { d.useBatch(c, written, c.descs, 1) }

// useBatch returns several with one element, which stands for the last: c. They are n, of so many descriptors.
func (d *ringDevice) useBatch(c devChain, written, descs, n int) {
	if d.area.Packed {
		flags := uint16(0)
		if d.usedWrap {
			flags = bothWraps
		}
		d.putUsed(uint16(c.id), uint32(written), flags)
		if d.usedIdx += uint16(descs); int(d.usedIdx) >= d.area.Size {
			d.usedIdx, d.usedWrap = d.usedIdx-uint16(d.area.Size), !d.usedWrap
		}
		return
	}
	at := d.area.Device + 4 + 8*uint64(d.usedIdx%uint16(d.area.Size))
	m := d.mem(at, 8)
	binary.LittleEndian.PutUint32(m, c.id)
	binary.LittleEndian.PutUint32(m[4:], uint32(written))
	d.usedIdx += uint16(n)
	d.put16(d.area.Device+2, d.usedIdx)
}

// putUsed writes a packed descriptor.
func (d *ringDevice) putUsed(id uint16, written uint32, flags uint16) {
	m := d.mem(d.area.Desc+spec.DescSize*uint64(d.usedIdx), spec.DescSize)
	binary.LittleEndian.PutUint32(m[8:], written)
	binary.LittleEndian.PutUint16(m[12:], id)
	binary.LittleEndian.PutUint16(m[14:], flags)
}

// wants says whether the driver wants an interrupt now that the used position has gone from old to the present one.
func (d *ringDevice) wants(old uint16) bool {
	if !d.area.Packed {
		if d.event {
			return spec.NeedEvent(d.u16(d.area.Driver+4+2*uint64(d.area.Size)), d.usedIdx, old)
		}
		return d.u16(d.area.Driver)&spec.AvailNoInterrupt == 0
	}
	event, flags := d.u16(d.area.Driver), d.u16(d.area.Driver+2)
	switch flags {
	case spec.EventEnable:
		return true
	case spec.EventDesc:
		at := event &^ spec.EventWrap
		if (event&spec.EventWrap != 0) != d.usedWrap {
			at -= uint16(d.area.Size)
		}
		return spec.NeedEvent(at, d.usedIdx, old)
	}
	return false
}

// quiet says whether the device wants notifications, or with events, at which position.
func (d *ringDevice) quiet(on bool) {
	switch {
	case d.area.Packed && on:
		d.put16(d.area.Device+2, spec.EventDisable)
	case d.area.Packed:
		d.put16(d.area.Device+2, spec.EventEnable)
	case on:
		d.put16(d.area.Device, spec.UsedNoNotify)
	default:
		d.put16(d.area.Device, 0)
	}
}

// notifyAt has the driver notify when it passes a position.
func (d *ringDevice) notifyAt(position uint16) {
	if d.area.Packed {
		d.put16(d.area.Device, position)
		d.put16(d.area.Device+2, spec.EventDesc)
		return
	}
	d.put16(d.area.Device+4+8*uint64(d.area.Size), position)
}

// write writes p into the parts of a buffer that are for that, and returns it with the rest.
func (d *ringDevice) write(c devChain, p []byte) int {
	n := 0
	for _, part := range c.parts {
		if !part.write {
			d.t.Fatalf("a part of a receive buffer cannot be written to: %+v", c)
		}
		m := min(len(p), int(part.len))
		copy(d.mem(part.bus, m+1)[:m], p)
		p, n = p[m:], n+m
	}
	if len(p) > 0 {
		d.t.Fatalf("%d bytes do not fit into a receive buffer", len(p))
	}
	return n
}

// read returns the bytes of a buffer.
func (d *ringDevice) read(c devChain) (p []byte) {
	for _, part := range c.parts {
		if part.write || part.len == 0 {
			d.t.Fatalf("a part of a transmit buffer is for writing, or empty: %+v", c)
		}
		p = append(p, d.mem(part.bus, int(part.len))...)
	}
	return p
}

// turn returns, without a look at them and without allocating, n buffers of one descriptor that the driver has made available,
// as if written bytes had been written to each. It returns how many there were.
func (d *ringDevice) turn(n, written int) (done int) {
	for ; done < n; done++ {
		if d.area.Packed {
			m := d.mem(d.area.Desc+spec.DescSize*uint64(d.availIdx), spec.DescSize)
			flags := binary.LittleEndian.Uint16(m[14:])
			if avail := flags&spec.DescAvail != 0; avail != d.availWrap || (flags&spec.DescUsed != 0) == avail {
				return done
			}
			used := flags &^ bothWraps
			if d.usedWrap {
				used |= bothWraps
			}
			d.putUsed(binary.LittleEndian.Uint16(m[12:]), uint32(written), used)
			if d.availIdx++; int(d.availIdx) == d.area.Size {
				d.availIdx, d.availWrap = 0, !d.availWrap
			}
			d.usedIdx, d.usedWrap = d.availIdx, d.availWrap
			continue
		}
		slot := uint64(d.availIdx % uint16(d.area.Size))
		if d.u16(d.area.Driver+2) == d.availIdx {
			return done
		}
		m := d.mem(d.area.Device+4+8*slot, 8)
		binary.LittleEndian.PutUint32(m, uint32(d.u16(d.area.Driver+4+2*slot)))
		binary.LittleEndian.PutUint32(m[4:], uint32(written))
		d.availIdx++
		d.usedIdx++
		d.put16(d.area.Device+2, d.usedIdx)
	}
	return done
}
