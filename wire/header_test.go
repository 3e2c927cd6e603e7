package wire_test

import (
	"errors"
	"slices"
	"testing"

	"bare.wire/wire"
)

// The same header, once built and once set field by field over rubbish, must
// be the same bytes: each setter writes its field, all of it and nothing else.
func TestSettersWriteWhatBuildersWrite(t *testing.T) {
	check := func(name string, built, set []byte) {
		t.Helper()
		if !slices.Equal(built, set) {
			t.Errorf("%s: built % x\n    set % x", name, built, set)
		}
	}
	room := func(n int, v byte) []byte {
		b := make([]byte, n)
		fill(b, v)
		return b
	}
	for _, rubbish := range []byte{0, 0xff} {
		tag, _ := wire.PutVLAN(room(4, 0), wire.VLANFields{TCI: 0x1234, Type: wire.EtherTypeARP})
		tag2 := wire.VLAN(room(4, rubbish))
		tag2.SetTCI(0x1234)
		tag2.SetType(wire.EtherTypeARP)
		check("VLAN", tag, tag2)

		arp, _ := wire.PutARP(room(28, 0), wire.ARPFields{Op: 2, SenderMAC: macA, TargetMAC: macB, SenderIP: ip4A, TargetIP: ip4B})
		arp2, _ := wire.PutARP(room(28, rubbish), wire.ARPFields{})
		arp2.SetOp(wire.ARPReply)
		arp2.SetSenderMAC(macA)
		arp2.SetSenderIP(ip4A)
		arp2.SetTargetMAC(macB)
		arp2.SetTargetIP(ip4B)
		check("ARP", arp, arp2)

		ip, _ := wire.PutIPv4(room(20, 0), wire.IPv4Fields{TOS: 3, ID: 0x1111, TTL: 5, Proto: 6, Src: ip4A, Dst: ip4B, PayloadLen: 1000})
		ip2 := wire.IPv4(room(20, rubbish))
		ip2[0], ip2[6], ip2[7] = 0x45, 0, 0
		ip2.SetTOS(3)
		ip2.SetTotalLen(1020)
		ip2.SetID(0x1111)
		ip2.SetTTL(5)
		ip2.SetProto(wire.ProtoTCP)
		ip2.SetSrc(ip4A)
		ip2.SetDst(ip4B)
		ip2.SetChecksum(0xffff)
		ip2.FillChecksum()
		check("IPv4", ip, ip2)

		six, _ := wire.PutIPv6(room(40, 0), wire.IPv6Fields{TrafficClass: 0xa5, FlowLabel: 0x54321, NextHeader: 6, HopLimit: 9, Src: ip6A, Dst: ip6B, PayloadLen: 77})
		six2, _ := wire.PutIPv6(room(40, 0), wire.IPv6Fields{TrafficClass: rubbish, FlowLabel: uint32(rubbish) * 0x1010})
		six2.SetTrafficClass(0xa5)
		six2.SetFlowLabel(0xfff54321) // 20 bits count
		six2.SetPayloadLen(77)
		six2.SetNextHeader(wire.ProtoTCP)
		six2.SetHopLimit(9)
		six2.SetSrc(ip6A)
		six2.SetDst(ip6B)
		check("IPv6", six, six2)

		tcp, _ := wire.PutTCP(room(24, 0), wire.TCPFields{SrcPort: 1, DstPort: 2, Seq: 3, Ack: 4, Flags: 0xa55, Window: 6, Urgent: 7, Checksum: 8, Options: []byte{1, 1, 1, 0}})
		tcp2, _ := wire.PutTCP(room(24, rubbish), wire.TCPFields{Flags: wire.TCPFlags(rubbish), Options: []byte{1, 1, 1, 0}})
		tcp2.SetSrcPort(1)
		tcp2.SetDstPort(2)
		tcp2.SetSeq(3)
		tcp2.SetAck(4)
		tcp2.SetFlags(0xfa55) // 12 bits count
		tcp2.SetWindow(6)
		tcp2.SetUrgent(7)
		tcp2.SetChecksum(8)
		check("TCP", tcp, tcp2)

		icmp, _ := wire.PutICMP(room(8, 0), wire.ICMPFields{Type: wire.ICMPUnreachable, Code: wire.ICMPFragNeeded, Rest: 1400, Checksum: 9})
		icmp2 := wire.ICMP(room(8, rubbish))
		icmp2.SetType(wire.ICMPUnreachable)
		icmp2.SetCode(wire.ICMPFragNeeded)
		icmp2.SetRest(1400)
		icmp2.SetChecksum(9)
		check("ICMP", icmp, icmp2)
		if icmp.MTU() != 1400 || icmp.Code() != 4 {
			t.Errorf("ICMP MTU %d code %d", icmp.MTU(), icmp.Code())
		}

		icmp6, _ := wire.PutICMPv6(room(8, 0), wire.ICMPv6Fields{Type: wire.ICMPv6PacketTooBig, Code: 1, Rest: 70000, Checksum: 9})
		icmp62 := wire.ICMPv6(room(8, rubbish))
		icmp62.SetType(wire.ICMPv6PacketTooBig)
		icmp62.SetCode(1)
		icmp62.SetRest(70000)
		icmp62.SetChecksum(9)
		check("ICMPv6", icmp6, icmp62)
		if icmp6.MTU() != 70000 || icmp6.Pointer() != 70000 {
			t.Errorf("ICMPv6 MTU %d pointer %d", icmp6.MTU(), icmp6.Pointer())
		}
	}
}

