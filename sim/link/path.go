package link

import (
	"container/heap"
	"math"
	"math/bits"
	"time"
)

// path is one direction of a wire.
type path struct {
	cfg    Config
	flap   Flap
	dice   dice
	line   line
	flight flight
	held   heldHeap // the part of flight that waits for further frames
	pool   [poolClasses][]*frame
	lent   *frame // what the last Receive handed out
	record record

	ids      uint64 // frames offered
	crossed  uint64 // frames, copies not counted, that the medium did not lose
	lastSent int64
	lastAt   int64 // latest arrival of a frame that keeps its place
}

// frame is a frame on its way.
type frame struct {
	data   []byte
	at     int64
	sent   int64
	id     uint64
	copy   int
	badFCS bool

	after  uint64 // the frame behind which this one arrives: itself, unless it is held or a copy
	late   bool   // it is held, or a copy: not where it would have been
	target uint64 // held until path.crossed reaches this
	least  int64  // and, all the same, not to arrive before: a copy stays behind its frame
	inHeld bool   // held still refers to it
	gone   bool   // it has left flight
	index  int    // in flight's heap; -1 in its queue
}

func newPath(cfg, whole Config, dir Direction) *path {
	if cfg.ReorderBy == 0 {
		cfg.ReorderBy = 1
	}
	if cfg.DuplicateCopies == 0 {
		cfg.DuplicateCopies = 1
	}
	if cfg.Hold == 0 {
		cfg.Hold = DefaultHold
	}
	return &path{
		cfg:      cfg,
		flap:     whole.Flap,
		dice:     newDice(cfg, whole.Seed, dir),
		line:     line{rate: cfg.Rate, limit: cfg.Queue},
		record:   record{keep: whole.Record, limit: whole.RecordLimit},
		lastSent: math.MinInt64,
		lastAt:   math.MinInt64,
	}
}

// offered is a frame before it has a buffer.
type offered struct {
	id   uint64
	sent int64 // left the sender's MAC
	left int64 // left the wire's own transmitter
	fate fate
}

// admit gives a frame its number and its fate, and takes it through the queue. A cause is why it does not get further.
func (p *path) admit(data []byte, now int64, down bool) (offered, Cause) {
	p.lastSent = max(p.lastSent, now)
	o := offered{id: p.ids, sent: p.lastSent}
	p.ids++
	p.record.counts.Offered++
	o.fate = p.dice.roll(o.id)
	switch {
	case len(data) == 0 || len(data) > MaxFrame:
		return o, CauseLength
	case down || p.flap.downAt(o.sent):
		return o, CauseDown
	case p.cfg.DropIf != nil && p.cfg.DropIf(o.id, data):
		return o, CauseFilter
	}
	var ok bool
	if o.left, ok = p.line.send(o.sent, len(data)); !ok {
		return o, CauseQueue
	}
	return o, 0
}

// send puts a frame that has left the queue onto the medium; it returns the arrival time, or math.MaxInt64 when the frame
// is lost.
func (p *path) send(data []byte, o offered) int64 {
	at := o.left + int64(p.cfg.Delay) + o.fate.delay
	if !p.cfg.Overtake {
		at = max(at, p.lastAt)
	}
	switch {
	case p.flap.downWithin(o.sent, at):
		p.record.drop(Drop{ID: o.id, At: o.sent, Cause: CauseDown})
		return math.MaxInt64
	case o.fate.lost:
		p.record.drop(Drop{ID: o.id, At: o.sent, Cause: CauseLoss})
		return math.MaxInt64
	}
	p.lastAt = at
	p.crossed++
	p.release(at, o.id)

	bit := -1
	if o.fate.corrupt {
		bit = int(o.fate.bit % uint64(len(data)*8))
		p.record.corrupt(Corruption{ID: o.id, Bit: bit, BadFCS: !p.cfg.CorruptKeepFCS})
	}
	by, extra := 0, time.Duration(0)
	if o.fate.reorder {
		if extra = p.cfg.ReorderDelay; extra == 0 {
			by = p.cfg.ReorderBy
		}
	}
	p.put(data, o, 0, at+int64(extra), by, bit)
	if o.fate.duplicate {
		for c := 1; c <= p.cfg.DuplicateCopies; c++ {
			p.put(data, o, c, at+int64(extra), by+p.cfg.DuplicateBy, bit)
		}
		p.record.duplicate(Duplication{ID: o.id, Copies: p.cfg.DuplicateCopies})
	}
	return at
}

