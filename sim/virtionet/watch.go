package virtionet

import "bare.wire/sim"

// lent is a piece of a buffer that the device has, and a fingerprint of what it held when the device got it.
type lent struct {
	bus uint64
	n   int
	sum uint64
	id  uint16
}

// watched is how many bytes of each piece of a receive buffer are looked at.
const watched = 128

// fingerprint is that of n bytes at bus, 0 where the device may not read them.
func (d *Device) fingerprint(bus uint64, n int) uint64 {
	h := uint64(n)
	for n > 0 {
		b, err := d.mem.Bytes(bus, n)
		if err != nil || len(b) == 0 {
			return 0
		}
		b = b[:min(n, len(b))]
		h = sim.Fingerprint(h, b)
		bus += uint64(len(b))
		n -= len(b)
	}
	return h
}

// lend remembers a chain that the device has just got.
func (q *queue) lend(c *chain, limit int) {
	for _, s := range c.segs {
		n := min(s.n, limit)
		q.lent = append(q.lent, lent{bus: s.bus, n: n, sum: q.d.fingerprint(s.bus, n), id: c.id})
	}
}

// inspect looks at the pieces of the chain of id, which the device is about to fill or to give back, and forgets them.
func (q *queue) inspect(id uint16, k Kind) {
	keep := q.lent[:0]
	for _, l := range q.lent {
		if l.id != id {
			keep = append(keep, l)
			continue
		}
		if q.d.fingerprint(l.bus, l.n) != l.sum {
			q.d.wrong(k, q.i, "%d bytes at %#x, in the chain of %d", l.n, l.bus, id)
		}
	}
	q.lent = keep
}
