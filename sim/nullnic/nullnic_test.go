package nullnic_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/ixgbe"
	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/sim/nullnic"
	"bare.wire/vtop"
)

// function is a card with the one thing that it lacks to be a pci.Function.
type function struct{ *nullnic.NIC }

func (f function) BAR(int) (pci.BAR, error) { return pci.MapBAR(f.Mem()) }

var _ pci.Function = function{}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// bench is a card, the driver on it, started, and buffers.
type bench struct {
	card  *nullnic.NIC
	port  *ixgbe.Port
	pool  *mbuf.Pool
	cache *mbuf.Cache
}

func newBench(t testing.TB, cfg nic.Config) *bench {
	t.Helper()
	b := &bench{}
	space := vtop.NewMapped()
	var err error
	if b.card, err = nullnic.New(nullnic.Config{Name: "null:", Memory: space}); err != nil {
		t.Fatal(err)
	}
	clk := b.card.Clock(clock.NewVirtual(start))
	if b.port, err = ixgbe.Open(context.Background(), function{b.card}, ixgbe.Options{Space: space, Clock: clk, Software: true}); err != nil {
		t.Fatal(err)
	}
	if b.pool, err = mbuf.NewPool(mbuf.Config{Name: "null", Space: space, Buffers: 2048}); err != nil {
		t.Fatal(err)
	}
	cfg.Pool = b.pool
	if err = b.port.Start(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	if err = b.card.Attach(); err != nil {
		t.Fatal(err)
	}
	b.cache = b.pool.NewCache()
	t.Cleanup(func() {
		b.cache.Close()
		if err := errors.Join(b.port.Close(), b.pool.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestTheDriverStartsForwardsAndStops(t *testing.T) {
	b := newBench(t, nic.Config{RxDesc: 64, TxDesc: 128})
	rx, tx := b.port.Rx(0), b.port.Tx(0)
	var pkts [32]*mbuf.Buf
	sent := 0
	for range 300 {
		if n := b.card.RxStep(len(pkts)); n != len(pkts) {
			t.Fatalf("%d frames arrive, want %d", n, len(pkts))
		}
		n := rx.Recv(pkts[:])
		if n != len(pkts) {
			t.Fatalf("Recv returns %d, want %d", n, len(pkts))
		}
		for _, p := range pkts {
			if p.Len() != 60 || p.Segs() != 1 {
				t.Fatalf("a frame of %d bytes in %d segments", p.Len(), p.Segs())
			}
		}
		if n := tx.Send(pkts[:]); n != len(pkts) {
			t.Fatalf("Send takes %d of %d", n, len(pkts))
		}
		if n := b.card.TxStep(); n != len(pkts) {
			t.Fatalf("the card sends %d, want %d", n, len(pkts))
		}
		sent += tx.Reclaim()
	}
	if want := 300 * len(pkts); sent > want || sent < want-128 {
		t.Errorf("%d frames come back, want %d", sent, want)
	}
	b.port.Housekeep(start)
	if !b.port.Link().Up || b.port.Link().Speed != 10e9 {
		t.Errorf("link %v", b.port.Link())
	}
	if err := b.port.Stop(); err != nil {
		t.Error(err)
	}
}

func TestNoMoreFramesArriveThanThereAreBuffers(t *testing.T) {
	b := newBench(t, nic.Config{RxDesc: 64})
	if n := b.card.RxStep(1000); n != 63 {
		t.Fatalf("%d frames arrive, want 63", n)
	}
	if n, m := b.card.RxStep(1), b.card.RxSegments(1, 2); n != 0 || m != 0 {
		t.Fatalf("%d and %d more arrive", n, m)
	}
	got := 0
	var pkts [64]*mbuf.Buf
	for n := b.port.Rx(0).Recv(pkts[:]); n > 0; n = b.port.Rx(0).Recv(pkts[:]) {
		got += n
		b.cache.FreeBulk(pkts[:n])
	}
	if got != 63 {
		t.Fatalf("Recv returns %d, want 63", got)
	}
}

func TestStartedAgainTheCardKnowsItsNewRings(t *testing.T) {
	b := newBench(t, nic.Config{RxDesc: 64})
	b.card.RxStep(7)
	if err := b.port.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := b.port.Start(context.Background(), nic.Config{Pool: b.pool, RxDesc: 64}); err != nil {
		t.Fatal(err)
	}
	if n, m := b.card.RxStep(1), b.card.TxStep(); n != 0 || m != 0 {
		t.Error("a card that has been reset still knows its rings")
	}
	if err := b.card.Attach(); err != nil {
		t.Fatal(err)
	}
	var pkts [4]*mbuf.Buf
	if n := b.card.RxStep(3); n != 3 {
		t.Fatalf("%d frames arrive", n)
	}
	n := b.port.Rx(0).Recv(pkts[:])
	b.cache.FreeBulk(pkts[:n])
	if n != 3 {
		t.Fatalf("Recv returns %d", n)
	}
}

func TestStepsAllocateNothing(t *testing.T) {
	r, _ := attached(t)
	tail := uint32(0)
	if n := testing.AllocsPerRun(100, func() {
		tail = (tail + 5) % 8
		r.Write32(reg.RDT(0), tail)
		r.Write32(reg.TDT(0), tail)
		if n, m := r.card.RxStep(5), r.card.TxStep(); n != 5 || m != 5 {
			t.Fatalf("%d received, %d sent", n, m)
		}
	}); n != 0 {
		t.Fatalf("%v allocations for 5 frames", n)
	}
}

// registers programs a card without a driver.
type registers struct {
	*pci.MappedBAR
	card *nullnic.NIC
}

func bare(t *testing.T, mem memory) registers {
	t.Helper()
	card, err := nullnic.New(nullnic.Config{Name: "null:", Memory: mem, MAC: [6]byte{2, 3, 4, 5, 6, 7}})
	if err != nil {
		t.Fatal(err)
	}
	bar, err := pci.MapBAR(card.Mem())
	if err != nil {
		t.Fatal(err)
	}
	return registers{bar, card}
}

// memory is one piece of memory at a bus address.
type memory struct {
	bus uint64
	mem []byte
}

func (m memory) Bytes(bus uint64, n int) ([]byte, error) {
	if bus < m.bus || bus-m.bus >= uint64(len(m.mem)) {
		return nil, errors.New("no memory there")
	}
	at := m.mem[bus-m.bus:]
	return at[:min(n, len(at))], nil
}

func TestRegistersDoWhatDriversWaitFor(t *testing.T) {
	r := bare(t, memory{})
	if lo, hi := r.Read32(reg.RAL(0)), r.Read32(reg.RAH(0)); lo != 0x05040302 || hi != 0x80000706 {
		t.Errorf("MAC address registers %#x, %#x", lo, hi)
	}
	for _, c := range []struct {
		name          string
		off, write    uint32
		watch         uint32
		before, after uint32 // the bits of watch in mask, before and after a poll
		mask          uint32
	}{
		{"reset", reg.CTRL, reg.CTRL_RST, reg.CTRL, reg.CTRL_RST, 0, reg.CTRL_RST},
		{"link reset", reg.CTRL, reg.CTRL_LNK_RST, reg.CTRL, reg.CTRL_LNK_RST, 0, reg.CTRL_LNK_RST},
		{"master disable", reg.CTRL, reg.CTRL_GIO_DIS, reg.STATUS, reg.STATUS_GIO, 0, reg.STATUS_GIO},
		{"EEPROM request", reg.EEC, reg.EEC_REQ, reg.EEC, 0, reg.EEC_GNT | reg.EEC_ARD | reg.EEC_PRES, reg.EEC_GNT | reg.EEC_ARD | reg.EEC_PRES},
		{"EEPROM word", reg.EERD, 5<<2 | reg.EERD_START, reg.EERD, 0, reg.EERD_DONE, reg.EERD_DONE | reg.EERD_DATA},
		{"EEPROM sum", reg.EERD, 0x3f<<2 | reg.EERD_START, reg.EERD, 0, reg.EERD_DONE | 0xBABA<<16, reg.EERD_DONE | reg.EERD_DATA},
		{"DMA ready", reg.RDRXCTL, 0, reg.RDRXCTL, 0, reg.RDRXCTL_DMAIDONE, reg.RDRXCTL_DMAIDONE},
		{"negotiation", reg.AUTOC, reg.AUTOC_AN_RESTART, reg.AUTOC, reg.AUTOC_AN_RESTART, 0, reg.AUTOC_AN_RESTART},
		{"MDIO", reg.MSCA, reg.MSCA_COMMAND, reg.MSCA, reg.MSCA_COMMAND, 0, reg.MSCA_COMMAND},
		{"write-back now", reg.TXDCTL(0), reg.TXDCTL_SWFLSH, reg.TXDCTL(0), reg.TXDCTL_SWFLSH, 0, reg.TXDCTL_SWFLSH},
		{"interrupt mask", reg.EIMC, ^uint32(0), reg.EIMC, ^uint32(0), 0, ^uint32(0)},
		{"link", reg.LINKS, 0, reg.LINKS, 0, reg.LINKS_UP | reg.LINKS_SPEED_10G, reg.LINKS_UP | reg.LINKS_SPEED},
		{"security path empty", reg.SECTXSTAT, 0, reg.SECTXSTAT, 0, reg.SECTXSTAT_SECTX_RDY, reg.SECTXSTAT_SECTX_RDY},
		{"queue enable", reg.RXDCTL(0), reg.RXDCTL_ENABLE, reg.RXDCTL(0), reg.RXDCTL_ENABLE, reg.RXDCTL_ENABLE, reg.RXDCTL_ENABLE},
	} {
		r.Write32(c.off, c.write)
		if v := r.Read32(c.watch) & c.mask; v != c.before {
			t.Errorf("%s: %#x at first, want %#x", c.name, v, c.before)
		}
		r.card.Poll()
		if v := r.Read32(c.watch) & c.mask; v != c.after {
			t.Errorf("%s: %#x after a poll, want %#x", c.name, v, c.after)
		}
	}
	r.Write32(reg.RDBAL(0), 0x1000)
	r.Write32(reg.CTRL, reg.CTRL_RST)
	r.card.Poll()
	if v := r.Read32(reg.RDBAL(0)); v != 0 {
		t.Errorf("RDBAL is %#x after a reset", v)
	}
}

var smallRings = map[uint32]uint32{
	reg.RDBAL(0): 0x1000, reg.RDLEN(0): 128, reg.RXDCTL(0): reg.RXDCTL_ENABLE,
	reg.TDBAL(0): 0x1080, reg.TDLEN(0): 128, reg.TXDCTL(0): reg.TXDCTL_ENABLE,
}

func TestRingsThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		off, v uint32
		want   string
	}{
		"good":           {reg.RDBAH(0), 0, ""},
		"not enabled":    {reg.RXDCTL(0), 0, "receive queue is not enabled"},
		"nor this":       {reg.TXDCTL(0), 0, "transmit queue is not enabled"},
		"no ring":        {reg.RDLEN(0), 0, "ring of 0 bytes"},
		"odd length":     {reg.TDLEN(0), 120, "ring of 120 bytes"},
		"too long":       {reg.RDLEN(0), 1 << 20, "ring of 1048576 bytes"},
		"not aligned":    {reg.RDBAL(0), 0x1010, "multiple of 128"},
		"nowhere":        {reg.RDBAH(0), 1, "no memory there"},
		"over the end":   {reg.TDLEN(0), 256, "128 of its 256 bytes"},
		"head off limit": {reg.TDH(0), 8, "TDH 8"},
	} {
		r := bare(t, memory{0x1000, make([]byte, 256)})
		for off, v := range smallRings {
			r.Write32(off, v)
		}
		r.Write32(c.off, c.v)
		err := r.card.Attach()
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		r.Write32(reg.RDT(0), 99) // no descriptor
		r.Write32(reg.TDT(0), 99)
		if n, m := r.card.RxStep(4), r.card.TxStep(); n != 0 || m != 0 {
			t.Errorf("%s: %d received and %d sent with tails beyond the ring", name, n, m)
		}
	}
}

// attached is a card with rings of 8 descriptors: receive at the beginning of the memory, transmit behind it.
func attached(t *testing.T) (registers, []byte) {
	t.Helper()
	mem := make([]byte, 256)
	r := bare(t, memory{0x1000, mem})
	for off, v := range smallRings {
		r.Write32(off, v)
	}
	if err := r.card.Attach(); err != nil {
		t.Fatal(err)
	}
	return r, mem
}

func TestOnlyWhatWasAskedForIsReported(t *testing.T) {
	r, mem := attached(t)
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(mem[at:]) }
	for round := range 5 { // 3 descriptors of 8 each: over the end of the ring
		for i := range 3 {
			at := 128 + (round*3+i)%8*16
			binary.LittleEndian.PutUint64(mem[at:], 0xdead)
			binary.LittleEndian.PutUint64(mem[at+8:], uint64(i/2)*reg.TXD_RS)
		}
		r.Write32(reg.TDT(0), uint32(round*3+3)%8)
		if n := r.card.TxStep(); n != 3 || r.Read32(reg.TDH(0)) != uint32(round*3+3)%8 {
			t.Fatalf("round %d: %d sent, head %d", round, n, r.Read32(reg.TDH(0)))
		}
		for i := range 3 {
			at := 128 + (round*3+i)%8*16
			if done := word(at+8)&reg.TXD_DD != 0; done != (i == 2) || word(at) != 0xdead {
				t.Errorf("round %d: descriptor %d is %#x %#x", round, i, word(at), word(at+8))
			}
		}
	}
	r.Write32(reg.RDT(0), 2)
	if n := r.card.RxStep(9); n != 2 {
		t.Fatalf("%d received", n)
	}
	for i, want := range []uint64{60<<32 | reg.RXD_DD | reg.RXD_EOP, 60<<32 | reg.RXD_DD | reg.RXD_EOP, 0} {
		if v := word(i*16 + 8); v != want {
			t.Errorf("receive descriptor %d: %#x, want %#x", i, v, want)
		}
	}
	r.Write32(reg.RDT(0), 1) // 7 more: two frames of three parts
	if n := r.card.RxSegments(9, 3); n != 2 {
		t.Fatalf("%d received", n)
	}
	for i := range 6 {
		want := uint64(60<<32 | reg.RXD_DD)
		if i%3 == 2 {
			want |= reg.RXD_EOP
		}
		if v := word((i+2)%8*16 + 8); v != want {
			t.Errorf("part %d: %#x, want %#x", i, v, want)
		}
	}
}

func TestConfigSpace(t *testing.T) {
	card := bare(t, memory{}).card
	if v, err := card.ReadConfig(0, 4); v != 0x10fb8086 || err != nil {
		t.Errorf("ids %#x, %v", v, err)
	}
	if err := errors.Join(card.WriteConfig(0, 4, 0), card.WriteConfig(pci.ConfigCommand, 2, 6)); err != nil {
		t.Error(err)
	}
	if v, _ := card.ReadConfig(0, 2); v != 0x8086 {
		t.Errorf("the vendor became %#x", v)
	}
	if v, _ := card.ReadConfig(pci.ConfigCommand, 2); v != 6 {
		t.Errorf("command %#x", v)
	}
	for _, bad := range [][2]int{{-4, 4}, {256, 1}, {254, 4}, {2, 4}, {1, 2}, {0, 3}, {0, 0}} {
		_, err := card.ReadConfig(bad[0], bad[1])
		if err == nil || card.WriteConfig(bad[0], bad[1], 0) == nil {
			t.Errorf("%d bytes at %d: no error", bad[1], bad[0])
		}
	}
	if err := card.Reset(context.Background()); err != nil {
		t.Error(err)
	}
	if v, _ := card.ReadConfig(pci.ConfigCommand, 2); v != 0 {
		t.Errorf("command %#x after a reset", v)
	}
}

func TestImpossibleCards(t *testing.T) {
	for _, cfg := range []nullnic.Config{{}, {Memory: memory{}, Length: -1}, {Memory: memory{}, Length: 1 << 20}} {
		if _, err := nullnic.New(cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
}

// The driver's cost alone: frames appear, are received and freed, and nothing else happens.
func Example() {
	space := vtop.NewMapped()
	card, _ := nullnic.New(nullnic.Config{Name: "null:", Memory: space})
	pool, _ := mbuf.NewPool(mbuf.Config{Name: "example", Space: space, Buffers: 1024})
	defer pool.Close()
	clk := card.Clock(clock.NewVirtual(start))
	port, err := ixgbe.Open(context.Background(), function{card}, ixgbe.Options{Space: space, Clock: clk})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer port.Close()
	if err := errors.Join(port.Start(context.Background(), nic.Config{Pool: pool}), card.Attach()); err != nil {
		fmt.Println(err)
		return
	}
	card.RxStep(32)
	var frames [32]*mbuf.Buf
	fmt.Println(port.Rx(0).Recv(frames[:]), "frames of", frames[0].Len(), "bytes")
	for _, f := range frames {
		f.Free()
	}
	// Output: 32 frames of 60 bytes
}

func BenchmarkForward(b *testing.B) {
	x := newBench(b, nic.Config{})
	var pkts [32]*mbuf.Buf
	b.ReportAllocs()
	for i := 0; i < b.N; i += len(pkts) {
		x.card.RxStep(len(pkts))
		n := x.port.Rx(0).Recv(pkts[:])
		for _, p := range pkts[:n] {
			p.Bytes()[48]++
		}
		x.port.Tx(0).Send(pkts[:n])
		x.card.TxStep()
	}
}

func BenchmarkSteps(b *testing.B) {
	x := newBench(b, nic.Config{})
	rdt := reg.RDT(0)
	bar, _ := pci.MapBAR(x.card.Mem())
	for i := 0; i < b.N; i += 32 {
		x.card.RxStep(32)
		bar.Write32(rdt, (bar.Read32(rdt)+32)%512)
	}
	b.StopTimer()
	if err := x.port.Stop(); err != nil {
		b.Fatal(err)
	}
}
func TestFramesInSeveralBuffers(t *testing.T) {
	b := newBench(t, nic.Config{RxDesc: 64, MaxFrame: 9000})
	var pkts [8]*mbuf.Buf
	for range 50 {
		if n := b.card.RxSegments(len(pkts), 3); n != len(pkts) {
			t.Fatalf("%d frames arrive", n)
		}
		if n := b.port.Rx(0).Recv(pkts[:]); n != len(pkts) {
			t.Fatalf("Recv returns %d", n)
		}
		for _, p := range pkts {
			if p.Segs() != 3 || p.FrameLen() != 180 {
				t.Fatalf("%d segments, %d bytes", p.Segs(), p.FrameLen())
			}
			p.Free()
		}
	}
}
