// Package frame builds the frames that pktgen sends.
//
// A [Builder] makes one template per stream with all headers in it and keeps, beside it, the checksums of all that never
// changes. For each frame the template is copied into a buffer and [Builder.Stamp] writes what differs: the flow's source
// port and address, the mark (package sig), and the checksums, made from the kept sums and the new words. The cost does not
// depend on the frame's length.
//
// Layout, bytes without FCS:
//
//	Ethernet 14 | VLAN tags 0, 4, 8 | IPv4 20 / IPv6 40 / ARP 28 | UDP 8 / TCP 20 / ICMP 8 | zeros | mark 18
//
// Formats are package wire's; default addresses are those of RFC 2544 C.2.2.
package frame

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"bare.wire/cmd/pktgen/internal/sig"
	"bare.wire/cmd/pktgen/internal/units"
	"bare.wire/wire"
)

// Proto is what a frame carries.
type Proto string

// The protocols that can be sent.
const (
	UDP  Proto = "udp"
	TCP  Proto = "tcp" // SYN
	ICMP Proto = "icmp"
	ARP  Proto = "arp" // request
)

// ParseProto reads a protocol's name.
func ParseProto(s string) (Proto, error) {
	switch p := Proto(s); p {
	case UDP, TCP, ICMP, ARP:
		return p, nil
	}
	return "", fmt.Errorf("protocol %q: unknown; write udp, tcp, icmp or arp", s)
}

// Spec is what a stream's frames look like.
type Spec struct {
	Proto            Proto
	Src, Dst         netip.Addr // both IPv4 or both IPv6
	SrcPort, DstPort uint16     // UDP and TCP
	SrcMAC, DstMAC   [6]byte
	VLANs            []units.VLAN // outermost first; at most two
	Size             int          // bytes with FCS
	// Flows is how many flows there are. Flow f has source port SrcPort+f; past 65535 the ports start again at SrcPort and
	// the source address goes up by one. ICMP varies the identifier, ARP the sender's address.
	Flows  int
	Run    uint8 // of the mark
	Stream uint8
}

// MaxFlows bounds Spec.Flows.
const MaxFlows = 1 << 24

// Builder makes the frames of one stream. Stamp may not be called from two goroutines on the same bytes.
type Builder struct {
	spec     Spec
	template []byte
	l3, l4   int
	flows    uint64
	perAddr  uint64   // flows that share a source address
	base     uint32   // the low 32 bits of the source address
	ipSum    wire.Sum // of the IPv4 header without checksum and source address
	l4Sum    wire.Sum // of pseudo-header, L4 header and payload without what Stamp writes
	swap     bool     // the mark starts at an odd offset of what L4 sums
}

// MinSize is the smallest frame of this kind that has room for the mark, bytes with FCS.
func (s Spec) MinSize() int {
	return max(units.MinSize, s.headers()+sig.Size+units.FCS)
}

func (s Spec) headers() int {
	n := wire.EthernetLen + wire.VLANLen*len(s.VLANs)
	switch {
	case s.Proto == ARP:
		return n + wire.ARPLen
	case s.Src.Is6():
		n += wire.IPv6Len
	default:
		n += wire.IPv4MinLen
	}
	switch s.Proto {
	case TCP:
		return n + wire.TCPMinLen
	case ICMP:
		return n + wire.ICMPLen
	}
	return n + wire.UDPLen
}

func (s Spec) check() error {
	if _, err := ParseProto(string(s.Proto)); err != nil {
		return err
	}
	if !s.Src.IsValid() || !s.Dst.IsValid() || s.Src.Is6() != s.Dst.Is6() {
		return fmt.Errorf("source %v and destination %v: give two addresses of the same family", s.Src, s.Dst)
	}
	if s.Proto == ARP && s.Src.Is6() {
		return fmt.Errorf("ARP is for IPv4 only; give IPv4 addresses or -p icmp")
	}
	if len(s.VLANs) > 2 {
		return fmt.Errorf("%d VLAN tags; at most two (QinQ)", len(s.VLANs))
	}
	if min := s.MinSize(); s.Size < min {
		return fmt.Errorf("size %d: too small for %s with its headers and the 18-byte mark; the minimum is %d (bytes with FCS)", s.Size, s.what(), min)
	}
	if s.Size > units.MaxSize {
		return fmt.Errorf("size %d: the maximum is %d (bytes with FCS)", s.Size, units.MaxSize)
	}
	return s.checkFlows()
}

func (s Spec) checkFlows() error {
	if s.Flows < 1 || s.Flows > MaxFlows {
		return fmt.Errorf("%d flows: give 1 to %d", s.Flows, MaxFlows)
	}
	up := uint64(s.Flows-1) / s.flowsPerAddr()
	if uint64(low32(s.Src))+up > 1<<32-1 {
		return fmt.Errorf("%d flows from %v port %d: the source addresses run out; start lower", s.Flows, s.Src, s.SrcPort)
	}
	return nil
}

