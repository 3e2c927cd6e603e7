package nic82599

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"bare.wire/ixgbe/reg"
)

// putContext writes a context descriptor, index 0.
func (d *mini) putContext(macLen, ipLen, l4Len, mss int, l4 uint64, ipv4 bool) {
	w1 := uint64(2<<20) | reg.TXD_DEXT | l4<<11 | uint64(l4Len)<<40 | uint64(mss)<<48
	if ipv4 {
		w1 |= reg.TXC_IPV4
	}
	d.putTx(uint64(ipLen)|uint64(macLen)<<9|0x2044<<16, w1)
}

// putFrame writes a frame with flags at the tail and rings.
func (d *mini) putFrame(f []byte, payLen int, flags uint64) {
	tx := d.tx[0]
	i := tx.tail
	copy(tx.buf[i], f)
	tx.last = append(tx.last, i)
	d.putTx(tx.bus[i], txWords(len(f), payLen, true, true)|flags|reg.TXD_CC)
	d.ring()
}

// pseudo puts the sum of the pseudo header into the checksum field of an IP frame without tag, as a driver does: with the
// length of what IP carries, or, for segmentation, without.
func pseudo(f []byte, withLength bool) {
	proto, addr, off := f[23], f[26:34], 34
	if f[12] == 0x86 {
		proto, addr, off = f[20], f[22:54], 54
	} else {
		f[24], f[25] = 0, 0
	}
	n := 0
	if withLength {
		n = len(f) - off
	}
	at := off + 16
	if proto == protoUDP {
		at = off + 6
	}
	b := append(append([]byte{}, addr...), 0, proto, byte(n>>8), byte(n))
	binary.BigEndian.PutUint16(f[at:], slowSum(b))
}

var offloadPairs = [][2]netip.AddrPort{
	{netip.MustParseAddrPort("10.0.0.1:1000"), netip.MustParseAddrPort("10.0.0.2:2000")},
	{netip.MustParseAddrPort("[2001:db8::1]:1000"), netip.MustParseAddrPort("[2001:db8::2]:2000")},
}

func TestChecksumsAreInserted(t *testing.T) {
	for _, pair := range offloadPairs {
		for proto, l4 := range map[byte]uint64{protoTCP: l4TCP, protoUDP: l4UDP} {
			for _, n := range []int{0, 1, 700, 1401} {
				r := newRig(t, 3, miniOptions{}, nil)
				r.start()
				want := ipFrame(pair[0], pair[1], proto, n)
				f := bytes.Clone(want)
				pseudo(f, true)
				ipLen := 20
				if pair[0].Addr().Is6() {
					ipLen = 40
				}
				r.a.putContext(14, ipLen, 0, 0, l4, ipLen == 20)
				r.a.putFrame(f, len(f), reg.TXD_IXSM|reg.TXD_TXSM)
				r.b.expect(0, padded(want))
				if !bytes.Equal(r.a.tx[0].buf[1][:len(f)], f) {
					t.Error("the card has changed the driver's memory")
				}
				r.clean()
			}
		}
	}
}

func TestTCPIsCutIntoSegments(t *testing.T) {
	const mss = 1000
	for _, pair := range offloadPairs {
		r := newRig(t, 3, miniOptions{jumbo: true, vme: true}, nil)
		r.start()
		f := ipFrame(pair[0], pair[1], protoTCP, 3*mss+123)
		off, ipLen := 34, 20
		if pair[0].Addr().Is6() {
			off, ipLen = 54, 40
		}
		hdr := off + 20
		payload := f[hdr:]
		binary.BigEndian.PutUint32(f[off+4:], 0xFFFFFF00) // wraps
		f[off+13] = 0x80 | 0x10 | 0x08 | 0x01             // CWR, ACK, PSH, FIN
		if ipLen == 20 {
			f[18], f[19] = 0xFF, 0xFE // IP id, wraps
		}
		pseudo(f, false)
		r.a.putContext(14, ipLen, 20, mss, l4TCP, ipLen == 20)
		r.a.putFrame(f, len(payload), reg.TXD_TSE|reg.TXD_IXSM|reg.TXD_TXSM|reg.TXD_VLE)
		flags := []byte{0x90, 0x10, 0x10, 0x19}
		for i := range 4 {
			var got []byte
			var w1 uint64
			for range 200 {
				if got, _, w1 = r.b.recv(0); got != nil {
					break
				}
				r.a.sleep(500)
			}
			if got == nil {
				t.Fatalf("segment %d did not arrive: %v", i, r.a.card.Misuse())
			}
			part := payload[i*mss : min((i+1)*mss, len(payload))]
			if !bytes.Equal(got[hdr:], part) {
				t.Errorf("segment %d has %d bytes that are not its payload of %d", i, len(got)-hdr, len(part))
			}
			if w1&reg.RXD_L4CS == 0 || w1&(reg.RXD_L4E|reg.RXD_IPE) != 0 {
				t.Errorf("segment %d: checksum status %X", i, w1)
			}
			if w1>>48 != 0x2044 {
				t.Errorf("segment %d: tag %04X", i, w1>>48)
			}
			seq := uint32(0xFFFFFF00)
			if s := binary.BigEndian.Uint32(got[off+4:]); s != seq+uint32(i*mss) {
				t.Errorf("segment %d: sequence number %08X", i, s)
			}
			if got[off+13] != flags[i] {
				t.Errorf("segment %d: flags %02X, want %02X", i, got[off+13], flags[i])
			}
			if id := be16(got[18:]); ipLen == 20 && id != 0xFFFE+uint16(i) {
				t.Errorf("segment %d: IP id %04X", i, id)
			}
		}
		if n := r.a.rd(reg.QPTC(0)); n != 4 {
			t.Errorf("QPTC is %d, want 4", n)
		}
		r.clean()
	}
}

// TestIPv4ChecksumIsOfWhatIsInItsFieldToo: the sum is of the whole header, so a driver that leaves something in the field has
// sent a wrong one; alone, and in each segment.
func TestIPv4ChecksumIsOfWhatIsInItsFieldToo(t *testing.T) {
	for _, flags := range []uint64{reg.TXD_IXSM | reg.TXD_TXSM, reg.TXD_TSE | reg.TXD_IXSM | reg.TXD_TXSM} {
		r := newRig(t, 3, miniOptions{}, nil)
		r.start()
		want := ipFrame(offloadPairs[0][0], offloadPairs[0][1], protoTCP, 100)
		f := bytes.Clone(want)
		tso := flags&reg.TXD_TSE != 0
		pseudo(f, !tso)
		const left = 0x1234
		binary.BigEndian.PutUint16(f[24:], left)
		s := uint32(binary.BigEndian.Uint16(want[24:])) + uint32(^uint16(left))
		binary.BigEndian.PutUint16(want[24:], uint16(s)+uint16(s>>16))
		r.a.putContext(14, 20, 20, 1448, l4TCP, true)
		payLen := len(f)
		if tso {
			payLen = 100
		}
		r.a.putFrame(f, payLen, flags)
		r.b.expect(0, want)
		r.clean()
	}
}
