package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"bare.wire/clock"
	"bare.wire/cmd/pktgen/internal/account"
	"bare.wire/cmd/pktgen/internal/frame"
	"bare.wire/cmd/pktgen/internal/hist"
	"bare.wire/cmd/pktgen/internal/pace"
	"bare.wire/cmd/pktgen/internal/report"
	"bare.wire/cmd/pktgen/internal/sig"
	"bare.wire/cmd/pktgen/internal/units"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

// streamID is the only stream for now.
const streamID = 0

// pollAhead is how near a deadline must be for a worker on a real clock to poll rather than sleep.
const pollAhead = int64(2 * time.Millisecond)

// stuckAfter is how many rounds may pass while a virtual clock stands still.
const stuckAfter = 1 << 14

var siteTemplate = mbuf.Site{Name: "pktgen.template"}

// worker is a run that is going on. One goroutine.
type worker struct {
	cfg     Config
	ports   []Port
	clk     clock.Clock
	virtual bool
	tx      nic.TxQueue
	rx      nic.RxQueue
	waiter  *nic.Waiter
	cache   *mbuf.Cache // of pool: what is sent
	pool    *mbuf.Pool
	rxCache *mbuf.Cache // what was received goes back through it: a locked instruction a magazine, not one a frame

	build    *frame.Builder
	num, den uint64 // target, frames a second; 0/0 at max
	linkBPS  uint64
	pacer    *pace.Pacer
	stream   *account.Stream
	log      account.SendLog
	total    *hist.Histogram // latency of the intervals that are over
	current  *hist.Histogram // of this one

	start    int64 // ns of the clock: when frame 0 is due
	wall     time.Time
	stopped  bool // nothing more is sent
	rest     int  // frames received after the drain
	sent     uint64
	maxBurst int
	rxFrames uint64
	rxBytes  uint64 // with FCS
	foreign  uint64
	unsigned uint64
	latest   int64       // the largest latency of all, ns
	batch    []*mbuf.Buf // frames for one Send; the first kept of them are built
	kept     int
	recv     []*mbuf.Buf
	scratch  []byte // a frame rebuilt for the capture

	ticks     ticker
	nextHouse int64
	stallAt   int64
	interrupt bool
	busyAt    int64 // when a frame was last sent or received
	still     int   // rounds at the same virtual time
	stillAt   int64
	result    *report.Run
}

