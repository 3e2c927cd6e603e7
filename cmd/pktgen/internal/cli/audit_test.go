package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bare.wire/cmd/pktgen/internal/audit"
	"bare.wire/device"
	"bare.wire/sim/link"
)

// recorded runs pktgen with two captures and returns the report, the names of the captures, and what the wire did.
func recorded(t *testing.T, args ...string) (report []byte, tx, rx string, wire *audit.Link) {
	t.Helper()
	dir := t.TempDir()
	tx, rx = filepath.Join(dir, "tx.pcap"), filepath.Join(dir, "rx.pcap")
	var out, log bytes.Buffer
	var set *device.Set
	a := &app{out: &out, log: &log, open: func(ctx context.Context, opt device.Options, uris ...string) (*device.Set, error) {
		opt.Record = true
		var err error
		set, err = device.OpenSet(ctx, opt, uris...)
		return set, err
	}}
	code := a.main(context.Background(), append([]string{"run", "-o", "json", "--pcap-tx", tx, "--pcap-rx", rx}, args...))
	if code != OK && code != Invalid {
		t.Fatalf("code %d: %s", code, log.String())
	}
	wire = &audit.Link{}
	set.WithWire(func(w *link.Wire) {
		for _, d := range w.Drops(link.AToB) {
			wire.Drops = append(wire.Drops, audit.Drop{ID: d.ID, Copy: d.Copy, Cause: d.Cause.String()})
		}
		for _, d := range w.Duplicates(link.AToB) {
			wire.Copies = append(wire.Copies, audit.Copies{ID: d.ID, Copies: uint64(d.Copies)})
		}
		for _, c := range w.Corruptions(link.AToB) {
			wire.Corruptions = append(wire.Corruptions, audit.Corruption{ID: c.ID, Bit: c.Bit, BadFCS: c.BadFCS})
		}
	})
	return out.Bytes(), tx, rx, wire
}

// audited fails unless every field of the report is what the captures and the wire say.
func audited(t *testing.T, args ...string) []byte {
	t.Helper()
	report, tx, rx, wire := recorded(t, args...)
	differences, err := audit.Report(report, tx, rx, wire)
	if err != nil {
		t.Errorf("%s: %v", strings.Join(args, " "), err)
	}
	for _, d := range differences {
		t.Errorf("%s: %s", strings.Join(args, " "), d)
	}
	return report
}

// A separate program recomputes the whole report from the two captures and the wire's lists, and agrees field for field.
func TestReportIsWhatTheCapturesSay(t *testing.T) {
	wires := []string{
		"", "delay=5us", "delay=50us&jitter=20us", "delay=1ms&delays=0s:90,3ms:10&overtake",
		"loss=0.001", "loss=0.1", "loss=1", "ge=0.01,0.1", "ge=0.001,0.01,0.8,0.0001",
		"reorder=0.02", "reorder=0.01&reorder-by=7", "reorder-every=2", "reorder=0.05&reorder-delay=3ms",
		"dup=0.02", "dup=0.01&dup-copies=3", "dup=0.01&dup-by=20", "dup-every=3",
		"corrupt=0.01", "corrupt=0.02&corrupt-keep-fcs=true",
		"rate=5M&queue=10", "flap=50ms,10ms&delay=2ms",
		"delay=20us&loss=0.02&reorder=0.03&reorder-by=3&dup=0.02&corrupt=0.01&corrupt-keep-fcs=true",
		"delay=20us&jitter=400us&overtake&ge=0.02,0.2,0.9&dup=0.05&dup-by=5&corrupt=0.05",
	}
	seeds := 1
	if os.Getenv("BAREWIRE_FULL") != "" {
		seeds = 10
	}
	for i, w := range wires {
		t.Run(w, func(t *testing.T) {
			for seed := range seeds {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(seed)))
				rate := []string{"10kpps", "33333pps", "9999.7pps", "7MbpsL2", "0.1%", "20Mbps"}[rng.IntN(6)]
				size := []string{"64", "65", "128", "1518"}[rng.IntN(4)]
				uri := fmt.Sprintf("sim:?clock=virtual&seed=%d&%s", seed, w)
				args := []string{"-r", rate, "-s", size, "--seed", fmt.Sprint(seed), "-i", []string{"100ms", "37ms", "0"}[rng.IntN(3)]}
				if rng.IntN(2) == 0 {
					args = append(args, "-t", "120ms")
				} else {
					args = append(args, "-n", "1000")
				}
				audited(t, append(args, uri)...)
			}
		})
	}
}

