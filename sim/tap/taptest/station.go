// Package taptest has a small host for tests: it answers ARP and ping and speaks enough TCP to swallow and to send a stream,
// frame by frame, with the offloads that virtio and the kernel have between them. What it receives and sends is the pattern of
// [Byte], so that every byte of a stream is checked.
//
//	kernel's socket ── kernel ── TAP ── what is tested ── Frame ── Station
package taptest

import (
	"encoding/binary"
	"fmt"

	"bare.wire/wire"
)

// Byte is byte i of every stream.
func Byte(i uint64) byte { return byte(i*167 + i>>8*13 + i>>16*7) }

// Frame is a frame without FCS and what is said beside it.
type Frame struct {
	Data    []byte
	Partial bool // the L4 checksum is the pseudo-header's sum, to be completed
	MSS     int  // it is a TCP segment to be cut into segments of this payload, bytes; 0: it is not
}

// Port is the TCP port that a Station listens on.
const Port = 7

// mss is what a Station says of itself, bytes.
const mss = 1460

// Station is a host. It is used from one goroutine.
type Station struct {
	MAC  [6]byte
	IP   [4]byte
	Send uint64 // bytes of the stream that it sends once a connection is there
	// Segment is the most payload that it gives to the wire at once, bytes; more than mss is left to others to cut.
	Segment int
	// Partial has checksums of TCP left to others.
	Partial bool
	// Out takes what the station sends. The frame is valid during the call.
	Out func(Frame)

	Echoed   uint64 // pings
	Received uint64 // bytes of stream that came in order and are right
	Joined   uint64 // segments that were longer than mss
	Unsummed uint64 // frames with partial checksums
	Sent     uint64 // bytes of stream that the kernel has acknowledged
	Fin      bool   // the kernel has sent all it has
	Faults   []string

	conn conn
	room []byte
}

// conn is the station's one connection. Sequence numbers of its own start at 0.
type conn struct {
	mac, ip  [6]byte // of the kernel; the address in the first 4 bytes
	port     uint16
	una, nxt uint32 // sent and not acknowledged, next to be sent
	rcv      uint32 // next to be received
	window   uint32
	scale    uint8
	dup      int
	finSent  bool
}

func (s *Station) fault(format string, args ...any) {
	if len(s.Faults) < 10 {
		s.Faults = append(s.Faults, fmt.Sprintf(format, args...))
	}
}

// Take is given each frame for the station.
func (s *Station) Take(f Frame) {
	eth, p, err := wire.ParseEthernet(f.Data)
	if err != nil {
		s.fault("frame of %d bytes: %v", len(f.Data), err)
		return
	}
	switch eth.Type() {
	case wire.EtherTypeARP:
		s.arp(p)
	case wire.EtherTypeIPv4:
		ip, p, err := wire.ParseIPv4(p)
		if err != nil || !ip.ChecksumOK() {
			s.fault("IPv4: %v, checksum %v", err, ip.ChecksumOK())
			return
		}
		if ip.Dst() != s.IP {
			return
		}
		switch ip.Proto() {
		case wire.ProtoICMP:
			s.ping(eth, ip, p)
		case wire.ProtoTCP:
			s.tcp(f, eth, ip, p)
		}
	}
}

func (s *Station) arp(p []byte) {
	a, _, err := wire.ParseARP(p)
	if err != nil || a.Op() != wire.ARPRequest || a.TargetIP() != s.IP {
		return
	}
	b := make([]byte, 60)
	e, _ := wire.PutEthernet(b, wire.EthernetFields{Dst: a.SenderMAC(), Src: s.MAC, Type: wire.EtherTypeARP})
	_, err = wire.PutARP(b[len(e):], wire.ARPFields{Op: wire.ARPReply, SenderMAC: s.MAC, SenderIP: s.IP, TargetMAC: a.SenderMAC(), TargetIP: a.SenderIP()})
	if err != nil {
		s.fault("ARP: %v", err)
	}
	s.Out(Frame{Data: b})
}

func (s *Station) ping(eth wire.Ethernet, ip wire.IPv4, p []byte) {
	h, body, err := wire.ParseICMP(p)
	if err != nil || h.Type() != wire.ICMPEcho || !h.ChecksumOK(wire.SumOf(body)) {
		s.fault("ICMP: %v", err)
		return
	}
	n := wire.EthernetLen + wire.IPv4MinLen
	b := make([]byte, max(60, n+len(p)))
	copy(b[n:], p)
	s.heads(b, eth.Src(), ip.Src(), wire.ProtoICMP, len(p))
	r := wire.ICMP(b[n:])
	r.SetType(wire.ICMPEchoReply)
	r.FillChecksum(wire.SumOf(body))
	s.Echoed++
	s.Out(Frame{Data: b})
}

func (s *Station) heads(b []byte, mac wire.MAC, ip [4]byte, proto wire.Proto, n int) wire.IPv4 {
	e, _ := wire.PutEthernet(b, wire.EthernetFields{Dst: mac, Src: s.MAC, Type: wire.EtherTypeIPv4})
	h, err := wire.PutIPv4(b[len(e):], wire.IPv4Fields{TTL: 64, Proto: proto, Src: s.IP, Dst: ip, PayloadLen: n, Flags: wire.IPv4DontFragment})
	if err != nil {
		s.fault("IPv4: %v", err)
	}
	return h
}

