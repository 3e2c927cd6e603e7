package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"bare.wire/cmd/pktgen/schema"
)

var update = flag.Bool("update", false, "write the golden files")

func ptr(f float64) *float64 { return &f }

// clean is the run of the package's example: three seconds at 1 Mpps, nothing lost.
func clean() *Run {
	r := &Run{
		Schema: SchemaName, Version: "v0.0.0",
		Host: Host{CPU: "some processor", CPUs: 2, Kernel: "6.1.0", Go: "go1.26", Arch: "amd64", Virtualised: true, Clocksource: "tsc"},
		Args: Args{Rate: "1Mpps", DurationNS: 3e9, Size: 64, Burst: 32, Proto: "udp", Src: "198.18.0.1", Dst: "198.19.0.1", Sport: 1024, Dport: 9,
			SrcMAC: "02:00:00:00:00:01", DstMAC: "02:00:00:00:00:02", Flows: 1, VLAN: []string{}, Seed: 1, DrainNS: 5e8, BudgetNS: 1e8},
		Devices: []Device{
			{Role: "tx", URI: "sim:a", Driver: "ixgbe", Name: "82599ES", MAC: "02:00:00:00:00:01", LinkBPS: 10e9, NUMA: -1, Software: true},
			{Role: "rx", URI: "sim:b", Driver: "ixgbe", Name: "82599ES", MAC: "02:00:00:00:00:02", LinkBPS: 10e9, NUMA: -1, Software: true},
		},
		Streams: []Stream{{
			Tx: Traffic{3e6, 192e6}, Rx: Traffic{3e6, 192e6}, Loss: Loss{Unique: 3e6},
			Latency: Latency{Min: 600, P50: 1100, P90: 2000, P99: 3000, P999: 9800, P9999: 20_000, Max: 41_000, Mean: 1200, StdDev: 300, Count: 3e6,
				Jitter: 100, PDV: 9200, Granularity: 2150, Source: "software, per burst", HDR: "HISTFAAAA"},
			Pacing: Pacing{TargetPPS: ptr(1e6), AchievedPPS: 1_000_000.2, LateP50: 18, LateP99: 210, LateMax: 4000, LongestBurst: 64},
		}},
		Valid: true, Reasons: []string{}, Checks: []Check{}, Complete: true, ElapsedNS: 35e8,
	}
	for i, p99 := range []int64{3000, 2900, 3100} {
		r.Intervals = append(r.Intervals, Interval{StartNS: int64(i) * 1e9, EndNS: int64(i+1) * 1e9, TxPackets: 1e6, RxPackets: 1e6,
			TxPPS: 1e6, RxPPS: 1e6, TxL1BPS: 672e6, P50: 1100, P99: p99})
	}
	return r
}

// bad is a run in which everything that can be wrong is.
func bad() *Run {
	r := clean()
	r.Args.Rate, r.Args.VLAN, r.Args.Flows, r.Args.Size = "14.88Mpps", []string{"4094:7", "100"}, 1000, 9018
	s := &r.Streams[0]
	s.Tx = Traffic{2_900_000, 26_152_200_000}
	s.Loss = Loss{Lost: -12, Ratio: -0.0000041, InFlight: 7, Unique: 2_900_005, Reordered: 31, MaxExtent: 9, Late: 2, Duplicates: 1234, Corrupt: 5, Foreign: 6, Unsigned: 70_000}
	s.Latency.Overflow, s.Latency.Negative, s.Latency.Max = 3, 1, 1_500_000_000
	s.Pacing = Pacing{TargetPPS: ptr(14_880_952.380952), AchievedPPS: 966_666.7, Skipped: 41_000_000, Unsent: 12, RingFull: 345, LateP50: 2_000, LateP99: 99_000_000, LateMax: 100_000_000, LongestBurst: 4096}
	r.Devices[1].Counters = Counters{RxMissed: 12, RxNoDesc: 3}
	r.Intervals = []Interval{{EndNS: 1_500_000_000, TxPackets: 10, RxPackets: 0, TxPPS: 6.67, TxL1BPS: 448_000, Missing: -3, Skipped: 41_000_000}}
	r.Valid, r.Complete = false, false
	r.Reasons = []string{"41,000,000 frames were more than 100 ms late and were skipped: this host stalled for 2.7 s or cannot keep the rate",
		"made 966,666.7 of 14,880,952 frames/s, less than 99.9 %"}
	r.Checks = []Check{{"--max-loss", "0", 12, false}, {"--max-loss", "1%", 0.2, true}}
	return r
}

