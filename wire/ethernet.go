package wire

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// Lengths of the link layer, in bytes without FCS.
const (
	EthernetLen = 14 // destination, source, EtherType
	VLANLen     = 4  // one 802.1Q tag: adds to EthernetLen
	MinFrame    = 60 // shorter frames are padded by the sender (802.3 §3.2.8)
)

// MAC is an Ethernet address in wire order; any [6]byte is one.
type MAC [6]byte

// Broadcast is the address of all stations.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// IsMulticast reports the group bit, which Broadcast has too (802.3 §3.2.3).
func (m MAC) IsMulticast() bool { return m[0]&1 != 0 }

// IsBroadcast reports whether m is the address of all stations.
func (m MAC) IsBroadcast() bool { return m == Broadcast }

// IsLocal reports the bit that marks an address as locally administered.
func (m MAC) IsLocal() bool { return m[0]&2 != 0 }

// String is the usual form with colons, 02:00:00:00:00:01.
func (m MAC) String() string {
	const hex = "0123456789abcdef"
	var b [17]byte
	for i, v := range m {
		b[3*i], b[3*i+1] = hex[v>>4], hex[v&15]
		if i < 5 {
			b[3*i+2] = ':'
		}
	}
	return string(b[:])
}

// ParseMAC reads six two-digit hexadecimal numbers with colons or dashes
// between them.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	if len(s) != 17 {
		return MAC{}, badMAC(s)
	}
	for i := range m {
		v, err := strconv.ParseUint(s[3*i:3*i+2], 16, 8)
		if err != nil || i < 5 && (s[3*i+2] != s[2] || s[2] != ':' && s[2] != '-') {
			return MAC{}, badMAC(s)
		}
		m[i] = byte(v)
	}
	return m, nil
}

func badMAC(s string) error {
	return fmt.Errorf("wire: MAC address %q: %w; write it like 02:00:00:00:00:01", s, ErrMalformed)
}

// EtherType says what an Ethernet frame or a VLAN tag carries. Values up to
// 1500 are the length of an 802.3 frame instead (802.3 §3.2.6).
type EtherType uint16

// The EtherTypes that this package knows by name.
const (
	EtherTypeIPv4    EtherType = 0x0800
	EtherTypeARP     EtherType = 0x0806
	EtherTypeVLAN    EtherType = 0x8100 // customer tag, 802.1Q
	EtherTypeIPv6    EtherType = 0x86dd
	EtherTypePause   EtherType = 0x8808 // MAC control, 802.3 annex 31
	EtherTypeQinQ    EtherType = 0x88a8 // service tag, 802.1ad
	EtherTypeLLDP    EtherType = 0x88cc
	EtherTypePTP     EtherType = 0x88f7 // IEEE 1588
	EtherTypeQinQOld EtherType = 0x9100 // service tag before 802.1ad; still met
)

// minEtherType is the lowest value that is a type (802.3 §3.2.6).
const minEtherType = 0x0600

// IsLength reports whether the field is a length, so that an LLC header follows.
func (t EtherType) IsLength() bool { return t < minEtherType }

// IsVLAN reports whether a VLAN tag follows.
func (t EtherType) IsVLAN() bool {
	return t == EtherTypeVLAN || t == EtherTypeQinQ || t == EtherTypeQinQOld
}

// String is the name where there is one, else 0x….
func (t EtherType) String() string {
	switch t {
	case EtherTypeIPv4:
		return "IPv4"
	case EtherTypeARP:
		return "ARP"
	case EtherTypeVLAN:
		return "VLAN"
	case EtherTypeIPv6:
		return "IPv6"
	case EtherTypePause:
		return "pause"
	case EtherTypeQinQ, EtherTypeQinQOld:
		return "QinQ"
	case EtherTypeLLDP:
		return "LLDP"
	case EtherTypePTP:
		return "PTP"
	}
	return fmt.Sprintf("0x%04x", uint16(t))
}

// Ethernet is the view of a frame's first 14 bytes (802.3 §3.1.1).
type Ethernet []byte

// EthernetFields is what PutEthernet writes.
type EthernetFields struct {
	Dst, Src MAC
	Type     EtherType
}

// ParseEthernet reads the header at the start of frame. The payload is the rest
// of the frame, with VLAN tags and padding.
func ParseEthernet(frame []byte) (h Ethernet, payload []byte, err error) {
	if len(frame) < EthernetLen {
		return nil, nil, errEthernetShort
	}
	return Ethernet(frame[:EthernetLen:EthernetLen]), frame[EthernetLen:], nil
}

