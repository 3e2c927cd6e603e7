package wire

import (
	"encoding/binary"
	"math/bits"
)

// Sum is an unfinished ones' complement sum of 16-bit big-endian words: folded
// to 16 bits, not complemented (RFC 1071 §1). The zero value is the sum of
// nothing. Sums of parts that start at even offsets are joined with Add.
//
// A Sum is what a card that fills checksums in wants to find in the checksum
// field (the sum of the pseudo-header); Checksum gives what goes on the wire.
type Sum uint16

// Add joins two sums; both parts must start at even offsets of the whole.
func (s Sum) Add(t Sum) Sum {
	r := uint32(s) + uint32(t)
	return Sum(r + r>>16) // end-around carry; at most one, since both are 16 bits
}

// Sub takes t out again: s.Add(t).Sub(t) is s, up to the two spellings of zero,
// 0 and 0xffff.
func (s Sum) Sub(t Sum) Sum { return s.Add(^t) }

// Swap moves a sum by one byte: the sum of a part that starts at an odd offset
// is the swap of its sum on its own (RFC 1071 §2(B)).
func (s Sum) Swap() Sum { return s<<8 | s>>8 }

// Checksum is the value for a checksum field: the complement (RFC 1071 §1).
// UDP writes 0xffff in place of 0; UDP.FillChecksum does.
func (s Sum) Checksum() uint16 { return ^uint16(s) }

// OK reports whether s, a sum over bytes that include their checksum field,
// says that they arrived as they were sent.
func (s Sum) OK() bool { return s == 0xffff }

// Checksum of b as it is put on the wire: the complement of SumOf(b). The
// checksum field inside b must be zero.
func Checksum(b []byte) uint16 { return SumOf(b).Checksum() }

// SumOf sums b. A last odd byte counts as the upper half of a word (RFC 1071
// §4.1).
//
// Eight bytes are added at a time, in the machine's favourite order: the sum
// does not depend on byte order but for one swap at the end, and 64-bit words
// with the carry added back are as good as 16-bit ones (RFC 1071 §2(A)-(C)).
func SumOf(b []byte) Sum {
	if len(b) < 8 {
		return fold(tail(b))
	}
	last := binary.LittleEndian.Uint64(b[len(b)-8:])
	var acc, carry uint64
	for len(b) >= 64 {
		p := (*[64]byte)(b)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(p[0:]), 0)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(p[8:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(p[16:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(p[24:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(p[32:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(p[40:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(p[48:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(p[56:]), carry)
		// Cannot carry again: a sum that carried is at most 2⁶⁴-2.
		acc += carry
		b = b[64:]
	}
	if len(b) >= 32 {
		p := (*[32]byte)(b)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(p[0:]), 0)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(p[8:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(p[16:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(p[24:]), carry)
		acc += carry
		b = b[32:]
	}
	if len(b) >= 16 {
		p := (*[16]byte)(b)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(p[0:]), 0)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(p[8:]), carry)
		acc += carry
		b = b[16:]
	}
	if len(b) >= 8 {
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(b), 0)
		acc += carry
	}
	// The rest, up to 7 bytes, are the upper ones of the last word.
	if rest := len(b) & 7; rest != 0 {
		acc, carry = bits.Add64(acc, last>>(64-8*rest), 0)
		acc += carry
	}
	return fold(acc)
}

// tail is the up to seven bytes of b as a little-endian word, the rest zero.
func tail(b []byte) uint64 {
	var w uint64
	for i, v := range b {
		w |= uint64(v) << (8 * i)
	}
	return w
}

// fold brings a sum of little-endian 64-bit words to a Sum.
func fold(acc uint64) Sum {
	acc = acc>>32 + acc&0xffffffff // ≤ 33 bits
	acc = acc>>32 + acc&0xffffffff // ≤ 32 bits
	acc = acc>>16 + acc&0xffff     // ≤ 17 bits
	acc = acc>>16 + acc&0xffff     // ≤ 16 bits
	return Sum(bits.ReverseBytes16(uint16(acc)))
}

// Adder sums bytes that come in pieces of any length, odd and empty ones
// included. The zero value is ready to use.
type Adder struct {
	sum Sum
	odd bool // an odd number of bytes has gone in
}

// Add appends b to the bytes summed.
func (a *Adder) Add(b []byte) {
	s := SumOf(b)
	if a.odd {
		s = s.Swap()
	}
	a.sum = a.sum.Add(s)
	a.odd = a.odd != (len(b)&1 == 1)
}

// AddSum appends n bytes whose sum is known, for example of a pseudo-header or
// of a payload that was summed before.
func (a *Adder) AddSum(s Sum, n int) {
	if a.odd {
		s = s.Swap()
	}
	a.sum = a.sum.Add(s)
	a.odd = a.odd != (n&1 == 1)
}

// Sum of all bytes so far.
func (a *Adder) Sum() Sum { return a.sum }

// UpdateChecksum is the checksum after bytes with the sum old were replaced by
// bytes with the sum new, both at an even offset: HC' = ~(~HC + ~m + m'), RFC
// 1624 §3 equation 3. For one word, old and new are the words themselves; for
// an address, SumOf it.
func UpdateChecksum(check uint16, old, new Sum) uint16 {
	return Sum(^check).Add(^old).Add(new).Checksum()
}

// UpdateChecksumUDP is UpdateChecksum for UDP: 0 says that there is no checksum
// and stays, and a result of 0 is written 0xffff (RFC 768).
func UpdateChecksumUDP(check uint16, old, new Sum) uint16 {
	if check == 0 {
		return 0
	}
	return udpNonzero(UpdateChecksum(check, old, new))
}

// udpNonzero spells a computed zero as 0xffff, its other form (RFC 768).
func udpNonzero(check uint16) uint16 {
	if check == 0 {
		return 0xffff
	}
	return check
}

// PseudoIPv4 is the sum of the IPv4 pseudo-header: addresses, protocol and the
// length of the transport header with its payload (RFC 768, RFC 9293 §3.1).
// Only the low 16 bits of length count.
func PseudoIPv4(src, dst [4]byte, proto Proto, length int) Sum {
	acc := uint64(binary.LittleEndian.Uint32(src[:])) + uint64(binary.LittleEndian.Uint32(dst[:]))
	return fold(acc).Add(Sum(proto)).Add(Sum(length))
}

// PseudoIPv6 is the sum of the IPv6 pseudo-header (RFC 8200 §8.1). proto is
// that of the transport header, not of an extension header; dst is the final
// destination, also when a routing header still has segments left.
func PseudoIPv6(src, dst [16]byte, proto Proto, length int) Sum {
	acc, c := bits.Add64(binary.LittleEndian.Uint64(src[:8]), binary.LittleEndian.Uint64(src[8:]), 0)
	acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(dst[:8]), c)
	acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(dst[8:]), c)
	n := uint32(length)
	return fold(acc + c).Add(Sum(n >> 16)).Add(Sum(n)).Add(Sum(proto))
}
