package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"bare.wire/wire"
)

func TestOffsetsOfEveryKindOfFrame(t *testing.T) {
	type want struct {
		l3, l4, payload, end int
		typ                  wire.EtherType
		proto                wire.Proto
		tags                 uint8
		outer, inner         wire.TCI
	}
	const n = 31 // bytes of payload
	v4, v6 := wire.EtherTypeIPv4, wire.EtherTypeIPv6
	wants := map[string]want{
		"udp4":         {14, 34, 42, 42 + n, v4, wire.ProtoUDP, 0, 0, 0},
		"tcp4":         {14, 34, 74, 74 + n, v4, wire.ProtoTCP, 0, 0, 0},
		"icmp4":        {14, 34, 42, 42 + n, v4, wire.ProtoICMP, 0, 0, 0},
		"udp4-options": {14, 38, 46, 46 + n, v4, wire.ProtoUDP, 0, 0, 0},
		"udp6":         {14, 54, 62, 62 + n, v6, wire.ProtoUDP, 0, 0, 0},
		"tcp6":         {14, 54, 94, 94 + n, v6, wire.ProtoTCP, 0, 0, 0},
		"icmp6":        {14, 54, 62, 62 + n, v6, wire.ProtoICMPv6, 0, 0, 0},
		"vlan-tcp4":    {18, 38, 78, 78 + n, v4, wire.ProtoTCP, 1, wire.MakeTCI(100, 5, false), 0},
		"qinq-udp6":    {22, 62, 70, 70 + n, v6, wire.ProtoUDP, 2, wire.MakeTCI(7, 1, false), wire.MakeTCI(4095, 0, false)},
		"arp":          {14, 14, 14, 60, wire.EtherTypeARP, 0, 0, 0, 0},
		"udp4-padded":  {14, 34, 42, 43, v4, wire.ProtoUDP, 0, 0, 0},
		"ext6":         {14, 94, 134, 134 + n, v6, wire.ProtoTCP, 0, 0, 0},
	}
	for _, f := range goodFrames(t) {
		w, ok := wants[f.name]
		if !ok {
			t.Errorf("%s: no expectation", f.name)
			continue
		}
		l, err := wire.Parse(f.data)
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
			continue
		}
		got := want{l.L3, l.L4, l.Payload, l.End, l.EtherType, l.Proto, l.Tags, l.OuterTag, l.InnerTag}
		if got != w {
			t.Errorf("%s:\n got %+v\nwant %+v", f.name, got, w)
		}
		ip := w.typ != wire.EtherTypeARP
		if l.HasL4() != ip || l.IsFragment() || l.IsIPv4() != (w.typ == v4) || l.IsIPv6() != (w.typ == v6) {
			t.Errorf("%s: HasL4 %v, IsFragment %v, IsIPv4 %v, IsIPv6 %v", f.name, l.HasL4(), l.IsFragment(), l.IsIPv4(), l.IsIPv6())
		}
	}
}

func TestViewsOfLayersAreTheHeaders(t *testing.T) {
	for _, f := range goodFrames(t) {
		l, err := wire.Parse(f.data)
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		has := map[wire.Proto]bool{
			wire.ProtoTCP: l.TCP(f.data) != nil, wire.ProtoUDP: l.UDP(f.data) != nil,
			wire.ProtoICMP: l.ICMP(f.data) != nil, wire.ProtoICMPv6: l.ICMPv6(f.data) != nil,
		}
		for p, there := range has {
			if there != (l.HasL4() && l.Proto == p) {
				t.Errorf("%s: view of %v: %v", f.name, p, there)
			}
		}
		src, dst := l.Addrs(f.data)
		wantSrc, wantDst := netip.Addr{}, netip.Addr{}
		switch {
		case l.IsIPv4():
			wantSrc, wantDst = netip.AddrFrom4(ip4A), netip.AddrFrom4(ip4B)
		case l.IsIPv6():
			wantSrc, wantDst = netip.AddrFrom16(ip6A), netip.AddrFrom16(ip6B)
		}
		if src != wantSrc || dst != wantDst {
			t.Errorf("%s: addresses %v, %v", f.name, src, dst)
		}
		sp, dp, ok := l.Ports(f.data)
		switch {
		case l.Proto == wire.ProtoTCP && (!ok || sp != 33333 || dp != 80),
			l.Proto == wire.ProtoUDP && (!ok || sp != 4242 || dp != 4243),
			l.Proto != wire.ProtoTCP && l.Proto != wire.ProtoUDP && ok:
			t.Errorf("%s: ports %d, %d, %v", f.name, sp, dp, ok)
		}
		if e := l.Ethernet(f.data); e.Src() != macA || e.Dst() != macB {
			t.Errorf("%s: Ethernet %+v", f.name, e.Fields())
		}
	}
}

