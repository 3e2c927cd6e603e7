package wire

import "encoding/binary"

// ARPLen is the length of an ARP packet for IPv4 over Ethernet, in bytes.
const ARPLen = 28

// ARPOp is the operation of an ARP packet (RFC 826).
type ARPOp uint16

// The operations in use.
const (
	ARPRequest ARPOp = 1
	ARPReply   ARPOp = 2
)

// arpPrefix is hardware type Ethernet, protocol type IPv4, lengths 6 and 4: the
// only combination that this package reads (RFC 826).
const arpPrefix uint64 = 0x0001_0800_06_04

// ARP is the view of an ARP packet for IPv4 over Ethernet (RFC 826).
type ARP []byte

// ARPFields is what PutARP writes. A probe for an address conflict has a zero
// SenderIP (RFC 5227 §2.1.1); a request leaves TargetMAC zero.
type ARPFields struct {
	Op                   ARPOp
	SenderMAC, TargetMAC MAC
	SenderIP, TargetIP   [4]byte
}

// ParseARP reads the packet at the start of b. Other hardware or protocol types
// give errors.ErrUnsupported. The payload is what follows, normally padding.
func ParseARP(b []byte) (p ARP, payload []byte, err error) {
	if len(b) < ARPLen {
		return nil, nil, errARPShort
	}
	if binary.BigEndian.Uint64(b)>>16 != arpPrefix {
		return nil, nil, errARPKind
	}
	return ARP(b[:ARPLen:ARPLen]), b[ARPLen:], nil
}

// PutARP writes a packet at the start of room and returns it.
func PutARP(room []byte, f ARPFields) (ARP, error) {
	if len(room) < ARPLen {
		return nil, errARPRoom
	}
	p := ARP(room[:ARPLen:ARPLen])
	binary.BigEndian.PutUint64(p, arpPrefix<<16|uint64(f.Op))
	p.SetSenderMAC(f.SenderMAC)
	p.SetSenderIP(f.SenderIP)
	p.SetTargetMAC(f.TargetMAC)
	p.SetTargetIP(f.TargetIP)
	return p, nil
}

// Fields returns what PutARP takes to write p.
func (p ARP) Fields() ARPFields {
	return ARPFields{
		Op:        p.Op(),
		SenderMAC: p.SenderMAC(), SenderIP: p.SenderIP(),
		TargetMAC: p.TargetMAC(), TargetIP: p.TargetIP(),
	}
}

// Op is the operation, ar$op.
func (p ARP) Op() ARPOp { return ARPOp(binary.BigEndian.Uint16(p[6:8])) }

// SenderMAC is ar$sha.
func (p ARP) SenderMAC() MAC { return MAC(p[8:14]) }

// SenderIP is ar$spa.
func (p ARP) SenderIP() [4]byte { return [4]byte(p[14:18]) }

// TargetMAC is ar$tha; it has no meaning in a request.
func (p ARP) TargetMAC() MAC { return MAC(p[18:24]) }

// TargetIP is ar$tpa.
func (p ARP) TargetIP() [4]byte { return [4]byte(p[24:28]) }

// SetOp writes the operation.
func (p ARP) SetOp(op ARPOp) { binary.BigEndian.PutUint16(p[6:8], uint16(op)) }

// SetSenderMAC writes ar$sha.
func (p ARP) SetSenderMAC(m MAC) { *(*MAC)(p[8:14]) = m }

// SetSenderIP writes ar$spa.
func (p ARP) SetSenderIP(a [4]byte) { *(*[4]byte)(p[14:18]) = a }

// SetTargetMAC writes ar$tha.
func (p ARP) SetTargetMAC(m MAC) { *(*MAC)(p[18:24]) = m }

// SetTargetIP writes ar$tpa.
func (p ARP) SetTargetIP(a [4]byte) { *(*[4]byte)(p[24:28]) = a }
