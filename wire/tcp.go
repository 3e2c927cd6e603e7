package wire

import "encoding/binary"

// Lengths of the TCP header, in bytes (RFC 9293 §3.1).
const (
	TCPMinLen = 20
	TCPMaxLen = 60 // with 40 bytes of options
)

// TCPFlags are the control bits and, above them, the reserved ones: the low 12
// bits of the word that holds the data offset (RFC 9293 §3.1).
type TCPFlags uint16

// The control bits.
const (
	TCPFin TCPFlags = 1 << iota
	TCPSyn
	TCPRst
	TCPPsh
	TCPAck
	TCPUrg
	TCPEce // RFC 3168 §6.1
	TCPCwr // RFC 3168 §6.1
	TCPAE  // reserved in RFC 9293; NS in RFC 3540, AE in accurate ECN
)

const tcpFlagsMask TCPFlags = 0xfff

// Has reports whether all of f are set.
func (t TCPFlags) Has(f TCPFlags) bool { return t&f == f }

// String is one letter a bit, from FIN up: "FSRPAUECN", set ones only; "." for
// none.
func (t TCPFlags) String() string {
	const letters = "FSRPAUECN"
	var b [len(letters)]byte
	n := 0
	for i := range len(letters) {
		if t&(1<<i) != 0 {
			b[n] = letters[i]
			n++
		}
	}
	if n == 0 {
		return "."
	}
	return string(b[:n])
}

// TCP is the view of a TCP header with its options.
type TCP []byte

// TCPFields is what PutTCP writes.
type TCPFields struct {
	SrcPort, DstPort uint16
	Seq, Ack         uint32
	Flags            TCPFlags
	Window           uint16 // as on the wire, before scaling (RFC 7323 §2.3)
	Urgent           uint16 // counts from Seq; valid with TCPUrg
	Options          []byte // a multiple of 4 bytes, at most 40; copied. See TCPOptions.Put
	Checksum         uint16 // as is; usually 0, and TCP.FillChecksum afterwards
}

// ParseTCP reads the header at the start of b, the payload of an IP packet that
// is no later fragment. Options are inside the header but not looked at: a
// segment with broken ones is still a segment (RFC 9293 §3.1, MUST-7).
func ParseTCP(b []byte) (h TCP, payload []byte, err error) {
	if len(b) < TCPMinLen {
		return nil, nil, errTCPShort
	}
	n := int(b[12]>>4) * 4
	if n < TCPMinLen {
		return nil, nil, errTCPOffset
	}
	if n > len(b) {
		return nil, nil, errTCPOptions
	}
	return TCP(b[:n:n]), b[n:], nil
}

// PutTCP writes a header at the start of room and returns it. The checksum
// covers the payload, which need not be there yet: call FillChecksum when its
// sum is known.
func PutTCP(room []byte, f TCPFields) (TCP, error) {
	n := TCPMinLen + len(f.Options)
	if n > TCPMaxLen || n&3 != 0 {
		return nil, errTCPPutOptions
	}
	if f.Flags > tcpFlagsMask {
		return nil, errTCPPutFlags
	}
	if len(room) < n {
		return nil, errTCPRoom
	}
	h := TCP(room[:n:n])
	h.SetSrcPort(f.SrcPort)
	h.SetDstPort(f.DstPort)
	h.SetSeq(f.Seq)
	h.SetAck(f.Ack)
	binary.BigEndian.PutUint16(h[12:14], uint16(n/4)<<12|uint16(f.Flags))
	h.SetWindow(f.Window)
	h.SetChecksum(f.Checksum)
	h.SetUrgent(f.Urgent)
	putBytes(h[TCPMinLen:], f.Options)
	return h, nil
}

// Fields returns what PutTCP takes to write h. Options lie in h, uncopied.
func (h TCP) Fields() TCPFields {
	return TCPFields{
		SrcPort: h.SrcPort(), DstPort: h.DstPort(), Seq: h.Seq(), Ack: h.Ack(), Flags: h.Flags(),
		Window: h.Window(), Urgent: h.Urgent(), Options: h.Options(), Checksum: h.Checksum(),
	}
}

// SrcPort is the source port.
func (h TCP) SrcPort() uint16 { return binary.BigEndian.Uint16(h[0:2]) }

// DstPort is the destination port.
func (h TCP) DstPort() uint16 { return binary.BigEndian.Uint16(h[2:4]) }

// Seq is SEG.SEQ, the number of the first octet or of the SYN.
func (h TCP) Seq() uint32 { return binary.BigEndian.Uint32(h[4:8]) }

// Ack is SEG.ACK; valid with TCPAck.
func (h TCP) Ack() uint32 { return binary.BigEndian.Uint32(h[8:12]) }

// Flags are the control bits with the reserved ones above.
func (h TCP) Flags() TCPFlags { return TCPFlags(binary.BigEndian.Uint16(h[12:14])) & tcpFlagsMask }

// Window is SEG.WND as on the wire, before scaling.
func (h TCP) Window() uint16 { return binary.BigEndian.Uint16(h[14:16]) }

// Checksum is the checksum as it stands.
func (h TCP) Checksum() uint16 { return binary.BigEndian.Uint16(h[16:18]) }

// Urgent is SEG.UP: added to Seq it names the octet after the urgent data
// (RFC 9293 §3.8.5, MUST-62); valid with TCPUrg.
func (h TCP) Urgent() uint16 { return binary.BigEndian.Uint16(h[18:20]) }

// Options are the bytes between the fixed header and the payload. ParseTCPOptions
// reads the known ones, OptionIter walks over all.
func (h TCP) Options() []byte { return h[TCPMinLen:] }

// SetSrcPort writes the source port. As for all setters, the checksum is the
// caller's to update: UpdateChecksum or FillChecksum.
func (h TCP) SetSrcPort(p uint16) { binary.BigEndian.PutUint16(h[0:2], p) }

// SetDstPort writes the destination port.
func (h TCP) SetDstPort(p uint16) { binary.BigEndian.PutUint16(h[2:4], p) }

// SetSeq writes the sequence number.
func (h TCP) SetSeq(v uint32) { binary.BigEndian.PutUint32(h[4:8], v) }

// SetAck writes the acknowledgment number.
func (h TCP) SetAck(v uint32) { binary.BigEndian.PutUint32(h[8:12], v) }

// SetFlags writes the low 12 bits of f.
func (h TCP) SetFlags(f TCPFlags) {
	binary.BigEndian.PutUint16(h[12:14], uint16(h[12]>>4)<<12|uint16(f&tcpFlagsMask))
}

// SetWindow writes the window as on the wire.
func (h TCP) SetWindow(v uint16) { binary.BigEndian.PutUint16(h[14:16], v) }

// SetChecksum writes the checksum.
func (h TCP) SetChecksum(v uint16) { binary.BigEndian.PutUint16(h[16:18], v) }

// SetUrgent writes the urgent pointer.
func (h TCP) SetUrgent(v uint16) { binary.BigEndian.PutUint16(h[18:20], v) }

// FillChecksum computes and writes the checksum from the sums of the
// pseudo-header and of the payload (RFC 9293 §3.1).
func (h TCP) FillChecksum(pseudo, payload Sum) {
	h.SetChecksum(0)
	h.SetChecksum(SumOf(h).Add(pseudo).Add(payload).Checksum())
}

// ChecksumOK verifies the checksum.
func (h TCP) ChecksumOK(pseudo, payload Sum) bool {
	return SumOf(h).Add(pseudo).Add(payload).OK()
}
