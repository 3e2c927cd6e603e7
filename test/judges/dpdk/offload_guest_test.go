//go:build guest

package dpdk

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket/layers"

	"bare.wire/test/judges/internal/frames"
	"bare.wire/test/judges/internal/testpmd"
)

var (
	hostAddress = netip.MustParseAddr("192.0.2.1")
	peerAddress = netip.MustParseAddr("192.0.2.2")
)

// rssQueues is how many queues frames are spread over.
const rssQueues = 4

var rssCheck = check{
	name:    "rss",
	stopped: []string{fmt.Sprintf("port config all rxq %d", rssQueues), fmt.Sprintf("port config all txq %d", rssQueues)},
	undo:    []string{"port config all rxq 1", "port config all txq 1"},
	live:    loud, quiet: silent,
	run: checkRSS,
}

// checkRSS draws a key and a redirection table and compares where frames land, and the hash that the card gives with them, with
// what Toeplitz's function says.
func checkRSS(b *bench) error {
	r := rand.New(rand.NewPCG(4, 4))
	key := payload(r, 40)
	table := make([]int, 128)
	for i := range table {
		table[i] = r.IntN(rssQueues)
	}
	commands := []string{"port config 0 rss-hash-key ipv4-udp " + hex.EncodeToString(key)}
	for i := 0; i < len(table); i += 8 { // testpmd takes a word of at most 127 characters
		var some []string
		for j, q := range table[i : i+8] {
			some = append(some, fmt.Sprintf("(%d,%d)", i+j, q))
		}
		commands = append(commands, "port config 0 rss reta "+strings.Join(some, ","))
	}
	if _, err := b.do(commands...); err != nil {
		return err
	}
	if err := b.readsBack(key, table); err != nil {
		return err
	}
	for _, kind := range []string{"udp", "tcp", "ip"} {
		if _, err := b.do("port config all rss " + kind); err != nil {
			return err
		}
		x := exchange{Traffic: "flows", Count: 48, Seed: 40}
		got, err := b.printed(x)
		if err != nil {
			return fmt.Errorf("rss %s: %w", kind, err)
		}
		if err := placed(x, kind, key, table, got); err != nil {
			return fmt.Errorf("rss %s: %w", kind, err)
		}
	}
	return nil
}

// readsBack compares what testpmd reads out of the card with what it was told to write.
func (b *bench) readsBack(key []byte, table []int) error {
	text, err := b.do("show port 0 rss-hash key")
	if err != nil {
		return err
	}
	gotKey, err := testpmd.ParseHashKey(text)
	if err != nil {
		return err
	}
	if string(gotKey) != string(key) {
		return fmt.Errorf("the card's RSS key is %x, want %x", gotKey, key)
	}
	if text, err = b.do("show port 0 rss reta 128 (0xffffffffffffffff,0xffffffffffffffff)"); err != nil {
		return err
	}
	gotTable, err := testpmd.ParseRETA(text)
	if err != nil {
		return err
	}
	for i, q := range table {
		if got, ok := gotTable[i]; !ok || got != q {
			return fmt.Errorf("entry %d of the card's redirection table is %d, want %d", i, got, q)
		}
	}
	return nil
}

// flowsOf are the flows of the traffic "flows".
func flowsOf(x exchange) (all []flow) {
	r := x.rand()
	for i := range x.Count {
		all = append(all, flowOf(r, i, protocol(i)))
		payload(r, 20+i)
	}
	return all
}

// placed compares the queue and the hash of each frame.
func placed(x exchange, kind string, key []byte, table []int, got map[int]testpmd.Packet) error {
	used := make(map[int]bool)
	for i, f := range flowsOf(x) {
		p := got[i]
		input, hashed := f.hashInput(kind)
		want := 0
		if hashed {
			h := frames.Toeplitz(key, input)
			want = table[h%128]
			if p.Hash != h {
				return fmt.Errorf("frame %d %v>%v: hash %#x, want %#x", i, f.src, f.dst, p.Hash, h)
			}
		}
		if p.Has("RX_RSS_HASH") != hashed {
			return fmt.Errorf("frame %d %v>%v: the descriptor has a hash: %v, want %v", i, f.src, f.dst, !hashed, hashed)
		}
		if p.Queue != want {
			return fmt.Errorf("frame %d %v>%v: in queue %d, want %d", i, f.src, f.dst, p.Queue, want)
		}
		used[p.Queue] = true
	}
	if len(used) != rssQueues {
		return fmt.Errorf("the frames are in %d queues, want all %d: the traffic judges nothing", len(used), rssQueues)
	}
	return nil
}

