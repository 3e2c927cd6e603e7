package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// textSink writes lines for a person, at most 80 columns, no colour, no cursor movement.
type textSink struct {
	w   io.Writer
	err error
	run *Run
}

func (t *textSink) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, args...)
	}
}

func (t *textSink) Start(r *Run) error {
	t.run = r
	t.printf("%s\n", headline(r))
	t.printf("%s\n\n", rateLine(r))
	t.printf("  time      tx pps      rx pps      L1 b/s   lost  reord  dup    p50     p99\n")
	return t.err
}

// headline says who sends what to whom.
func headline(r *Run) string {
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
	a := r.Args
	kind := fmt.Sprintf("%s %d B", a.Proto, a.Size)
	for _, v := range a.VLAN {
		kind += " vlan " + v
	}
	return wrap("", append(parts, kind, Flows(a.Flows), fmt.Sprintf("seed %d", a.Seed)), "   ")
}

// Flows writes "1 flow", "1,000 flows".
func Flows(n int) string {
	if n == 1 {
		return "1 flow"
	}
	return Commas(uint64(n)) + " flows"
}

func describe(d Device) string {
	kind := d.Driver
	if d.Software {
		kind = "in-process pair"
	}
	if d.LinkBPS == 0 {
		return kind + ", link speed unknown"
	}
	return kind + ", link " + SI(float64(d.LinkBPS), 0) + "b/s"
}

// wrap writes lead and joins parts with sep behind it; where a part would cross column 80 a new line starts, as deep as
// lead is long.
func wrap(lead string, parts []string, sep string) string {
	var b strings.Builder
	b.WriteString(lead)
	col := len(lead)
	for i, p := range parts {
		switch {
		case i == 0:
		case col+len(sep)+len(p) > 80:
			b.WriteString("\n" + strings.Repeat(" ", len(lead)))
			col = len(lead)
		default:
			b.WriteString(sep)
			col += len(sep)
		}
		b.WriteString(p)
		col += len(p)
	}
	return b.String()
}

// rateLine gives the asked rate in its three names: frames a second, L2 (frame with FCS), L1 (and 20 bytes more).
func rateLine(r *Run) string {
	if len(r.Streams) == 0 || r.Streams[0].Pacing.TargetPPS == nil {
		return "rate max"
	}
	pps, size := *r.Streams[0].Pacing.TargetPPS, float64(r.Args.Size)
	l1 := pps * (size + 20) * 8
	line := fmt.Sprintf("rate %spps = %sb/s L2 = %sb/s L1", SI(pps, 3), SI(pps*size*8, 1), SI(l1, 1))
	if len(r.Devices) > 0 && r.Devices[0].LinkBPS > 0 {
		line += fmt.Sprintf(" = %s %%", Short(l1/float64(r.Devices[0].LinkBPS)*100))
	}
	return line
}

func (t *textSink) Interval(i Interval) error {
	latency := [2]string{"-", "-"}
	if i.RxPackets > 0 && t.run.Streams[0].Latency.Source != "off" {
		latency = [2]string{Nanos(i.P50), Nanos(i.P99)}
	}
	t.printf("%6s%12s%12s%11s%8s%7s%5s%7s%8s\n", since(i.EndNS), Commas(round(i.TxPPS)), Commas(round(i.RxPPS)),
		SI(i.TxL1BPS, 1), Signed(i.Missing), Commas(i.Reordered), Commas(i.Duplicates), latency[0], latency[1])
	return t.err
}

func (t *textSink) End(r *Run) error {
	t.printf("%s\n", strings.Repeat("-", 76))
	for i := range r.Streams {
		t.stream(r, &r.Streams[i])
	}
	t.cards(r)
	t.verdict(r)
	return t.err
}

func (t *textSink) stream(r *Run, s *Stream) {
	l := s.Loss
	t.printf("%s\n", wrap(" ", []string{
		"sent " + Commas(s.Tx.Packets), "received " + Commas(l.Unique), fmt.Sprintf("lost %s (%s %%)", Signed(l.Lost), Short(l.Ratio*100)),
		"reordered " + Commas(l.Reordered), "dup " + Commas(l.Duplicates), "bad " + Commas(l.Corrupt),
	}, "  "))
	t.rare([]figure{{"in flight", l.InFlight}, {"max extent", l.MaxExtent}, {"late", l.Late}, {"foreign", l.Foreign}, {"unsigned", l.Unsigned}}, " also    ")
	if y := s.Latency; y.Count > 0 {
		t.printf("%s\n", wrap(" latency ", []string{
			"min " + Nanos(y.Min), "p50 " + Nanos(y.P50), "p99 " + Nanos(y.P99), "p99.9 " + Nanos(y.P999), "max " + Nanos(y.Max), "(" + y.Source + ")",
		}, "  "))
		t.rare([]figure{{"above 10 s", y.Overflow}, {"before sent", y.Negative}}, "         ")
	}
	p := s.Pacing
	asked := "asked max"
	if p.TargetPPS != nil {
		asked = "asked " + number(*p.TargetPPS) + " pps"
	}
	parts := []string{asked, "made " + number(p.AchievedPPS)}
	if p.TargetPPS != nil {
		parts = append(parts, "late p99 "+plainNanos(p.LateP99), "skipped "+Commas(p.Skipped))
	}
	t.printf("%s\n", wrap(" pacing  ", parts, "  "))
	t.rare([]figure{{"unsent at the end", p.Unsent}, {"ring full", p.RingFull}}, "         ")
}

