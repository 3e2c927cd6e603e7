package sim

import (
	"encoding/binary"
	"math/bits"
)

// Fingerprint hashes b on top of h: fast, and enough to notice that a buffer which a device was lent has changed.
func Fingerprint(h uint64, b []byte) uint64 {
	const k = 0x9E3779B97F4A7C15
	for ; len(b) >= 8; b = b[8:] {
		h = bits.RotateLeft64(h^binary.LittleEndian.Uint64(b), 23) * k
	}
	for _, x := range b {
		h = bits.RotateLeft64(h^uint64(x), 23) * k
	}
	return h
}
