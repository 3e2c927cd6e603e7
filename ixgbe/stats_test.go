package ixgbe_test

import (
	"strings"
	"testing"

	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

// TestEveryCounterIsAddedUp puts a number of its own into every counter of the card and finds it in the statistics, twice
// the second time.
func TestEveryCounterIsAddedUp(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	card, port := r.cards[0], r.ports[0]
	port.Stats()
	byName := map[string]*reg.Reg{}
	all := reg.All()
	for i := range all {
		byName[all[i].Name] = &all[i]
	}
	want := port.ixgbe.ExtendedStats()
	for round := range 2 {
		k := uint64(round + 1)
		for _, s := range reg.Stats() {
			for i := range byName[s.Reg].Count() {
				off, _ := byName[s.Reg].Offset(i)
				k += 101
				v := k
				if s.High != "" {
					v |= 0x5_8000_0000 // of 36 bits
				}
				card.Preset(off, v)
				want[s.Name] += v
			}
		}
		got := port.ixgbe.ExtendedStats()
		for name, n := range want {
			if got[name] != n {
				t.Errorf("round %d: %s is %d, want %d", round, name, got[name], n)
			}
		}
	}
	r.end()
}

// TestCountersNextToTheirWraps has counters at their largest value, where all ones is a count and no sign of a card that is
// gone, and counters that go on from there.
func TestCountersNextToTheirWraps(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	const most32, most36 = 1<<32 - 1, 1<<36 - 1
	r.cards[0].Preset(reg.GPTC, most32)
	r.cards[0].Preset(reg.GOTCL, most36)
	r.cards[1].Preset(reg.QPRC(0), most32)
	r.cards[1].Preset(reg.QBRC_L(0), most36)
	r.housekeep()
	r.exchange(10)
	a, b := r.ports[0].Stats(), r.ports[1].Stats()
	if want := uint64(most32 + 10); a.TxPackets != want || b.RxPackets != want {
		t.Errorf("packets: sent %d, received %d; want %d", a.TxPackets, b.RxPackets, want)
	}
	sent := uint64(most32 + 10)
	if want := uint64(most36) + 10*104 - 4*sent; a.TxBytes != want {
		t.Errorf("TxBytes is %d, want %d", a.TxBytes, want)
	}
	if want := uint64(most36) + 10*100; b.RxBytes != want {
		t.Errorf("RxBytes is %d, want %d", b.RxBytes, want)
	}
	// A low half of all ones is not the end of anything either.
	r.cards[1].Preset(reg.QBRC_L(0), 0x3_FFFF_FFFF)
	before := r.ports[1].Stats().RxBytes
	if got := r.ports[1].Stats().RxBytes; got != before || before != most36+1000+0x3_FFFF_FFFF {
		t.Errorf("RxBytes is %d, then %d", before, got)
	}
	if r.ports[0].Err() != nil || r.ports[1].Err() != nil {
		t.Errorf("Err: %v, %v", r.ports[0].Err(), r.ports[1].Err())
	}
	r.end()
}

// TestCountersFromBeforeStartDoNotCount leaves counts behind that are not this port's.
func TestCountersFromBeforeStartDoNotCount(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	r.exchange(32)
	for _, p := range r.ports {
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	r.cards[0].Preset(reg.GPTC, 1000)
	r.cards[1].Preset(reg.QPRC(0), 1000)
	r.start(nic.Config{})
	r.exchange(7)
	if a, b := r.ports[0].Stats(), r.ports[1].Stats(); a.TxPackets != 7 || b.RxPackets != 7 {
		t.Errorf("TxPackets %d, RxPackets %d; want 7", a.TxPackets, b.RxPackets)
	}
	r.end()
}

// TestErrorsOfTheWireAreCounted damages frames on the way.
func TestErrorsOfTheWireAreCounted(t *testing.T) {
	cfg := rigConfig{}
	cfg.wire.Corrupt = 0.3
	cfg.wire.Seed = 5
	r := newRig(t, cfg)
	r.start(nic.Config{})
	r.send(200, 100)
	r.settle()
	n := uint64(r.drain(1, 0))
	s := r.ports[1].Stats()
	if s.RxCRCErrors == 0 || s.RxCRCErrors != s.RxErrors || n+s.RxCRCErrors != 200 || s.RxPackets != n {
		t.Errorf("%d of 200 came: RxPackets %d, RxCRCErrors %d, RxErrors %d", n, s.RxPackets, s.RxCRCErrors, s.RxErrors)
	}
	r.end()
}

// TestFramesLongerThanConfiguredAreRefusedByTheCard sends a long frame to a port that is configured for shorter ones.
func TestFramesLongerThanConfiguredAreRefusedByTheCard(t *testing.T) {
	for _, c := range []struct{ most, length, come int }{
		{1518, 1518, 1}, {1518, 1519, 0}, {600, 600, 1}, {600, 601, 0}, {2000, 2000, 1}, {2000, 2001, 0}, {9724, 9724, 1},
	} {
		r := newRig(t, rigConfig{})
		r.startPort(0, nic.Config{MaxFrame: 9724})
		r.startPort(1, nic.Config{MaxFrame: c.most})
		r.settle()
		r.housekeep()
		cache := r.pool(mbuf.Config{Size: 9728, Buffers: 16}).NewCacheAt(mbuf.Control)
		if r.ports[0].Tx(0).Send([]*mbuf.Buf{r.frame(cache, r.ports[1], c.length, 3)}) != 1 {
			t.Fatal("ring full")
		}
		cache.Close()
		r.settle()
		if n := r.drain(1, 0); n != c.come {
			t.Errorf("MaxFrame %d: %d of a frame of %d bytes came, want %d", c.most, n, c.length, c.come)
		}
		if s := r.ports[1].Stats(); s.RxLengthErrors != uint64(1-c.come) {
			t.Errorf("MaxFrame %d: a frame of %d bytes: RxLengthErrors %d", c.most, c.length, s.RxLengthErrors)
		}
		r.end()
	}
}

// TestDumpChangesNothing reads the registers in the middle of everything.
func TestDumpChangesNothing(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{RxQueues: 2, TxQueues: 2})
	r.exchange(32)
	r.send(5, 60)
	dump := r.ports[1].ixgbe.Dump()
	r.settle()
	if n := r.drain(1, 0); n != 5 {
		t.Errorf("%d of 5 frames came after the dump", n)
	}
	if s := r.ports[1].Stats(); s.RxPackets != 37 {
		t.Errorf("RxPackets is %d after the dump, want 37", s.RxPackets)
	}
	seen := map[string]uint32{}
	for _, d := range dump {
		if _, twice := seen[d.Name]; twice {
			t.Errorf("%s is in the dump twice", d.Name)
		}
		seen[d.Name] = d.Value
		if name := reg.Name(d.Offset); !strings.HasPrefix(name, strings.TrimRight(d.Name, "]0123456789")[:2]) {
			t.Errorf("%s at %#x is called %s", d.Name, d.Offset, name)
		}
	}
	for name, want := range map[string]uint32{
		"MAXFRS": 1522 << 16, "RXPBSIZE[0]": 0x80000, "TXPBSIZE[0]": 0x28000, "RDLEN[1]": 512 * 16, "TDLEN[1]": 512 * 16, "DTXMXSZRQ": 0xfff, "MTQC": 0,
	} {
		if v, ok := seen[name]; !ok || v != want {
			t.Errorf("%s is %#x (in the dump: %v), want %#x", name, v, ok, want)
		}
	}
	for _, s := range reg.Stats() {
		if _, ok := seen[s.Reg]; ok {
			t.Errorf("%s clears when it is read, and is in the dump", s.Reg)
		}
	}
	if len(dump) < 500 {
		t.Errorf("the dump has %d registers", len(dump))
	}
	r.end()
}
