package audit

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"sort"
	"strings"
)

const forever = math.MaxInt64

// ours are the kinds of frames that bear the run's mark.
var ours = []string{"unique", "reordered", "duplicate", "late", "corrupt"}

// put says what a field has to be.
func (a *audit) put(path string, value any) { a.out[path] = value }

const stream = "streams[0]."

// loss fills in traffic and loss.
func (a *audit) loss() {
	sent := uint64(len(a.sent))
	unique := uint64(len(a.unique))
	bytes := int64(0)
	for _, e := range a.events {
		for _, k := range ours {
			if e.kind == k {
				bytes += e.size
			}
		}
	}
	inFlight := uint64(0)
	for seq := range sent {
		if a.young(seq) {
			inFlight++
		}
	}
	lost := int64(sent) - int64(unique) - int64(inFlight)
	a.put(stream+"id", 0)
	a.put(stream+"tx.packets", sent)
	a.put(stream+"tx.bytes_l2", int64(sent)*a.Args.Size)
	a.put(stream+"rx.packets", a.count(math.MinInt64, forever, ours...))
	a.put(stream+"rx.bytes_l2", bytes)
	a.put(stream+"loss.lost", lost)
	a.put(stream+"loss.ratio", float64(lost)/float64(sent))
	a.put(stream+"loss.in_flight", inFlight)
	a.put(stream+"loss.unique", unique)
	a.put(stream+"loss.max_extent", a.extents)
	for field, kind := range map[string]string{"reordered": "reordered", "late_beyond_window": "late", "duplicates": "duplicate", "corrupt": "corrupt", "foreign": "foreign", "unsigned": "unsigned"} {
		a.put(stream+"loss."+field, a.count(math.MinInt64, forever, kind))
	}
}

// young says whether a frame may still be on its way: it is above the highest received, and was sent less than the longest
// latency before the end.
func (a *audit) young(seq uint64) bool {
	return seq >= a.highest && a.sent[seq] > a.end()-a.longest
}

// latency fills in what is measured from mark to arrival, of first copies.
func (a *audit) latency() error {
	var all []int64
	for _, u := range a.unique {
		all = append(all, u.at-u.sent)
	}
	at := stream + "latency_ns."
	if !a.Args.Latency {
		all = nil
	}
	source := "off"
	if a.Args.Latency {
		source = "software, per burst"
	}
	a.put(at+"source", source)
	b := newBuckets(all)
	for field, p := range map[string][2]int64{"p50": {1, 2}, "p90": {9, 10}, "p99": {99, 100}, "p999": {999, 1000}, "p9999": {9999, 10000}} {
		a.put(at+field, b.percentile(p[0], p[1]))
	}
	a.put(at+"min", b.min)
	a.put(at+"max", b.max)
	a.put(at+"mean", b.mean())
	a.put(at+"stddev", b.deviation())
	a.put(at+"count", b.n)
	a.put(at+"overflow", b.overflow)
	a.put(at+"negative", b.negative)
	a.put(at+"pdv_p999", b.percentile(999, 1000)-b.min)
	a.put(at+"jitter_rfc3550", jitter(a.unique, a.Args.Latency))
	granularity := int64(0)
	if len(all) > 0 {
		for _, c := range a.bursts {
			granularity = max(granularity, int64(c.n))
		}
		granularity *= (a.Args.Size + 20) * 8 * 1e9 / a.Args.LinkBPS
	}
	a.put(at+"granularity_ns", granularity)
	if b.n == 0 {
		a.put(at+"hdr", a.Histogram)
		return nil
	}
	said, err := decodeHistogram(a.Histogram)
	if err != nil {
		return fmt.Errorf("latency_ns.hdr: %w", err)
	}
	if diff := b.differ(said); diff != "" {
		return fmt.Errorf("latency_ns.hdr: %s", diff)
	}
	a.put(at+"hdr", a.Histogram)
	return nil
}

