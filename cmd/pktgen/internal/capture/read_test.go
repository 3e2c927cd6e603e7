package capture

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// order is a byte order that appends.
type order interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

var orders = map[string]order{"little": binary.LittleEndian, "big": binary.BigEndian}

// pcapHead is the head of a pcap file.
func pcapHead(o order, magic, link uint32) []byte {
	b := o.AppendUint32(nil, magic)
	b = o.AppendUint16(b, 2)
	b = o.AppendUint16(b, 4)
	b = append(b, make([]byte, 8)...)
	b = o.AppendUint32(b, 65535)
	return o.AppendUint32(b, link)
}

// pcapPacket is a packet of a pcap file; fraction is in the unit of the magic.
func pcapPacket(o order, sec, fraction, caplen, length uint32, data []byte) []byte {
	b := o.AppendUint32(nil, sec)
	b = o.AppendUint32(b, fraction)
	b = o.AppendUint32(b, caplen)
	b = o.AppendUint32(b, length)
	return append(b, data...)
}

// block is a block of a pcapng file.
func block(o order, kind uint32, body []byte) []byte {
	body = append(body, make([]byte, (4-len(body)%4)%4)...)
	b := o.AppendUint32(nil, kind)
	b = o.AppendUint32(b, uint32(len(body)+12))
	b = append(b, body...)
	return o.AppendUint32(b, uint32(len(body)+12))
}

func section(o order) []byte {
	b := o.AppendUint32(nil, 0x1a2b3c4d)
	b = o.AppendUint16(b, 1)
	b = o.AppendUint16(b, 0)
	return block(o, 0x0a0d0d0a, append(b, bytes.Repeat([]byte{0xff}, 8)...))
}

// iface is an interface; resolution is if_tsresol, 0: none.
func iface(o order, link uint16, snap uint32, resolution byte) []byte {
	b := o.AppendUint16(nil, link)
	b = o.AppendUint16(b, 0)
	b = o.AppendUint32(b, snap)
	if resolution != 0 {
		b = o.AppendUint16(b, 9)
		b = o.AppendUint16(b, 1)
		b = append(b, resolution, 0, 0, 0, 0, 0, 0, 0)
	}
	return block(o, 1, b)
}

func enhanced(o order, iface uint32, stamp uint64, length uint32, data []byte) []byte {
	b := o.AppendUint32(nil, iface)
	b = o.AppendUint32(b, uint32(stamp>>32))
	b = o.AppendUint32(b, uint32(stamp))
	b = o.AppendUint32(b, uint32(len(data)))
	b = o.AppendUint32(b, length)
	return block(o, 6, append(b, data...))
}

func simple(o order, length uint32, data []byte) []byte {
	return block(o, 3, append(o.AppendUint32(nil, length), data...))
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func frame(n int) []byte { return bytes.Repeat([]byte{byte(n)}, n) }

// all reads a file to its end; err is nil at a clean one.
func all(file []byte) (recs []Record, r *Reader, err error) {
	r, err = NewReader("test.pcap", bytes.NewReader(file))
	if err != nil {
		return nil, nil, err
	}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return recs, r, nil
		}
		if err != nil {
			return recs, r, err
		}
		rec.Data = bytes.Clone(rec.Data)
		recs = append(recs, rec)
	}
}

func packed(b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(b)
	w.Close()
	return z.Bytes()
}

func ExampleOpen() {
	name := filepath.Join(os.TempDir(), "pktgen-example-read.pcap")
	w, err := Create(name)
	if err != nil {
		panic(err)
	}
	defer os.Remove(name)
	_ = w.Bytes(make([]byte, 60), time.Unix(1, 5))
	_ = w.Close()

	r, err := Open(name)
	if err != nil {
		panic(err)
	}
	defer r.Close()
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		fmt.Println(r.Format(), len(rec.Data), rec.Length, rec.At.UnixNano(), err)
	}
	// Output: pcap 60 60 1000000005 <nil>
}

