package link_test

import (
	"bytes"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"bare.wire/sim/link"
)

func TestReorderPatterns(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  link.Config
		want []uint64
	}{
		"swap neighbours":   {link.Config{ReorderEvery: 2}, []uint64{0, 2, 1, 4, 3, 6, 5, 8, 7, 9}},
		"every 4th by 3":    {link.Config{ReorderEvery: 4, ReorderBy: 3}, []uint64{0, 1, 2, 4, 5, 6, 3, 8, 9, 7}},
		"every 5th by 1 µs": {link.Config{ReorderEvery: 5, ReorderDelay: 250}, []uint64{0, 1, 2, 3, 5, 6, 4, 7, 8, 9}},
		"all by 2":          {link.Config{ReorderEvery: 1, ReorderBy: 2}, []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"over the end":      {link.Config{ReorderEvery: 9, ReorderBy: 50}, []uint64{0, 1, 2, 3, 4, 5, 6, 7, 9, 8}},
	} {
		tc.cfg.Record = true
		w := newWire(t, tc.cfg)
		got := flood(w, 10, 100)
		if !slices.Equal(ids(got), tc.want) {
			t.Errorf("%s: arrived %v, want %v", name, ids(got), tc.want)
		}
		checkReorders(t, w, got)
	}
}

// checkReorders compares the wire's list with RFC 4737 §3.3 applied to what arrived: a frame is reordered when a later one
// has been received before its first copy.
func checkReorders(t *testing.T, w *link.Wire, got []arrival) {
	t.Helper()
	var want []link.Reordering
	seen := map[uint64]bool{}
	next := uint64(0)
	for _, a := range got {
		if !seen[a.ID] && a.ID < next {
			want = append(want, link.Reordering{ID: a.ID, Max: next - 1, At: a.At})
		}
		seen[a.ID] = true
		next = max(next, a.ID+1)
	}
	if have := w.Reorders(link.AToB); !slices.Equal(have, want) {
		t.Errorf("reordered: wire lists %d, receiver finds %d", len(have), len(want))
	}
	if !slices.IsSortedFunc(got, func(a, b arrival) int { return int(a.At - b.At) }) {
		t.Error("arrival times run backwards")
	}
}

func TestAHeldFrameArrivesRightBehindTheOneItWaitedFor(t *testing.T) {
	w := newWire(t, link.Config{ReorderEvery: 2, ReorderBy: 1, Delay: 1000})
	got := flood(w, 4, 100)
	for i, want := range []int64{1000, 1200, 1200, 1300 + int64(link.DefaultHold)} {
		if got[i].At != want {
			t.Errorf("arrival %d (frame %d) at %d, want %d", i, got[i].ID, got[i].At, want)
		}
	}
}

func TestAHeldFrameWhoseTimeIsUpKeepsItsPlace(t *testing.T) {
	w := newWire(t, link.Config{ReorderEvery: 2, Hold: 10})
	for _, at := range []int64{0, 1, 100} {
		w.A().Transmit([]byte{1}, at)
	}
	for _, want := range []int64{0, 11, 100} {
		if f, _ := w.B().Receive(1000); f.At != want {
			t.Fatalf("frame %d arrives at %d, want %d", f.ID, f.At, want)
		}
	}
}

func TestAHeldFrameThatWasReceivedIsNotTouchedAgain(t *testing.T) {
	w := newWire(t, link.Config{ReorderEvery: 2, ReorderBy: 2, Hold: 10})
	w.A().Transmit([]byte("zero"), 0)
	w.A().Transmit([]byte("one"), 1) // held until 11
	w.B().Receive(20)
	one, _ := w.B().Receive(20)
	for i := range 3 { // releases frame 1, which is gone but still lent
		w.A().Transmit([]byte("more"), 30+int64(i))
	}
	if string(one.Data) != "one" {
		t.Fatalf("the frame in hand became %q", one.Data)
	}
	if got := drainIDs(w); !slices.Equal(got, []uint64{2, 4, 3}) {
		t.Fatalf("then arrived %v", got)
	}
	checkSum(t, w, link.AToB)
}