func newWorker(cfg Config, ports []Port, pool, rxPool *mbuf.Pool) (*worker, error) {
	if cfg.Burst <= 0 {
		cfg.Burst = pace.DefaultBurst
	}
	if cfg.Budget == 0 {
		cfg.Budget = HardwareBudget
		if cfg.Tx.Info().Software {
			cfg.Budget = SoftwareBudget
		}
	}
	cfg.Frame.Run, cfg.Frame.Stream = sig.RunOf(cfg.Seed), streamID
	if cfg.Frame.SrcMAC == [6]byte{} {
		cfg.Frame.SrcMAC = cfg.Tx.Info().MAC
	}
	if cfg.Frame.DstMAC == [6]byte{} {
		cfg.Frame.DstMAC = cfg.Rx.Info().MAC
	}
	_, virtual := cfg.Clock.(*clock.Virtual)
	w := &worker{
		cfg: cfg, ports: ports, clk: cfg.Clock, virtual: virtual, tx: cfg.Tx.Tx(0), rx: cfg.Rx.Rx(0), pool: pool,
		linkBPS: cfg.Tx.Link().Speed, stream: account.NewStream(0), total: hist.New(), current: hist.New(),
		batch: make([]*mbuf.Buf, 2*cfg.Burst), recv: make([]*mbuf.Buf, max(cfg.Burst, 64)),
	}
	var err error
	if w.build, err = frame.New(cfg.Frame); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if cfg.Rate.Kind != units.Max {
		if w.num, w.den, err = cfg.Rate.PerSecond(cfg.Frame.Size, w.linkBPS); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	if w.waiter, err = nic.NewWaiter(cfg.Clock); err != nil {
		return nil, err
	}
	w.cache, w.rxCache = pool.NewCache(), rxPool.NewCache()
	w.scratch = make([]byte, w.build.Len())
	return w, nil
}

// begin fixes the start: now, so that nothing before it counts.
func (w *worker) begin() error {
	w.start, w.wall = w.clk.Nanos(), w.clk.Now()
	schedule := pace.Schedule{Start: w.start, Num: 1, Den: 1}
	if w.den != 0 {
		var err error
		if schedule, err = pace.NewSchedule(w.start, w.num, w.den); err != nil {
			return err
		}
	}
	end := int64(0)
	if w.cfg.Duration > 0 {
		end = w.start + int64(w.cfg.Duration)
	}
	w.pacer = pace.New(pace.Config{Schedule: schedule, Max: w.den == 0, End: end, Count: w.cfg.Count, Burst: w.cfg.Burst, Budget: w.cfg.Budget})
	w.nextHouse = w.start + housekeepEvery
	w.stallAt = math.MaxInt64
	if w.cfg.Stall > 0 {
		w.stallAt = w.start + int64(w.cfg.Duration)/2
	}
	w.ticks = newTicker(w.start, int64(w.cfg.Interval))
	w.result = w.describe()
	return w.cfg.Sink.Start(w.result)
}

// run sends, drains and reports.
func (w *worker) run(ctx context.Context) (*report.Run, error) {
	defer w.waiter.Close() // an eventfd: nothing to be done about an error
	defer w.cache.Close()
	defer w.rxCache.Close()
	defer w.wakeOn(ctx)()
	if err := w.begin(); err != nil {
		return nil, err
	}
	err := w.loop(ctx)
	w.cache.FreeBulk(w.batch[:w.kept])
	w.finish(err)
	return w.result, errors.Join(err, w.cfg.Sink.End(w.result))
}

// wakeOn wakes the worker when ctx ends. The function it returns undoes that, and returns when no wake can come any more.
func (w *worker) wakeOn(ctx context.Context) (undo func()) {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		w.waiter.Wake()
		close(woken)
	})
	return func() {
		if !stop() {
			<-woken
		}
	}
}

// loop is the run: sending until the pacer is done, then receiving for the drain.
func (w *worker) loop(ctx context.Context) error {
	done := ctx.Done()
	drainEnd := int64(math.MaxInt64)
	for {
		now := w.clk.Nanos()
		select {
		case <-done:
			w.interrupt, done = true, nil
			if w.stopped { // everything is sent: it is the drain that the user does not want to wait for
				drainEnd = now
			}
		default:
		}
		if err := w.chores(ctx, now); err != nil {
			return err
		}
		if !w.stopped && (w.interrupt || w.pacer.Done(now)) {
			drainEnd = now + int64(w.cfg.Drain)
			if err := w.stopSending(now); err != nil {
				return err
			}
		}
		n, err := w.send(now)
		if err != nil {
			return err
		}
		m, err := w.receive()
		if err != nil {
			return err
		}
		if w.over(now, drainEnd, m) {
			return nil
		}
		if n+m > 0 {
			w.busyAt = now
		} else if err := w.idle(now, drainEnd); err != nil {
			return err
		}
		if err := w.moving(now); err != nil {
			return err
		}
	}
}

// over reports, after m frames were received, whether the run is: the drain has ended, and what had arrived by then has been
// taken. That is no more than a ring holds, so that a port which never falls silent ends the run too.
func (w *worker) over(now, drainEnd int64, m int) bool {
	if !w.stopped || now < drainEnd {
		return false
	}
	w.rest += m
	return m == 0 || w.rest >= descriptors
}

// moving notices a device that takes frames for ever while a virtual clock stands still.
func (w *worker) moving(now int64) error {
	if !w.virtual || now != w.stillAt {
		w.still, w.stillAt = 0, now
		return nil
	}
	if w.still++; w.still < stuckAfter {
		return nil
	}
	return fmt.Errorf("%w: %s takes and gives frames without any time passing; give a rate instead of max, or a real clock", ErrDevice, w.cfg.Tx.URI)
}

