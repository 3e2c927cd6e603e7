package audit

import (
	"encoding/binary"
	"fmt"
	"os"
)

// Frame is a frame of a capture.
type Frame struct {
	At   int64 // ns since 1970
	Data []byte
}

// ReadCapture reads a pcap file with nanosecond stamps as pktgen writes it, little endian, whole.
func ReadCapture(name string) ([]Frame, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read a capture to audit: %w", err)
	}
	if len(b) < 24 || binary.LittleEndian.Uint32(b) != 0xa1b23c4d {
		return nil, fmt.Errorf("%s is no pcap file with nanosecond stamps", name)
	}
	var frames []Frame
	for b = b[24:]; len(b) > 0; {
		if len(b) < 16 {
			return nil, fmt.Errorf("%s ends in the head of frame %d", name, len(frames))
		}
		n := binary.LittleEndian.Uint32(b[8:])
		if n != binary.LittleEndian.Uint32(b[12:]) || uint64(len(b)) < 16+uint64(n) {
			return nil, fmt.Errorf("%s: frame %d is not whole", name, len(frames))
		}
		at := int64(binary.LittleEndian.Uint32(b))*1e9 + int64(binary.LittleEndian.Uint32(b[4:]))
		frames = append(frames, Frame{at, b[16 : 16+n]})
		b = b[16+n:]
	}
	return frames, nil
}