func drainIDs(w *link.Wire) (out []uint64) {
	for {
		f, ok := w.B().Receive(math.MaxInt64)
		if !ok {
			return out
		}
		out = append(out, f.ID)
	}
}

func TestDuplicates(t *testing.T) {
	for _, by := range []int{0, 1, 7, 10_000} {
		n := by + 4
		w := newWire(t, link.Config{DuplicateEvery: 3, DuplicateCopies: 2, DuplicateBy: by, Record: true, Hold: time.Hour})
		got := flood(w, n, 10)
		if want := n + n/3*2; len(got) != want {
			t.Fatalf("by %d: %d arrivals, want %d", by, len(got), want)
		}
		originals := 0
		for i, a := range got {
			if a.Copy == 0 {
				originals++
			}
			if a.ID == 2 && a.Copy == 1 {
				if originals != 3+by {
					t.Errorf("by %d: the copy of frame 2 arrives after %d others", by, originals-3)
				}
				if b := got[i+1]; b.ID != 2 || b.Copy != 2 || b.At != a.At || !bytes.Equal(a.Data, numbered(2, 60)) {
					t.Errorf("by %d: behind the first copy comes %d/%d", by, b.ID, b.Copy)
				}
			}
		}
		if d := w.Duplicates(link.AToB); len(d) != n/3 || d[0] != (link.Duplication{ID: 2, Copies: 2}) {
			t.Errorf("by %d: duplicates listed: %d", by, len(d))
		}
		if len(w.Reorders(link.AToB)) != 0 {
			t.Errorf("by %d: a late copy is no reordering", by)
		}
		checkSum(t, w, link.AToB)
	}
}

func TestCorruptionFlipsOneBit(t *testing.T) {
	for _, keep := range []bool{false, true} {
		w := newWire(t, link.Config{Corrupt: 0.25, CorruptKeepFCS: keep, Seed: 4, Record: true, Duplicate: 0.1})
		const n = 20_000
		w.A().OnArrival(func(int64) { t.Error("A is told of its own frames") })
		var got []link.Corruption
		for i := range uint64(n) {
			want := numbered(i, 60+int(i%100))
			w.A().Transmit(want, int64(i))
			for {
				f, ok := w.B().Receive(int64(i))
				if !ok {
					break
				}
				flips, bit := 0, -1
				for k := range want {
					if x := want[k] ^ f.Data[k]; x != 0 {
						flips += bits.OnesCount8(x)
						bit = k*8 + bits.TrailingZeros8(x)
					}
				}
				if flips > 1 || f.BadFCS != (flips == 1 && !keep) {
					t.Fatalf("frame %d: %d bits flipped, BadFCS %v", i, flips, f.BadFCS)
				}
				if flips == 1 && f.Copy == 0 {
					got = append(got, link.Corruption{ID: i, Bit: bit, BadFCS: !keep})
				}
			}
		}
		if !slices.Equal(got, w.Corruptions(link.AToB)) {
			t.Errorf("keep %v: %d frames differ, %d listed", keep, len(got), len(w.Corruptions(link.AToB)))
		}
		if share := float64(len(got)) / n; math.Abs(share-0.25) > 0.015 {
			t.Errorf("keep %v: %v of the frames corrupted", keep, share)
		}
	}
}

// latencies are those of n frames far apart, sorted.
func latencies(t *testing.T, cfg link.Config, n int) []int64 {
	t.Helper()
	w := newWire(t, cfg)
	var out []int64
	for _, a := range flood(w, n, int64(time.Second)) {
		out = append(out, a.At-a.Sent)
	}
	slices.Sort(out)
	return out
}

