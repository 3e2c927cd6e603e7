package wire_test

import (
	"errors"
	"fmt"

	"bare.wire/wire"
)

// A frame is written front to back: each header into the room behind the one
// before it, and the checksum when the payload is there.
func Example() {
	room := make([]byte, 2048) // in a program: what mbuf.Buf.Reserve gave
	payload := []byte("hello")

	eth, err := wire.PutEthernet(room, wire.EthernetFields{
		Dst: wire.Broadcast, Src: wire.MAC{2, 0, 0, 0, 0, 1}, Type: wire.EtherTypeIPv4,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	at := len(eth)
	ip, err := wire.PutIPv4(room[at:], wire.IPv4Fields{
		TTL: 64, Proto: wire.ProtoUDP, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2},
		PayloadLen: wire.UDPLen + len(payload),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	at += len(ip)
	udp, err := wire.PutUDP(room[at:], wire.UDPFields{SrcPort: 1000, DstPort: 7, PayloadLen: len(payload)})
	if err != nil {
		fmt.Println(err)
		return
	}
	at += len(udp)
	at += copy(room[at:], payload)
	udp.FillChecksum(ip.PseudoSum(udp.Length()), wire.SumOf(payload))
	frame := room[:max(at, wire.MinFrame)]

	l, err := wire.Parse(frame)
	if err != nil {
		fmt.Println(err)
		return
	}
	src, dst := l.Addrs(frame)
	fmt.Println(l.EtherType, l.Proto, src, dst, l.UDP(frame).DstPort())
	fmt.Printf("%q, checksums %v and %v\n", frame[l.Payload:l.End], l.CheckL3(frame), l.CheckL4(frame))
	// Output:
	// IPv4 UDP 10.0.0.1 10.0.0.2 7
	// "hello", checksums good and good
}

// The walk over a broken frame keeps what was whole.
func ExampleParse_truncated() {
	var room [60]byte
	n, err := putUDP4(room[:], 18)
	if err != nil {
		fmt.Println(err)
		return
	}
	frame := room[:n-1] // the last byte got lost
	l, err := wire.Parse(frame)
	fmt.Println(err)
	fmt.Println(errors.Is(err, wire.ErrTruncated), l.IsIPv4(), l.IPv4(frame).DstAddr())
	// Output:
	// wire: IPv4 total length reaches past the packet (RFC 791 §3.1): truncated
	// true true 192.168.1.2
}

// A change to one field updates the checksum without a look at the rest.
func ExampleUpdateChecksum() {
	var room [20]byte
	ip, err := wire.PutIPv4(room[:], wire.IPv4Fields{TTL: 64, Proto: wire.ProtoTCP, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}})
	if err != nil {
		fmt.Println(err)
		return
	}
	old, now := ip.Dst(), [4]byte{10, 9, 8, 7}
	ip.SetDst(now)
	ip.SetChecksum(wire.UpdateChecksum(ip.Checksum(), wire.SumOf(old[:]), wire.SumOf(now[:])))
	fmt.Println(ip.ChecksumOK())
	// Output: true
}

// The sum of a payload does not depend on where it is cut.
func ExampleAdder() {
	var a wire.Adder
	for _, piece := range []string{"o", "", "dd pie", "ces"} {
		a.Add([]byte(piece))
	}
	fmt.Println(a.Sum() == wire.SumOf([]byte("odd pieces")))
	// Output: true
}

func ExampleParseTCPOptions() {
	o, err := wire.ParseTCPOptions([]byte{2, 4, 5, 180, 4, 2, 1, 3, 3, 7, 0, 0})
	fmt.Println(o.MSS, o.SACKPermitted, o.HasWindow, o.WindowShift, err)
	// Output: 1460 true true 7 <nil>
}