// what names the frame's make-up, "udp over IPv6 with 1 VLAN tag".
func (s Spec) what() string {
	text := string(s.Proto)
	if s.Proto != ARP {
		text += map[bool]string{false: " over IPv4", true: " over IPv6"}[s.Src.Is6()]
	}
	switch len(s.VLANs) {
	case 0:
		return text
	case 1:
		return text + " with 1 VLAN tag"
	}
	return text + " with 2 VLAN tags"
}

func (s Spec) flowsPerAddr() uint64 {
	switch s.Proto {
	case ARP:
		return 1
	case ICMP:
		return 1 << 16
	}
	return 1<<16 - uint64(s.SrcPort)
}

// low32 is the last four bytes of an address.
func low32(a netip.Addr) uint32 {
	b := a.As16()
	return binary.BigEndian.Uint32(b[12:])
}

// New checks the spec and builds the template. The error says which flag to change and how.
func New(s Spec) (*Builder, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b := &Builder{
		spec: s, template: make([]byte, s.Size-units.FCS), flows: uint64(s.Flows), perAddr: s.flowsPerAddr(), base: low32(s.Src),
	}
	if err := b.link(); err != nil {
		return nil, fmt.Errorf("build a frame of %s: %w", s.what(), err)
	}
	b.sums()
	b.Stamp(b.template, 0, 0)
	return b, nil
}

// link writes Ethernet and the tags, and what they carry.
func (b *Builder) link() error {
	s := b.spec
	types := make([]wire.EtherType, 0, 3) // of what follows Ethernet, each tag
	for i := range s.VLANs {
		if i == 0 && len(s.VLANs) == 2 {
			types = append(types, wire.EtherTypeQinQ)
			continue
		}
		types = append(types, wire.EtherTypeVLAN)
	}
	switch {
	case s.Proto == ARP:
		types = append(types, wire.EtherTypeARP)
	case s.Src.Is6():
		types = append(types, wire.EtherTypeIPv6)
	default:
		types = append(types, wire.EtherTypeIPv4)
	}
	room := b.template
	if _, err := wire.PutEthernet(room, wire.EthernetFields{Dst: s.DstMAC, Src: s.SrcMAC, Type: types[0]}); err != nil {
		return err
	}
	b.l3 = wire.EthernetLen
	for i, tag := range s.VLANs {
		f := wire.VLANFields{TCI: wire.MakeTCI(tag.ID, tag.PCP, false), Type: types[i+1]}
		if _, err := wire.PutVLAN(room[b.l3:], f); err != nil {
			return err
		}
		b.l3 += wire.VLANLen
	}
	if s.Proto == ARP {
		_, err := wire.PutARP(room[b.l3:], wire.ARPFields{Op: wire.ARPRequest, SenderMAC: s.SrcMAC, SenderIP: s.Src.As4(), TargetIP: s.Dst.As4()})
		return err
	}
	if err := b.network(); err != nil {
		return err
	}
	return b.transport()
}

// proto is the number IP gives to what it carries.
func (b *Builder) proto() wire.Proto {
	switch {
	case b.spec.Proto == TCP:
		return wire.ProtoTCP
	case b.spec.Proto == ICMP && b.spec.Src.Is6():
		return wire.ProtoICMPv6
	case b.spec.Proto == ICMP:
		return wire.ProtoICMP
	}
	return wire.ProtoUDP
}

func (b *Builder) network() error {
	s, room := b.spec, b.template[b.l3:]
	if s.Src.Is6() {
		b.l4 = b.l3 + wire.IPv6Len
		_, err := wire.PutIPv6(room, wire.IPv6Fields{
			NextHeader: b.proto(), HopLimit: 64, Src: s.Src.As16(), Dst: s.Dst.As16(), PayloadLen: len(b.template) - b.l4,
		})
		return err
	}
	b.l4 = b.l3 + wire.IPv4MinLen
	_, err := wire.PutIPv4(room, wire.IPv4Fields{
		TTL: 64, Proto: b.proto(), Src: s.Src.As4(), Dst: s.Dst.As4(), PayloadLen: len(b.template) - b.l4,
	})
	return err
}

func (b *Builder) transport() (err error) {
	s, room := b.spec, b.template[b.l4:]
	switch b.proto() {
	case wire.ProtoTCP:
		_, err = wire.PutTCP(room, wire.TCPFields{SrcPort: s.SrcPort, DstPort: s.DstPort, Flags: wire.TCPSyn, Window: 0xffff})
	case wire.ProtoICMP:
		_, err = wire.PutICMP(room, wire.ICMPFields{Type: wire.ICMPEcho})
	case wire.ProtoICMPv6:
		_, err = wire.PutICMPv6(room, wire.ICMPv6Fields{Type: wire.ICMPv6Echo})
	default:
		_, err = wire.PutUDP(room, wire.UDPFields{SrcPort: s.SrcPort, DstPort: s.DstPort, PayloadLen: len(room) - wire.UDPLen})
	}
	return err
}

// Spec returns what the builder was made from.
func (b *Builder) Spec() Spec { return b.spec }

// Len is the length of every frame, bytes without FCS.
func (b *Builder) Len() int { return len(b.template) }

// Template is what a frame starts from: copy it, then Stamp. It must not be written to.
func (b *Builder) Template() []byte { return b.template }