func TestDelayDistributions(t *testing.T) {
	l := latencies(t, link.Config{Delay: 10_000, Jitter: 10_000, Seed: 1}, 20_000)
	for q, want := range map[float64]float64{0: 10_000, 0.5: 15_000, 0.99: 19_900, 0.99999: 20_000} {
		if got := float64(l[int(q*float64(len(l)))]); math.Abs(got/want-1) > 0.008 {
			t.Errorf("uniform 10-20 µs: quantile %v is %v, want %v", q, got, want)
		}
	}
	l = latencies(t, link.Config{Delay: 1000, Delays: []link.WeightedDelay{{Delay: 0, Weight: 90}, {Delay: 40_000, Weight: 10}}}, 20_000)
	if l[10_000] != 1000 || l[19_000] != 41_000 {
		t.Errorf("two-point: median %d, p95 %d", l[10_000], l[19_000])
	}
	never := link.Config{Delays: []link.WeightedDelay{{Delay: 7, Weight: 0}, {Delay: 3, Weight: 1}, {Delay: 7, Weight: 0}}}
	if l := latencies(t, never, 1000); l[0] != 3 || l[999] != 3 {
		t.Errorf("delays without weight were chosen: %d to %d", l[0], l[999])
	}
	at := slices.Index(l, 41_000)
	if share := 1 - float64(at)/2e4; math.Abs(share-0.1) > 0.008 {
		t.Errorf("two-point: %v of the frames are slow, want 0.1", share)
	}
}

func TestJitterKeepsTheOrderUnlessFramesMayOvertake(t *testing.T) {
	cfg := link.Config{Jitter: time.Microsecond, Seed: 9, Record: true}
	w := newWire(t, cfg)
	if got := flood(w, 10_000, 50); !slices.IsSorted(ids(got)) || len(got) != 10_000 || len(w.Reorders(link.AToB)) != 0 {
		t.Error("frames overtake one another")
	}
	cfg.Overtake = true
	w = newWire(t, cfg)
	got := flood(w, 10_000, 50)
	if len(got) != 10_000 || len(w.Reorders(link.AToB)) < 1000 {
		t.Errorf("%d arrive, %d reordered", len(got), len(w.Reorders(link.AToB)))
	}
	checkReorders(t, w, got)
}

func TestNoLinkNoFrames(t *testing.T) {
	w := newWire(t, link.Config{Delay: 100, Record: true})
	var log []string
	note := func(name string) func(bool) {
		return func(up bool) {
			log = append(log, name+map[bool]string{true: "+", false: "-"}[up])
		}
	}
	w.A().OnChange(note("a"))
	w.B().OnChange(note("b"))
	w.A().Transmit([]byte{0}, 0)  // arrives at 100, has by the time the link goes down
	w.A().Transmit([]byte{1}, 50) // still under way then
	w.B().Transmit([]byte{0}, 50)
	w.B().Receive(99)
	if f, ok := w.B().Receive(120); !ok || f.ID != 0 {
		t.Fatal("the first frame")
	}
	w.B().SetUp(false)
	w.B().SetUp(false)
	if w.A().Up() || w.B().Up() {
		t.Fatal("one end is off, and there is a link")
	}
	w.A().Transmit([]byte{2}, 130)
	w.A().SetUp(false)
	w.B().SetUp(true)
	if w.A().Up() {
		t.Fatal("the other end is off")
	}
	w.A().SetUp(true)
	w.A().Transmit([]byte{3}, 140)
	if f, ok := w.B().Receive(1000); !ok || f.ID != 3 {
		t.Fatalf("after the link came back: %+v, %v", f, ok)
	}
	if want := []string{"a-", "b-", "a+", "b+"}; !slices.Equal(log, want) {
		t.Errorf("told %v, want %v", log, want)
	}
	want := []link.Drop{{ID: 1, At: 150, Cause: link.CauseDown}, {ID: 2, At: 130, Cause: link.CauseDown}}
	if got := w.Drops(link.AToB); !slices.Equal(got, want) {
		t.Errorf("drops %v, want %v", got, want)
	}
	if got := w.Drops(link.BToA); len(got) != 1 {
		t.Errorf("drops from b: %v", got)
	}
	checkSum(t, w, link.AToB)
	checkSum(t, w, link.BToA)
}

