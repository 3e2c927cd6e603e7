package virtionet

import (
	"encoding/binary"

	"bare.wire/sim/offload"
	"bare.wire/virtio/spec"
)

// flow is what of a frame tells it from others.
type flow struct {
	addr  []byte // source and destination address, 8 or 32 bytes; nil: not IP
	ports []byte // source and destination port; nil: neither TCP nor UDP, or a fragment
	tcp   bool
	l3    int // where the IP header begins
	l4    int // where the TCP or UDP header begins, with ports
}

const (
	etherVLAN = 0x8100
	etherQinQ = 0x88A8
	etherIPv4 = 0x0800
	etherIPv6 = 0x86DD
	protoTCP  = 6
	protoUDP  = 17
)

func be16(b []byte) uint16 { return binary.BigEndian.Uint16(b) }

// parse reads a frame of at least 14 bytes. What does not parse is no IP.
func (f *flow) parse(b []byte) {
	*f = flow{}
	at := 12
	for (be16(b[at:]) == etherVLAN || be16(b[at:]) == etherQinQ) && len(b) >= at+6 && at < 20 {
		at += 4
	}
	f.l3 = at + 2
	switch ip := b[f.l3:]; be16(b[at:]) {
	case etherIPv4:
		if len(ip) < 20 || ip[0]>>4 != 4 {
			return
		}
		ihl := int(ip[0]&15) * 4
		if ihl < 20 || ihl > len(ip) {
			return
		}
		f.addr = ip[12:20]
		if be16(ip[6:])&0x3FFF == 0 {
			f.parseL4(ip[9], ip[ihl:], f.l3+ihl)
		}
	case etherIPv6:
		if len(ip) < 40 || ip[0]>>4 != 6 {
			return
		}
		f.addr = ip[8:40]
		next, off := ip[6], 40
		for (next == 0 || next == 43 || next == 60) && len(ip) >= off+8 { // hop by hop, routing, destination
			next, off = ip[off], off+int(ip[off+1])*8+8
		}
		if off <= len(ip) {
			f.parseL4(next, ip[off:], f.l3+off)
		}
	}
}

func (f *flow) parseL4(proto byte, b []byte, at int) {
	switch {
	case proto == protoTCP && len(b) >= 20:
		f.ports, f.tcp, f.l4 = b[:4], true, at
	case proto == protoUDP && len(b) >= 8:
		f.ports, f.l4 = b[:4], at
	}
}

// steering decides which pair a received frame goes to (§5.1.6.5.5, §5.1.6.5.7).
type steering struct {
	rss          bool   // as the table says
	report       bool   // hashes are reported
	types        uint32 // spec.HashIPv4 …
	table        [spec.RSSTable]uint16
	mask         uint16
	unclassified uint16
	key          offload.Toeplitz

	learnt [1024]uint8 // automatic: pair + 1 by which a flow was last sent
}

func (s *steering) reset() {
	s.rss, s.report, s.types = false, false, 0
	clear(s.learnt[:])
}

// slot is a number that both directions of a flow have, below len(learnt).
func (s *steering) slot(f *flow) int {
	var h uint32
	half := len(f.addr) / 2
	for i := range half {
		h = h*31 + uint32(f.addr[i]^f.addr[half+i])
	}
	if f.ports != nil {
		h = h*31 + uint32(f.ports[0]^f.ports[2])
		h = h*31 + uint32(f.ports[1]^f.ports[3])
	}
	return int((h ^ h>>10) % uint32(len(s.learnt)))
}

// learn remembers which pair a flow is sent by.
func (s *steering) learn(frame []byte, pair int) {
	if s.rss {
		return
	}
	var f flow
	if f.parse(frame); f.addr != nil {
		s.learnt[s.slot(&f)] = uint8(pair + 1)
	}
}

// route chooses the receive queue of a frame, and hashes it where that is wanted.
func (d *Device) route(a *arrival) *queue {
	s := &d.steer
	if !s.rss && !s.report && d.pairs == 1 {
		return &d.queues[0]
	}
	var f flow
	f.parse(a.data)
	pair := 0
	hashed := false
	var report uint16
	if s.rss || s.report {
		a.hash, report, hashed = s.hash(&f)
		if s.report {
			a.report = report
		}
	}
	switch {
	case s.rss && hashed:
		pair = int(s.table[a.hash&uint32(s.mask)])
	case s.rss:
		pair = int(s.unclassified)
	case f.addr != nil:
		slot := s.slot(&f)
		if pair = int(s.learnt[slot]) - 1; pair < 0 || pair >= d.pairs {
			pair = slot % d.pairs
		}
	}
	return &d.queues[2*pair]
}

// hash is the hash of a flow, of the most specific kind that is wanted and fits.
func (s *steering) hash(f *flow) (hash uint32, report uint16, ok bool) {
	four := len(f.addr) == 8
	kinds := [...]struct {
		bit    uint32
		report uint16
		fits   bool
		ports  []byte
	}{
		{spec.HashTCPv4, spec.ReportTCPv4, four && f.ports != nil && f.tcp, f.ports},
		{spec.HashUDPv4, spec.ReportUDPv4, four && f.ports != nil && !f.tcp, f.ports},
		{spec.HashIPv4, spec.ReportIPv4, four, nil},
		{spec.HashTCPv6, spec.ReportTCPv6, !four && f.ports != nil && f.tcp, f.ports},
		{spec.HashUDPv6, spec.ReportUDPv6, !four && f.ports != nil && !f.tcp, f.ports},
		{spec.HashIPv6, spec.ReportIPv6, !four && f.addr != nil, nil},
	}
	for i := range kinds {
		if k := &kinds[i]; k.fits && s.types&k.bit != 0 {
			return s.key.Hash(f.addr, k.ports), k.report, true
		}
	}
	return 0, spec.ReportNone, false
}
