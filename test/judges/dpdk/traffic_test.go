package dpdk

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// exchange says which frames are sent to the card and what must come back. Both halves of the test make the same frames from it.
type exchange struct {
	Traffic string           // a name of traffics
	Port    net.HardwareAddr // of the card
	Peer    net.HardwareAddr // where testpmd sends to
	Count   int
	Seed    uint64
	VLAN    uint16   // TCI of what is tagged
	MSS     int      // TCP payload of a segment, bytes
	Good    []string // addresses or VLANs that pass a filter
	Bad     []string // and that do not
}

// step is what is sent at once, and what must have come back before the next. An exchange of many frames has many steps, so that
// no ring and no queue on the way overflows.
type step struct{ send, want [][]byte }

// window is how many frames are on their way at once: half of what testpmd polls at a time.
const window = 16

// sender is the hardware address that the host's frames come from.
var sender = net.HardwareAddr{2, 0, 0, 0, 0, 9}

// traffics make the frames of an exchange.
var traffics = map[string]func(x exchange) []step{
	"same":         same,
	"forwarded":    forwarded,
	"jumbo":        jumbo,
	"checksums":    checksums,
	"segments":     segments,
	"tags-removed": tagsRemoved,
	"tags-added":   tagsAdded,
	"addresses":    addresses,
	"vlans":        vlans,
	"flows":        flows,
	"damaged-sums": damagedSums,
	"answered":     answered,
	"tagged-flows": taggedFlows,
	"broadcast":    broadcastOne,
}

// steps makes the frames.
func (x exchange) steps() ([]step, error) {
	f, ok := traffics[x.Traffic]
	if !ok {
		return nil, fmt.Errorf("no traffic %q", x.Traffic)
	}
	return f(x), nil
}

// sent is everything that an exchange sends, in order.
func (x exchange) sent() (all [][]byte) {
	steps, err := x.steps()
	if err != nil {
		return nil
	}
	for _, s := range steps {
		all = append(all, s.send...)
	}
	return all
}

// windows cuts frames and what must come of each into steps.
func windows(send, want [][]byte) (all []step) {
	for i := 0; i < len(send); i += window {
		end := min(i+window, len(send))
		s := step{send: send[i:end]}
		if want != nil {
			s.want = want[i:end]
		}
		all = append(all, s)
	}
	return all
}

// experimental is an EtherType for whoever wants one (IEEE 802, local experimental 1).
const experimental = 0x88b5

// plain is a frame of random bytes.
func plain(r *rand.Rand, dst net.HardwareAddr, length int) []byte {
	b := slices.Concat(dst, sender, []byte{experimental >> 8, experimental & 0xff})
	for len(b) < length {
		b = append(b, byte(r.Uint32()))
	}
	return b
}

// lengths of frames at which something changes: the least, a cache line, RX descriptors' granularity, the most; others between.
var lengths = []int{60, 61, 62, 63, 64, 65, 127, 128, 129, 255, 256, 511, 512, 1023, 1024, 1513, 1514}

// numbered is the source address of frame i, by which whoever prints frames can be told which it was.
func numbered(i int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 1, byte(i >> 8), byte(i)} }

// numberOf is the number of a frame with a numbered source address, or -1.
func numberOf(a net.HardwareAddr) int {
	if len(a) != 6 || a[3] != 1 {
		return -1
	}
	return int(a[4])<<8 | int(a[5])
}

func (x exchange) rand() *rand.Rand { return rand.New(rand.NewPCG(x.Seed, 82599)) }

func (x exchange) plain() (all [][]byte) {
	r := x.rand()
	for i := range x.Count {
		n := 60 + r.IntN(1514-60+1)
		if i < len(lengths) {
			n = lengths[i]
		}
		all = append(all, plain(r, x.Port, n))
	}
	return all
}

// same comes back as it is (io forwarding).
func same(x exchange) []step {
	all := x.plain()
	return windows(all, all)
}

