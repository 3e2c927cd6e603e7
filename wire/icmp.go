package wire

import "encoding/binary"

// ICMPLen is the length of the part that all ICMP and ICMPv6 messages have, in
// bytes: type, code, checksum and four bytes whose meaning depends on the type.
// What follows (echo data, the quoted packet, …) is the payload.
const ICMPLen = 8

// ICMPType is the type of an ICMP message (RFC 792).
type ICMPType uint8

// The types in use.
const (
	ICMPEchoReply      ICMPType = 0
	ICMPUnreachable    ICMPType = 3
	ICMPSourceQuench   ICMPType = 4 // to be discarded (RFC 6633 §3)
	ICMPRedirect       ICMPType = 5
	ICMPEcho           ICMPType = 8
	ICMPTimeExceeded   ICMPType = 11
	ICMPParameterProb  ICMPType = 12
	ICMPTimestamp      ICMPType = 13
	ICMPTimestampReply ICMPType = 14
)

// Codes of ICMPUnreachable (RFC 792, RFC 1122 §3.2.2.1).
const (
	ICMPNetUnreachable   uint8 = 0
	ICMPHostUnreachable  uint8 = 1
	ICMPProtoUnreachable uint8 = 2
	ICMPPortUnreachable  uint8 = 3
	ICMPFragNeeded       uint8 = 4  // with the next hop's MTU (RFC 1191 §4)
	ICMPAdminProhibited  uint8 = 13 // RFC 1812 §5.2.7.1
)

// IsError reports whether messages of type t quote the packet that caused them;
// such messages are never answered by another error (RFC 1122 §3.2.2).
func (t ICMPType) IsError() bool {
	switch t {
	case ICMPUnreachable, ICMPSourceQuench, ICMPRedirect, ICMPTimeExceeded, ICMPParameterProb:
		return true
	}
	return false
}

// ICMP is the view of the first 8 bytes of an ICMP message for IPv4.
type ICMP []byte

// ICMPFields is what PutICMP writes.
type ICMPFields struct {
	Type     ICMPType
	Code     uint8
	Rest     uint32 // bytes 4…7; EchoRest makes it for echo
	Checksum uint16 // as is; usually 0, and ICMP.FillChecksum afterwards
}

// EchoRest is Rest for an echo message or its reply (RFC 792, RFC 4443 §4.1).
func EchoRest(id, seq uint16) uint32 { return uint32(id)<<16 | uint32(seq) }

// ParseICMP reads the message at the start of b, the payload of an IPv4 packet
// that is not a fragment. The payload is the rest of b.
func ParseICMP(b []byte) (h ICMP, payload []byte, err error) {
	if len(b) < ICMPLen {
		return nil, nil, errICMPShort
	}
	return ICMP(b[:ICMPLen:ICMPLen]), b[ICMPLen:], nil
}

// PutICMP writes the first 8 bytes of a message at the start of room and
// returns them. Call FillChecksum when the sum of the payload is known.
func PutICMP(room []byte, f ICMPFields) (ICMP, error) {
	if len(room) < ICMPLen {
		return nil, errICMPRoom
	}
	h := ICMP(room[:ICMPLen:ICMPLen])
	h[0], h[1] = byte(f.Type), f.Code
	h.SetChecksum(f.Checksum)
	h.SetRest(f.Rest)
	return h, nil
}

// Fields returns what PutICMP takes to write h.
func (h ICMP) Fields() ICMPFields {
	return ICMPFields{Type: h.Type(), Code: h.Code(), Rest: h.Rest(), Checksum: h.Checksum()}
}

// Type of the message.
func (h ICMP) Type() ICMPType { return ICMPType(h[0]) }

// Code is a subtype.
func (h ICMP) Code() uint8 { return h[1] }

// Checksum is the checksum as it stands.
func (h ICMP) Checksum() uint16 { return binary.BigEndian.Uint16(h[2:4]) }

// Rest are bytes 4…7.
func (h ICMP) Rest() uint32 { return binary.BigEndian.Uint32(h[4:8]) }

// ID of an echo message.
func (h ICMP) ID() uint16 { return binary.BigEndian.Uint16(h[4:6]) }

// Seq is the sequence number of an echo message.
func (h ICMP) Seq() uint16 { return binary.BigEndian.Uint16(h[6:8]) }

// MTU is the next hop's, in bytes, in ICMPUnreachable with ICMPFragNeeded (RFC
// 1191 §4). Old routers send 0.
func (h ICMP) MTU() int { return int(binary.BigEndian.Uint16(h[6:8])) }

// SetType writes the type. As for all setters, the checksum is the caller's to
// update: UpdateChecksum or FillChecksum.
func (h ICMP) SetType(t ICMPType) { h[0] = byte(t) }

// SetCode writes the code.
func (h ICMP) SetCode(v uint8) { h[1] = v }

// SetChecksum writes the checksum.
func (h ICMP) SetChecksum(v uint16) { binary.BigEndian.PutUint16(h[2:4], v) }

// SetRest writes bytes 4…7.
func (h ICMP) SetRest(v uint32) { binary.BigEndian.PutUint32(h[4:8], v) }

// FillChecksum computes and writes the checksum, which has no pseudo-header
// (RFC 792).
func (h ICMP) FillChecksum(payload Sum) {
	h.SetChecksum(0)
	h.SetChecksum(SumOf(h).Add(payload).Checksum())
}

// ChecksumOK verifies the checksum.
func (h ICMP) ChecksumOK(payload Sum) bool { return SumOf(h).Add(payload).OK() }

