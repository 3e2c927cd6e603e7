package virtionet

import (
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/virtio/spec"
)

// sink is a Net that counts what is sent, and has as many frames arrive as it is told to.
type sink struct {
	sent  int
	left  int
	frame []byte
}

func (s *sink) Send(_ Header, _ []byte, _ int64)     { s.sent++ }
func (s *sink) Next() (int64, bool)                  { return 0, s.left > 0 }
func (s *sink) Receive(int64) (Header, []byte, bool) { s.left--; return Header{}, s.frame, true }
func (s *sink) Offloads() spec.Features              { return netFeatures }
func (s *sink) SetOffloads(spec.Features)            {}
func (s *sink) Up() bool                             { return true }
func (s *sink) SetUp(bool)                           {}
func (s *sink) OnArrival(func(at int64))             {}
func (s *sink) OnChange(func(up bool))               {}

// burst is how many frames the benchmarks move at a time.
const burst = 32

// stand is a device between a sink and a ring that is filled again without looking.
type stand struct {
	m    *mini
	net  *sink
	bus  []uint64
	step func()
}

func newStand(tb testing.TB, f spec.Features, q int) *stand {
	clk := clock.NewVirtual(time.Unix(0, 0))
	w := sim.NewWorld(clk)
	mem := newArena(1 << 20)
	net := &sink{frame: frameTo(macA, 60, 1)}
	d, err := New(Config{Name: "a", Memory: mem, World: w, Net: net, MAC: macA, Timing: Timing{Fetch: -1, Used: -1}})
	if err != nil {
		tb.Fatal(err)
	}
	m := &mini{t: tb, d: d, w: w, clk: clk, mem: mem}
	m.start(f, 256)
	s := &stand{m: m, net: net}
	for range burst {
		bus, _ := mem.alloc(2048, 64)
		s.bus = append(s.bus, bus)
	}
	r := m.ring[q]
	s.step = func() {
		for _, bus := range s.bus {
			p := piece{bus, 72, false}
			if q == 0 {
				p = piece{bus, 2048, true}
			}
			id := quickAdd(r, p)
			_ = id
		}
		if q == 0 {
			net.left = burst
		}
		w.Lock()
		d.Kick(q)
		w.Unlock()
		clk.Advance(1)
		w.Step()
		quickTake(r)
	}
	return s
}

// quickAdd makes a buffer of one piece available without allocating anything: ids and slots go round.
func quickAdd(r *vring, p piece) uint16 {
	flags := uint16(0)
	if p.write {
		flags = spec.DescWrite
	}
	if !r.packed {
		i := r.avail % uint16(r.size)
		putDesc(r.d[16*int(i):], p.bus, p.n, flags, 0)
		le.PutUint16(r.a[4+2*int(i):], i)
		r.avail++
		store16(word16(r.a[2:]), r.avail)
		return i
	}
	if flags |= spec.DescUsed; r.aw {
		flags = flags&^spec.DescUsed | spec.DescAvail
	}
	i := r.avail
	putDesc(r.d[16*int(i):], p.bus, p.n, i, flags)
	if r.avail++; int(r.avail) == r.size {
		r.avail, r.aw = 0, !r.aw
	}
	return i
}

// quickTake forgets all used buffers.
func quickTake(r *vring) {
	if !r.packed {
		r.used = load16(word16(r.u[2:]))
	}
}

func TestFramesCostNoAllocation(t *testing.T) {
	for _, f := range []spec.Features{0, spec.FeatureRingPacked, spec.FeatureMrgRxBuf | spec.FeatureEventIdx} {
		for q := range 2 {
			s := newStand(t, f, q)
			s.step()
			if n := testing.AllocsPerRun(100, s.step); n != 0 {
				t.Errorf("%v, queue %d: %.1f allocations for %d frames", f, q, n, burst)
			}
			c := s.m.d.Counts()
			if frames := c.TxFrames + c.RxFrames; frames != 102*burst {
				t.Errorf("%v, queue %d: %d frames", f, q, frames)
			}
			s.m.clean()
		}
	}
}

func BenchmarkDevice(b *testing.B) {
	for _, x := range []struct {
		name string
		f    spec.Features
		q    int
	}{
		{"split/tx", 0, 1}, {"split/rx", spec.FeatureMrgRxBuf, 0},
		{"packed/tx", spec.FeatureRingPacked, 1}, {"packed/rx", spec.FeatureRingPacked | spec.FeatureMrgRxBuf, 0},
	} {
		b.Run(x.name, func(b *testing.B) {
			s := newStand(b, x.f, x.q)
			b.ReportAllocs()
			for i := 0; i < b.N; i += burst {
				s.step()
			}
		})
	}
}
