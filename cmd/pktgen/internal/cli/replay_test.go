package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"bare.wire/cmd/pktgen/internal/capture"
	"bare.wire/cmd/pktgen/internal/report"
	"bare.wire/cmd/pktgen/schema"
	"bare.wire/device"
)

// Monday is when captures in these tests begin.
var monday = time.Date(2026, 3, 2, 8, 0, 0, 123_456_789, time.UTC)

// shot is a frame and when it was captured, ns since monday.
type shot struct {
	at   int64
	data []byte
}

// record writes a capture and returns its name.
func record(t *testing.T, shots ...shot) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "in.pcap")
	f, err := capture.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shots {
		if err := f.Bytes(s.data, monday.Add(time.Duration(s.at))); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

// playback reads a capture; stamps are ns since its first frame.
func playback(t *testing.T, name string) (shots []shot) {
	t.Helper()
	r, err := capture.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var first time.Time
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return shots
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(shots) == 0 {
			first = rec.At
		}
		shots = append(shots, shot{int64(rec.At.Sub(first)), bytes.Clone(rec.Data)})
	}
}

// numbered is a frame of n bytes unlike all others.
func numbered(i, n int) []byte {
	b := bytes.Repeat([]byte{byte(i), byte(i >> 8), 0x5a}, n/3+1)[:n]
	if n >= 14 {
		copy(b, []byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5})
	}
	return b
}

// macControl is a frame of ethertype 8808.
func macControl(to [6]byte, opcode uint16) []byte {
	b := make([]byte, 60)
	copy(b, to[:])
	copy(b[6:], []byte{2, 0, 0, 0, 0, 7, 0x88, 0x08})
	binary.BigEndian.PutUint16(b[14:], opcode)
	return b
}

// try runs replay and returns its result, exit code and what it had to say.
func try(t *testing.T, args ...string) (*report.Replay, Code, string) {
	t.Helper()
	var out, log bytes.Buffer
	a := &app{out: &out, log: &log, open: device.OpenSet}
	code := a.main(context.Background(), append([]string{"replay", "-o", "json"}, args...))
	if out.Len() == 0 {
		return nil, code, log.String()
	}
	return result(t, out.Bytes()), code, log.String()
}

// result decodes a result that keeps to the schema and adds up.
func result(t *testing.T, b []byte) *report.Replay {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema.Replay))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("replay.json", doc); err != nil {
		t.Fatal(err)
	}
	if doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(b)); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	if err := c.MustCompile("replay.json").Validate(doc); err != nil {
		t.Fatal(err)
	}
	r := &report.Replay{}
	if err := json.Unmarshal(b, r); err != nil {
		t.Fatal(err)
	}
	if n := r.NotSent; r.File.Packets != r.Tx.Packets+n.TooShort+n.TooLong+n.NotEthernet+n.Unsent {
		t.Errorf("the file's %d packets are not %d sent and %+v", r.File.Packets, r.Tx.Packets, n)
	}
	if int64(r.Tx.Packets) != int64(r.Tx.Pause+r.Tx.MACControl)+r.Missing+int64(r.Rx.Packets-r.Rx.MACControl) {
		t.Errorf("%+v, %d missing, %+v do not add up", r.Tx, r.Missing, r.Rx)
	}
	return r
}

const virtual = "sim:?clock=virtual"

func TestEveryLengthComesBackOrIsCounted(t *testing.T) {
	var shots []shot
	var want [][]byte
	add := func(data []byte, back bool) {
		shots = append(shots, shot{int64(len(shots)) * 10_000, data})
		if back {
			want = append(want, append(bytes.Clone(data), make([]byte, max(60-len(data), 0))...))
		}
	}
	lengths := []int{}
	for n := range 130 {
		lengths = append(lengths, n)
	}
	lengths = append(lengths, 1514, 1518, 1522, 2047, 2048, 2049, 4096, 9000, 9723, 9724, 9725, 10_000, 16_384, 16_385, 65_535)
	for i, n := range lengths {
		add(numbered(i, n), n >= 14 && n <= 9724)
	}
	pause := [6]byte{0x01, 0x80, 0xc2, 0, 0, 1}
	add(macControl(pause, 1), false)
	add(macControl(pause, 0x0101), false) // priority pause
	add(macControl([6]byte{2, 0, 0, 0, 0, 9}, 2), false)
	add(macControl([6]byte{0x01, 0x80, 0xc2, 0, 0, 2}, 1), false)
	in, out := record(t, shots...), filepath.Join(t.TempDir(), "out.pcap")
	r, code, log := try(t, "--pcap-rx", out, "--max-loss", "0", in, virtual)
	if code != OK {
		t.Fatalf("code %d: %s %v", code, log, r.Reasons)
	}
	got := playback(t, out)
	if len(got) != len(want) {
		t.Fatalf("%d frames came back, want %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i].data, want[i]) {
			t.Errorf("frame %d of %d bytes came back as %d others", i, len(want[i]), len(got[i].data))
		}
	}
	if r.NotSent != (report.NotSent{TooShort: 14, TooLong: 5}) || r.Tx.Padded != 46 || r.Tx.Pause != 2 || r.Tx.MACControl != 2 || r.Missing != 0 {
		t.Errorf("%+v %+v %d", r.NotSent, r.Tx, r.Missing)
	}
}