func TestChecksumVerdicts(t *testing.T) {
	for _, f := range goodFrames(t) {
		l, err := wire.Parse(f.data)
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		l3, l4 := wire.Good, wire.Good
		if !l.IsIPv4() {
			l3 = wire.Unchecked
		}
		if !l.HasL4() {
			l4 = wire.Unchecked
		}
		if got := l.CheckL3(f.data); got != l3 {
			t.Errorf("%s: L3 %v, want %v", f.name, got, l3)
		}
		if got := l.CheckL4(f.data); got != l4 {
			t.Errorf("%s: L4 %v, want %v", f.name, got, l4)
		}
		// Any single bit that flips under a checksum is seen by it.
		for at := l.L4; l.HasL4() && at < l.End; at++ {
			bad := bytes.Clone(f.data)
			bad[at] ^= 0x10
			if lb, err := wire.Parse(bad); err == nil && lb.CheckL4(bad) == wire.Good {
				t.Errorf("%s: a flipped bit in byte %d went unseen", f.name, at)
			}
		}
		if l.IsIPv4() {
			bad := bytes.Clone(f.data)
			bad[l.L3+8] ^= 1
			if got := l.CheckL3(bad); got != wire.Bad {
				t.Errorf("%s: L3 %v after a flipped TTL bit", f.name, got)
			}
		}
	}
}

func frameNamed(t testing.TB, name string) []byte {
	t.Helper()
	for _, f := range goodFrames(t) {
		if f.name == name {
			return bytes.Clone(f.data)
		}
	}
	t.Fatalf("no frame %q", name)
	return nil
}

