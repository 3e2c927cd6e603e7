package wire

import (
	"encoding/binary"
	"net/netip"
)

// Layers says where the headers of a frame start. It is a value and holds no
// bytes: its methods take the frame that Parse was given, or an unchanged copy;
// with another one they may panic.
//
//	0            L3             L4                   Payload      End      len(frame)
//	│ Ethernet,  │ IP header,   │ TCP, UDP or ICMP    │            │        │
//	│ VLAN tags  │ extensions   │ header with options │ payload    │ padding│
type Layers struct {
	EtherType EtherType // behind the VLAN tags
	Proto     Proto     // behind IPv6 extension headers; meaningless when neither IsIPv4 nor IsIPv6
	flags     layerFlags
	Tags      uint8 // VLAN tags passed over: 0…2
	OuterTag  TCI   // the first tag, with Tags > 0
	InnerTag  TCI   // the second tag, with Tags > 1
	L3        int   // bytes from the start of the frame to what Ethernet carries
	L4        int   // to what IP carries: a transport header with HasL4, else a fragment's data or an unknown protocol
	Payload   int   // to what the transport header carries; L4 without HasL4
	End       int   // to the end of the payload. Ethernet padding is behind it
}

type layerFlags uint8

const (
	layerIPv4 layerFlags = 1 << iota
	layerIPv6
	layerL4
	layerFragment
	layerLater  // a fragment that does not start with a transport header
	layerRouted // Dst of the IPv6 header is not the final destination
)

// maxTags is how many VLAN tags are passed over. A third one stays as EtherType.
const maxTags = 2

// IsIPv4 reports whether L3 is an IPv4 header that ParseIPv4 would accept, but
// for a total length that reaches past the frame.
func (l Layers) IsIPv4() bool { return l.flags&layerIPv4 != 0 }

// IsIPv6 reports whether L3 is an IPv6 header, with the same exception.
func (l Layers) IsIPv6() bool { return l.flags&layerIPv6 != 0 }

// HasL4 reports whether L4 is a whole TCP, UDP, ICMP or ICMPv6 header. In the
// first fragment of a packet it can be; in later ones it is not.
func (l Layers) HasL4() bool { return l.flags&layerL4 != 0 }

// IsFragment reports whether the packet is a part of a larger one.
func (l Layers) IsFragment() bool { return l.flags&layerFragment != 0 }

// Parse finds the headers of a frame. What it does not know (other EtherTypes,
// other transport protocols, encrypted or fragmented ones) is no error. After
// an error the result holds what was found before it: L3, L4 and Payload stay
// where the walk stopped and the flags say which headers are whole.
func Parse(frame []byte) (Layers, error) { return ParseHead(frame, len(frame)) }

// ParseHead is Parse for a frame of which only the first bytes are at hand, as
// when it lies in several segments: lengths claimed by the headers are checked
// against frameLen, the length of the whole frame, and the headers themselves
// must be in head.
func ParseHead(head []byte, frameLen int) (l Layers, err error) {
	frameLen = max(frameLen, len(head))
	if l.plain(head, frameLen) {
		return l, nil
	}
	err = l.walk(head, frameLen)
	return l, err
}

// plain does what walk does for what most traffic is: TCP or UDP in
// untagged, unfragmented IPv4 without options and without a fault. It is there
// for its speed: about 90 instructions for ParseHead in place of 220, see
// BenchmarkParse and BenchmarkParseLongWay.
// Otherwise it reports false and leaves l alone.
func (l *Layers) plain(head []byte, frameLen int) bool {
	const l3, l4 = EthernetLen, EthernetLen + IPv4MinLen
	if len(head) < l4+TCPMinLen {
		return false
	}
	p := (*[l4 + TCPMinLen]byte)(head)
	const ipv4Plain = uint32(EtherTypeIPv4)<<8 | 0x45 // version 4, header of 5 words
	if binary.BigEndian.Uint32(p[l3-2:])>>8 != ipv4Plain || binary.BigEndian.Uint16(p[l3+6:])&0x3fff != 0 {
		return false
	}
	end := l3 + int(binary.BigEndian.Uint16(p[l3+2:]))
	if end > frameLen {
		return false
	}
	n := UDPLen
	switch Proto(p[l3+9]) {
	case ProtoUDP:
		length := int(binary.BigEndian.Uint16(p[l4+4:]))
		if length < UDPLen || l4+length > end {
			return false
		}
		end = l4 + length
	case ProtoTCP:
		n = int(p[l4+12]>>4) * 4
		if n < TCPMinLen || l4+n > end || l4+n > len(head) {
			return false
		}
	default:
		return false
	}
	*l = Layers{
		EtherType: EtherTypeIPv4, Proto: Proto(p[l3+9]), flags: layerIPv4 | layerL4,
		L3: l3, L4: l4, Payload: l4 + n, End: end,
	}
	return true
}

