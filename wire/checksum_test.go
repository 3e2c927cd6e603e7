package wire_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"bare.wire/wire"
)

// fillings are contents that push carries to their edges.
var fillings = map[string]func(b []byte, r *rand.Rand){
	"zeros":  func(b []byte, _ *rand.Rand) { clear(b) },
	"ones":   func(b []byte, _ *rand.Rand) { fill(b, 0xff) },
	"random": func(b []byte, r *rand.Rand) { random(b, r) },
	"edges": func(b []byte, r *rand.Rand) {
		for i := range b {
			b[i] = byte(0xff * (r.Uint32() & 1))
		}
	},
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

func random(b []byte, r *rand.Rand) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

func TestSumEqualsNaiveAtEveryOffsetAndLength(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, f := range fillings {
		buf := make([]byte, 300)
		f(buf, r)
		for off := range 9 {
			for n := range len(buf) - off + 1 {
				b := buf[off : off+n]
				if got, want := wire.SumOf(b), naiveSum(b); got != want {
					t.Fatalf("%s: offset %d length %d: sum %#04x, naive %#04x", name, off, n, got, want)
				}
			}
		}
	}
}

func TestSumOfLargeBuffersCarriesWell(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	buf := make([]byte, 70001)
	for name, f := range fillings {
		f(buf, r)
		for _, n := range []int{1500, 9217, 65535, 65536, len(buf)} {
			if got, want := wire.SumOf(buf[:n]), naiveSum(buf[:n]); got != want {
				t.Errorf("%s: length %d: sum %#04x, naive %#04x", name, n, got, want)
			}
		}
	}
}

// split cuts b into pieces of random lengths, empty and odd ones among them.
func split(b []byte, r *rand.Rand) [][]byte {
	var parts [][]byte
	for len(b) > 0 {
		n := min(r.IntN(12), len(b))
		if r.IntN(4) == 0 {
			n = min(r.IntN(200), len(b))
		}
		parts = append(parts, b[:n])
		b = b[n:]
	}
	return append(parts, nil)
}

func TestPiecesOfAnyLengthSumLikeTheWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 2000 {
		b := make([]byte, r.IntN(600))
		random(b, r)
		var a, sums wire.Adder
		for _, p := range split(b, r) {
			a.Add(p)
			sums.AddSum(naiveSum(p), len(p))
		}
		if want := naiveSum(b); a.Sum() != want || sums.Sum() != want {
			t.Fatalf("round %d, length %d: %#04x by bytes, %#04x by sums, want %#04x", i, len(b), a.Sum(), sums.Sum(), want)
		}
	}
}

// The worked example of RFC 1071 §3.
func TestRFC1071Example(t *testing.T) {
	b := []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}
	if got := wire.SumOf(b); got != 0xddf2 {
		t.Errorf("sum %#04x, RFC 1071 §3 has 0xddf2", got)
	}
	if got := wire.Checksum(b); got != 0x220d {
		t.Errorf("checksum %#04x, want 0x220d", got)
	}
}

// RFC 1624 §4: with a checksum of 0xdd2f and 0x5555 becoming 0x3285, the older
// formula of RFC 1141 gives 0xffff; right is 0.
func TestUpdateGivesZeroWhereRFC1141Failed(t *testing.T) {
	if got := wire.UpdateChecksum(0xdd2f, 0x5555, 0x3285); got != 0 {
		t.Errorf("checksum %#04x, RFC 1624 §4 has 0x0000", got)
	}
}

func TestUpdateEqualsRecomputing(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 20000 {
		b := make([]byte, 20+2*r.IntN(20))
		if i%3 == 0 {
			fillings["edges"](b, r)
		} else {
			random(b, r)
		}
		b[0] |= 1 // a packet that is all zeros has two checksums
		check := wire.Checksum(b)
		at := 2 + 2*r.IntN(len(b)/2-8)
		n := 2 * (1 + r.IntN(6))
		old := wire.SumOf(b[at : at+n])
		random(b[at:at+n], r)
		if got, want := wire.UpdateChecksum(check, old, wire.SumOf(b[at:at+n])), wire.Checksum(b); got != want {
			t.Fatalf("round %d: updated %#04x, recomputed %#04x", i, got, want)
		}
	}
}

func TestUDPWithoutChecksumStaysWithout(t *testing.T) {
	if got := wire.UpdateChecksumUDP(0, 1, 2); got != 0 {
		t.Errorf("checksum %#04x, want 0", got)
	}
	if got := wire.UpdateChecksumUDP(0xdd2f, 0x5555, 0x3285); got != 0xffff {
		t.Errorf("checksum %#04x, want 0xffff for a computed 0", got)
	}
}

func TestSubTakesOutWhatWasAdded(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 10000 {
		s, u := wire.Sum(r.Uint32()), wire.Sum(r.Uint32())
		got := s.Add(u).Sub(u)
		if got != s && !(got%0xffff == 0 && s%0xffff == 0) {
			t.Fatalf("%#04x + %#04x - it = %#04x", s, u, got)
		}
	}
}

func TestPseudoHeaderSumsEqualTheBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for range 2000 {
		var s4, d4 [4]byte
		var s6, d6 [16]byte
		for _, b := range [][]byte{s4[:], d4[:], s6[:], d6[:]} {
			random(b, r)
		}
		proto, n := wire.Proto(r.Uint32()), r.IntN(1<<16)
		four := append(append(s4[:], d4[:]...), 0, byte(proto), byte(n>>8), byte(n))
		if got, want := wire.PseudoIPv4(s4, d4, proto, n), naiveSum(four); got != want {
			t.Fatalf("IPv4 pseudo-header sum %#04x, want %#04x", got, want)
		}
		big := r.IntN(1 << 31)
		six := binary.BigEndian.AppendUint32(append(s6[:], d6[:]...), uint32(big))
		six = append(six, 0, 0, 0, byte(proto))
		if got, want := wire.PseudoIPv6(s6, d6, proto, big), naiveSum(six); got != want {
			t.Fatalf("IPv6 pseudo-header sum %#04x, want %#04x", got, want)
		}
	}
}

func FuzzSum(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Add([]byte{1}, uint8(0))
	f.Add(make([]byte, 129), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		want := naiveSum(b)
		if got := wire.SumOf(b); got != want {
			t.Fatalf("sum %#04x, naive %#04x", got, want)
		}
		n := min(int(cut), len(b))
		var a wire.Adder
		a.Add(b[:n])
		a.Add(b[n:])
		if a.Sum() != want {
			t.Fatalf("cut at %d: sum %#04x, naive %#04x", n, a.Sum(), want)
		}
	})
}
