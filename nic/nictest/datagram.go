package nictest

import (
	"encoding/binary"
	"slices"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/wire"
)

// datagram is a TCP or UDP datagram in a frame, as its fields. Package wire makes of them the bytes that have to come out of
// a card which was asked to finish them.
type datagram struct {
	dst       [6]byte
	tci       uint16 // of an 802.1Q tag in the frame; 0: no tag
	v6, udp   bool
	options   int // bytes of IPv4 options, or of a destination options header
	tcpOption int // bytes of TCP options
	id        uint16
	seq       uint32
	flags     wire.TCPFlags
	payload   []byte
}

var (
	src4, dst4 = [4]byte{192, 0, 2, 1}, [4]byte{198, 51, 100, 7}
	src6, dst6 = [16]byte{0x20, 1, 0xd, 0xb8, 15: 1}, [16]byte{0x20, 1, 0xd, 0xb8, 0xff, 0xff, 15: 7}
)

// lens are the lengths of the headers, bytes.
func (d *datagram) lens() (l2, l3, l4 int) {
	l2, l3, l4 = wire.EthernetLen, wire.IPv4MinLen+d.options, wire.TCPMinLen+d.tcpOption
	if d.tci != 0 {
		l2 += 4
	}
	if d.v6 {
		l3 = wire.IPv6Len + d.options
	}
	if d.udp {
		l4 = wire.UDPLen
	}
	return l2, l3, l4
}

func (d *datagram) headers() int {
	l2, l3, l4 := d.lens()
	return l2 + l3 + l4
}

// sumAt is where the L4 checksum is in the frame.
func (d *datagram) sumAt() int {
	l2, l3, _ := d.lens()
	if d.udp {
		return l2 + l3 + 6
	}
	return l2 + l3 + 16
}

func (d *datagram) proto() wire.Proto {
	if d.udp {
		return wire.ProtoUDP
	}
	return wire.ProtoTCP
}

// pseudo is the sum of the pseudo-header.
func (d *datagram) pseudo() wire.Sum {
	_, _, l4 := d.lens()
	if d.v6 {
		return wire.PseudoIPv6(src6, dst6, d.proto(), l4+len(d.payload))
	}
	return wire.PseudoIPv4(src4, dst4, d.proto(), l4+len(d.payload))
}

// bytes returns the frame with right checksums. Lengths that a header has no room for are 0, as nobody reads them.
func (d *datagram) bytes(r *run) []byte {
	r.Helper()
	f := make([]byte, d.headers(), d.headers()+len(d.payload))
	l2, l3, l4 := d.lens()
	err := d.putL2(f)
	if err == nil {
		err = d.putL3(f[l2:], l4+len(d.payload))
	}
	if err == nil {
		err = d.putL4(f[l2+l3:])
	}
	if err != nil {
		r.Fatalf("build a datagram: %v", err)
	}
	return append(f, d.payload...)
}

func (d *datagram) putL2(f []byte) error {
	et := wire.EtherTypeIPv4
	if d.v6 {
		et = wire.EtherTypeIPv6
	}
	e := wire.EthernetFields{Dst: d.dst, Src: [6]byte{2, 0xaa, 0xbb, 0xcc, 0xdd, 1}, Type: et}
	if d.tci != 0 {
		e.Type = wire.EtherTypeVLAN
		if _, err := wire.PutVLAN(f[wire.EthernetLen:], wire.VLANFields{TCI: wire.TCI(d.tci), Type: et}); err != nil {
			return err
		}
	}
	_, err := wire.PutEthernet(f, e)
	return err
}

func (d *datagram) putL3(f []byte, n int) error {
	if !d.v6 {
		if n+wire.IPv4MinLen+d.options > 0xffff {
			n = 0
		}
		_, err := wire.PutIPv4(f, wire.IPv4Fields{
			ID: d.id, TTL: 64, Proto: d.proto(), Src: src4, Dst: dst4, Options: slices.Repeat([]byte{1}, d.options), PayloadLen: n,
		})
		return err
	}
	if n += d.options; n > 0xffff {
		n = 0
	}
	h := wire.IPv6Fields{NextHeader: d.proto(), HopLimit: 64, Src: src6, Dst: dst6, PayloadLen: n}
	if d.options > 0 { // padding alone: PadN (RFC 8200 §4.2)
		h.NextHeader = wire.ProtoDestOptions
		ext := f[wire.IPv6Len:]
		ext[0], ext[1], ext[2], ext[3] = byte(d.proto()), byte(d.options/8-1), 1, byte(d.options-4)
	}
	_, err := wire.PutIPv6(f, h)
	return err
}

