package account

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"bare.wire/cmd/pktgen/internal/sig"
)

func Example() {
	s := NewStream(0)
	for _, seq := range []uint64{0, 1, 4, 2, 3, 3, 6} { // 5 and 7 of eight frames never come
		s.Receive(seq, 8)
	}
	o := s.Close(8, 0)
	fmt.Println("unique", o.Unique, "reordered", o.Reordered, "extent", o.MaxExtent, "dup", o.Duplicates, "lost", o.Lost)
	// Output: unique 6 reordered 2 extent 2 dup 1 lost 2
}

// oracle computes the same from the whole list of arrivals, slowly and straight from the definitions of RFC 4737.
func oracle(arrivals []uint64, first, sent uint64) (c Counts) {
	var kept []uint64 // first copies, in order of arrival
	seen := map[uint64]bool{}
	highest, any := uint64(0), false
	for _, seq := range arrivals {
		if seq < first || seq >= first+sent {
			c.Corrupt++
			continue
		}
		if any && highest >= seq && highest-seq >= Window {
			c.Late++
			continue
		}
		if seen[seq] {
			c.Duplicates++
			continue
		}
		seen[seq] = true
		for j, earlier := range kept {
			if earlier > seq { // reordered: j is the earliest arrival above it
				c.Reordered++
				c.MaxExtent = max(c.MaxExtent, uint64(len(kept)-j))
				break
			}
		}
		kept = append(kept, seq)
		if !any || seq > highest {
			highest, any = seq, true
		}
	}
	c.Unique = uint64(len(kept))
	return c
}

func feed(arrivals []uint64, first, sent uint64) *Stream {
	s := NewStream(first)
	for _, seq := range arrivals {
		s.Receive(seq&sig.SeqMask, sent)
	}
	return s
}

// mangle is a network: each frame is lost, doubled or delayed by some places, from a seed.
func mangle(rng *rand.Rand, first uint64, n int, loss, dup, reorder float64, far int) []uint64 {
	type late struct {
		at  int
		seq uint64
	}
	var held []late
	var out []uint64
	for i := range n {
		seq := first + uint64(i)
		for k := 0; k < len(held); k++ {
			if held[k].at <= i {
				out = append(out, held[k].seq)
				held = append(held[:k], held[k+1:]...)
				k--
			}
		}
		if rng.Float64() < loss {
			continue
		}
		if rng.Float64() < dup {
			held = append(held, late{i + rng.IntN(far+1), seq})
		}
		if rng.Float64() < reorder {
			held = append(held, late{i + 1 + rng.IntN(far), seq})
			continue
		}
		out = append(out, seq)
	}
	for _, h := range held {
		out = append(out, h.seq)
	}
	return out
}

func TestRandomNetworksAgreeWithTheSlowOracle(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 42))
		first := []uint64{0, 1<<48 - 300, 1<<32 - 10, 1<<52 - 1000}[seed%4]
		n := 1 + rng.IntN(1500)
		arrivals := mangle(rng, first, n, rng.Float64()*0.3, rng.Float64()*0.3, rng.Float64()*0.3, 1+rng.IntN(100))
		got, want := feed(arrivals, first, uint64(n)).Counts(), oracle(arrivals, first, uint64(n))
		if got != want {
			t.Fatalf("seed %d: got %+v\nwant %+v", seed, got, want)
		}
	}
}

// Jumps, returns and copies around the edge of the window, where the bitmap wraps.
func TestWindowEdgesAgreeWithTheSlowOracle(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 7))
		first, sent := uint64(1<<48-Window), uint64(8*Window)
		var arrivals []uint64
		at := first
		for range 800 {
			switch rng.IntN(4) {
			case 0:
				at = min(at+rng.Uint64N(2*Window), first+sent-1)
			case 1:
				at += min(1, first+sent-1-at)
			case 2: // just inside, at and just outside the window
				arrivals = append(arrivals, max(first, at-min(at, Window-3+rng.Uint64N(6))))
				continue
			default:
				arrivals = append(arrivals, max(first, at-min(at, rng.Uint64N(Window))))
				continue
			}
			arrivals = append(arrivals, at)
		}
		if got, want := feed(arrivals, first, sent).Counts(), oracle(arrivals, first, sent); got != want {
			t.Fatalf("seed %d: got %+v\nwant %+v", seed, got, want)
		}
	}
}

func TestNeighboursSwappedAndEveryTenthDelayed(t *testing.T) {
	var swapped []uint64
	for i := uint64(0); i < 1000; i += 2 {
		swapped = append(swapped, i+1, i)
	}
	if o := feed(swapped, 0, 1000).Close(1000, 0); o.Reordered != 500 || o.MaxExtent != 1 || o.Lost != 0 || o.Duplicates != 0 {
		t.Errorf("swapped: %+v", o)
	}
	var delayed []uint64 // every tenth comes five places late
	for i := uint64(0); i < 1000; i++ {
		if i%10 != 0 {
			delayed = append(delayed, i)
		}
		if i%10 == 5 {
			delayed = append(delayed, i-5)
		}
	}
	if o := feed(delayed, 0, 1000).Close(1000, 0); o.Reordered != 100 || o.MaxExtent != 5 || o.Lost != 0 {
		t.Errorf("delayed: %+v", o)
	}
	// RFC 4737's own example: 1 2 5 3 4 6.
	if c := feed([]uint64{1, 2, 5, 3, 4, 6}, 1, 6).Counts(); c.Reordered != 2 || c.MaxExtent != 2 {
		t.Errorf("RFC example: %+v", c)
	}
}

