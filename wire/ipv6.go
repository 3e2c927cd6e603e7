package wire

import (
	"encoding/binary"
	"net/netip"
)

// IPv6Len is the length of the fixed IPv6 header, in bytes (RFC 8200 §3).
const IPv6Len = 40

// IPv6 is the view of a fixed IPv6 header.
type IPv6 []byte

// IPv6Fields is what PutIPv6 writes.
type IPv6Fields struct {
	TrafficClass uint8  // DSCP in the upper 6 bits, ECN in the lower 2
	FlowLabel    uint32 // 20 bits (RFC 6437)
	NextHeader   Proto
	HopLimit     uint8
	Src, Dst     [16]byte
	PayloadLen   int // bytes after this header, extension headers included
}

// ParseIPv6 reads the header at the start of b. The payload starts with the
// first extension header, if any, and ends where the packet does. Jumbograms
// (RFC 2675) are not known: their payload is empty.
func ParseIPv6(b []byte) (h IPv6, payload []byte, err error) {
	h, payload, err = ParseIPv6Quoted(b)
	if err != nil {
		return nil, nil, err
	}
	if len(payload) < h.PayloadLen() {
		return nil, nil, errIPv6Payload
	}
	return h, payload, nil
}

// ParseIPv6Quoted is ParseIPv6 for the packet that an ICMPv6 error quotes, which
// may be cut (RFC 4443 §3.1): the payload is what there is.
func ParseIPv6Quoted(b []byte) (h IPv6, payload []byte, err error) {
	if len(b) < IPv6Len {
		return nil, nil, errIPv6Short
	}
	if b[0]>>4 != 6 {
		return nil, nil, errIPv6Version
	}
	h, payload = IPv6(b[:IPv6Len:IPv6Len]), b[IPv6Len:]
	if n := h.PayloadLen(); n < len(payload) {
		payload = payload[:n:n]
	}
	return h, payload, nil
}

// PutIPv6 writes a header at the start of room and returns it.
func PutIPv6(room []byte, f IPv6Fields) (IPv6, error) {
	if f.PayloadLen < 0 || f.PayloadLen > 0xffff {
		return nil, errIPv6PutLength
	}
	if f.FlowLabel > 0xfffff {
		return nil, errIPv6PutFlow
	}
	if len(room) < IPv6Len {
		return nil, errIPv6Room
	}
	h := IPv6(room[:IPv6Len:IPv6Len])
	binary.BigEndian.PutUint32(h[0:4], 6<<28|uint32(f.TrafficClass)<<20|f.FlowLabel)
	binary.BigEndian.PutUint16(h[4:6], uint16(f.PayloadLen))
	h[6] = byte(f.NextHeader)
	h[7] = f.HopLimit
	h.SetSrc(f.Src)
	h.SetDst(f.Dst)
	return h, nil
}

// Fields returns what PutIPv6 takes to write h.
func (h IPv6) Fields() IPv6Fields {
	return IPv6Fields{
		TrafficClass: h.TrafficClass(), FlowLabel: h.FlowLabel(), NextHeader: h.NextHeader(),
		HopLimit: h.HopLimit(), Src: h.Src(), Dst: h.Dst(), PayloadLen: h.PayloadLen(),
	}
}

// TrafficClass is DSCP and ECN (RFC 8200 §7).
func (h IPv6) TrafficClass() uint8 { return h[0]<<4 | h[1]>>4 }

// FlowLabel has 20 bits (RFC 6437).
func (h IPv6) FlowLabel() uint32 { return binary.BigEndian.Uint32(h[0:4]) & 0xfffff }

// PayloadLen is the length of all that follows this header, in bytes.
func (h IPv6) PayloadLen() int { return int(binary.BigEndian.Uint16(h[4:6])) }

// NextHeader is the kind of the first extension header, or of the payload.
func (h IPv6) NextHeader() Proto { return Proto(h[6]) }

// HopLimit is the number of hops left.
func (h IPv6) HopLimit() uint8 { return h[7] }

// Src is the source address.
func (h IPv6) Src() [16]byte { return [16]byte(h[8:24]) }

// Dst is the destination address; with segments left in a routing header, the
// next hop of that route and not the final one (RFC 8200 §4.4).
func (h IPv6) Dst() [16]byte { return [16]byte(h[24:40]) }

// SrcAddr is Src as a netip.Addr without zone.
func (h IPv6) SrcAddr() netip.Addr { return netip.AddrFrom16(h.Src()) }

// DstAddr is Dst as a netip.Addr without zone.
func (h IPv6) DstAddr() netip.Addr { return netip.AddrFrom16(h.Dst()) }

// SetTrafficClass writes DSCP and ECN.
func (h IPv6) SetTrafficClass(v uint8) {
	h[0] = h[0]&0xf0 | v>>4
	h[1] = h[1]&0x0f | v<<4
}

// SetFlowLabel writes the low 20 bits of v.
func (h IPv6) SetFlowLabel(v uint32) {
	binary.BigEndian.PutUint32(h[0:4], binary.BigEndian.Uint32(h[0:4])&^0xfffff|v&0xfffff)
}

// SetPayloadLen writes the length of all that follows, in bytes.
func (h IPv6) SetPayloadLen(n uint16) { binary.BigEndian.PutUint16(h[4:6], n) }

// SetNextHeader writes the kind of what follows.
func (h IPv6) SetNextHeader(p Proto) { h[6] = byte(p) }

// SetHopLimit writes the number of hops left.
func (h IPv6) SetHopLimit(v uint8) { h[7] = v }

// SetSrc writes the source address.
func (h IPv6) SetSrc(a [16]byte) { *(*[16]byte)(h[8:24]) = a }

// SetDst writes the destination address.
func (h IPv6) SetDst(a [16]byte) { *(*[16]byte)(h[24:40]) = a }

// PseudoSum is the sum of the pseudo-header for a transport header of kind
// proto and its payload, together length bytes. See PseudoIPv6 about routing
// headers.
func (h IPv6) PseudoSum(proto Proto, length int) Sum {
	return PseudoIPv6(h.Src(), h.Dst(), proto, length)
}
