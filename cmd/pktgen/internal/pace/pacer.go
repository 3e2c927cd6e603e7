package pace

import (
	"math"
	"math/big"
	"time"

	"bare.wire/cmd/pktgen/internal/hist"
)

// DefaultBurst is how many frames go out with one doorbell when the user does not say.
const DefaultBurst = 32

// Config is what a Pacer keeps to.
type Config struct {
	Schedule Schedule
	// Max: no schedule, as fast as the ring takes frames. Schedule.Start is still the start.
	Max bool
	// End is when sending stops whatever happens, ns; 0: never.
	End int64
	// Count is how many frames are to be sent; 0: no limit.
	Count uint64
	// Burst is how many frames are sent at once at most, twice that while catching up; 0: DefaultBurst.
	Burst int
	// Budget is how late a frame may be sent; what is later is skipped and counted.
	Budget time.Duration
}

// Pacer follows a schedule. One goroutine uses it; nothing allocates after New.
type Pacer struct {
	cfg      Config
	budget   int64
	last     uint64 // positions of the schedule below this exist: the first one that is never to be sent
	pos      uint64 // the position of the schedule that is next: sent + skipped
	due      int64  // Due(pos), kept because it is asked for at each poll
	result   Result
	run      uint64 // frames of the back-to-back run that is going on
	late     *hist.Histogram
	finished bool
}

// Result is how well the schedule was kept.
type Result struct {
	Sent     uint64 // frames that the ring has taken
	Skipped  uint64 // frames that were later than the budget, and never sent
	Unsent   uint64 // frames due before the end that were not out when it came
	RingFull uint64 // polls whose frames the ring did not take all
	Longest  uint64 // longest back-to-back run: frames sent without a wait because they were late or due together
	Start    int64  // ns
	Stop     int64  // when sending ended, ns
	Planned  int64  // ns from Start to when the last frame's share of time is over, by the schedule
}

// New returns a pacer at the start of its schedule.
func New(cfg Config) *Pacer {
	if cfg.Burst <= 0 {
		cfg.Burst = DefaultBurst
	}
	if cfg.End == 0 {
		cfg.End = math.MaxInt64
	}
	p := &Pacer{cfg: cfg, budget: int64(cfg.Budget), last: math.MaxUint64, late: hist.New()}
	if cfg.Count > 0 {
		p.last = cfg.Count
	}
	if !cfg.Max && cfg.End != math.MaxInt64 {
		p.last = min(p.last, cfg.Schedule.Before(cfg.End))
	}
	p.result.Start = cfg.Schedule.Start
	p.move(0)
	return p
}

// move sets the next position.
func (p *Pacer) move(pos uint64) {
	p.pos = pos
	switch {
	case pos >= p.last:
		p.due = math.MaxInt64
	case p.cfg.Max:
		p.due = p.cfg.Schedule.Start
	default:
		p.due = p.cfg.Schedule.Due(pos)
	}
}

// Poll says how many frames to send now, 0 … 2·burst. What is later than the budget is skipped. After the end it is 0.
func (p *Pacer) Poll(now int64) int {
	if now < p.due || now >= p.cfg.End {
		return 0
	}
	if p.cfg.Max {
		return int(min(uint64(p.cfg.Burst), p.last-p.pos))
	}
	if now-p.due > p.budget {
		p.skip(now)
	}
	backlog := min(p.cfg.Schedule.By(now), p.last) - p.pos
	return int(min(backlog, uint64(2*p.cfg.Burst)))
}

// skip gives up the frames whose lateness at now is beyond the budget.
func (p *Pacer) skip(now int64) {
	to := min(p.cfg.Schedule.Before(now-p.budget), p.last)
	if to <= p.pos {
		return
	}
	p.result.Skipped += to - p.pos
	p.move(to)
}

// Sent tells the pacer what became of the answer of Poll at now: asked frames were offered, the ring took n of them.
// Each counts with the lateness of the oldest among them, so the histogram's figures are upper bounds.
func (p *Pacer) Sent(now int64, asked, n int) {
	if n < asked {
		p.result.RingFull++
	}
	if n <= 0 {
		return
	}
	if !p.cfg.Max {
		p.late.RecordN(now-p.due, int64(n))
	}
	if p.due > p.result.Stop {
		p.run = 0 // the frame was not due when its predecessor left: there was a pause between them
	}
	p.run += uint64(n)
	p.result.Longest = max(p.result.Longest, p.run)
	p.result.Sent += uint64(n)
	p.result.Stop = now
	p.move(p.pos + uint64(n))
}

// Next is when Poll will have something to say, ns: when the next frame is due or when the run ends.
func (p *Pacer) Next() int64 { return min(p.due, p.cfg.End) }

// Done reports whether the run is over: the end has come or the count is out. After the last frame of a run with an end,
// its share of time is still waited for.
func (p *Pacer) Done(now int64) bool {
	return now >= p.cfg.End || p.cfg.Count > 0 && p.pos >= p.cfg.Count
}

// Finish closes the books at now, when Done or when the run was interrupted, and returns the result.
func (p *Pacer) Finish(now int64) Result {
	if p.finished {
		return p.result
	}
	p.finished = true
	r := &p.result
	stop := min(now, p.cfg.End)
	if p.cfg.Max {
		r.Stop, r.Planned = max(r.Stop, stop), max(r.Stop, stop)-r.Start
		return *r
	}
	// What was due by the stop and has not been sent. A run of a fixed count ends when its last frame is out.
	dueBy := min(p.cfg.Schedule.Before(stop), p.last)
	if now >= p.cfg.End {
		dueBy = p.last
	}
	r.Unsent = max(dueBy, p.pos) - p.pos
	byCount := p.cfg.Count > 0 && p.last == p.cfg.Count
	if byCount && p.pos >= p.last {
		stop = p.cfg.Schedule.Due(p.last) // the last frame's share of time, not the moment it left
		stop = min(max(stop, r.Stop), p.cfg.End)
	}
	r.Stop, r.Planned = max(stop, r.Start), max(stop-r.Start, 0)
	return *r
}

// Late is the lateness of the frames sent, ns.
func (p *Pacer) Late() *hist.Histogram { return p.late }

// Totals is the result so far, for status lines.
func (p *Pacer) Totals() Result { return p.result }

// Kept reports whether the rate num/den frames a second was kept: nothing skipped, and achieved at least 99.9 % of it.
func (r Result) Kept(num, den uint64) bool {
	if r.Skipped != 0 {
		return false
	}
	// sent·1000 ≥ 999·num·planned/(den·10⁹)
	left := new(big.Int).SetUint64(r.Sent)
	left.Mul(left, big.NewInt(1000)).Mul(left, new(big.Int).SetUint64(den)).Mul(left, big.NewInt(1e9))
	right := new(big.Int).SetUint64(num)
	right.Mul(right, big.NewInt(r.Planned)).Mul(right, big.NewInt(999))
	return left.Cmp(right) >= 0
}

// PPS is the rate that was made: frames sent over the time there was, never over less. For reports only.
func (r Result) PPS() float64 {
	if r.Planned <= 0 {
		return 0
	}
	return float64(r.Sent) / float64(r.Planned) * 1e9
}
