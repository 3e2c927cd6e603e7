// Package link is a full-duplex Ethernet wire between two software cards, and everything bad a wire can do.
//
// A card gives a frame to its [End] with [End.Transmit] and the time at which the frame has left its MAC; the other end
// hands it out with [End.Receive] once its last bit has arrived. In between, in this order, a frame
//
//	meets a link that is down          lost, cause "down"
//	meets a filter of the test         lost, cause "filter"
//	waits for the wire (Rate, Queue)   lost when the queue is full, cause "queue"
//	crosses the medium                 lost ("loss"), a bit flipped, copied, held back (Reorder), delayed (Delay, Jitter)
//
// The wire has no clock: every call says what time it is. With the same [Config] and the same calls a run is the same every
// time. Each effect has its own random stream per direction, drawn once for every frame offered, so that turning one effect
// on does not change what another does to which frame. What was lost, copied, overtaken and damaged is counted, and listed
// when [Config.Record] is set: a test can ask what really happened.
//
// Lengths are in bytes without the FCS, times in ns. On the wire a frame takes its length plus 4 bytes of FCS, at least 64,
// plus 20 bytes of preamble and gap (IEEE 802.3 §3.1.1, §4.4.2). A wire has no lock: it belongs to the world whose cards it
// joins, and is used under that world's lock.
package link

import (
	"math"
	"time"
)

// MaxFrame is the longest frame a wire takes, bytes without FCS.
const MaxFrame = 1 << 20

const (
	fcsLen   = 4  // IEEE 802.3 §3.2.9
	minFrame = 64 // with FCS; shorter ones are padded by the sender's MAC before they get here, or are runts
	overhead = 20 // 7 preamble, 1 start delimiter, 12 gap
)

// Frame is a frame that has arrived.
type Frame struct {
	Data   []byte // without FCS; valid until the next Receive on the same end
	At     int64  // when its last bit arrived
	Sent   int64  // when its last bit had left the sender's MAC
	ID     uint64 // running number of the frame in its direction, from 0; lost frames have one too
	Copy   int    // 0 for the frame, 1… for what Duplicate made of it
	BadFCS bool   // a bit was flipped on the way
}

// Wire joins two ends.
type Wire struct {
	a, b End
	up   bool // what the ends were last told
	flap Flap
	down bool  // by the flap schedule, as of the last Step
	seen int64 // the latest time at which anybody looked for a frame
}

// End is one side of a wire.
type End struct {
	wire      *Wire
	tx, rx    *path
	peer      *End
	enabled   bool
	onChange  func(up bool)
	onArrival func(at int64)
}

// New makes a wire; both ends are up.
func New(cfg Config) (*Wire, error) {
	ab, ba, err := cfg.directions()
	if err != nil {
		return nil, err
	}
	w := &Wire{up: true, flap: cfg.Flap, seen: math.MinInt64}
	toB, toA := newPath(ab, cfg, AToB), newPath(ba, cfg, BToA)
	w.a = End{wire: w, tx: toB, rx: toA, peer: &w.b, enabled: true}
	w.b = End{wire: w, tx: toA, rx: toB, peer: &w.a, enabled: true}
	return w, nil
}

// A is the one end.
func (w *Wire) A() *End { return &w.a }

// B is the other.
func (w *Wire) B() *End { return &w.b }

// Step tells the ends of the ups and downs of [Config.Flap] that are due at now, and returns when the next one is:
// math.MaxInt64 without a flap. It makes a wire an engine of a sim.World; only a wire with a flap needs to be one.
func (w *Wire) Step(now int64) (next int64) {
	w.down = w.flap.downAt(now)
	w.tell()
	return w.flap.nextEdge(now)
}

// tell calls the ends' OnChange when the link has changed since they were last told.
func (w *Wire) tell() {
	up := w.a.enabled && w.b.enabled && !w.down
	if up == w.up {
		return
	}
	w.up = up
	for _, e := range []*End{&w.a, &w.b} {
		if e.onChange != nil {
			e.onChange(up)
		}
	}
}