func TestPcapOfEitherOrderAndResolution(t *testing.T) {
	for name, o := range orders {
		for _, c := range []struct {
			magic uint32
			unit  time.Duration
		}{{magicMicro, time.Microsecond}, {magicNano, 1}} {
			file := join(pcapHead(o, c.magic, 1), pcapPacket(o, 7, 999_999, 60, 60, frame(60)), pcapPacket(o, 6, 1, 20, 1500, frame(20)), pcapPacket(o, 6, 2, 0, 4, nil))
			for _, z := range []bool{false, true} {
				in := file
				if z {
					in = packed(file)
				}
				recs, r, err := all(in)
				if err != nil || len(recs) != 3 || r.Format() != "pcap" || r.Compressed() != z {
					t.Fatalf("%s %x: %d records, %v", name, c.magic, len(recs), err)
				}
				if got := recs[0]; !bytes.Equal(got.Data, frame(60)) || got.Length != 60 || !got.At.Equal(time.Unix(7, int64(999_999*c.unit))) {
					t.Errorf("%s %x: %+v", name, c.magic, got)
				}
				if got := recs[1]; !bytes.Equal(got.Data, frame(20)) || got.Length != 1500 || !got.At.Equal(time.Unix(6, int64(c.unit))) {
					t.Errorf("%s %x: %+v", name, c.magic, got)
				}
				if got := recs[2]; len(got.Data) != 0 || got.Length != 4 {
					t.Errorf("%s %x: %+v", name, c.magic, got)
				}
				if r.Read() != int64(len(in)) {
					t.Errorf("%d of %d bytes read", r.Read(), len(in))
				}
			}
		}
	}
}

func TestPcapngSectionsInterfacesAndResolutions(t *testing.T) {
	for name, o := range orders {
		other := orders["little"]
		if name == "little" {
			other = orders["big"]
		}
		file := join(
			section(o), iface(o, 1, 0, 0), iface(o, 1, 0, 9), iface(o, 1, 0, 0x80|10), iface(o, 113, 0, 0),
			enhanced(o, 0, 2_000_001, 60, frame(60)),                             // 10⁻⁶: 2.000001 s
			enhanced(o, 1, 3_000_000_001, 61, frame(61)),                         // 10⁻⁹: 3.000000001 s
			block(o, 0xbad, frame(33)),                                           // unknown: passed over
			enhanced(o, 2, 4<<10|512, 9000, frame(62)),                           // 2⁻¹⁰: 4.5 s, cut
			enhanced(o, 3, 5_000_000, 63, frame(63)),                             // not Ethernet
			iface(o, 1, 0, 0x80|32), enhanced(o, 4, 6<<32|15<<28, 64, frame(64)), // 2⁻³²: 6.9375 s
			iface(o, 1, 0, 0x80|60), enhanced(o, 5, 6<<60|15<<56, 66, frame(66)), // 2⁻⁶⁰: 6.9375 s
			iface(o, 1, 0, 12), enhanced(o, 6, 7_000_000_001_999, 65, frame(65)), // 10⁻¹²: 7.000000001 s
			section(other), iface(other, 1, 21, 0),
			simple(other, 20, frame(20)),
			simple(other, 500, frame(21)), // cut by the interface's snap length
		)
		recs, r, err := all(packed(file))
		if err != nil || len(recs) != 9 || r.Format() != "pcapng" {
			t.Fatalf("%s: %d records, %v", name, len(recs), err)
		}
		for i, want := range []struct {
			caplen, length int
			ns             int64
			link           int
		}{{60, 60, 2_000_001_000, 1}, {61, 61, 3_000_000_001, 1}, {62, 9000, 4_500_000_000, 1}, {63, 63, 5_000_000_000, 113}, {64, 64, 6_937_500_000, 1}, {66, 66, 6_937_500_000, 1}, {65, 65, 7_000_000_001, 1}, {20, 20, 0, 1}, {21, 500, 0, 1}} {
			got := recs[i]
			if !bytes.Equal(got.Data, frame(want.caplen)) || got.Length != want.length || int(got.Link) != want.link {
				t.Errorf("%s: record %d is %+v", name, i, got)
			}
			if want.ns == 0 != got.At.IsZero() || want.ns != 0 && got.At.UnixNano() != want.ns {
				t.Errorf("%s: record %d is stamped %v", name, i, got.At)
			}
		}
	}
}

