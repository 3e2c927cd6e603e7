package nictest

import (
	"encoding/binary"

	"bare.wire/nic"
)

// etherTest is an EtherType for experiments (IEEE 802): no card does anything special with it.
const etherTest = 0x88B5

var broadcastMAC = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// header lays an Ethernet header out at the start of a new frame of n bytes.
func header(n int, dst, src [6]byte, etherType uint16) []byte {
	f := append(append(make([]byte, 0, max(n, minSend)), dst[:]...), src[:]...)
	f = binary.BigEndian.AppendUint16(f, etherType)
	return f[:max(n, minSend)]
}

// to makes frames of n bytes for port p, no two alike in their bytes as far as they have room.
func (r *run) to(p nic.Port, n int) []byte { return r.frame(p.Info().MAC, n) }

func (r *run) frame(dst [6]byte, n int) []byte {
	f := header(n, dst, [6]byte{2, 0xaa, 0xbb, 0xcc, 0xdd, 1}, etherTest)
	r.fill(f[minSend:])
	return f[:n]
}

// fill writes the running number and then bytes that depend on it.
func (r *run) fill(b []byte) {
	r.seq++
	x := r.seq
	for i := range b {
		if i < 4 {
			b[i] = byte(r.seq >> (24 - 8*i))
			continue
		}
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
}

// frames makes k frames of n bytes for p.
func (r *run) frames(p nic.Port, k, n int) [][]byte {
	out := make([][]byte, k)
	for i := range out {
		out[i] = r.to(p, n)
	}
	return out
}

// flow is the addresses and ports of a UDP or TCP flow.
type flow struct {
	v6         bool
	proto      uint8
	src, dst   [16]byte // IPv4 in the first four bytes
	sport, dpt uint16
}

const (
	protoTCP = 6
	protoUDP = 17
)

// makeFlow is the i-th of many flows.
func makeFlow(i int, v6 bool, proto uint8) flow {
	f := flow{v6: v6, proto: proto, sport: uint16(1024 + 7*i), dpt: uint16(2000 + i%13)}
	x := uint64(i)*0x9E3779B97F4A7C15 + 1
	for k := range f.src {
		x ^= x >> 12
		x ^= x << 25
		x ^= x >> 27
		f.src[k], f.dst[k] = byte(x*0x2545F4914F6CDD1D>>56), byte(x>>32)
	}
	f.src[0], f.dst[0] = 10, 10
	if v6 {
		f.src[0], f.dst[0] = 0xfd, 0xfd
	}
	return f
}

// input is what the RSS hash of the flow is computed over, with or without ports.
func (f flow) input(ports bool) []byte {
	n := 4
	if f.v6 {
		n = 16
	}
	in := append(append(make([]byte, 0, 36), f.src[:n]...), f.dst[:n]...)
	if ports {
		in = binary.BigEndian.AppendUint16(in, f.sport)
		in = binary.BigEndian.AppendUint16(in, f.dpt)
	}
	return in
}

// packet is a frame of the flow for p: 14 + 20 or 40 + 20 or 8 + data bytes, with right checksums for IPv4 and none for UDP.
func (r *run) packet(p nic.Port, f flow, data int) []byte {
	l4 := 20
	if f.proto == protoUDP {
		l4 = 8
	}
	l4 += data
	l3, et := 20, uint16(0x0800)
	if f.v6 {
		l3, et = 40, 0x86DD
	}
	b := header(minSend+l3+l4, p.Info().MAC, [6]byte{2, 0xaa, 0xbb, 0xcc, 0xdd, 1}, et)
	ip := b[minSend:]
	if f.v6 {
		f.putIPv6(ip, l4)
	} else {
		f.putIPv4(ip, l3+l4)
	}
	t := ip[l3:]
	binary.BigEndian.PutUint16(t, f.sport)
	binary.BigEndian.PutUint16(t[2:], f.dpt)
	if f.proto == protoUDP {
		binary.BigEndian.PutUint16(t[4:], uint16(l4))
	} else {
		t[12] = 5 << 4
	}
	r.fill(t[l4-data:])
	return b
}

func (f flow) putIPv4(ip []byte, total int) {
	ip[0], ip[8], ip[9] = 0x45, 64, f.proto
	binary.BigEndian.PutUint16(ip[2:], uint16(total))
	for i := range 4 {
		ip[12+i], ip[16+i] = f.src[i], f.dst[i]
	}
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
}

func (f flow) putIPv6(ip []byte, payload int) {
	ip[0], ip[6], ip[7] = 0x60, f.proto, 64
	binary.BigEndian.PutUint16(ip[4:], uint16(payload))
	for i := range 16 {
		ip[8+i], ip[24+i] = f.src[i], f.dst[i]
	}
}

// tagged is a frame for dst with an 802.1Q tag.
func (r *run) tagged(dst [6]byte, tci uint16, n int) []byte {
	f := header(n, dst, [6]byte{2, 0xaa, 0xbb, 0xcc, 0xdd, 1}, 0x8100)
	binary.BigEndian.PutUint16(f[14:], tci)
	binary.BigEndian.PutUint16(f[16:], etherTest)
	r.fill(f[18:])
	return f
}
