package replay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/gopacket/gopacket/layers"

	"bare.wire/clock"
	"bare.wire/cmd/pktgen/internal/engine"
	"bare.wire/cmd/pktgen/internal/hist"
	"bare.wire/cmd/pktgen/internal/report"
	"bare.wire/cmd/pktgen/internal/units"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

const (
	// pollAhead is how near a deadline must be for a worker on a real clock to poll rather than sleep, linger for how long
	// it polls for a frame that does not come.
	pollAhead = int64(2 * time.Millisecond)
	linger    = int64(100 * time.Millisecond)
	// skipsAtOnce is how many packets that cannot be sent are passed over before the receiver gets its turn.
	skipsAtOnce = 1024
	// stuckAfter is how many rounds may pass while a virtual clock stands still.
	stuckAfter = 1 << 14
)

var siteReplay = mbuf.Site{Name: "pktgen.replay"}

// Ethertype and destination of pause frames (IEEE 802.3 annexes 31A, 31B).
const etherMACControl = 0x8808

var pauseAddress = [6]byte{0x01, 0x80, 0xc2, 0x00, 0x00, 0x01}

// framed is a frame that has been built and is not yet in the ring.
type framed struct {
	due     int64
	len     int     // bytes without FCS, padding included
	padded  uint64  // 1: it was shorter
	control *uint64 // what to count it as, when it is a MAC control frame
	data    []byte  // a copy, for the capture of what was sent
}

// worker is a replay that is going on. One goroutine.
type worker struct {
	cfg     Config
	ports   []engine.Port
	clk     clock.Clock
	virtual bool
	tx      nic.TxQueue
	rx      nic.RxQueue
	waiter  *nic.Waiter
	pool    *mbuf.Pool
	cache   *mbuf.Cache // of pool: what is sent
	rxCache *mbuf.Cache // what was received goes back through it: a locked instruction a magazine, not one a frame
	longest int

	times *schedule
	start int64
	wall  time.Time

	head    *packet // the next packet of the file, nil: not asked for yet
	headDue int64
	ended   bool // no more packets come
	failure error
	bufs    []*mbuf.Buf // built frames, oldest first
	info    []framed    // of bufs
	spare   [][]byte    // for framed.data
	recv    []*mbuf.Buf

	stopped   bool // nothing more is sent
	rest      int  // frames received after the drain
	interrupt bool
	file      report.ReplayFile
	sent      report.ReplayTx
	notSent   report.NotSent
	got       report.ReplayRx
	bits      uint64 // L1, sent
	late      *hist.Histogram
	tooLate   uint64
	ringFull  uint64
	longestRn int

	ticks     ticker
	nextHouse int64
	busyAt    int64
	still     int
	stillAt   int64
	result    *report.Replay
}

func newWorker(cfg Config, ports []engine.Port, pool, rxPool *mbuf.Pool, longest int) (*worker, error) {
	if cfg.Budget == 0 {
		cfg.Budget = engine.HardwareBudget
		if cfg.Tx.Info().Software {
			cfg.Budget = engine.SoftwareBudget
		}
	}
	_, virtual := cfg.Clock.(*clock.Virtual)
	w := &worker{
		cfg: cfg, ports: ports, clk: cfg.Clock, virtual: virtual, tx: cfg.Tx.Tx(0), rx: cfg.Rx.Rx(0), pool: pool, longest: min(longest, keepBytes),
		late: hist.New(), recv: make([]*mbuf.Buf, 64),
		bufs: make([]*mbuf.Buf, 0, cfg.Burst), info: make([]framed, 0, cfg.Burst),
	}
	var err error
	if w.times, err = newSchedule(cfg.Timing, 0, cfg.Tx.Link().Speed); err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrConfig, err)
	}
	if w.waiter, err = nic.NewWaiter(cfg.Clock); err != nil {
		return nil, err
	}
	w.cache, w.rxCache = pool.NewCache(), rxPool.NewCache()
	w.file.Format, w.file.Compressed = cfg.File.src.format, cfg.File.src.compressed
	w.result = w.describe()
	return w, nil
}

// run sends, drains and reports.
func (w *worker) run(ctx context.Context) (*report.Replay, error) {
	defer w.waiter.Close() // an eventfd: nothing to be done about an error
	defer w.cache.Close()
	defer w.rxCache.Close()
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		w.waiter.Wake()
		close(woken)
	})
	defer func() {
		if !stop() {
			<-woken
		}
	}()
	if err := w.cfg.Sink.Start(w.result); err != nil {
		return nil, err
	}
	w.begin()
	err := w.loop(ctx)
	for _, b := range w.bufs { // an error, or an interruption
		b.Free()
	}
	err = errors.Join(err, w.failure)
	w.finish(err)
	return w.result, errors.Join(err, w.cfg.Sink.End(w.result))
}