func TestReportOfOtherRunsIsWhatTheCapturesSay(t *testing.T) {
	for name, args := range map[string][]string{
		"stall":             {"-r", "2kpps", "-t", "1s", "--stall", "300ms", "-i", "100ms", virtual},
		"stall caught up":   {"-r", "2kpps", "-t", "1s", "--stall", "80ms", "-i", "100ms", virtual},
		"no drain":          {"-r", "10kpps", "-t", "100ms", "--drain", "0", "sim:?clock=virtual&delay=3ms"},
		"short drain":       {"-r", "10kpps", "-t", "100ms", "--drain", "2ms", "sim:?clock=virtual&delay=3ms&loss=0.1&seed=2"},
		"no latency":        {"-r", "10kpps", "-t", "100ms", "--latency", "off", "sim:?clock=virtual&loss=0.1"},
		"many flows":        {"-r", "10kpps", "-n", "1000", "--flows", "100", "--vlan", "100", "--vlan", "7", "-s", "200", "sim:?clock=virtual&loss=0.1"},
		"v6 over slow wire": {"-r", "5kpps", "-t", "200ms", "--src", "2001:2::1", "--dst", "2001:2::2", "-s", "500", "sim:?clock=virtual&rate=100M&delay=7ms"},
		"count and time":    {"-r", "10kpps", "-t", "100ms", "-n", "700", virtual},
		"time before count": {"-r", "10kpps", "-t", "50ms", "-n", "700", virtual},
		"line rate":         {"-r", "100%", "-t", "2ms", "-i", "1ms", virtual},
		"late beyond 10 s":  {"-r", "100pps", "-t", "1s", "--drain", "13s", "sim:?clock=virtual&delays=0s:50,12s:50&overtake"},
	} {
		t.Run(name, func(t *testing.T) { audited(t, args...) })
	}
}

// The audit must be able to say no: whatever number of a report is changed, it is named.
func TestAuditSeesEveryChangedField(t *testing.T) {
	report, tx, rx, wire := recorded(t, "-r", "10kpps", "-t", "60ms", "-i", "30ms",
		"sim:?clock=virtual&delay=20us&loss=0.02&reorder=0.03&reorder-by=3&dup=0.02&corrupt=0.02&corrupt-keep-fcs=true")
	var root map[string]any
	if err := json.Unmarshal(report, &root); err != nil {
		t.Fatal(err)
	}
	n := 0
	check := func(path string) {
		n++
		b, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		if differences, err := audit.Report(b, tx, rx, wire); err == nil && len(differences) == 0 {
			t.Errorf("%s was changed, and nobody saw it", path)
		}
	}
	var walk func(at map[string]any, path string)
	walk = func(at map[string]any, path string) {
		for k, v := range at {
			switch v := v.(type) {
			case map[string]any:
				walk(v, path+"."+k)
			case []any:
				for i := range v {
					if m, ok := v[i].(map[string]any); ok {
						walk(m, fmt.Sprintf("%s.%s[%d]", path, k, i))
					}
				}
			case float64:
				at[k] = v + max(1, v/1000)
				check(path + "." + k)
				at[k] = v
			case bool:
				at[k] = !v
				check(path + "." + k)
				at[k] = v
			}
		}
	}
	for _, part := range []string{"streams", "intervals"} {
		walk(map[string]any{part: root[part]}, "")
	}
	for _, d := range root["devices"].([]any) {
		walk(d.(map[string]any)["counters"].(map[string]any), "counters")
	}
	for _, k := range []string{"valid", "complete"} {
		root[k] = !root[k].(bool)
		check(k)
		root[k] = !root[k].(bool)
	}
	if n < 80 {
		t.Errorf("only %d fields", n)
	}
	wire.Drops = wire.Drops[1:]
	if _, err := audit.Report(report, tx, rx, wire); err == nil {
		t.Error("a frame that was lost and that the wire did not lose was not missed")
	}
}
