package nic82599

import (
	"encoding/binary"
	"hash/crc32"

	"bare.wire/ixgbe/reg"
	"bare.wire/sim/offload"
)

// packet is what the card's parser finds in a frame, as far as descriptors and RSS need it.
type packet struct {
	ptype  uint64 // packet type bits of the descriptor's first word
	status uint64 // checksum status and error bits of the second
	addr   []byte // source and destination address, 8 or 32 bytes; nil: not IP
	ports  []byte // source and destination port, 4 bytes; nil: not TCP or UDP, or a fragment
	tcp    bool
	ipID   uint16
}

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86DD
	etherMAC  = 0x8808 // MAC control: pause

	protoTCP  = 6
	protoUDP  = 17
	protoSCTP = 132
)

func be16(b []byte) uint16 { return binary.BigEndian.Uint16(b) }

// parse reads a frame, which is at least 14 bytes long. Anything that does not parse is a packet of no type.
func (p *packet) parse(f []byte, vet uint16) {
	*p = packet{}
	off := 12
	if et := be16(f[off:]); et == vet && len(f) >= 18 {
		off += 4
	}
	switch b := f[off+2:]; be16(f[off:]) {
	case etherIPv4:
		p.parseIPv4(b)
	case etherIPv6:
		p.parseIPv6(b)
	}
}

func (p *packet) parseIPv4(b []byte) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return
	}
	ihl, total := int(b[0]&15)*4, int(be16(b[2:]))
	if ihl < 20 || ihl > len(b) || total < ihl || total > len(b) {
		return
	}
	p.ptype = reg.RXD_PT_IPV4
	if ihl > 20 {
		p.ptype |= reg.RXD_PT_IPV4_OPTS
	}
	p.addr, p.ipID = b[12:20], be16(b[4:])
	p.status = reg.RXD_IPCS
	if offload.Sum(b[:ihl], 0) != 0xFFFF {
		p.status |= reg.RXD_IPE
	}
	if be16(b[6:])&0x3FFF != 0 { // a fragment
		return
	}
	p.parseL4(b[9], b[ihl:total], offload.Sum(b[12:20], uint64(b[9])))
}

func (p *packet) parseIPv6(b []byte) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return
	}
	n := int(be16(b[4:]))
	if 40+n > len(b) {
		return
	}
	p.ptype = reg.RXD_PT_IPV6
	p.addr = b[8:40]
	next, rest := b[6], b[40:40+n]
	for next == 0 || next == 43 || next == 60 || next == 44 { // hop by hop, routing, destination, fragment
		p.ptype |= reg.RXD_PT_IPV6_EXT
		if next == 44 || len(rest) < 8 {
			return
		}
		size := int(rest[1])*8 + 8
		if size > len(rest) {
			return
		}
		next, rest = rest[0], rest[size:]
	}
	p.parseL4(next, rest, offload.Sum(b[8:40], uint64(next)))
}

// parseL4 reads what IP carries; pseudo is the sum of the pseudo header without the length.
func (p *packet) parseL4(proto byte, b []byte, pseudo uint64) {
	switch {
	case proto == protoTCP && len(b) >= 20:
		p.ptype |= reg.RXD_PT_TCP
		p.ports, p.tcp = b[:4], true
		p.checkL4(offload.Sum(b, pseudo+uint64(len(b))))
	case proto == protoUDP && len(b) >= 8:
		p.ptype |= reg.RXD_PT_UDP
		p.ports = b[:4]
		if n := int(be16(b[4:])); n >= 8 && n <= len(b) {
			b = b[:n]
		}
		if b[6]|b[7] != 0 {
			p.status |= reg.RXD_UDPV
			p.checkL4(offload.Sum(b, pseudo+uint64(len(b))))
		} else {
			// No checksum. The silicon may call it a bad one (DPDK, 9a40edb599), and so does the model.
			p.status |= reg.RXD_L4CS | reg.RXD_L4E
		}
	case proto == protoSCTP && len(b) >= 12:
		p.ptype |= reg.RXD_PT_SCTP
		p.status |= reg.RXD_L4CS
		if !goodSCTP(b) {
			p.status |= reg.RXD_L4E
		}
	}
}

// goodSCTP checks the CRC of an SCTP packet.
func goodSCTP(b []byte) bool {
	var zero [4]byte
	h := crc32.Update(0, castagnoli, b[:8])
	h = crc32.Update(h, castagnoli, zero[:])
	return crc32.Update(h, castagnoli, b[12:]) == binary.LittleEndian.Uint32(b[8:])
}

func (p *packet) checkL4(s uint64) {
	p.status |= reg.RXD_L4CS
	if s != 0xFFFF {
		p.status |= reg.RXD_L4E
	}
}