// chores are the status line, the housekeeping of the ports and the stall that was asked for.
func (w *worker) chores(ctx context.Context, now int64) error {
	if now >= w.ticks.next && !w.stopped {
		if err := w.tick(now); err != nil {
			return err
		}
	}
	if now >= w.stallAt {
		w.stallAt = math.MaxInt64
		if err := w.clk.Sleep(ctx, w.cfg.Stall); err != nil && ctx.Err() == nil {
			return err
		}
	}
	if now < w.nextHouse {
		return nil
	}
	w.nextHouse = now + housekeepEvery
	for _, p := range w.ports {
		p.Housekeep(w.clk.Now())
	}
	return w.health()
}

// health is an error when a port is gone.
func (w *worker) health() error {
	for _, p := range w.ports {
		if err := p.Err(); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrDevice, p.URI, err)
		}
	}
	return nil
}

// stopSending ends the sending phase, with a status line for what has happened since the last one.
func (w *worker) stopSending(now int64) error {
	w.stopped = true
	w.pacer.Finish(now)
	if t := &w.ticks; t.every > 0 && now > t.at && (w.sent > t.sent || w.rxFrames > t.rx) {
		return w.tick(now)
	}
	return nil
}

// send builds and sends what is due. It returns how many frames the ring has taken.
func (w *worker) send(now int64) (int, error) {
	if w.stopped {
		return 0, nil
	}
	want := w.pacer.Poll(now)
	if want == 0 {
		return 0, nil
	}
	offered := w.offer(want, now)
	took := 0
	if len(offered) > 0 {
		took = w.tx.Send(offered)
	}
	if took > 0 {
		w.log.Burst(now, w.sent)
	}
	w.pacer.Sent(now, want, took)
	first := w.sent
	w.sent += uint64(took)
	w.maxBurst = max(w.maxBurst, took)
	w.kept = copy(w.batch, w.batch[took:w.kept]) // pointers: what the ring did not take is offered again
	if err := w.captureSent(first, took, now); err != nil {
		return took, err
	}
	if took == want {
		return took, nil
	}
	return took, w.health() // a port that is gone takes nothing, and looks like a full ring
}

// offer has want frames ready, or fewer when there are no buffers: then the ring is as good as full. Frames that were kept
// from the last time get a new stamp, and so a new number and time.
func (w *worker) offer(want int, now int64) []*mbuf.Buf {
	if want > w.kept {
		w.stock(want)
	}
	offered := w.batch[:min(want, w.kept)]
	for i, b := range offered {
		w.build.Stamp(b.Bytes(), w.sent+uint64(i), now)
	}
	return offered
}

// stock makes frames of the template until want are kept.
func (w *worker) stock(want int) {
	n := w.kept + w.cache.AllocBulk(w.batch[w.kept:want])
	for i, b := range w.batch[w.kept:n] {
		room, err := b.Reserve(w.build.Len())
		if err != nil { // the pool was made for this length: a bug, and the frames count as not taken
			w.cache.FreeBulk(w.batch[w.kept+i : n])
			n = w.kept + i
			break
		}
		w.cache.Copy(&siteTemplate, room, w.build.Template())
	}
	w.kept = n
}

// captureSent writes frames first … first+n-1 as they were sent at now. They are built once more: those that were sent
// belong to the driver.
func (w *worker) captureSent(first uint64, n int, now int64) error {
	if w.cfg.TxCapture == nil {
		return nil
	}
	mbuf.Copy(w.pool, &siteTemplate, w.scratch, w.build.Template())
	for i := range uint64(n) {
		w.build.Stamp(w.scratch, first+i, now)
		if err := w.cfg.TxCapture.Bytes(w.scratch, w.wallAt(now)); err != nil {
			return err
		}
	}
	return nil
}

// wallAt is the wall time of an instant of the run.
func (w *worker) wallAt(now int64) time.Time { return w.wall.Add(time.Duration(now - w.start)) }