// jitter is RFC 3550 §6.4.1 in the integer form of its appendix A.8.
func jitter(arrivals []arrival, measured bool) int64 {
	if !measured {
		return 0
	}
	estimate := int64(0)
	for i := 1; i < len(arrivals); i++ {
		d := (arrivals[i].at - arrivals[i].sent) - (arrivals[i-1].at - arrivals[i-1].sent)
		if d < 0 {
			d = -d
		}
		estimate += d - ((estimate + 8) >> 4)
	}
	return estimate >> 4
}

// parseRate reads the rate as the report writes it.
func (a *audit) parseRate() error {
	if a.Args.Rate == "max" {
		return nil
	}
	number := a.Args.Rate[:len(a.Args.Rate)-len(strings.TrimLeft(a.Args.Rate, "0123456789./"))]
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return fmt.Errorf("rate %q is not understood", a.Args.Rate)
	}
	unit := strings.TrimPrefix(a.Args.Rate, number)
	for prefix, by := range map[string]int64{"k": 1e3, "M": 1e6, "G": 1e9} {
		if strings.HasPrefix(unit, prefix) {
			unit = unit[1:]
			r.Mul(r, big.NewRat(by, 1))
			break
		}
	}
	switch l1 := 8 * (a.Args.Size + 20); unit {
	case "pps":
	case "bps":
		r.Quo(r, big.NewRat(l1, 1))
	case "bpsL2":
		r.Quo(r, big.NewRat(8*a.Args.Size, 1))
	case "%":
		r.Mul(r, big.NewRat(a.Args.LinkBPS, 100*l1))
	default:
		return fmt.Errorf("rate %q: unit %q is not understood", a.Args.Rate, unit)
	}
	a.rate = r
	return nil
}

// due is when place i of the schedule is due, ns since the start: i·10⁹/rate, rounded down.
func (a *audit) due(i uint64) int64 {
	ns := new(big.Int).SetUint64(i)
	ns.Mul(ns, big.NewInt(1e9))
	ns.Mul(ns, a.rate.Denom())
	return ns.Quo(ns, a.rate.Num()).Int64()
}

// burst is frames that were sent together: their first place in the schedule, how many, when.
type burst struct {
	place uint64
	n     int
	at    int64
}

// findBursts finds the frames of one stamp, cut at twice the burst size, which is the most that is sent at once when late.
// Places that were more than the budget late are skipped.
func (a *audit) findBursts() error {
	var out []burst
	most := a.Args.Burst
	if a.rate != nil {
		most *= 2
	}
	place := uint64(0)
	for _, at := range a.sent {
		last := len(out) - 1
		if last >= 0 && out[last].at == at && out[last].n < most {
			out[last].n++
		} else {
			for a.rate != nil && at-a.due(place) > a.Args.BudgetNS {
				place++
			}
			out = append(out, burst{place, 1, at})
		}
		place++
	}
	a.bursts = out
	return nil
}