// walk finds the headers one after the other.
func (l *Layers) walk(head []byte, frameLen int) error {
	l.End = frameLen
	if len(head) < EthernetLen {
		return errEthernetShort
	}
	if err := l.link(head); err != nil {
		return err
	}
	var err error
	switch l.EtherType {
	case EtherTypeIPv4:
		err = l.ipv4(head)
	case EtherTypeIPv6:
		err = l.ipv6(head)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	return l.transport(head)
}

// link passes over Ethernet and VLAN tags. An 802.3 length that fits the frame
// ends it there; one that does not is left alone, for lack of a better end.
func (l *Layers) link(head []byte) error {
	t := EtherType(binary.BigEndian.Uint16(head[12:14]))
	at := EthernetLen
	for t.IsVLAN() && l.Tags < maxTags {
		tag, _, err := ParseVLAN(head[at:])
		if err != nil {
			l.setL3(at, t)
			return err
		}
		if l.Tags == 0 {
			l.OuterTag = tag.TCI()
		} else {
			l.InnerTag = tag.TCI()
		}
		l.Tags++
		t = tag.Type()
		at += VLANLen
	}
	l.setL3(at, t)
	if t.IsLength() && at+int(t) <= l.End {
		l.End = at + int(t)
	}
	return nil
}

func (l *Layers) setL3(at int, t EtherType) {
	l.EtherType = t
	l.L3, l.L4, l.Payload = at, at, at
}

func (l *Layers) ipv4(head []byte) error {
	h, _, err := ParseIPv4Quoted(head[l.L3:])
	if err != nil {
		return err
	}
	l.flags |= layerIPv4
	l.fragment(h.IsFragment(), h.FragOffset())
	l.Proto = h.Proto()
	l.L4 = l.L3 + len(h)
	l.Payload = l.L4
	end := l.L3 + h.TotalLen()
	if end > l.End {
		return errIPv4Total
	}
	l.End = end
	return nil
}

func (l *Layers) ipv6(head []byte) error {
	h, payload, err := ParseIPv6Quoted(head[l.L3:])
	if err != nil {
		return err
	}
	l.flags |= layerIPv6
	l.Proto = h.NextHeader()
	l.L4 = l.L3 + IPv6Len
	var walkErr error
	if l.Proto.IsIPv6Extension() {
		walkErr = l.extensions(payload)
	}
	l.Payload = l.L4
	end := l.L3 + IPv6Len + h.PayloadLen()
	if end > l.End {
		return errIPv6Payload
	}
	l.End = end
	return walkErr
}

func (l *Layers) extensions(payload []byte) error {
	c, err := WalkIPv6(l.Proto, payload)
	l.fragment(c.Fragment, c.FragOffset)
	if c.Routed {
		l.flags |= layerRouted
	}
	l.Proto = c.Proto
	l.L4 += c.Len
	return err
}

func (l *Layers) fragment(is bool, offset int) {
	if is {
		l.flags |= layerFragment
	}
	if offset != 0 {
		l.flags |= layerLater
	}
}

// transport reads the header at L4. A datagram in a first fragment is longer
// than the fragment, so UDP's length is held against the packet's only when
// there is the whole of it.
func (l *Layers) transport(head []byte) error {
	if l.flags&layerLater != 0 {
		return nil
	}
	b := head[l.L4:min(l.End, len(head))]
	n := 0
	switch {
	case l.Proto == ProtoTCP:
		h, _, err := ParseTCP(b)
		if err != nil {
			return err
		}
		n = len(h)
	case l.Proto == ProtoUDP:
		if len(b) < UDPLen {
			return errUDPShort
		}
		length := UDP(b).Length()
		if length < UDPLen {
			return errUDPLow
		}
		if !l.IsFragment() {
			if l.L4+length > l.End {
				return errUDPLength
			}
			l.End = l.L4 + length
		}
		n = UDPLen
	case l.Proto == ProtoICMP && l.IsIPv4():
		if len(b) < ICMPLen {
			return errICMPShort
		}
		n = ICMPLen
	case l.Proto == ProtoICMPv6 && l.IsIPv6():
		if len(b) < ICMPLen {
			return errICMPv6Short
		}
		n = ICMPLen
	default:
		return nil
	}
	l.flags |= layerL4
	l.Payload = l.L4 + n
	return nil
}

// Ethernet is the view of the first header.
func (l Layers) Ethernet(frame []byte) Ethernet { return Ethernet(frame[:EthernetLen:EthernetLen]) }

// IPv4 is the view of the IPv4 header with options; nil when not IsIPv4.
func (l Layers) IPv4(frame []byte) IPv4 {
	if !l.IsIPv4() {
		return nil
	}
	return IPv4(frame[l.L3:l.L4:l.L4])
}

// IPv6 is the view of the fixed IPv6 header; nil when not IsIPv6.
func (l Layers) IPv6(frame []byte) IPv6 {
	if !l.IsIPv6() {
		return nil
	}
	return IPv6(frame[l.L3 : l.L3+IPv6Len : l.L3+IPv6Len])
}

// TCP is the view of the TCP header with options; nil when there is none.
func (l Layers) TCP(frame []byte) TCP { return TCP(l.l4(frame, ProtoTCP)) }

// UDP is the view of the UDP header; nil when there is none.
func (l Layers) UDP(frame []byte) UDP { return UDP(l.l4(frame, ProtoUDP)) }

// ICMP is the view of an ICMP header over IPv4; nil when there is none.
func (l Layers) ICMP(frame []byte) ICMP { return ICMP(l.l4(frame, ProtoICMP)) }

// ICMPv6 is the view of an ICMPv6 header; nil when there is none.
func (l Layers) ICMPv6(frame []byte) ICMPv6 { return ICMPv6(l.l4(frame, ProtoICMPv6)) }

func (l Layers) l4(frame []byte, p Proto) []byte {
	if !l.HasL4() || l.Proto != p {
		return nil
	}
	return frame[l.L4:l.Payload:l.Payload]
}

// Addrs are source and destination of the IP header; zero Addrs when there is
// none.
func (l Layers) Addrs(frame []byte) (src, dst netip.Addr) {
	switch {
	case l.IsIPv4():
		h := l.IPv4(frame)
		return h.SrcAddr(), h.DstAddr()
	case l.IsIPv6():
		h := l.IPv6(frame)
		return h.SrcAddr(), h.DstAddr()
	}
	return netip.Addr{}, netip.Addr{}
}

// Ports are source and destination of TCP or UDP; ok is false when there is
// neither.
func (l Layers) Ports(frame []byte) (src, dst uint16, ok bool) {
	if !l.HasL4() || l.Proto != ProtoTCP && l.Proto != ProtoUDP {
		return 0, 0, false
	}
	b := frame[l.L4 : l.L4+4]
	return binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), true
}

