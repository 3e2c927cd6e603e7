//go:build guest

package virtio

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/test/guest"
	"bare.wire/test/judges/internal/frames"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

// Cards with something of their own, beside the cells.
const (
	cardSpread = iota // RSS
	cardPulled        // behind a root port
	cardJumbo         // MTU 9000, mergeable
	cardLong          // MTU 9000, not mergeable
	cardBits          // modern, for its features
	cardOld           // legacy, for its features
	cardRaw
	cardHubA // two on a hub
	cardHubB
	cardPeer // and two on another, of which the kernel has one
	cardKernel
)

// jumboMTU is the MTU of wires for long frames.
const jumboMTU = 9000

func specials() []card {
	base := cell{pairs: 1, mergeable: true, eventIdx: true, vectors: allVectors}
	four := base
	four.pairs = 4
	packed, single, old := base, base, four
	packed.packed, single.mergeable, old.legacy = true, false, true
	hub := func(i, hub int) []string {
		n := card{index: i}.netdev()
		return []string{"-netdev", "hubport,id=" + n + ",hubid=" + string(rune('0'+hub))}
	}
	return []card{
		cardSpread: {cell: four, name: "spread", more: ",rss=on"},
		cardPulled: {cell: packed, name: "pulled", port: true},
		cardJumbo:  {cell: base, name: "jumbo", mtu: jumboMTU, more: ",host_mtu=9000"},
		cardLong:   {cell: single, name: "long", mtu: jumboMTU, more: ",host_mtu=9000"},
		cardBits:   {cell: four, name: "bits", more: ",speed=10000,duplex=full"},
		cardOld:    {cell: old, name: "old"},
		cardRaw:    {cell: base, name: "raw"},
		cardHubA:   {cell: packed, name: "hub-a", wire: hub(cardHubA, 0)},
		cardHubB:   {cell: base, name: "hub-b", wire: hub(cardHubB, 0)},
		cardPeer:   {cell: base, name: "peer", wire: hub(cardPeer, 1)},
		cardKernel: {cell: base, name: "kernel", wire: hub(cardKernel, 1)},
	}
}

// TestGuestSpecial is everything that is not a cell of the matrix.
func TestGuestSpecial(t *testing.T) {
	cards := specials()
	for i := range cards {
		cards[i].index = i
	}
	m := guest.Machine{
		IOMMU: true, ModuleFiles: []string{"virtio_net"}, HugePages: 96, Timeout: time.Duration(times(6, 15)) * time.Minute,
	}
	guest.Run(t, machine(t, m, cards), func(t *testing.T) {
		on := func(i int, f func(t *testing.T, c card, addr string)) func(t *testing.T) {
			return func(t *testing.T) { f(t, cards[i], cards[i].address(1)) }
		}
		t.Run("frames are spread", on(cardSpread, testSpread))
		t.Run("jumbo frames, mergeable buffers", on(cardJumbo, testJumbo))
		t.Run("jumbo frames, chains", on(cardLong, testJumbo))
		t.Run("small buffers", on(cardJumbo, testSmallBuffers))
		t.Run("an address that is not mapped", on(cardRaw, testUnmapped))
		t.Run("a queue is reset", on(cardRaw, testQueueReset))
		t.Run("announced", on(cardBits, testAnnounce))
		t.Run("each feature forbidden, modern", on(cardBits, testEachFeature))
		t.Run("each feature forbidden, legacy", on(cardOld, testEachFeature))
		t.Run("speed", on(cardBits, testSpeed))
		t.Run("sent without a cable, split", on(cardJumbo, testSentWithoutCable))
		t.Run("sent without a cable, packed", on(cardPulled, testSentWithoutCable))
		t.Run("pulled", on(cardPulled, testPulled))
		t.Run("conformance", func(t *testing.T) { testSuite(t, cards[cardHubB], cards[cardHubA]) })
		t.Run("the kernel's driver", func(t *testing.T) { testKernelPeer(t, cards[cardPeer], cards[cardKernel]) })
	})
}

