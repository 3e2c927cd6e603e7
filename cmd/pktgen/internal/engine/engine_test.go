package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"bare.wire/clock"
	"bare.wire/cmd/pktgen/internal/capture"
	"bare.wire/cmd/pktgen/internal/frame"
	"bare.wire/cmd/pktgen/internal/report"
	"bare.wire/cmd/pktgen/internal/units"
	"bare.wire/cmd/pktgen/schema"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/link"
	"bare.wire/vtop"
)

// recorder is a sink that keeps.
type recorder struct {
	starts, ends int
	lines        []report.Interval
	each         func(report.Interval)
}

func (r *recorder) Start(*report.Run) error { r.starts++; return nil }
func (r *recorder) Interval(i report.Interval) error {
	r.lines = append(r.lines, i)
	if r.each != nil {
		r.each(i)
	}
	return nil
}
func (r *recorder) End(*report.Run) error { r.ends++; return nil }

// setting is a test of a pair of fake cards on a virtual clock.
func setting(t testing.TB, rate string, cfg link.Config) (Config, *fakePort, *fakePort, *link.Wire, *clock.Virtual) {
	t.Helper()
	a, b, wire, clk := newPair(cfg)
	r, err := units.ParseRate(rate)
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Tx: Port{a, "fake:a"}, Rx: Port{b, "fake:b"}, Clock: clk, Space: vtop.NewMapped(), Rate: r,
		Frame: frame.Spec{Proto: frame.UDP, Src: netip.MustParseAddr("198.18.0.1"), Dst: netip.MustParseAddr("198.19.0.1"),
			SrcPort: 1024, DstPort: 9, Size: 64, Flows: 1},
		Duration: time.Second, Interval: time.Second, Drain: DefaultDrain, Latency: true, Seed: 1, Sink: &recorder{},
	}, a, b, wire, clk
}

func run(t testing.TB, cfg Config) *report.Run {
	t.Helper()
	r, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	follows(t, r)
	return r
}