func (s *Station) tcp(f Frame, eth wire.Ethernet, ip wire.IPv4, p []byte) {
	h, data, err := wire.ParseTCP(p)
	if err != nil || h.DstPort() != Port {
		return
	}
	pseudo := ip.PseudoSum(len(p))
	if f.Partial {
		s.Unsummed++
		if h.Checksum() != uint16(pseudo) && f.MSS == 0 {
			s.fault("partial checksum %#04x, the pseudo-header's is %#04x", h.Checksum(), uint16(pseudo))
		}
	} else if !h.ChecksumOK(pseudo, wire.SumOf(data)) {
		s.fault("TCP checksum of a frame of %d bytes", len(f.Data))
		return
	}
	if len(data) > mss {
		s.Joined++
		if f.MSS == 0 {
			s.fault("%d bytes of payload, and no MSS", len(data))
		}
	}
	c := &s.conn
	if h.Flags()&wire.TCPSyn != 0 {
		*c = conn{mac: eth.Src(), port: h.SrcPort(), nxt: 1, rcv: h.Seq() + 1, window: uint32(h.Window())}
		copy(c.ip[:], ip[12:16])
		for it := wire.Options(h.Options()); ; {
			o, ok := it.Next()
			if !ok {
				break
			}
			if o.Kind == wire.TCPOptWScale && len(o.Data) == 1 {
				c.scale = o.Data[0]
			}
		}
		s.Received, s.Sent, s.Fin = 0, 0, false
		s.segment(0, 0, wire.TCPSyn|wire.TCPAck)
		return
	}
	s.acked(h, len(data))
	s.data(h, data)
	s.push()
}

// acked notes what the kernel has got. A duplicate is an acknowledgment that says nothing else (RFC 5681 §2).
func (s *Station) acked(h wire.TCP, data int) {
	c := &s.conn
	window := uint32(h.Window()) << c.scale
	same := window == c.window && data == 0 && h.Flags()&wire.TCPFin == 0
	c.window = window
	switch ack := h.Ack(); {
	case ack-c.una <= c.nxt-c.una && ack != c.una:
		c.una, c.dup = ack, 0
		s.Sent = min(uint64(ack-1), s.Send)
	case ack == c.una && c.una != c.nxt && same:
		if c.dup++; c.dup == 3 {
			c.nxt, c.finSent, c.dup = c.una, false, 0 // go back
		}
	}
}

// data takes what is in order and acknowledges it.
func (s *Station) data(h wire.TCP, b []byte) {
	c := &s.conn
	fin := h.Flags()&wire.TCPFin != 0
	if len(b) == 0 && !fin {
		return
	}
	if skip := c.rcv - h.Seq(); skip <= uint32(len(b)) {
		for _, x := range b[skip:] {
			if want := Byte(s.Received); x != want {
				s.fault("byte %d of the stream is %#02x, want %#02x", s.Received, x, want)
			}
			s.Received++
		}
		c.rcv += uint32(len(b)) - skip
		if fin && !s.Fin {
			s.Fin = true
			c.rcv++
		}
	}
	s.segment(c.nxt, 0, wire.TCPAck)
}

// push sends what the kernel's window allows.
func (s *Station) push() {
	c := &s.conn
	if c.una == 0 && c.nxt == 1 {
		return // the handshake is not over
	}
	for {
		done := uint64(c.nxt - 1)
		if done >= s.Send {
			if s.Fin && !c.finSent {
				c.finSent = true
				s.segment(c.nxt, 0, wire.TCPFin|wire.TCPAck)
				c.nxt++
			}
			return
		}
		n := min(uint64(max(s.Segment, 1)), s.Send-done)
		if uint64(c.nxt-c.una)+n > uint64(c.window) {
			return
		}
		s.segment(c.nxt, int(n), wire.TCPAck|wire.TCPPsh)
		c.nxt += uint32(n)
	}
}

// segment sends n bytes of the stream from seq on.
func (s *Station) segment(seq uint32, n int, flags wire.TCPFlags) {
	c := &s.conn
	var options []byte
	if flags&wire.TCPSyn != 0 {
		options = []byte{2, 4, mss >> 8, mss & 0xff, 3, 3, 8, 0}
	}
	at := wire.EthernetLen + wire.IPv4MinLen
	head := wire.TCPMinLen + len(options)
	if need := at + head + n; cap(s.room) < max(need, 60) {
		s.room = make([]byte, max(need, 60))
	}
	b := s.room[:max(at+head+n, 60)]
	clear(b[:60])
	ip := s.heads(b, c.mac, [4]byte(c.ip[:4]), wire.ProtoTCP, head+n)
	h, err := wire.PutTCP(b[at:], wire.TCPFields{SrcPort: Port, DstPort: c.port, Seq: seq, Ack: c.rcv, Flags: flags, Window: 0xffff, Options: options})
	if err != nil {
		s.fault("TCP: %v", err)
	}
	data := b[at+head:][:n]
	for i := range data {
		data[i] = Byte(uint64(seq-1) + uint64(i))
	}
	f := Frame{Data: b, Partial: s.Partial}
	if n > mss {
		f.MSS, f.Partial = mss, true
	}
	pseudo := ip.PseudoSum(head + n)
	if f.Partial {
		binary.BigEndian.PutUint16(h[16:], uint16(pseudo))
	} else {
		h.FillChecksum(pseudo, wire.SumOf(data))
	}
	s.Out(f)
}
