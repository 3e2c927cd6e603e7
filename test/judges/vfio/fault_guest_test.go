//go:build guest

package vfio

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"bare.wire/ixgbe"
	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/vtop"
)

// testRefused sends a buffer that the cards have no address for: the driver drops it and counts that, and the card sees nothing.
func testRefused(t *testing.T) {
	p := openPair(t, pci.VFIO)
	a, b := p.stations(t, nic.Config{})
	elsewhere, err := mbuf.NewPool(mbuf.Config{Name: "elsewhere", Space: vtop.NewMapped(), Buffers: 16})
	if err != nil {
		t.Fatal(err)
	}
	foreign := &station{TB: t, port: a.port, pool: elsewhere, cache: elsewhere.NewCache()}
	faults := mustAsk(t, `{"do":"dma","card":0}`).Faults
	if n := a.port.Tx(0).Send([]*mbuf.Buf{foreign.frame(b.port.Info().MAC, 100)}); n != 1 {
		t.Errorf("Send took %d, want 1: it is no use to send it again", n)
	}
	if n := a.port.Stats().TxDropped[nic.TxNoAddress]; n != 1 {
		t.Errorf("%d frames counted as without an address, want 1", n)
	}
	foreign.home()
	a.send(b.port.Info().MAC, 5, 100)
	b.receive(5)
	if n := mustAsk(t, `{"do":"dma","card":0}`).Faults; n != faults {
		t.Errorf("%d DMA faults", n-faults)
	}
	a.close()
	b.close()
	blameless(t)
}

// raw is a card whose registers and rings the test reaches beside the driver.
type raw struct {
	testing.TB
	bar   pci.BAR
	space *vtop.Space
}

// openRaw opens a card for the driver, and for the test too.
func (p *pair) openRaw(t testing.TB, card int) (nic.Port, *raw) {
	t.Helper()
	addr, err := pci.ParseAddress(cards[card])
	if err != nil {
		t.Fatal(err)
	}
	f, err := p.opener.Open(context.Background(), addr)
	if err != nil {
		t.Fatal(err)
	}
	bar, err := f.BAR(0)
	if err != nil {
		t.Fatal(err)
	}
	port, err := ixgbe.Open(context.Background(), f, ixgbe.Options{Space: p.space, Clock: p.clk, Node: -1})
	if err != nil {
		t.Fatal(err)
	}
	return port, &raw{t, bar, p.space}
}

const descriptorLen = 16

// ring is the memory of a ring, by the registers of its base.
func (r *raw) ring(low, high uint32, descriptors int) []byte {
	r.Helper()
	bus := uint64(r.bar.Read32(high))<<32 | uint64(r.bar.Read32(low))
	b, err := r.space.Bytes(bus, descriptors*descriptorLen)
	if err != nil {
		r.Fatal(err)
	}
	return b
}

// outside is an address that no device has: right behind the last region.
func outside(space *vtop.Space) (bus uint64) {
	for _, r := range space.Regions() {
		for _, b := range r.Bus {
			bus = max(bus, b.Last+1)
		}
	}
	return bus
}

// testForcedRead has the card read an address that is not mapped, by a descriptor that the test writes: the IOMMU stops it,
// nothing is sent, and the driver reports a card that hangs instead of waiting for ever.
func testForcedRead(t *testing.T) {
	p := testPair(t, pci.VFIO)
	var card *raw
	p.ports[0], card = p.openRaw(t, 0)
	p.ports[1] = p.mustOpen(t, 1)
	a, b := p.stations(t, nic.Config{TxDesc: 64})
	ring := card.ring(reg.TDBAL(0), reg.TDBAH(0), 64)
	tail := card.bar.Read32(reg.TDT(0))
	bad := outside(p.space)
	before := mustAsk(t, `{"do":"dma","card":0}`)
	wire := mustAsk(t, `{"do":"wire"}`)
	d := ring[tail*descriptorLen:]
	const length = 100
	binary.LittleEndian.PutUint64(d, bad)
	binary.LittleEndian.PutUint64(d[8:], length|length<<reg.TXD_PAYLEN_Shift|reg.TXD_DTYP_DATA|reg.TXD_DEXT|reg.TXD_EOP|reg.TXD_IFCS|reg.TXD_RS)
	card.bar.Write32(reg.TDT(0), (tail+1)%64)
	card.faulted(0, before.Faults, bad)
	if now := mustAsk(t, `{"do":"wire"}`); now.AToB.Frames != wire.AToB.Frames {
		t.Error("something was sent")
	}
	a.close()
	b.close()
	blamed(t)
}

// faulted waits until a card has met the IOMMU at an address.
func (r *raw) faulted(card int, before, bad uint64) {
	r.Helper()
	within(r, 20*time.Second, "the IOMMU stops the card", func() bool {
		return mustAsk(r, `{"do":"dma","card":%d}`, card).Faults > before
	})
	if text := mustAsk(r, `{"do":"dma","card":%d}`, card).LastFault; !strings.Contains(text, fmt.Sprintf("%#x", bad)) {
		r.Errorf("the fault is %q, want one at %s", text, fmt.Sprintf("%#x", bad))
	} else {
		r.Logf("%s", text)
	}
}

// testForcedWrite has the card write received frames to an address that is not mapped. The frames are lost; all memory that is
// mapped, and what lies behind it, stays as it was.
func testForcedWrite(t *testing.T) {
	p := testPair(t, pci.VFIO)
	var card *raw
	p.ports[0] = p.mustOpen(t, 0)
	p.ports[1], card = p.openRaw(t, 1)
	const descriptors = 512
	a, b := p.stations(t, nic.Config{RxDesc: descriptors})
	ring := card.ring(reg.RDBAL(0), reg.RDBAH(0), descriptors)
	bad := outside(p.space)
	// The card has fetched some descriptors already; those that it has not are made wrong.
	const fetched = 128
	for i := fetched; i < descriptors; i++ {
		binary.LittleEndian.PutUint64(ring[i*descriptorLen:], bad)
	}
	before := mustAsk(t, `{"do":"dma","card":1}`)
	a.send(b.port.Info().MAC, fetched, 200)
	b.receive(fetched / 2)
	settle(t)
	sums := b.sums()
	a.send(b.port.Info().MAC, fetched, 200)
	card.faulted(1, before.Faults, bad)
	if got := b.sums(); got != sums {
		t.Error("memory of the receiver has changed, although its card had no address there")
	}
	if err := a.port.Err(); err != nil {
		t.Errorf("the sender: %v", err)
	}
	a.close()
	b.close()
	blamed(t)
}

// sums is a checksum of all memory that frames are received into.
func (s *station) sums() uint32 { return crc32.ChecksumIEEE(s.pool.Region().Bytes()) }

// blamed takes note of what the cards hold against the drivers, which is something this time: the test did it.
func blamed(t testing.TB) {
	t.Helper()
	list := misuse()
	if len(list) == 0 {
		t.Error("the card met an address that is not mapped, and has nothing to say of it")
	}
	for _, m := range list {
		t.Logf("as it should be: %s", m)
	}
}
