package virtionet

import (
	"encoding/binary"

	"bare.wire/virtio/spec"
)

// chain is a chain of descriptors: a buffer of several pieces, those to be read before those to be written.
type chain struct {
	id    uint16 // split: of its head
	count uint16 // descriptors of the ring
	reads int    // segments to be read
	read  int    // bytes to be read …
	write int    // … and to be written
	descs int    // descriptors in all
	segs  []segment
}

type segment struct {
	bus uint64
	n   int
}

// maxChain bounds the bytes of a chain, far above what any frame takes, so that sums do not overflow.
const maxChain = 1 << 30

func (c *chain) clear() { *c = chain{segs: c.segs[:0]} }

// descriptor is one as it lies in memory. In a packed ring next is the buffer's id.
type descriptor struct {
	addr  uint64
	len   uint32
	flags uint16
	next  uint16
}

// load reads a descriptor, but for the flags in a packed ring, which were read before it.
func (e *descriptor) load(b []byte) {
	le := binary.LittleEndian
	b = b[:spec.DescSize]
	e.addr, e.len = le.Uint64(b), le.Uint32(b[spec.SplitDescLen:])
	e.flags, e.next = le.Uint16(b[spec.SplitDescFlags:]), le.Uint16(b[spec.SplitDescNext:])
}

// push adds a piece to the chain; false: the driver has broken a rule.
func (q *queue) push(c *chain, addr uint64, n uint32, flags uint16) bool {
	c.descs++
	switch write := flags&spec.DescWrite != 0; {
	case c.descs > q.size:
		q.breaks(ChainLength, "more than %d descriptors from %d on", q.size, c.id)
		return false
	case n == 0:
		q.breaks(ZeroLength, "descriptor %d of the chain of %d", c.descs-1, c.id)
		return false
	case int(n) > maxChain-c.read-c.write:
		q.breaks(ChainLength, "more than %d bytes from %d on", maxChain, c.id)
		return false
	case write:
		c.write += int(n)
	case c.write > 0:
		q.breaks(ReadAfterWrite, "descriptor %d of the chain of %d", c.descs-1, c.id)
		return false
	default:
		c.read += int(n)
		c.reads++
	}
	c.segs = append(c.segs, segment{addr, int(n)})
	return true
}

// indirect reads the table of a descriptor that points to one; false: the driver has broken a rule.
func (q *queue) indirect(c *chain, addr uint64, n uint32) bool {
	if q.d.agreed&spec.FeatureIndirectDesc == 0 {
		q.breaks(IndirectForm, "without indirect_desc being agreed on, in the chain of %d", c.id)
		return false
	}
	entries := int(n / spec.DescSize)
	if n%spec.DescSize != 0 || entries == 0 || entries > q.size {
		q.breaks(IndirectForm, "a table of %d bytes in a ring of %d descriptors, in the chain of %d", n, q.size, c.id)
		return false
	}
	for i := 0; ; {
		b, err := q.d.mem.Bytes(addr+uint64(i)*spec.DescSize, spec.DescSize)
		if err != nil || len(b) < spec.DescSize {
			q.fault("indirect table", addr, err)
			return false
		}
		var e descriptor
		e.load(b)
		if q.packed {
			e.flags = e.next // behind the id, which means nothing here
		}
		if e.flags&spec.DescIndirect != 0 {
			q.breaks(IndirectForm, "a table in a table, in the chain of %d", c.id)
			return false
		}
		if !q.push(c, e.addr, e.len, e.flags) {
			return false
		}
		if q.packed { // all of the table, in its order; flags but WRITE mean nothing
			if i++; i == entries {
				return true
			}
			continue
		}
		if e.flags&spec.DescNext == 0 {
			return true
		}
		if i = int(e.next); i >= entries {
			q.breaks(NextRange, "next %d in a table of %d, in the chain of %d", i, entries, c.id)
			return false
		}
	}
}

// fetch takes the next chain that the driver has made available; false: there is none, or the driver has broken a rule.
func (q *queue) fetch(c *chain) bool {
	c.clear()
	var ok bool
	if q.packed {
		ok = q.fetchPacked(c)
	} else {
		ok = q.fetchSplit(c)
	}
	if !ok {
		return false
	}
	if !q.hold(c.id) {
		q.breaks(BufferTwice, "%d is made available while the device has it", c.id)
		return false
	}
	if q.d.dma.On {
		q.d.logDMA(FetchRing, q.i, q.desc.bus, c.descs*spec.DescSize)
	}
	return true
}

// gather appends n bytes of the chain's readable part, from byte off on, to dst.
func (q *queue) gather(dst []byte, c *chain, off, n int) ([]byte, bool) {
	for _, s := range c.segs[:c.reads] {
		if off >= s.n {
			off -= s.n
			continue
		}
		take := min(s.n-off, n)
		var ok bool
		if dst, ok = q.readAt(dst, s.bus+uint64(off), take); !ok {
			return dst, false
		}
		if n -= take; n == 0 {
			break
		}
		off = 0
	}
	return dst, true
}

// readAt appends n bytes at bus to dst.
func (q *queue) readAt(dst []byte, bus uint64, n int) ([]byte, bool) {
	if q.d.dma.On {
		q.d.logDMA(ReadData, q.i, bus, n)
	}
	for n > 0 {
		b, err := q.d.mem.Bytes(bus, n)
		if err != nil || len(b) == 0 {
			q.fault("buffer", bus, err)
			return dst, false
		}
		b = b[:min(n, len(b))]
		dst = append(dst, b...)
		bus += uint64(len(b))
		n -= len(b)
	}
	return dst, true
}

// scatter writes head and then body to the chain's writable part, as far as there is room, and returns what of each is left.
func (q *queue) scatter(c *chain, head, body []byte) (h, b []byte, ok bool) {
	for _, s := range c.segs[c.reads:] {
		for s.n > 0 && len(head)+len(body) > 0 {
			p := q.writable(s.bus, min(s.n, len(head)+len(body)))
			if p == nil {
				return head, body, false
			}
			n := copy(p, head)
			head = head[n:]
			m := copy(p[n:], body)
			body = body[m:]
			s.bus += uint64(n + m)
			s.n -= n + m
		}
	}
	return head, body, true
}

// writable returns up to n bytes at bus that may be written; nil after a fault.
func (q *queue) writable(bus uint64, n int) []byte {
	if q.d.dma.On {
		q.d.logDMA(WriteData, q.i, bus, n)
	}
	b, err := q.d.out.Bytes(bus, n)
	if err != nil || len(b) == 0 {
		q.fault("buffer", bus, err)
		return nil
	}
	return b[:min(n, len(b))]
}