// Up reports whether there is a link: both ends are up and no flap is on.
func (e *End) Up() bool { return e.wire.up }

// SetUp connects this end or takes it off. While either end is off there is no link: what is sent is lost, and so are, when
// an end goes off, the frames then on their way. Both ends are told through OnChange, inside this call.
func (e *End) SetUp(up bool) {
	if e.enabled == up {
		return
	}
	e.enabled = up
	if !up {
		e.tx.cut(e.wire.seen)
		e.rx.cut(e.wire.seen)
	}
	e.wire.tell()
}

// OnChange has f called whenever the link comes up or goes down, with the locks that the caller of SetUp or Step holds.
func (e *End) OnChange(f func(up bool)) { e.onChange = f }

// OnArrival has f called, inside the other end's Transmit, with the time at which a frame will arrive here: for a card
// that needs its world poked to notice.
func (e *End) OnArrival(f func(at int64)) { e.onArrival = f }

// Transmit sends data, a frame without FCS whose last bit leaves the sender's MAC at now. It copies data; the caller may use
// it again at once. An end's Transmit times do not go back; one that does counts as the latest one before it.
func (e *End) Transmit(data []byte, now int64) {
	p := e.tx
	o, cause := p.admit(data, now, !e.enabled || !e.peer.enabled)
	if cause != 0 {
		p.record.drop(Drop{ID: o.id, At: o.sent, Cause: cause})
		return
	}
	at := p.send(data, o)
	if e.peer.onArrival != nil && at != math.MaxInt64 {
		e.peer.onArrival(at)
	}
}

// Next tells when the next frame arrives at this end; ok is false when none is under way. A frame sent later may arrive
// earlier.
func (e *End) Next() (at int64, ok bool) {
	f := e.rx.flight.first()
	if f == nil {
		return 0, false
	}
	return f.at, true
}

// Receive takes the next frame that has arrived by now. Its Data stay valid until the next Receive on this end.
func (e *End) Receive(now int64) (Frame, bool) {
	e.wire.seen = max(e.wire.seen, now)
	p := e.rx
	if p.lent != nil {
		p.recycle(p.lent)
		p.lent = nil
	}
	f := p.flight.first()
	if f == nil || f.at > now {
		return Frame{}, false
	}
	p.flight.pop(f)
	p.lent = f
	p.record.delivered(f)
	return Frame{Data: f.data, At: f.at, Sent: f.sent, ID: f.id, Copy: f.copy, BadFCS: f.badFCS}, true
}

// Flap takes the link down now and then: for Down, at times First, First+Every, First+2·Every… of the clock in use. Every 0
// is once; Down 0 is never. A frame is lost when the link is down at any time between its leaving and its arrival.
type Flap struct {
	First, Every, Down time.Duration
}

// last returns the start of the latest down period that begins at or before t; ok is false when none does.
func (f Flap) last(t int64) (start int64, ok bool) {
	if f.Down == 0 || t < int64(f.First) {
		return 0, false
	}
	start = int64(f.First)
	if f.Every > 0 {
		start += (t - start) / int64(f.Every) * int64(f.Every)
	}
	return start, true
}

func (f Flap) downAt(t int64) bool { return f.downWithin(t, t) }

// downWithin reports whether the link is down at any time from t0 to t1.
func (f Flap) downWithin(t0, t1 int64) bool {
	start, ok := f.last(t1)
	return ok && start+int64(f.Down) > t0
}

// nextEdge is the first up or down after t, or math.MaxInt64.
func (f Flap) nextEdge(t int64) int64 {
	start, ok := f.last(t)
	switch {
	case f.Down == 0:
		return math.MaxInt64
	case !ok:
		return int64(f.First)
	case t < start+int64(f.Down):
		return start + int64(f.Down)
	case f.Every > 0:
		return start + int64(f.Every)
	}
	return math.MaxInt64
}
