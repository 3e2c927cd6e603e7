package report

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// replayText writes a replay for a person, in the manner of textSink.
type replayText struct {
	text textSink
	args ReplayArgs
}

func (t *replayText) Start(r *Replay) error {
	t.args = r.Args
	names := make([]string, len(r.Devices))
	for i, d := range r.Devices {
		names[i] = d.URI
	}
	parts := []string{strings.Join(names, " -> ")}
	switch {
	case r.About != "":
		parts = append(parts, r.About)
	case len(r.Devices) > 0:
		parts = append(parts, describe(r.Devices[0]))
	}
	format := r.File.Format
	if r.File.Compressed {
		format += ", gzip"
	}
	parts = append(parts, fmt.Sprintf("%s (%s)", filepath.Base(r.Args.File), format))
	t.text.printf("%s\n", wrap("", parts, "   "))
	timing := []string{"timing " + r.Args.Timing, times(r.Args.Loops)}
	if r.Args.MaxGapNS > 0 {
		timing = append(timing, "silences up to "+time.Duration(r.Args.MaxGapNS).String())
	}
	t.text.printf("%s\n\n", wrap("", timing, "   "))
	t.text.printf("  time      tx pps      rx pps      L1 b/s   pass  file  not sent    late\n")
	return t.text.err
}

func times(n uint64) string {
	switch n {
	case 0:
		return "again and again"
	case 1:
		return "once"
	}
	return Commas(n) + " times"
}

func (t *replayText) Interval(i ReplayInterval) error {
	file := "-"
	if i.FileShare > 0 {
		file = fmt.Sprintf("%.0f%%", i.FileShare*100)
	}
	t.text.printf("%6s%12s%12s%12s%7s%6s%10s%8s\n", since(i.EndNS), Commas(round(i.TxPPS)), Commas(round(i.RxPPS)),
		SI(i.TxL1BPS, 1), Commas(i.Pass), file, Commas(i.NotSent), plainNanos(i.LateMax))
	return t.text.err
}

func (t *replayText) End(r *Replay) error {
	p := t.text.printf
	p("%s\n", strings.Repeat("-", 76))
	p(" file     %s packets", Commas(r.File.Packets))
	if r.File.Passes != 1 {
		p(" in %s whole passes", Commas(r.File.Passes))
	}
	p("\n")
	t.text.rare([]figure{{"cut by the capture", r.File.Cut}, {"stamped backwards", r.File.Backwards}, {"without stamp", r.File.Unstamped}, {"silences shortened", r.File.Shortened}}, "          ")
	p(" sent     %s\n", Commas(r.Tx.Packets))
	t.text.rare([]figure{{"padded to 60 bytes", r.Tx.Padded}, {"pause frames", r.Tx.Pause}, {"other MAC control", r.Tx.MACControl}}, "          ")
	t.text.rare([]figure{{"too short", r.NotSent.TooShort}, {"too long", r.NotSent.TooLong}, {"not Ethernet", r.NotSent.NotEthernet}, {"unsent", r.NotSent.Unsent}}, " not sent ")
	p(" received %s  missing %s\n", Commas(r.Rx.Packets), Signed(r.Missing))
	p(" pacing   late p50 %s  p99 %s  max %s\n", plainNanos(r.Pacing.LateP50), plainNanos(r.Pacing.LateP99), plainNanos(r.Pacing.LateMax))
	t.text.rare([]figure{{"too late", r.Pacing.TooLate}, {"ring full", r.Pacing.RingFull}}, "          ")
	// Cards and verdict read as those of a run.
	run := &Run{Devices: r.Devices, Checks: r.Checks, Error: r.Error, Complete: r.Complete, Valid: r.Valid, Reasons: r.Reasons, ElapsedNS: r.ElapsedNS}
	t.text.cards(run)
	t.text.verdict(run)
	return t.text.err
}