// testSpread compares the queues that datagrams come to with those that RSS chooses, with a key and a table of the test's own.
func testSpread(t *testing.T, c card, addr string) {
	c.bind(t, addr)
	s := open(t, c, addr, spec.Restriction{})
	if n := s.port.Info().RSSQueues; n != c.pairs {
		t.Errorf("%d queues can be chosen, want %d", n, c.pairs)
	}
	key, table := make([]byte, nic.RSSKeySize), make([]uint8, 128)
	for i := range key {
		key[i] = byte(i*37 + 11)
	}
	for i := range table {
		table[i] = uint8(i * 3 % c.pairs)
	}
	cfg := nic.Config{RxQueues: c.pairs, TxQueues: c.pairs, RSS: nic.RSSConfig{Key: key, Table: table}}
	cfg.Offloads = nic.RxRSSHash & s.port.Info().Offloads
	s.start(cfg)
	if !s.port.Negotiated().Has(spec.FeatureRSS) {
		t.Errorf("agreed on are %v", s.port.Negotiated())
	}
	seen := map[int]int{}
	for i := range 200 {
		d := s.flow(uint16(40000+i*7), 30).Backwards()
		d.SrcPort, d.DstPort = 99, uint16(40000+i*7)
		d.TCP = i%2 == 0
		s.card.ask(s, question{Do: "send", Frames: [][]byte{append(frames.Vnet{}.Bytes(), d.Whole()...)}})
		input := append(append(append([]byte{}, d.Src[:]...), d.Dst[:]...), 0, 99, byte(d.DstPort>>8), byte(d.DstPort))
		hash := frames.Toeplitz(key, input)
		want := int(table[hash%uint32(len(table))])
		r := s.expect(1, "datagrams", mine(d))[0]
		if r.queue != want {
			t.Errorf("%s to port %d, of hash %#x, came on queue %d, want %d", d.Kind(), d.DstPort, hash, r.queue, want)
		}
		if cfg.Offloads&nic.RxRSSHash != 0 && r.hash != hash {
			t.Errorf("the hash is %#x, want %#x", r.hash, hash)
		}
		seen[r.queue]++
	}
	if len(seen) != c.pairs {
		t.Errorf("queues had %v datagrams", seen)
	}
	s.close()
}

// testJumbo has long frames come back, and segments joined.
func testJumbo(t *testing.T, c card, addr string) {
	c.bind(t, addr)
	s := open(t, c, addr, spec.Restriction{})
	const longest = jumboMTU + frames.EthernetLen
	cfg := s.joined()
	cfg.MaxFrame = longest
	s.start(cfg)
	if most := s.port.Info().MaxFrame; most < longest || most > longest+4 {
		t.Errorf("frames of up to %d bytes can be configured on a device with an MTU of %d", most, jumboMTU)
	}
	s.exchange(everyLength(frames.MinLen, longest, times(331, 17)))
	s.testRxOffloads()
	s.testStream(21000, 1<<20)
	cfg.Offloads = 0
	s.again(cfg)
	s.exchange(everyLength(frames.MinLen, longest, 331))
	s.close()
}

// testSmallBuffers receives into buffers that are shorter than frames: the device takes several.
func testSmallBuffers(t *testing.T, c card, addr string) {
	c.bind(t, addr)
	s := open(t, c, addr, spec.Restriction{})
	pool, err := mbuf.NewPool(mbuf.Config{Name: "small", Space: s.space, Buffers: 8192, Size: 256})
	if err != nil {
		t.Fatal(err)
	}
	s.pool, s.cache = pool, pool.NewCache()
	s.start(nic.Config{Offloads: nic.RxScatter | nic.TxMultiSegment})
	s.exchange(everyLength(frames.MinLen, 1514, times(13, 1)))
	s.close()
}

