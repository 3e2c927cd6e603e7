package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"bare.wire/cmd/pktgen/schema"
)

// cleanReplay is a capture that went out whole.
func cleanReplay() *Replay {
	run := clean()
	return &Replay{
		Schema: ReplaySchema, Version: run.Version, About: "in-process pair, link 10 Gb/s", Host: run.Host, Devices: run.Devices,
		Args:      ReplayArgs{File: "captures/office.pcap", Timing: "original", Loops: 1, Burst: 32, DrainNS: 5e8, BudgetNS: 1e8},
		File:      ReplayFile{Format: "pcap", Packets: 12_345, Passes: 1, SpanNS: 15e8},
		Tx:        ReplayTx{Packets: 12_345, BytesL2: 7_000_000},
		Rx:        ReplayRx{Packets: 12_345, BytesL2: 7_000_000},
		Pacing:    ReplayPacing{LateP50: 18, LateP99: 210, LateMax: 4000, LongestBurst: 3},
		Intervals: []ReplayInterval{{EndNS: 1e9, TxPackets: 10_000, RxPackets: 9_999, TxPPS: 10_000, RxPPS: 9_999, TxL1BPS: 46e6, LateMax: 4000, Pass: 1, FileShare: 0.81}},
		Valid:     true, Reasons: []string{}, Checks: []Check{}, Complete: true, ElapsedNS: 2e9,
	}
}

// badReplay has one of everything that can be wrong.
func badReplay() *Replay {
	r := cleanReplay()
	r.About = ""
	r.Args.Timing, r.Args.Loops, r.Args.MaxGapNS = "x0.5", 3, 1e9
	r.File = ReplayFile{Format: "pcapng", Compressed: true, Packets: 12_345, Passes: 2, Cut: 1, Backwards: 2, Unstamped: 3, Shortened: 4, Error: "damaged"}
	r.Tx = ReplayTx{Packets: 12_320, BytesL2: 6_000_000, Padded: 5, Pause: 6, MACControl: 7}
	r.NotSent = NotSent{TooShort: 8, TooLong: 9, NotEthernet: 1, Unsent: 7}
	r.Rx, r.Missing = ReplayRx{Packets: 12_300, BytesL2: 6_000_000}, 7
	r.Pacing = ReplayPacing{LateP50: 1e6, LateP99: 2e8, LateMax: 3e8, TooLate: 100, RingFull: 11, LongestBurst: 32}
	r.Intervals = append(r.Intervals, ReplayInterval{StartNS: 1e9, EndNS: 2e9, Pass: 2, NotSent: 25})
	r.Devices[1].Counters.RxMissed = 7
	r.Checks = []Check{{Name: "--max-loss", Limit: "0", Value: 7}}
	r.Valid, r.Complete, r.Error, r.Reasons = false, false, "the capture file failed: damaged", []string{"the replay was stopped by an error"}
	return r
}

func renderReplay(t *testing.T, format string, r *Replay) []byte {
	t.Helper()
	var out bytes.Buffer
	s, err := NewReplaySink(format, &out)
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

func compileReplay(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema.Replay))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("replay.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("replay.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestReplayTextIsForAPerson(t *testing.T) {
	golden(t, "replay-clean.txt", renderReplay(t, "text", cleanReplay()))
	golden(t, "replay-bad.txt", renderReplay(t, "text", badReplay()))
	for line := range strings.Lines(string(renderReplay(t, "text", badReplay()))) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestReplayJSONFollowsTheSchema(t *testing.T) {
	s := compileReplay(t)
	for _, r := range []*Replay{cleanReplay(), badReplay()} {
		if err := validate(t, s, renderReplay(t, "json", r)); err != nil {
			t.Error(err)
		}
	}
}

// Every field of the result is described and required; none may be added.
func TestReplaySchemaRefusesWhatIsMissingOrAdded(t *testing.T) {
	s := compileReplay(t)
	var root map[string]any
	if err := json.Unmarshal(renderReplay(t, "json", badReplay()), &root); err != nil {
		t.Fatal(err)
	}
	optional := map[string]bool{"error": true}
	n := 0
	check := func(what string) {
		n++
		b, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		if validate(t, s, b) == nil {
			t.Errorf("%s: still valid", what)
		}
	}
	var walk func(at map[string]any, path string)
	walk = func(at map[string]any, path string) {
		at["surprise"] = 1.0
		check(path + ".surprise added")
		delete(at, "surprise")
		for k, v := range at {
			if delete(at, k); !optional[k] {
				check(path + "." + k + " removed")
			}
			at[k] = []any{map[string]any{"wrong": true}}
			check(path + "." + k + " of another type")
			switch at[k] = v; v := v.(type) {
			case map[string]any:
				walk(v, path+"."+k)
			case []any:
				if m, ok := v[0].(map[string]any); ok {
					walk(m, path+"."+k+"[0]")
				}
			}
		}
	}
	walk(root, "replay")
	if n < 150 {
		t.Errorf("only %d variants", n)
	}
	root["reasons"] = []any{}
	check("not valid and no reason")
}

func TestReplayNDJSONIsOneObjectALine(t *testing.T) {
	s := compileReplay(t)
	var events []string
	for line := range strings.Lines(string(renderReplay(t, "ndjson", badReplay()))) {
		var e struct {
			Event  string          `json:"event"`
			Replay json.RawMessage `json:"replay"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		events = append(events, e.Event)
		if e.Event == "end" {
			if err := validate(t, s, e.Replay); err != nil {
				t.Error(err)
			}
		}
	}
	if strings.Join(events, " ") != "start interval interval end" {
		t.Error(events)
	}
	if _, err := NewReplaySink("xml", nil); err == nil || !strings.Contains(err.Error(), "ndjson") {
		t.Error(err)
	}
}
