package nic

// RSSKeySize is the length of a Toeplitz key for receive-side scaling, bytes: enough for two IPv6 addresses and ports.
const RSSKeySize = 40

// DefaultRSSKey returns the key of Microsoft's RSS specification ("Verifying the RSS Hash Calculation").
func DefaultRSSKey() []byte {
	return []byte{
		0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
		0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
	}
}

// Toeplitz is the hash of receive-side scaling: for each set bit i of input, the 32 bits of key that begin at bit i are
// added modulo 2. The input is source address, destination address and, for TCP and UDP, source and destination port, as
// they stand in the packet. len(input) is at most len(key) − 4.
func Toeplitz(key, input []byte) uint32 {
	var hash uint32
	window := uint64(key[0])<<32 | uint64(key[1])<<24 | uint64(key[2])<<16 | uint64(key[3])<<8 | uint64(key[4])
	for i, b := range input {
		for bit := range 8 {
			if b&(0x80>>bit) != 0 {
				hash ^= uint32(window >> (8 - bit))
			}
		}
		window <<= 8
		if i+5 < len(key) {
			window |= uint64(key[i+5])
		}
	}
	return hash
}