// ICMPv6Type is the type of an ICMPv6 message. Those below 128 are errors (RFC
// 4443 §2.1).
type ICMPv6Type uint8

// The types in use: RFC 4443 §3 and §4, RFC 2710 §3 and RFC 3810 §5.2, RFC 4861
// §4.
const (
	ICMPv6Unreachable     ICMPv6Type = 1
	ICMPv6PacketTooBig    ICMPv6Type = 2
	ICMPv6TimeExceeded    ICMPv6Type = 3
	ICMPv6ParameterProb   ICMPv6Type = 4
	ICMPv6Echo            ICMPv6Type = 128
	ICMPv6EchoReply       ICMPv6Type = 129
	ICMPv6MLDQuery        ICMPv6Type = 130
	ICMPv6MLDReport       ICMPv6Type = 131
	ICMPv6MLDDone         ICMPv6Type = 132
	ICMPv6RouterSolicit   ICMPv6Type = 133
	ICMPv6RouterAdvert    ICMPv6Type = 134
	ICMPv6NeighborSolicit ICMPv6Type = 135
	ICMPv6NeighborAdvert  ICMPv6Type = 136
	ICMPv6Redirect        ICMPv6Type = 137
	ICMPv6MLDv2Report     ICMPv6Type = 143
)

// IsError reports whether messages of type t quote the packet that caused them.
func (t ICMPv6Type) IsError() bool { return t < 128 }

// ICMPv6 is the view of the first 8 bytes of an ICMPv6 message.
type ICMPv6 []byte

// ICMPv6Fields is what PutICMPv6 writes.
type ICMPv6Fields struct {
	Type     ICMPv6Type
	Code     uint8
	Rest     uint32 // bytes 4…7; EchoRest makes it for echo
	Checksum uint16 // as is; usually 0, and ICMPv6.FillChecksum afterwards
}

// ParseICMPv6 reads the message at the start of b, the payload of an IPv6 packet
// behind its extension headers. RFC 4443 has a header of 4 bytes; the next 4 are
// taken in because every message defined has them.
func ParseICMPv6(b []byte) (h ICMPv6, payload []byte, err error) {
	if len(b) < ICMPLen {
		return nil, nil, errICMPv6Short
	}
	return ICMPv6(b[:ICMPLen:ICMPLen]), b[ICMPLen:], nil
}

// PutICMPv6 writes the first 8 bytes of a message at the start of room and
// returns them. Call FillChecksum when the sum of the payload is known.
func PutICMPv6(room []byte, f ICMPv6Fields) (ICMPv6, error) {
	if len(room) < ICMPLen {
		return nil, errICMPRoom
	}
	h := ICMPv6(room[:ICMPLen:ICMPLen])
	h[0], h[1] = byte(f.Type), f.Code
	h.SetChecksum(f.Checksum)
	h.SetRest(f.Rest)
	return h, nil
}

// Fields returns what PutICMPv6 takes to write h.
func (h ICMPv6) Fields() ICMPv6Fields {
	return ICMPv6Fields{Type: h.Type(), Code: h.Code(), Rest: h.Rest(), Checksum: h.Checksum()}
}

// Type of the message.
func (h ICMPv6) Type() ICMPv6Type { return ICMPv6Type(h[0]) }

// Code is a subtype.
func (h ICMPv6) Code() uint8 { return h[1] }

// Checksum is the checksum as it stands.
func (h ICMPv6) Checksum() uint16 { return binary.BigEndian.Uint16(h[2:4]) }

// Rest are bytes 4…7.
func (h ICMPv6) Rest() uint32 { return binary.BigEndian.Uint32(h[4:8]) }

// ID of an echo message (RFC 4443 §4.1).
func (h ICMPv6) ID() uint16 { return binary.BigEndian.Uint16(h[4:6]) }

// Seq is the sequence number of an echo message.
func (h ICMPv6) Seq() uint16 { return binary.BigEndian.Uint16(h[6:8]) }

// MTU is that of the next hop, in bytes, in ICMPv6PacketTooBig (RFC 4443 §3.2).
func (h ICMPv6) MTU() uint32 { return h.Rest() }

// Pointer, in ICMPv6ParameterProb, is where the quoted packet is wrong, in bytes
// (RFC 4443 §3.4).
func (h ICMPv6) Pointer() uint32 { return h.Rest() }

// SetType writes the type. As for all setters, the checksum is the caller's to
// update: UpdateChecksum or FillChecksum.
func (h ICMPv6) SetType(t ICMPv6Type) { h[0] = byte(t) }

// SetCode writes the code.
func (h ICMPv6) SetCode(v uint8) { h[1] = v }

// SetChecksum writes the checksum.
func (h ICMPv6) SetChecksum(v uint16) { binary.BigEndian.PutUint16(h[2:4], v) }

// SetRest writes bytes 4…7.
func (h ICMPv6) SetRest(v uint32) { binary.BigEndian.PutUint32(h[4:8], v) }

// FillChecksum computes and writes the checksum from the sums of the
// pseudo-header and of the payload (RFC 4443 §2.3).
func (h ICMPv6) FillChecksum(pseudo, payload Sum) {
	h.SetChecksum(0)
	h.SetChecksum(SumOf(h).Add(pseudo).Add(payload).Checksum())
}

// ChecksumOK verifies the checksum.
func (h ICMPv6) ChecksumOK(pseudo, payload Sum) bool {
	return SumOf(h).Add(pseudo).Add(payload).OK()
}
