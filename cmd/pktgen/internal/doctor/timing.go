package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"bare.wire/cmd/pktgen/internal/hist"
	"bare.wire/cmd/pktgen/internal/report"
)

// Timing is how well this machine keeps to a schedule: for a while a loop waits for one moment after the other, as the pacer
// does, and it is counted how late it was. All in nanoseconds.
type Timing struct {
	Waits     int64 `json:"waits"`
	LateP50   int64 `json:"late_p50_ns"`
	LateP99   int64 `json:"late_p99_ns"`
	LateMax   int64 `json:"late_max_ns"`
	ReadCost  int64 `json:"read_cost_ns"` // of one reading of the clock
	StolenMS  int64 `json:"stolen_ms"`    // processor time that the hypervisor gave to others meanwhile, whole machine; -1: not known
	SinglePPS int64 `json:"single_pps"`   // up to this rate 99 of 100 frames leave one by one, each before the next is due
}

const (
	timingFor  = 200 * time.Millisecond
	timingStep = 10 * time.Microsecond
	// badLate is a lateness at the 99th percentile, worstLate a single one, that will show in a run's figures. The pacer
	// catches up with 100 ms.
	badLate   = 10 * time.Microsecond
	worstLate = 5 * time.Millisecond
	// stuck is how many readings of a clock may give the same time.
	stuck = 10_000_000
)

var errStuck = errors.New("timing self-test: the clock stands still")

// timing makes the self-test.
func (e *exam) timing(ctx context.Context) error {
	before := e.stolen()
	t, err := e.measure(ctx)
	if err != nil {
		return err
	}
	t.StolenMS = -1
	if after := e.stolen(); before >= 0 && after >= before {
		t.StolenMS = after - before
	}
	e.Timing = t
	says := fmt.Sprintf("late by %s half the time, by less than %s in 99 of 100, at worst by %s; reading the clock takes %dns; single frames up to %d pps",
		report.Nanos(t.LateP50), report.Nanos(t.LateP99), report.Nanos(t.LateMax), t.ReadCost, t.SinglePPS)
	if t.StolenMS > 0 {
		says += fmt.Sprintf("; the hypervisor took %d ms", t.StolenMS)
	}
	if t.LateP99 > int64(badLate) || t.LateMax > int64(worstLate) {
		e.warn("timing", "end other programs, or keep processors free (isolcpus=) and run: taskset -c LIST pktgen ...", "%s", says)
		return nil
	}
	e.ok("timing", "%s", says)
	return nil
}

func (e *exam) measure(ctx context.Context) (*Timing, error) {
	late := hist.New()
	start := e.Clock.Nanos()
	end := start + int64(timingFor)
	now, reads := start, int64(0)
	for due := start + int64(timingStep); due < end; due = max(due, now) + int64(timingStep) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for same := 0; now < due; reads++ {
			t := e.Clock.Nanos()
			if t != now {
				same = 0
			} else if same++; same > stuck {
				return nil, errStuck
			}
			now = t
		}
		late.Record(now - due)
	}
	t := &Timing{
		Waits: int64(late.Count()), LateP50: late.Percentile(50, 100), LateP99: late.Percentile(99, 100), LateMax: late.Max(),
		ReadCost: (now - start) / max(reads, 1),
	}
	t.SinglePPS = int64(time.Second) / max(t.LateP99, t.ReadCost, 1)
	return t, nil
}

// stolen is the time that the hypervisor has given to others since boot, ms; -1 when it is not known. /proc/stat counts in
// hundredths of a second.
func (e *exam) stolen() int64 {
	for line := range strings.Lines(e.read("/proc/stat")) {
		if f := strings.Fields(line); len(f) > 8 && f[0] == "cpu" {
			if n, err := strconv.ParseInt(f[8], 10, 64); err == nil {
				return 10 * n
			}
		}
	}
	return -1
}