func TestTagsAndAddressesAreLeftAlone(t *testing.T) {
	tagged := numbered(1, 100)
	copy(tagged[12:], []byte{0x81, 0x00, 0x60, 0x64, 0x08, 0x00})
	double := numbered(2, 100)
	copy(double[12:], []byte{0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x08, 0x00})
	bcast, mcast := numbered(3, 70), numbered(4, 70)
	copy(bcast, []byte{255, 255, 255, 255, 255, 255})
	copy(mcast, []byte{0x33, 0x33, 0, 0, 0, 1})
	badIP := numbered(5, 80)
	copy(badIP[12:], []byte{0x08, 0x00, 0x4f, 0, 0xff, 0xff})
	lengthField := numbered(6, 60)
	copy(lengthField[12:], []byte{0x05, 0xdc})
	zeros := make([]byte, 64)
	in := record(t, shot{0, tagged}, shot{1, double}, shot{2, bcast}, shot{3, mcast}, shot{4, badIP}, shot{5, lengthField}, shot{6, zeros})
	out := filepath.Join(t.TempDir(), "out.pcap")
	if _, code, log := try(t, "--pcap-rx", out, "--max-loss", "0", in, virtual); code != OK {
		t.Fatalf("code %d: %s", code, log)
	}
	got := playback(t, out)
	for i, want := range [][]byte{tagged, double, bcast, mcast, badIP, lengthField, zeros} {
		if i >= len(got) || !bytes.Equal(got[i].data, want) {
			t.Errorf("frame %d is not the same", i)
		}
	}
}

// On a virtual clock the gaps are those of the file to the nanosecond; twice the speed halves them; three passes take three
// periods, the period being the span and a mean gap.
func TestGapsAreKeptToTheNanosecond(t *testing.T) {
	at := []int64{0, 1, 10_001, 10_001, 77_777_777, 2_000_000_003}
	var shots []shot
	for i, a := range at {
		shots = append(shots, shot{a, numbered(i, 60+i)})
	}
	in := record(t, shots...)
	period := at[5] + (at[5]+2)/5
	for _, c := range []struct {
		args []string
		want func(i int) int64
	}{
		{nil, func(i int) int64 { return at[i] }},
		{[]string{"--timing", "x2"}, func(i int) int64 { return at[i] / 2 }},
		{[]string{"--timing", "x0.5"}, func(i int) int64 { return at[i] * 2 }},
		{[]string{"--loop", "3"}, func(i int) int64 { return int64(i/6)*period + at[i%6] }},
		{[]string{"-r", "1000pps"}, func(i int) int64 { return int64(i) * 1e6 }},
		{[]string{"-r", "8MbpsL2", "--loop", "2"}, func(i int) int64 {
			ns := int64(0)
			for k := range i {
				ns += int64(64+k%6) * 1000
			}
			return ns
		}},
		{[]string{"--max-gap", "1ms"}, func(i int) int64 { return []int64{0, 1, 10_001, 10_001, 1_010_001, 2_010_001}[i] }},
	} {
		out := filepath.Join(t.TempDir(), "tx.pcap")
		r, code, log := try(t, append(c.args, "--pcap-tx", out, in, virtual)...)
		if code != OK {
			t.Fatalf("%v: code %d: %s", c.args, code, log)
		}
		got := playback(t, out)
		if len(got) != int(r.File.Packets) || len(got)%6 != 0 {
			t.Errorf("%v: %d frames sent", c.args, len(got))
		}
		for i, s := range got {
			if s.at != c.want(i) || !bytes.Equal(s.data, shots[i%6].data) {
				t.Errorf("%v: frame %d at %d, want %d", c.args, i, s.at, c.want(i))
			}
		}
	}
}

