package wire_test

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"bare.wire/wire"
)

// decode lets gopacket read b, checking checksums, and fails on any complaint.
func decode(t *testing.T, b []byte, first gopacket.LayerType) gopacket.Packet {
	t.Helper()
	p := gopacket.NewPacket(b, first, gopacket.NoCopy)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("gopacket does not decode % x: %v", b, e.Error())
	}
	for _, l := range p.Layers() {
		if c, ok := l.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok {
			if err := c.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
				t.Fatal(err)
			}
		}
	}
	err, bad := p.VerifyChecksums()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range bad {
		t.Errorf("gopacket: %v checksum %#04x, want %#04x", m.Layer.LayerType(), m.Actual, m.Correct)
	}
	return p
}

func layer[T gopacket.Layer](t *testing.T, p gopacket.Packet, lt gopacket.LayerType) T {
	t.Helper()
	l, ok := p.Layer(lt).(T)
	if !ok {
		t.Fatalf("gopacket finds no %v in %v", lt, p)
	}
	return l
}

// frameWriter puts headers one behind another.
type frameWriter struct {
	t    *testing.T
	room []byte
	n    int
}

func (w *frameWriter) rest() []byte { return w.room[w.n:] }

func put[H ~[]byte](w *frameWriter, h H, err error) H {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	w.n += len(h)
	return h
}

func (w *frameWriter) ethernet(typ wire.EtherType) {
	h, err := wire.PutEthernet(w.rest(), wire.EthernetFields{Dst: macB, Src: macA, Type: typ})
	put(w, h, err)
}

func (w *frameWriter) payload(b []byte) []byte {
	n := copy(w.rest(), b)
	w.n += n
	return w.room[w.n-n : w.n]
}

// newFrame gives room full of rubbish, so that what a builder leaves out shows.
func newFrame(t *testing.T) *frameWriter {
	w := &frameWriter{t: t, room: make([]byte, 2000)}
	fill(w.room, 0xff)
	return w
}

func TestGopacketReadsTaggedUDPOverIPv4(t *testing.T) {
	w := newFrame(t)
	w.ethernet(wire.EtherTypeQinQ)
	tag, err := wire.PutVLAN(w.rest(), wire.VLANFields{TCI: wire.MakeTCI(7, 6, true), Type: wire.EtherTypeVLAN})
	put(w, tag, err)
	tag, err = wire.PutVLAN(w.rest(), wire.VLANFields{TCI: wire.MakeTCI(4094, 1, false), Type: wire.EtherTypeIPv4})
	put(w, tag, err)
	ip, err := wire.PutIPv4(w.rest(), wire.IPv4Fields{
		TOS: 0xb9, ID: 0xfeed, Flags: wire.IPv4DontFragment, TTL: 17, Proto: wire.ProtoUDP,
		Src: ip4A, Dst: ip4B, Options: []byte{148, 4, 0, 0}, PayloadLen: 8 + len(payload),
	})
	put(w, ip, err)
	udp, err := wire.PutUDP(w.rest(), wire.UDPFields{SrcPort: 4242, DstPort: 4343, PayloadLen: len(payload)})
	put(w, udp, err)
	data := w.payload(payload)
	udp.FillChecksum(ip.PseudoSum(8+len(data)), wire.SumOf(data))

	p := decode(t, w.room[:w.n], layers.LayerTypeEthernet)
	eth := layer[*layers.Ethernet](t, p, layers.LayerTypeEthernet)
	if !bytes.Equal(eth.DstMAC, macB[:]) || !bytes.Equal(eth.SrcMAC, macA[:]) || eth.EthernetType != layers.EthernetTypeQinQ {
		t.Errorf("Ethernet %+v", eth)
	}
	q := layer[*layers.Dot1Q](t, p, layers.LayerTypeDot1Q)
	if q.VLANIdentifier != 7 || q.Priority != 6 || !q.DropEligible || q.Type != layers.EthernetTypeDot1Q {
		t.Errorf("first tag %+v", q)
	}
	got := layer[*layers.IPv4](t, p, layers.LayerTypeIPv4)
	if got.TOS != 0xb9 || got.Id != 0xfeed || got.Flags != layers.IPv4DontFragment || got.FragOffset != 0 || got.TTL != 17 ||
		got.Protocol != layers.IPProtocolUDP || !got.SrcIP.Equal(net.IP(ip4A[:])) || !got.DstIP.Equal(net.IP(ip4B[:])) ||
		int(got.Length) != 24+8+len(payload) || len(got.Options) != 1 || got.Options[0].OptionType != 148 {
		t.Errorf("IPv4 %+v", got)
	}
	u := layer[*layers.UDP](t, p, layers.LayerTypeUDP)
	if u.SrcPort != 4242 || u.DstPort != 4343 || int(u.Length) != 8+len(payload) || u.Checksum == 0 || !bytes.Equal(u.Payload, payload) {
		t.Errorf("UDP %+v", u)
	}
}

