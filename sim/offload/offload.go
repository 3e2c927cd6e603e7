// Package offload is what software cards do for the frames they send and receive, whatever their interface: ones' complement
// sums, Toeplitz hashes, and the headers of segments that are cut from a larger frame.
//
// A card's model finds out where the headers are, in its own way; from there on the work is here. Nothing here parses, checks
// bounds beyond what is said, or allocates.
//
// Formats: RFC 1071 (checksum), 791 (IPv4), 8200 (IPv6), 9293 (TCP), 768 (UDP); the hash is that of receive-side scaling.
package offload

import (
	"encoding/binary"
	"math/bits"
)

// Sum is the ones' complement sum of b in 16-bit words (RFC 1071) on top of s, folded to 16 bits.
func Sum(b []byte, s uint64) uint64 {
	var a, carry uint64
	for ; len(b) >= 8; b = b[8:] {
		a, carry = bits.Add64(a, binary.BigEndian.Uint64(b), carry)
	}
	a, carry = bits.Add64(a, carry, 0)
	s += carry
	s += a>>48 + a>>32&0xFFFF + a>>16&0xFFFF + a&0xFFFF
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	for s > 0xFFFF {
		s = s>>16 + s&0xFFFF
	}
	return s
}

// Headers says where the headers of a frame to be cut are, lengths in bytes. All of them lie within the frame.
type Headers struct {
	Link, IP, L4 int
	IPv4, UDP    bool // else IPv6, TCP
}

// Len is the length of all headers.
func (h Headers) Len() int { return h.Link + h.IP + h.L4 }

// TCP flags and the data offset's place, as the 16-bit word at offset 12 of the header holds them.
const (
	flagFIN = 0x001
	flagPSH = 0x008
	flagCWR = 0x080
)

// FlagMasks says which flags of a TCP header stay in the first segment, in those in the middle, and in the last, as masks of
// 12 bits.
type FlagMasks struct{ First, Middle, Last uint16 }

// Masks are the flags as RFC 9293 and RFC 3168 want them: FIN and PSH in the last segment only, CWR in the first.
var Masks = FlagMasks{First: 0xFFF &^ (flagFIN | flagPSH), Middle: 0xFFF &^ (flagFIN | flagPSH | flagCWR), Last: 0xFFF &^ flagCWR}

// Number gives segment s, whose headers are copies of the first's, its lengths, sequence number and flags: n bytes of payload
// from byte off of the whole on, IPv4 id counted up by id. The checksums are left as they were.
func (h Headers) Number(s []byte, off, id, n int, last bool, m FlagMasks) {
	be := binary.BigEndian
	ip, l4 := s[h.Link:], s[h.Link+h.IP:]
	if h.IPv4 {
		be.PutUint16(ip[2:], uint16(h.IP+h.L4+n))
		be.PutUint16(ip[4:], be.Uint16(ip[4:])+uint16(id))
	} else {
		be.PutUint16(ip[4:], uint16(h.IP-40+h.L4+n))
	}
	if h.UDP {
		be.PutUint16(l4[4:], uint16(8+n))
		return
	}
	be.PutUint32(l4[4:], be.Uint32(l4[4:])+uint32(off))
	keep := uint16(0xFFF)
	switch first := off == 0; {
	case first && last: // not cut at all
	case first:
		keep = m.First
	case last:
		keep = m.Last
	default:
		keep = m.Middle
	}
	be.PutUint16(l4[12:], be.Uint16(l4[12:])&(0xF000|keep))
}

// KeyLen is the length of a hash key in bytes; MaxInput the longest input: two IPv6 addresses and two ports.
const (
	KeyLen   = 40
	MaxInput = 36
)

// Toeplitz computes Toeplitz hashes. The hash is a sum (exclusive or) of one table entry for each byte of input; the tables
// follow from the key. The zero value hashes everything to 0.
type Toeplitz struct {
	table [MaxInput][256]uint32
}

// SetKey makes the tables for a key.
func (t *Toeplitz) SetKey(key *[KeyLen]byte) {
	for i := range t.table {
		// The 32 bits of the key that start at bit 8i, and the 8 that come after.
		w := uint64(key[i])<<32 | uint64(key[i+1])<<24 | uint64(key[i+2])<<16 | uint64(key[i+3])<<8 | uint64(key[i+4])
		for b := range 256 {
			var h uint32
			for bit := range 8 {
				if b>>(7-bit)&1 != 0 {
					h ^= uint32(w >> (8 - bit))
				}
			}
			t.table[i][b] = h
		}
	}
}

// Hash is the hash of a followed by b, together at most MaxInput bytes: addresses, then ports.
func (t *Toeplitz) Hash(a, b []byte) (h uint32) {
	for i, x := range a {
		h ^= t.table[i][x]
	}
	for i, x := range b {
		h ^= t.table[len(a)+i][x]
	}
	return h
}
