package capture

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// What can be wrong with a capture file.
var (
	// ErrFormat: the file is no pcap or pcapng file, or holds nothing.
	ErrFormat = errors.New("no capture file that can be read")
	// ErrLinkType: the frames are not Ethernet.
	ErrLinkType = errors.New("not Ethernet")
	// ErrDamaged: the file contradicts itself somewhere behind its head.
	ErrDamaged = errors.New("the file is damaged")
	// ErrTruncated: the file ends in the middle of a packet.
	ErrTruncated = errors.New("the file ends in the middle of a packet")
)

// MaxRecord is how much of a file may be read for one packet, what stands between two packets included. A file that claims
// more is damaged or hostile, and is not followed.
const MaxRecord = 16 << 20

// Record is one packet of a file.
type Record struct {
	// Data is what was captured; it is valid until the next call of Next.
	Data []byte
	// Length is what there was on the wire, bytes; more than len(Data) when the capture was cut (snap length).
	Length int
	// At is the stamp; the zero time when the file has none for it (pcapng simple packets).
	At time.Time
	// Link is what the bytes are; of a pcap file it is always Ethernet.
	Link layers.LinkType
}

// Reader reads a pcap file (micro- and nanosecond stamps, both byte orders) or a pcapng file, compressed by gzip or not,
// packet by packet: what it holds of the file is at most [MaxRecord]. One goroutine uses it.
type Reader struct {
	name       string
	file       io.Closer
	stored     *counter // the file as it is stored
	plain      *counter // the same, uncompressed
	buf        *bufio.Reader
	pcap       *pcapgo.Reader
	ng         *pcapgo.NgReader
	blocks     *blocks // what ng reads from
	compressed bool
	packets    uint64
	err        error
}

// counter counts what is read, and refuses to read more than it is allowed.
type counter struct {
	r       io.Reader
	n, left int64
}

var errBudget = fmt.Errorf("more than %d MiB for one packet", MaxRecord>>20)

func (c *counter) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errBudget
	}
	n, err := c.r.Read(b[:min(int64(len(b)), c.left)])
	c.n += int64(n)
	c.left -= int64(n)
	return n, err
}

// Open opens the file name. What is wrong with its beginning is told here.
func Open(name string) (*Reader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the capture file: %w", err)
	}
	r, err := NewReader(name, f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r.file = f
	return r, nil
}

// The magic numbers of the formats, as they stand in the file; those of pcap in both byte orders.
const (
	magicNg    = 0x0a0d0d0a
	magicMicro = 0xa1b2c3d4
	magicNano  = 0xa1b23c4d
)

const readBuffer = 1 << 16

// NewReader reads a capture from from; name is what errors call it.
func NewReader(name string, from io.Reader) (*Reader, error) {
	r := &Reader{name: name, stored: &counter{r: from, left: MaxRecord}}
	start := bufio.NewReaderSize(r.stored, readBuffer)
	magic, err := start.Peek(2)
	var plain io.Reader = start
	if err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		r.compressed = true
		if plain, err = gzip.NewReader(start); err != nil {
			return nil, fmt.Errorf("%s: damaged gzip file: %w: %w; is the download complete?", name, ErrFormat, err)
		}
	}
	// The stored bytes are bounded by the plain ones from here on: gzip never shrinks what it reads by much.
	r.plain = &counter{r: plain, left: MaxRecord}
	r.buf = bufio.NewReaderSize(r.plain, readBuffer)
	if err := r.begin(); err != nil {
		return nil, err
	}
	return r, nil
}

// begin finds out the format and reads the head of the file.
func (r *Reader) begin() error {
	head, err := r.buf.Peek(4)
	switch {
	case err == io.EOF && len(head) == 0:
		return fmt.Errorf("%s: %w: it is empty", r.name, ErrFormat)
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return fmt.Errorf("%s: %w: it ends after %d bytes", r.name, ErrFormat, len(head))
	case err != nil:
		return fmt.Errorf("read the capture file %s: %w", r.name, err)
	}
	switch magic := binary.LittleEndian.Uint32(head); magic {
	case magicNg:
		opt := pcapgo.NgReaderOptions{WantMixedLinkType: true}
		r.blocks = &blocks{from: r.buf}
		r.ng, err = pcapgo.NewNgReader(r.blocks, opt)
	case magicMicro, magicNano, swap(magicMicro), swap(magicNano):
		if r.pcap, err = pcapgo.NewReader(r.buf); err == nil && r.pcap.LinkType() != layers.LinkTypeEthernet {
			return fmt.Errorf("%s: its link type is %s, %w: such frames cannot leave a network card", r.name, LinkName(r.pcap.LinkType()), ErrLinkType)
		}
	default:
		return fmt.Errorf("%s: %w: it begins with %08x; pcap and pcapng are known (editcap -F pcapng converts others)", r.name, ErrFormat, binary.BigEndian.Uint32(head))
	}
	if err != nil {
		return fmt.Errorf("%s: %w: its head is damaged: %w", r.name, ErrFormat, short(err))
	}
	return nil
}