func TestGopacketReadsTCPOverIPv6(t *testing.T) {
	opts := wire.TCPOptions{
		MSS: 1440, HasWindow: true, WindowShift: 9, SACKPermitted: true, HasTimestamps: true, TSVal: 0x01020304, TSEcr: 0xfffefdfc,
	}
	var optRoom [40]byte
	o, err := opts.Put(optRoom[:])
	if err != nil {
		t.Fatal(err)
	}
	w := newFrame(t)
	w.ethernet(wire.EtherTypeIPv6)
	ip, err := wire.PutIPv6(w.rest(), wire.IPv6Fields{
		TrafficClass: 0xa5, FlowLabel: 0xfedcb, NextHeader: wire.ProtoTCP, HopLimit: 3, Src: ip6A, Dst: ip6B,
		PayloadLen: 20 + len(o) + len(payload),
	})
	put(w, ip, err)
	all := wire.TCPSyn | wire.TCPAck | wire.TCPPsh | wire.TCPUrg | wire.TCPEce | wire.TCPAE
	tcp, err := wire.PutTCP(w.rest(), wire.TCPFields{
		SrcPort: 1, DstPort: 65535, Seq: 0xf0000001, Ack: 0x8fffffff, Flags: all, Window: 0xabcd, Urgent: 99, Options: o,
	})
	put(w, tcp, err)
	data := w.payload(payload)
	tcp.FillChecksum(ip.PseudoSum(wire.ProtoTCP, len(tcp)+len(data)), wire.SumOf(data))

	p := decode(t, w.room[:w.n], layers.LayerTypeEthernet)
	got := layer[*layers.IPv6](t, p, layers.LayerTypeIPv6)
	if got.TrafficClass != 0xa5 || got.FlowLabel != 0xfedcb || got.NextHeader != layers.IPProtocolTCP || got.HopLimit != 3 ||
		!got.SrcIP.Equal(net.IP(ip6A[:])) || !got.DstIP.Equal(net.IP(ip6B[:])) || int(got.Length) != 20+len(o)+len(payload) {
		t.Errorf("IPv6 %+v", got)
	}
	g := layer[*layers.TCP](t, p, layers.LayerTypeTCP)
	if g.SrcPort != 1 || g.DstPort != 65535 || g.Seq != 0xf0000001 || g.Ack != 0x8fffffff || g.Window != 0xabcd || g.Urgent != 99 ||
		!g.SYN || !g.ACK || !g.PSH || !g.URG || !g.ECE || !g.NS || g.FIN || g.RST || g.CWR || !bytes.Equal(g.Payload, payload) {
		t.Errorf("TCP %+v", g)
	}
	var kinds []int
	for _, opt := range g.Options {
		if opt.OptionType != layers.TCPOptionKindNop {
			kinds = append(kinds, int(opt.OptionType))
		}
	}
	if !slices.Equal(kinds, []int{2, 4, 8, 3}) {
		t.Errorf("TCP options %v", g.Options)
	}
}

func TestGopacketReadsARP(t *testing.T) {
	w := newFrame(t)
	w.ethernet(wire.EtherTypeARP)
	p, err := wire.PutARP(w.rest(), wire.ARPFields{Op: wire.ARPRequest, SenderMAC: macA, SenderIP: ip4A, TargetMAC: macB, TargetIP: ip4B})
	put(w, p, err)
	a := layer[*layers.ARP](t, decode(t, w.room[:60], layers.LayerTypeEthernet), layers.LayerTypeARP)
	if a.Operation != 1 || a.AddrType != 1 || a.Protocol != layers.EthernetTypeIPv4 || !bytes.Equal(a.SourceHwAddress, macA[:]) ||
		!bytes.Equal(a.SourceProtAddress, ip4A[:]) || !bytes.Equal(a.DstHwAddress, macB[:]) || !bytes.Equal(a.DstProtAddress, ip4B[:]) {
		t.Errorf("ARP %+v", a)
	}
}

