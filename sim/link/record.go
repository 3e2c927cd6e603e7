package link

import (
	"fmt"
	"slices"
)

// Direction is one of the two directions of a wire.
type Direction int

// The directions.
const (
	AToB Direction = iota
	BToA
)

func (d Direction) String() string {
	if d == AToB {
		return "a→b"
	}
	return "b→a"
}

// Cause is why a frame was lost.
type Cause uint8

// The causes. A frame has one, the first that it meets.
const (
	CauseLength Cause = iota + 1 // empty, or longer than MaxFrame
	CauseDown                    // there was no link, or it broke while the frame was under way
	CauseFilter                  // Config.DropIf
	CauseQueue                   // no room in the queue
	CauseLoss                    // chance: Config.Loss or Config.Gilbert
	causes
)

var causeNames = [causes]string{"none", "length", "down", "filter", "queue", "loss"}

func (c Cause) String() string {
	if c < causes {
		return causeNames[c]
	}
	return fmt.Sprintf("Cause(%d)", uint8(c))
}

// Drop is a frame that did not arrive.
type Drop struct {
	ID    uint64
	Copy  int   // which copy of the frame, 0 for the frame itself: a link that breaks loses copies too
	At    int64 // when it was sent; for one lost under way, when it would have arrived
	Cause Cause
}

// Duplication is a frame that was copied.
type Duplication struct {
	ID     uint64
	Copies int // besides the frame itself
}

// Reordering is a frame that arrived, first copy of it, after a frame that was sent later: reordered in the sense of
// RFC 4737 §3.3. It is noted when the frame is received.
type Reordering struct {
	ID  uint64
	Max uint64 // highest ID received before it
	At  int64  // when it arrived
}

// Corruption is a frame of which one bit was flipped: bit Bit%8 of byte Bit/8.
type Corruption struct {
	ID     uint64
	Bit    int
	BadFCS bool
}

// Counts are numbers of frames of one direction. At any time Offered plus Copies is Delivered plus InFlight plus the sum of
// all drops.
type Counts struct {
	Offered    uint64 // given to Transmit
	Delivered  uint64 // handed out by Receive, copies included
	InFlight   uint64
	Copies     uint64 // made by Duplicate
	Duplicated uint64 // frames copied
	Reordered  uint64
	Corrupted  uint64
	dropped    [causes]uint64
	Unlisted   uint64 // entries that the lists have no room for (Config.RecordLimit)
}

// Dropped is the number of frames lost for a cause.
func (c Counts) Dropped(cause Cause) uint64 {
	if cause >= causes {
		return 0
	}
	return c.dropped[cause]
}

// Lost is the number of frames, copies included, lost for any cause.
func (c Counts) Lost() (sum uint64) {
	for _, n := range c.dropped {
		sum += n
	}
	return sum
}

// record is what happened in one direction.
type record struct {
	keep   bool
	limit  int
	counts Counts

	drops       []Drop
	duplicates  []Duplication
	reorders    []Reordering
	corruptions []Corruption

	maxID uint64 // highest ID delivered
}

// list appends to one of the lists if it is kept and has room.
func list[T any](r *record, l *[]T, v T) {
	switch {
	case !r.keep:
	case r.limit > 0 && len(*l) >= r.limit:
		r.counts.Unlisted++
	default:
		*l = append(*l, v)
	}
}

func (r *record) drop(d Drop) {
	r.counts.dropped[d.Cause]++
	list(r, &r.drops, d)
}

func (r *record) duplicate(d Duplication) {
	r.counts.Duplicated++
	r.counts.Copies += uint64(d.Copies)
	list(r, &r.duplicates, d)
}

func (r *record) corrupt(c Corruption) {
	r.counts.Corrupted++
	list(r, &r.corruptions, c)
}

func (r *record) delivered(f *frame) {
	r.counts.Delivered++
	r.counts.InFlight--
	if f.copy == 0 && f.id < r.maxID {
		r.counts.Reordered++
		list(r, &r.reorders, Reordering{ID: f.id, Max: r.maxID, At: f.at})
	}
	r.maxID = max(r.maxID, f.id)
}

func (w *Wire) path(d Direction) *path {
	if d == AToB {
		return w.a.tx
	}
	return w.b.tx
}

// Counts are the counts of one direction so far.
func (w *Wire) Counts(d Direction) Counts { return w.path(d).record.counts }

// Drops lists the frames that were lost; like all lists it is a copy, in the order in which things happened, and empty
// without [Config.Record].
func (w *Wire) Drops(d Direction) []Drop { return slices.Clone(w.path(d).record.drops) }

// Duplicates lists the frames that were copied.
func (w *Wire) Duplicates(d Direction) []Duplication {
	return slices.Clone(w.path(d).record.duplicates)
}

// Reorders lists the frames that were received after a later one.
func (w *Wire) Reorders(d Direction) []Reordering { return slices.Clone(w.path(d).record.reorders) }

// Corruptions lists the frames that were damaged.
func (w *Wire) Corruptions(d Direction) []Corruption {
	return slices.Clone(w.path(d).record.corruptions)
}
