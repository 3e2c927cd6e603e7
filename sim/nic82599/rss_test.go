package nic82599

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"testing"

	"bare.wire/ixgbe/reg"
)

// microsoftKey and microsoftVectors are those of "Verifying the RSS Hash Calculation" in Microsoft's driver documentation.
var microsoftKey, _ = hex.DecodeString("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")

var microsoftVectors = []struct {
	src, dst string
	ip, tcp  uint32
}{
	{"66.9.149.187:2794", "161.142.100.80:1766", 0x323e8fc2, 0x51ccc178},
	{"199.92.111.2:14230", "65.69.140.83:4739", 0xd718262a, 0xc626b0ea},
	{"24.19.198.95:12898", "12.22.207.184:38024", 0xd2d0a5de, 0x5c2b394a},
	{"38.27.205.30:48228", "209.142.163.6:2217", 0x82989176, 0xafc7327f},
	{"153.39.163.191:44251", "202.188.127.2:1303", 0x5d1809c5, 0x10e828a2},
	{"[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", 0x2cc18cd5, 0x40207d3d},
	{"[3ffe:501:8::260:97ff:fe40:efab]:14230", "[ff02::1]:4739", 0x0f0c461c, 0xdde51bbf},
	{"[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251", "[fe80::200:f8ff:fe21:67cf]:38024", 0x4b61e985, 0x02d1feef},
}

// ipFrame is a frame with an IP packet of protocol proto and right checksums.
func ipFrame(src, dst netip.AddrPort, proto byte, payload int) []byte {
	f := append([]byte{}, macB[:]...)
	f = append(f, 2, 0, 0, 0, 0, 0xEE)
	l4len := map[byte]int{protoTCP: 20, protoUDP: 8}[proto] + payload
	var pseudo []byte
	if src.Addr().Is4() {
		f = append(f, 8, 0)
		ip := make([]byte, 20)
		ip[0], ip[8], ip[9] = 0x45, 64, proto
		binary.BigEndian.PutUint16(ip[2:], uint16(20+l4len))
		copy(ip[12:], src.Addr().AsSlice())
		copy(ip[16:], dst.Addr().AsSlice())
		binary.BigEndian.PutUint16(ip[10:], ^slowSum(ip))
		f = append(f, ip...)
		pseudo = append(pseudo, ip[12:20]...)
	} else {
		f = append(f, 0x86, 0xDD)
		ip := make([]byte, 40)
		ip[0], ip[6], ip[7] = 0x60, proto, 64
		binary.BigEndian.PutUint16(ip[4:], uint16(l4len))
		copy(ip[8:], src.Addr().AsSlice())
		copy(ip[24:], dst.Addr().AsSlice())
		f = append(f, ip...)
		pseudo = append(pseudo, ip[8:40]...)
	}
	l4 := make([]byte, l4len)
	binary.BigEndian.PutUint16(l4, src.Port())
	binary.BigEndian.PutUint16(l4[2:], dst.Port())
	for i := l4len - payload; i < l4len; i++ {
		l4[i] = byte(i * 7)
	}
	at := 16
	if proto == protoUDP {
		binary.BigEndian.PutUint16(l4[4:], uint16(l4len))
		at = 6
	} else {
		l4[12] = 5 << 4
	}
	pseudo = append(pseudo, 0, proto, byte(l4len>>8), byte(l4len))
	binary.BigEndian.PutUint16(l4[at:], ^slowSum(append(pseudo, l4...)))
	return append(f, l4...)
}

// slowSum is RFC 1071 by the letter.
func slowSum(b []byte) uint16 {
	var s uint32
	for i, x := range b {
		s += uint32(x) << (8 * uint(1-i%2))
		s = s>>16 + s&0xFFFF
	}
	return uint16(s)
}

func TestToeplitzMatchesMicrosoftsVectors(t *testing.T) {
	r := newRig(t, 4, miniOptions{queues: 16, key: microsoftKey, promisc: true}, nil)
	r.start()
	for _, v := range microsoftVectors {
		src, dst := netip.MustParseAddrPort(v.src), netip.MustParseAddrPort(v.dst)
		is4 := src.Addr().Is4()
		check := func(what string, proto byte, hash uint32, typ rssType) {
			t.Helper()
			f := ipFrame(src, dst, proto, 30)
			r.a.send(0, f, 0, true)
			w0, w1 := r.b.expect(int(hash&127)%16, f)
			if uint32(w0>>32) != hash || rssType(w0&15) != typ {
				t.Errorf("%s %s to %s: hash %08X type %d, want %08X type %d", what, v.src, v.dst, w0>>32, w0&15, hash, typ)
			}
			if w1&(reg.RXD_L4E|reg.RXD_IPE) != 0 {
				t.Errorf("%s: a good checksum is called bad: %016X", what, w1)
			}
		}
		tcp, ip := rssTCP4, rssIP4
		if !is4 {
			tcp, ip = rssTCP6, rssIP6
		}
		check("TCP", protoTCP, v.tcp, tcp)
		old := r.b.rd(reg.MRQC)
		r.b.wr(reg.MRQC, old&^(reg.MRQC_RSS_TCP4|reg.MRQC_RSS_TCP6))
		check("IP", protoTCP, v.ip, ip)
		r.b.wr(reg.MRQC, old)
	}
	r.clean()
}

