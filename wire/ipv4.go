package wire

import (
	"encoding/binary"
	"net/netip"
)

// Lengths of the IPv4 header, in bytes (RFC 791 §3.1).
const (
	IPv4MinLen = 20
	IPv4MaxLen = 60 // with 40 bytes of options
)

// IPv4Flags are the three flag bits in front of the fragment offset (RFC 791
// §3.1).
type IPv4Flags uint8

// The flags.
const (
	IPv4MoreFragments IPv4Flags = 1 << 0
	IPv4DontFragment  IPv4Flags = 1 << 1
	IPv4Reserved      IPv4Flags = 1 << 2 // must be zero
)

// IPv4 is the view of an IPv4 header with its options.
type IPv4 []byte

// IPv4Fields is what PutIPv4 writes. The header checksum is computed.
type IPv4Fields struct {
	TOS        uint8  // DSCP in the upper 6 bits, ECN in the lower 2 (RFC 2474 §3, RFC 3168 §5)
	ID         uint16 // has a meaning for fragments only (RFC 6864 §4)
	Flags      IPv4Flags
	FragOffset int // bytes, a multiple of 8
	TTL        uint8
	Proto      Proto
	Src, Dst   [4]byte
	Options    []byte // a multiple of 4 bytes, at most 40; copied
	PayloadLen int    // bytes after header and options
}

// ParseIPv4 reads the header at the start of b and checks version, header
// length and total length. The payload ends where the packet does, so that
// Ethernet padding is not in it. The header checksum is not verified here; see
// IPv4.ChecksumOK. In a fragment that is not the first the payload does not
// start with a transport header.
func ParseIPv4(b []byte) (h IPv4, payload []byte, err error) {
	h, payload, err = ParseIPv4Quoted(b)
	if err != nil {
		return nil, nil, err
	}
	if len(h)+len(payload) < h.TotalLen() {
		return nil, nil, errIPv4Total
	}
	return h, payload, nil
}

// ParseIPv4Quoted is ParseIPv4 for the packet that an ICMP error quotes, which
// may be cut anywhere after its header (RFC 792, RFC 1812 §4.3.2.3): the
// payload is what there is.
func ParseIPv4Quoted(b []byte) (h IPv4, payload []byte, err error) {
	if len(b) < IPv4MinLen {
		return nil, nil, errIPv4Short
	}
	if b[0]>>4 != 4 {
		return nil, nil, errIPv4Version
	}
	n := int(b[0]&15) * 4
	if n < IPv4MinLen {
		return nil, nil, errIPv4IHL
	}
	if n > len(b) {
		return nil, nil, errIPv4Options
	}
	h = IPv4(b[:n:n])
	total := h.TotalLen()
	if total < n {
		return nil, nil, errIPv4TotalLow
	}
	if total < len(b) {
		b = b[:total:total]
	}
	return h, b[n:], nil
}

// PutIPv4 writes a header at the start of room, with its checksum, and returns
// it.
func PutIPv4(room []byte, f IPv4Fields) (IPv4, error) {
	n := IPv4MinLen + len(f.Options)
	if n > IPv4MaxLen || n&3 != 0 {
		return nil, errIPv4PutOptions
	}
	if f.PayloadLen < 0 || n+f.PayloadLen > 0xffff {
		return nil, errIPv4PutLength
	}
	if f.FragOffset < 0 || f.FragOffset > 0xfff8 || f.FragOffset&7 != 0 || f.Flags > 7 {
		return nil, errIPv4PutFrag
	}
	if len(room) < n {
		return nil, errIPv4Room
	}
	h := IPv4(room[:n:n])
	h[0] = 4<<4 | byte(n/4)
	h[1] = f.TOS
	binary.BigEndian.PutUint16(h[2:4], uint16(n+f.PayloadLen))
	binary.BigEndian.PutUint16(h[4:6], f.ID)
	binary.BigEndian.PutUint16(h[6:8], uint16(f.Flags)<<13|uint16(f.FragOffset>>3))
	h[8] = f.TTL
	h[9] = byte(f.Proto)
	h.SetSrc(f.Src)
	h.SetDst(f.Dst)
	putBytes(h[IPv4MinLen:], f.Options)
	h.FillChecksum()
	return h, nil
}

// Fields returns what PutIPv4 takes to write h. Options lie in h, uncopied.
func (h IPv4) Fields() IPv4Fields {
	return IPv4Fields{
		TOS: h.TOS(), ID: h.ID(), Flags: h.Flags(), FragOffset: h.FragOffset(),
		TTL: h.TTL(), Proto: h.Proto(), Src: h.Src(), Dst: h.Dst(),
		Options: h.Options(), PayloadLen: h.TotalLen() - len(h),
	}
}

// TOS is the octet of DSCP (upper 6 bits, RFC 2474 §3) and ECN (lower 2, RFC
// 3168 §5).
func (h IPv4) TOS() uint8 { return h[1] }

