package virtionet

import (
	"encoding/binary"

	"bare.wire/sim/link"
	"bare.wire/sim/offload"
	"bare.wire/virtio/spec"
)

const (
	wireMin = 60 // shorter frames are padded, bytes without FCS (IEEE 802.3 §3.2.8)
	// overhead is what a frame takes on the wire besides: FCS, preamble and gap.
	overhead = 24
	// ahead is how many bytes may wait for the wire; as many as a card's packet buffer lets a driver be ahead by.
	ahead = 16 << 10
)

// WireNet joins a device to a wire and does for it what a card does: it completes checksums, cuts frames into segments,
// joins segments where the driver likes that, and says which checksums are right.
type WireNet struct {
	end       *link.End
	takes     spec.Features // of the driver
	psPerByte int64
	free      int64 // the wire is free again, ns …
	part      int64 // … and ps
	buf       []byte
	joined    []byte
	held      link.Frame // received, and not yet handed out
	holding   bool
	count     WireCounts
}

// WireCounts are numbers of frames.
type WireCounts struct {
	Checksums uint64 // completed
	Cut       uint64 // frames that were cut …
	Segments  uint64 // … into so many
	Joined    uint64 // frames that were joined, of so many …
	Of        uint64 // … segments
	Refused   uint64 // frames to be cut whose headers do not fit together
	BadFCS    uint64 // received, and damaged
}

// OnWire returns the Net that is an end of a wire.
func OnWire(end *link.End) *WireNet {
	n := &WireNet{end: end}
	n.SetSpeed(defaultSpeed)
	return n
}

var (
	_ Net   = (*WireNet)(nil)
	_ Pacer = (*WireNet)(nil)
)

// Counts are the counts so far. The caller holds the world's lock.
func (n *WireNet) Counts() WireCounts { return n.count }

// Offloads implements Net.
func (n *WireNet) Offloads() spec.Features { return netFeatures }

// SetOffloads implements Net.
func (n *WireNet) SetOffloads(f spec.Features) { n.takes = f }

// Up implements Net.
func (n *WireNet) Up() bool { return n.end.Up() }

// SetUp implements Net.
func (n *WireNet) SetUp(up bool) { n.end.SetUp(up) }

// OnArrival implements Net.
func (n *WireNet) OnArrival(f func(at int64)) { n.end.OnArrival(f) }

// OnChange implements Net.
func (n *WireNet) OnChange(f func(up bool)) { n.end.OnChange(f) }

// SetSpeed implements Pacer.
func (n *WireNet) SetSpeed(bps uint64) { n.psPerByte = int64(8e12 / max(bps, 1)) }

// Ready implements Pacer.
func (n *WireNet) Ready(now int64) int64 { return max(now, n.free-ahead*n.psPerByte/1000) }

// emit gives a frame to the wire.
func (n *WireNet) emit(f []byte, now int64) {
	if len(f) < wireMin {
		var short [wireMin]byte
		copy(short[:], f)
		f = append(n.buf[:0], short[:]...)
		n.buf = f[:0]
	}
	if n.free < now {
		n.free, n.part = now, 0
	}
	ps := n.part + int64(len(f)+overhead)*n.psPerByte
	n.free, n.part = n.free+ps/1000, ps%1000
	n.end.Transmit(f, n.free)
}

// Send implements Net.
func (n *WireNet) Send(h Header, f []byte, now int64) {
	switch {
	case h.GSOType != spec.GSONone:
		n.cut(h, f, now)
	case h.Flags&spec.HdrNeedsCSum != 0:
		f = append(n.buf[:0], f...) // not in the driver's memory
		n.buf = f[:0]
		n.count.Checksums++
		complete(f[h.CSumStart:], int(h.CSumOffset), 0)
		n.emit(f, now)
	default:
		n.emit(f, now)
	}
}

// complete puts in a checksum: that of all of b, which holds the sum of the pseudo header where it goes, and of s.
func complete(b []byte, at int, s uint64) {
	v := ^uint16(offload.Sum(b, s))
	if v == 0 && at == 6 { // RFC 768: 0 would be no checksum
		v = 0xFFFF
	}
	binary.BigEndian.PutUint16(b[at:], v)
}

// headers finds out where a frame to be cut has its headers; false: they do not fit together.
func (h *Header) headers(f []byte) (x offload.Headers, ok bool) {
	var p flow
	p.parse(f)
	kind := h.GSOType &^ spec.GSOECN
	if p.addr == nil || p.ports == nil || p.l4 != int(h.CSumStart) {
		return x, false
	}
	x = offload.Headers{Link: p.l3, IP: p.l4 - p.l3, IPv4: len(p.addr) == 8, UDP: !p.tcp}
	switch {
	case kind == spec.GSOTCPv4 && x.IPv4 && p.tcp, kind == spec.GSOTCPv6 && !x.IPv4 && p.tcp:
		x.L4 = int(f[p.l4+12]>>4) * 4
		ok = x.L4 >= 20 && h.CSumOffset == 16
	case kind == spec.GSOUDPL4 && x.UDP:
		x.L4 = 8
		ok = h.CSumOffset == 6
	}
	return x, ok && x.Len() < len(f) && h.GSOSize > 0
}

// cut sends a large frame as segments of GSOSize bytes of payload. The sum of the pseudo header, which the L4 checksum field
// holds, has the length of the whole; each segment's has its own.
func (n *WireNet) cut(h Header, f []byte, now int64) {
	x, ok := h.headers(f)
	if !ok {
		n.count.Refused++
		return
	}
	hdr := x.Len()
	payload := f[hdr:]
	whole := uint64(len(f)-x.Link-x.IP) % 0xFFFF
	n.count.Cut++
	for off, i := 0, 0; off < len(payload); off, i = off+int(h.GSOSize), i+1 {
		size := min(int(h.GSOSize), len(payload)-off)
		s := append(append(n.joined[:0], f[:hdr]...), payload[off:off+size]...)
		n.joined = s[:0]
		x.Number(s, off, i, size, off+size == len(payload), offload.Masks)
		if x.IPv4 {
			ip := s[x.Link : x.Link+x.IP]
			ip[10], ip[11] = 0, 0
			complete(ip, 10, 0)
		}
		complete(s[x.Link+x.IP:], int(h.CSumOffset), 0xFFFF-whole+uint64(x.L4+size))
		n.count.Segments++
		n.emit(s, now)
	}
}

// Next implements Net.
func (n *WireNet) Next() (int64, bool) {
	if n.holding {
		return n.held.At, true
	}
	return n.end.Next()
}

// take returns the next frame that is not damaged.
func (n *WireNet) take(now int64) (link.Frame, bool) {
	if n.holding {
		n.holding = false
		return n.held, true
	}
	for {
		f, ok := n.end.Receive(now)
		if !ok || !f.BadFCS {
			return f, ok
		}
		n.count.BadFCS++
	}
}

// Receive implements Net.
func (n *WireNet) Receive(now int64) (Header, []byte, bool) {
	f, ok := n.take(now)
	if !ok {
		return Header{}, nil, false
	}
	if n.takes&spec.FeatureGuestCSum == 0 || len(f.Data) < minFrame {
		return Header{}, f.Data, true
	}
	var p packet
	if p.parse(f.Data); !p.good {
		return Header{}, f.Data, true
	}
	if n.joins(&p) {
		if h, b, ok := n.join(&p, f.Data, now); ok {
			return h, b, true
		}
	}
	return Header{Flags: spec.HdrDataValid}, f.Data, true
}