// put lets one frame fly: copy c of o, to arrive at at, or with by > 0 when that many further frames have.
func (p *path) put(data []byte, o offered, c int, at int64, by int, bit int) {
	f := p.buffer(len(data))
	late := c > 0 || by > 0 || at != p.lastAt
	*f = frame{data: append(f.data[:0], data...), at: at, sent: o.sent, id: o.id, copy: c, after: o.id, late: late, index: -1}
	if bit >= 0 {
		f.data[bit/8] ^= 1 << (bit % 8)
		f.badFCS = !p.cfg.CorruptKeepFCS
	}
	if by > 0 {
		f.least = at
		f.at += int64(p.cfg.Hold)
		f.target = p.crossed + uint64(by)
		f.inHeld = true
		heap.Push(&p.held, f)
	}
	p.flight.push(f)
	p.record.counts.InFlight++
}

// release lets those held frames arrive, right behind frame id at at, that have waited for as many frames as they had to.
func (p *path) release(at int64, id uint64) {
	for len(p.held) > 0 && (p.held[0].gone || p.held[0].target <= p.crossed) {
		f := heap.Pop(&p.held).(*frame)
		f.inHeld = false
		switch {
		case f.gone && f != p.lent:
			p.recycle(f)
		case !f.gone && at < f.at:
			p.flight.move(f, max(at, f.least), id)
		}
	}
}

// cut loses every frame that has not arrived by now.
func (p *path) cut(now int64) {
	p.flight.remove(func(f *frame) bool { return f.at > now }, func(f *frame) {
		p.record.drop(Drop{ID: f.id, Copy: f.copy, At: f.at, Cause: CauseDown})
		p.record.counts.InFlight--
		p.recycle(f)
	})
}

// Buffers are kept by size, so that a hundred thousand short frames in flight do not take the memory of long ones.
const (
	poolClasses = 5
	poolShift   = 7 // the smallest class holds 128 bytes; each next one four times as many
)

// class is the smallest class that holds n bytes; poolClasses or more for a frame too long for any.
func class(n int) int { return (bits.Len(uint(max(n, 1)-1)>>poolShift) + 1) / 2 }

// buffer returns a frame whose data can hold n bytes.
func (p *path) buffer(n int) *frame {
	c := class(n)
	if c >= poolClasses {
		return &frame{data: make([]byte, 0, n)}
	}
	if k := len(p.pool[c]); k > 0 {
		f := p.pool[c][k-1]
		p.pool[c] = p.pool[c][:k-1]
		return f
	}
	return &frame{data: make([]byte, 0, 1<<(poolShift+2*c))}
}

// recycle takes a frame back that nobody uses any more, unless held still refers to it: release does it then.
func (p *path) recycle(f *frame) {
	if f.inHeld {
		return
	}
	if c := class(cap(f.data)); c < poolClasses {
		p.pool[c] = append(p.pool[c], f)
	}
}

// line is the transmitter of a wire: frames leave it one after the other at its rate.
type line struct {
	rate  uint64 // bit/s; 0 is infinite
	limit int    // frames in the queue, the one being sent included; 0 is no limit

	// The last frame is gone at free + part/rate ns. The fraction is carried, so N frames take N times the exact time of
	// one, rounded up once.
	free int64
	part uint64

	leaving ring[int64] // when each frame in the queue is gone, earliest first
}

// send puts a frame of n bytes that is complete at now into the queue and returns when it has left; ok is false when the
// queue is full.
func (l *line) send(now int64, n int) (left int64, ok bool) {
	if l.rate == 0 {
		return now, true
	}
	if l.limit > 0 {
		for l.leaving.len() > 0 && l.leaving.front() <= now {
			l.leaving.pop()
		}
		if l.leaving.len() >= l.limit {
			return 0, false
		}
	}
	if l.free < now {
		l.free, l.part = now, 0
	}
	wire := uint64(max(n+fcsLen, minFrame) + overhead)
	sum := wire*8*1e9 + l.part // below 2^54: MaxFrame and maxRate see to it
	l.free += int64(sum / l.rate)
	l.part = sum % l.rate
	left = l.free
	if l.part > 0 {
		left++
	}
	if l.limit > 0 {
		l.leaving.push(left)
	}
	return left, true
}
