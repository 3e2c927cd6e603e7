package link_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"bare.wire/sim/link"
)

// megapps is the rate at which a wire carries a million minimum frames a second: 84 bytes each.
const megapps = 84 * 8 * 1_000_000

func newWire(t testing.TB, cfg link.Config) *link.Wire {
	t.Helper()
	w, err := link.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// numbered is a frame of n bytes that tells its number.
func numbered(id uint64, n int) []byte {
	b := make([]byte, max(n, 8))
	binary.LittleEndian.PutUint64(b, id)
	for i := 8; i < len(b); i++ {
		b[i] = byte(id) + byte(i)
	}
	return b
}

// arrival is a received frame that may be kept.
type arrival struct {
	link.Frame
	number uint64 // what numbered wrote
}

// drain receives everything that ever arrives at an end.
func drain(e *link.End) (got []arrival) {
	for {
		f, ok := e.Receive(math.MaxInt64)
		if !ok {
			return got
		}
		f.Data = bytes.Clone(f.Data)
		got = append(got, arrival{f, binary.LittleEndian.Uint64(f.Data)})
	}
}

// flood sends n frames, one every gap ns from 0 on, receives all and returns the arrivals.
func flood(w *link.Wire, n int, gap int64) []arrival {
	for i := range n {
		w.A().Transmit(numbered(uint64(i), 60), int64(i)*gap)
	}
	return drain(w.B())
}

func ids(got []arrival) []uint64 {
	out := make([]uint64, len(got))
	for i, a := range got {
		out[i] = a.ID
	}
	return out
}

// missing are the numbers below n that are not in got.
func missing(got []arrival, n int) (out []uint64) {
	have := make([]bool, n)
	for _, a := range got {
		have[a.ID] = true
	}
	for i, h := range have {
		if !h {
			out = append(out, uint64(i))
		}
	}
	return out
}

func dropIDs(w *link.Wire, d link.Direction) (out []uint64) {
	for _, x := range w.Drops(d) {
		out = append(out, x.ID)
	}
	return out
}

func checkSum(t *testing.T, w *link.Wire, d link.Direction) {
	t.Helper()
	c := w.Counts(d)
	if c.Offered+c.Copies != c.Delivered+c.InFlight+c.Lost() {
		t.Errorf("%v: the counts do not add up: %+v", d, c)
	}
}

func TestPerfectWireDeliversAtOnce(t *testing.T) {
	w := newWire(t, link.Config{})
	if _, ok := w.B().Next(); ok {
		t.Fatal("a frame is under way that nobody sent")
	}
	w.A().Transmit([]byte("a frame"), 42)
	if at, ok := w.B().Next(); !ok || at != 42 {
		t.Fatalf("next at %d, %v; want 42", at, ok)
	}
	if _, ok := w.B().Receive(41); ok {
		t.Fatal("received before it arrived")
	}
	f, ok := w.B().Receive(50)
	if !ok || string(f.Data) != "a frame" || f.At != 42 || f.Sent != 42 || f.ID != 0 || f.BadFCS {
		t.Fatalf("got %+v, %v", f, ok)
	}
	if _, ok := w.A().Next(); ok {
		t.Fatal("the frame came back")
	}
	checkSum(t, w, link.AToB)
}

func TestTransmissionTimesDoNotDrift(t *testing.T) {
	for _, rate := range []uint64{1e3, 999_983, 1e9, 10e9, 25_781_250_000, 999_999_999_989, 1e15} {
		for _, n := range []int{14, 60, 61, 1514, 9000} {
			w := newWire(t, link.Config{Rate: rate, Delay: 7 * time.Nanosecond})
			bits := new(big.Int).SetInt64(int64(max(n+4, 64)+20) * 8)
			per := bits.Mul(bits, big.NewInt(1e9))
			data := make([]byte, n)
			for range 1000 {
				w.A().Transmit(data, 1000)
			}
			for i := range int64(1000) {
				// ceil((i+1)·bits·1e9 / rate)
				q, m := new(big.Int).DivMod(new(big.Int).Mul(per, big.NewInt(i+1)), new(big.Int).SetUint64(rate), new(big.Int))
				want := 1007 + q.Int64()
				if m.Sign() > 0 {
					want++
				}
				if f, ok := w.B().Receive(math.MaxInt64); !ok || f.At != want {
					t.Fatalf("%d bit/s, %d bytes: frame %d arrives at %d, want %d", rate, n, i, f.At, want)
				}
			}
		}
	}
}

func TestALoneFrameTakesItsTransmissionTime(t *testing.T) {
	w := newWire(t, link.Config{Rate: megapps, Delay: 5 * time.Microsecond})
	for i := range int64(3) {
		w.A().Transmit(make([]byte, 60), i*10_000)
		if f, _ := w.B().Receive(math.MaxInt64); f.At != i*10_000+1000+5000 {
			t.Fatalf("frame %d: arrives at %d", i, f.At)
		}
	}
	// 51.7 ns: what is left of a nanosecond is forgotten once the wire is idle.
	w = newWire(t, link.Config{Rate: 13e9})
	for i := range int64(30) {
		w.A().Transmit(make([]byte, 60), i*10_000)
		if f, _ := w.B().Receive(math.MaxInt64); f.At != i*10_000+52 {
			t.Fatalf("frame %d: arrives at %d", i, f.At)
		}
	}
}

func TestAFrameThatLeavesMakesRoomAtOnce(t *testing.T) {
	w := newWire(t, link.Config{Rate: megapps, Queue: 1})
	for i := range int64(10) {
		w.A().Transmit(make([]byte, 60), i*1000)
	}
	w.A().Transmit(make([]byte, 60), 9999)
	if c := w.Counts(link.AToB); c.InFlight != 10 || c.Dropped(link.CauseQueue) != 1 {
		t.Fatalf("%+v", c)
	}
}

func TestOverloadLosesWhatTheQueueCannotHold(t *testing.T) {
	const queue, delay = 512, 20_000
	for _, tc := range []struct{ gap, packets int64 }{{500, 2_000}, {500, 50_000}, {800, 40_000}, {980, 60_000}} {
		w := newWire(t, link.Config{Rate: megapps, Queue: queue, Delay: delay, Record: true})
		got := flood(w, int(tc.packets), tc.gap)
		// Of R·T frames, C·T cross and Q wait: the share lost is 1 - C/R - Q/(R·T).
		span := float64(tc.packets * tc.gap)
		want := float64(tc.packets) * max(0, 1-float64(tc.gap)/1000-queue*1000/span/1000*float64(tc.gap))
		lost := float64(w.Counts(link.AToB).Dropped(link.CauseQueue))
		if math.Abs(lost-want) > 2 {
			t.Errorf("one frame every %d ns, %d of them: %v lost, want %.1f", tc.gap, tc.packets, lost, want)
		}
		if !slices.Equal(missing(got, int(tc.packets)), dropIDs(w, link.AToB)) {
			t.Errorf("gap %d: the drop list is not what is missing", tc.gap)
		}
		// The last to be admitted waits behind a full queue: its latency is D + Q/C.
		last := got[len(got)-1]
		if l := last.At - last.Sent; lost > 0 && (l > delay+queue*1000 || l < delay+(queue-1)*1000) {
			t.Errorf("gap %d: latency at overload %d ns, want %d", tc.gap, l, delay+queue*1000)
		}
		checkSum(t, w, link.AToB)
	}
}

func TestNothingIsLostWhileTheQueueHoldsTheExcess(t *testing.T) {
	// A burst at R into a wire of C and a queue of Q: N frames cross whole while N ≤ Q·R/(R-C).
	const queue = 512
	for _, gap := range []int64{67, 250, 900} {
		share := 1 - float64(gap)/1000
		limit, frame := int(queue/share), int(1/share)+1 // frame: by how much one frame of queue moves the limit
		for n, lossy := range map[int]bool{limit - frame: false, limit + frame: true} {
			w := newWire(t, link.Config{Rate: megapps, Queue: queue})
			if got := flood(w, n, gap); (len(got) < n) != lossy {
				t.Errorf("burst of %d, one every %d ns: %d arrive; limit %d", n, gap, len(got), limit)
			}
		}
	}
}

func TestBackToBackBurstOf548(t *testing.T) {
	// 512 frames of queue, 14.88 million a second in, one million out: 548 frames (RFC 9004 §5).
	longest := 0
	for n := 500; n < 600; n++ {
		w := newWire(t, link.Config{Rate: megapps, Queue: 512})
		for i := range n {
			w.A().Transmit(make([]byte, 60), int64(i)*84*8/10)
		}
		if w.Counts(link.AToB).Lost() == 0 {
			longest = n
		}
	}
	if longest < 548 || longest > 549 {
		t.Fatalf("longest burst without loss: %d, want 548", longest)
	}
}

func TestLossIsWhatTheDropListSays(t *testing.T) {
	const n = 20_000
	for _, p := range []float64{0, 1e-6, 1e-3, 0.1, 0.5, 1} {
		w := newWire(t, link.Config{Loss: p, Seed: 7, Record: true})
		got := flood(w, n, 10)
		lost := float64(w.Counts(link.AToB).Dropped(link.CauseLoss))
		if sigma := math.Sqrt(n * p * (1 - p)); math.Abs(lost-n*p) > 4*sigma+1e-9 {
			t.Errorf("p = %v: %v of %d lost, more than 4 sigma off", p, lost, n)
		}
		if !slices.Equal(missing(got, n), dropIDs(w, link.AToB)) {
			t.Errorf("p = %v: the drop list is not what is missing", p)
		}
		if !slices.IsSorted(ids(got)) {
			t.Errorf("p = %v: order changed", p)
		}
		for _, a := range got {
			if a.number != a.ID || !bytes.Equal(a.Data, numbered(a.ID, 60)) {
				t.Fatalf("frame %d carries the bytes of %d", a.ID, a.number)
			}
		}
		checkSum(t, w, link.AToB)
	}
}

func TestGilbertElliottLosesInBursts(t *testing.T) {
	const n = 60_000
	for _, g := range []link.GilbertElliott{
		{P: 0.001, R: 0.1, LossBad: 1},
		{P: 0.02, R: 0.2, LossBad: 0.5, LossGood: 0.001},
		{P: 0, R: 0, LossGood: 0.01, LossBad: 1},
	} {
		w := newWire(t, link.Config{Gilbert: &g, Seed: 3, Record: true})
		for i := range n {
			w.A().Transmit([]byte{1}, int64(i))
		}
		drops := w.Drops(link.AToB)
		// The variance of the mean of a two-state chain, and of the losses within a state.
		bad, memory := g.P/max(g.P+g.R, 1e-9), 1-g.P-g.R
		variance := bad*(1-bad)*(1+memory)/max(1-memory, 1e-9) + g.Loss()
		if share := float64(len(drops)) / n; math.Abs(share-g.Loss()) > 4*math.Sqrt(variance/n) {
			t.Errorf("%+v: %v lost, want %v", g, share, g.Loss())
		}
		if g.LossBad != 1 || g.R == 0 {
			continue
		}
		bursts := 0
		for i, d := range drops {
			if i == 0 || d.ID != drops[i-1].ID+1 {
				bursts++
			}
		}
		if mean := float64(len(drops)) / float64(bursts); math.Abs(mean*g.R-1) > 4/math.Sqrt(float64(bursts)) {
			t.Errorf("%+v: bursts of %v frames, want %v", g, mean, 1/g.R)
		}
	}
}

func TestSameSeedSameRun(t *testing.T) {
	cfg := link.Config{Rate: 2 * megapps, Queue: 100, Delay: time.Microsecond, Jitter: 3 * time.Microsecond, Overtake: true,
		Loss: 0.01, Gilbert: &link.GilbertElliott{P: 0.01, R: 0.3, LossBad: 1}, Corrupt: 0.01, Reorder: 0.02, ReorderBy: 3,
		Duplicate: 0.02, DuplicateBy: 4, Record: true, Seed: 11}
	run := func(c link.Config) string {
		w := newWire(t, c)
		got := flood(w, 2_000, 400)
		return fmt.Sprint(got, w.Drops(link.AToB), w.Duplicates(link.AToB), w.Reorders(link.AToB), w.Corruptions(link.AToB))
	}
	first := run(cfg)
	if run(cfg) != first {
		t.Error("two runs of one seed differ")
	}
	cfg.Seed++
	if run(cfg) == first {
		t.Error("two seeds, one run")
	}
}

func TestOneEffectDoesNotReshuffleAnother(t *testing.T) {
	base := link.Config{Loss: 0.05, Seed: 5, Record: true}
	plain := newWire(t, base)
	flood(plain, 6_000, 400)
	all := base
	all.Rate, all.Queue, all.Delay, all.Jitter = 2*megapps, 2, 100, 9000
	all.Corrupt, all.Reorder, all.Duplicate, all.Overtake = 0.1, 0.1, 0.1, true
	all.Delays = []link.WeightedDelay{{Delay: 0, Weight: 1}, {Delay: 500, Weight: 1}}
	busy := newWire(t, all)
	flood(busy, 6_000, 400)
	lost := map[uint64]bool{}
	for _, d := range plain.Drops(link.AToB) {
		lost[d.ID] = true
	}
	both := 0
	for _, d := range busy.Drops(link.AToB) {
		if d.Cause == link.CauseLoss && !lost[d.ID] {
			t.Fatalf("with other effects on, frame %d is lost too", d.ID)
		}
		if lost[d.ID] {
			both++
		}
	}
	if both != len(lost) || both == 0 {
		t.Errorf("with other effects on, %d of %d lost frames are lost", both, len(lost))
	}
}

func TestEffectsAreIndependent(t *testing.T) {
	w := newWire(t, link.Config{Corrupt: 0.5, Duplicate: 0.5, Record: true})
	const n = 4000
	flood(w, n, 1)
	copied := map[uint64]bool{}
	for _, d := range w.Duplicates(link.AToB) {
		copied[d.ID] = true
	}
	both := 0
	for _, c := range w.Corruptions(link.AToB) {
		if copied[c.ID] {
			both++
		}
	}
	if both < n/4-150 || both > n/4+150 {
		t.Errorf("%d of %d frames are copied and corrupted, want a quarter", both, n)
	}
}

func TestDirectionsAreIndependent(t *testing.T) {
	w := newWire(t, link.Config{Loss: 0.5, Record: true, BToA: &link.Config{Delay: 9, Loss: 0.5}})
	for i := range 1000 {
		w.A().Transmit(numbered(uint64(i), 60), 0)
		w.B().Transmit(numbered(uint64(i), 60), 0)
	}
	if slices.Equal(dropIDs(w, link.AToB), dropIDs(w, link.BToA)) {
		t.Error("both directions lose the same frames")
	}
	a, b := drain(w.A()), drain(w.B())
	if a[0].At != 9 || b[0].At != 0 {
		t.Errorf("arrivals at %d and %d, want 9 and 0", a[0].At, b[0].At)
	}
	checkSum(t, w, link.AToB)
	checkSum(t, w, link.BToA)
}

func TestFramesDoNotAlias(t *testing.T) {
	w := newWire(t, link.Config{})
	buf := []byte("one")
	w.A().Transmit(buf, 0)
	copy(buf, "two")
	w.A().Transmit(buf, 1)
	w.B().Transmit(buf, 0)
	f, _ := w.B().Receive(9)
	if string(f.Data) != "one" {
		t.Fatalf("the frame changed with the sender's buffer: %q", f.Data)
	}
	w.A().Transmit([]byte("six"), 2)
	if back, _ := w.A().Receive(9); string(back.Data) != "two" {
		t.Fatalf("from B: %q", back.Data)
	}
	if string(f.Data) != "one" {
		t.Fatalf("a frame changed before the next Receive: %q", f.Data)
	}
	for _, want := range []string{"two", "six"} {
		if f, _ = w.B().Receive(9); string(f.Data) != want {
			t.Fatalf("got %q, want %q", f.Data, want)
		}
	}
}

func TestSteadyTrafficAllocatesNothing(t *testing.T) {
	base := link.Config{Rate: 40e9, Queue: 300, Delay: 2 * time.Microsecond, Jitter: 500, Overtake: true, Loss: 0.01,
		Corrupt: 0.01, Reorder: 0.1, ReorderBy: 3, Duplicate: 0.1, DuplicateBy: 5, Seed: 2}
	impatient := base
	impatient.Hold = 700 // most of what is held back is not overtaken
	for _, cfg := range []link.Config{base, impatient} {
		w := newWire(t, cfg)
		now := int64(0)
		sizes := []int{60, 1514, 300, 60, 9000}
		data := make([]byte, 9000)
		round := func() {
			for i := range 50 {
				w.A().Transmit(data[:sizes[i%len(sizes)]], now)
				now += 1000
				for {
					if _, ok := w.B().Receive(now); !ok {
						break
					}
				}
			}
		}
		for range 200 {
			round()
		}
		if n := testing.AllocsPerRun(200, round); n != 0 {
			t.Errorf("hold %v: %v allocations for 50 frames", cfg.Hold, n)
		}
	}
}

func TestImpossibleFramesAreDroppedByName(t *testing.T) {
	w := newWire(t, link.Config{Record: true})
	w.A().Transmit(nil, 5)
	w.A().Transmit(make([]byte, link.MaxFrame+1), 6)
	w.A().Transmit(make([]byte, link.MaxFrame), 7)
	want := []link.Drop{{ID: 0, At: 5, Cause: link.CauseLength}, {ID: 1, At: 6, Cause: link.CauseLength}}
	if got := w.Drops(link.AToB); !slices.Equal(got, want) {
		t.Fatalf("drops %v, want %v", got, want)
	}
	if f, ok := w.B().Receive(7); !ok || len(f.Data) != link.MaxFrame || f.ID != 2 {
		t.Fatal("the longest frame is not delivered")
	}
}

func TestTheListsEndWhereTheyAreTold(t *testing.T) {
	w := newWire(t, link.Config{Loss: 1, Record: true, RecordLimit: 10})
	flood(w, 25, 1)
	if c := w.Counts(link.AToB); len(w.Drops(link.AToB)) != 10 || c.Unlisted != 15 || c.Lost() != 25 {
		t.Fatalf("%d listed, %+v", len(w.Drops(link.AToB)), c)
	}
	w = newWire(t, link.Config{Loss: 1})
	flood(w, 25, 1)
	if c := w.Counts(link.AToB); len(w.Drops(link.AToB)) != 0 || c.Lost() != 25 || c.Unlisted != 0 {
		t.Fatalf("without Record: %d listed, %+v", len(w.Drops(link.AToB)), c)
	}
}

func TestATestMayChooseWhatIsLost(t *testing.T) {
	w := newWire(t, link.Config{Record: true, DropIf: func(id uint64, data []byte) bool { return data[0] == 3 || id == 1 }})
	got := flood(w, 5, 1)
	if !slices.Equal(ids(got), []uint64{0, 2, 4}) || w.Drops(link.AToB)[0].Cause != link.CauseFilter {
		t.Fatalf("arrived: %v, drops %v", ids(got), w.Drops(link.AToB))
	}
}

func TestTransmitTimesThatRunBackwardsCountAsTheLatest(t *testing.T) {
	w := newWire(t, link.Config{})
	w.A().Transmit([]byte{1}, 100)
	w.A().Transmit([]byte{2}, 50)
	for range 2 {
		if f, _ := w.B().Receive(1000); f.At != 100 || f.Sent != 100 {
			t.Fatalf("sent at %d, arrived at %d; want 100", f.Sent, f.At)
		}
	}
}