// pacing fills in how the schedule was kept.
func (a *audit) pacing() {
	at := stream + "pacing."
	all := a.bursts
	last := all[len(all)-1]
	end := last.place + uint64(last.n) // the place after the last one sent
	skipped := end - uint64(len(a.sent))
	a.put(at+"skipped", skipped)
	a.put(at+"unsent", 0)
	a.put(at+"ring_full", 0)
	planned := a.Args.DurationNS
	if a.rate == nil {
		planned = a.stopped()
		a.put(at+"target_pps", nil)
	} else {
		if a.Args.Count > 0 {
			planned = max(a.due(a.Args.Count), last.at)
			if a.Args.DurationNS > 0 {
				planned = min(planned, a.Args.DurationNS)
			}
		}
		target, _ := a.rate.Float64()
		a.put(at+"target_pps", target)
	}
	// What is asked for beyond the link's rate is made at the link's rate at most.
	wire := new(big.Rat).Mul(big.NewRat(int64(len(a.sent)), 1), big.NewRat((a.Args.Size+20)*8, a.Args.LinkBPS))
	if a.rate == nil || a.rate.Cmp(big.NewRat(a.Args.LinkBPS, (a.Args.Size+20)*8)) > 0 {
		seconds, _ := wire.Float64()
		planned = max(planned, int64(math.Ceil(seconds*1e9)))
	}
	a.put(at+"achieved_pps", float64(len(a.sent))/float64(planned)*1e9)
	var late []int64
	longest, run, before := 0, 0, int64(-1)
	for _, b := range all {
		if a.rate == nil {
			run += b.n
			longest = run
			continue
		}
		due := a.due(b.place)
		for range b.n {
			late = append(late, b.at-due) // of the oldest
		}
		if due > before {
			run = 0
		}
		run += b.n
		longest, before = max(longest, run), b.at
	}
	l := newBuckets(late)
	a.put(at+"late_ns_p50", l.percentile(1, 2))
	a.put(at+"late_ns_p99", l.percentile(99, 100))
	a.put(at+"late_ns_max", l.max)
	a.put(at+"longest_burst", longest)
	valid := skipped == 0
	if a.rate != nil { // at least 99.9 % of the rate over the time there was
		asked := new(big.Rat).Mul(a.rate, big.NewRat(planned, 1e9))
		valid = valid && new(big.Rat).SetInt64(int64(len(a.sent))).Cmp(asked.Mul(asked, big.NewRat(999, 1000))) >= 0
	}
	a.put("valid", valid)
	a.put("complete", true)
	a.put("elapsed_ns", a.end())
	a.put("reasons", !valid)
}

// stopped is when sending ended: at the end of the time, or with the last frame of the count.
func (a *audit) stopped() int64 {
	last := a.sent[len(a.sent)-1]
	if a.Args.Count > 0 && uint64(len(a.sent)) >= a.Args.Count {
		return last
	}
	return a.Args.DurationNS
}

// end is when the drain was over.
func (a *audit) end() int64 { return a.stopped() + a.Args.DrainNS }

// intervals fills in the status lines: each is what the totals at its end are more than at its start.
func (a *audit) intervals() {
	before := int64(0)
	missingBefore := int64(0)
	for i, iv := range a.Intervals {
		at := fmt.Sprintf("intervals[%d].", i)
		a.put(at+"start_ns", before)
		a.put(at+"end_ns", iv.End)
		seconds := float64(iv.End-iv.Start) / 1e9
		if i == len(a.Intervals)-1 && a.Args.Count > 0 && iv.End == a.stopped() {
			iv.End++ // the line that closes a run of a fixed count comes after its last frame, at the same time
		}
		tx := uint64(0)
		for _, t := range a.sent {
			if t >= iv.Start && t < iv.End {
				tx++
			}
		}
		rx := a.count(iv.Start, iv.End, ours...)
		a.put(at+"tx_packets", tx)
		a.put(at+"rx_packets", rx)
		a.put(at+"tx_pps", float64(tx)/seconds)
		a.put(at+"rx_pps", float64(rx)/seconds)
		a.put(at+"tx_l1_bps", float64(tx)*float64(8*(a.Args.Size+20))/seconds)
		a.put(at+"reordered", a.count(iv.Start, iv.End, "reordered"))
		a.put(at+"duplicates", a.count(iv.Start, iv.End, "duplicate"))
		a.put(at+"skipped", a.skippedBefore(iv.End)-a.skippedBefore(iv.Start))
		missing := a.missingBefore(iv.End)
		a.put(at+"missing", missing-missingBefore)
		var latencies []int64
		for _, u := range a.unique {
			if a.Args.Latency && u.at >= iv.Start && u.at < iv.End {
				latencies = append(latencies, u.at-u.sent)
			}
		}
		b := newBuckets(latencies)
		a.put(at+"latency_ns_p50", b.percentile(1, 2))
		a.put(at+"latency_ns_p99", b.percentile(99, 100))
		before, missingBefore = iv.End, missing
	}
}

