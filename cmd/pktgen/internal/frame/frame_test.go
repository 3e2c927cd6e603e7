package frame

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"bare.wire/cmd/pktgen/internal/sig"
	"bare.wire/cmd/pktgen/internal/units"
	"bare.wire/wire"
)

func spec(p Proto, v6 bool, size int, tags ...units.VLAN) Spec {
	s := Spec{
		Proto: p, Src: netip.MustParseAddr("198.18.0.1"), Dst: netip.MustParseAddr("198.19.0.1"), SrcPort: 1024, DstPort: 9,
		SrcMAC: [6]byte{2, 0, 0, 0, 0, 1}, DstMAC: [6]byte{2, 0, 0, 0, 0, 2}, VLANs: tags, Size: size, Flows: 1, Run: 0x5a, Stream: 3,
	}
	if v6 {
		s.Src, s.Dst = netip.MustParseAddr("2001:2::1"), netip.MustParseAddr("2001:2::ff:ffff")
	}
	return s
}

func Example() {
	b, err := New(spec(UDP, false, 64))
	if err != nil {
		panic(err)
	}
	frame := bytes.Clone(b.Template())
	b.Stamp(frame, 42, 1000)
	l, _ := wire.Parse(frame)
	fmt.Println(len(frame), "bytes,", l.CheckL3(frame), "and", l.CheckL4(frame))
	_, err = New(spec(TCP, false, 64))
	fmt.Println(err)
	// Output:
	// 60 bytes, good and good
	// size 64: too small for tcp over IPv4 with its headers and the 18-byte mark; the minimum is 76 (bytes with FCS)
}

var tags = [][]units.VLAN{nil, {{ID: 100, PCP: 5}}, {{ID: 4094, PCP: 7}, {ID: 1}}}

// every calls f for each kind of frame at its smallest and at larger sizes, odd ones included.
func every(t *testing.T, f func(t *testing.T, s Spec)) {
	for _, p := range []Proto{UDP, TCP, ICMP, ARP} {
		for _, v6 := range []bool{false, true} {
			if p == ARP && v6 {
				continue
			}
			for _, vlans := range tags {
				min := spec(p, v6, 0, vlans...).MinSize()
				for _, size := range []int{min, min + 1, 127, 512, 1518, 9018, 9728} {
					s := spec(p, v6, size, vlans...)
					t.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(s.what(), " ", "_"), size), func(t *testing.T) { f(t, s) })
				}
			}
		}
	}
}

func decode(t *testing.T, frame []byte) gopacket.Packet {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	head := frame[:min(len(frame), 96)]
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("gopacket: %v\n%x", e.Error(), head)
	}
	for _, l := range p.Layers() {
		if c, ok := l.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok && p.NetworkLayer() != nil {
			if err := c.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err, bad := p.VerifyChecksums(); err != nil || len(bad) != 0 {
		t.Fatalf("gopacket: checksums: %v %+v\n%x", err, bad, head)
	}
	return p
}

func TestEveryKindOfFrameIsDecodedByGopacket(t *testing.T) {
	every(t, func(t *testing.T, s Spec) {
		s.Flows = 70_000 // more than there are ports
		b, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, seq := range []uint64{0, 1, 64_511, 64_512, 69_999, 70_000, 1<<48 - 1} {
			frame := bytes.Clone(b.Template())
			b.Stamp(frame, seq, int64(seq*3))
			p := decode(t, frame)
			if len(frame) != s.Size-units.FCS {
				t.Fatalf("%d bytes", len(frame))
			}
			checkLink(t, p, s)
			checkFlow(t, p, s, seq%70_000)
			want := sig.Signature{Run: 0x5a, Stream: 3, Seq: seq, Sent: int64(seq * 3)}
			if got, ok := sig.Parse(frame); !ok || got != want {
				t.Fatalf("mark %+v, want %+v", got, want)
			}
		}
	})
}

func checkLink(t *testing.T, p gopacket.Packet, s Spec) {
	t.Helper()
	eth := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	if !bytes.Equal(eth.SrcMAC, s.SrcMAC[:]) || !bytes.Equal(eth.DstMAC, s.DstMAC[:]) {
		t.Errorf("MACs %v %v", eth.SrcMAC, eth.DstMAC)
	}
	var got []units.VLAN
	for _, l := range p.Layers() {
		if q, ok := l.(*layers.Dot1Q); ok {
			got = append(got, units.VLAN{ID: q.VLANIdentifier, PCP: q.Priority})
		}
	}
	if !slices.Equal(got, s.VLANs) {
		t.Errorf("tags %v, want %v", got, s.VLANs)
	}
	if want := layers.EthernetType(0x88a8); len(s.VLANs) == 2 && eth.EthernetType != want {
		t.Errorf("outer tag has type %v", eth.EthernetType)
	}
}

// checkFlow compares the varied fields with the definition of flow f.
func checkFlow(t *testing.T, p gopacket.Packet, s Spec, f uint64) {
	t.Helper()
	switch l := p.Layer(map[Proto]gopacket.LayerType{UDP: layers.LayerTypeUDP, TCP: layers.LayerTypeTCP, ICMP: layers.LayerTypeICMPv4, ARP: layers.LayerTypeARP}[s.Proto]).(type) {
	case *layers.UDP:
		if uint64(l.SrcPort) != 1024+f%64_512 || l.DstPort != 9 {
			t.Errorf("ports %d %d", l.SrcPort, l.DstPort)
		}
	case *layers.TCP:
		if uint64(l.SrcPort) != 1024+f%64_512 || !l.SYN || l.ACK {
			t.Errorf("port %d, SYN %v", l.SrcPort, l.SYN)
		}
	case *layers.ICMPv4:
		if uint64(l.Id) != f%65_536 {
			t.Errorf("identifier %d", l.Id)
		}
	case *layers.ARP:
		if ip, _ := netip.AddrFromSlice(l.SourceProtAddress); low32(ip) != low32(s.Src)+uint32(f) {
			t.Errorf("sender %v", ip)
		}
		return
	}
	src, _ := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Src().Raw())
	per := map[Proto]uint64{UDP: 64_512, TCP: 64_512, ICMP: 65_536}[s.Proto]
	if low32(src) != low32(s.Src)+uint32(f/per) || src.Is6() != s.Src.Is6() {
		t.Errorf("source %v for flow %d", src, f)
	}
}