// Verdict is the result of looking at a checksum.
type Verdict uint8

// The verdicts.
const (
	Unchecked Verdict = iota // there is none, or it cannot be known from this frame
	Good
	Bad
)

// String is the verdict in words.
func (v Verdict) String() string {
	switch v {
	case Good:
		return "good"
	case Bad:
		return "bad"
	}
	return "unchecked"
}

func verdict(ok bool) Verdict {
	if ok {
		return Good
	}
	return Bad
}

// CheckL3 verifies the IPv4 header checksum. IPv6 has none.
func (l Layers) CheckL3(frame []byte) Verdict {
	if !l.IsIPv4() {
		return Unchecked
	}
	return verdict(l.IPv4(frame).ChecksumOK())
}

// CheckL4 verifies the transport checksum over the whole payload, which must be
// in frame. It is Unchecked for fragments, for UDP over IPv4 sent without one
// (RFC 768) and for IPv6 packets that are still being routed by their source.
// UDP over IPv6 without a checksum is Bad (RFC 8200 §8.1).
func (l Layers) CheckL4(frame []byte) Verdict {
	if v, done := l.checkL4Early(frame); done || l.End > len(frame) {
		return v
	}
	return verdict(SumOf(frame[l.L4:l.End]).Add(l.PseudoSum(frame)).OK())
}

// checkL4Early gives the verdicts that need no sum; head holds the headers.
func (l Layers) checkL4Early(head []byte) (v Verdict, done bool) {
	if !l.HasL4() || l.flags&(layerFragment|layerRouted) != 0 {
		return Unchecked, true
	}
	if l.Proto == ProtoUDP && !l.UDP(head).HasChecksum() {
		if l.IsIPv4() {
			return Unchecked, true
		}
		return Bad, true
	}
	return Unchecked, false
}

// PseudoSum is the sum of the pseudo-header that the transport checksum of this
// frame includes; 0 for ICMP, which has none, and when there is no IP header.
func (l Layers) PseudoSum(frame []byte) Sum {
	n := l.End - l.L4
	switch {
	case l.IsIPv4() && l.Proto != ProtoICMP:
		return l.IPv4(frame).PseudoSum(n)
	case l.IsIPv6():
		return l.IPv6(frame).PseudoSum(l.Proto, n)
	}
	return 0
}
