// Package frames makes the frames that judges send, and looks at those that come back. It leans on nothing of what is judged: sums and
// hashes are written once more here, by their definitions.
//
// Patterned frames say in each byte which frame it is, datagrams are UDP and TCP over IPv4 and IPv6 with their checksums done or left
// to be done, and Toeplitz is the hash that chooses queues.
package frames

import (
	"encoding/binary"
	"fmt"
)

// Experimental is an EtherType for whoever wants one (IEEE 802, local experimental 1): that of patterned frames.
const Experimental = 0x88b5

// MinLen is the least length of a frame, bytes without FCS.
const MinLen = 60

// Offsets in a patterned frame: addresses, EtherType, its number (4 bytes), what is to be done with it (1), and bytes of which each follows
// from the number and its place.
const (
	PatternNumber = 14
	PatternOp     = 18
	PatternStart  = 19
)

// What the other side does with a patterned frame.
const (
	Sink = 0x51
	Echo = 0xec
)

// PutPattern writes a frame into all of f.
func PutPattern(f []byte, to, from [6]byte, number uint32, op byte) {
	copy(f, to[:])
	copy(f[6:], from[:])
	binary.BigEndian.PutUint16(f[12:], Experimental)
	binary.BigEndian.PutUint32(f[PatternNumber:], number)
	f[PatternOp] = op
	for i := PatternStart; i < len(f); i++ {
		f[i] = patternByte(number, i)
	}
}

// patternByte differs for any two numbers within four bytes: an odd factor loses nothing.
func patternByte(number uint32, i int) byte {
	return byte(number*0x9e3779b1>>(8*(i&3))) + byte(i*7) + byte(i>>8)
}

// WrongPattern says what is wrong with a patterned frame, "" if nothing.
func WrongPattern(f []byte) string {
	if len(f) < PatternStart {
		return fmt.Sprintf("a frame of %d bytes", len(f))
	}
	number := binary.BigEndian.Uint32(f[PatternNumber:])
	if f[PatternOp] != Sink && f[PatternOp] != Echo {
		return fmt.Sprintf("frame %d asks for %#02x", number, f[PatternOp])
	}
	for i := PatternStart; i < len(f); i++ {
		if f[i] != patternByte(number, i) {
			return fmt.Sprintf("byte %d of frame %d, of %d bytes, is %#02x, want %#02x", i, number, len(f), f[i], patternByte(number, i))
		}
	}
	return ""
}

// TagAt puts a VLAN tag into a frame.
func TagAt(f []byte, at int, tci uint16) []byte {
	return append(append(append([]byte{}, f[:at]...), 0x81, 0, byte(tci>>8), byte(tci)), f[at:]...)
}

// Sum16 is the sum of RFC 1071, not complemented.
func Sum16(b []byte, s uint32) uint16 {
	s = s>>16 + s&0xffff
	for i := 0; i < len(b); i += 2 {
		s += uint32(b[i]) << 8
		if i+1 < len(b) {
			s += uint32(b[i+1])
		}
		s = s>>16 + s&0xffff
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// Toeplitz is the hash of receive-side scaling, by its definition (Microsoft, "RSS hashing functions"): for each bit of the input that is
// set, the 32 bits of the key from there on.
func Toeplitz(key, input []byte) (hash uint32) {
	bit := func(i int) uint32 { return uint32(key[i/8]>>(7-i%8)) & 1 }
	for i := range len(input) * 8 {
		if input[i/8]>>(7-i%8)&1 == 0 {
			continue
		}
		var window uint32
		for j := range 32 {
			window = window<<1 | bit(i+j)
		}
		hash ^= window
	}
	return hash
}
