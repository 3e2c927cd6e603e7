// Package account decides what became of each frame of a stream, exactly: received once, twice, out of order, corrupt, lost.
//
// The receiver hands over the sequence number of every frame that bears the run's mark (package sig), in order of arrival. A
// window of 65 536 numbers behind the highest one remembers which have come. Terms are those of RFC 4737: a frame is
// reordered when a later one came before it; loss alone is never reordering; duplicates are counted apart and take no part in
// it. Lost is what was sent and never came, and is only known after the drain: see [Stream.Close].
//
// Sequence numbers have 48 bits on the wire and 64 here; the wrap is followed.
package account

import "bare.wire/cmd/pktgen/internal/sig"

// Window is how many numbers below the highest are remembered. A frame that comes later than that is counted as late: it
// cannot be told from a duplicate any more.
const Window = 1 << 16

// Verdict is what one arrival was.
type Verdict uint8

// Verdicts.
const (
	InOrder   Verdict = iota // first copy, above all before it
	Reordered                // first copy, after a higher one
	Duplicate                // a further copy
	Late                     // more than Window behind: first copy or not, nobody knows
	Corrupt                  // a number that was never sent
)

// Counts are the totals of a stream's receiver.
type Counts struct {
	Unique     uint64 // first copies, reordered ones included
	Reordered  uint64 // RFC 4737 §3.3
	MaxExtent  uint64 // RFC 4737 §4.2: the most arrivals by which a reordered frame came behind
	Duplicates uint64
	Late       uint64
	Corrupt    uint64
}

// gap remembers an arrival that left numbers out: its number and how many first copies came before it.
type gap struct{ seq, arrival uint64 }

// Stream accounts for one stream. One goroutine uses it; nothing allocates after NewStream.
type Stream struct {
	first  uint64 // the number of the first frame sent
	next   uint64 // RFC 4737 NextExp: one above the highest that came; first when none has
	seen   [Window / 64]uint64
	gaps   [Window / 2]gap // ring; a gap leaves out at least one number, so no more than these lie in a window
	head   int             // oldest gap
	ngaps  int
	counts Counts
	jitter Jitter
}

// NewStream starts with first as the number of the first frame that is sent (0 but for tests of the wrap).
func NewStream(first uint64) *Stream { return &Stream{first: first, next: first} }

// Receive takes the 48-bit number of an arrival, and how many frames of the stream have been sent by now.
func (s *Stream) Receive(wire uint64, sent uint64) Verdict {
	seq := s.extend(wire)
	if seq < s.first || seq-s.first >= sent {
		s.counts.Corrupt++
		return Corrupt
	}
	if seq >= s.next {
		s.advance(seq)
		s.counts.Unique++
		return InOrder
	}
	if s.next-seq > Window {
		s.counts.Late++
		return Late
	}
	word, bit := seq/64%(Window/64), uint64(1)<<(seq%64)
	if s.seen[word]&bit != 0 {
		s.counts.Duplicates++
		return Duplicate
	}
	s.seen[word] |= bit
	s.counts.Reordered++
	s.counts.MaxExtent = max(s.counts.MaxExtent, s.counts.Unique-s.overtaker(seq))
	s.counts.Unique++
	return Reordered
}

// extend gives a 48-bit number its upper bits: the ones that bring it nearest to what is expected next.
func (s *Stream) extend(wire uint64) uint64 {
	const unused = 64 - sig.SeqBits
	return s.next + uint64(int64((wire-s.next)<<unused)>>unused)
}

// advance makes seq, at or above next, the highest number.
func (s *Stream) advance(seq uint64) {
	if seq > s.next {
		s.forget(seq)
		s.pushGap(gap{seq, s.counts.Unique})
	}
	s.seen[seq/64%(Window/64)] |= 1 << (seq % 64)
	s.next = seq + 1
}

// forget clears the marks of the numbers next … seq-1, which have been left out.
func (s *Stream) forget(seq uint64) {
	if seq-s.next >= Window {
		s.seen = [Window / 64]uint64{}
		return
	}
	for n := s.next; n < seq; {
		if n%64 == 0 && seq-n >= 64 {
			s.seen[n/64%(Window/64)] = 0
			n += 64
			continue
		}
		s.seen[n/64%(Window/64)] &^= 1 << (n % 64)
		n++
	}
}

func (s *Stream) pushGap(g gap) {
	if s.ngaps == len(s.gaps) {
		s.head = (s.head + 1) % len(s.gaps)
		s.ngaps--
	}
	s.gaps[(s.head+s.ngaps)%len(s.gaps)] = g
	s.ngaps++
}

// overtaker is the arrival that came first of all those above seq. That is the one that left seq out, so gaps suffice.
func (s *Stream) overtaker(seq uint64) uint64 {
	lo, hi := 0, s.ngaps // the first gap with a number above seq
	for lo < hi {
		mid := (lo + hi) / 2
		if s.gaps[(s.head+mid)%len(s.gaps)].seq > seq {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return s.gaps[(s.head+lo)%len(s.gaps)].arrival
}

// BadFrame counts a frame that bears the stream's mark and is damaged elsewhere.
func (s *Stream) BadFrame() { s.counts.Corrupt++ }

// Time feeds the jitter with one arrival: when it was sent and received, ns.
func (s *Stream) Time(sent, received int64) { s.jitter.Add(sent, received) }

// Counts are the totals so far.
func (s *Stream) Counts() Counts { return s.counts }

// JitterNanos is the interarrival jitter of RFC 3550 §6.4.1, ns.
func (s *Stream) JitterNanos() int64 { return s.jitter.Nanos() }

// Missing is how many numbers below the highest have not come yet: lost, or still on their way.
func (s *Stream) Missing() uint64 { return s.next - s.first - s.counts.Unique }

// Highest is one above the highest running number that came, counted from 0 for the first frame.
func (s *Stream) Highest() uint64 { return s.next - s.first }

// Outcome is a stream's account when it is closed.
type Outcome struct {
	Counts
	Sent     uint64
	InFlight uint64 // sent so late that they may still be on their way
	// Lost is Sent - Unique - InFlight. It is negative when more came than was sent, which is never hidden: it means that
	// an account is wrong, here or in the device.
	Lost int64
}

// Close gives the account after the drain: sent frames in all, of which the last young may not have had the time to
// arrive. Only frames above the highest that came count as in flight.
func (s *Stream) Close(sent, young uint64) Outcome {
	o := Outcome{Counts: s.counts, Sent: sent}
	if tail := int64(sent) - int64(s.Highest()); tail > 0 {
		o.InFlight = min(uint64(tail), young)
	}
	o.Lost = int64(sent) - int64(s.counts.Unique) - int64(o.InFlight)
	return o
}