func swap(v uint32) uint32 { return v>>24 | v>>8&0xff00 | v<<8&0xff0000 | v<<24 }

// short makes an end in the middle of something recognisable.
func short(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return ErrTruncated
	}
	return err
}

// LinkName names a link type: "113 (Linux SLL)".
func LinkName(t layers.LinkType) string { return fmt.Sprintf("%d (%v)", uint16(t), t) }

// Next returns the next packet, or io.EOF after the last. An error names the packet and where in the (uncompressed) file it
// should be; it is final.
func (r *Reader) Next() (Record, error) {
	if r.err != nil {
		return Record{}, r.err
	}
	at := r.offset()
	r.plain.left = MaxRecord
	r.stored.left = 2 * MaxRecord
	var data []byte
	var ci gopacket.CaptureInfo
	var err error
	link := layers.LinkTypeEthernet
	if r.ng != nil {
		data, ci, err = r.ng.ZeroCopyReadPacketData()
		if err == nil {
			link = ci.AncillaryData[0].(layers.LinkType)
			ci.Timestamp, err = r.stamp(ci)
		}
	} else {
		data, ci, err = r.pcap.ZeroCopyReadPacketData()
		if err == io.EOF && r.offset() != at {
			err = io.ErrUnexpectedEOF // a head without its packet
		}
	}
	if err != nil {
		r.err = r.fault(err, at)
		return Record{}, r.err
	}
	r.packets++
	return Record{Data: data, Length: ci.Length, At: ci.Timestamp, Link: link}, nil
}

// stamp is when a packet of a pcapng file was captured.
func (r *Reader) stamp(ci gopacket.CaptureInfo) (time.Time, error) {
	i, err := r.ng.Interface(ci.InterfaceIndex)
	if err != nil || r.blocks.broken || ci.Timestamp.IsZero() {
		return ci.Timestamp, err
	}
	if res := i.TimestampResolution; !res.Binary() {
		if res.Exponent() > maxDecimal {
			return ci.Timestamp, fmt.Errorf("the interface's clock counts units of 10^-%d s, of which a second has more than 2^64", res.Exponent())
		}
		return ci.Timestamp, nil
	}
	return binaryTime(r.blocks.units, i), nil
}

// offset is how far the file has been understood, bytes of its uncompressed form.
func (r *Reader) offset() int64 { return r.plain.n - int64(r.buf.Buffered()) }

func (r *Reader) fault(err error, at int64) error {
	where := fmt.Sprintf("%s: packet %d, at byte %d", r.name, r.packets+1, at)
	var path *os.PathError
	switch {
	case err == io.EOF:
		return io.EOF
	case err == io.ErrUnexpectedEOF:
		return fmt.Errorf("%s: %w: is the file complete, or still being written?", where, ErrTruncated)
	case errors.As(err, &path):
		return fmt.Errorf("%s: %w", where, err)
	}
	if r.packets == 0 {
		return fmt.Errorf("%s: %w: %w", where, ErrDamaged, err)
	}
	return fmt.Errorf("%s: %w: %w; the packets before it can be saved with editcap -r FILE NEW 1-%d", where, ErrDamaged, err, r.packets)
}

// Format is "pcap" or "pcapng"; Compressed says whether gzip was around it.
func (r *Reader) Format() string {
	if r.ng != nil {
		return "pcapng"
	}
	return "pcap"
}

// Compressed says whether the file is compressed.
func (r *Reader) Compressed() bool { return r.compressed }

// Read is how many bytes of the file, as it is stored, have been read.
func (r *Reader) Read() int64 { return r.stored.n }

// Close closes the file that Open has opened.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	if err := r.file.Close(); err != nil {
		return fmt.Errorf("close the capture file: %w", err)
	}
	return nil
}
