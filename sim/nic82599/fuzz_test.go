package nic82599

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/ixgbe/reg"
	"bare.wire/sim"
	"bare.wire/sim/link"
)

// FuzzAnyDriver lets an arbitrary sequence of register accesses, memory contents, configuration accesses and passing of
// time loose on a card that has been started, and one that has not: whatever a driver does, the card stays in one piece.
//
// A record is 8 bytes: operation, place, value.
func FuzzAnyDriver(f *testing.F) {
	rec := func(op byte, place uint16, v uint32) []byte {
		b := []byte{op, 0, byte(place), byte(place >> 8)}
		return binary.LittleEndian.AppendUint32(b, v)
	}
	f.Add(uint64(1), []byte{})
	f.Add(uint64(2), append(append(rec(1, uint16(reg.TDT(0)/4), 5), rec(3, 0, 1000)...), rec(0, uint16(reg.STATUS/4), 0)...))
	f.Add(uint64(3), append(rec(1, uint16(reg.CTRL/4), reg.CTRL_RST), rec(3, 0, 1<<20)...))
	f.Add(uint64(4), append(rec(5, 0, 60), rec(3, 0, 5000)...))
	f.Add(uint64(5), append(append(rec(2, 24, 0xFFFFFFFF), rec(1, uint16(reg.TDT(0)/4), 40)...), rec(3, 0, 5000)...))
	f.Fuzz(func(t *testing.T, seed uint64, ops []byte) {
		r := newRig(t, seed, miniOptions{jumbo: seed%2 == 0, drop: seed%4 < 2, vme: seed%8 < 4}, func(c *Config) {
			c.MaxStep = int(seed % 3)
			c.Faults.StaleData = seed%5 == 0
		})
		r.start()
		for n := 0; len(ops) >= 8 && n < 200; n++ {
			place, v := binary.LittleEndian.Uint16(ops[2:]), binary.LittleEndian.Uint32(ops[4:])
			switch ops[0] % 8 {
			case 0:
				r.a.rd(uint32(place) * 4)
			case 1:
				r.a.wr(uint32(place)*4, v)
			case 2:
				store(r.a.tx[0].ring[int(place)%128*8:], uint64(v)<<32|uint64(v))
			case 3:
				step(r.clk, r.w, time.Duration(v%20000))
			case 4:
				store(r.a.rx[0].ring[int(place)%128*8:], uint64(v))
			case 5:
				r.w.Lock()
				r.wire.B().Transmit(frameTo([6]byte{2, 0, 0, 0, 0, 0xA}, 14+int(v%10000), byte(place)), r.clk.Nanos())
				r.w.Unlock()
			case 6:
				_ = r.a.card.WriteConfig(int(place)%256&^3, 4, v)
			case 7:
				_, _ = r.a.card.ReadConfig(int(place)%300, int(v%6))
			}
			ops = ops[8:]
		}
		r.run(20 * time.Microsecond)
		r.a.card.Misuse()
	})
}

// TestThreadedModeUnderRace has each card's driver and the world on goroutines of their own, on the real clock.
func TestThreadedModeUnderRace(t *testing.T) {
	clk := clock.Real()
	w := sim.NewWorld(clk)
	wire, err := link.New(link.Config{})
	if err != nil {
		t.Fatal(err)
	}
	mk := func(name string, end *link.End, mac [6]byte) *mini {
		mem := newArena(1 << 20)
		c := New(Config{Name: name, Memory: mem, World: w, End: end, MAC: mac, Watch: true, Timing: Timing{AutoRead: 1000, Link: 1000, Enable: 1000}})
		return &mini{t: t, card: c, w: w, real: clk, mem: mem}
	}
	a, b := mk("a", wire.A(), [6]byte{2, 0, 0, 0, 0, 0xA}), mk("b", wire.B(), macB)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var world sync.WaitGroup
	world.Go(func() { _ = w.Run(ctx) })
	a.init()
	b.init()
	a.waitLink()
	b.waitLink()

	const frames = 2000
	var drivers sync.WaitGroup
	got := 0
	var inFlight = make(chan struct{}, 40)
	drivers.Go(func() {
		for i := range frames {
			inFlight <- struct{}{}
			for !a.send(0, frameTo(macB, 60+i%100, byte(i)), 0, true) {
				a.sleep(time.Microsecond)
			}
		}
	})
	drivers.Go(func() {
		for got < frames {
			f, _, _ := b.recv(0)
			if f == nil {
				b.sleep(time.Microsecond)
				continue
			}
			if string(f) != string(frameTo(macB, 60+got%100, byte(got))) {
				t.Errorf("frame %d is not what was sent", got)
				return
			}
			got++
			<-inFlight
		}
	})
	drivers.Wait()
	cancel()
	world.Wait()
	for _, m := range append(a.card.Misuse(), b.card.Misuse()...) {
		t.Error(m)
	}
}

// FuzzParse: whatever arrives, the parser stays inside the frame, and what it says of it agrees with itself.
func FuzzParse(f *testing.F) {
	for _, v := range microsoftVectors[4:6] {
		f.Add(ipFrameOf(v.src, v.dst))
	}
	f.Add(frameTo(macB, 60, 1))
	f.Fuzz(func(t *testing.T, frame []byte) {
		frame = padded(frame)
		var p packet
		p.parse(frame, 0x8100)
		if n := len(p.addr); n != 0 && n != 8 && n != 32 {
			t.Errorf("addresses of %d bytes", n)
		}
		if p.ports != nil && (len(p.ports) != 4 || p.addr == nil) {
			t.Errorf("ports %x, addresses %x", p.ports, p.addr)
		}
		if p.status&reg.RXD_L4E != 0 && p.status&reg.RXD_L4CS == 0 || p.status&reg.RXD_IPE != 0 && p.status&reg.RXD_IPCS == 0 {
			t.Errorf("an error without a check: %X", p.status)
		}
	})
}
