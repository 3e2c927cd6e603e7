// Package capture writes frames to pcap files with nanosecond stamps, and reads pcap and pcapng files.
//
// The worker that sends or receives calls [File.Frame]; records are gathered in a buffer of bounded size and written when it
// is full, by that worker: nothing is dropped, and nothing grows. After a failed write (a full disk) the file is cut back to
// its last whole record, so that what is there can be read. The format is that of libpcap (magic a1b23c4d), by
// gopacket/pcapgo; lengths are without FCS.
package capture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"bare.wire/mbuf"
)

const (
	// SnapLen is the most bytes of a frame that are kept; longer than any frame here.
	SnapLen    = 1 << 18
	bufferSize = 1 << 18
)

var siteGather = mbuf.Site{Name: "pktgen.capture.gather"}

// Target is where the bytes go: an *os.File.
type Target interface {
	io.WriteCloser
	Truncate(size int64) error
}

// File is a pcap file that is being written. One goroutine uses it.
type File struct {
	name    string
	to      Target
	pcap    *pcapgo.Writer
	buf     bytes.Buffer
	ends    []int // where each record in buf ends
	written int64
	scratch []byte
	frames  uint64
	err     error
}

// Create makes the file name, or empties it.
func Create(name string) (*File, error) {
	f, err := CreateOutput(name)
	if err != nil {
		return nil, fmt.Errorf("create the capture file: %w", err)
	}
	return New(name, f)
}

// CreateOutput makes the file name, or empties it, for writing only: a pipe whose reader goes away must fail. A pipe without
// a reader fails at once, and is not waited for.
func CreateOutput(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o666)
	if errors.Is(err, syscall.ENXIO) {
		return nil, fmt.Errorf("%w (nobody reads from the pipe; start its reader first)", err)
	}
	return f, err
}

// New starts a capture into to, which it closes in Close.
func New(name string, to Target) (*File, error) {
	f := &File{name: name, to: to}
	f.pcap = pcapgo.NewWriterNanos(&f.buf)
	if err := f.pcap.WriteFileHeader(SnapLen, layers.LinkTypeEthernet); err != nil {
		return nil, fmt.Errorf("capture to %s: %w", name, err)
	}
	f.ends = append(f.ends, f.buf.Len())
	return f, nil
}

// Frame adds the frame whose first segment is head, stamped at. The frame stays the caller's. After an error every further
// call returns it.
func (f *File) Frame(head *mbuf.Buf, at time.Time) error {
	if head.Next() == nil {
		return f.Bytes(head.Bytes(), at)
	}
	n := head.FrameLen()
	if cap(f.scratch) < n {
		f.scratch = make([]byte, n)
	}
	all := f.scratch[:n]
	rest := all
	for b := head; b != nil; b = b.Next() {
		rest = rest[mbuf.Copy(head.Pool(), &siteGather, rest, b.Bytes()):]
	}
	return f.Bytes(all, at)
}

// Bytes is Frame for bytes in one piece.
func (f *File) Bytes(frame []byte, at time.Time) error {
	if f.err != nil {
		return f.err
	}
	ci := gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(frame), Length: len(frame)}
	if err := f.pcap.WritePacket(ci, frame); err != nil {
		f.err = fmt.Errorf("capture to %s: %w", f.name, err)
		return f.err
	}
	f.ends = append(f.ends, f.buf.Len())
	f.frames++
	if f.buf.Len() >= bufferSize {
		return f.flush()
	}
	return nil
}

// flush writes the buffer; when that fails the file is cut to its last whole record.
func (f *File) flush() error {
	n, err := f.to.Write(f.buf.Bytes())
	if err == nil {
		f.written += int64(n)
		f.buf.Reset()
		f.ends = f.ends[:0]
		return nil
	}
	whole := 0
	for i := len(f.ends) - 1; i >= 0; i-- {
		if f.ends[i] <= n {
			whole = f.ends[i]
			break
		}
		f.frames--
	}
	f.err = fmt.Errorf("capture to %s: %w", f.name, err)
	switch cut := f.to.Truncate(f.written + int64(whole)); {
	case cut == nil:
		f.err = fmt.Errorf("%w (the file ends with the last whole frame)", f.err)
	case !errors.Is(cut, syscall.EINVAL): // which says that it is no regular file, so there is nothing to cut
		f.err = fmt.Errorf("%w; and cutting it after the last whole frame failed: %w", f.err, cut)
	}
	return f.err
}

// Frames is how many frames the file holds, those still in the buffer included.
func (f *File) Frames() uint64 { return f.frames }

// Close writes what is left and closes the file.
func (f *File) Close() error {
	if f.err == nil {
		f.err = f.flush()
	}
	if err := f.to.Close(); err != nil && f.err == nil {
		f.err = fmt.Errorf("close the capture file: %w", err)
	}
	return f.err
}