func TestGopacketReadsICMP(t *testing.T) {
	w := newFrame(t)
	w.ethernet(wire.EtherTypeIPv4)
	ip, err := wire.PutIPv4(w.rest(), wire.IPv4Fields{TTL: 1, Proto: wire.ProtoICMP, Src: ip4A, Dst: ip4B, PayloadLen: 8 + len(payload)})
	put(w, ip, err)
	echo, err := wire.PutICMP(w.rest(), wire.ICMPFields{Type: wire.ICMPEcho, Rest: wire.EchoRest(77, 5)})
	put(w, echo, err)
	echo.FillChecksum(wire.SumOf(w.payload(payload)))
	g := layer[*layers.ICMPv4](t, decode(t, w.room[:w.n], layers.LayerTypeEthernet), layers.LayerTypeICMPv4)
	if g.TypeCode != layers.CreateICMPv4TypeCode(8, 0) || g.Id != 77 || g.Seq != 5 || !bytes.Equal(g.Payload, payload) {
		t.Errorf("ICMP %+v", g)
	}
}

func TestGopacketReadsNeighborAdvertisement(t *testing.T) {
	w := newFrame(t)
	w.ethernet(wire.EtherTypeIPv6)
	const n = wire.NeighborLen + wire.NDPLinkAddrLen
	ip, err := wire.PutIPv6(w.rest(), wire.IPv6Fields{NextHeader: wire.ProtoICMPv6, HopLimit: 255, Src: ip6A, Dst: ip6B, PayloadLen: n})
	put(w, ip, err)
	m, err := wire.PutNeighbor(w.rest(), wire.NeighborFields{
		Type: wire.ICMPv6NeighborAdvert, Flags: wire.NeighborSolicited | wire.NeighborOverride, Target: ip6A,
	})
	put(w, m, err)
	opt, err := wire.PutNDPLinkAddr(w.rest(), wire.NDPTargetMAC, macA)
	put(w, opt, err)
	m.ICMPv6().FillChecksum(ip.PseudoSum(wire.ProtoICMPv6, n), wire.SumOf(m[wire.ICMPLen:]).Add(wire.SumOf(opt)))

	g := layer[*layers.ICMPv6NeighborAdvertisement](t, decode(t, w.room[:w.n], layers.LayerTypeEthernet), layers.LayerTypeICMPv6NeighborAdvertisement)
	if !g.TargetAddress.Equal(net.IP(ip6A[:])) || !g.Solicited() || !g.Override() || g.Router() ||
		len(g.Options) != 1 || g.Options[0].Type != layers.ICMPv6OptTargetAddress || !bytes.Equal(g.Options[0].Data, macA[:]) {
		t.Errorf("neighbour advertisement %+v", g)
	}
}

func TestGopacketReadsFragments(t *testing.T) {
	w := newFrame(t)
	ip, err := wire.PutIPv4(w.rest(), wire.IPv4Fields{
		ID: 5, Flags: wire.IPv4MoreFragments, FragOffset: 1480, TTL: 3, Proto: wire.ProtoUDP, Src: ip4A, Dst: ip4B, PayloadLen: 8,
	})
	put(w, ip, err)
	g4 := layer[*layers.IPv4](t, decode(t, w.room[:28], layers.LayerTypeIPv4), layers.LayerTypeIPv4)
	if g4.FragOffset != 185 || g4.Flags != layers.IPv4MoreFragments || g4.Id != 5 {
		t.Errorf("IPv4 %+v", g4)
	}
	w = newFrame(t)
	ip6, err := wire.PutIPv6(w.rest(), wire.IPv6Fields{NextHeader: wire.ProtoFragment, Src: ip6A, Dst: ip6B, PayloadLen: 16})
	put(w, ip6, err)
	fr, err := wire.PutIPv6Fragment(w.rest(), wire.IPv6FragmentFields{NextHeader: wire.ProtoUDP, Offset: 1448, More: true, ID: 0xcafebabe})
	put(w, fr, err)
	g6 := layer[*layers.IPv6Fragment](t, decode(t, w.room[:56], layers.LayerTypeIPv6), layers.LayerTypeIPv6Fragment)
	if g6.FragmentOffset != 181 || !g6.MoreFragments || g6.Identification != 0xcafebabe || g6.NextHeader != layers.IPProtocolUDP {
		t.Errorf("fragment %+v", g6)
	}
	if fr.FragOffset() != 1448 || !fr.MoreFragments() || fr.FragID() != 0xcafebabe || fr.NextHeader() != wire.ProtoUDP || fr[1] != 0 {
		t.Errorf("fragment view % x", fr)
	}
}

