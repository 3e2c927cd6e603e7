package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bare.wire/cmd/pktgen/internal/capture"
	"bare.wire/cmd/pktgen/internal/engine"
	"bare.wire/cmd/pktgen/internal/report"
	"bare.wire/cmd/pktgen/internal/units"
	"bare.wire/device"
	"bare.wire/mbuf"
)

// quiet is a sink that keeps nothing.
type quiet struct{}

func (quiet) Start(*report.Replay) error           { return nil }
func (quiet) Interval(report.ReplayInterval) error { return nil }
func (quiet) End(*report.Replay) error             { return nil }

// write makes a capture of n frames of size bytes, gap ns apart.
func write(t testing.TB, n, size int, gap time.Duration) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "in.pcap")
	f, err := capture.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		frame := make([]byte, size)
		frame[0], frame[12], frame[13], frame[size-1] = 2, 0x88, 0xb5, byte(i)
		if err := f.Bytes(frame, day.Add(time.Duration(i)*gap)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

// replayed runs a replay between two software cards on a virtual clock.
func replayed(t testing.TB, name string, loops uint64, cfg Config) (*report.Replay, error) {
	t.Helper()
	set, err := device.OpenSet(context.Background(), device.Options{}, "sim:?clock=virtual")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	}()
	if cfg.File, err = Open(name, loops); err != nil {
		t.Fatal(err)
	}
	defer cfg.File.Close()
	cfg.Tx, cfg.Rx = engine.Port{Port: set.Ports[0], URI: "sim:a"}, engine.Port{Port: set.Ports[1], URI: "sim:b"}
	cfg.Clock, cfg.Space = set.Clock, set.Space
	if cfg.Sink == nil {
		cfg.Sink = quiet{}
	}
	if cfg.Burst == 0 {
		cfg.Burst = 32
	}
	if cfg.Drain == 0 {
		cfg.Drain = engine.DefaultDrain
	}
	return Run(context.Background(), cfg)
}

func ExampleRun() {
	name := filepath.Join(os.TempDir(), "pktgen-example-replay.pcap")
	f, err := capture.Create(name)
	if err != nil {
		panic(err)
	}
	defer os.Remove(name)
	_ = f.Bytes(make([]byte, 1000), time.Unix(0, 0))
	_ = f.Bytes(make([]byte, 40), time.Unix(0, 5000))
	_ = f.Close()

	set, err := device.OpenSet(context.Background(), device.Options{}, "sim:?clock=virtual")
	if err != nil {
		panic(err)
	}
	defer set.Close()
	file, err := Open(name, 3)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	r, err := Run(context.Background(), Config{
		File: file, Burst: 32, Drain: time.Millisecond, Sink: quiet{}, Clock: set.Clock, Space: set.Space,
		Tx: engine.Port{Port: set.Ports[0], URI: "sim:a"}, Rx: engine.Port{Port: set.Ports[1], URI: "sim:b"},
	})
	fmt.Println("sent", r.Tx.Packets, "padded", r.Tx.Padded, "received", r.Rx.Packets, "valid", r.Valid, err)
	// Output: sent 6 padded 3 received 6 valid true <nil>
}

func TestCaptureFasterThanTheLinkIsNotValid(t *testing.T) {
	name := write(t, 200, 9000, 1)
	r, err := replayed(t, name, 5, Config{Budget: time.Millisecond})
	if err != nil || r.Valid || r.Pacing.TooLate == 0 || r.Pacing.LateMax < int64(time.Millisecond) || r.Missing != 0 || r.Tx.Packets != 1000 || !strings.Contains(r.Reasons[0], "slower than the capture") {
		t.Errorf("%v %+v %v", err, r.Pacing, r.Reasons)
	}
	most, _ := units.ParseRate("max")
	if r, err = replayed(t, name, 5, Config{Budget: time.Millisecond, Timing: Timing{Rate: &most}}); err != nil || !r.Valid || r.Tx.Packets != 1000 || r.Missing != 0 || r.Pacing.LateMax != 0 {
		t.Errorf("max: %v %+v", err, r)
	}
}

// broken fails at the n-th frame.
type broken struct{ n int }

var errDisk = errors.New("disk full")

func (b *broken) Bytes([]byte, time.Time) error {
	if b.n--; b.n < 0 {
		return errDisk
	}
	return nil
}

func (b *broken) fail() error { return b.Bytes(nil, time.Time{}) }

func TestFullDiskEndsTheReplayAndEveryFrameComesHome(t *testing.T) {
	name := write(t, 300, 3000, 1000)
	r, err := replayed(t, name, 1, Config{TxCapture: engineCapture{&broken{100}}})
	if !errors.Is(err, errDisk) || r.Complete || r.Valid || r.Error == "" || r.Tx.Packets+r.NotSent.Unsent != r.File.Packets {
		t.Errorf("tx: %v %+v", err, r)
	}
	r, err = replayed(t, name, 1, Config{RxCapture: engineCapture{&broken{100}}})
	if !errors.Is(err, errDisk) || r.Complete || r.Rx.Packets < 100 {
		t.Errorf("rx: %v %+v", err, r)
	}
}

func TestFileThatGoesBetweenTwoPassesIsAnError(t *testing.T) {
	name := write(t, batchRecords*(batches+2), 60, 1000) // more than is read ahead
	r, err := replayed(t, name, 3, Config{Sink: &onStart{func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}}})
	if !errors.Is(err, ErrFile) || !errors.Is(err, os.ErrNotExist) || r.File.Passes != 1 || r.Rx.Packets != r.File.Packets || r.Complete {
		t.Errorf("%v %+v", err, r)
	}
}

type onStart struct{ f func() }

func (s *onStart) Start(*report.Replay) error         { s.f(); return nil }
func (*onStart) Interval(report.ReplayInterval) error { return nil }
func (*onStart) End(*report.Replay) error             { return nil }

// The reader hands over every packet once, in order, however the passes and batches fall.
func TestSourceGivesEveryPacketOfEveryPass(t *testing.T) {
	for _, n := range []int{1, batchRecords - 1, batchRecords, batchRecords + 1, 3 * batchRecords} {
		s, err := openSource(write(t, n, 100, 1), 3)
		if err != nil {
			t.Fatal(err)
		}
		for pass := range 3 {
			for i := range n {
				p, err := s.next(context.Background())
				if err != nil || p.data[99] != byte(i) || len(p.data) != 100 {
					t.Fatalf("%d packets, pass %d: packet %d: %v", n, pass, i, err)
				}
			}
			if _, err := s.next(context.Background()); err != io.EOF {
				t.Fatalf("%d packets, pass %d: %v at its end", n, pass, err)
			}
		}
		s.close()
	}
}

func TestSourceThatNobodyReadsIsClosed(t *testing.T) {
	for range 20 {
		s, err := openSource(write(t, 20*batchRecords, 60, 1), 0)
		if err != nil {
			t.Fatal(err)
		}
		s.close()
	}
}

func BenchmarkReplay(b *testing.B) {
	name := write(b, 100_000, 60, 1)
	most, _ := units.ParseRate("max")
	for b.Loop() {
		r, err := replayed(b, name, 1, Config{Timing: Timing{Rate: &most}})
		if err != nil || r.Rx.Packets != 100_000 {
			b.Fatal(err, r.Rx)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/packet")
}

// engineCapture makes a capture of whatever fails.
type engineCapture struct{ *broken }

func (e engineCapture) Frame(*mbuf.Buf, time.Time) error { return e.fail() }
