package wire

// NeighborLen is the length of a neighbour solicitation or advertisement
// without options, in bytes (RFC 4861 §4.3, §4.4).
const NeighborLen = 24

// Flags of a neighbour advertisement: the top bits of ICMPv6.Rest (RFC 4861
// §4.4).
const (
	NeighborRouter    uint32 = 1 << 31
	NeighborSolicited uint32 = 1 << 30
	NeighborOverride  uint32 = 1 << 29
)

// Neighbor is the view of a neighbour solicitation or advertisement: an ICMPv6
// header and the target address, the same in both.
type Neighbor []byte

// NeighborFields is what PutNeighbor writes.
type NeighborFields struct {
	Type     ICMPv6Type // ICMPv6NeighborSolicit or ICMPv6NeighborAdvert
	Code     uint8      // 0
	Flags    uint32     // of an advertisement
	Target   [16]byte
	Checksum uint16 // as is; usually 0, and ICMPv6().FillChecksum afterwards
}

// ParseNeighbor reads the message at the start of b, the payload of an IPv6
// packet. options is the rest: NDPOptions walks over it. The rules that need
// the IPv6 header (hop limit 255, RFC 4861 §7.1) are the caller's.
func ParseNeighbor(b []byte) (m Neighbor, options []byte, err error) {
	if len(b) < NeighborLen {
		return nil, nil, errNDPShort
	}
	if t := ICMPv6Type(b[0]); t != ICMPv6NeighborSolicit && t != ICMPv6NeighborAdvert {
		return nil, nil, errNDPKind
	}
	return Neighbor(b[:NeighborLen:NeighborLen]), b[NeighborLen:], nil
}

// PutNeighbor writes a message at the start of room and returns it.
func PutNeighbor(room []byte, f NeighborFields) (Neighbor, error) {
	if f.Type != ICMPv6NeighborSolicit && f.Type != ICMPv6NeighborAdvert {
		return nil, errNDPPutKind
	}
	if len(room) < NeighborLen {
		return nil, errNDPRoom
	}
	m := Neighbor(room[:NeighborLen:NeighborLen])
	if _, err := PutICMPv6(m, ICMPv6Fields{Type: f.Type, Code: f.Code, Rest: f.Flags, Checksum: f.Checksum}); err != nil {
		return nil, err
	}
	m.SetTarget(f.Target)
	return m, nil
}

// Fields returns what PutNeighbor takes to write m.
func (m Neighbor) Fields() NeighborFields {
	h := m.ICMPv6()
	return NeighborFields{Type: h.Type(), Code: h.Code(), Flags: h.Rest(), Target: m.Target(), Checksum: h.Checksum()}
}

// ICMPv6 is the header that m starts with. The sum of the payload for its
// checksum is over m[ICMPLen:] and the options.
func (m Neighbor) ICMPv6() ICMPv6 { return ICMPv6(m[:ICMPLen:ICMPLen]) }

// Flags of an advertisement, with the reserved bits.
func (m Neighbor) Flags() uint32 { return m.ICMPv6().Rest() }

// Target is the address that is asked for or that answers.
func (m Neighbor) Target() [16]byte { return [16]byte(m[8:24]) }

// SetTarget writes the target address.
func (m Neighbor) SetTarget(a [16]byte) { *(*[16]byte)(m[8:24]) = a }

// NDPOptionKind is the type of a neighbour discovery option (RFC 4861 §4.6).
type NDPOptionKind uint8

// The options in use.
const (
	NDPSourceMAC NDPOptionKind = 1
	NDPTargetMAC NDPOptionKind = 2
	NDPPrefix    NDPOptionKind = 3
	NDPRedirect  NDPOptionKind = 4
	NDPMTU       NDPOptionKind = 5
)

// NDPLinkAddrLen is the length of a link-layer address option for Ethernet.
const NDPLinkAddrLen = 8

// NDPOption is one option. Data lies in the message.
type NDPOption struct {
	Kind NDPOptionKind
	Data []byte // without type and length: 6, 14, 22, … bytes
}

// NDPOptionIter walks the options of a neighbour discovery message, whose
// lengths count 8 bytes (RFC 4861 §4.6). Every step goes forward.
type NDPOptionIter struct {
	rest []byte
	err  error
}

// NDPOptions makes an iterator over b, what ParseNeighbor calls options.
func NDPOptions(b []byte) NDPOptionIter { return NDPOptionIter{rest: b} }

// Next returns the next option. False: no more, or an error; see Err. A message
// with such an error is to be discarded whole (RFC 4861 §4.6).
func (it *NDPOptionIter) Next() (NDPOption, bool) {
	b := it.rest
	if len(b) == 0 {
		return NDPOption{}, false
	}
	it.rest = nil
	if len(b) < 8 {
		it.err = errNDPOptLong
		return NDPOption{}, false
	}
	n := int(b[1]) * 8
	switch {
	case n == 0:
		it.err = errNDPOption
		return NDPOption{}, false
	case n > len(b):
		it.err = errNDPOptLong
		return NDPOption{}, false
	}
	it.rest = b[n:]
	return NDPOption{Kind: NDPOptionKind(b[0]), Data: b[2:n:n]}, true
}

// Err tells why Next stopped; nil at a proper end.
func (it *NDPOptionIter) Err() error { return it.err }

// MAC is the address in a link-layer address option; false when it is another
// kind or not Ethernet's length.
func (o NDPOption) MAC() (MAC, bool) {
	if o.Kind != NDPSourceMAC && o.Kind != NDPTargetMAC || len(o.Data) != NDPLinkAddrLen-2 {
		return MAC{}, false
	}
	return MAC(o.Data), true
}

// PutNDPLinkAddr writes a link-layer address option at the start of room and
// returns the room used.
func PutNDPLinkAddr(room []byte, kind NDPOptionKind, m MAC) ([]byte, error) {
	if len(room) < NDPLinkAddrLen {
		return nil, errNDPRoom
	}
	b := room[:NDPLinkAddrLen:NDPLinkAddrLen]
	b[0], b[1] = byte(kind), 1
	*(*MAC)(b[2:8]) = m
	return b, nil
}