func TestViewsReadWhatGopacketWrote(t *testing.T) {
	b := frameNamed(t, "tcp4")
	l, err := wire.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	ip := l.IPv4(b)
	want := wire.IPv4Fields{
		TOS: 0xb8, ID: 0x1234, Flags: wire.IPv4DontFragment, TTL: 64, Proto: wire.ProtoTCP, Src: ip4A, Dst: ip4B,
		Options: []byte{}, PayloadLen: 40 + len(payload),
	}
	if got := ip.Fields(); !equalIPv4(got, want) {
		t.Errorf("IPv4 %+v, want %+v", got, want)
	}
	if !ip.DontFragment() || ip.MoreFragments() || ip.SrcAddr() != netip.AddrFrom4(ip4A) || ip.DstAddr() != netip.AddrFrom4(ip4B) {
		t.Errorf("IPv4 % x", ip)
	}
	tcp := l.TCP(b)
	f := tcp.Fields()
	if f.SrcPort != 33333 || f.DstPort != 80 || f.Seq != 0xdeadbeef || f.Ack != 0x01020304 || f.Window != 65000 || f.Urgent != 7 ||
		f.Flags != wire.TCPSyn|wire.TCPAck|wire.TCPEce || f.Flags.String() != "SAE" || !f.Flags.Has(wire.TCPSyn) || f.Flags.Has(wire.TCPSyn|wire.TCPFin) {
		t.Errorf("TCP %+v", f)
	}
	o, err := wire.ParseTCPOptions(tcp.Options())
	wantOpts := wire.TCPOptions{MSS: 1460, SACKPermitted: true, HasTimestamps: true, TSVal: 258, TSEcr: 772, HasWindow: true, WindowShift: 7}
	if err != nil || o != wantOpts {
		t.Errorf("TCP options %+v, %v", o, err)
	}

	b = frameNamed(t, "udp6")
	if l, err = wire.Parse(b); err != nil {
		t.Fatal(err)
	}
	want6 := wire.IPv6Fields{
		TrafficClass: 0x2e, FlowLabel: 0xabcde, NextHeader: wire.ProtoUDP, HopLimit: 63, Src: ip6A, Dst: ip6B, PayloadLen: 8 + len(payload),
	}
	if got := l.IPv6(b).Fields(); got != want6 {
		t.Errorf("IPv6 %+v, want %+v", got, want6)
	}
	if u := l.UDP(b).Fields(); u.SrcPort != 4242 || u.DstPort != 4243 || u.PayloadLen != len(payload) || u.Checksum == 0 {
		t.Errorf("UDP %+v", u)
	}

	b = frameNamed(t, "arp")
	a, _, err := wire.ParseARP(b[14:])
	if err != nil || a.Fields() != (wire.ARPFields{Op: wire.ARPReply, SenderMAC: macA, TargetMAC: macB, SenderIP: ip4A, TargetIP: ip4B}) {
		t.Errorf("ARP %+v, %v", a, err)
	}
	b = frameNamed(t, "icmp4")
	if h, data, err := wire.ParseICMP(b[34:]); err != nil || h.Type() != wire.ICMPEcho || h.ID() != 77 || h.Seq() != 3 || !bytes.Equal(data, payload) {
		t.Errorf("ICMP % x, %v", h, err)
	}
	b = frameNamed(t, "icmp6")
	if h, data, err := wire.ParseICMPv6(b[54:]); err != nil || h.Type() != wire.ICMPv6Echo || h.ID() != 77 || h.Seq() != 3 || !bytes.Equal(data, payload) {
		t.Errorf("ICMPv6 % x, %v", h, err)
	}
}

func equalIPv4(a, b wire.IPv4Fields) bool {
	if !bytes.Equal(a.Options, b.Options) {
		return false
	}
	a.Options, b.Options = nil, nil
	return a.TOS == b.TOS && a.ID == b.ID && a.Flags == b.Flags && a.FragOffset == b.FragOffset && a.TTL == b.TTL &&
		a.Proto == b.Proto && a.Src == b.Src && a.Dst == b.Dst && a.PayloadLen == b.PayloadLen
}
