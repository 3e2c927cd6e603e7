//go:build guest

package linux

import (
	"encoding/binary"
	"net/netip"

	"bare.wire/test/judges/internal/frames"
)

const (
	vlanID    = 0x123 // its bytes are not the same either way round
	etherVLAN = 0x8100
	etherIPv4 = 0x0800
	etherARP  = 0x0806
)

// vlanReply is the answer of a host in the VLAN to a frame: to ARP requests, and to UDP what it has sent. Frames with
// another tag get none.
func vlanReply(f []byte) []byte {
	be := binary.BigEndian
	if len(f) < 46 || be.Uint16(f[12:]) != etherVLAN || be.Uint16(f[14:]) != vlanID {
		return nil
	}
	r := append([]byte{}, f...)
	copy(r[0:6], f[6:12])
	copy(r[6:12], hostMAC)
	p := r[18:]
	switch be.Uint16(f[16:]) {
	case etherARP:
		if be.Uint16(p[6:]) != 1 || netip.AddrFrom4([4]byte(p[24:28])) != vlanHost {
			return nil
		}
		p[7] = 2
		copy(p[18:28], p[8:18]) // sender becomes target
		copy(p[8:14], hostMAC)
		a := vlanHost.As4()
		copy(p[14:18], a[:])
		return r
	case etherIPv4:
		if len(p) < 28 || p[0] != 0x45 || p[9] != 17 || netip.AddrFrom4([4]byte(p[16:20])) != vlanHost {
			return nil
		}
		// Exchanging addresses and ports changes no sum.
		copy(p[12:16], f[18+16:18+20])
		copy(p[16:20], f[18+12:18+16])
		copy(p[20:22], f[18+22:18+24])
		copy(p[22:24], f[18+20:18+22])
		return r
	}
	return nil
}

// segments is what the data segments of the guest's TCP streams looked like on the wire.
type segments struct {
	Data     int // how many there were
	Full     int // with as many bytes as any had
	Largest  int // of payload
	SameID   int // with the IP id of the one before
	PushFull int // of full size, with PSH or FIN
	lastID   uint16
}

func (s *segments) look(f []byte) {
	be := binary.BigEndian
	if len(f) < 54 || be.Uint16(f[12:]) != etherIPv4 || f[14] != 0x45 || f[23] != 6 {
		return
	}
	ip, tcp := f[14:], f[34:]
	n := int(be.Uint16(ip[2:])) - 20 - int(tcp[12]>>4)*4
	if n <= 0 || be.Uint16(tcp[2:]) != portStream {
		return
	}
	id := be.Uint16(ip[4:])
	if s.Data > 0 && id == s.lastID {
		s.SameID++
	}
	s.lastID = id
	s.Data++
	switch {
	case n > s.Largest:
		s.Largest, s.Full, s.PushFull = n, 1, 0
	case n == s.Largest:
		s.Full++
	}
	if n == s.Largest && tcp[13]&0x09 != 0 {
		s.PushFull++
	}
}

// ipv4 is a frame with an IPv4 packet of a protocol of its own, or UDP with the ports as they are in payload.
func ipv4(dst, src [6]byte, from, to netip.Addr, proto byte, payload []byte) []byte {
	be := binary.BigEndian
	f := append(append(append([]byte{}, dst[:]...), src[:]...), etherIPv4>>8, etherIPv4&0xff)
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 0x45, 64, proto
	be.PutUint16(ip[2:], uint16(20+len(payload)))
	a, b := from.As4(), to.As4()
	copy(ip[12:], a[:])
	copy(ip[16:], b[:])
	be.PutUint16(ip[10:], ^frames.Sum16(ip, 0))
	f = append(append(f, ip...), payload...)
	for len(f) < 60 {
		f = append(f, 0)
	}
	return f
}

// udp is a UDP datagram for ipv4, with a checksum that is off by the last argument.
func udp(from, to netip.AddrPort, data []byte, off uint16) []byte {
	be := binary.BigEndian
	b := make([]byte, 8, 8+len(data))
	be.PutUint16(b[0:], from.Port())
	be.PutUint16(b[2:], to.Port())
	be.PutUint16(b[4:], uint16(8+len(data)))
	b = append(b, data...)
	x, y := from.Addr().As4(), to.Addr().As4()
	pseudo := append(append(append([]byte{}, x[:]...), y[:]...), 0, 17, b[4], b[5])
	be.PutUint16(b[6:], ^frames.Sum16(b, uint32(frames.Sum16(pseudo, 0)))+off)
	return b
}

// pauseFrame asks for silence (IEEE 802.3 annex 31B), or, with 0, for it to end.
func pauseFrame(quanta uint16) []byte {
	f := append([]byte{0x01, 0x80, 0xc2, 0, 0, 1}, hostMAC...)
	f = append(f, 0x88, 0x08, 0, 1, byte(quanta>>8), byte(quanta))
	return append(f, make([]byte, 60-len(f))...)
}
