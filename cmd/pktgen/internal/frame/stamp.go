package frame

import (
	"encoding/binary"

	"bare.wire/cmd/pktgen/internal/sig"
	"bare.wire/wire"
)

// Where the fields lie that Stamp writes, in bytes from the start of their header.
const (
	ipv4Check, ipv4Src = 10, 12
	ipv6SrcLow         = 20 // the last four bytes of the source address
	arpSender          = 14
	udpCheck           = 6
	tcpCheck           = 16
	icmpCheck, icmpID  = 2, 4
)

// sums keeps the sums of all that Stamp does not write. The template's changing fields are zero while it does.
func (b *Builder) sums() {
	if b.spec.Proto == ARP {
		return
	}
	t := b.template
	if b.spec.Src.Is6() {
		binary.BigEndian.PutUint32(t[b.l3+ipv6SrcLow:], 0)
	} else {
		binary.BigEndian.PutUint16(t[b.l3+ipv4Check:], 0)
		binary.BigEndian.PutUint32(t[b.l3+ipv4Src:], 0)
		b.ipSum = wire.SumOf(t[b.l3:b.l4])
	}
	b.swap = (len(t)-sig.Size-b.l4)%2 != 0
	switch b.proto() {
	case wire.ProtoICMP:
		b.l4Sum = wire.SumOf(t[b.l4:])
	case wire.ProtoICMPv6:
		b.l4Sum = wire.SumOf(t[b.l4:]).Add(b.pseudo())
	default:
		binary.BigEndian.PutUint16(t[b.l4:], 0) // source port
		b.l4Sum = wire.SumOf(t[b.l4:]).Add(b.pseudo())
	}
}

// pseudo is the sum of the pseudo-header with the source address's last four bytes 0.
func (b *Builder) pseudo() wire.Sum {
	h, n := b.template[b.l3:b.l4], len(b.template)-b.l4
	if b.spec.Src.Is6() {
		return wire.IPv6(h).PseudoSum(b.proto(), n)
	}
	return wire.IPv4(h).PseudoSum(n)
}

// flow gives the source port (or ICMP identifier) and the last four bytes of the source address of frame seq.
func (b *Builder) flow(seq uint64) (port uint16, addr uint32) {
	port, addr = b.spec.SrcPort, b.base
	if b.spec.Proto == ICMP {
		port = 0
	}
	if b.flows == 1 {
		return port, addr
	}
	f := seq % b.flows
	if f < b.perAddr {
		return port + uint16(f), addr
	}
	return port + uint16(f%b.perAddr), addr + uint32(f/b.perAddr)
}

// Stamp makes the frame with running number seq, sent at ns nanoseconds, of a copy of the template: flow, mark, checksums.
// The frame must be Len bytes long. Nothing is allocated.
func (b *Builder) Stamp(frame []byte, seq uint64, ns int64) {
	sig.Put(frame, sig.Signature{Run: b.spec.Run, Stream: b.spec.Stream, Seq: seq, Sent: ns})
	port, addr := b.flow(seq)
	if b.spec.Proto == ARP {
		binary.BigEndian.PutUint32(frame[b.l3+arpSender:], addr)
		return
	}
	addrSum := wire.Sum(addr >> 16).Add(wire.Sum(addr))
	if b.spec.Src.Is6() {
		binary.BigEndian.PutUint32(frame[b.l3+ipv6SrcLow:], addr)
	} else {
		binary.BigEndian.PutUint32(frame[b.l3+ipv4Src:], addr)
		binary.BigEndian.PutUint16(frame[b.l3+ipv4Check:], b.ipSum.Add(addrSum).Checksum())
	}
	mark := wire.SumOf(frame[len(frame)-sig.Size:])
	if b.swap {
		mark = mark.Swap()
	}
	b.stampL4(frame[b.l4:], seq, port, b.l4Sum.Add(mark), addrSum)
}

// stampL4 writes the changing fields of the transport header. sum is of all else that it covers but for the address.
func (b *Builder) stampL4(h []byte, seq uint64, port uint16, sum, addrSum wire.Sum) {
	switch b.spec.Proto {
	case ICMP:
		if b.spec.Src.Is6() { // ICMP for IPv4 has no pseudo-header
			sum = sum.Add(addrSum)
		}
		binary.BigEndian.PutUint16(h[icmpID:], port)
		binary.BigEndian.PutUint16(h[icmpID+2:], uint16(seq))
		sum = sum.Add(wire.Sum(port)).Add(wire.Sum(seq & 0xffff))
		binary.BigEndian.PutUint16(h[icmpCheck:], sum.Checksum())
	case TCP:
		binary.BigEndian.PutUint16(h, port)
		binary.BigEndian.PutUint16(h[tcpCheck:], sum.Add(addrSum).Add(wire.Sum(port)).Checksum())
	default:
		binary.BigEndian.PutUint16(h, port)
		check := sum.Add(addrSum).Add(wire.Sum(port)).Checksum()
		if check == 0 {
			check = 0xffff // 0 would say that there is no checksum (RFC 768)
		}
		binary.BigEndian.PutUint16(h[udpCheck:], check)
	}
}
