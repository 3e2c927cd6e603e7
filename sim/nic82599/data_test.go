package nic82599

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
)

func TestFramesOfEveryLengthCrossIntact(t *testing.T) {
	for _, opt := range []miniOptions{
		{jumbo: true},
		{jumbo: true, bufKiB: 1, wthresh: 4},
		{jumbo: true, bufKiB: 16, headWB: true, drop: true},
	} {
		t.Run(fmt.Sprintf("buf=%dKiB", opt.bufKiB), func(t *testing.T) {
			r := newRig(t, 3, opt, nil)
			r.a.mem.piece, r.b.mem.piece = 4096, 4096
			r.start()
			lengths := []int{14, 15, 59, 60, 61, 63, 64, 65, 127, 1023, 1024, 1025, 1513, 1514, 2047, 2048, 2049, 4095, 4096, 4097, 9709, 9710, 9724}
			for n := 66; n < 9710; n += 173 {
				lengths = append(lengths, n)
			}
			for i, n := range lengths {
				seg := 0
				if i%3 == 1 {
					seg = n/7 + 1
				}
				f := frameTo(macB, n, byte(i))
				if !r.a.send(0, f, seg, true) {
					r.run(100 * time.Microsecond)
					if !r.a.send(0, f, seg, true) {
						t.Fatal("nothing comes back from the transmit ring")
					}
				}
				r.b.expect(0, padded(f))
			}
			r.clean()
		})
	}
}

// TestAnyInterleavingDeliversInOrder runs the same traffic under many seeds of delays, with small steps and all kinds of
// harmless adversity.
func TestAnyInterleavingDeliversInOrder(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, seed, miniOptions{drop: seed%2 == 0}, func(c *Config) {
			c.MaxStep = int(seed % 4)
			c.Timing = Timing{Fetch: 2 * time.Microsecond, DMA: 3 * time.Microsecond, WriteBack: 5 * time.Microsecond}
			c.Faults = Faults{StaleData: seed%3 == 0, ShuffledStatus: seed%5 == 0, PartialFetch: seed%7 == 0}
		})
		r.start()
		const frames = 300
		sent, got := 0, 0
		for idle := 0; got < frames && idle < 5000; idle++ {
			if sent < frames && rnd.IntN(3) > 0 && sent-got < 50 && r.a.send(0, frameTo(macB, 60+sent%200, byte(sent)), 20+rnd.IntN(300), rnd.IntN(4) == 0 || sent == frames-1) {
				sent++
			}
			if rnd.IntN(5) == 0 {
				r.a.wr(reg.TDT(0), uint32(r.a.tx[0].tail))
			}
			r.run(time.Duration(rnd.IntN(2000)))
			for {
				f, _, _ := r.b.recv(0)
				if f == nil {
					break
				}
				if want := frameTo(macB, 60+got%200, byte(got)); string(f) != string(want) {
					t.Fatalf("seed %d: frame %d is not what was sent", seed, got)
				}
				got, idle = got+1, 0
			}
		}
		if got != frames {
			t.Fatalf("seed %d: %d of %d frames arrived; %v %v", seed, got, frames, r.a.card.Misuse(), r.b.card.Misuse())
		}
		r.clean()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestFramesLeaveAtTheSpeedOfTheLink(t *testing.T) {
	r := newRig(t, 5, miniOptions{desc: 512}, nil)
	r.start()
	const frames = 500
	for i := range frames {
		r.a.send(0, frameTo(macB, 60, byte(i)), 0, i == frames-1)
	}
	r.run(100 * time.Microsecond)
	var first, last int64
	m := &r.a.card.tx.mac
	for i := range m.n {
		at := m.ends[(m.first+i)%len(m.ends)].at
		if first == 0 {
			first = at
		}
		last = at
	}
	// 64 bytes with FCS, 8 of preamble and 12 of gap at 0.8 ns a byte, rounded up once.
	if got, want := last-first, int64((m.n-1)*672)/10; got < want || got > want+1 {
		t.Errorf("%d frames took %d ns, want %d", m.n, got, want)
	}
	if m.n < frames {
		t.Errorf("the MAC remembers %d frames of %d", m.n, frames)
	}
}

