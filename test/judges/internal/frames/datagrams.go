package frames

import (
	"encoding/binary"
	"fmt"
)

// Datagram is a frame of TCP or UDP that both halves make.
type Datagram struct {
	To, From         [6]byte
	V6, TCP          bool
	Src, Dst         [4]byte // of IPv6 the last bytes
	SrcPort, DstPort uint16
	Seq, Ack         uint32 // of TCP, as the rest
	Flags            byte
	Options          []byte
	Payload          []byte
}

// Flags of TCP's header.
const (
	FIN = 1
	SYN = 2
	RST = 4
	PSH = 8
	ACK = 16
)

// Lengths and numbers in headers.
const (
	EthernetLen = 14
	ProtoTCP    = 6
	protoUDP    = 17
)

// Proto is the protocol's number.
func (d Datagram) Proto() byte {
	if d.TCP {
		return ProtoTCP
	}
	return protoUDP
}

// L3Len is the length of the network header, bytes.
func (d Datagram) L3Len() int {
	if d.V6 {
		return 40
	}
	return 20
}

// L4Len is the length of the transport's header, bytes.
func (d Datagram) L4Len() int {
	if d.TCP {
		return 20 + len(d.Options)
	}
	return 8
}

// SumOffset is where in the transport's header its checksum is.
func (d Datagram) SumOffset() int {
	if d.TCP {
		return 16
	}
	return 6
}