func TestUDPWithoutChecksumIsFineInIPv4AndBadInIPv6(t *testing.T) {
	for name, want := range map[string]wire.Verdict{"udp4": wire.Unchecked, "udp6": wire.Bad} {
		b := frameNamed(t, name)
		l, err := wire.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		l.UDP(b).SetChecksum(0)
		if got := l.CheckL4(b); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestIPv4Fragments(t *testing.T) {
	cases := []struct {
		name          string
		flags, offset uint16
		fragment, l4  bool
	}{
		{"whole", 0, 0, false, true},
		{"don't fragment", 2, 0, false, true},
		{"first", 1, 0, true, true},
		{"middle", 1, 100, true, false},
		{"last", 0, 100, true, false},
	}
	for _, c := range cases {
		b := frameNamed(t, "udp4")
		binary.BigEndian.PutUint16(b[20:], c.flags<<13|c.offset)
		if c.fragment { // a first fragment's datagram is longer than the fragment
			binary.BigEndian.PutUint16(b[38:], 4000)
		}
		wire.IPv4(b[14:34]).FillChecksum()
		l, err := wire.Parse(b)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if l.IsFragment() != c.fragment || l.HasL4() != c.l4 || l.L4 != 34 {
			t.Errorf("%s: IsFragment %v HasL4 %v L4 %d", c.name, l.IsFragment(), l.HasL4(), l.L4)
		}
		if got := l.CheckL4(b); c.fragment && got != wire.Unchecked {
			t.Errorf("%s: checksum over a fragment is %v, want unchecked", c.name, got)
		}
		if h := l.IPv4(b); h.FragOffset() != 8*int(c.offset) || h.IsFragment() != c.fragment {
			t.Errorf("%s: offset %d IsFragment %v", c.name, h.FragOffset(), h.IsFragment())
		}
	}
}

// ipv6With returns an Ethernet frame with IPv6, the given extension bytes and a
// UDP header.
func ipv6With(t testing.TB, next wire.Proto, ext []byte) []byte {
	t.Helper()
	b := make([]byte, wire.EthernetLen+wire.IPv6Len, 200)
	if _, err := wire.PutEthernet(b, wire.EthernetFields{Type: wire.EtherTypeIPv6}); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.PutIPv6(b[14:], wire.IPv6Fields{NextHeader: next, HopLimit: 9, Src: ip6A, Dst: ip6B, PayloadLen: len(ext) + 8}); err != nil {
		t.Fatal(err)
	}
	return append(append(b, ext...), 0, 1, 0, 2, 0, 8, 0, 0)
}

func TestIPv6ExtensionHeaders(t *testing.T) {
	frag := func(next byte, offset uint16, more byte) []byte {
		return []byte{next, 99, byte(offset >> 8), byte(offset) | more, 0, 0, 0, 7}
	}
	opts := func(next byte) []byte { return []byte{next, 0, 1, 4, 0, 0, 0, 0} }
	many := func(n int) []byte {
		var b []byte
		for i := range n {
			next := byte(60)
			if i == n-1 {
				next = 17
			}
			b = append(b, opts(next)...)
		}
		return b
	}
	cases := []struct {
		name     string
		next     wire.Proto
		ext      []byte
		proto    wire.Proto
		l4       int // offset behind the extensions; 0: all of them
		hasL4    bool
		fragment bool
		err      error
	}{
		{"none", 17, nil, 17, 0, true, false, nil},
		{"hop-by-hop", 0, opts(17), 17, 0, true, false, nil},
		{"routing", 43, opts(17), 17, 0, true, false, nil},
		{"authentication", 51, append([]byte{17, 4}, make([]byte, 22)...), 17, 0, true, false, nil},
		{"mobility", 135, opts(17), 17, 0, true, false, nil},
		{"longer one", 60, append([]byte{17, 1}, make([]byte, 14)...), 17, 0, true, false, nil},
		{"atomic fragment", 44, frag(17, 0, 0), 17, 0, true, false, nil},
		{"first fragment", 44, frag(17, 0, 1), 17, 0, true, true, nil},
		{"first fragment with options whose end looks like an offset", 44, append(frag(60, 0, 1), 17, 0, 1, 4, 0xff, 0xff, 0xff, 0xff), 17, 0, true, true, nil},
		{"later fragment", 44, frag(17, 1480, 1), 17, 0, false, true, nil},
		{"later fragment before an extension", 44, append(frag(60, 1480, 0), opts(17)...), 60, 54 + 8, false, true, nil},
		{"no next header", 59, nil, 59, 0, false, false, nil},
		{"encrypted", 50, nil, 50, 0, false, false, nil},
		{"ICMP for IPv4", 1, nil, 1, 0, false, false, nil},
		{"eight", 60, many(8), 17, 0, true, false, nil},
		{"nine", 60, many(9), 60, 54 + 64, false, false, wire.ErrTooDeep},
		{"hop-by-hop later", 60, append(opts(0), opts(17)...), 0, 54 + 8, false, false, wire.ErrMalformed},
		{"length past the packet", 60, []byte{17, 200, 0, 0, 0, 0, 0, 0}, 60, 54, false, false, wire.ErrTruncated},
		{"first fragment without its headers", 44, append(frag(60, 0, 1), 17, 200, 0, 0, 0, 0, 0, 0), 60, 54 + 8, false, true, wire.ErrTruncated},
	}
	for _, c := range cases {
		b := ipv6With(t, c.next, c.ext)
		l, err := wire.Parse(b)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.err)
		}
		if c.l4 == 0 {
			c.l4 = 54 + len(c.ext)
		}
		if l.Proto != c.proto || l.L4 != c.l4 || l.HasL4() != c.hasL4 || l.IsFragment() != c.fragment {
			t.Errorf("%s: proto %v L4 %d HasL4 %v fragment %v", c.name, l.Proto, l.L4, l.HasL4(), l.IsFragment())
		}
	}
}

