package engine

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"bare.wire/cmd/pktgen/internal/pace"
	"bare.wire/cmd/pktgen/internal/report"
	"bare.wire/cmd/pktgen/internal/units"
	"bare.wire/wire"
)

// ticker says when status lines are due, and keeps the totals of the last one.
type ticker struct {
	next, every int64
	at          int64
	sent, rx    uint64
	missing     int64
	reordered   uint64
	duplicates  uint64
	skipped     uint64
}

func newTicker(start, every int64) ticker {
	t := ticker{next: math.MaxInt64, every: every, at: start}
	if every > 0 {
		t.next = start + every
	}
	return t
}

// tick emits a status line for the time since the last one.
func (w *worker) tick(now int64) error {
	t, c := &w.ticks, w.stream.Counts()
	missing, skipped := int64(w.stream.Missing()), w.pacer.Totals().Skipped
	dt := float64(now-t.at) / 1e9
	tx, rx := w.sent-t.sent, w.rxFrames-t.rx
	line := report.Interval{
		StartNS: t.at - w.start, EndNS: now - w.start, TxPackets: tx, RxPackets: rx,
		TxPPS: float64(tx) / dt, RxPPS: float64(rx) / dt, TxL1BPS: float64(tx) * float64(w.bitsL1()) / dt,
		Missing: missing - t.missing, Reordered: c.Reordered - t.reordered, Duplicates: c.Duplicates - t.duplicates, Skipped: skipped - t.skipped,
		P50: w.current.Percentile(1, 2), P99: w.current.Percentile(99, 100),
	}
	w.total.Merge(w.current)
	w.current.Reset()
	t.at, t.sent, t.rx, t.missing = now, w.sent, w.rxFrames, missing
	t.reordered, t.duplicates, t.skipped = c.Reordered, c.Duplicates, skipped
	for t.next <= now { // after a stall the lines do not come in a heap
		t.next += t.every
	}
	w.result.Intervals = append(w.result.Intervals, line)
	return w.cfg.Sink.Interval(line)
}

// bitsL1 is what a frame costs on the wire.
func (w *worker) bitsL1() int { return 8 * (w.cfg.Frame.Size + units.L1Overhead) }

// describe is the result before anything has happened.
func (w *worker) describe() *report.Run {
	s := w.cfg.Frame
	r := &report.Run{
		Schema: report.SchemaName, Version: w.cfg.Version, About: w.cfg.About, Host: w.cfg.Host,
		Args: report.Args{
			Rate: w.cfg.Rate.String(), DurationNS: int64(w.cfg.Duration), Count: w.cfg.Count, Size: s.Size, Burst: w.cfg.Burst,
			Proto: string(s.Proto), Src: s.Src.String(), Dst: s.Dst.String(), Sport: int(s.SrcPort), Dport: int(s.DstPort),
			SrcMAC: wire.MAC(s.SrcMAC).String(), DstMAC: wire.MAC(s.DstMAC).String(), Flows: s.Flows, VLAN: []string{},
			Seed: w.cfg.Seed, DrainNS: int64(w.cfg.Drain), BudgetNS: int64(w.cfg.Budget), Virtual: w.virtual,
		},
		Intervals: []report.Interval{}, Reasons: []string{}, Checks: []report.Check{},
	}
	for _, v := range s.VLANs {
		r.Args.VLAN = append(r.Args.VLAN, v.String())
	}
	roles := []string{"tx", "rx"}
	if len(w.ports) == 1 {
		roles = []string{"both"}
	}
	for i, p := range w.ports {
		info := p.Info()
		r.Devices = append(r.Devices, report.Device{
			Role: roles[i], URI: p.URI, Driver: info.Driver, Name: info.Device, MAC: wire.MAC(info.MAC).String(),
			LinkBPS: p.Link().Speed, NUMA: max(info.NUMANode, -1), Software: info.Software,
		})
	}
	stream := report.Stream{ID: streamID, Latency: report.Latency{Source: w.source()}}
	if w.den != 0 {
		pps := float64(w.num) / float64(w.den)
		stream.Pacing.TargetPPS = &pps
	}
	r.Streams = []report.Stream{stream}
	return r
}

// source says what the latency stamps are.
func (w *worker) source() string {
	if !w.cfg.Latency {
		return "off"
	}
	return "software, per burst"
}

// finish fills in the result. failure is what ended the loop, if anything did.
func (w *worker) finish(failure error) {
	now := w.clk.Nanos()
	w.total.Merge(w.current)
	pacing := w.onTheWire(w.pacer.Finish(now))
	r := w.result
	r.ElapsedNS = now - w.start
	s := &r.Streams[0]
	young := w.log.SentAfter(now-w.latest, w.sent)
	o := w.stream.Close(w.sent, young)
	s.Tx = report.Traffic{Packets: w.sent, BytesL2: w.sent * uint64(w.cfg.Frame.Size)}
	s.Rx = report.Traffic{Packets: w.rxFrames, BytesL2: w.rxBytes}
	s.Loss = report.Loss{
		Lost: o.Lost, InFlight: o.InFlight, Unique: o.Unique, Reordered: o.Reordered, MaxExtent: o.MaxExtent, Late: o.Late,
		Duplicates: o.Duplicates, Corrupt: o.Corrupt, Foreign: w.foreign, Unsigned: w.unsigned,
	}
	if w.sent > 0 {
		s.Loss.Ratio = float64(o.Lost) / float64(w.sent)
	}
	late := w.pacer.Late()
	s.Pacing = report.Pacing{
		TargetPPS: s.Pacing.TargetPPS, AchievedPPS: pacing.PPS(), Skipped: pacing.Skipped, Unsent: pacing.Unsent, RingFull: pacing.RingFull,
		LateP50: late.Percentile(1, 2), LateP99: late.Percentile(99, 100), LateMax: late.Max(), LongestBurst: pacing.Longest,
	}
	for i, p := range w.ports {
		st := p.Stats()
		r.Devices[i].Counters = report.Counters{
			RxPackets: st.RxPackets, RxBytes: st.RxBytes, TxPackets: st.TxPackets, TxBytes: st.TxBytes, RxMissed: st.RxMissed,
			RxNoDesc: st.RxNoDesc, RxErrors: st.RxErrors, RxNoBuf: st.RxNoBuf, TxErrors: st.TxErrors,
		}
	}
	failure = errors.Join(failure, w.latency(&s.Latency))
	r.Complete = failure == nil && (!w.interrupt || w.cfg.Duration == 0 && w.cfg.Count == 0)
	if failure != nil {
		r.Error = failure.Error()
	}
	w.judge(pacing, failure)
}