func TestBuildersRefuseWhatDoesNotFit(t *testing.T) {
	room := make([]byte, 100)
	four := func(f wire.IPv4Fields) func() error {
		return func() error { _, err := wire.PutIPv4(room, f); return err }
	}
	six := func(f wire.IPv6Fields) func() error {
		return func() error { _, err := wire.PutIPv6(room, f); return err }
	}
	udp := func(n int) func() error {
		return func() error { _, err := wire.PutUDP(room, wire.UDPFields{PayloadLen: n}); return err }
	}
	tcp := func(f wire.TCPFields) func() error {
		return func() error { _, err := wire.PutTCP(room, f); return err }
	}
	frag := func(offset int) func() error {
		return func() error {
			_, err := wire.PutIPv6Fragment(room, wire.IPv6FragmentFields{Offset: offset})
			return err
		}
	}
	cases := []struct {
		name string
		put  func() error
		want error
	}{
		{"IPv4 payload that just fits", four(wire.IPv4Fields{PayloadLen: 65515}), nil},
		{"IPv4 payload too long", four(wire.IPv4Fields{PayloadLen: 65516}), wire.ErrRange},
		{"IPv4 payload too long for its options", four(wire.IPv4Fields{PayloadLen: 65515, Options: room[:4]}), wire.ErrRange},
		{"IPv4 payload negative", four(wire.IPv4Fields{PayloadLen: -1}), wire.ErrRange},
		{"IPv4 options of 3 bytes", four(wire.IPv4Fields{Options: room[:3]}), wire.ErrRange},
		{"IPv4 options of 44 bytes", four(wire.IPv4Fields{Options: room[:44]}), wire.ErrRange},
		{"IPv4 last fragment offset", four(wire.IPv4Fields{FragOffset: 65528}), nil},
		{"IPv4 offset not a multiple of 8", four(wire.IPv4Fields{FragOffset: 12}), wire.ErrRange},
		{"IPv4 offset too large", four(wire.IPv4Fields{FragOffset: 65536}), wire.ErrRange},
		{"IPv4 offset negative", four(wire.IPv4Fields{FragOffset: -8}), wire.ErrRange},
		{"IPv4 flags of 4 bits", four(wire.IPv4Fields{Flags: 8}), wire.ErrRange},
		{"IPv6 payload that just fits", six(wire.IPv6Fields{PayloadLen: 65535}), nil},
		{"IPv6 payload too long", six(wire.IPv6Fields{PayloadLen: 65536}), wire.ErrRange},
		{"IPv6 payload negative", six(wire.IPv6Fields{PayloadLen: -1}), wire.ErrRange},
		{"IPv6 flow label of 21 bits", six(wire.IPv6Fields{FlowLabel: 1 << 20}), wire.ErrRange},
		{"IPv6 last fragment offset", frag(65528), nil},
		{"IPv6 offset not a multiple of 8", frag(7), wire.ErrRange},
		{"IPv6 offset too large", frag(65536), wire.ErrRange},
		{"IPv6 offset negative", frag(-8), wire.ErrRange},
		{"UDP payload that just fits", udp(65527), nil},
		{"UDP payload too long", udp(65528), wire.ErrRange},
		{"UDP payload negative", udp(-1), wire.ErrRange},
		{"TCP options of 40 bytes", tcp(wire.TCPFields{Options: room[:40]}), nil},
		{"TCP options of 44 bytes", tcp(wire.TCPFields{Options: room[:44]}), wire.ErrRange},
		{"TCP options of 3 bytes", tcp(wire.TCPFields{Options: room[:3]}), wire.ErrRange},
		{"TCP flags of 13 bits", tcp(wire.TCPFields{Flags: 1 << 12}), wire.ErrRange},
		{"router advertisement as neighbour", func() error {
			_, err := wire.PutNeighbor(room, wire.NeighborFields{Type: wire.ICMPv6RouterAdvert})
			return err
		}, wire.ErrRange},
		{"link address option without room", func() error {
			_, err := wire.PutNDPLinkAddr(room[:7], wire.NDPSourceMAC, macA)
			return err
		}, wire.ErrNoRoom},
		{"fragment header without room", func() error {
			_, err := wire.PutIPv6Fragment(room[:7], wire.IPv6FragmentFields{})
			return err
		}, wire.ErrNoRoom},
	}
	for _, c := range cases {
		if err := c.put(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestComputedZeroUDPChecksumIsSentAsOnes(t *testing.T) {
	var room [8]byte
	h, err := wire.PutUDP(room[:], wire.UDPFields{SrcPort: 1, DstPort: 2})
	if err != nil {
		t.Fatal(err)
	}
	pseudo := wire.Sum(0xffff).Sub(wire.SumOf(h)) // brings the sum to 0xffff, so the checksum to 0
	h.FillChecksum(pseudo, 0)
	if h.Checksum() != 0xffff {
		t.Errorf("checksum %#04x", h.Checksum())
	}
	if !h.ChecksumOK(pseudo, 0) {
		t.Error("and it does not verify")
	}
	h.SetChecksum(0)
	if h.ChecksumOK(pseudo, 0) {
		t.Error("a datagram without a checksum verifies")
	}
}

func TestTransportChecksumsVerifyAndNoticeChange(t *testing.T) {
	room := make([]byte, 60)
	data := []byte("odd")
	sum, pseudo := wire.SumOf(data), wire.PseudoIPv4(ip4A, ip4B, 6, 23)
	tcp, _ := wire.PutTCP(room, wire.TCPFields{Seq: 9, Options: []byte{1, 1, 1, 0}, Checksum: 0xabcd})
	tcp.FillChecksum(pseudo, sum)
	echo, _ := wire.PutICMP(room[24:], wire.ICMPFields{Type: 8, Checksum: 0xabcd})
	echo.FillChecksum(sum)
	six, _ := wire.PutICMPv6(room[32:], wire.ICMPv6Fields{Type: 128, Checksum: 0xabcd})
	six.FillChecksum(pseudo, sum)
	udp, _ := wire.PutUDP(room[40:], wire.UDPFields{SrcPort: 7, Checksum: 0xabcd})
	udp.FillChecksum(pseudo, sum)
	good := func() [4]bool {
		return [4]bool{tcp.ChecksumOK(pseudo, sum), echo.ChecksumOK(sum), six.ChecksumOK(pseudo, sum), udp.ChecksumOK(pseudo, sum)}
	}
	if got := good(); got != [4]bool{true, true, true, true} {
		t.Errorf("fresh checksums: %v", got)
	}
	tcp.SetWindow(1)
	echo.SetRest(1)
	six.SetRest(1)
	udp.SetDstPort(1)
	if got := good(); got != [4]bool{} {
		t.Errorf("after a change: %v", got)
	}
}

func TestLastHopIsNotForwarded(t *testing.T) {
	for ttl, want := range map[uint8]bool{0: false, 1: false, 2: true, 255: true} {
		h, err := wire.PutIPv4(make([]byte, 20), wire.IPv4Fields{TTL: ttl, Src: ip4A, Dst: ip4B})
		if err != nil {
			t.Fatal(err)
		}
		before := slices.Clone(h)
		got := h.DecrementTTL()
		if got != want || !h.ChecksumOK() || got && h.TTL() != ttl-1 || !got && !slices.Equal(h, before) {
			t.Errorf("TTL %d: %v, then % x", ttl, got, h)
		}
	}
}

func TestQuotedPacketIsReadAsFarAsItGoes(t *testing.T) {
	for _, name := range []string{"udp4", "udp6"} {
		frame := frameNamed(t, name)
		b := frame[14:]
		head := map[string]int{"udp4": 20, "udp6": 40}[name]
		quote := b[:head+8] // what RFC 792 asks for at least
		var payload []byte
		var err error
		if name == "udp4" {
			if _, _, err = wire.ParseIPv4(quote); !errors.Is(err, wire.ErrTruncated) {
				t.Errorf("%s: cut packet parses as a whole one: %v", name, err)
			}
			_, payload, err = wire.ParseIPv4Quoted(quote)
		} else {
			if _, _, err = wire.ParseIPv6(quote); !errors.Is(err, wire.ErrTruncated) {
				t.Errorf("%s: cut packet parses as a whole one: %v", name, err)
			}
			_, payload, err = wire.ParseIPv6Quoted(quote)
		}
		if err != nil || len(payload) != 8 {
			t.Fatalf("%s: %d bytes, %v", name, len(payload), err)
		}
		if src, dst, err := wire.QuotedPorts(payload); err != nil || src != 4242 || dst != 4243 {
			t.Errorf("%s: ports %d, %d, %v", name, src, dst, err)
		}
	}
}

func TestARPForOtherNetworksIsUnsupported(t *testing.T) {
	good := frameNamed(t, "arp")[14:]
	for at := range 6 { // hardware type, protocol type, lengths
		b := slices.Clone(good)
		b[at]++
		if _, _, err := wire.ParseARP(b); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("byte %d changed: %v", at, err)
		}
	}
}

func TestNeighborOptions(t *testing.T) {
	opts := slices.Concat([]byte{5, 1, 0, 0, 0, 0, 5, 220}, []byte{1, 1, 2, 0, 0, 0, 0, 1}, []byte{3, 4}, make([]byte, 30))
	it := wire.NDPOptions(opts)
	var kinds []wire.NDPOptionKind
	for {
		o, ok := it.Next()
		if !ok {
			break
		}
		kinds = append(kinds, o.Kind)
		if m, ok := o.MAC(); ok != (o.Kind == wire.NDPSourceMAC) || ok && m != macA {
			t.Errorf("option %d: address %v, %v", o.Kind, m, ok)
		}
	}
	if it.Err() != nil || !slices.Equal(kinds, []wire.NDPOptionKind{wire.NDPMTU, wire.NDPSourceMAC, wire.NDPPrefix}) {
		t.Errorf("options %v, %v", kinds, it.Err())
	}
	long := wire.NDPOptions(append([]byte{1, 2}, make([]byte, 14)...))
	if o, ok := long.Next(); !ok {
		t.Error(long.Err())
	} else if _, ok := o.MAC(); ok {
		t.Error("14 bytes pass for an Ethernet address")
	}
	for _, c := range []struct {
		b    []byte
		want error
	}{
		{[]byte{1, 0, 0, 0, 0, 0, 0, 0}, wire.ErrMalformed},
		{[]byte{1, 2, 0, 0, 0, 0, 0, 0}, wire.ErrTruncated},
		{[]byte{1, 1, 0}, wire.ErrTruncated},
	} {
		it := wire.NDPOptions(c.b)
		if _, ok := it.Next(); ok || !errors.Is(it.Err(), c.want) {
			t.Errorf("% x: %v, want %v", c.b, it.Err(), c.want)
		}
	}
	for _, kind := range []byte{133, 134, 137, 0} {
		if _, _, err := wire.ParseNeighbor(append([]byte{kind}, make([]byte, 23)...)); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("type %d: %v", kind, err)
		}
	}
}

func TestMACText(t *testing.T) {
	for _, s := range []string{"02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff", "a0:b1:c2:d3:e4:f5"} {
		if m, err := wire.ParseMAC(s); err != nil || m.String() != s {
			t.Errorf("%q: %v, %v", s, m, err)
		}
	}
	if m, err := wire.ParseMAC("0A-0b-0c-0d-0e-0F"); err != nil || m != (wire.MAC{10, 11, 12, 13, 14, 15}) {
		t.Errorf("dashes: %v, %v", m, err)
	}
	for _, s := range []string{"", "02:00:00:00:00", "02:00:00:00:00:0g", "02:00:00-00:00:01", "02.00.00.00.00.01", "+2:00:00:00:00:01", "02:00:00:00:00:011"} {
		if m, err := wire.ParseMAC(s); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%q: %v, %v", s, m, err)
		}
	}
	if !wire.Broadcast.IsBroadcast() || !wire.Broadcast.IsMulticast() || macA.IsMulticast() || macA.IsBroadcast() || !macA.IsLocal() {
		t.Error("kinds of address")
	}
}

func TestNumbersPrintAsNames(t *testing.T) {
	for got, want := range map[string]string{
		wire.EtherTypeIPv4.String(): "IPv4", wire.EtherTypeQinQ.String(): "QinQ", wire.EtherType(0x1234).String(): "0x1234",
		wire.ProtoUDP.String(): "UDP", wire.ProtoFragment.String(): "fragment", wire.Proto(200).String(): "200",
		wire.Good.String(): "good", wire.Bad.String(): "bad", wire.Unchecked.String(): "unchecked",
		wire.TCPFlags(0x1ff).String(): "FSRPAUECN", wire.TCPFlags(0).String(): ".",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if !wire.ICMPRedirect.IsError() || wire.ICMPEcho.IsError() || !wire.ICMPv6PacketTooBig.IsError() || wire.ICMPv6Echo.IsError() {
		t.Error("ICMP error types")
	}
}