type figure struct {
	name  string
	value uint64
}

// rare prints the figures that are not zero, on a line of their own.
func (t *textSink) rare(figures []figure, lead string) {
	var parts []string
	for _, f := range figures {
		if f.value != 0 {
			parts = append(parts, f.name+" "+Commas(f.value))
		}
	}
	if len(parts) > 0 {
		t.printf("%s\n", wrap(lead, parts, "  "))
	}
}

// cards names what the devices themselves have dropped.
func (t *textSink) cards(r *Run) {
	for _, d := range r.Devices {
		c := d.Counters
		t.rare([]figure{{"missed", c.RxMissed}, {"no descriptor", c.RxNoDesc}, {"rx errors", c.RxErrors}, {"no buffer", c.RxNoBuf}, {"tx errors", c.TxErrors}},
			fmt.Sprintf(" %s: ", d.URI))
	}
}

func (t *textSink) verdict(r *Run) {
	for _, c := range r.Checks {
		if !c.OK {
			t.printf(" FAILED %s %s: it was %s\n", c.Name, c.Limit, number(c.Value))
		}
	}
	if r.Error != "" {
		t.printf(" STOPPED by an error: %s\n", r.Error)
	} else if !r.Complete {
		t.printf(" INTERRUPTED after %s s: a partial result\n", Short(float64(r.ElapsedNS)/1e9))
	}
	if r.Valid {
		t.printf(" VALID\n")
		return
	}
	t.printf(" NOT VALID\n")
	for _, reason := range r.Reasons {
		t.printf("%s\n", wrap("   ", strings.Fields(reason), " "))
	}
}

// since writes the time of a status line: "1 s", "2.5 s", "400us"; six columns as long as a run takes less than an hour.
func since(ns int64) string {
	if s := Short(float64(ns)/1e9) + " s"; len(s) <= 6 || ns >= 1e9 {
		return s
	}
	return Nanos(ns)
}

func round(f float64) uint64 { return uint64(math.Round(max(f, 0))) }

// Commas writes 1,234,567.
func Commas(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Signed is Commas for numbers that may be negative.
func Signed(n int64) string {
	if n < 0 {
		return "-" + Commas(-uint64(n))
	}
	return Commas(uint64(n))
}

// number writes 1,000,000 or, when it is not whole, 1,000,000.2.
func number(f float64) string {
	s := strconv.FormatFloat(math.Abs(f), 'f', 1, 64)
	whole, tenth, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(whole, 10, 64)
	if err != nil {
		return s
	}
	out := Commas(n)
	if tenth != "0" {
		out += "." + tenth
	}
	if f < 0 {
		out = "-" + out
	}
	return out
}

// Short writes three significant digits and no exponent: 6.72, 0.0672, 100.
func Short(f float64) string {
	if f == 0 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(f)))))
	s := strconv.FormatFloat(f, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// SI writes a number with a decimal prefix and digits behind the point: "1.000 M", "672.0 M", "10 G".
func SI(f float64, digits int) string {
	prefix := ""
	for _, p := range []string{"k", "M", "G", "T"} {
		if math.Abs(f) < 999.9995 {
			break
		}
		f, prefix = f/1000, p
	}
	return strconv.FormatFloat(f, 'f', digits, 64) + " " + prefix
}

// Nanos writes a latency short enough for a column: 67ns, 1.1us, 41us, 2.0ms, 1.50s.
func Nanos(ns int64) string {
	switch f := float64(ns); {
	case ns < 100:
		return fmt.Sprintf("%dns", ns)
	case ns < 9_950:
		return fmt.Sprintf("%.1fus", f/1e3)
	case ns < 999_500:
		return fmt.Sprintf("%.0fus", f/1e3)
	case ns < 9_950_000:
		return fmt.Sprintf("%.1fms", f/1e6)
	case ns < 999_500_000:
		return fmt.Sprintf("%.0fms", f/1e6)
	default:
		return fmt.Sprintf("%.2fs", f/1e9)
	}
}

// plainNanos is Nanos with nanoseconds up to a microsecond: 210ns.
func plainNanos(ns int64) string {
	if ns < 1000 {
		return fmt.Sprintf("%dns", ns)
	}
	return Nanos(ns)
}
