// Package audit recomputes the report of a "pktgen run" from outside: from the capture of what was sent, the capture of what
// was received, and the list of what the simulated wire did to the frames. It shares no code with what it audits, keeps
// everything in memory, takes its definitions from the RFCs, and is as simple and slow as that makes it.
//
// The stamps of both captures must be those of one clock, and the first frame must have been sent when it was due: a run on
// a virtual clock.
//
//	rx capture ┐
//	tx capture ├─> Audit ─> what each field has to be ─> Differences ─> fields of the report that are something else
//	wire's list┘                                                        (or that nobody has recomputed)
package audit

import (
	"encoding/binary"
	"fmt"
	"math/big"
)

// Input is all that an audit looks at.
type Input struct {
	Args       Args
	Intervals  []Interval // where the report's intervals begin and end
	Tx, Rx     []Frame
	Link       *Link // nil: not known, and not compared
	Histogram  string
	RxRejected uint64
}

// Args is what was asked for, as the report says it.
type Args struct {
	Rate       string `json:"rate"`
	DurationNS int64  `json:"duration_ns"`
	Count      uint64 `json:"count"`
	Size       int64  `json:"size"`
	Burst      int    `json:"burst"`
	DrainNS    int64  `json:"drain_ns"`
	BudgetNS   int64  `json:"catch_up_budget_ns"`
	LinkBPS    int64  `json:"-"`
	Latency    bool   `json:"-"`
}

// Interval is a part of the run, ns since its start; what happens at End belongs to the next one.
type Interval struct {
	Start int64 `json:"start_ns"`
	End   int64 `json:"end_ns"`
}

// Link is what the wire says it has done, from sender to receiver. IDs number the frames as they entered it.
type Link struct {
	Drops       []Drop       `json:"drops"`
	Copies      []Copies     `json:"copies"`
	Corruptions []Corruption `json:"corruptions"`
}

// Drop is a frame that the wire lost.
type Drop struct {
	ID    uint64 `json:"id"`
	Copy  int    `json:"copy"`
	Cause string `json:"cause"`
}

// Copies is how many copies of a frame there were besides it.
type Copies struct {
	ID     uint64 `json:"id"`
	Copies uint64 `json:"copies"`
}

// Corruption is a frame with a flipped bit; BadFCS: the card sees it and drops the frame.
type Corruption struct {
	ID     uint64 `json:"id"`
	Bit    int    `json:"bit"`
	BadFCS bool   `json:"bad_fcs"`
}

// window is how far behind the highest number a frame can be told from a duplicate.
const window = 65536

// mark is the signature at the end of a frame: magic 16, run 8, stream 8, number 48, time 64.
type mark struct {
	magic       uint16
	run, stream uint8
	seq         uint64
	sent        int64
}

const (
	markSize  = 18
	markMagic = 0xB1E7
)

func markOf(data []byte) (m mark, ok bool) {
	if len(data) < markSize {
		return m, false
	}
	b := data[len(data)-markSize:]
	m = mark{binary.BigEndian.Uint16(b), b[2], b[3], uint64(binary.BigEndian.Uint16(b[4:]))<<32 | uint64(binary.BigEndian.Uint32(b[6:])), int64(binary.BigEndian.Uint64(b[10:]))}
	return m, m.magic == markMagic
}

// arrival is a frame of the run that was received, first copy and undamaged.
type arrival struct {
	seq      uint64
	at, sent int64 // ns since the start
}

// event is what became of a received frame; by kind.
type event struct {
	kind string // unique, reordered, duplicate, late, corrupt, foreign, unsigned
	at   int64
	size int64 // with FCS
	arrival
}

// audit is the work in progress.
type audit struct {
	Input
	start   int64 // of the captures
	offset  int64 // from a stamp in a mark to the capture's
	run     uint8
	sent    []int64 // when each frame was sent, ns since the start
	events  []event
	unique  []arrival // in order of arrival, reordered ones too
	extents uint64    // the largest
	longest int64     // the largest latency
	highest uint64    // one above the highest number received
	rate    *big.Rat  // frames a second; nil: max
	bursts  []burst
	out     Values
}

// Audit says what each field of the report has to be, by its path. An error says that the captures themselves cannot be.
func Audit(in Input) (Values, error) {
	a := &audit{Input: in, out: Values{}}
	if len(in.Tx) == 0 {
		return nil, fmt.Errorf("nothing was sent: there is nothing to audit")
	}
	for _, step := range []func() error{a.parseRate, a.readSent, a.readReceived, a.checkLink, a.findBursts} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	a.loss()
	if err := a.latency(); err != nil {
		return nil, err
	}
	a.pacing()
	a.intervals()
	a.counters()
	return a.out, nil
}