// begin fixes the start: now, so that nothing before it counts.
func (w *worker) begin() {
	w.start, w.wall = w.clk.Nanos(), w.clk.Now()
	w.times.start = w.start
	w.nextHouse = w.start + houseEvery
	w.ticks = newTicker(w.start, int64(w.cfg.Interval))
}

// loop sends until the file ends, then receives for the drain.
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
		if err := w.chores(now); err != nil {
			return err
		}
		if !w.stopped && (w.interrupt || w.ended && len(w.bufs) == 0) {
			drainEnd = now + int64(w.cfg.Drain)
			if err := w.stop(now); err != nil {
				return err
			}
		}
		n, err := w.send(ctx, now)
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
	return fmt.Errorf("%w: %s takes and gives frames without any time passing; give a rate instead of max, or a real clock", engine.ErrDevice, w.cfg.Tx.URI)
}

// chores are the status line and the housekeeping of the ports.
func (w *worker) chores(now int64) error {
	if now >= w.ticks.next && !w.stopped {
		if err := w.tick(now); err != nil {
			return err
		}
	}
	if now < w.nextHouse {
		return nil
	}
	w.nextHouse = now + houseEvery
	for _, p := range w.ports {
		p.Housekeep(w.clk.Now())
	}
	return w.health()
}

// health is an error when a port is gone.
func (w *worker) health() error {
	for _, p := range w.ports {
		if err := p.Err(); err != nil {
			return fmt.Errorf("%w: %s: %w", engine.ErrDevice, p.URI, err)
		}
	}
	return nil
}

// stop ends the sending, with a status line for what has happened since the last one.
func (w *worker) stop(now int64) error {
	w.stopped = true
	w.notSent.Unsent += uint64(len(w.bufs))
	for _, b := range w.bufs {
		w.cache.Free(b)
	}
	w.bufs, w.info = w.bufs[:0], w.info[:0]
	if w.head != nil {
		w.notSent.Unsent++
		w.head = nil
	}
	if t := &w.ticks; t.every > 0 && now > t.at && (w.sent.Packets > t.sent || w.got.Packets > t.rx) {
		return w.tick(now)
	}
	return nil
}

// send builds what is due and offers it to the ring. It returns how many packets of the file it has got rid of.
func (w *worker) send(ctx context.Context, now int64) (int, error) {
	if w.stopped {
		return 0, nil
	}
	skipped, err := w.fill(ctx, now)
	if err != nil || len(w.bufs) == 0 {
		return skipped, err
	}
	took := w.tx.Send(w.bufs)
	w.longestRn = max(w.longestRn, took)
	for _, f := range w.info[:took] {
		if failed := w.account(f, now); err == nil {
			err = failed
		}
	}
	full := took < len(w.bufs)
	w.bufs = w.bufs[:copy(w.bufs, w.bufs[took:])]
	w.info = w.info[:copy(w.info, w.info[took:])]
	if err != nil {
		return took, err
	}
	if full {
		w.ringFull++
		return skipped + took, w.health() // a port that is gone takes nothing, and looks like a full ring
	}
	return skipped + took, nil
}

// account counts a frame that the ring has taken at now.
func (w *worker) account(f framed, now int64) error {
	w.sent.Packets++
	w.sent.BytesL2 += uint64(f.len + units.FCS)
	w.sent.Padded += f.padded
	w.bits += 8 * uint64(f.len+units.FCS+units.L1Overhead)
	if f.control != nil {
		*f.control++
	}
	if !w.times.max {
		late := max(now-f.due, 0)
		w.late.Record(late)
		w.ticks.late = max(w.ticks.late, late)
		if late > int64(w.cfg.Budget) {
			w.tooLate++
		}
	}
	if w.cfg.TxCapture == nil {
		return nil
	}
	w.spare = append(w.spare, f.data)
	return w.cfg.TxCapture.Bytes(f.data, w.wallAt(now))
}

// fill builds the frames that are due, as many as a burst holds, and passes over what cannot be sent.
func (w *worker) fill(ctx context.Context, now int64) (skipped int, err error) {
	for len(w.bufs) < w.cfg.Burst && skipped < skipsAtOnce {
		p := w.peek(ctx)
		switch {
		case p == nil:
			return skipped, nil
		case w.cannot(p) != nil:
			*w.cannot(p)++
			w.head = nil
			skipped++
			continue
		case w.headDue > now:
			return skipped, nil
		}
		b := w.build(p.data)
		if b == nil {
			return skipped, nil // no buffers: as good as a full ring
		}
		w.head = nil
		w.bufs = append(w.bufs, b)
		w.info = append(w.info, w.describeFrame(p.data))
	}
	return skipped, nil
}

