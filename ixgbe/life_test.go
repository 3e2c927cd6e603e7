package ixgbe_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"bare.wire/ixgbe"
	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/sim/nic82599"
	"bare.wire/vtop"
)

// witness is a function that writes down in which order it is taken apart.
type witness struct {
	*function
	seen []string
}

func (w *witness) note(what string) {
	if len(w.seen) == 0 || w.seen[len(w.seen)-1] != what {
		w.seen = append(w.seen, what)
	}
}

func (w *witness) Interrupts(n int, f func(int)) (int, error) {
	if f == nil {
		w.note("interrupts")
	}
	return w.function.Interrupts(n, f)
}

func (w *witness) WriteConfig(off, size int, v uint32) error {
	if off == 4 && v&4 == 0 {
		w.note("bus master")
	}
	return w.function.WriteConfig(off, size, v)
}

func (w *witness) Reset(ctx context.Context) error {
	w.note("reset")
	return w.function.Reset(ctx)
}

func (w *witness) Close() error {
	w.note("unmap")
	return w.function.Close()
}

// TestCloseTakesThingsApartInOrder has a handler that would run into queues which are half stopped, and memory that would be
// gone before the card is told, if the order were another.
func TestCloseTakesThingsApartInOrder(t *testing.T) {
	r := newBareRig(t, rigConfig{})
	w := &witness{function: r.fns[0]}
	p, err := ixgbe.Open(context.Background(), w, ixgbe.Options{Space: r.space, Clock: r.clk, Node: -1, Software: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(context.Background(), nic.Config{Pool: r.pool(mbuf.Config{})}); err != nil {
		t.Fatal(err)
	}
	w.seen = nil
	w.onWrite32 = func(off, v uint32) {
		if off == reg.RXDCTL(0) && v&reg.RXDCTL_ENABLE == 0 || off == reg.TXDCTL(0) && v&reg.TXDCTL_ENABLE == 0 {
			w.note("queues")
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"interrupts", "queues", "bus master", "reset", "unmap"}; !slices.Equal(w.seen, want) {
		t.Errorf("taken apart in the order %q, want %q", w.seen, want)
	}
	r.home()
}

// TestDumpOfAClosedPortIsEmpty reads no register once they are unmapped.
func TestDumpOfAClosedPortIsEmpty(t *testing.T) {
	r := newRig(t, rigConfig{})
	if len(r.ports[0].ixgbe.Dump()) == 0 {
		t.Error("nothing in the dump of an open port")
	}
	if err := r.ports[0].Close(); err != nil {
		t.Fatal(err)
	}
	r.fns[0].onRead = func(off uint32) { t.Errorf("register %#x is read after Close", off) }
	if d := r.ports[0].ixgbe.Dump(); len(d) != 0 {
		t.Errorf("%d registers", len(d))
	}
	r.ports[0].Stats()
	r.ports[0].Housekeep(r.clk.Now())
	r.fns[0].onRead = nil
	r.ports[0] = nil
	r.end()
}

// rings is the region of the port's descriptor rings.
func rings(t *testing.T, space *vtop.Space) vtop.Info {
	t.Helper()
	for _, i := range space.Regions() {
		if strings.HasSuffix(i.Region.Name(), " rings") {
			return i
		}
	}
	t.Fatal("no region is called rings")
	return vtop.Info{}
}

// TestRingsCannotBeTakenAway removes the memory of the rings under a running port.
func TestRingsCannotBeTakenAway(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.space.Remove(now, rings(t, r.space).Region); err == nil {
		t.Fatal("the rings of a running port are gone")
	}
	r.exchange(10)
	r.end()
}

// TestStopDoesNotWaitForWhoeverHoldsTheRings has somebody else hold the rings for ever.
func TestStopDoesNotWaitForWhoeverHoldsTheRings(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.startPort(0, nic.Config{})
	region := rings(t, r.space).Region
	release, err := r.space.Hold(region)
	if err != nil {
		t.Fatal(err)
	}
	r.says(r.ports[0].Stop(), "rings", "holder")
	release()
	if err := r.space.Remove(context.Background(), region); err != nil {
		t.Error(err)
	}
	if err := region.Close(); err != nil {
		t.Error(err)
	}
	r.end()
}

// TestFramesInQuarantineAreLost stops a card that cannot be stopped while it has frames to send: they will not be sent, and
// the statistics say so.
func TestFramesInQuarantineAreLost(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	r.exchange(40)
	r.cards[0].SetFaults(nic82599.Faults{DisableNever: 1, DMAStops: 1})
	r.settle()
	cache := r.pool(mbuf.Config{}).NewCache()
	var b []*mbuf.Buf
	for i := range 5 {
		b = append(b, r.frame(cache, r.ports[1], 60, byte(i)))
	}
	if n := r.ports[0].Tx(0).Send(b); n != len(b) {
		t.Fatal(n)
	}
	cache.Close()
	r.fns[0].deaf = true
	r.says(r.ports[0].Stop(), "quarantine")
	s := r.ports[0].Stats()
	if s.TxDropped[nic.TxLost] != 5 || s.TxErrors != 5 {
		t.Errorf("%d frames are lost, %d errors; want 5", s.TxDropped[nic.TxLost], s.TxErrors)
	}
	r.fns[0].deaf = false
	r.end()
}

// TestBytesSentNeverGoBack has frames sent between the moment when packets are read and that when bytes are.
func TestBytesSentNeverGoBack(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	r.ports[0].Stats()
	r.fns[0].onRead = func(off uint32) {
		if off == reg.GOTCL {
			r.fns[0].onRead = nil
			r.cards[0].Preset(reg.GOTCL, 10*64)
		}
	}
	first := r.ports[0].Stats()
	r.cards[0].Preset(reg.GPTC, 10)
	second := r.ports[0].Stats()
	if second.TxBytes < first.TxBytes {
		t.Errorf("%d bytes were sent, and then %d", first.TxBytes, second.TxBytes)
	}
	r.cards[0].Preset(reg.GPTC, 10)
	r.cards[0].Preset(reg.GOTCL, 10*64)
	if got := r.ports[0].Stats().TxBytes; got != 20*60 {
		t.Errorf("%d bytes in the end, want %d", got, 20*60)
	}
	r.end()
}

// liar is a card whose EEPROM has other words than it should.
type liar struct {
	*function
	words map[uint32]uint16
}

func (l *liar) BAR(n int) (pci.BAR, error) {
	bar, err := l.function.BAR(n)
	return liarBAR{bar, l.words}, err
}

type liarBAR struct {
	pci.BAR
	words map[uint32]uint16
}

func (b liarBAR) Read32(off uint32) uint32 {
	v := b.BAR.Read32(off)
	if w, ok := b.words[reg.Get(v, reg.EERD_ADDR)]; ok && off == reg.EERD && v&reg.EERD_DONE != 0 {
		v = reg.Put(v, reg.EERD_DATA, uint32(w))
	}
	return v
}

// TestEEPROMPointersThatLeadNowhereAreNotFollowed has sections beyond the end of the EEPROM, some where no address leads,
// and sections that are longer than it.
func TestEEPROMPointersThatLeadNowhereAreNotFollowed(t *testing.T) {
	for _, c := range []struct {
		pointer, length uint16
		reads           int // beside the 64 words that are always read
	}{{0x8001, 4, 0}, {0xfffe, 4, 0}, {0x3fff, 4, 0}, {0x40, 0xfffe, 1}, {0x40, 0x7fff, 1}, {0x40, 3, 4}} {
		t.Run(fmt.Sprintf("%#x, %#x words", c.pointer, c.length), func(t *testing.T) {
			r := newBareRig(t, rigConfig{})
			reads := 0
			r.fns[0].onWrite32 = func(off, v uint32) {
				if off == reg.EERD {
					reads++
				}
			}
			l := &liar{r.fns[0], map[uint32]uint16{uint32(c.pointer) & 0x3fff: c.length}}
			for w := uint32(reg.EE_SECTION_FIRST); w <= reg.EE_SECTION_LAST; w++ {
				l.words[w] = 0
			}
			l.words[reg.EE_SECTION_FIRST] = c.pointer
			_, err := ixgbe.Open(context.Background(), l, ixgbe.Options{Space: r.space, Clock: r.clk, Node: -1})
			r.says(err, "EEPROM checksum", "sim:a")
			if want := 64 + c.reads; reads != want {
				t.Errorf("%d words of the EEPROM are read, want %d", reads, want)
			}
		})
	}
}

// What RSS cannot hash is refused, not left out in silence.
func TestUnknownRSSTypesAreRefused(t *testing.T) {
	r := newRig(t, rigConfig{})
	cfg := nic.Config{Pool: r.pool(mbuf.Config{}), RxQueues: 2, RSS: nic.RSSConfig{Types: nic.RSSIPv4 | 1<<20}}
	r.says(r.ports[0].Start(context.Background(), cfg), "RSS types 0x100000", "unsupported")
	r.end()
}

// TestInterruptBeforeThereAreVectors starts a port twice, and has an interrupt raised each time before the driver has dealt its
// vectors out: it must not be taken for one of those that there were before, whose mode may have been another.
func TestInterruptBeforeThereAreVectors(t *testing.T) {
	r := newRig(t, rigConfig{})
	early, touched := false, 0
	r.fns[0].onRead = func(uint32) {
		if early {
			touched++
		}
	}
	r.fns[0].raised = func(call func(int)) {
		early = true
		call(0)
		early = false
	}
	for range 2 {
		r.start(nic.Config{})
		r.exchange(3)
		for _, p := range r.ports {
			if err := p.Stop(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if touched > 0 {
		t.Errorf("an interrupt raised too early reads %d registers", touched)
	}
	r.end()
}