func TestChecksumStatusOfReceivedPackets(t *testing.T) {
	r := newRig(t, 4, miniOptions{promisc: true}, nil)
	r.start()
	a4, b4 := netip.MustParseAddrPort("10.0.0.1:1000"), netip.MustParseAddrPort("10.0.0.2:2000")
	a6, b6 := netip.MustParseAddrPort("[2001:db8::1]:1000"), netip.MustParseAddrPort("[2001:db8::2]:2000")
	bend := func(f []byte, at int) []byte {
		f[at] ^= 0x40
		return f
	}
	fragment := ipFrame(a4, b4, protoUDP, 40)
	fragment[20] = 0x20 // more fragments
	fragment[24] -= 0x20
	trailer := ipFrame(a4, b4, protoUDP, 40)
	trailer[39] -= 2 // UDP ends 2 bytes before IP does
	binary.BigEndian.PutUint16(trailer[40:], 0)
	trailer[40], trailer[41] = udpSum(trailer, 46)
	options := ipFrame(a4, b4, protoTCP, 24) // the last 24 bytes become options and nothing
	options = append(append(append([]byte{}, options[:34]...), 1, 1, 1, 0), options[34:]...)
	options[14], options[17] = 0x46, options[17]+4
	options[24], options[25] = 0, 0
	hs := ^slowSum(options[14:38])
	options[24], options[25] = byte(hs>>8), byte(hs)
	hop := ipFrame(a6, b6, protoTCP, 11)
	hop = append(append(append([]byte{}, hop[:54]...), protoTCP, 0, 1, 4, 0, 0, 0, 0), hop[54:]...)
	hop[19], hop[20] = hop[19]+8, 0
	fragment6 := append([]byte{}, hop...)
	fragment6[20] = 44
	noSum := ipFrame(a4, b4, protoUDP, 40)
	noSum[40], noSum[41] = 0, 0
	for _, c := range []struct {
		name            string
		frame           []byte
		set, clear, typ uint64
	}{
		{"TCP over IPv4", ipFrame(a4, b4, protoTCP, 33), reg.RXD_IPCS | reg.RXD_L4CS, reg.RXD_IPE | reg.RXD_L4E, reg.RXD_PT_IPV4 | reg.RXD_PT_TCP},
		{"UDP over IPv4", ipFrame(a4, b4, protoUDP, 33), reg.RXD_IPCS | reg.RXD_L4CS | reg.RXD_UDPV, reg.RXD_IPE | reg.RXD_L4E, reg.RXD_PT_IPV4 | reg.RXD_PT_UDP},
		{"TCP over IPv6", ipFrame(a6, b6, protoTCP, 0), reg.RXD_L4CS, reg.RXD_IPCS | reg.RXD_L4E, reg.RXD_PT_IPV6 | reg.RXD_PT_TCP},
		{"UDP over IPv6", ipFrame(a6, b6, protoUDP, 1001), reg.RXD_L4CS, reg.RXD_IPCS | reg.RXD_L4E, reg.RXD_PT_IPV6 | reg.RXD_PT_UDP},
		{"bad IPv4 header", bend(ipFrame(a4, b4, protoTCP, 33), 22), reg.RXD_IPCS | reg.RXD_IPE, reg.RXD_L4E, reg.RXD_PT_IPV4 | reg.RXD_PT_TCP},
		{"bad TCP payload", bend(ipFrame(a4, b4, protoTCP, 33), 60), reg.RXD_IPCS | reg.RXD_L4CS | reg.RXD_L4E, reg.RXD_IPE, reg.RXD_PT_IPV4 | reg.RXD_PT_TCP},
		{"UDP without a checksum", noSum, reg.RXD_L4E, reg.RXD_UDPV, reg.RXD_PT_IPV4 | reg.RXD_PT_UDP},
		{"IPv4 with options", options, reg.RXD_IPCS | reg.RXD_L4CS, reg.RXD_IPE | reg.RXD_L4E, reg.RXD_PT_IPV4 | reg.RXD_PT_IPV4_OPTS | reg.RXD_PT_TCP},
		{"IPv6 with extension", hop, reg.RXD_L4CS, reg.RXD_L4E, reg.RXD_PT_IPV6 | reg.RXD_PT_IPV6_EXT | reg.RXD_PT_TCP},
		{"IPv6 fragment", fragment6, 0, reg.RXD_L4CS | reg.RXD_L4E, reg.RXD_PT_IPV6 | reg.RXD_PT_IPV6_EXT},
		{"first fragment", fragment, reg.RXD_IPCS, reg.RXD_L4CS | reg.RXD_IPE | reg.RXD_L4E, reg.RXD_PT_IPV4},
		{"UDP shorter than IP", trailer, reg.RXD_IPCS | reg.RXD_L4CS | reg.RXD_UDPV, reg.RXD_IPE | reg.RXD_L4E, reg.RXD_PT_IPV4 | reg.RXD_PT_UDP},
		{"no IP", frameTo(macB, 90, 1), 0, reg.RXD_IPCS | reg.RXD_L4CS | reg.RXD_IPE | reg.RXD_L4E, 0},
	} {
		r.a.send(0, c.frame, 0, true)
		w0, w1 := r.b.expect(0, padded(c.frame))
		if w1&c.set != c.set || w1&c.clear != 0 || w0&0xFFF0 != c.typ {
			t.Errorf("%s: descriptor %016X %016X, want status %X set, %X clear, type %X", c.name, w0, w1, c.set, c.clear, c.typ)
		}
	}
	r.clean()
}

// ipFrameOf is a TCP frame between two addresses with ports.
func ipFrameOf(src, dst string) []byte {
	return ipFrame(netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst), protoTCP, 30)
}

// udpSum is the checksum of the UDP datagram of n bytes in an IPv4 frame, over its own length.
func udpSum(f []byte, n int) (hi, lo byte) {
	b := append([]byte{}, f[26:34]...)
	b = append(b, 0, protoUDP, byte(n>>8), byte(n))
	s := ^slowSum(append(b, f[34:34+n]...))
	return byte(s >> 8), byte(s)
}
