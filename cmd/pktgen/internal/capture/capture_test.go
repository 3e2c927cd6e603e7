package capture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// disk holds limit bytes.
type disk struct {
	bytes.Buffer
	limit  int
	closed bool
}

var errFull = errors.New("no space left on device")

func (d *disk) Write(b []byte) (int, error) {
	if room := d.limit - d.Len(); len(b) > room {
		d.Buffer.Write(b[:room])
		return room, errFull
	}
	return d.Buffer.Write(b)
}
func (d *disk) Truncate(n int64) error { d.Buffer.Truncate(int(n)); return nil }
func (d *disk) Close() error           { d.closed = true; return nil }

func read(t *testing.T, r io.Reader) (frames [][]byte, stamps []time.Time) {
	t.Helper()
	p, err := pcapgo.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	for {
		b, ci, err := p.ReadPacketData()
		if err == io.EOF {
			return frames, stamps
		}
		if err != nil {
			t.Fatalf("after %d frames: %v", len(frames), err)
		}
		frames, stamps = append(frames, b), append(stamps, ci.Timestamp)
	}
}

func Example() {
	name := filepath.Join(os.TempDir(), "pktgen-example.pcap")
	f, err := Create(name)
	if err != nil {
		panic(err)
	}
	defer os.Remove(name)
	fmt.Println(f.Bytes(make([]byte, 60), epoch), f.Frames(), f.Close())
	// Output: <nil> 1 <nil>
}

func TestFramesAndNanosecondsComeBack(t *testing.T) {
	d := &disk{limit: 1 << 30}
	f, err := New("x", d)
	if err != nil {
		t.Fatal(err)
	}
	const n = 10_000 // several buffers
	for i := range n {
		if err := f.Bytes(bytes.Repeat([]byte{byte(i)}, 14+i%100), epoch.Add(time.Duration(i)*101)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil || !d.closed || f.Frames() != n {
		t.Fatal(err, d.closed, f.Frames())
	}
	frames, stamps := read(t, &d.Buffer)
	if len(frames) != n {
		t.Fatalf("%d frames", len(frames))
	}
	for i, b := range frames {
		if len(b) != 14+i%100 || b[0] != byte(i) || !stamps[i].Equal(epoch.Add(time.Duration(i)*101)) {
			t.Fatalf("frame %d: %d bytes at %v", i, len(b), stamps[i])
		}
	}
}

func TestFullDiskLeavesWholeFrames(t *testing.T) {
	for _, limit := range []int{0, 10, 24, 25, 39, 24 + 16 + 60, 24 + 76 - 1, 24 + 2*76 - 1, 100_000, bufferSize + 1000, 3*bufferSize - 7} {
		d := &disk{limit: limit}
		f, err := New("x", d)
		if err != nil {
			t.Fatal(err)
		}
		var failed error
		for range 20_000 {
			if failed = f.Bytes(make([]byte, 60), epoch); failed != nil {
				break
			}
		}
		if err := f.Close(); !errors.Is(err, errFull) || failed != nil && !errors.Is(f.Bytes(nil, epoch), errFull) {
			t.Fatalf("limit %d: %v", limit, err)
		}
		want := max(limit-24, 0) / 76
		if limit < 24 {
			if d.Len() != 0 {
				t.Errorf("limit %d: %d bytes are left", limit, d.Len())
			}
			continue
		}
		if frames, _ := read(t, &d.Buffer); len(frames) != want || f.Frames() != uint64(want) {
			t.Errorf("limit %d: %d frames, said %d, want %d", limit, len(frames), f.Frames(), want)
		}
	}
}

func TestFileThatCannotBeMade(t *testing.T) {
	if _, err := Create(filepath.Join(t.TempDir(), "no", "such", "dir.pcap")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