// Simple packets have no stamp; those behind them keep their own.
func TestBinaryStampsBehindSimplePackets(t *testing.T) {
	o := orders["big"]
	recs, _, err := all(join(section(o), iface(o, 1, 0, 0x80|10), simple(o, 20, frame(20)), enhanced(o, 0, 3<<10|256, 30, frame(30)), simple(o, 21, frame(21)), enhanced(o, 0, 4<<10|1, 31, frame(31))))
	if err != nil || len(recs) != 4 || recs[1].At.UnixNano() != 3_250_000_000 || recs[3].At.UnixNano() != 4_000_976_562 {
		t.Errorf("%v: %v", err, recs)
	}
}

// A file may be long; what is bounded is a single packet.
func TestLongFilesAreReadToTheirEnd(t *testing.T) {
	o := orders["little"]
	big := frame(60_000)
	one, ng := pcapPacket(o, 1, 2, 60_000, 60_000, big), enhanced(o, 0, 1, 60_000, big)
	for name, file := range map[string][]byte{"pcap": join(pcapHead(o, magicNano, 1), bytes.Repeat(one, 600)), "pcapng": join(section(o), iface(o, 1, 0, 0), bytes.Repeat(ng, 600))} {
		for _, zip := range []bool{false, true} {
			in := file
			if zip {
				in = packed(file)
			}
			r, err := NewReader(name, bytes.NewReader(in))
			n := 0
			for ; err == nil; n++ {
				_, err = r.Next()
			}
			if n != 601 || err != io.EOF {
				t.Errorf("%s: %v after %d packets", name, err, n-1)
			}
		}
	}
}

func TestErrorsNameTheFileThePlaceAndTheRemedy(t *testing.T) {
	o := binary.LittleEndian
	head, one := pcapHead(o, magicMicro, 1), pcapPacket(o, 1, 0, 60, 60, frame(60))
	old := bytes.Clone(head)
	old[4] = 1
	for _, c := range []struct {
		name string
		file []byte
		is   error
		says []string
	}{
		{"empty", nil, ErrFormat, []string{"test.pcap", "is empty"}},
		{"two bytes", head[:2], ErrFormat, []string{"ends after 2 bytes"}},
		{"half a head", head[:20], ErrTruncated, []string{"head is damaged"}},
		{"text", []byte("#!/bin/sh\n"), ErrFormat, []string{"begins with 23212f62", "pcap and pcapng", "editcap"}},
		{"an old version", old, ErrFormat, []string{"version 1"}},
		{"Linux cooked", pcapHead(o, magicMicro, 113), ErrLinkType, []string{"113 (Linux SLL)"}},
		{"half a packet", join(head, one, one[:70]), ErrTruncated, []string{"packet 2, at byte 100", "complete, or"}},
		{"a packet's head and no packet", join(head, one, one[:16]), ErrTruncated, []string{"packet 2, at byte 100"}},
		{"a length of 4 GB", join(head, one, pcapPacket(o, 1, 0, 1<<32-1, 1<<32-1, frame(60))), ErrDamaged, []string{"packet 2", "editcap -r FILE NEW 1-1"}},
		{"a length above the original", join(head, pcapPacket(o, 1, 0, 60, 50, frame(60))), ErrDamaged, []string{"packet 1, at byte 24"}},
		{"half of a gzip file", packed(join(head, one, one))[:30], ErrTruncated, nil},
		{"not even a gzip head", []byte{0x1f, 0x8b, 1}, ErrFormat, []string{"gzip"}},
		{"gzip in gzip", packed(packed(head)), ErrFormat, []string{"begins with 1f8b"}},
		{"an interface that is not there", join(section(o), iface(o, 1, 0, 0), enhanced(o, 1, 0, 60, frame(60))), ErrDamaged, []string{"packet 1", "at byte 28"}},
		{"a section of another version", bytes.Replace(section(o), []byte{1, 0, 0, 0}, []byte{9, 0, 0, 0}, 1), ErrFormat, []string{"ersion"}},
		{"a block of 4 GB", join(section(o), iface(o, 1, 0, 0), []byte{6, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff}, make([]byte, 64)), ErrTruncated, nil},
	} {
		_, _, err := all(c.file)
		if !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, s := range append(c.says, "test.pcap") {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %q", c.name, err, s)
			}
		}
	}
}