// onTheWire keeps the rate that was made within the link's. A ring takes frames faster than the link carries them, so where no
// schedule below the link's rate holds them back, the time of the run is at least what its frames need on the wire.
func (w *worker) onTheWire(p pace.Result) pace.Result {
	if !w.beyondLink() {
		return p
	}
	hi, lo := bits.Mul64(p.Sent, uint64(w.bitsL1())*1e9)
	if hi >= w.linkBPS {
		return p // centuries
	}
	ns, rest := bits.Div64(hi, lo, w.linkBPS)
	if rest > 0 {
		ns++
	}
	p.Planned = max(p.Planned, int64(min(ns, math.MaxInt64)))
	return p
}

// beyondLink reports whether more is asked for than the link carries.
func (w *worker) beyondLink() bool {
	if w.linkBPS == 0 || w.den == 0 {
		return w.linkBPS != 0
	}
	askedHi, askedLo := bits.Mul64(w.num, uint64(w.bitsL1()))
	linkHi, linkLo := bits.Mul64(w.den, w.linkBPS)
	return askedHi > linkHi || askedHi == linkHi && askedLo > linkLo
}

func (w *worker) latency(l *report.Latency) error {
	h := w.total
	if h.Count()+h.Overflow()+h.Negative() == 0 {
		return nil
	}
	frameTime := int64(0)
	if w.linkBPS > 0 {
		frameTime = int64(uint64(w.bitsL1()) * 1e9 / w.linkBPS)
	}
	*l = report.Latency{
		Min: h.Min(), P50: h.Percentile(1, 2), P90: h.Percentile(9, 10), P99: h.Percentile(99, 100), P999: h.Percentile(999, 1000),
		P9999: h.Percentile(9999, 10_000), Max: h.Max(), Mean: h.Mean(), StdDev: h.StdDev(), Count: h.Count(), Overflow: h.Overflow(),
		Negative: h.Negative(), Jitter: w.stream.JitterNanos(), PDV: h.Percentile(999, 1000) - h.Min(),
		// The last frame of a burst leaves this much after its stamp.
		Granularity: int64(w.maxBurst) * frameTime, Source: l.Source,
	}
	var err error
	l.HDR, err = h.Encode()
	return err
}

// judge decides whether the figures mean something, and whether the user's limits were kept.
func (w *worker) judge(p pace.Result, failure error) {
	r := w.result
	say := func(format string, args ...any) { r.Reasons = append(r.Reasons, fmt.Sprintf(format, args...)) }
	if failure != nil {
		say("the run was stopped by an error")
	}
	if p.Skipped > 0 {
		say("%s frames were more than %v late and were skipped: this host stalled, or cannot make the rate (longest lateness sent: %s)",
			report.Commas(p.Skipped), w.cfg.Budget, report.Nanos(w.pacer.Late().Max()))
	}
	if w.den != 0 && p.Skipped == 0 && !p.Kept(w.num, w.den) {
		why := "this host cannot make the rate"
		switch {
		case w.beyondLink():
			why = fmt.Sprintf("a link of %sb/s carries %s such frames a second", report.SI(float64(w.linkBPS), 0), report.Commas(units.LineRate(w.cfg.Frame.Size, w.linkBPS)))
		case p.RingFull > 0:
			why = fmt.Sprintf("the ring was full %s times: the link or the card is slower than the rate", report.Commas(p.RingFull))
		}
		say("made %.1f of %.1f frames/s, less than 99.9 %%: %s", p.PPS(), float64(w.num)/float64(w.den), why)
	}
	if lost := r.Streams[0].Loss.Lost; lost < 0 {
		say("%s more frames came than were sent: an account is wrong, here or in the device", report.Commas(uint64(-lost)))
	}
	if w.sent == 0 {
		say("nothing was sent")
	}
	r.Valid = len(r.Reasons) == 0
	if w.cfg.MaxLoss != nil {
		r.Checks = append(r.Checks, w.lossCheck())
	}
}

func (w *worker) lossCheck() report.Check {
	l, limit := w.result.Streams[0].Loss, w.cfg.MaxLoss
	c := report.Check{Name: "--max-loss", Limit: limit.String(), Value: float64(l.Lost), OK: limit.Allows(uint64(max(l.Lost, 0)), w.sent)}
	if limit.Share() {
		c.Value = l.Ratio * 100
	}
	return c
}