func TestFirstFragmentWithoutItsHeadersSaysSo(t *testing.T) {
	_, err := wire.Parse(ipv6With(t, wire.ProtoFragment, []byte{60, 0, 0, 1, 0, 0, 0, 7, 17, 200, 0, 0, 0, 0, 0, 0}))
	if err == nil || !strings.Contains(err.Error(), "first fragment") {
		t.Errorf("error %v", err)
	}
}

func TestICMPv6InIPv4IsNoHeader(t *testing.T) {
	b := frameNamed(t, "icmp4")
	b[23] = byte(wire.ProtoICMPv6)
	l, err := wire.Parse(b)
	if err != nil || l.HasL4() || l.ICMPv6(b) != nil || l.Payload != l.L4 {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestRoutedPacketChecksumIsUnknown(t *testing.T) {
	b := ipv6With(t, wire.ProtoRouting, []byte{17, 0, 4, 1, 0, 0, 0, 0})
	l, err := wire.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	l.UDP(b).SetChecksum(0x1234)
	if got := l.CheckL4(b); got != wire.Unchecked {
		t.Errorf("segments left: %v, want unchecked", got)
	}
}

func TestBrokenFrames(t *testing.T) {
	edit := func(name string, f func(b []byte) []byte) []byte { return f(frameNamed(t, name)) }
	set := func(at int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte {
			copy(b[at:], v)
			return b
		}
	}
	cut := func(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:n] } }
	cases := []struct {
		name  string
		frame []byte
		err   error
		v4    bool // the IP header is good all the same
	}{
		{"empty", nil, wire.ErrTruncated, false},
		{"13 bytes", edit("udp4", cut(13)), wire.ErrTruncated, false},
		{"tag cut", edit("vlan-tcp4", cut(17)), wire.ErrTruncated, false},
		{"IPv4 cut in its header", edit("udp4", cut(33)), wire.ErrTruncated, false},
		{"IPv4 cut in its options", edit("udp4-options", cut(36)), wire.ErrTruncated, false},
		{"IPv4 cut behind its header", edit("udp4", cut(34)), wire.ErrTruncated, true},
		{"IPv4 version 6", edit("udp4", set(14, 0x65)), wire.ErrMalformed, false},
		{"IPv4 header of 16 bytes", edit("udp4", set(14, 0x44)), wire.ErrMalformed, false},
		{"IPv4 total length 19", edit("udp4", set(16, 0, 19)), wire.ErrMalformed, false},
		{"IPv4 total length over the frame", edit("udp4", set(16, 0x10, 0)), wire.ErrTruncated, true},
		{"IPv6 version 4", edit("udp6", set(14, 0x40)), wire.ErrMalformed, false},
		{"IPv6 cut", edit("udp6", cut(53)), wire.ErrTruncated, false},
		{"IPv6 payload over the frame", edit("udp6", set(18, 0x10, 0)), wire.ErrTruncated, false},
		{"UDP length 7", edit("udp4", set(38, 0, 7)), wire.ErrMalformed, true},
		{"UDP length over the packet", edit("udp4", set(38, 0, 40)), wire.ErrTruncated, true},
		{"UDP header over the packet", edit("udp4", set(16, 0, 27)), wire.ErrTruncated, true},
		{"TCP header of 16 bytes", edit("tcp4", set(46, 0x40)), wire.ErrMalformed, true},
		{"TCP options over the packet", edit("tcp4", set(16, 0, 50)), wire.ErrTruncated, true},
		{"TCP header over the packet", edit("tcp4", set(16, 0, 39)), wire.ErrTruncated, true},
		{"ICMP of 7 bytes", edit("icmp4", set(16, 0, 27)), wire.ErrTruncated, true},
		{"ICMPv6 of 7 bytes", edit("icmp6", set(18, 0, 7)), wire.ErrTruncated, false},
	}
	for _, c := range cases {
		l, err := wire.Parse(c.frame)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.err)
		}
		if l.HasL4() || l.IsIPv4() != c.v4 {
			t.Errorf("%s: HasL4 %v IsIPv4 %v", c.name, l.HasL4(), l.IsIPv4())
		}
		if got := l.CheckL4(c.frame); got != wire.Unchecked {
			t.Errorf("%s: verdict %v without a transport header", c.name, got)
		}
	}
}

