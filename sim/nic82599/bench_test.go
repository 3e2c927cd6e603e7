package nic82599

import (
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
)

// shuttle sends frames from card a to card b in bursts, with as little driver as can be: descriptors are made once and
// only their status words rewritten.
type shuttle struct {
	r     *rig
	words uint64
	sent  int
	got   int
}

func newShuttle(tb testing.TB, size int) *shuttle {
	r := newRig(tb, 1, miniOptions{desc: 512}, func(c *Config) { c.Watch = false })
	r.start()
	s := &shuttle{r: r, words: txWords(size, size, true, false)}
	tx := r.a.tx[0]
	for i := range 512 {
		copy(tx.buf[i], frameTo(macB, size, byte(i)))
		store(tx.ring[16*i:], tx.bus[i])
	}
	return s
}

// burst moves n frames and takes them out of b's ring.
func (s *shuttle) burst(n int) {
	a, b := s.r.a, s.r.b
	tx, rx := a.tx[0], b.rx[0]
	for k := range n {
		w := s.words
		if k == n-1 {
			w |= reg.TXD_RS
		}
		store(tx.ring[16*tx.tail+8:], w)
		tx.tail = (tx.tail + 1) % 512
	}
	s.sent += n
	a.wr(reg.TDT(0), uint32(tx.tail))
	for s.got < s.sent {
		s.r.clk.Advance(2 * time.Microsecond)
		s.r.w.Step()
		before := s.got
		for load(rx.ring[16*rx.next+8:])&reg.RXD_DD != 0 {
			i := rx.next
			store(rx.ring[16*i:], rx.bus[i])
			store(rx.ring[16*i+8:], 0)
			rx.next = (i + 1) % 512
			s.got++
		}
		if s.got > before {
			b.wr(reg.RDT(0), uint32((rx.next+511)%512))
		}
	}
}

func BenchmarkBothCards(b *testing.B) {
	for _, size := range []int{60, 1514} {
		b.Run(map[int]string{60: "60", 1514: "1514"}[size], func(b *testing.B) {
			s := newShuttle(b, size)
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				s.burst(32)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(s.sent), "ns/frame")
			if m := append(s.r.a.card.Misuse(), s.r.b.card.Misuse()...); len(m) > 0 {
				b.Fatal(m)
			}
		})
	}
}

func BenchmarkIdleStep(b *testing.B) {
	r := newRig(b, 1, miniOptions{}, nil)
	r.start()
	r.run(time.Millisecond)
	for b.Loop() {
		r.clk.Advance(1)
		r.w.Step()
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	s := newShuttle(t, 60)
	for range 200 {
		s.burst(32)
	}
	if n := testing.AllocsPerRun(200, func() { s.burst(32) }); n != 0 {
		t.Errorf("%v allocations for 32 frames, want 0", n)
	}
	s.r.clean()
}