// follows checks the result against the schema and against itself.
func follows(t testing.TB, r *report.Run) {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	doc, _ := jsonschema.UnmarshalJSON(bytes.NewReader(schema.Run))
	got, _ := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err := c.AddResource("run.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("run.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(got); err != nil {
		t.Errorf("%v\n%s", err, b)
	}
	x := r.Streams[0]
	if int64(x.Tx.Packets) != x.Loss.Lost+int64(x.Loss.Unique)+int64(x.Loss.InFlight) {
		t.Errorf("sent %d is not lost + unique + in flight: %+v", x.Tx.Packets, x.Loss)
	}
}

func TestCleanWireLosesNothingAtExactlyTheRate(t *testing.T) {
	for _, c := range []struct {
		rate string
		d    time.Duration
		want uint64
	}{
		{"10pps", 3 * time.Second, 30}, {"9999pps", time.Second, 9999}, {"1Mpps", 2 * time.Millisecond, 2000},
		{"100%", 200 * time.Microsecond, 2977}, {"1GbpsL2", 2 * time.Millisecond, 3907},
	} {
		cfg, _, _, _, _ := setting(t, c.rate, link.Config{Delay: time.Microsecond})
		cfg.Duration = c.d
		r := run(t, cfg)
		s := r.Streams[0]
		if s.Tx.Packets != c.want || s.Loss.Unique != c.want || s.Loss.Lost != 0 || !r.Valid || !r.Complete {
			t.Errorf("%s: sent %d, want %d; %+v %v", c.rate, s.Tx.Packets, c.want, s.Loss, r.Reasons)
		}
		if s.Pacing.Skipped != 0 || s.Pacing.LateMax != 0 || s.Rx.BytesL2 != c.want*64 {
			t.Errorf("%s: %+v %+v", c.rate, s.Pacing, s.Rx)
		}
	}
}

func TestStatusLinesAddUp(t *testing.T) {
	cfg, _, _, _, _ := setting(t, "1kpps", link.Config{Loss: 0.01, Seed: 3})
	cfg.Duration, cfg.Interval = 2500*time.Millisecond, time.Second
	sink := cfg.Sink.(*recorder)
	r := run(t, cfg)
	if len(sink.lines) != 3 || sink.starts != 1 || sink.ends != 1 || len(r.Intervals) != 3 {
		t.Fatalf("%d lines, %d starts, %d ends", len(sink.lines), sink.starts, sink.ends)
	}
	var tx uint64
	for i, l := range sink.lines {
		tx += l.TxPackets
		if l.TxPPS != 1000 || l.TxL1BPS != 672_000 || l.StartNS != int64(i)*1e9 {
			t.Errorf("line %d: %+v", i, l)
		}
	}
	if tx != r.Streams[0].Tx.Packets || sink.lines[2].EndNS != 25e8 {
		t.Errorf("lines have %d, the run %d", tx, r.Streams[0].Tx.Packets)
	}
}

// Test 8 of the list: what is reported lost is the link's own list, to the packet.
func TestLossIsTheLinksOwnList(t *testing.T) {
	for _, cfg := range []link.Config{
		{}, {Loss: 1e-3}, {Loss: 0.1}, {Loss: 1}, {Gilbert: &link.GilbertElliott{P: 0.001, R: 0.1, LossBad: 1}}, {Rate: 10e6, Queue: 20},
	} {
		for seed := range uint64(3) {
			cfg.Seed = seed
			c, _, _, wire, _ := setting(t, "20kpps", cfg)
			c.Duration = 400 * time.Millisecond / slower
			r := run(t, c)
			got, want := r.Streams[0].Loss, wire.Counts(link.AToB)
			if got.Lost != int64(len(wire.Drops(link.AToB))) || got.Unique != want.Delivered || got.Reordered+got.Duplicates != 0 {
				t.Errorf("%+v: %+v, the link has lost %d", cfg, got, want.Lost())
			}
		}
	}
}

// Tests 9 and 10, and all at once.
func TestReorderAndCopiesAreTheLinksOwnList(t *testing.T) {
	for _, cfg := range []link.Config{
		{Reorder: 0.01}, {ReorderEvery: 10, ReorderBy: 5}, {Duplicate: 0.01, DuplicateCopies: 3}, {DuplicateEvery: 7, DuplicateBy: 4},
		{Loss: 0.05, Reorder: 0.05, Duplicate: 0.05, ReorderBy: 3, Jitter: 300 * time.Microsecond, Overtake: true},
	} {
		c, _, _, wire, _ := setting(t, "20kpps", cfg)
		c.Duration = 400 * time.Millisecond / slower
		r := run(t, c)
		got, want := r.Streams[0].Loss, wire.Counts(link.AToB)
		if got.Lost != int64(len(wire.Drops(link.AToB))) || got.Reordered != uint64(len(wire.Reorders(link.AToB))) || got.Duplicates != want.Copies {
			t.Errorf("%+v: %+v\nlink: %+v, %d reordered", cfg, got, want, len(wire.Reorders(link.AToB)))
		}
		if cfg.ReorderEvery == 10 && got.MaxExtent != 5 {
			t.Errorf("extent %d, want 5", got.MaxExtent)
		}
	}
}

// Test 11.
func TestFramesInFlightAtTheEndAreNotLost(t *testing.T) {
	for _, c := range []struct {
		drain    time.Duration
		inFlight uint64
	}{{0, 100}, {4 * time.Millisecond, 60}, {10 * time.Millisecond, 0}, {time.Second, 0}} {
		cfg, _, _, _, _ := setting(t, "10kpps", link.Config{Delay: 10 * time.Millisecond})
		cfg.Drain, cfg.Duration = c.drain, 50*time.Millisecond
		l := run(t, cfg).Streams[0].Loss
		if l.Lost != 0 || l.InFlight < c.inFlight || l.InFlight > c.inFlight+1 {
			t.Errorf("drain %v: %+v, want %d in flight", c.drain, l, c.inFlight)
		}
	}
}

// Tests 12 and 13.
func TestForeignAndDamagedFramesAreNeverOurs(t *testing.T) {
	cfg, a, b, _, _ := setting(t, "1kpps", link.Config{})
	a.after = func(n uint64) {
		if n == 0 {
			b.foreign = [][]byte{make([]byte, 60), make([]byte, 14), {1}, bytes.Repeat([]byte{0xb1, 0xe7}, 30)}
		}
	}
	b.damage = func(n uint64, f []byte) []byte {
		switch n {
		case 10, 11: // a bit of the payload, of the IP header
			f[[]int{30, 20}[n-10]] ^= 4
		case 12: // the magic
			f[42] ^= 1
		case 13: // the sequence
			f[48] ^= 0x80
		case 14: // the run
			f[44] ^= 0x10
		case 15: // its first half is missing
			return f[30:]
		case 16: // a tag was put in: that is in order
			return append(append(bytes.Clone(f[:12]), 0x81, 0, 0, 5), f[12:]...)
		}
		return f
	}
	r := run(t, cfg)
	l := r.Streams[0].Loss
	if l.Unsigned != 4 || l.Corrupt != 4 || l.Foreign != 2 || l.Lost != 6 || l.Duplicates+l.Reordered+l.Late != 0 {
		t.Errorf("%+v", l)
	}
}

// Test 14: latency is exact on a virtual clock: serialisation and delay.
func TestLatencyOfAKnownDelayLine(t *testing.T) {
	for _, delay := range []time.Duration{time.Microsecond, 50 * time.Microsecond, 10 * time.Millisecond} {
		cfg, _, _, _, _ := setting(t, "1kpps", link.Config{Delay: delay})
		y := run(t, cfg).Streams[0].Latency
		want := int64(delay) + 67
		for _, got := range []int64{y.Min, y.P50, y.P99, y.Max} {
			if got != want {
				t.Errorf("delay %v: %+v", delay, y)
				break
			}
		}
		if y.Jitter != 0 || y.PDV != 0 || y.Count != 1000 || !strings.HasPrefix(y.HDR, "HISTFAAAA") {
			t.Errorf("delay %v: %+v", delay, y)
		}
	}
	near := func(got, want int64) bool { return math.Abs(float64(got-want)) <= float64(want)/1000+1 }
	mix := link.Config{Delays: []link.WeightedDelay{{Delay: 10 * time.Microsecond, Weight: 90}, {Delay: 30 * time.Microsecond, Weight: 10}}}
	cfg, _, _, _, _ := setting(t, "10kpps", mix)
	cfg.Duration = time.Second / 2
	if y := run(t, cfg).Streams[0].Latency; !near(y.P50, 10_067) || !near(y.P99, 30_067) {
		t.Errorf("two delays: %+v", y)
	}
	cfg, _, _, _, _ = setting(t, "10kpps", link.Config{Delay: 10 * time.Microsecond, Jitter: 10 * time.Microsecond})
	cfg.Duration = 2 * time.Second
	if y := run(t, cfg).Streams[0].Latency; math.Abs(float64(y.P50-15_067)) > 150 || math.Abs(float64(y.P99-19_967)) > 30 {
		t.Errorf("uniform delay: %+v", y)
	}
}

func TestLatencyOff(t *testing.T) {
	cfg, _, _, _, _ := setting(t, "1kpps", link.Config{Delay: 5 * time.Millisecond})
	cfg.Latency, cfg.Drain = false, time.Millisecond
	s := run(t, cfg).Streams[0]
	if s.Latency.Count != 0 || s.Latency.Source != "off" || s.Loss.InFlight == 0 || s.Loss.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// Test 3.
func TestStallBeyondTheBudgetMakesTheRunInvalid(t *testing.T) {
	for stall, want := range map[time.Duration]bool{8 * time.Microsecond: true, time.Millisecond: true, 90 * time.Millisecond: true, 200 * time.Millisecond: false, 1500 * time.Millisecond: false} {
		cfg, _, _, _, _ := setting(t, "1kpps", link.Config{})
		cfg.Duration, cfg.Stall = 4*time.Second, stall
		r := run(t, cfg)
		p := r.Streams[0].Pacing
		if r.Valid != want || (p.Skipped == 0) != want || r.Streams[0].Loss.Lost != 0 {
			t.Errorf("stall %v: valid %v %q %+v", stall, r.Valid, r.Reasons, p)
		}
		if total := r.Streams[0].Tx.Packets + p.Skipped + p.Unsent; total != 4000 {
			t.Errorf("stall %v: %d frames are accounted for", stall, total)
		}
		if want := int64(4*time.Second + DefaultDrain); r.ElapsedNS != want {
			t.Errorf("stall %v: the run took %d ns, want %d", stall, r.ElapsedNS, want)
		}
		if !want && !strings.Contains(r.Reasons[0], "skipped") {
			t.Errorf("stall %v: %q", stall, r.Reasons)
		}
	}
}

// Test 4: a ring that is full is the generator's trouble, not the network's.
func TestSlowLinkFillsTheRingAndLosesNothing(t *testing.T) {
	cfg, a, _, _, _ := setting(t, "2Mpps", link.Config{})
	a.rate, a.ring = 672e6, 64 // 1 Mpps
	cfg.Duration, cfg.Budget = 10*time.Millisecond, 2*time.Millisecond
	r := run(t, cfg)
	s := r.Streams[0]
	if s.Loss.Lost != 0 || s.Pacing.RingFull == 0 || r.Valid || s.Pacing.Skipped == 0 {
		t.Errorf("%+v %+v %v", s.Loss, s.Pacing, r.Reasons)
	}
	if s.Tx.Packets < 9_900 || s.Tx.Packets > 10_200 {
		t.Errorf("sent %d, the link carries 10 000", s.Tx.Packets)
	}
}

func TestMaxMakesTheLinesRate(t *testing.T) {
	cfg, _, _, _, _ := setting(t, "max", link.Config{})
	cfg.Duration = 500 * time.Microsecond
	r := run(t, cfg)
	if s := r.Streams[0]; !r.Valid || s.Loss.Lost != 0 || s.Tx.Packets < 7440 || s.Tx.Packets > 8000 || s.Pacing.AchievedPPS > 14_880_952.5 || s.Pacing.AchievedPPS < 14_880_000 {
		t.Errorf("sent %d at %f pps: %v", s.Tx.Packets, s.Pacing.AchievedPPS, r.Reasons)
	}
	// Fewer frames than the ring holds are taken in no time at all.
	cfg, _, _, _, _ = setting(t, "max", link.Config{})
	cfg.Duration, cfg.Count = 0, 20
	r = run(t, cfg)
	if s := r.Streams[0]; !r.Valid || s.Pacing.AchievedPPS > 14_880_952.5 || s.Pacing.AchievedPPS < 14_880_000 {
		t.Errorf("%d frames at %f pps: %v", s.Tx.Packets, s.Pacing.AchievedPPS, r.Reasons)
	}
	cfg, a, _, _, _ := setting(t, "max", link.Config{Loss: 1})
	cfg.Burst = 1
	a.stuck = true
	if _, err := Run(context.Background(), cfg); !errors.Is(err, ErrDevice) || !strings.Contains(err.Error(), "without any time passing") {
		t.Errorf("a card outside time: %v", err)
	}
}

func TestRateBeyondTheLinkIsNeverValid(t *testing.T) {
	for rate, valid := range map[string]bool{"1Gpps": false, "15Mpps": false, "18446744073709551615pps": false, "14.88Mpps": true, "100%": true} {
		cfg, _, _, _, _ := setting(t, rate, link.Config{})
		cfg.Duration, cfg.Count = 0, 400 // less than the ring holds
		r := run(t, cfg)
		s := r.Streams[0]
		if r.Valid != valid || s.Tx.Packets != 400 || s.Pacing.AchievedPPS > 14_880_952.5 {
			t.Errorf("%s: %f pps, valid %v: %v", rate, s.Pacing.AchievedPPS, r.Valid, r.Reasons)
		}
		if !valid && !strings.Contains(r.Reasons[0], "carries 14,880,952 such frames a second") {
			t.Errorf("%s: %v", rate, r.Reasons)
		}
	}
}

func TestCountEndsTheRun(t *testing.T) {
	cfg, _, _, _, _ := setting(t, "1kpps", link.Config{})
	cfg.Count, cfg.Duration = 10, 0
	r := run(t, cfg)
	if s := r.Streams[0]; s.Tx.Packets != 10 || s.Loss.Unique != 10 || !r.Valid || !r.Complete || s.Pacing.AchievedPPS != 1000 {
		t.Errorf("%+v %v", s, r.Reasons)
	}
}

func TestInterruptEndsInAPartialResult(t *testing.T) {
	for _, forever := range []bool{false, true} {
		cfg, _, _, _, _ := setting(t, "1kpps", link.Config{Delay: time.Millisecond})
		ctx, cancel := context.WithCancel(context.Background())
		cfg.Duration, cfg.Interval = 10*time.Second, 100*time.Millisecond
		if forever {
			cfg.Duration = 0
		}
		cfg.Sink.(*recorder).each = func(i report.Interval) {
			if i.EndNS == 3e8 {
				cancel()
			}
		}
		r, err := Run(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		follows(t, r)
		if l := r.Streams[0].Loss; r.Complete != forever || l.Lost != 0 || l.InFlight != 0 || l.Unique < 300 || l.Unique > 301 || !r.Valid {
			t.Errorf("forever %v: complete %v, %+v %v", forever, r.Complete, l, r.Reasons)
		}
	}
}

func TestDeviceThatGoesAwayLeavesAPartialResult(t *testing.T) {
	cfg, a, _, _, _ := setting(t, "1kpps", link.Config{})
	a.after = func(n uint64) {
		if n == 500 {
			a.gone = fmt.Errorf("unplugged: %w", nic.ErrGone)
		}
	}
	r, err := Run(context.Background(), cfg)
	if !errors.Is(err, ErrDevice) || !errors.Is(err, nic.ErrGone) || r == nil {
		t.Fatalf("%v, result %v", err, r)
	}
	if n := strings.Count(err.Error(), "unplugged"); n != 1 || strings.Contains(err.Error(), "quarantine") {
		t.Errorf("said %d times, or more than that it is gone: %v", n, err)
	}
	follows(t, r)
	if r.Complete || r.Valid || !strings.Contains(r.Error, "fake:a") || r.Streams[0].Tx.Packets != 501 {
		t.Errorf("%+v", r)
	}
}

func TestNoLinkIsSaidAfterAWhile(t *testing.T) {
	cfg, a, _, _, clk := setting(t, "1kpps", link.Config{})
	a.late = math.MaxInt64
	if _, err := Run(context.Background(), cfg); !errors.Is(err, ErrLink) || !strings.Contains(err.Error(), "fake:a") {
		t.Error(err)
	}
	a.late = clk.Nanos() + int64(2*time.Second)
	if r := run(t, cfg); !r.Valid {
		t.Error(r.Reasons)
	}
}

func TestLossCheck(t *testing.T) {
	for limit, ok := range map[string]bool{"0": false, "50": false, "100": true, "9%": false, "10%": true} {
		cfg, _, _, _, _ := setting(t, "1kpps", link.Config{DropIf: func(id uint64, _ []byte) bool { return id%10 == 0 }})
		l, err := units.ParseLimit(limit)
		if err != nil {
			t.Fatal(err)
		}
		cfg.MaxLoss = &l
		r := run(t, cfg)
		if len(r.Checks) != 1 || r.Checks[0].OK != ok || r.Failed() == ok || !r.Valid {
			t.Errorf("limit %s: %+v", limit, r.Checks)
		}
	}
}

func TestJumboFramesComeInSegments(t *testing.T) {
	for _, size := range []int{1518, 2052, 2060, 4100, 9018, 9728} { // the mark lies in one segment, across two, and at edges
		cfg, _, _, _, _ := setting(t, "1kpps", link.Config{})
		cfg.Frame.Size, cfg.Frame.Flows, cfg.Count = size, 5, 100
		if r := run(t, cfg); r.Streams[0].Loss.Unique != 100 || r.Streams[0].Loss.Corrupt != 0 {
			t.Errorf("size %d: %+v", size, r.Streams[0].Loss)
		}
	}
}

// memory is a file of a capture.
type memory struct {
	bytes.Buffer
	full int
}

func (m *memory) Write(b []byte) (int, error) {
	if m.full > 0 && m.Len()+len(b) > m.full {
		return 0, errors.New("disk full")
	}
	return m.Buffer.Write(b)
}
func (m *memory) Truncate(n int64) error { m.Buffer.Truncate(int(n)); return nil }
func (m *memory) Close() error           { return nil }

func TestCapturesHoldWhatWasSentAndReceived(t *testing.T) {
	cfg, a, b, wire, _ := setting(t, "1kpps", link.Config{Delay: 50 * time.Microsecond, Loss: 0.1})
	a.after = func(n uint64) {
		if n == 0 {
			b.foreign = [][]byte{make([]byte, 60)}
		}
	}
	var files [2]*memory
	var captures [2]*capture.File
	for i := range files {
		files[i] = &memory{}
		captures[i], _ = capture.New("memory", files[i])
	}
	cfg.TxCapture, cfg.RxCapture = captures[0], captures[1]
	r := run(t, cfg)
	var frames [2][][]byte
	var stamps [2][]time.Time
	for i, c := range captures {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		p, err := pcapgo.NewReader(&files[i].Buffer)
		if err != nil {
			t.Fatal(err)
		}
		for {
			data, ci, err := p.ReadPacketData()
			if err != nil {
				break
			}
			frames[i], stamps[i] = append(frames[i], data), append(stamps[i], ci.Timestamp)
		}
	}
	if len(frames[0]) != int(r.Streams[0].Tx.Packets) || len(frames[1]) != int(r.Streams[0].Loss.Unique)+1 {
		t.Fatalf("%d and %d frames", len(frames[0]), len(frames[1]))
	}
	lost := map[uint64]bool{}
	for _, d := range wire.Drops(link.AToB) {
		lost[d.ID] = true
	}
	k := 0
	for i, f := range frames[0] {
		if lost[uint64(i)] {
			continue
		}
		k++ // frame 0 of the other file is the foreign one
		if !bytes.Equal(f, frames[1][k]) || stamps[1][k].Sub(stamps[0][i]) != 50_067 {
			t.Fatalf("frame %d: %x\n%x, %v apart", i, f, frames[1][k], stamps[1][k].Sub(stamps[0][i]))
		}
	}
}

func TestFullDiskStopsTheRun(t *testing.T) {
	cfg, _, _, _, _ := setting(t, "10kpps", link.Config{})
	c, err := capture.New("memory", &memory{full: 1 << 18})
	if err != nil {
		t.Fatal(err)
	}
	cfg.RxCapture = c
	r, err := Run(context.Background(), cfg)
	if err == nil || !strings.Contains(err.Error(), "disk full") || r == nil || r.Complete {
		t.Errorf("%v", err)
	}
}

func TestOnePortThatIsBothEnds(t *testing.T) {
	cfg, a, _, _, clk := setting(t, "1kpps", link.Config{})
	loop := &loopback{fakePort: a}
	cfg.Tx, cfg.Rx, cfg.Clock = Port{loop, "fake:a"}, Port{loop, "fake:a"}, clk
	r := run(t, cfg)
	if len(r.Devices) != 1 || r.Devices[0].Role != "both" || r.Streams[0].Loss.Unique != 1000 {
		t.Errorf("%+v %+v", r.Devices, r.Streams[0].Loss)
	}
}

// loopback gives back what it was sent.
type loopback struct{ *fakePort }

func (l *loopback) Tx(int) nic.TxQueue { return loopTx{fakeTx{l.fakePort}} }

type loopTx struct{ fakeTx }

func (q loopTx) Send(pkts []*mbuf.Buf) int {
	for _, b := range pkts {
		q.p.foreign = append(q.p.foreign, bytes.Clone(b.Bytes()))
		b.Free()
	}
	return len(pkts)
}

// limits is a port whose rings have so many descriptors.
type limits struct {
	nic.Port
	least, most int
}

func (l limits) Info() nic.Info { return nic.Info{MinDesc: l.least, MaxDesc: l.most} }

func TestRingsAreWhatThePortCanDo(t *testing.T) {
	for _, c := range []struct{ least, most, want int }{
		{64, 4096, 512},
		{64, 256, 256},
		{256, 256, 256}, // legacy virtio: just that
		{1024, 1024, 1024},
	} {
		if got := (Port{Port: limits{least: c.least, most: c.most}}).RingSize(512); got != c.want {
			t.Errorf("%d to %d: %d descriptors, want %d", c.least, c.most, got, c.want)
		}
	}
}

func TestSamePortsRunTwice(t *testing.T) {
	cfg, _, _, _, _ := setting(t, "1kpps", link.Config{})
	run(t, cfg)
	cfg.Seed = 2
	if r := run(t, cfg); r.Streams[0].Loss.Unique != 1000 || r.Streams[0].Loss.Foreign != 0 {
		t.Errorf("%+v", r.Streams[0].Loss)
	}
}