// Address is an address in the network header: of IPv6, a unique local one (RFC 4193) that ends in the four bytes.
func (d Datagram) Address(a [4]byte) []byte {
	if !d.V6 {
		return a[:]
	}
	return append([]byte{0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, a[:]...)
}

// Partial is the frame with the sum of its pseudo-header, not complemented, where its checksum will be.
func (d Datagram) Partial() []byte {
	be := binary.BigEndian
	length := d.L4Len() + len(d.Payload)
	f := append(append(append([]byte{}, d.To[:]...), d.From[:]...), 0x08, 0)
	if d.V6 {
		f[12], f[13] = 0x86, 0xdd
		f = append(f, 0x60, 0, 0, 0)
		f = be.AppendUint16(f, uint16(length))
		f = append(f, d.Proto(), 64)
		f = append(append(f, d.Address(d.Src)...), d.Address(d.Dst)...)
	} else {
		ip := append([]byte{0x45, 0, 0, 0, 0x12, 0x34, 0, 0, 64, d.Proto(), 0, 0}, d.Src[:]...)
		ip = append(ip, d.Dst[:]...)
		be.PutUint16(ip[2:], uint16(len(ip)+length))
		be.PutUint16(ip[10:], ^Sum16(ip, 0))
		f = append(f, ip...)
	}
	at := len(f)
	f = be.AppendUint16(be.AppendUint16(f, d.SrcPort), d.DstPort)
	if d.TCP {
		f = be.AppendUint32(be.AppendUint32(f, d.Seq), d.Ack)
		f = append(f, byte(d.L4Len()/4)<<4, d.Flags, 0xff, 0xff, 0, 0, 0, 0)
		f = append(f, d.Options...)
	} else {
		f = append(be.AppendUint16(f, uint16(length)), 0, 0)
	}
	be.PutUint16(f[at+d.SumOffset():], d.Pseudo(length))
	return append(f, d.Payload...)
}

// Pseudo is the sum of the pseudo-header, not complemented, with the length of the transport's header and payload.
func (d Datagram) Pseudo(length int) uint16 {
	addresses := append(append([]byte{}, d.Address(d.Src)...), d.Address(d.Dst)...)
	return Sum16(addresses, uint32(d.Proto())+uint32(length))
}

// Whole is the frame as it is on a wire.
func (d Datagram) Whole() []byte {
	f := d.Partial()
	at := EthernetLen + d.L3Len()
	sum := ^Sum16(f[at:], 0)
	if sum == 0 && !d.TCP {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(f[at+d.SumOffset():], sum)
	return f
}

// Vnet is what a frame's header says (struct virtio_net_hdr, little-endian as the machine is).
type Vnet struct {
	Flags, GSO                          byte
	HdrLen, GSOSize, CSumStart, CSumOff uint16
}

// VnetLen is the length of a header, bytes.
const VnetLen = 10

// ParseVnet reads a header.
func ParseVnet(b []byte) Vnet {
	le := binary.LittleEndian
	return Vnet{b[0], b[1], le.Uint16(b[2:]), le.Uint16(b[4:]), le.Uint16(b[6:]), le.Uint16(b[8:])}
}

// Bytes is the header as it lies in front of a frame.
func (v Vnet) Bytes() []byte {
	le := binary.LittleEndian
	b := []byte{v.Flags, v.GSO}
	for _, w := range []uint16{v.HdrLen, v.GSOSize, v.CSumStart, v.CSumOff} {
		b = le.AppendUint16(b, w)
	}
	return b
}

// Header is what Partial needs in front; with an mss it is to be cut.
func (d Datagram) Header(mss int) Vnet {
	v := Vnet{Flags: 1, CSumStart: uint16(EthernetLen + d.L3Len()), CSumOff: uint16(d.SumOffset())}
	if mss > 0 {
		v.GSO, v.GSOSize, v.HdrLen = 1, uint16(mss), uint16(EthernetLen+d.L3Len()+d.L4Len())
		if d.V6 {
			v.GSO = 4
		}
	}
	return v
}

// ParseTCP takes a TCP frame over IPv4 apart, and says what is wrong with it; sum tells whether its checksum is to be right.
func ParseTCP(f []byte, sum bool) (d Datagram, wrong string) {
	be := binary.BigEndian
	if len(f) < EthernetLen+40 || be.Uint16(f[12:]) != 0x0800 || f[14] != 0x45 || f[23] != ProtoTCP {
		return d, "no TCP over IPv4"
	}
	ip := f[EthernetLen:]
	total := int(be.Uint16(ip[2:]))
	if total < 40 || total > len(ip) {
		return d, fmt.Sprintf("an IPv4 packet of %d bytes in a frame of %d", total, len(f))
	}
	tcp := ip[20:total]
	header := int(tcp[12]>>4) * 4
	if header < 20 || header > len(tcp) {
		return d, fmt.Sprintf("a TCP header of %d bytes in %d", header, len(tcp))
	}
	d = Datagram{
		To: [6]byte(f), From: [6]byte(f[6:]), TCP: true, Src: [4]byte(ip[12:]), Dst: [4]byte(ip[16:]), SrcPort: be.Uint16(tcp), DstPort: be.Uint16(tcp[2:]),
		Seq: be.Uint32(tcp[4:]), Ack: be.Uint32(tcp[8:]), Flags: tcp[13], Options: tcp[20:header], Payload: tcp[header:],
	}
	if s := Sum16(ip[:20], 0); s != 0xffff {
		return d, fmt.Sprintf("IPv4's checksum is wrong: %#04x", s)
	}
	if s := Sum16(tcp, uint32(d.Pseudo(len(tcp)))); sum && s != 0xffff {
		return d, fmt.Sprintf("TCP's checksum is wrong, of %d bytes of payload: %#04x", len(d.Payload), s)
	}
	return d, ""
}

// Backwards is a datagram the other way.
func (d Datagram) Backwards() Datagram {
	d.To, d.From, d.Src, d.Dst = d.From, d.To, d.Dst, d.Src
	return d
}

// Kind is the datagram's in words.
func (d Datagram) Kind() string {
	return map[bool]string{true: "TCP", false: "UDP"}[d.TCP] + map[bool]string{true: " over IPv6", false: " over IPv4"}[d.V6]
}

// Difference says where two frames differ.
func Difference(got, want []byte) string {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	return fmt.Sprintf("%d bytes, want %d; they differ from byte %d on: %x, want %x", len(got), len(want), at, got[at:min(len(got), at+16)], want[at:min(len(want), at+16)])
}
