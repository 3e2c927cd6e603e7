package nic82599

import "bare.wire/sim"

// mac is the transmit packet buffer and what empties it onto the wire at the speed of the link. Frames are given to the wire
// at once, with the time at which their last bit will leave; the buffer only remembers how long it is how full.
type mac struct {
	free int64 // the wire is free again, ns …
	part int64 // … and ps
	hold int64 // the partner has asked for silence until then (802.3x)
	ends [4096]struct {
		at   int64
		size int32
	}
	first, n int
	used     int // bytes
}

func (m *mac) reset() { m.first, m.n, m.used, m.hold = 0, 0, 0, 0 }

// room returns the time, t or later, at which size bytes have room in a buffer of limit bytes; one after now means: ask
// again then.
func (m *mac) room(t, now int64, size, limit int) int64 {
	if size > limit {
		return sim.Never
	}
	for m.used+size > limit || m.n == len(m.ends) {
		e := &m.ends[m.first]
		if t = max(t, e.at); t > now {
			return t
		}
		m.used -= int(e.size)
		m.first = (m.first + 1) % len(m.ends)
		m.n--
	}
	return t
}

// send puts a frame of size bytes, FCS included, into the buffer at t and returns when its last bit leaves.
func (m *mac) send(t int64, size int, psPerByte int64) int64 {
	if t = max(t, m.hold); m.free < t {
		m.free, m.part = t, 0
	}
	ps := m.part + int64(size+preamble)*psPerByte
	at := m.free + (ps+999)/1000
	ps += gap * psPerByte
	m.free, m.part = m.free+ps/1000, ps%1000
	if m.n == len(m.ends) { // of a frame that was cut: the buffer was asked for room for the first segment only
		m.used -= int(m.ends[m.first].size)
		m.first = (m.first + 1) % len(m.ends)
		m.n--
	}
	e := &m.ends[(m.first+m.n)%len(m.ends)]
	e.at, e.size = at, int32(size)
	m.n++
	m.used += size
	return at
}