// What run records, replay sends again: the same frames with the same gaps.
func TestRunRecordedAndReplayed(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "1.pcap"), filepath.Join(dir, "2.pcap")
	a := &app{out: io.Discard, log: io.Discard, open: device.OpenSet}
	if code := a.main(context.Background(), []string{"run", "-r", "333333pps", "-n", "5000", "-s", "200", "--seed", "7", "--pcap-tx", first, virtual}); code != OK {
		t.Fatal(code)
	}
	want := playback(t, first)
	for _, timing := range [][]string{nil, {"-r", "max", "-b", "250"}} { // the latter with frames that wait for the ring
		if _, code, log := try(t, append(timing, "--pcap-tx", second, first, virtual)...); code != OK {
			t.Fatal(code, log)
		}
		got := playback(t, second)
		if len(want) != 5000 || len(got) != 5000 {
			t.Fatal(len(want), len(got))
		}
		for i := range want {
			if timing == nil && want[i].at != got[i].at || !bytes.Equal(want[i].data, got[i].data) {
				t.Fatalf("%v: frame %d is another", timing, i)
			}
		}
	}
}

func TestStampsThatRunBackwardsAreSentAtOnceAndCounted(t *testing.T) {
	in := record(t, shot{0, numbered(0, 60)}, shot{5000, numbered(1, 60)}, shot{3000, numbered(2, 60)}, shot{-7000, numbered(3, 60)}, shot{9000, numbered(4, 60)})
	out := filepath.Join(t.TempDir(), "tx.pcap")
	r, code, _ := try(t, "--pcap-tx", out, in, virtual)
	var at []int64
	for _, s := range playback(t, out) {
		at = append(at, s.at)
	}
	if code != OK || r.File.Backwards != 2 || fmt.Sprint(at) != "[0 5000 5000 5000 9000]" {
		t.Errorf("code %d, %d backwards, sent at %v", code, r.File.Backwards, at)
	}
}

func TestCaptureCutInTheMiddleIsSentAsFarAsItGoes(t *testing.T) {
	in := record(t, shot{0, numbered(0, 60)}, shot{5, numbered(1, 60)}, shot{6, numbered(2, 60)})
	whole, err := os.ReadFile(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ cut, packets int }{{len(whole) - 1, 2}, {len(whole) - 60, 2}, {len(whole) - 61, 2}, {24 + 76 + 1, 1}} {
		for _, zip := range []bool{false, true}[:1+c.packets%2] {
			b := whole[:c.cut]
			if zip {
				var z bytes.Buffer
				w := gzip.NewWriter(&z)
				_, _ = w.Write(b)
				_ = w.Close()
				b = z.Bytes()
			}
			if err := os.WriteFile(in, b, 0o644); err != nil {
				t.Fatal(err)
			}
			r, code, log := try(t, "--loop", "5", in, virtual)
			if code != Device || r == nil || r.Valid || r.Complete || int(r.Rx.Packets) != c.packets || r.File.Passes != 0 {
				t.Fatalf("cut at %d: code %d, %+v", c.cut, code, r)
			}
			for _, want := range []string{in, fmt.Sprintf("packet %d, at byte", c.packets+1), "complete"} {
				if !strings.Contains(log, want) || !strings.Contains(r.File.Error, want) {
					t.Errorf("cut at %d: %q does not say %q", c.cut, log, want)
				}
			}
		}
	}
}