// readdressed is a frame as the mac and csum engines send it on: to the peer, from the port.
func (x exchange) readdressed(f []byte) []byte {
	return slices.Concat(x.Peer, x.Port, f[12:])
}

func (x exchange) eachReaddressed(all [][]byte) (want [][]byte) {
	for _, f := range all {
		want = append(want, x.readdressed(f))
	}
	return want
}

func forwarded(x exchange) []step {
	all := x.plain()
	return windows(all, x.eachReaddressed(all))
}

// jumbo frames take more than one buffer.
func jumbo(x exchange) []step {
	r := x.rand()
	var all [][]byte
	for i := range x.Count {
		n := 1515 + r.IntN(9014-1515+1)
		if i == 0 {
			n = 9014
		}
		all = append(all, plain(r, x.Port, n))
	}
	var steps []step
	for i := range all {
		steps = append(steps, step{all[i : i+1], all[i : i+1]})
	}
	return steps
}

func broadcastOne(x exchange) []step {
	f := plain(x.rand(), net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 100)
	return []step{{[][]byte{f}, [][]byte{f}}}
}

// addresses sends to addresses that pass the card's filters and to some that do not; the last always does, so that when it is back
// the others have been dropped.
func addresses(x exchange) (steps []step) {
	r := x.rand()
	last := plain(r, x.Port, 90)
	for _, bad := range x.Bad {
		f := plain(r, mac(bad), 80)
		steps = append(steps, step{[][]byte{f, last}, [][]byte{last}})
	}
	for _, good := range x.Good {
		f := plain(r, mac(good), 80)
		steps = append(steps, step{[][]byte{f, last}, [][]byte{f, last}})
	}
	return steps
}

func mac(s string) net.HardwareAddr {
	a, err := net.ParseMAC(s)
	if err != nil {
		panic(err) // impossible: addresses are written in this test
	}
	return a
}

// tag puts a VLAN tag into a frame.
func tag(f []byte, tci uint16) []byte {
	return slices.Concat(f[:12], []byte{0x81, 0, byte(tci >> 8), byte(tci)}, f[12:])
}

func tagsRemoved(x exchange) []step {
	var send, want [][]byte
	for _, f := range x.plain() {
		if len(f) > 1500 {
			f = f[:1500]
		}
		send, want = append(send, tag(f, x.VLAN)), append(want, x.readdressed(f))
	}
	return windows(send, want)
}

func tagsAdded(x exchange) []step {
	var send, want [][]byte
	for _, f := range x.plain() {
		if len(f) > 1500 {
			f = f[:1500]
		}
		send, want = append(send, f), append(want, tag(x.readdressed(f), x.VLAN))
	}
	return windows(send, want)
}

// vlans sends tagged frames, of which some pass, and after each one without a tag, which does.
func vlans(x exchange) (steps []step) {
	r := x.rand()
	last := plain(r, x.Port, 90)
	one := func(id string) []byte {
		var v uint16
		_, _ = fmt.Sscan(id, &v)
		return tag(plain(r, x.Port, 80), v)
	}
	for _, bad := range x.Bad {
		steps = append(steps, step{[][]byte{one(bad), last}, [][]byte{last}})
	}
	for _, good := range x.Good {
		f := one(good)
		steps = append(steps, step{[][]byte{f, last}, [][]byte{f, last}})
	}
	return steps
}

// flow is a transport connection.
type flow struct {
	src, dst netip.AddrPort
	proto    layers.IPProtocol // UDP or TCP
}

// flowOf draws a connection: every other one is IPv6.
func flowOf(r *rand.Rand, i int, proto layers.IPProtocol) flow {
	address := func() netip.AddrPort {
		a := netip.AddrFrom4([4]byte{198, 18, byte(r.Uint32()), byte(r.Uint32())}) // RFC 2544
		if i%2 == 1 {
			b := [16]byte{0x20, 0x01, 0x00, 0x02, 0, 0} // RFC 5180
			for j := 6; j < len(b); j++ {
				b[j] = byte(r.Uint32())
			}
			a = netip.AddrFrom16(b)
		}
		return netip.AddrPortFrom(a, uint16(1024+r.IntN(60000)))
	}
	return flow{src: address(), dst: address(), proto: proto}
}

