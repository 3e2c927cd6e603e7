package replay

import (
	"fmt"
	"math"

	"bare.wire/cmd/pktgen/internal/report"
	"bare.wire/wire"
)

// ticker says when status lines are due, and keeps the totals of the last one.
type ticker struct {
	next, every int64
	at          int64
	sent, rx    uint64
	bits        uint64
	notSent     uint64
	late        int64 // the largest since
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
	t := &w.ticks
	dt := float64(now-t.at) / 1e9
	not := w.notSent.TooShort + w.notSent.TooLong + w.notSent.NotEthernet + w.notSent.Unsent
	tx, rx := w.sent.Packets-t.sent, w.got.Packets-t.rx
	line := report.ReplayInterval{
		StartNS: t.at - w.start, EndNS: now - w.start, TxPackets: tx, RxPackets: rx,
		TxPPS: float64(tx) / dt, RxPPS: float64(rx) / dt, TxL1BPS: float64(w.bits-t.bits) / dt,
		LateMax: t.late, NotSent: not - t.notSent, Pass: w.file.Passes + 1,
	}
	if w.cfg.File.size > 0 {
		line.FileShare = min(float64(w.cfg.File.src.read())/float64(w.cfg.File.size), 1)
	}
	if w.ended && w.failure == nil {
		line.Pass, line.FileShare = w.file.Passes, 1
	}
	t.at, t.sent, t.rx, t.bits, t.notSent, t.late = now, w.sent.Packets, w.got.Packets, w.bits, not, 0
	for t.next <= now { // after a stall the lines do not come in a heap
		t.next += t.every
	}
	w.result.Intervals = append(w.result.Intervals, line)
	return w.cfg.Sink.Interval(line)
}

// describe is the result before anything has happened.
func (w *worker) describe() *report.Replay {
	c := w.cfg
	r := &report.Replay{
		Schema: report.ReplaySchema, Version: c.Version, About: c.About, Host: c.Host, File: w.file,
		Args: report.ReplayArgs{
			File: c.File.name, Timing: c.Timing.String(), Loops: c.File.loops, MaxGapNS: int64(c.Timing.MaxGap), Burst: c.Burst,
			DrainNS: int64(c.Drain), BudgetNS: int64(c.Budget), Virtual: w.virtual,
		},
		Intervals: []report.ReplayInterval{}, Reasons: []string{}, Checks: []report.Check{},
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
	return r
}

// finish fills in the result. failure is what ended the loop, if anything did.
func (w *worker) finish(failure error) {
	r := w.result
	r.ElapsedNS = w.clk.Nanos() - w.start
	if failure != nil { // what the loop could not give up any more
		w.notSent.Unsent += uint64(len(w.bufs))
		if w.head != nil {
			w.notSent.Unsent++
		}
	}
	if w.file.Passes == 0 {
		w.file.SpanNS = w.times.high
	}
	w.file.Backwards, w.file.Unstamped, w.file.Shortened = w.times.backwards, w.times.unstamped, w.times.shortened
	r.File, r.Tx, r.NotSent, r.Rx, r.Missing = w.file, w.sent, w.notSent, w.got, w.missing()
	r.Pacing = report.ReplayPacing{
		LateP50: w.late.Percentile(1, 2), LateP99: w.late.Percentile(99, 100), LateMax: w.late.Max(), TooLate: w.tooLate,
		RingFull: w.ringFull, LongestBurst: uint64(w.longestRn),
	}
	for i, p := range w.ports {
		st := p.Stats()
		r.Devices[i].Counters = report.Counters{
			RxPackets: st.RxPackets, RxBytes: st.RxBytes, TxPackets: st.TxPackets, TxBytes: st.TxBytes, RxMissed: st.RxMissed,
			RxNoDesc: st.RxNoDesc, RxErrors: st.RxErrors, RxNoBuf: st.RxNoBuf, TxErrors: st.TxErrors,
		}
	}
	r.Complete = failure == nil && (!w.interrupt || w.ended || w.cfg.File.loops == 0)
	if failure != nil {
		r.Error = failure.Error()
	}
	w.judge(failure)
}

// judge decides whether the times were kept, and whether the user's limit was.
func (w *worker) judge(failure error) {
	r := w.result
	say := func(format string, args ...any) { r.Reasons = append(r.Reasons, fmt.Sprintf(format, args...)) }
	if failure != nil {
		say("the replay was stopped by an error")
	}
	if w.tooLate > 0 {
		why := "this host stalled, or cannot make the rate"
		if w.ringFull > 0 {
			why = fmt.Sprintf("the ring was full %s times: the link or the card is slower than the capture", report.Commas(w.ringFull))
		}
		say("%s frames were sent more than %v late, the latest %s: %s", report.Commas(w.tooLate), w.cfg.Budget, report.Nanos(w.late.Max()), why)
	}
	if r.Missing < 0 {
		say("%s more frames came than were sent: another sender is on the wire, or a device doubles frames", report.Commas(uint64(-r.Missing)))
	}
	if w.sent.Packets == 0 {
		say("nothing was sent")
	}
	r.Valid = len(r.Reasons) == 0
	if limit := w.cfg.MaxLoss; limit != nil {
		c := report.Check{Name: "--max-loss", Limit: limit.String(), Value: float64(r.Missing), OK: limit.Allows(uint64(max(r.Missing, 0)), w.sent.Packets)}
		if limit.Share() && w.sent.Packets > 0 {
			c.Value = float64(r.Missing) / float64(w.sent.Packets) * 100
		}
		r.Checks = append(r.Checks, c)
	}
}