// endless is a file of zero bytes that never ends.
type endless struct{ n int64 }

func (e *endless) Read(b []byte) (int, error) {
	clear(b)
	e.n += int64(len(b))
	return len(b), nil
}

func TestHugeClaimsAreNotFollowed(t *testing.T) {
	o := binary.LittleEndian
	snap := bytes.Clone(pcapHead(o, magicMicro, 1))
	o.PutUint32(snap[16:], 1<<32-1) // then pcapgo believes any length
	for name, head := range map[string][]byte{
		"pcap":          join(snap, pcapPacket(o, 1, 0, 1<<32-1, 1<<32-1, nil)),
		"pcapng":        join(section(o), iface(o, 1, 0, 0), []byte{6, 0, 0, 0, 0xfc, 0xff, 0xff, 0xff}, make([]byte, 12), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		"unknown block": join(section(o), []byte{0xff, 0, 0, 0, 0xfc, 0xff, 0xff, 0xff}),
	} {
		rest := &endless{}
		r, err := NewReader("x", io.MultiReader(bytes.NewReader(head), rest))
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err = r.Next(); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "MiB") {
			t.Errorf("%s: %v", name, err)
		}
		if rest.n > MaxRecord+readBuffer {
			t.Errorf("%s: %d bytes were read", name, rest.n)
		}
		if _, again := r.Next(); again != err {
			t.Errorf("%s: then %v", name, again)
		}
	}
}

func TestDirectoryAndMissingFile(t *testing.T) {
	if _, err := Open(t.TempDir()); err == nil || errors.Is(err, ErrFormat) {
		t.Error(err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func FuzzReader(f *testing.F) {
	for _, o := range orders {
		f.Add(join(pcapHead(o, magicMicro, 1), pcapPacket(o, 1, 2, 60, 60, frame(60)), pcapPacket(o, 1, 3, 5, 60, frame(5))))
		f.Add(join(pcapHead(o, magicNano, 1), pcapPacket(o, 1, 2, 1<<31, 1<<31, frame(60))))
		f.Add(join(section(o), iface(o, 1, 0, 9), enhanced(o, 0, 1<<40, 60, frame(60)), simple(o, 20, frame(20)), section(o)))
		f.Add(join(section(o), iface(o, 1, 0, 0xff), iface(o, 1, 0, 63), enhanced(o, 1, 1<<63, 60, frame(60))))
		f.Add(join(section(o), iface(o, 1, 0, 0), block(o, 4, frame(12)), block(o, 5, frame(12)), block(o, 10, frame(20)), block(o, 2, frame(40))))
	}
	f.Add(packed(pcapHead(binary.LittleEndian, magicMicro, 1)))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := NewReader("fuzz", bytes.NewReader(file))
		if err != nil {
			return
		}
		total := 0
		for range 1 << 16 { // gzip makes much of little
			rec, err := r.Next()
			if err != nil {
				if _, again := r.Next(); again != err {
					t.Fatalf("%v, then %v", err, again)
				}
				break
			}
			if total += len(rec.Data); len(rec.Data) > MaxRecord || !r.Compressed() && total > len(file) {
				t.Fatalf("%d bytes in all, %d at once, of a file of %d", total, len(rec.Data), len(file))
			}
		}
	})
}