// readSent checks that what was sent is numbered from 0, all of one run, and stamped when it was sent.
func (a *audit) readSent() error {
	first, ok := markOf(a.Tx[0].Data)
	if !ok {
		return fmt.Errorf("sent frame 0 bears no mark")
	}
	a.start, a.run = a.Tx[0].At, first.run
	a.offset = a.start - first.sent
	for i, f := range a.Tx {
		m, ok := markOf(f.Data)
		switch {
		case !ok || m.run != a.run || m.stream != 0 || m.seq != uint64(i):
			return fmt.Errorf("sent frame %d bears the mark %+v", i, m)
		case m.sent+a.offset != f.At:
			return fmt.Errorf("sent frame %d is marked as sent at %d, and captured at %d", i, m.sent+a.offset-a.start, f.At-a.start)
		case int64(len(f.Data))+4 != a.Args.Size:
			return fmt.Errorf("sent frame %d has %d bytes", i, len(f.Data))
		case i > 0 && f.At < a.Tx[i-1].At:
			return fmt.Errorf("sent frame %d is stamped before the one before", i)
		}
		a.sent = append(a.sent, f.At-a.start)
	}
	return nil
}

// readReceived decides what each received frame is. A frame of the run is damaged when it differs from the one sent under
// its number anywhere behind the Ethernet header, which a network may rewrite.
func (a *audit) readReceived() error {
	seen := map[uint64]bool{}
	for i, f := range a.Rx {
		e := event{at: f.At - a.start, size: int64(len(f.Data)) + 4}
		if i > 0 && f.At < a.Rx[i-1].At {
			return fmt.Errorf("received frame %d is stamped before the one before", i)
		}
		m, ok := markOf(f.Data)
		e.arrival = arrival{m.seq, e.at, m.sent + a.offset - a.start}
		switch {
		case !ok:
			e.kind = "unsigned"
		case m.run != a.run || m.stream != 0:
			e.kind = "foreign"
		case m.seq >= uint64(len(a.Tx)) || string(f.Data[14:]) != string(a.Tx[m.seq].Data[14:]):
			e.kind = "corrupt"
		case m.seq+window < a.highest:
			e.kind = "late"
		case seen[m.seq]:
			e.kind = "duplicate"
		default:
			seen[m.seq] = true
			e.kind = "unique"
			if m.seq+1 < a.highest {
				e.kind = "reordered"
			}
			a.unique = append(a.unique, e.arrival)
			a.highest = max(a.highest, m.seq+1)
			a.longest = max(a.longest, e.at-e.sent)
		}
		a.events = append(a.events, e)
	}
	a.extents = maxExtent(a.unique)
	return nil
}

// maxExtent is the largest reordering extent (RFC 4737 §4.2): of arrival i, i − j, where j is the earliest arrival of a frame
// sent later.
func maxExtent(arrivals []arrival) (most uint64) {
	var highest []uint64 // among the arrivals up to each
	for i, a := range arrivals {
		if i == 0 || a.seq > highest[i-1] {
			highest = append(highest, a.seq)
			continue
		}
		highest = append(highest, highest[i-1])
		for j := range i {
			if highest[j] > a.seq {
				most = max(most, uint64(i-j))
				break
			}
		}
	}
	return most
}

// checkLink holds the two captures against what the wire says: exactly the frames that it did not lose, and that the card did
// not throw away, were received, and as often.
func (a *audit) checkLink() error {
	if a.Link == nil {
		return nil
	}
	want := make([]uint64, len(a.Tx))
	for i := range want {
		want[i] = 1
	}
	for _, c := range a.Link.Copies {
		want[c.ID] += c.Copies
	}
	for _, d := range a.Link.Drops {
		want[d.ID]--
	}
	damaged := map[uint64]bool{}
	for _, c := range a.Link.Corruptions {
		damaged[c.ID] = true
		if c.BadFCS {
			a.RxRejected += want[c.ID]
			want[c.ID] = 0
		} else if c.Bit < 48 { // another destination: the card's filter
			want[c.ID] = 0
		}
	}
	got := make([]uint64, len(a.Tx))
	broken, brokenWant := uint64(0), uint64(0)
	for _, e := range a.events {
		switch e.kind {
		case "unique", "reordered", "duplicate", "late":
			got[e.seq]++
		default:
			broken++
		}
	}
	for id, n := range want {
		if damaged[uint64(id)] && got[id] == 0 {
			brokenWant += n // as many must be among the corrupt, foreign and unsigned
			continue
		}
		if got[id] != n && !(got[id] == 0 && a.young(uint64(id))) {
			return fmt.Errorf("frame %d was received %d times, and the wire says %d", id, got[id], n)
		}
	}
	if broken != brokenWant {
		return fmt.Errorf("%d damaged frames were received, and the wire says %d", broken, brokenWant)
	}
	return nil
}

// count is how many events are of the given kinds, in [from, to).
func (a *audit) count(from, to int64, kinds ...string) (n uint64) {
	for _, e := range a.events {
		for _, k := range kinds {
			if e.kind == k && e.at >= from && e.at < to {
				n++
			}
		}
	}
	return n
}