func TestACutLosesHeldFramesAndCopiesToo(t *testing.T) {
	w := newWire(t, link.Config{Delay: 1000, ReorderEvery: 3, ReorderBy: 5, Duplicate: 1, DuplicateBy: 2, Record: true})
	for i := range 10 {
		w.A().Transmit(numbered(uint64(i), 60), int64(i))
	}
	w.A().SetUp(false)
	if _, ok := w.B().Next(); ok {
		t.Fatal("a frame is still under way")
	}
	if c := w.Counts(link.AToB); c.InFlight != 0 || c.Dropped(link.CauseDown) != 20 || len(w.Drops(link.AToB)) != 20 {
		t.Fatalf("%+v", c)
	}
	w.A().SetUp(true)
	for i := range 1000 {
		w.A().Transmit(numbered(uint64(i+10), 60), int64(100+i))
	}
	for _, a := range drain(w.B()) {
		if a.number != a.ID || a.ID < 10 {
			t.Fatalf("frame %d carries the bytes of %d", a.ID, a.number)
		}
	}
	checkSum(t, w, link.AToB)
}

func TestACutSparesWhatHasArrived(t *testing.T) {
	w := newWire(t, link.Config{Jitter: 10_000, Overtake: true, Seed: 1})
	for i := range uint64(1000) {
		w.A().Transmit(numbered(i, 60), int64(i)*10)
	}
	w.B().Receive(9_000)
	w.A().SetUp(false)
	got := drain(w.B())
	if c := w.Counts(link.AToB); len(got) < 100 || c.Lost() < 100 || got[len(got)-1].At > 9_000 {
		t.Fatalf("%d had arrived; %+v", len(got), c)
	}
	if !slices.IsSortedFunc(got, func(a, b arrival) int { return int(a.At - b.At) }) {
		t.Error("what has arrived is out of order")
	}
	checkSum(t, w, link.AToB)
}

func TestAFrameSentIntoNoLinkTakesNoTime(t *testing.T) {
	w := newWire(t, link.Config{Rate: megapps, Flap: link.Flap{First: 0, Down: 100}})
	w.A().Transmit(make([]byte, 60), 50)
	w.A().Transmit(make([]byte, 60), 100)
	if f, ok := w.B().Receive(9000); !ok || f.ID != 1 || f.At != 1100 {
		t.Fatalf("got %+v, %v", f, ok)
	}
}

func TestFlap(t *testing.T) {
	w := newWire(t, link.Config{Delay: 10, Record: true, Flap: link.Flap{First: 1000, Every: 500, Down: 100}})
	var edges []int64
	now := int64(0)
	w.B().OnChange(func(up bool) {
		if up != w.A().Up() {
			t.Error("the ends disagree")
		}
		edges = append(edges, now)
	})
	for i := range 4 {
		if next := w.Step(now); next <= now {
			t.Fatalf("step %d at %d: next at %d", i, now, next)
		} else {
			now = next
		}
	}
	w.Step(now)
	if want := []int64{1000, 1100, 1500, 1600}; !slices.Equal(edges, want) {
		t.Errorf("edges at %v, want %v", edges, want)
	}
	// Down from 1000 to 1100 and from 1500 to 1600, each frame 10 ns under way.
	for _, at := range []int64{980, 989, 990, 1050, 1099, 1100, 1489, 1495, 1600} {
		w.A().Transmit([]byte{byte(at)}, at)
	}
	var lost []int64
	for _, d := range w.Drops(link.AToB) {
		lost = append(lost, d.At)
	}
	if want := []int64{990, 1050, 1099, 1495}; !slices.Equal(lost, want) {
		t.Errorf("lost were those sent at %v, want %v", lost, want)
	}
	once := newWire(t, link.Config{Flap: link.Flap{First: 5, Down: 5}})
	if a, b, c := once.Step(0), once.Step(5), once.Step(10); a != 5 || b != 10 || c != math.MaxInt64 {
		t.Errorf("one flap: edges %d, %d, %d", a, b, c)
	}
	if never := newWire(t, link.Config{}).Step(3); never != math.MaxInt64 {
		t.Errorf("no flap: next at %d", never)
	}
}