// UDP may not say 0 when the sum comes out as 0.
func TestUDPChecksumIsNeverZero(t *testing.T) {
	b, _ := New(spec(UDP, false, 64))
	frame := bytes.Clone(b.Template())
	zeros := 0
	for seq := range uint64(1 << 17) {
		b.Stamp(frame, seq, 0)
		check := wire.UDP(frame[34:42]).Checksum()
		if check == 0 {
			t.Fatalf("frame %d has no checksum", seq)
		}
		if check == 0xffff {
			zeros++
			decode(t, frame)
		}
	}
	if zeros == 0 {
		t.Error("the case did not occur")
	}
}

func TestFlowsCycleAndAreAllDifferent(t *testing.T) {
	s := spec(UDP, false, 64)
	s.SrcPort, s.Flows = 65_530, 100
	b, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	frame := bytes.Clone(b.Template())
	for seq := range uint64(300) {
		b.Stamp(frame, seq, 0)
		seen[string(frame[26:36])]++ // addresses, source port
	}
	if len(seen) != 100 {
		t.Errorf("%d flows, want 100", len(seen))
	}
	for f, n := range seen {
		if n != 3 {
			t.Errorf("flow %x came %d times in 3 rounds", f, n)
		}
	}
}

func TestMinimumSizesAreNamed(t *testing.T) {
	for _, c := range []struct {
		s    Spec
		want int
	}{
		{spec(UDP, false, 63), 64}, {spec(ICMP, false, 63), 64}, {spec(ARP, false, 63), 64}, {spec(TCP, false, 75), 76},
		{spec(UDP, true, 83), 84}, {spec(TCP, true, 95), 96}, {spec(ICMP, true, 83), 84},
		{spec(UDP, false, 67, units.VLAN{ID: 1}), 68}, {spec(UDP, false, 71, units.VLAN{ID: 1}, units.VLAN{ID: 2}), 72},
	} {
		_, err := New(c.s)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the minimum is %d ", c.want)) {
			t.Errorf("%s: %v, want minimum %d", c.s.what(), err, c.want)
		}
		c.s.Size = c.want
		if _, err := New(c.s); err != nil {
			t.Errorf("%s at its minimum: %v", c.s.what(), err)
		}
	}
}

func TestSpecsThatCannotBeBuilt(t *testing.T) {
	for want, edit := range map[string]func(*Spec){
		"same family":    func(s *Spec) { s.Dst = netip.MustParseAddr("2001:2::1") },
		"two addresses":  func(s *Spec) { s.Src = netip.Addr{} },
		"IPv4 only":      func(s *Spec) { s.Proto, s.Src, s.Dst, s.Size = ARP, netip.IPv6Loopback(), netip.IPv6Loopback(), 128 },
		"at most two":    func(s *Spec) { s.VLANs, s.Size = make([]units.VLAN, 3), 128 },
		"maximum is":     func(s *Spec) { s.Size = 9729 },
		"0 flows":        func(s *Spec) { s.Flows = 0 },
		"run out":        func(s *Spec) { s.Src, s.Flows = netip.MustParseAddr("255.255.255.255"), 64_513 },
		"write udp, tcp": func(s *Spec) { s.Proto = "sctp" },
	} {
		s := spec(UDP, false, 64)
		edit(&s)
		if _, err := New(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestStampingAllocatesNothing(t *testing.T) {
	b, _ := New(spec(UDP, false, 64))
	frame := bytes.Clone(b.Template())
	seq := uint64(0)
	if n := testing.AllocsPerRun(1000, func() { seq++; b.Stamp(frame, seq, int64(seq)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Any spec that is accepted gives frames whose checksums hold, whatever number and time are stamped.
func FuzzStamp(f *testing.F) {
	f.Add(uint8(0), uint16(64), uint16(1024), uint32(1), uint64(7), int64(9))
	f.Add(uint8(7), uint16(129), uint16(65535), uint32(70_000), uint64(1<<48-1), int64(-1))
	f.Fuzz(func(t *testing.T, kind uint8, size, port uint16, flows uint32, seq uint64, ns int64) {
		s := spec([]Proto{UDP, TCP, ICMP, ARP}[kind%4], kind&4 != 0, int(size), tags[int(kind>>3)%3]...)
		s.SrcPort, s.Flows = port, int(flows)
		b, err := New(s)
		if err != nil {
			return
		}
		frame := bytes.Clone(b.Template())
		b.Stamp(frame, seq, ns)
		l, err := wire.Parse(frame)
		if err != nil || l.CheckL3(frame) == wire.Bad || s.Proto != ARP && l.CheckL4(frame) != wire.Good {
			t.Fatalf("%+v: %v %v %v\n%x", s, err, l.CheckL3(frame), l.CheckL4(frame), frame)
		}
	})
}

func BenchmarkStamp(b *testing.B) {
	s := spec(UDP, false, 64)
	s.Flows = 1000
	t, _ := New(s)
	frame := bytes.Clone(t.Template())
	for i := uint64(0); b.Loop(); i++ {
		t.Stamp(frame, i, int64(i))
	}
}