func TestPacketsCutByTheCaptureAreSentAsCapturedAndCounted(t *testing.T) {
	in := record(t, shot{0, numbered(0, 80)}, shot{5, numbered(1, 90)})
	b, err := os.ReadFile(in)
	if err != nil {
		t.Fatal(err)
	}
	b[24+12]++ // the first was longer on the wire
	if err := os.WriteFile(in, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if r, code, _ := try(t, in, virtual); code != OK || r.File.Cut != 1 || r.Rx.BytesL2 != 80+90+8 {
		t.Errorf("code %d, %+v %+v", code, r.File, r.Rx)
	}
}

func TestReplayCommandLinesThatMakeNoSense(t *testing.T) {
	in := record(t, shot{0, numbered(0, 60)})
	text := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(text, []byte("these are notes\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		says string
	}{
		{"", "no capture file"}, {in + " a b c", "3 devices"}, {text, "pcap and pcapng are known"}, {filepath.Dir(text), "directory"}, {in + "x", "no such file"},
		{"--timing fast " + in, "--timing"}, {"--timing x0 " + in, "nothing would ever be sent"}, {"-r 10 " + in, "did you mean 10pps"},
		{"-r 1Mpps --timing x2 " + in, "leave out one"}, {"-r 1Mpps --max-gap 1s " + in, "leave out one"}, {"--loop -1 " + in, "--loop"}, {"-b 0 " + in, "-b 0"},
		{"-i 1us " + in, "at least 1ms"}, {"--drain x " + in, "--drain"}, {"--max-loss x " + in, "--max-loss"}, {"-o xml " + in, "ndjson"},
		{in + " nothing:", "known are"}, {"--loops 3 " + in, "did you mean --loop?"}, {"--loop 2 /dev/null", "not a regular file"}, {"/dev/null", "is empty"},
	} {
		if r, code, log := try(t, strings.Fields(c.args)...); code != Usage || r != nil || !strings.Contains(log, c.says) {
			t.Errorf("%s: code %d: %s", c.args, code, log)
		}
	}
}

func TestFileThatMayNotBeReadIsTheMachinesDoing(t *testing.T) {
	for errno, want := range map[syscall.Errno]Code{syscall.EACCES: Environment, syscall.EMFILE: Environment, syscall.ENOENT: Usage, syscall.EISDIR: Usage} {
		if got := fileCode(fmt.Errorf("open: %w", errno)); got != want {
			t.Errorf("%v: %d", errno, got)
		}
	}
}

func TestReplayThatLosesFramesBreaksItsLimit(t *testing.T) {
	var shots []shot
	for i := range 1000 {
		shots = append(shots, shot{int64(i) * 1000, numbered(i, 60)})
	}
	in := record(t, shots...)
	r, code, _ := try(t, "--max-loss", "0", in, "sim:?clock=virtual&loss=0.1&seed=1")
	if code != CheckFailed || r.Missing < 50 || r.Missing > 200 || !r.Failed() {
		t.Errorf("code %d, %d missing", code, r.Missing)
	}
	if r, code, _ = try(t, "--max-loss", "50%", in, "sim:?clock=virtual&loss=0.1&seed=1"); code != OK || r.Failed() {
		t.Errorf("code %d", code)
	}
}

func TestReplayThatSendsNothingIsNotValid(t *testing.T) {
	in := record(t, shot{0, numbered(0, 10)}, shot{1, numbered(1, 10_000)})
	r, code, log := try(t, in, virtual)
	if code != Invalid || r.Valid || fmt.Sprint(r.Reasons) != "[nothing was sent]" || r.NotSent.TooShort != 1 || r.NotSent.TooLong != 1 {
		t.Errorf("code %d: %s %v %+v", code, log, r.Reasons, r.NotSent)
	}
}

func TestInterruptedReplayPrintsWhatItHas(t *testing.T) {
	in := record(t, shot{0, numbered(0, 60)}, shot{600e6, numbered(1, 60)}, shot{5e9, numbered(2, 60)})
	for _, loops := range []string{"1", "0"} {
		ctx, cancel := context.WithCancel(context.Background())
		out := &onLine{text: `"interval"`, f: cancel}
		a := &app{out: out, log: io.Discard, open: device.OpenSet}
		code := a.main(ctx, []string{"replay", "-o", "ndjson", "--loop", loops, in, virtual})
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		var end report.ReplayEvent
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &end); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(end.Replay)
		if err != nil {
			t.Fatal(err)
		}
		r := result(t, b)
		if endless := loops == "0"; r.Complete != endless || endless && code != OK || !endless && code != Interrupted {
			t.Errorf("--loop %s: code %d, complete %v", loops, code, r.Complete)
		}
		if r.Tx.Packets != 2 || r.Rx.Packets != 2 || r.NotSent.Unsent != 1 || r.ElapsedNS >= 5e9 {
			t.Errorf("--loop %s: %+v %+v after %d ns", loops, r.Tx, r.NotSent, r.ElapsedNS)
		}
	}
}

// A pipe is read as it comes, and an interruption ends even a read that waits for more.
func TestPipeIsReplayedAndInterrupted(t *testing.T) {
	b, err := os.ReadFile(record(t, shot{0, numbered(0, 60)}, shot{1000, numbered(1, 60)}))
	if err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	release := make(chan struct{})
	go func() {
		w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err == nil {
			// More than the reader's first batch, or it would wait for that to fill.
			for i := 0; i < 300 && err == nil; i++ {
				from := 0
				if i > 0 {
					from = 24
				}
				_, err = w.Write(b[from:])
			}
		}
		written <- err
		<-release
		_ = w.Close()
	}()
	ctx, cancel := context.WithCancel(context.Background())
	out := &onLine{text: `"start"`, f: cancel}
	a := &app{out: out, log: io.Discard, open: device.OpenSet}
	code := a.main(ctx, []string{"replay", "-o", "ndjson", pipe, virtual})
	close(release)
	if err := <-written; err != nil || code != Interrupted {
		t.Errorf("code %d, %v: %s", code, err, out)
	}
}
