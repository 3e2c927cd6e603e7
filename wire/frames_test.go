package wire_test

import (
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"bare.wire/wire"
)

var (
	macA = wire.MAC{2, 0, 0, 0, 0, 1}
	macB = wire.MAC{2, 0, 0, 0, 0, 2}
	ip4A = [4]byte{10, 0, 0, 1}
	ip4B = [4]byte{192, 168, 1, 2}
	ip6A = [16]byte{0x20, 1, 0xd, 0xb8, 15: 1}
	ip6B = [16]byte{0x20, 1, 0xd, 0xb8, 0xff, 0xee, 15: 2}
)

// testFrame is one that gopacket made, with checksums and lengths filled in.
type testFrame struct {
	name string
	data []byte
}

// serialize lets gopacket write the layers. An L4 layer takes its pseudo-header
// from the IP layer before it.
func serialize(tb testing.TB, ls ...gopacket.SerializableLayer) []byte {
	tb.Helper()
	var network gopacket.NetworkLayer
	for _, l := range ls {
		if n, ok := l.(gopacket.NetworkLayer); ok {
			network = n
		}
		if c, ok := l.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok && network != nil {
			if err := c.SetNetworkLayerForChecksum(network); err != nil {
				tb.Fatal(err)
			}
		}
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func gpEth(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{DstMAC: macB[:], SrcMAC: macA[:], EthernetType: t}
}

func gpTag(id uint16, pcp uint8, t layers.EthernetType) *layers.Dot1Q {
	return &layers.Dot1Q{VLANIdentifier: id, Priority: pcp, Type: t}
}

func gpIP4(p layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{
		Version: 4, TTL: 64, TOS: 0xb8, Id: 0x1234, Flags: layers.IPv4DontFragment,
		Protocol: p, SrcIP: net.IP(ip4A[:]), DstIP: net.IP(ip4B[:]),
	}
}

func gpIP6(p layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{
		Version: 6, TrafficClass: 0x2e, FlowLabel: 0xabcde, HopLimit: 63,
		NextHeader: p, SrcIP: net.IP(ip6A[:]), DstIP: net.IP(ip6B[:]),
	}
}

func gpUDP() *layers.UDP { return &layers.UDP{SrcPort: 4242, DstPort: 4243} }

func gpTCP() *layers.TCP {
	return &layers.TCP{
		SrcPort: 33333, DstPort: 80, Seq: 0xdeadbeef, Ack: 0x01020304, SYN: true, ACK: true, ECE: true,
		Window: 65000, Urgent: 7,
		Options: []layers.TCPOption{
			{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 0xb4}},
			{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2},
			{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: []byte{0, 0, 1, 2, 0, 0, 3, 4}},
			{OptionType: layers.TCPOptionKindNop},
			{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{7}},
		},
	}
}

var payload = gopacket.Payload("an odd number of payload bytes!")

// goodFrames are frames without a fault, one of each kind.
func goodFrames(tb testing.TB) []testFrame {
	ip4opt := gpIP4(layers.IPProtocolUDP)
	ip4opt.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}} // router alert
	echo4 := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 77, Seq: 3}
	echo6 := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)}
	arp := &layers.ARP{
		AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: 2,
		SourceHwAddress: macA[:], SourceProtAddress: ip4A[:], DstHwAddress: macB[:], DstProtAddress: ip4B[:],
	}
	frames := []testFrame{
		{"udp4", serialize(tb, gpEth(layers.EthernetTypeIPv4), gpIP4(layers.IPProtocolUDP), gpUDP(), payload)},
		{"tcp4", serialize(tb, gpEth(layers.EthernetTypeIPv4), gpIP4(layers.IPProtocolTCP), gpTCP(), payload)},
		{"icmp4", serialize(tb, gpEth(layers.EthernetTypeIPv4), gpIP4(layers.IPProtocolICMPv4), echo4, payload)},
		{"udp4-options", serialize(tb, gpEth(layers.EthernetTypeIPv4), ip4opt, gpUDP(), payload)},
		{"udp6", serialize(tb, gpEth(layers.EthernetTypeIPv6), gpIP6(layers.IPProtocolUDP), gpUDP(), payload)},
		{"tcp6", serialize(tb, gpEth(layers.EthernetTypeIPv6), gpIP6(layers.IPProtocolTCP), gpTCP(), payload)},
		{"icmp6", serialize(tb, gpEth(layers.EthernetTypeIPv6), gpIP6(layers.IPProtocolICMPv6), echo6, &layers.ICMPv6Echo{Identifier: 77, SeqNumber: 3}, payload)},
		{"vlan-tcp4", serialize(tb, gpEth(layers.EthernetTypeDot1Q), gpTag(100, 5, layers.EthernetTypeIPv4), gpIP4(layers.IPProtocolTCP), gpTCP(), payload)},
		{"qinq-udp6", serialize(tb, gpEth(layers.EthernetTypeQinQ), gpTag(7, 1, layers.EthernetTypeDot1Q), gpTag(4095, 0, layers.EthernetTypeIPv6), gpIP6(layers.IPProtocolUDP), gpUDP(), payload)},
		{"arp", serialize(tb, gpEth(layers.EthernetTypeARP), arp)},
	}
	padded := make([]byte, 60)
	copy(padded, serialize(tb, gpEth(layers.EthernetTypeIPv4), gpIP4(layers.IPProtocolUDP), gpUDP(), gopacket.Payload("x")))
	return append(frames, testFrame{"udp4-padded", padded}, testFrame{"ext6", extensions6(tb)})
}

// extensions6 is TCP behind hop-by-hop, routing (no segments left), atomic
// fragment and destination option headers.
func extensions6(tb testing.TB) []byte {
	tcp := gpTCP()
	ip := gpIP6(layers.IPProtocolTCP)
	plain := serialize(tb, ip, tcp, payload)
	ext := []byte{
		43, 0, 1, 4, 0, 0, 0, 0, // hop-by-hop: PadN
		44, 0, 0, 0, 0, 0, 0, 0, // routing: nothing left
		60, 0, 0, 0, 0, 0, 0, 9, // fragment: offset 0, no more
		6, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // destination options: PadN
	}
	return serialize(tb, gpEth(layers.EthernetTypeIPv6), gpIP6(layers.IPProtocolIPv6HopByHop), gopacket.Payload(append(ext, plain[40:]...)))
}

// putUDP4 writes a whole UDP frame with the given payload length into room and
// returns its length.
func putUDP4(room []byte, n int) (int, error) {
	eth, err := wire.PutEthernet(room, wire.EthernetFields{Dst: macB, Src: macA, Type: wire.EtherTypeIPv4})
	if err != nil {
		return 0, err
	}
	at := len(eth)
	ip, err := wire.PutIPv4(room[at:], wire.IPv4Fields{TTL: 64, Proto: wire.ProtoUDP, Src: ip4A, Dst: ip4B, PayloadLen: wire.UDPLen + n})
	if err != nil {
		return 0, err
	}
	at += len(ip)
	udp, err := wire.PutUDP(room[at:], wire.UDPFields{SrcPort: 1, DstPort: 2, PayloadLen: n})
	if err != nil {
		return 0, err
	}
	at += len(udp)
	udp.FillChecksum(ip.PseudoSum(wire.UDPLen+n), wire.SumOf(room[at:at+n]))
	return at + n, nil
}