func (d *datagram) putL4(f []byte) error {
	if d.udp {
		h, err := wire.PutUDP(f, wire.UDPFields{SrcPort: 4000, DstPort: 53, PayloadLen: len(d.payload)})
		if err == nil {
			h.FillChecksum(d.pseudo(), wire.SumOf(d.payload))
		}
		return err
	}
	h, err := wire.PutTCP(f, wire.TCPFields{
		SrcPort: 4000, DstPort: 80, Seq: d.seq, Ack: 0x01020304, Flags: d.flags, Window: 0x7fff, Options: slices.Repeat([]byte{1}, d.tcpOption),
	})
	if err == nil {
		h.FillChecksum(d.pseudo(), wire.SumOf(d.payload))
	}
	return err
}

// cut returns the frames that have to come of a datagram that is cut into segments of mss bytes (RFC 9293 §3.7.1 and what
// package nic says of ids and flags), each built from its fields.
func (d *datagram) cut(r *run, mss int) (frames [][]byte) {
	for off, rest := 0, d.payload; len(rest) > 0; off += mss {
		s := *d
		s.payload = rest[:min(mss, len(rest))]
		rest = rest[len(s.payload):]
		s.id += uint16(len(frames))
		s.seq += uint32(off)
		if len(rest) > 0 {
			s.flags &^= wire.TCPFin | wire.TCPPsh
		}
		if off > 0 {
			s.flags &^= wire.TCPCwr
		}
		frames = append(frames, s.bytes(r))
	}
	return frames
}

// ask puts a datagram into buffers of p, in pieces of lens (nil: one) behind its headers, which are in the first, as somebody
// leaves it who wants the card to do what flags say.
func (r *run) ask(p *mbuf.Pool, d *datagram, flags mbuf.TxFlags, mss int, lens ...int) *mbuf.Buf {
	r.Helper()
	f := d.bytes(r)
	l2, l3, l4 := d.lens()
	if flags&mbuf.TxIPSum != 0 || flags&mbuf.TxTSO != 0 && !d.v6 {
		binary.BigEndian.PutUint16(f[l2+10:], 0xdead) // whatever is there
	}
	if flags&(mbuf.TxL4Sum|mbuf.TxTSO) != 0 {
		binary.BigEndian.PutUint16(f[d.sumAt():], uint16(d.pseudo()))
	}
	if d.v6 {
		flags |= mbuf.TxIPv6
	}
	if d.udp {
		flags |= mbuf.TxUDP
	}
	b := r.build(p, f, lens...)
	b.SetTxFlags(flags)
	b.L2Len, b.L3Len, b.L4Len, b.MSS = uint8(l2), uint16(l3), uint8(l4), uint16(mss)
	return b
}

// can says whether port p has all of these offloads; if not, the log has what is not looked at.
func (r *run) can(p nic.Port, o nic.Offload, what string) bool {
	if p.Info().Offloads&o == o {
		return true
	}
	r.cannot(what)
	return false
}

// sums are the checksums that port p can be asked to put in, as what it is started with and what a frame asks for.
func (r *run) sums(p nic.Port) (o nic.Offload, flags mbuf.TxFlags) {
	o = p.Info().Offloads & (nic.TxIPChecksum | nic.TxL4Checksum)
	if o&nic.TxIPChecksum != 0 {
		flags |= mbuf.TxIPSum
	}
	if o&nic.TxL4Checksum != 0 {
		flags |= mbuf.TxL4Sum
	}
	return o, flags
}

// cannot tells the log what this bench cannot do and the test does not look at.
func (r *run) cannot(what string) { r.Logf("not looked at, as this bench cannot do it: %s", what) }

// data makes n bytes of payload, no two alike.
func (r *run) data(n int) []byte {
	b := make([]byte, n)
	r.fill(b)
	return b
}