// hashInput is what the hash of a kind is taken of (datasheet §7.1.2.8.1), and whether there is one.
func (f flow) hashInput(kind string) (input []byte, hashed bool) {
	input = append(f.src.Addr().AsSlice(), f.dst.Addr().AsSlice()...)
	if kind == "ip" {
		return input, true
	}
	input = binary.BigEndian.AppendUint16(input, f.src.Port())
	input = binary.BigEndian.AppendUint16(input, f.dst.Port())
	return input, (kind == "udp") == (f.proto == layers.IPProtocolUDP)
}

// printed has testpmd print the frames of an exchange that it receives, and returns them by their numbers.
func (b *bench) printed(x exchange) (map[int]testpmd.Packet, error) {
	got := make(map[int]testpmd.Packet)
	mark := b.Mark()
	_, err := b.forward("rxonly", func() error {
		sent, err := b.exchange(x)
		if err != nil {
			return err
		}
		text, err := b.output(mark, sent)
		if err != nil {
			return err
		}
		packets, err := testpmd.ParsePackets(text)
		for _, p := range packets {
			if n := numberOf(p.Src); n >= 0 {
				got[n] = p
			}
		}
		if err == nil && len(got) != sent {
			err = fmt.Errorf("%d different frames have been received, want %d", len(got), sent)
		}
		return err
	})
	return got, err
}

func checkRxSums(b *bench) error {
	x := exchange{Traffic: "damaged-sums", Count: 48, Seed: 41}
	got, err := b.printed(x)
	if err != nil {
		return err
	}
	for i := range x.Count {
		p := got[i]
		udp, bad := protocol(i) == layers.IPProtocolUDP, damage(i)
		var fault string
		switch {
		case p.Has("RX_IP_CKSUM_BAD") != (bad == damageIP):
			fault = "IPv4"
		case bad != damageL4 && !p.Has("RX_L4_CKSUM_GOOD"), bad == damageL4 && p.Has("RX_L4_CKSUM_GOOD"):
			fault = "transport"
		case bad == damageL4 && !udp && !p.Has("RX_L4_CKSUM_BAD"):
			// Of UDP the driver does not say it: the 82599 takes a checksum of 0 for a wrong one (specification update).
			fault = "TCP"
		}
		if want := packetType(i); p.HwType != want {
			return fmt.Errorf("frame %d: the card's packet type is %q, want %q", i, p.HwType, want)
		}
		if fault != "" {
			return fmt.Errorf("frame %d (UDP %v, damage %d): %s checksum: flags %v", i, udp, bad, fault, p.Flags)
		}
	}
	return nil
}

// packetType is what testpmd makes of the packet type in the descriptor of frame i.
func packetType(i int) string {
	network, transport := "L3_IPV4", "L4_UDP"
	if i%2 == 1 {
		network = "L3_IPV6"
	}
	if protocol(i) == layers.IPProtocolTCP {
		transport = "L4_TCP"
	}
	return "L2_ETHER " + network + " " + transport
}

// checkBadSums has the csum engine count, which asks the flags alone.
func checkBadSums(b *bench) error {
	x := exchange{Traffic: "damaged-sums", Count: 48, Seed: 42}
	var wantIP, wantL4 uint64
	for i := range x.Count {
		switch damage(i) {
		case damageIP:
			wantIP++
		case damageL4:
			if protocol(i) == layers.IPProtocolTCP {
				wantL4++
			}
		}
	}
	text, err := b.forward("csum", func() error {
		_, err := b.exchange(exchange{Traffic: "answered", Count: x.Count, Seed: x.Seed})
		return err
	})
	f, parsed := forwardOf(text)
	if err := errors.Join(err, parsed); err != nil {
		return err
	}
	if f.BadIPSum != wantIP || f.BadL4Sum != wantL4 {
		return fmt.Errorf("testpmd counted %d bad IPv4 and %d bad transport checksums, want %d and %d", f.BadIPSum, f.BadL4Sum, wantIP, wantL4)
	}
	return nil
}

func checkTags(b *bench) error {
	x := exchange{Traffic: "tagged-flows", Count: 16, Seed: 43, VLAN: 0x6120}
	got, err := b.printed(x)
	if err != nil {
		return err
	}
	for i := range x.Count {
		p, want := got[i], x.VLAN+uint16(i)
		if !p.Has("RX_VLAN") || !p.Has("RX_VLAN_STRIPPED") || p.VLAN != want || p.Type == 0x8100 {
			return fmt.Errorf("frame %d: VLAN tag %#x, EtherType %#x, flags %v; want the tag %#x stripped", i, p.VLAN, p.Type, p.Flags, want)
		}
	}
	return nil
}