// PutEthernet writes a header at the start of room and returns it.
func PutEthernet(room []byte, f EthernetFields) (Ethernet, error) {
	if len(room) < EthernetLen {
		return nil, errEthernetRoom
	}
	h := Ethernet(room[:EthernetLen:EthernetLen])
	h.SetDst(f.Dst)
	h.SetSrc(f.Src)
	h.SetType(f.Type)
	return h, nil
}

// Fields returns what PutEthernet takes to write h.
func (h Ethernet) Fields() EthernetFields {
	return EthernetFields{Dst: h.Dst(), Src: h.Src(), Type: h.Type()}
}

// Dst is the destination address (802.3 §3.2.4).
func (h Ethernet) Dst() MAC { return MAC(h[0:6]) }

// Src is the source address (802.3 §3.2.5).
func (h Ethernet) Src() MAC { return MAC(h[6:12]) }

// Type is the type or length field (802.3 §3.2.6); with VLAN tags, that of the
// first tag.
func (h Ethernet) Type() EtherType { return EtherType(binary.BigEndian.Uint16(h[12:14])) }

// SetDst writes the destination address.
func (h Ethernet) SetDst(m MAC) { *(*MAC)(h[0:6]) = m }

// SetSrc writes the source address.
func (h Ethernet) SetSrc(m MAC) { *(*MAC)(h[6:12]) = m }

// SetType writes the type or length field.
func (h Ethernet) SetType(t EtherType) { binary.BigEndian.PutUint16(h[12:14], uint16(t)) }

// TCI is the tag control information of a VLAN tag: priority, drop
// eligibility, VLAN id (802.1Q §9.6).
type TCI uint16

// MakeTCI joins a VLAN id (12 bits), a priority (3 bits) and the drop eligible
// bit. Higher bits of id and pcp are cut off.
func MakeTCI(id uint16, pcp uint8, dei bool) TCI {
	t := TCI(id&0xfff) | TCI(pcp&7)<<13
	if dei {
		t |= 1 << 12
	}
	return t
}

// ID is the VLAN id, 0…4095; 0 is a priority tag only.
func (t TCI) ID() uint16 { return uint16(t & 0xfff) }

// PCP is the priority, 0…7.
func (t TCI) PCP() uint8 { return uint8(t >> 13) }

// DEI reports the drop eligible bit.
func (t TCI) DEI() bool { return t&(1<<12) != 0 }

// VLAN is the view of the four bytes that follow an EtherType that IsVLAN: the
// TCI and the type of what comes next (802.1Q §9.3). The tag protocol
// identifier before it is the type field of the previous header.
type VLAN []byte

// VLANFields is what PutVLAN writes.
type VLANFields struct {
	TCI  TCI
	Type EtherType // of what follows the tag
}

// ParseVLAN reads a tag at the start of b, the payload of an Ethernet or VLAN
// view whose Type IsVLAN.
func ParseVLAN(b []byte) (t VLAN, payload []byte, err error) {
	if len(b) < VLANLen {
		return nil, nil, errVLANShort
	}
	return VLAN(b[:VLANLen:VLANLen]), b[VLANLen:], nil
}

// PutVLAN writes a tag at the start of room and returns it. The type field of
// the header before it must be EtherTypeVLAN or EtherTypeQinQ.
func PutVLAN(room []byte, f VLANFields) (VLAN, error) {
	if len(room) < VLANLen {
		return nil, errVLANRoom
	}
	t := VLAN(room[:VLANLen:VLANLen])
	t.SetTCI(f.TCI)
	t.SetType(f.Type)
	return t, nil
}

// Fields returns what PutVLAN takes to write t.
func (t VLAN) Fields() VLANFields { return VLANFields{TCI: t.TCI(), Type: t.Type()} }

// TCI is the tag control information.
func (t VLAN) TCI() TCI { return TCI(binary.BigEndian.Uint16(t[0:2])) }

// Type is the type or length of what follows the tag.
func (t VLAN) Type() EtherType { return EtherType(binary.BigEndian.Uint16(t[2:4])) }

// SetTCI writes the tag control information.
func (t VLAN) SetTCI(c TCI) { binary.BigEndian.PutUint16(t[0:2], uint16(c)) }

// SetType writes the type of what follows.
func (t VLAN) SetType(e EtherType) { binary.BigEndian.PutUint16(t[2:4], uint16(e)) }
