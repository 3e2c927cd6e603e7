package wire

import "encoding/binary"

// UDPLen is the length of a UDP header, in bytes (RFC 768).
const UDPLen = 8

// UDP is the view of a UDP header.
type UDP []byte

// UDPFields is what PutUDP writes.
type UDPFields struct {
	SrcPort, DstPort uint16
	PayloadLen       int    // bytes after this header
	Checksum         uint16 // as is; usually 0, and UDP.FillChecksum afterwards
}

// ParseUDP reads the header at the start of b, the payload of an IP packet. The
// payload ends where the datagram does, which may be before the packet does.
// Length 0, which jumbograms use, is an error.
func ParseUDP(b []byte) (h UDP, payload []byte, err error) {
	if len(b) < UDPLen {
		return nil, nil, errUDPShort
	}
	h = UDP(b[:UDPLen:UDPLen])
	n := h.Length()
	if n < UDPLen {
		return nil, nil, errUDPLow
	}
	if n > len(b) {
		return nil, nil, errUDPLength
	}
	return h, b[UDPLen:n:n], nil
}

// PutUDP writes a header at the start of room and returns it. The checksum
// covers the payload, which need not be there yet: call FillChecksum when its
// sum is known.
func PutUDP(room []byte, f UDPFields) (UDP, error) {
	if f.PayloadLen < 0 || f.PayloadLen > 0xffff-UDPLen {
		return nil, errUDPPutLength
	}
	if len(room) < UDPLen {
		return nil, errUDPRoom
	}
	h := UDP(room[:UDPLen:UDPLen])
	h.SetSrcPort(f.SrcPort)
	h.SetDstPort(f.DstPort)
	h.SetLength(uint16(UDPLen + f.PayloadLen))
	h.SetChecksum(f.Checksum)
	return h, nil
}

// Fields returns what PutUDP takes to write h.
func (h UDP) Fields() UDPFields {
	return UDPFields{
		SrcPort: h.SrcPort(), DstPort: h.DstPort(),
		PayloadLen: h.Length() - UDPLen, Checksum: h.Checksum(),
	}
}

// SrcPort is the source port; 0 when no answer is wanted.
func (h UDP) SrcPort() uint16 { return binary.BigEndian.Uint16(h[0:2]) }

// DstPort is the destination port.
func (h UDP) DstPort() uint16 { return binary.BigEndian.Uint16(h[2:4]) }

// Length is that of header and payload, in bytes.
func (h UDP) Length() int { return int(binary.BigEndian.Uint16(h[4:6])) }

// Checksum is the checksum as it stands; 0 says that there is none.
func (h UDP) Checksum() uint16 { return binary.BigEndian.Uint16(h[6:8]) }

// SetSrcPort writes the source port.
func (h UDP) SetSrcPort(p uint16) { binary.BigEndian.PutUint16(h[0:2], p) }

// SetDstPort writes the destination port.
func (h UDP) SetDstPort(p uint16) { binary.BigEndian.PutUint16(h[2:4], p) }

// SetLength writes the length of header and payload, in bytes.
func (h UDP) SetLength(n uint16) { binary.BigEndian.PutUint16(h[4:6], n) }

// SetChecksum writes the checksum.
func (h UDP) SetChecksum(v uint16) { binary.BigEndian.PutUint16(h[6:8], v) }

// FillChecksum computes and writes the checksum from the sums of the
// pseudo-header and of the payload. A result of 0 is written 0xffff (RFC 768).
func (h UDP) FillChecksum(pseudo, payload Sum) {
	h.SetChecksum(0)
	h.SetChecksum(udpNonzero(SumOf(h).Add(pseudo).Add(payload).Checksum()))
}

// HasChecksum reports whether the sender computed one. IPv4 accepts datagrams
// without (RFC 1122 §4.1.3.4), IPv6 discards them (RFC 8200 §8.1).
func (h UDP) HasChecksum() bool { return h.Checksum() != 0 }

// ChecksumOK reports whether there is a checksum and it is right.
func (h UDP) ChecksumOK(pseudo, payload Sum) bool {
	return h.HasChecksum() && SumOf(h).Add(pseudo).Add(payload).OK()
}

// QuotedPorts reads the source and destination port of a TCP or UDP header that
// an ICMP error quotes, of which only the first 8 bytes may be there.
func QuotedPorts(b []byte) (src, dst uint16, err error) {
	if len(b) < 4 {
		return 0, 0, errPortsShort
	}
	return binary.BigEndian.Uint16(b[0:2]), binary.BigEndian.Uint16(b[2:4]), nil
}