// segment is what a frame of a flow has besides its addresses.
type segment struct {
	id      uint16 // IPv4
	seq     uint32 // TCP
	fin     bool
	push    bool
	payload []byte
}

// tcpOptions make TCP's header longer than the least: a timestamp (RFC 7323), as Linux lays it out.
var tcpOptions = []layers.TCPOption{
	{OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop},
	{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
}

// frame makes a whole frame with right checksums, padded to the least length.
func (f flow) frame(dst, src net.HardwareAddr, s segment) []byte {
	eth := &layers.Ethernet{DstMAC: dst, SrcMAC: src, EthernetType: layers.EthernetTypeIPv4}
	var network gopacket.SerializableLayer
	var pseudo gopacket.NetworkLayer
	if f.src.Addr().Is4() {
		ip := &layers.IPv4{
			Version: 4, TTL: 64, Id: s.id, Protocol: f.proto, SrcIP: f.src.Addr().AsSlice(), DstIP: f.dst.Addr().AsSlice(),
		}
		network, pseudo = ip, ip
	} else {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip := &layers.IPv6{
			Version: 6, HopLimit: 64, NextHeader: f.proto, SrcIP: f.src.Addr().AsSlice(), DstIP: f.dst.Addr().AsSlice(),
		}
		network, pseudo = ip, ip
	}
	var transport gopacket.SerializableLayer
	if f.proto == layers.IPProtocolTCP {
		tcp := &layers.TCP{
			SrcPort: layers.TCPPort(f.src.Port()), DstPort: layers.TCPPort(f.dst.Port()), Seq: s.seq, Ack: 0x01020304, ACK: true,
			FIN: s.fin, PSH: s.push, Window: 4096, Options: tcpOptions,
		}
		_ = tcp.SetNetworkLayerForChecksum(pseudo)
		transport = tcp
	} else {
		udp := &layers.UDP{SrcPort: layers.UDPPort(f.src.Port()), DstPort: layers.UDPPort(f.dst.Port())}
		_ = udp.SetNetworkLayerForChecksum(pseudo)
		transport = udp
	}
	b := gopacket.NewSerializeBuffer()
	opt := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, opt, eth, network, transport, gopacket.Payload(s.payload)); err != nil {
		panic(err) // impossible: all lengths fit
	}
	out := slices.Clone(b.Bytes())
	for len(out) < 60 {
		out = append(out, 0)
	}
	return out
}

// Offsets in a frame of flow without a VLAN tag.
const (
	ethernetLen = 14
	ipSumAt     = ethernetLen + 10
)

// l4SumAt is where the transport's checksum is.
func (f flow) l4SumAt() int {
	at := ethernetLen + 20
	if f.src.Addr().Is6() {
		at = ethernetLen + 40
	}
	if f.proto == layers.IPProtocolTCP {
		return at + 16
	}
	return at + 6
}

// spoil changes two bytes, and not to 0, by which UDP would say that it has no checksum.
func spoil(f []byte, at int) {
	f[at] ^= 0x5a
	if f[at] == 0 && f[at+1] == 0 {
		f[at+1] = 1
	}
}

