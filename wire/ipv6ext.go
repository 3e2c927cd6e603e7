package wire

import "encoding/binary"

// MaxIPv6Extensions is how many extension headers are followed before a packet
// is given up with ErrTooDeep. Each of the kinds in RFC 8200 §4.1 once, and
// destination options twice, are six.
const MaxIPv6Extensions = 8

// IPv6FragmentLen is the length of a fragment header, in bytes (RFC 8200 §4.5).
const IPv6FragmentLen = 8

// IsIPv6Extension reports whether p is an extension header that can be walked
// over. ESP is not: what it carries is encrypted.
func (p Proto) IsIPv6Extension() bool {
	switch p {
	case ProtoHopByHop, ProtoRouting, ProtoFragment, ProtoAH, ProtoDestOptions, ProtoMobility:
		return true
	}
	return false
}

// IPv6Extension is the view of one extension header. What its bytes mean
// depends on the kind, which is in the header before it.
type IPv6Extension []byte

// ParseIPv6Extension reads the extension header of kind p at the start of b.
func ParseIPv6Extension(p Proto, b []byte) (h IPv6Extension, payload []byte, err error) {
	if !p.IsIPv6Extension() {
		return nil, nil, errIPv6NotExt
	}
	if len(b) < 8 { // the shortest extension header of all kinds
		return nil, nil, errIPv6ExtShort
	}
	n := 8
	switch p {
	case ProtoFragment: // fixed length; the length byte is reserved (RFC 8200 §4.5)
	case ProtoAH: // counts 4-byte words, minus 2 (RFC 4302 §2.2)
		n = (int(b[1]) + 2) * 4
	default: // counts 8-byte words, minus 1 (RFC 8200 §4)
		n = (int(b[1]) + 1) * 8
	}
	if n > len(b) {
		return nil, nil, errIPv6ExtShort
	}
	return IPv6Extension(b[:n:n]), b[n:], nil
}

// NextHeader is the kind of what follows.
func (h IPv6Extension) NextHeader() Proto { return Proto(h[0]) }

// SegmentsLeft, of a routing header, is how many nodes are still to be visited
// (RFC 8200 §4.4).
func (h IPv6Extension) SegmentsLeft() uint8 { return h[3] }

// FragOffset, of a fragment header, is where this fragment goes, in bytes
// (RFC 8200 §4.5 counts in units of 8).
func (h IPv6Extension) FragOffset() int { return int(binary.BigEndian.Uint16(h[2:4]) &^ 7) }

// MoreFragments, of a fragment header, reports the M flag.
func (h IPv6Extension) MoreFragments() bool { return h[3]&1 != 0 }

// FragID, of a fragment header, tells the fragments of one packet from others.
func (h IPv6Extension) FragID() uint32 { return binary.BigEndian.Uint32(h[4:8]) }

// IPv6FragmentFields is what PutIPv6Fragment writes.
type IPv6FragmentFields struct {
	NextHeader Proto
	Offset     int // bytes, a multiple of 8
	More       bool
	ID         uint32
}

// PutIPv6Fragment writes a fragment header at the start of room and returns it.
func PutIPv6Fragment(room []byte, f IPv6FragmentFields) (IPv6Extension, error) {
	if f.Offset < 0 || f.Offset > 0xfff8 || f.Offset&7 != 0 {
		return nil, errIPv6PutFrag
	}
	if len(room) < IPv6FragmentLen {
		return nil, errIPv6FragRoom
	}
	h := IPv6Extension(room[:IPv6FragmentLen:IPv6FragmentLen])
	h[0] = byte(f.NextHeader)
	h[1] = 0
	v := uint16(f.Offset)
	if f.More {
		v |= 1
	}
	binary.BigEndian.PutUint16(h[2:4], v)
	binary.BigEndian.PutUint32(h[4:8], f.ID)
	return h, nil
}

// IPv6Chain is what a walk over the extension headers of a packet finds.
type IPv6Chain struct {
	Proto      Proto  // of the first header that is no extension
	Len        int    // bytes of extension headers: where that header starts in the payload
	Fragment   bool   // a part of a larger packet; false for an atomic fragment (RFC 6946)
	FragOffset int    // bytes; when not 0 there is no transport header here
	FragID     uint32 // of the fragment header, if there was one
	FragAt     int    // where the fragment header starts in the payload; -1: none
	Routed     bool   // a routing header has segments left: Dst is not the final destination
}

// WalkIPv6 follows the extension headers at the start of payload, the payload
// of an IPv6 header whose NextHeader is next. It stops at the first header
// that is no extension, behind a fragment header that is not the first of its
// packet, and at an error; then the chain says how far it came.
func WalkIPv6(next Proto, payload []byte) (IPv6Chain, error) {
	c := IPv6Chain{Proto: next, FragAt: -1}
	for i := 0; c.Proto.IsIPv6Extension(); i++ {
		if i == MaxIPv6Extensions {
			return c, errIPv6ExtDeep
		}
		if c.Proto == ProtoHopByHop && i > 0 {
			return c, errIPv6HopByHop
		}
		h, _, err := ParseIPv6Extension(c.Proto, payload[c.Len:])
		if err != nil {
			if c.Fragment { // a first fragment must hold all headers
				err = errIPv6FragChain
			}
			return c, err
		}
		switch c.Proto {
		case ProtoRouting:
			c.Routed = c.Routed || h.SegmentsLeft() > 0
		case ProtoFragment:
			c.FragAt, c.FragID = c.Len, h.FragID()
			c.FragOffset = h.FragOffset()
			c.Fragment = c.FragOffset != 0 || h.MoreFragments()
		}
		c.Len += len(h)
		c.Proto = h.NextHeader()
		if c.FragOffset != 0 {
			return c, nil
		}
	}
	return c, nil
}
