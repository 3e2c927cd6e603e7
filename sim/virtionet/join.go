package virtionet

import (
	"bytes"
	"encoding/binary"

	"bare.wire/sim/offload"
	"bare.wire/virtio/spec"
)

// packet is a received TCP or UDP packet.
type packet struct {
	flow
	good bool // its checksums are right
	end  int  // of the IP packet: what follows is padding
	data int  // where the TCP payload begins
}

// maxJoined is the longest packet that segments are joined to, bytes behind the Ethernet header and tags; maxWhole is the
// longest frame, with them: a receive buffer of spec.MinRxBufferGSO holds it.
const (
	maxJoined = 65535
	maxWhole  = spec.MinRxBufferGSO - spec.HdrSize
)

// TCP flags.
const (
	tcpPSH   = 0x08
	tcpACK   = 0x10
	tcpFlags = 12 // where data offset and flags are in the header
	ipID     = 4
	ipLen    = 2 // of IPv4
	ip6Len   = 4 // payload length of IPv6
)

// parse reads a frame of at least 14 bytes.
func (p *packet) parse(f []byte) {
	*p = packet{}
	p.flow.parse(f)
	if p.ports == nil {
		return
	}
	ip := f[p.l3:]
	if len(p.addr) == 8 {
		p.end = p.l3 + int(be16(ip[ipLen:]))
		if offload.Sum(ip[:p.l4-p.l3], 0) != 0xFFFF {
			return
		}
	} else {
		p.end = p.l3 + 40 + int(be16(ip[ip6Len:]))
	}
	if p.end < p.l4+8 || p.end > len(f) || p.tcp && p.end < p.l4+20 {
		return
	}
	proto := uint64(protoUDP)
	if p.tcp {
		proto = protoTCP
		p.data = p.l4 + int(f[p.l4+tcpFlags]>>4)*4
	} else if be16(f[p.l4+6:]) == 0 || int(be16(f[p.l4+4:])) != p.end-p.l4 {
		return // no checksum, or not of all that there is
	}
	p.good = offload.Sum(f[p.l4:p.end], offload.Sum(p.addr, proto+uint64(p.end-p.l4))) == 0xFFFF
}

// joins says whether segments like p are joined.
func (n *WireNet) joins(p *packet) bool {
	f := spec.FeatureGuestTSO6
	if len(p.addr) == 8 {
		f = spec.FeatureGuestTSO4
	}
	return n.takes&f != 0 && p.tcp && p.good && p.data >= p.l4+20 && p.data < p.end
}

// join joins segment p with those that have arrived behind it and go on where it ends; ok is false when there are none.
func (n *WireNet) join(p *packet, f []byte, now int64) (h Header, whole []byte, ok bool) {
	mss := p.end - p.data
	if !plain(f[p.l4+tcpFlags:]) || f[p.l4+tcpFlags+1]&tcpPSH != 0 {
		return h, nil, false
	}
	alone := append(n.joined[:0], f...)
	b := alone[:p.end] // without padding
	n.joined = b[:0]
	segments := 1
	for {
		g, have := n.take(now)
		if !have {
			break
		}
		var q packet
		if len(g.Data) >= minFrame {
			q.parse(g.Data)
		}
		size := q.end - q.data
		if !n.joins(&q) || !follows(b, p, g.Data, &q, segments) || size > mss || len(b)+size > min(p.l3+maxJoined, maxWhole) {
			n.held, n.holding = g, true
			break
		}
		segments++
		b = append(b, g.Data[q.data:q.end]...)
		n.joined = b[:0]
		push := g.Data[q.l4+tcpFlags+1] & tcpPSH
		b[p.l4+tcpFlags+1] |= push
		if push != 0 || size < mss {
			break
		}
	}
	if segments == 1 {
		return Header{Flags: spec.HdrDataValid}, alone, true
	}
	n.count.Joined++
	n.count.Of += uint64(segments)
	return p.finish(b, mss), b, true
}

// plain says whether a TCP segment has no flags but ACK and PSH.
func plain(b []byte) bool { return be16(b)&0x0FFF&^tcpPSH == tcpACK }

// follows says whether frame g goes on where b, which begins with the headers of p, ends.
func follows(b []byte, p *packet, g []byte, q *packet, segments int) bool {
	if q.l3 != p.l3 || q.l4 != p.l4 || q.data != p.data || !bytes.Equal(b[:p.l3], g[:q.l3]) || !plain(g[q.l4+tcpFlags:]) {
		return false
	}
	be := binary.BigEndian
	ip, iq := b[p.l3:], g[q.l3:]
	if len(p.addr) == 8 { // version to service, flags to protocol, addresses and options; ids count up
		if !bytes.Equal(ip[:2], iq[:2]) || !bytes.Equal(ip[6:10], iq[6:10]) || be.Uint16(ip[ipID:])+uint16(segments) != be.Uint16(iq[ipID:]) ||
			!bytes.Equal(ip[12:p.l4-p.l3], iq[12:p.l4-p.l3]) {
			return false
		}
	} else if !bytes.Equal(ip[:4], iq[:4]) || !bytes.Equal(ip[6:p.l4-p.l3], iq[6:p.l4-p.l3]) {
		return false
	}
	tp, tq := b[p.l4:], g[q.l4:]
	options := p.data - p.l4
	return bytes.Equal(tp[:4], tq[:4]) && be.Uint32(tp[4:])+uint32(len(b)-p.data) == be.Uint32(tq[4:]) &&
		bytes.Equal(tp[8:12], tq[8:12]) && bytes.Equal(tp[14:16], tq[14:16]) && bytes.Equal(tp[20:options], tq[20:options])
}

// finish gives joined segments their lengths, and the sum of their pseudo header in place of a checksum (§5.1.6.4.1).
func (p *packet) finish(b []byte, mss int) Header {
	be := binary.BigEndian
	ip, l4 := b[p.l3:], b[p.l4:]
	kind := uint8(spec.GSOTCPv6)
	if len(p.addr) == 8 {
		kind = spec.GSOTCPv4
		be.PutUint16(ip[ipLen:], uint16(len(ip)))
		ip[10], ip[11] = 0, 0
		complete(ip[:p.l4-p.l3], 10, 0)
		p.addr = ip[12:20]
	} else {
		be.PutUint16(ip[ip6Len:], uint16(len(ip)-40))
		p.addr = ip[8:40]
	}
	be.PutUint16(l4[16:], uint16(offload.Sum(p.addr, protoTCP+uint64(len(l4)))))
	return Header{
		Flags: spec.HdrNeedsCSum, GSOType: kind, GSOSize: uint16(mss), HdrLen: uint16(p.data),
		CSumStart: uint16(p.l4), CSumOffset: 16,
	}
}
