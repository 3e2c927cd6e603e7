// Package sig is the mark that pktgen puts into every frame it sends, so that the receiver can tell its own frames from all
// others, number them and time them.
//
// It is the last 18 bytes before the FCS, big endian, so that headers may grow in front of it on the way:
//
//	magic 16 | run id 8 | stream 8 | sequence 48 | send time 64 (ns of the run's clock)
//
// Ethernet, IPv4 and UDP headers plus the mark are 60 bytes: it fits the smallest frame. 48 bits of sequence last 218 days
// at 14.88 Mpps.
package sig

import "encoding/binary"

const (
	// Size is the length of the mark in bytes.
	Size = 18
	// Magic is its first word. Sixteen bits alone match foreign bytes once in 65 536; run and stream follow.
	Magic = 0xB1E7
	// SeqBits is the width of the sequence number on the wire.
	SeqBits = 48
	// SeqMask cuts a running number to it.
	SeqMask = 1<<SeqBits - 1
)

// Signature is a mark, decoded.
type Signature struct {
	Run    uint8  // random per run: frames of an earlier run that are still about are not ours
	Stream uint8  // which stream of the run
	Seq    uint64 // running number, its low 48 bits
	Sent   int64  // ns of the run's clock at which the burst was handed to the card
}

// RunOf is the run id of a run with that seed: runs that follow each other differ.
func RunOf(seed uint64) uint8 { return uint8(seed * 0x9e3779b97f4a7c15 >> 56) }

// Put writes s to the 18 bytes at the end of frame (without FCS). The frame must have them.
func Put(frame []byte, s Signature) {
	b := (*[Size]byte)(frame[len(frame)-Size:])
	binary.BigEndian.PutUint64(b[0:], uint64(Magic)<<48|uint64(s.Run)<<40|uint64(s.Stream)<<32|s.Seq>>16&0xffffffff)
	binary.BigEndian.PutUint16(b[8:], uint16(s.Seq))
	binary.BigEndian.PutUint64(b[10:], uint64(s.Sent))
}

// Parse reads the mark at the end of frame (without FCS). It returns false when the frame is too short or does not carry the
// magic; whether run and stream are ours is for the caller to say.
func Parse(frame []byte) (s Signature, ok bool) {
	if len(frame) < Size {
		return s, false
	}
	b := (*[Size]byte)(frame[len(frame)-Size:])
	head := binary.BigEndian.Uint64(b[0:])
	if head>>48 != Magic {
		return s, false
	}
	return Signature{
		Run:    uint8(head >> 40),
		Stream: uint8(head >> 32),
		Seq:    head&0xffffffff<<16 | uint64(binary.BigEndian.Uint16(b[8:])),
		Sent:   int64(binary.BigEndian.Uint64(b[10:])),
	}, true
}