// missingBefore is how many numbers below the highest have not come by t.
func (a *audit) missingBefore(t int64) int64 {
	n, highest := int64(0), uint64(0)
	for _, u := range a.unique {
		if u.at < t {
			n++
			highest = max(highest, u.seq+1)
		}
	}
	return int64(highest) - n
}

// skippedBefore is how many places had been skipped when the last frame before t was sent.
func (a *audit) skippedBefore(t int64) (n int64) {
	sent := uint64(0)
	for _, b := range a.bursts {
		if b.at < t {
			n = int64(b.place - sent)
		}
		sent += uint64(b.n)
	}
	return n
}

// counters fills in what the two cards must have counted.
func (a *audit) counters() {
	counters := []string{"rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "rx_missed", "rx_no_desc", "rx_errors", "rx_no_buf", "tx_errors"}
	for _, card := range []string{"devices[0].", "devices[1]."} {
		for _, c := range counters {
			a.put(card+"counters."+c, 0)
		}
	}
	tx, rx := int64(0), int64(0)
	for _, f := range a.Tx {
		tx += int64(len(f.Data))
	}
	for _, f := range a.Rx {
		rx += int64(len(f.Data))
	}
	a.put("devices[0].counters.tx_packets", len(a.Tx))
	a.put("devices[0].counters.tx_bytes", tx)
	a.put("devices[1].counters.rx_packets", len(a.Rx))
	a.put("devices[1].counters.rx_bytes", rx)
	a.put("devices[1].counters.rx_errors", a.RxRejected)
}

// Values are fields of a report by their path, as in "streams[0].loss.lost".
type Values map[string]any

// described are the fields that no capture can tell.
var described = []string{"schema", "version", "about", "host", "args", "checks", "error"}

// Differences lists the fields of a report (JSON) that are not what they have to be, and those nobody has recomputed.
func (v Values) Differences(report []byte) ([]string, error) {
	var root map[string]any
	d := json.NewDecoder(strings.NewReader(string(report)))
	d.UseNumber()
	if err := d.Decode(&root); err != nil {
		return nil, fmt.Errorf("the report is no JSON: %w", err)
	}
	for _, name := range described {
		delete(root, name)
	}
	got := Values{}
	flatten(got, "", root)
	var out []string
	for path, value := range got {
		want, ok := v[path]
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("%s is %v, and was not recomputed", path, value))
		case !equal(value, want):
			out = append(out, fmt.Sprintf("%s is %v, and has to be %v", path, value, want))
		}
	}
	for path, want := range v {
		if _, ok := got[path]; !ok {
			out = append(out, fmt.Sprintf("%s is not there, and has to be %v", path, want))
		}
	}
	sort.Strings(out)
	return out, nil
}

func flatten(into Values, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for k, v := range value {
			at := k
			if path != "" {
				at = path + "." + k
			}
			// What a device is called, and what it is, no capture tells.
			if strings.HasPrefix(path, "devices[") && !strings.Contains(path, ".") && k != "counters" {
				continue
			}
			flatten(into, at, v)
		}
	case []any:
		if path == "reasons" {
			into[path] = len(value) > 0
			return
		}
		for i, v := range value {
			flatten(into, fmt.Sprintf("%s[%d]", path, i), v)
		}
	default:
		into[path] = value
	}
}

// equal compares a field of the report: whole numbers exactly, others to a billionth.
func equal(got, want any) bool {
	number, ok := got.(json.Number)
	if !ok {
		return got == want
	}
	text := fmt.Sprint(want)
	if f, ok := want.(float64); ok {
		g, err := number.Float64()
		return err == nil && math.Abs(g-f) <= 1e-9*math.Abs(f)
	}
	return number.String() == text
}