func TestFullQueueWithDropEnableLosesItsOwnFramesOnly(t *testing.T) {
	r := newRig(t, 2, miniOptions{drop: true}, nil)
	r.start()
	for i := range 100 {
		for !r.a.send(0, frameTo(macB, 60, byte(i)), 0, true) {
			r.run(10 * time.Microsecond)
		}
	}
	r.run(time.Millisecond)
	if got := r.b.rd(reg.QPRDC(0)); got != 37 {
		t.Errorf("QPRDC is %d, want 37 = 100 frames - 63 descriptors", got)
	}
	for i := range 63 {
		r.b.expect(0, frameTo(macB, 60, byte(i)))
	}
	r.clean()
}

func TestFullQueueWithoutDropEnableStopsEverythingUntilTheBufferIsFull(t *testing.T) {
	r := newRig(t, 2, miniOptions{}, nil)
	r.a.init()
	r.b.reset()
	r.b.opt.queues, r.b.opt.desc, r.b.opt.bufKiB = 1, 64, 2
	r.b.wr(reg.RXPBSIZE(0), 8<<10) // 128 frames of 64 bytes
	r.b.initRx()
	r.b.startRx()
	r.b.waitLink()
	const frames = 300
	for i := range frames {
		for !r.a.send(0, frameTo(macB, 60, byte(i)), 0, true) {
			r.run(10 * time.Microsecond)
		}
	}
	r.run(time.Millisecond)
	if got := r.b.rd(reg.MPC(0)); got != frames-63-128 {
		t.Errorf("MPC is %d, want %d", got, frames-63-128)
	}
	for i := range 63 + 128 {
		r.b.expect(0, frameTo(macB, 60, byte(i)))
	}
	if q := r.b.rd(reg.QPRC(0)); q != 63+128 {
		t.Errorf("QPRC is %d, want what was stored, %d", q, 63+128)
	}
	if g := r.b.rd(reg.GPRC); g != frames {
		t.Errorf("GPRC is %d, want %d: missed frames count too", g, frames)
	}
	r.clean()
}

func TestFCSReachesMemoryWhenItIsNotStripped(t *testing.T) {
	r := newRig(t, 2, miniOptions{fcs: true}, nil)
	r.start()
	f := frameTo(macB, 77, 1)
	r.a.send(0, f, 0, true)
	fcs := crc32.ChecksumIEEE(f)
	r.b.expect(0, append(f, byte(fcs), byte(fcs>>8), byte(fcs>>16), byte(fcs>>24)))
	r.clean()
}

func TestVLANTagMovesIntoTheDescriptorAndBack(t *testing.T) {
	r := newRig(t, 2, miniOptions{vme: true}, nil)
	r.start()
	plain := frameTo(macB, 100, 1)
	tagged := append(append(append([]byte{}, plain[:12]...), 0x81, 0x00, 0x60, 0x2A), plain[12:]...)
	r.a.send(0, tagged, 0, true)
	if _, w1 := r.b.expect(0, plain); w1&reg.RXD_VP == 0 || w1>>48 != 0x602A {
		t.Errorf("descriptor %016X, want VP and tag 602A", w1)
	}
	// The other way: a context with the tag, and VLE.
	tx := r.a.tx[0]
	i := tx.tail
	store(tx.ring[16*i:], 0x7005<<16|14<<9)
	store(tx.ring[16*i+8:], 2<<20|reg.TXD_DEXT|1<<36)
	copy(tx.buf[i+1], plain)
	store(tx.ring[16*(i+1):], tx.bus[i+1])
	store(tx.ring[16*(i+1)+8:], txWords(len(plain), len(plain), true, true)|reg.TXD_VLE|reg.TXD_CC|1<<36)
	tx.last = append(tx.last, i+1)
	tx.tail, tx.busy = i+2, tx.busy+2
	r.a.wr(reg.TDT(0), uint32(tx.tail))
	if _, w1 := r.b.expect(0, plain); w1>>48 != 0x7005 {
		t.Errorf("descriptor %016X, want tag 7005", w1)
	}
	r.clean()
}

func TestLoopbackNeedsNoCable(t *testing.T) {
	r := newRig(t, 9, miniOptions{loopback: true, promisc: true}, func(c *Config) { c.End = nil })
	r.a.init()
	r.a.waitLink()
	for i := range 200 {
		f := frameTo(macB, 60+i, byte(i))
		r.a.send(0, f, 0, true)
		r.a.expect(0, f)
	}
	r.clean()
}