func render(t *testing.T, format string, r *Run) []byte {
	t.Helper()
	var out bytes.Buffer
	s, err := NewSink(format, &out)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Start(r)
	for _, i := range r.Intervals {
		if err == nil {
			err = s.Interval(i)
		}
	}
	if err == nil {
		err = s.End(r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; got:\n%s", file, got)
	}
}

func TestTextIsAsDocumented(t *testing.T) {
	golden(t, "clean.txt", render(t, "text", clean()))
	golden(t, "bad.txt", render(t, "text", bad()))
	max := clean()
	max.Streams[0].Pacing = Pacing{AchievedPPS: 14_000_000}
	max.Streams[0].Latency = Latency{Source: "off"}
	max.Devices[0].LinkBPS, max.Error, max.Complete = 0, "sim:a: the device is gone", false
	golden(t, "max.txt", render(t, "text", max))
}

func TestTextHasNoEscapesAndFits80Columns(t *testing.T) {
	for _, r := range []*Run{clean(), bad()} {
		for line := range strings.Lines(string(render(t, "text", r))) {
			line = strings.TrimRight(line, "\n")
			if utf8.RuneCountInString(line) > 80 || strings.ContainsAny(line, "\x1b\r\t") || line != strings.TrimRight(line, " ") {
				t.Errorf("%d columns: %q", len(line), line)
			}
		}
	}
}

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema.Run))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("run.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("run.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t *testing.T, s *jsonschema.Schema, b []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

func TestJSONFollowsTheSchema(t *testing.T) {
	s := compile(t)
	failed := clean()
	failed.Error, failed.Complete = "sim:a: the device is gone", false
	failed.Streams[0].Pacing.TargetPPS = nil
	for _, r := range []*Run{clean(), bad(), failed} {
		if err := validate(t, s, render(t, "json", r)); err != nil {
			t.Error(err)
		}
	}
	golden(t, "clean.json", render(t, "json", clean()))
}

// The schema must be able to say no: every field is required, none may be added, types count.
func TestSchemaRefusesWhatIsMissingOrAdded(t *testing.T) {
	s := compile(t)
	good := render(t, "json", clean())
	var walk func(root any, at map[string]any, path string)
	n := 0
	check := func(root any, what string) {
		n++
		b, _ := json.Marshal(root)
		if validate(t, s, b) == nil {
			t.Errorf("%s: still valid", what)
		}
	}
	walk = func(root any, at map[string]any, path string) {
		at["surprise"] = 1.0
		check(root, path+".surprise added")
		delete(at, "surprise")
		for k, v := range at {
			delete(at, k)
			check(root, path+"."+k+" removed")
			at[k] = []any{map[string]any{"wrong": true}, 1.0, "x", nil}
			check(root, path+"."+k+" of another type")
			at[k] = v
			switch v := v.(type) {
			case map[string]any:
				walk(root, v, path+"."+k)
			case []any:
				if len(v) > 0 {
					if m, ok := v[0].(map[string]any); ok {
						walk(root, m, path+"."+k+"[0]")
					}
				}
			}
		}
	}
	var root map[string]any
	if err := json.Unmarshal(good, &root); err != nil {
		t.Fatal(err)
	}
	walk(root, root, "run")
	if n < 200 {
		t.Errorf("only %d variants", n)
	}
	invalid := clean()
	invalid.Valid = false // without a reason
	if validate(t, s, render(t, "json", invalid)) == nil {
		t.Error("not valid, no reason, and the schema agrees")
	}
}

func TestNDJSONIsOneValidObjectALine(t *testing.T) {
	s := compile(t)
	var events []string
	for line := range strings.Lines(string(render(t, "ndjson", clean()))) {
		var e struct {
			Event string          `json:"event"`
			Run   json.RawMessage `json:"run"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		events = append(events, e.Event)
		if e.Event == "end" {
			if err := validate(t, s, e.Run); err != nil {
				t.Error(err)
			}
		}
	}
	if strings.Join(events, " ") != "start interval interval interval end" {
		t.Error(events)
	}
}

func TestUnknownFormatIsNamed(t *testing.T) {
	if _, err := NewSink("xml", nil); err == nil || !strings.Contains(err.Error(), "ndjson") {
		t.Error(err)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Commas(0), "0"}, {Commas(999), "999"}, {Commas(1000), "1,000"}, {Commas(18446744073709551615), "18,446,744,073,709,551,615"},
		{Signed(-1234), "-1,234"}, {Signed(-9223372036854775808), "-9,223,372,036,854,775,808"},
		{Short(6.72), "6.72"}, {Short(0.0672), "0.0672"}, {Short(100), "100"}, {Short(0), "0"}, {Short(0.00000123456), "0.00000123"}, {Short(12345), "12345"},
		{SI(1e6, 3), "1.000 M"}, {SI(672e6, 1), "672.0 M"}, {SI(10e9, 0), "10 G"}, {SI(5, 1), "5.0 "},
		{Nanos(67), "67ns"}, {Nanos(600), "0.6us"}, {Nanos(9949), "9.9us"}, {Nanos(9950), "10us"}, {Nanos(999_499), "999us"}, {Nanos(2e6), "2.0ms"}, {Nanos(15e8), "1.50s"},
		{since(1e9), "1 s"}, {since(25e8), "2.5 s"}, {since(400_000), "400us"}, {since(99_900_000), "100ms"}, {since(1234e9), "1234 s"},
		{number(1_000_000.2), "1,000,000.2"}, {number(1e6), "1,000,000"}, {number(-3.5), "-3.5"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestHostIsReadFromProcAndSys(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/cpuinfo":              "processor\t: 0\nmodel name\t: Some CPU @ 3.0GHz\nflags\t\t: fpu hypervisor sse\n",
		"proc/sys/kernel/osrelease": "6.1.0-1\n",
		"sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h := ThisHost(root)
	if h.CPU != "Some CPU @ 3.0GHz" || h.Kernel != "6.1.0-1" || h.Clocksource != "tsc" || !h.Virtualised || h.Go == "" {
		t.Errorf("%+v", h)
	}
	if h := ThisHost(filepath.Join(root, "nowhere")); h.Virtualised || h.CPUs < 1 {
		t.Errorf("%+v", h)
	}
}
