package offload_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"bare.wire/sim/offload"
	"bare.wire/wire"
)

func TestSumIsThatOfPackageWire(t *testing.T) {
	b := make([]byte, 300)
	for i := range b {
		b[i] = byte(i*i + 0xF0)
	}
	for n := range b {
		if got, want := uint16(offload.Sum(b[:n], 0)), uint16(wire.SumOf(b[:n])); got != want && got+want != 0xFFFF {
			t.Errorf("%d bytes: %#04x, want %#04x", n, got, want)
		}
		if got := offload.Sum(b[:n], 0xFFFF_FFFF); got > 0xFFFF {
			t.Errorf("%d bytes on top of a large sum: %#x is not folded", n, got)
		}
	}
}

func TestSegmentsAreNumbered(t *testing.T) {
	be := binary.BigEndian
	for _, v4 := range []bool{true, false} {
		h := offload.Headers{Link: 14, IP: 40, L4: 20, IPv4: v4}
		for i, flags := range []uint16{0x090, 0x010, 0x019} { // CWR, PSH, FIN: each where it belongs
			s := make([]byte, h.Len()+100)
			be.PutUint16(s[14+4:], 0xFFFF)
			l4 := s[14+40:]
			be.PutUint32(l4[4:], 0xFFFF_FFF0)
			be.PutUint16(l4[12:], 0x5099)
			h.Number(s, i*100, i, 100, i == 2, offload.Masks)
			if got := be.Uint16(l4[12:]); got != 0x5000|flags {
				t.Errorf("segment %d has flags %#x, want %#x", i, got, flags)
			}
			if got := be.Uint32(l4[4:]); got != 0xFFFF_FFF0+uint32(i)*100 {
				t.Errorf("segment %d has sequence number %#x", i, got)
			}
			length, want := be.Uint16(s[14+2:]), uint16(160)
			if !v4 {
				length, want = be.Uint16(s[14+4:]), 120
			}
			if length != want {
				t.Errorf("segment %d is %d bytes long, want %d", i, length, want)
			}
			if id := be.Uint16(s[14+4:]); v4 && id != 0xFFFF+uint16(i) {
				t.Errorf("segment %d has id %#x", i, id)
			}
		}
	}
}

// The first line of the verification suite of Microsoft's RSS specification.
func ExampleToeplitz() {
	key := [offload.KeyLen]byte{
		0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
		0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
	}
	var t offload.Toeplitz
	t.SetKey(&key)
	fmt.Printf("%#x\n", t.Hash([]byte{66, 9, 149, 187, 161, 142, 100, 80}, []byte{10, 234, 6, 230}))
	// Output: 0x51ccc178
}