func payload(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// protocols take turns.
func protocol(i int) layers.IPProtocol {
	if i/2%2 == 0 {
		return layers.IPProtocolUDP
	}
	return layers.IPProtocolTCP
}

// checksums sends frames with wrong checksums; they come back with right ones (csum forwarding).
func checksums(x exchange) []step {
	r := x.rand()
	var send, want [][]byte
	for i := range x.Count {
		f := flowOf(r, i, protocol(i))
		b := f.frame(x.Port, sender, segment{id: uint16(r.Uint32()), seq: r.Uint32(), payload: payload(r, 1+r.IntN(1300))})
		want = append(want, x.readdressed(b))
		b = slices.Clone(b)
		spoil(b, f.l4SumAt())
		if f.src.Addr().Is4() {
			spoil(b, ipSumAt)
		}
		send = append(send, b)
	}
	return windows(send, want)
}

// segments sends long TCP frames; they come back cut into segments of MSS bytes.
func segments(x exchange) (steps []step) {
	r := x.rand()
	for i := range x.Count {
		f := flowOf(r, i, layers.IPProtocolTCP)
		whole := segment{id: uint16(r.Uint32()), seq: r.Uint32(), fin: i%3 == 0, push: true, payload: payload(r, x.MSS+1+r.IntN(1400-x.MSS))}
		if i == 0 {
			whole.id, whole.seq = 0xfffe, 0xffffff00 // both wrap
			whole.payload = payload(r, 7*x.MSS)
		}
		steps = append(steps, step{
			send: [][]byte{f.frame(x.Port, sender, whole)},
			want: f.cut(x.Peer, x.Port, whole, x.MSS),
		})
	}
	return steps
}

// cut is what transmit segmentation makes of a segment (datasheet §7.2.4): the sequence number grows by the payload, IPv4's
// identification by one, and FIN and PSH are in the last alone.
func (f flow) cut(dst, src net.HardwareAddr, whole segment, mss int) (frames [][]byte) {
	for at := 0; at < len(whole.payload); at += mss {
		end := min(at+mss, len(whole.payload))
		last := end == len(whole.payload)
		frames = append(frames, f.frame(dst, src, segment{
			id: whole.id + uint16(at/mss), seq: whole.seq + uint32(at), fin: whole.fin && last, push: whole.push && last,
			payload: whole.payload[at:end],
		}))
	}
	return frames
}

// flows are frames of many connections, for whoever places them by their hash. Nothing comes back.
func flows(x exchange) []step {
	r := x.rand()
	var send [][]byte
	for i := range x.Count {
		send = append(send, flowOf(r, i, protocol(i)).frame(x.Port, numbered(i), segment{payload: payload(r, 20+i)}))
	}
	return windows(send, nil)
}

// taggedFlows are UDP frames in a VLAN, for whoever prints what was stripped.
func taggedFlows(x exchange) []step {
	r := x.rand()
	var send [][]byte
	for i := range x.Count {
		f := flowOf(r, i, layers.IPProtocolUDP).frame(x.Port, numbered(i), segment{payload: payload(r, 20+i)})
		send = append(send, tag(f, x.VLAN+uint16(i)))
	}
	return windows(send, nil)
}

// Damage of a frame of damagedSums, by its number: none, the transport's checksum, IPv4's.
const (
	damageNone = iota
	damageL4
	damageIP
	numDamages
)

func damage(i int) int {
	if d := i / 4 % numDamages; d != damageIP || i%2 == 0 { // IPv6 has no checksum
		return d
	}
	return damageNone
}

// damagedSums are frames of which some have a wrong checksum. Nothing comes back.
func damagedSums(x exchange) []step { return windows(x.damaged(), nil) }

func (x exchange) damaged() (send [][]byte) {
	r := x.rand()
	for i := range x.Count {
		f := flowOf(r, i, protocol(i))
		b := f.frame(x.Port, numbered(i), segment{payload: payload(r, 20+r.IntN(200))})
		switch damage(i) {
		case damageL4:
			spoil(b, f.l4SumAt())
		case damageIP:
			spoil(b, ipSumAt)
		}
		send = append(send, b)
	}
	return send
}

// answered are the frames of damagedSums, which come back with right checksums (csum forwarding).
func answered(x exchange) []step {
	r := x.rand()
	var send, want [][]byte
	for i, b := range x.damaged() {
		f := flowOf(r, i, protocol(i))
		want = append(want, x.readdressed(f.frame(x.Port, numbered(i), segment{payload: payload(r, 20+r.IntN(200))})))
		send = append(send, b)
	}
	return windows(send, want)
}