func TestLengthFieldEndsAnLLCFrame(t *testing.T) {
	b := make([]byte, 60)
	b[13] = 38
	l, err := wire.Parse(b)
	if err != nil || !l.EtherType.IsLength() || l.End != 52 {
		t.Errorf("length 38: end %d, error %v", l.End, err)
	}
	b[13] = 200
	if l, err = wire.Parse(b); err != nil || l.End != 60 {
		t.Errorf("length 200 in 46: end %d, error %v", l.End, err)
	}
}

func TestThirdTagIsNotPassed(t *testing.T) {
	b := make([]byte, 60)
	for at := 12; at < 24; at += 4 {
		copy(b[at:], []byte{0x81, 0, 0, byte(at)})
	}
	l, err := wire.Parse(b)
	if err != nil || l.Tags != 2 || l.EtherType != wire.EtherTypeVLAN || l.L3 != 22 {
		t.Errorf("tags %d type %v L3 %d error %v", l.Tags, l.EtherType, l.L3, err)
	}
}

func TestUDPShorterThanItsPacketEndsThePayload(t *testing.T) {
	b := frameNamed(t, "udp4")
	binary.BigEndian.PutUint16(b[38:], 8+10)
	l, err := wire.Parse(b)
	if err != nil || l.End != 42+10 {
		t.Fatalf("end %d, error %v", l.End, err)
	}
	l.UDP(b).FillChecksum(l.PseudoSum(b), wire.SumOf(b[l.Payload:l.End]))
	if got := l.CheckL4(b); got != wire.Good {
		t.Errorf("verdict %v over the datagram alone", got)
	}
}

func TestHeadersInTheFirstSegmentAreEnough(t *testing.T) {
	for _, f := range goodFrames(t) {
		whole, err := wire.Parse(f.data)
		if err != nil {
			t.Fatal(err)
		}
		for n := range f.data {
			l, err := wire.ParseHead(f.data[:n], len(f.data))
			if n < whole.Payload {
				if err == nil {
					t.Errorf("%s: %d bytes of head: no error", f.name, n)
				}
				continue
			}
			if err != nil || l != whole {
				t.Errorf("%s: %d bytes of head: %+v, %v; want %+v", f.name, n, l, err, whole)
			}
		}
	}
}

// gopacket and Parse must agree on real frames about what is where.
func TestParseAgreesWithGopacket(t *testing.T) {
	for _, f := range goodFrames(t) {
		l, err := wire.Parse(f.data)
		if err != nil {
			t.Fatal(err)
		}
		p := gopacket.NewPacket(f.data, layers.LayerTypeEthernet, gopacket.NoCopy)
		if p.ErrorLayer() != nil {
			t.Fatalf("%s: gopacket: %v", f.name, p.ErrorLayer().Error())
		}
		if tl := p.TransportLayer(); tl != nil {
			if !bytes.Equal(tl.LayerContents(), f.data[l.L4:l.Payload]) {
				t.Errorf("%s: transport header differs", f.name)
			}
			if !bytes.Equal(tl.LayerPayload(), f.data[l.Payload:l.End]) {
				t.Errorf("%s: payload differs", f.name)
			}
		}
	}
}

// Every byte of a plain frame changed to a few values: the short way through
// ParseHead must decide as the long one does.
func TestShortWayDecidesLikeTheLongOne(t *testing.T) {
	for _, f := range goodFrames(t) {
		for at := range min(len(f.data), 60) {
			for _, v := range []byte{0, 1, 7, 8, 0x20, 0x40, 0x44, 0x50, 0xf0, 0xff} {
				b := bytes.Clone(f.data)
				b[at] = v
				for _, n := range []int{len(b), 54, 53, 42, 34} {
					l, err := wire.ParseHead(b[:n], len(b))
					if want, wantErr := wire.ParseAny(b[:n], len(b)); l != want || err != wantErr {
						t.Fatalf("%s, byte %d = %#02x, head of %d: %+v (%v), want %+v (%v)", f.name, at, v, n, l, err, want, wantErr)
					}
				}
			}
		}
	}
}