// TotalLen is the length of header and payload in bytes (RFC 791 §3.1).
func (h IPv4) TotalLen() int { return int(binary.BigEndian.Uint16(h[2:4])) }

// ID tells the fragments of one packet from those of others (RFC 6864 §4).
func (h IPv4) ID() uint16 { return binary.BigEndian.Uint16(h[4:6]) }

// Flags are the three flag bits.
func (h IPv4) Flags() IPv4Flags { return IPv4Flags(h[6] >> 5) }

// FragOffset is where this fragment's payload goes, in bytes (RFC 791 §3.1
// counts in units of 8).
func (h IPv4) FragOffset() int { return int(binary.BigEndian.Uint16(h[6:8])&0x1fff) << 3 }

// MoreFragments reports the MF flag.
func (h IPv4) MoreFragments() bool { return h.Flags()&IPv4MoreFragments != 0 }

// DontFragment reports the DF flag.
func (h IPv4) DontFragment() bool { return h.Flags()&IPv4DontFragment != 0 }

// IsFragment reports whether the packet is a part of a larger one (RFC 791
// §3.2).
func (h IPv4) IsFragment() bool { return binary.BigEndian.Uint16(h[6:8])&0x3fff != 0 }

// TTL is the time to live, in hops.
func (h IPv4) TTL() uint8 { return h[8] }

// Proto says what the payload is.
func (h IPv4) Proto() Proto { return Proto(h[9]) }

// Checksum is the header checksum as it stands.
func (h IPv4) Checksum() uint16 { return binary.BigEndian.Uint16(h[10:12]) }

// Src is the source address.
func (h IPv4) Src() [4]byte { return [4]byte(h[12:16]) }

// Dst is the destination address.
func (h IPv4) Dst() [4]byte { return [4]byte(h[16:20]) }

// SrcAddr is Src as a netip.Addr.
func (h IPv4) SrcAddr() netip.Addr { return netip.AddrFrom4(h.Src()) }

// DstAddr is Dst as a netip.Addr.
func (h IPv4) DstAddr() netip.Addr { return netip.AddrFrom4(h.Dst()) }

// Options are the bytes between the fixed header and the payload; OptionIter
// walks them.
func (h IPv4) Options() []byte { return h[IPv4MinLen:] }

// SetTOS writes DSCP and ECN. As for all setters, the checksum is the caller's
// to update: UpdateChecksum or FillChecksum.
func (h IPv4) SetTOS(v uint8) { h[1] = v }

// SetTotalLen writes the length of header and payload, in bytes.
func (h IPv4) SetTotalLen(n uint16) { binary.BigEndian.PutUint16(h[2:4], n) }

// SetID writes the identification.
func (h IPv4) SetID(v uint16) { binary.BigEndian.PutUint16(h[4:6], v) }

// SetTTL writes the time to live.
func (h IPv4) SetTTL(v uint8) { h[8] = v }

// SetProto writes the protocol number.
func (h IPv4) SetProto(p Proto) { h[9] = byte(p) }

// SetChecksum writes the header checksum.
func (h IPv4) SetChecksum(v uint16) { binary.BigEndian.PutUint16(h[10:12], v) }

// SetSrc writes the source address.
func (h IPv4) SetSrc(a [4]byte) { *(*[4]byte)(h[12:16]) = a }

// SetDst writes the destination address.
func (h IPv4) SetDst(a [4]byte) { *(*[4]byte)(h[16:20]) = a }

// FillChecksum computes and writes the header checksum (RFC 791 §3.1).
func (h IPv4) FillChecksum() {
	h.SetChecksum(0)
	h.SetChecksum(SumOf(h).Checksum())
}

// ChecksumOK verifies the header checksum.
func (h IPv4) ChecksumOK() bool { return SumOf(h).OK() }

// DecrementTTL takes one hop off and updates the checksum (RFC 1141, with the
// arithmetic of RFC 1624 §3). It reports false, and changes nothing, when the
// packet has no hop left and must not be forwarded (RFC 1812 §5.3.1).
func (h IPv4) DecrementTTL() bool {
	if h[8] <= 1 {
		return false
	}
	old := Sum(binary.BigEndian.Uint16(h[8:10]))
	h[8]--
	h.SetChecksum(UpdateChecksum(h.Checksum(), old, Sum(binary.BigEndian.Uint16(h[8:10]))))
	return true
}

// PseudoSum is the sum of the pseudo-header for a transport header and payload
// of length bytes.
func (h IPv4) PseudoSum(length int) Sum { return PseudoIPv4(h.Src(), h.Dst(), h.Proto(), length) }

// putBytes copies header bytes (options of at most 40) in one place, so that
// nothing else in this package moves bytes of an unknown length.
func putBytes(dst, src []byte) { copy(dst, src) }