func TestCopiesAtTheEdgeOfTheWindow(t *testing.T) {
	for _, c := range []struct {
		behind    uint64
		dup, late uint64
	}{{0, 3, 0}, {Window - 1, 3, 0}, {Window, 0, 3}, {Window + 1, 0, 3}} {
		s := NewStream(0)
		sent := uint64(3 * Window)
		for seq := range sent {
			s.Receive(seq, sent)
		}
		for range 3 {
			s.Receive(sent-1-c.behind, sent)
		}
		if got := s.Counts(); got.Duplicates != c.dup || got.Late != c.late || got.Unique != sent {
			t.Errorf("copies %d behind: %+v", c.behind, got)
		}
	}
}

func TestDropAndCopyInOneStream(t *testing.T) {
	s := NewStream(0)
	for seq := range uint64(1000) {
		if seq%7 == 0 {
			continue
		}
		s.Receive(seq, 1000)
		if seq%5 == 0 {
			s.Receive(seq, 1000)
		}
	}
	if o := s.Close(1000, 0); o.Lost != 143 || o.Duplicates != 171 || o.Reordered != 0 {
		t.Errorf("%+v", o)
	}
}

func TestNumbersNeverSentAreCorrupt(t *testing.T) {
	s := NewStream(100)
	for _, seq := range []uint64{99, 0, 150, 1 << 47, sig.SeqMask} {
		if v := s.Receive(seq, 50); v != Corrupt {
			t.Errorf("number %d: verdict %d", seq, v)
		}
	}
	if v := s.Receive(149, 50); v != InOrder {
		t.Errorf("the last one sent: verdict %d", v)
	}
	if c := s.Counts(); c.Corrupt != 5 || c.Unique != 1 {
		t.Errorf("%+v", c)
	}
}

func TestFramesTooYoungAreInFlightAndNotLost(t *testing.T) {
	var log SendLog
	s := NewStream(0)
	for i := range uint64(100) { // one a microsecond, delay 10 µs
		log.Burst(int64(i)*1000, i)
	}
	for seq := range uint64(90) {
		s.Receive(seq, 100)
	}
	if o := s.Close(100, log.SentAfter(99_500-10_000, 100)); o.InFlight != 10 || o.Lost != 0 {
		t.Errorf("stopped in mid-flight: %+v", o)
	}
	if o := s.Close(100, log.SentAfter(1_000_000-10_000, 100)); o.InFlight != 0 || o.Lost != 10 {
		t.Errorf("drained: %+v", o)
	}
	if o := s.Close(80, 0); o.Lost != -10 {
		t.Errorf("negative loss is hidden: %+v", o)
	}
}

func TestSendLogKnowsTheLatestBurstsAndTheRestInSteps(t *testing.T) {
	var log SendLog
	for i := range uint64(100_000) {
		log.Burst(int64(i), i*32)
	}
	if n := log.SentAfter(99_989, 3_200_000); n != 10*32 {
		t.Errorf("%d frames after, want %d", n, 10*32)
	}
	if n := log.SentAfter(-1, 3_200_000); n != 3_200_000 {
		t.Errorf("%d frames after the start, want all", n)
	}
	for at := int64(0); at < 100_000; at += 97 {
		got, want := log.SentAfter(at, 3_200_000), uint64(100_000-at-1)*32
		if slack := uint64(32 * (100_000/4096 + 1)); got < want || got > want+slack || at >= 100_000-8192 && got != want {
			t.Fatalf("%d frames after %d, want %d, %d more at most", got, at, want, slack)
		}
	}
	if n := log.SentAfter(1_000_000, 3_200_000); n != 0 {
		t.Errorf("%d frames after the last", n)
	}
}

// RFC 3550 §6.4.1 in floating point.
func TestJitterFollowsTheFormula(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	var j Jitter
	want, last := 0.0, int64(0)
	for i := range int64(10_000) {
		sent := i * 1000
		received := sent + 50_000 + rng.Int64N(10_000) - 1_000_000 // another clock
		transit := received - sent
		if i > 0 {
			d := float64(transit - last)
			if d < 0 {
				d = -d
			}
			want += (d - want) / 16
		}
		last = transit
		j.Add(sent, received)
	}
	if diff := float64(j.Nanos()) - want; diff < -2 || diff > 2 {
		t.Errorf("jitter %d, want %.1f", j.Nanos(), want)
	}
}

func TestReceivingAllocatesNothing(t *testing.T) {
	s := NewStream(0)
	seq := uint64(0)
	n := testing.AllocsPerRun(1000, func() {
		seq += 3
		s.Receive(seq, 1<<40)
		s.Receive(seq-1, 1<<40)
		s.Time(int64(seq), int64(seq)+5)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte{0, 1, 2, 5, 3, 3, 250}, uint64(0), uint16(200))
	f.Add([]byte{1, 255, 255, 0, 0, 9}, uint64(1<<48-5), uint16(5000))
	f.Fuzz(func(t *testing.T, steps []byte, first uint64, sent uint16) {
		first %= 1 << 56
		var arrivals []uint64
		at := first
		for _, b := range steps { // a signed step each
			at += uint64(int64(int8(b))) * (1 + uint64(b&7)*97)
			arrivals = append(arrivals, at)
		}
		for i, seq := range arrivals { // the oracle knows 64 bits; keep to what 48 can tell apart
			if int64(seq-first) < -1<<40 || int64(seq-first) > 1<<40 {
				arrivals[i] = first
			}
		}
		if got, want := feed(arrivals, first, uint64(sent)).Counts(), oracle(arrivals, first, uint64(sent)); got != want {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
	})
}

func BenchmarkInOrder(b *testing.B) {
	s := NewStream(0)
	for i := uint64(0); b.Loop(); i++ {
		s.Receive(i&sig.SeqMask, i+1)
	}
}
