package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"bare.wire/clock"
	"bare.wire/sim/link"
)

// snapLen is the most bytes of a frame that are kept; longer than any frame here.
const snapLen = 1 << 18

// capture writes frames to a pcap file, with stamps in ns of when they left their sender. It is used under the world's lock.
type capture struct {
	file *os.File
	buf  *bufio.Writer
	pcap *pcapgo.Writer
	clk  clock.Clock
	err  error // the first; nothing is written after it
}

func newCapture(name string, clk clock.Clock) (*capture, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("create the capture file: %w", err)
	}
	c := &capture{file: f, buf: bufio.NewWriterSize(f, snapLen), clk: clk}
	c.pcap = pcapgo.NewWriterNanos(c.buf)
	if err := errors.Join(c.pcap.WriteFileHeader(snapLen, layers.LinkTypeEthernet), c.buf.Flush()); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// listen returns cfg with the capture on both directions of the wire. What the wire loses is in the file, too.
func (c *capture) listen(cfg link.Config) link.Config {
	ab, ba := cfg, cfg
	if cfg.AToB != nil {
		ab = *cfg.AToB
	}
	if cfg.BToA != nil {
		ba = *cfg.BToA
	}
	for _, d := range []*link.Config{&ab, &ba} {
		d.AToB, d.BToA, d.DropIf = nil, nil, c.frame
	}
	cfg.AToB, cfg.BToA = &ab, &ba
	return cfg
}

// frame writes a frame and never wants it dropped. Each is on its way to the disk at once: the file is whole even if we are
// killed.
func (c *capture) frame(_ uint64, data []byte) bool {
	if c.err == nil {
		info := gopacket.CaptureInfo{Timestamp: c.clk.Now(), CaptureLength: min(len(data), snapLen), Length: len(data)}
		c.err = errors.Join(c.pcap.WritePacket(info, data[:info.CaptureLength]), c.buf.Flush())
	}
	return false
}

func (c *capture) close() error {
	if err := errors.Join(c.err, c.file.Close()); err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	return nil
}