// testAnnounce has QEMU ask for an announcement, as after a migration.
func testAnnounce(t *testing.T, c card, addr string) {
	c.bind(t, addr)
	var announced atomic.Int32
	s, err := tryOpenWith(t, c, addr, virtio.Options{Announce: func() { announced.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	s.start(nic.Config{})
	if !s.port.Negotiated().Has(spec.FeatureGuestAnnounce) {
		t.Fatalf("agreed on are %v", s.port.Negotiated())
	}
	monitor(t, "announce-self", map[string]any{"initial": 50, "max": 100, "rounds": 3, "step": 10})
	s.within(patience, "the driver is asked to announce", func() bool {
		s.port.Housekeep(realTime.Now())
		return announced.Load() >= 2 // the second comes only when the first was acknowledged
	})
	s.exchange(everyLength(60, 600, 100))
	s.close()
}

// needed are features that a driver cannot do without where they are offered.
const needed = spec.FeatureVersion1 | spec.FeatureAccessPlatform

// offloadFeatures are those without which other checksums and cuts are left to be done.
const offloadFeatures = spec.FeatureCSum | spec.FeatureGuestCSum | spec.FeatureHostTSO4 | spec.FeatureHostTSO6 | spec.FeatureGuestTSO4 |
	spec.FeatureGuestTSO6 | spec.FeatureMrgRxBuf | spec.FeatureIndirectDesc | spec.FeatureCtrlGuestOffloads

// testEachFeature does without each feature that the device offers, and then without all of them.
func testEachFeature(t *testing.T, c card, addr string) {
	c.bind(t, addr)
	s := open(t, c, addr, spec.Restriction{})
	offered := s.port.Offered()
	t.Logf("offered are %v", offered)
	s.close()
	try := func(r spec.Restriction) {
		not := r.Not
		s, err := tryOpen(t, c, addr, r)
		if not&needed != 0 && !c.legacy {
			if err == nil || !strings.Contains(err.Error(), not.String()) {
				t.Errorf("without %v: %v", not, err)
			}
			if s != nil {
				s.close()
			}
			return
		}
		if err != nil {
			t.Errorf("without %v: %v", not, err)
			return
		}
		s.start(s.joined())
		if s.port.Negotiated()&not != 0 {
			t.Errorf("agreed on are %v, %v is forbidden", s.port.Negotiated(), not)
		}
		if !s.port.Negotiated().Has(spec.FeatureMAC) {
			s.sendOnly()
		} else {
			s.exchange(everyLength(60, 1514, 300))
			if not&offloadFeatures != 0 {
				s.testTxOffloads()
				s.testRxOffloads()
			}
		}
		s.close()
	}
	for bit := spec.Features(1); bit != 0; bit <<= 1 {
		if _, err := spec.FeatureByName(bit.String()); offered&bit == 0 || err != nil {
			continue // a bit without a name (30, of devices of before version 1.0) cannot be forbidden
		}
		try(spec.Restriction{Not: bit})
		if full() {
			try(spec.Restriction{Only: bit})
		}
	}
	if c.legacy {
		try(spec.Restriction{Not: offered})
	} else {
		try(spec.Restriction{Not: offered &^ needed})
	}
}

// sendOnly is for a port without the device's address, to which nothing is let in but broadcasts.
func (s *station) sendOnly() {
	s.Helper()
	s.card.ask(s, question{Do: "reset"})
	for i := range 10 {
		s.patterned(0, frames.Sink, 100+i)
	}
	s.within(patience, "the host gets all frames", func() bool { return s.card.ask(s, question{Do: "counts"}).Frames == 10 })
}

// testSpeed reads what the device says of its speed.
func testSpeed(t *testing.T, c card, addr string) {
	c.bind(t, addr)
	s := open(t, c, addr, spec.Restriction{})
	s.start(nic.Config{})
	if l := s.port.Link(); l.Speed != 10e9 {
		t.Errorf("the link is %v, want 10 Gb/s", l)
	}
	s.close()
}

// testSentWithoutCable sends while the cable is out: the device drops what comes, and goes on when the cable is back. QEMU 7.2 does not go on
// with a packed ring: of what it drops it gives one frame back, and then takes nothing more until it is reset (docs/virtio.md). A reset
// it is, then: every buffer comes back, and the port works.
func testSentWithoutCable(t *testing.T, c card, addr string) {
	c.bind(t, addr)
	s := open(t, c, addr, spec.Restriction{})
	s.start(nic.Config{})
	c.cable(t, false)
	s.within(patience, "the link is down", func() bool {
		s.port.Housekeep(realTime.Now())
		return !s.port.Link().Up
	})
	const without, with = 10, 10
	for range without {
		s.patterned(0, frames.Sink, 100)
	}
	c.cable(t, true)
	s.within(patience, "the link is up", func() bool {
		s.port.Housekeep(realTime.Now())
		return s.port.Link().Up
	})
	for range with {
		s.patterned(0, frames.Sink, 100)
	}
	all := func() bool {
		s.reclaim()
		return s.back == without+with
	}
	if c.packed {
		pause(time.Second)
		if all() {
			t.Error("QEMU has got over it: docs/virtio.md says that it does not")
		}
	} else {
		s.within(patience, "all frames have been sent or dropped", all)
	}
	s.again(nic.Config{})
	s.late = true
	s.exchange(everyLength(60, 1514, 100))
	s.close()
}

// testPulled has QEMU ask for the card back while frames are on their way: the port says that it is gone, its buffers come back, Close lets
// go, and the card leaves. Another is put in, and works.
func testPulled(t *testing.T, c card, addr string) {
	for range times(1, 3) {
		c.bind(t, addr)
		s := open(t, c, addr, spec.Restriction{})
		s.start(nic.Config{})
		s.exchange(everyLength(60, 1514, 100))
		monitor(t, "device_del", map[string]any{"id": c.device()})
		for end := realTime.Now().Add(patience); s.port.Err() == nil; s.poll() {
			if realTime.Now().After(end) {
				t.Fatal("the port does not say that it is gone")
			}
			if b := s.cache.Alloc(); b != nil {
				b.SetTxFlags(0)
				if room, err := b.Reserve(100); err == nil {
					frames.PutPattern(room, c.peerMAC(), c.mac(), 1, frames.Echo)
				}
				if s.port.Tx(0).Send([]*mbuf.Buf{b}) == 0 {
					b.Free()
				}
			}
			pause(time.Millisecond)
		}
		if err := s.port.Err(); !errors.Is(err, nic.ErrGone) || !strings.Contains(err.Error(), addr) {
			t.Errorf("the reason is %v", err)
		}
		if n := s.port.Rx(0).Recv(make([]*mbuf.Buf, 4)); n != 0 {
			t.Errorf("%d frames from a card that is gone", n)
		}
		if woken, err := s.waiter.Wait(realTime.Nanos()); woken {
			t.Errorf("who was not armed was woken: %v", err)
		}
		s.close()
		for end := realTime.Now().Add(patience); exists(addr); pause(10 * time.Millisecond) {
			if realTime.Now().After(end) {
				t.Fatal("the card is still there after Close")
			}
		}
		monitor(t, "device_add", c.properties())
		for end := realTime.Now().Add(patience); !exists(addr); pause(10 * time.Millisecond) {
			if realTime.Now().After(end) {
				t.Fatal("a card that was put in is not there")
			}
		}
		pause(200 * time.Millisecond) // the kernel looks for a driver
	}
	c.bind(t, addr)
	s := open(t, c, addr, spec.Restriction{})
	s.start(nic.Config{})
	s.exchange(everyLength(60, 1514, 50))
	s.close()
}

func exists(addr string) bool {
	_, err := os.Stat("/sys/bus/pci/devices/" + addr)
	return err == nil
}

// properties are the card's for QEMU's device_add.
func (c card) properties() json.RawMessage {
	props := map[string]any{}
	for i, word := range strings.Split(c.deviceArgument("bus=r"+c.device()), ",") {
		if i == 0 {
			props["driver"] = word
			continue
		}
		key, value, _ := strings.Cut(word, "=")
		props[key] = value
		if value == "on" || value == "off" {
			props[key] = value == "on"
		}
		if key == "vectors" {
			props[key] = 2*c.pairs + 2
		}
	}
	b, err := json.Marshal(props)
	if err != nil {
		panic(err) // impossible: words and numbers
	}
	return b
}