// peek is the next packet of the file, nil when there is none: the file has ended, or it has failed, or ctx has ended.
func (w *worker) peek(ctx context.Context) *packet {
	for w.head == nil && !w.ended {
		p, err := w.cfg.File.src.next(ctx)
		switch {
		case err == nil:
			w.found(p)
		case err == io.EOF:
			w.file.Passes++
			w.file.SpanNS = w.times.high
			w.times.pass()
			w.ended = w.file.Passes == w.cfg.File.loops
		case ctx.Err() != nil:
			return nil // the loop sees it
		default:
			w.ended, w.failure, w.file.Error = true, fileFault(err), err.Error()
		}
	}
	return w.head
}

// found makes p the next packet, and asks when it is due.
func (w *worker) found(p *packet) {
	w.head = p
	w.file.Packets++
	if p.link != layers.LinkTypeEthernet {
		return // such packets are no part of the timing
	}
	if p.cut {
		w.file.Cut++
	}
	w.headDue = w.times.due(p.at)
	if w.cannot(p) == nil {
		w.times.sent(max(p.len, minFrame))
	}
}

// cannot returns the counter of the reason for which p cannot be sent, nil when it can.
func (w *worker) cannot(p *packet) *uint64 {
	switch {
	case p.link != layers.LinkTypeEthernet:
		return &w.notSent.NotEthernet
	case p.len < headerLen:
		return &w.notSent.TooShort
	case p.len > w.longest:
		return &w.notSent.TooLong
	}
	return nil
}

// build makes a frame of data, in as many segments as it needs; nil when there are no buffers.
func (w *worker) build(data []byte) *mbuf.Buf {
	var frame mbuf.Chain
	for len(data) > 0 {
		room, err := frame.Reserve(w.cache, min(len(data), mbuf.DefaultSize))
		if err != nil {
			frame.Free()
			return nil
		}
		data = data[mbuf.Copy(w.pool, &siteReplay, room, data):]
	}
	return frame.Take()
}

func (w *worker) describeFrame(data []byte) framed {
	f := framed{due: w.headDue, len: max(len(data), minFrame)}
	if len(data) < minFrame {
		f.padded = 1
	}
	switch {
	case binary.BigEndian.Uint16(data[12:]) != etherMACControl:
	case [6]byte(data) == pauseAddress:
		f.control = &w.sent.Pause
	default:
		f.control = &w.sent.MACControl
	}
	if w.cfg.TxCapture == nil {
		return f
	}
	if n := len(w.spare); n > 0 {
		f.data, w.spare = w.spare[n-1], w.spare[:n-1]
	} else {
		f.data = make([]byte, w.longest)
	}
	f.data = f.data[:len(data)]
	mbuf.Copy(w.pool, &siteReplay, f.data, data)
	return f
}

// receive counts a burst of frames and frees them.
func (w *worker) receive() (int, error) {
	n := w.rx.Recv(w.recv)
	if n == 0 {
		return 0, nil
	}
	at := w.wallAt(w.clk.Nanos())
	var err error
	for _, b := range w.recv[:n] {
		w.got.Packets++
		w.got.BytesL2 += uint64(b.FrameLen() + units.FCS)
		if head := b.Bytes(); len(head) >= headerLen && binary.BigEndian.Uint16(head[12:]) == etherMACControl {
			w.got.MACControl++
		}
		if w.cfg.RxCapture != nil && err == nil {
			err = w.cfg.RxCapture.Frame(b, at)
		}
	}
	w.rxCache.FreeBulk(w.recv[:n])
	return n, err
}

// idle passes the time until something can happen.
func (w *worker) idle(now, drainEnd int64) error {
	next, blocked := w.deadline(now, drainEnd)
	onTheWay := w.missing() > 0 && now-w.busyAt < linger
	if !w.virtual && (blocked || onTheWay || next-now < pollAhead) {
		return nil // poll on: a sleep would last too long, or what is on its way would be seen late
	}
	w.tx.Reclaim()
	if !w.rx.Arm(w.waiter) || blocked && !w.tx.Arm(w.waiter) {
		return nil
	}
	_, err := w.waiter.Wait(next)
	return err
}

// deadline is when the worker must be awake again at the latest. It is blocked when frames are due, but the ring is full or
// the pool is empty; then only an event of the device helps.
func (w *worker) deadline(now, drainEnd int64) (next int64, blocked bool) {
	if w.stopped {
		return min(drainEnd, w.nextHouse), false
	}
	next = min(w.ticks.next, w.nextHouse)
	switch {
	case len(w.bufs) > 0 || w.head != nil && w.headDue <= now:
		return next, true
	case w.head != nil:
		return min(next, w.headDue), false
	}
	return min(next, now), false // the file has just ended
}

// missing is how many frames that can come have not.
func (w *worker) missing() int64 {
	sent := w.sent.Packets - w.sent.Pause - w.sent.MACControl
	return int64(sent) - int64(w.got.Packets-w.got.MACControl)
}

// wallAt is the wall time of an instant of the replay.
func (w *worker) wallAt(now int64) time.Time { return w.wall.Add(time.Duration(now - w.start)) }