func TestTheOtherEndIsToldWhenAFrameIsUnderWay(t *testing.T) {
	w := newWire(t, link.Config{Delay: 30, Loss: 0.5})
	told := 0
	w.B().OnArrival(func(at int64) {
		if at != 35 {
			t.Errorf("told of %d, want 35", at)
		}
		told++
	})
	for range 100 {
		w.A().Transmit([]byte{1}, 5)
	}
	if got := len(drainIDs(w)); told != got {
		t.Errorf("told %d times of %d frames", told, got)
	}
}

// TestWhateverHappensIsOnRecord sends frames of random sizes through random wires with everything on and accounts for each.
func TestWhateverHappensIsOnRecord(t *testing.T) {
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 1))
		some := func(p float64) float64 {
			if rng.IntN(2) == 0 {
				return 0
			}
			return p * rng.Float64()
		}
		cfg := link.Config{Rate: uint64(rng.IntN(3)) * 1e9, Queue: rng.IntN(3) * 20, Delay: time.Duration(rng.IntN(5000)),
			Jitter: time.Duration(rng.IntN(2) * 3000), Overtake: rng.IntN(2) == 0, Loss: some(0.2), Corrupt: some(0.2),
			Reorder: some(0.3), ReorderBy: rng.IntN(6), ReorderDelay: time.Duration(rng.IntN(2) * 900), Duplicate: some(0.3),
			DuplicateCopies: rng.IntN(4), DuplicateBy: rng.IntN(5), Hold: time.Duration(1 + rng.IntN(20_000)), Seed: seed, Record: true}
		w := newWire(t, cfg)
		var sent [][]byte
		var got []arrival
		now := int64(0)
		take := func(until int64) {
			for {
				f, ok := w.B().Receive(until)
				if !ok {
					return
				}
				if f.At > until || f.At < f.Sent {
					t.Fatalf("seed %d: frame %d sent %d arrives at %d, received at %d", seed, f.ID, f.Sent, f.At, until)
				}
				f.Data = bytes.Clone(f.Data)
				got = append(got, arrival{f, 0})
			}
		}
		for i := range 1500 {
			data := numbered(uint64(i), 8+rng.IntN(2000))
			sent = append(sent, data)
			w.A().Transmit(data, now)
			now += int64(rng.IntN(1500))
			if rng.IntN(4) == 0 {
				take(now)
			}
			if rng.IntN(500) == 0 {
				w.B().SetUp(false)
				w.B().SetUp(true)
			}
		}
		take(math.MaxInt64)
		accountForAll(t, w, seed, sent, got)
	}
}

// accountForAll checks got against the lists, each frame and each copy once.
func accountForAll(t *testing.T, w *link.Wire, seed uint64, sent [][]byte, got []arrival) {
	t.Helper()
	type key struct {
		id   uint64
		copy int
	}
	expect := map[key]int{}
	for i := range sent {
		expect[key{uint64(i), 0}]++
	}
	for _, d := range w.Duplicates(link.AToB) {
		for c := range d.Copies {
			expect[key{d.ID, c + 1}]++
		}
	}
	for _, d := range w.Drops(link.AToB) {
		expect[key{d.ID, d.Copy}]--
	}
	flipped := map[uint64]int{}
	for _, c := range w.Corruptions(link.AToB) {
		flipped[c.ID] = c.Bit
	}
	for _, a := range got {
		expect[key{a.ID, a.Copy}]--
		want := bytes.Clone(sent[a.ID])
		if bit, ok := flipped[a.ID]; ok {
			want[bit/8] ^= 1 << (bit % 8)
		}
		if !bytes.Equal(a.Data, want) {
			t.Fatalf("seed %d: frame %d has other bytes than it should", seed, a.ID)
		}
	}
	for k, n := range expect {
		if n != 0 {
			t.Fatalf("seed %d: frame %d copy %d is unaccounted for (%+d)", seed, k.id, k.copy, n)
		}
	}
	checkReorders(t, w, got)
	checkSum(t, w, link.AToB)
	if c := w.Counts(link.AToB); c.InFlight != 0 || int(c.Delivered) != len(got) {
		t.Fatalf("seed %d: %+v with %d received", seed, c, len(got))
	}
}
