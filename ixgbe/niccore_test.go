package ixgbe_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/ixgbe"
	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/nic82599"
	"bare.wire/vtop"
)

// The tests in this file are bugs that other drivers had, one each.

// Multi-queue segfault from a wrong stride (ixy 30).
func TestNICCore01_EveryQueueHasItsOwnRegisters(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{RxQueues: 64, TxQueues: 64, RxDesc: 64, TxDesc: 128, Pool: r.pool(mbuf.Config{Buffers: 6144})})
	rings := map[uint64]string{}
	for i := range 64 {
		for name, q := range map[string]struct{ lo, hi, length uint64 }{
			"rx": {r.cards[0].Peek(reg.RDBAL(i)), r.cards[0].Peek(reg.RDBAH(i)), r.cards[0].Peek(reg.RDLEN(i))},
			"tx": {r.cards[0].Peek(reg.TDBAL(i)), r.cards[0].Peek(reg.TDBAH(i)), r.cards[0].Peek(reg.TDLEN(i))},
		} {
			bus := q.hi<<32 | q.lo
			if old, ok := rings[bus]; ok || bus == 0 || bus%128 != 0 {
				t.Errorf("%s queue %d has its ring at %#x, where %q has one", name, i, bus, old)
			}
			rings[bus] = name
			if want := map[string]uint64{"rx": 64 * 16, "tx": 128 * 16}[name]; q.length != want {
				t.Errorf("%s queue %d: length %d, want %d", name, i, q.length, want)
			}
		}
		if r.cards[0].Peek(reg.RDT(i)) != 63 {
			t.Errorf("queue %d: RDT is %d, want 63", i, r.cards[0].Peek(reg.RDT(i)))
		}
	}
	r.end()
}

// TDH written after ENABLE (DPDK ff30a020bb).
func TestNICCore02_HeadIsNotWrittenOnceEnabled(t *testing.T) {
	r := newBareRig(t, rigConfig{})
	enabled := map[uint32]bool{}
	r.fns[0].onWrite32 = func(off, v uint32) {
		for i := range 4 {
			switch {
			case off == reg.TXDCTL(i) && v&reg.TXDCTL_ENABLE != 0, off == reg.RXDCTL(i) && v&reg.RXDCTL_ENABLE != 0:
				enabled[off] = true
			case off == reg.TDH(i) && enabled[reg.TXDCTL(i)], off == reg.RDH(i) && enabled[reg.RXDCTL(i)]:
				t.Errorf("the head of queue %d is written after ENABLE", i)
			}
		}
	}
	for i := range r.ports {
		p, err := r.open(i)
		if err != nil {
			t.Fatal(err)
		}
		r.ports[i] = p
	}
	r.start(nic.Config{RxQueues: 4, TxQueues: 4})
	r.exchange(10)
	if len(enabled) != 8 {
		t.Errorf("%d queues were enabled, want 8", len(enabled))
	}
	r.end()
}

// Stale DD when the thresholds together exceed the ring (DPDK 9f5d2352fe).
func TestNICCore03_SmallestRingGoesRoundManyTimes(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{TxDesc: 64, RxDesc: 512})
	pool := r.pool(mbuf.Config{Buffers: 256})
	cache := pool.NewCache()
	for round, n := range []int{63, 1, 62, 33, 32, 31, 63, 63, 5, 59, 63, 40, 24, 63} {
		bufs := make([]*mbuf.Buf, n)
		for i := range bufs {
			bufs[i] = r.frame(cache, r.ports[1], 60, byte(i))
		}
		if k := r.ports[0].Tx(0).Send(bufs); k != n {
			t.Fatalf("round %d: Send took %d of %d into an empty ring of 64", round, k, n)
		}
		r.settle()
		if k := r.drain(1, 0); k != n {
			t.Fatalf("round %d: %d of %d came", round, k, n)
		}
		if k := r.ports[0].Tx(0).Reclaim(); k != n {
			t.Fatalf("round %d: Reclaim found %d of %d", round, k, n)
		}
	}
	cache.Close()
	r.end()
}

// Ring below 64 descriptors (DPDK 6808ee1ced).
func TestNICCore04_RingBelow64IsRefused(t *testing.T) {
	r := newRig(t, rigConfig{})
	pool := r.pool(mbuf.Config{})
	for _, n := range []int{8, 32, 56, 63} {
		r.says(r.ports[0].Start(context.Background(), nic.Config{Pool: pool, TxDesc: n}), "TxDesc", "64")
		r.says(r.ports[0].Start(context.Background(), nic.Config{Pool: pool, RxDesc: n}), "RxDesc", "64")
	}
	r.end()
}

// RX DMA corruption: DCA_RXCTRL bit 12 comes up set (Snabb 524).
func TestNICCore05_RelaxedOrderBitIsCleared(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{RxQueues: 64, RxDesc: 64, Pool: r.pool(mbuf.Config{Buffers: 6144})})
	for i := range 64 {
		if v := r.cards[0].Peek(reg.DCA_RXCTRL(i)); v&(1<<12) != 0 {
			t.Errorf("DCA_RXCTRL(%d) is %#x", i, v)
		}
	}
	r.end()
}

// A full queue without DROP_EN stalls all (ODP 458).
func TestNICCore06_FullQueuesDrop(t *testing.T) {
	for _, block := range []bool{false, true} {
		r := newRig(t, rigConfig{})
		r.start(nic.Config{RxQueues: 20, RxDesc: 64, BlockWhenFull: block, Pool: r.pool(mbuf.Config{Buffers: 6144})})
		for i := range 20 {
			if v := r.cards[0].Peek(reg.SRRCTL(i)); v&(1<<28) != 0 == block {
				t.Errorf("BlockWhenFull %v: SRRCTL(%d) is %#x", block, i, v)
			}
		}
		r.end()
	}
}

// Drops were counted for queue 0 alone (Snabb 1443).
func TestNICCore07_DropsOfEveryQueueAreCounted(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{RxQueues: 16, RxDesc: 64, Pool: r.pool(mbuf.Config{Buffers: 6144})})
	want := uint64(0)
	for i := range 16 {
		r.cards[0].Preset(reg.QPRDC(i), uint64(1)<<i)
		want += 1 << i
	}
	s := r.ports[0].Stats()
	if s.RxNoDesc != want {
		t.Errorf("RxNoDesc is %d, want %d", s.RxNoDesc, want)
	}
	for i, q := range s.Queues {
		if i < 16 && q.RxNoDesc != 1<<i {
			t.Errorf("queue %d: RxNoDesc is %d, want %d", i, q.RxNoDesc, 1<<i)
		}
	}
	r.end()
}

// A UDP checksum of zero, which means none, is flagged as a bad one (DPDK 9a40edb599).
func TestNICCore08_FramesWithoutUDPChecksumAreGood(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	pool := r.pool(mbuf.Config{Buffers: 64})
	cache := pool.NewCache()
	b := r.frame(cache, r.ports[1], 60, 0)
	f := b.Bytes()
	f[12], f[13] = 0x08, 0x00
	ip := f[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], 46)
	binary.BigEndian.PutUint16(ip[10:], 0x7aac+5) // a wrong header checksum, too: the card tells, the driver was not asked
	binary.BigEndian.PutUint16(ip[24:], 26)
	if r.ports[0].Tx(0).Send([]*mbuf.Buf{b}) != 1 {
		t.Fatal("ring full")
	}
	cache.Close()
	r.settle()
	if n := r.drain(1, 0); n != 1 {
		t.Errorf("%d frames came, want 1", n)
	}
	if s := r.ports[1].Stats(); s.RxErrors != 0 || s.RxPackets != 1 {
		t.Errorf("RxErrors %d, RxPackets %d", s.RxErrors, s.RxPackets)
	}
	if x := r.ports[1].ixgbe.ExtendedStats()["rx_checksum_errors"]; x == 0 {
		t.Error("the card has not marked it: this test tests nothing")
	}
	r.end()
}

// GPRC counts what was then missed; byte corrections overflowed 32 bits (DPDK 77889afaf1, 5168e13017, bdf8608559).
func TestNICCore09_ReceivedIsWhatQueuesReceived(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{RxDesc: 64, BlockWhenFull: true})
	r.send(1000, 1500)
	r.settle()
	s := r.ports[1].Stats()
	if s.RxMissed == 0 {
		t.Fatal("none was missed: this test tests nothing")
	}
	got := uint64(r.drain(1, 0))
	for k := 1; k > 0; got += uint64(k) {
		r.settle()
		k = r.drain(1, 0)
	}
	s = r.ports[1].Stats()
	if s.RxPackets != got || s.RxPackets+s.RxMissed != 1000 || s.RxBytes != 1500*got {
		t.Errorf("received %d; RxPackets %d, RxBytes %d, RxMissed %d", got, s.RxPackets, s.RxBytes, s.RxMissed)
	}
	if x := r.ports[1].ixgbe.ExtendedStats()["rx_packets"]; x != 1000 {
		t.Errorf("GPRC is %d, and should count what was missed too: this test tests nothing", x)
	}
	r.end()
}

func TestNICCore09_CorrectionsAreOf64Bits(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	var packets, bytes uint64
	for range 5 {
		r.cards[0].Preset(reg.GPTC, 1<<30+7)
		r.cards[0].Preset(reg.GOTCL, 64*(1<<30-1)) // 36 bits hold no more
		packets += 1<<30 + 7
		bytes += 64 * (1<<30 - 1)
		r.housekeep()
	}
	s := r.ports[0].Stats()
	if s.TxPackets != packets || s.TxBytes != bytes-4*packets {
		t.Errorf("TxPackets %d, TxBytes %d; want %d, %d", s.TxPackets, s.TxBytes, packets, bytes-4*packets)
	}
	r.end()
}

// Surprise removal reads all ones: endless recursion (DPDK 2d04b9e856).
func TestNICCore10_RemovalEndsEveryLoop(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{RxQueues: 64, TxQueues: 64, RxDesc: 64, TxDesc: 64, Pool: r.pool(mbuf.Config{Buffers: 6144})})
	reads := 0
	r.fns[0].onRead = func(uint32) { reads++ }
	r.cards[0].Remove()
	r.housekeep()
	_ = r.ports[0].Stats()
	if !errors.Is(r.ports[0].Err(), nic.ErrGone) {
		t.Errorf("Err is %v", r.ports[0].Err())
	}
	_ = r.ports[0].Stop()
	if err := r.ports[0].Close(); err != nil && !errors.Is(err, nic.ErrGone) {
		t.Error(err)
	}
	if reads > 10 {
		t.Errorf("%d register reads on a card that is gone", reads)
	}
	r.end()
}

// A half-received chain leaked at stop (DPDK d54b51efb6).
func TestNICCore11_HalfReceivedFrameComesBackAtStop(t *testing.T) {
	r := newRig(t, rigConfig{card: nic82599.Config{Timing: nic82599.Timing{WriteBack: 5 * time.Microsecond}}})
	rx := r.pool(mbuf.Config{Size: 1024, Buffers: 512})
	for _, p := range r.ports {
		if err := p.Start(context.Background(), nic.Config{Pool: rx, MaxFrame: 9724, RxDesc: 64}); err != nil {
			t.Fatal(err)
		}
	}
	r.settle()
	r.housekeep()
	tx := r.pool(mbuf.Config{Size: 9724, Buffers: 64})
	cache := tx.NewCache()
	seen := false
	for round := 0; round < 50 && !seen; round++ {
		if r.ports[0].Tx(0).Send([]*mbuf.Buf{r.frame(cache, r.ports[1], 9724, 1)}) != 1 {
			t.Fatal("ring full")
		}
		into := make([]*mbuf.Buf, 1)
		for range 1000 {
			n := r.ports[1].Rx(0).Recv(into)
			if seen = r.ports[1].ixgbe.PartialSegs(0) > 0; seen {
				break
			}
			if n == 1 {
				into[0].Free()
				break
			}
			r.sleep(10)
		}
	}
	cache.Close()
	if !seen {
		t.Fatal("no frame was ever seen half: this test tests nothing")
	}
	if err := r.ports[1].Stop(); err != nil {
		t.Error(err)
	}
	if err := r.ports[0].Stop(); err != nil {
		t.Error(err)
	}
	if n := rx.Stats().Out; n != 0 {
		t.Errorf("%d buffers are not back", n)
	}
	r.end()
}

// TX unit hang, TDH ≠ TDT (Intel 21): see TestTransmitterThatStopsIsNoticed. An empty descriptor makes one, so none is sent.
func TestNICCore12_NothingThatHangsTheTransmitterIsSent(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{MaxFrame: 9724})
	pool := r.pool(mbuf.Config{Buffers: 512})
	cache := pool.NewCache()
	empty := cache.Alloc()
	first := r.frame(cache, r.ports[1], 60, 1)
	first.SetNext(cache.Alloc()) // an empty segment at the end
	var head, last *mbuf.Buf
	for range 41 {
		b := r.frame(cache, r.ports[1], 30, 1)
		if head == nil {
			head = b
		} else {
			last.SetNext(b)
		}
		last = b
	}
	if n := r.ports[0].Tx(0).Send([]*mbuf.Buf{empty, first, head}); n != 3 {
		t.Fatalf("Send took %d of 3", n)
	}
	cache.Close()
	r.exchange(10)
	r.sleep(time.Minute)
	r.housekeep()
	r.sleep(time.Minute)
	r.housekeep()
	if err := r.ports[0].Err(); err != nil {
		t.Error(err)
	}
	if s := r.ports[0].Stats(); s.TxErrors != 3 || s.TxPackets != 10 {
		t.Errorf("TxErrors %d, TxPackets %d; want 3, 10", s.TxErrors, s.TxPackets)
	}
	r.end()
}

// A crash after 21 774 rebinds (Intel 34): nothing may grow.
func TestNICCore13_OpenAndCloseLeavesNothing(t *testing.T) {
	n := 60
	if full() {
		n = 22000
	}
	r := newBareRig(t, rigConfig{})
	pool := r.pool(mbuf.Config{})
	fds := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	files, routines := fds(), runtime.NumGoroutine()
	for i := range n {
		p, err := r.open(0)
		if err != nil {
			t.Fatalf("open %d: %v", i, err)
		}
		if err := p.Start(context.Background(), nic.Config{Pool: pool, RxDesc: 64}); err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
		if err := p.Close(); err != nil {
			t.Fatalf("close %d: %v", i, err)
		}
	}
	if f, g := fds(), runtime.NumGoroutine(); f > files || g > routines {
		t.Errorf("%d files and %d goroutines more than before", f-files, g-routines)
	}
	r.end()
}

// RXDCTL.ENABLE not cleared, and drops (PF_RING 313): see TestQueueThatDoesNotStopLosesTheBus. A good card stops within
// the time it takes, and the bit is seen clear before buffers are freed.
func TestNICCore14_DisableIsReadBack(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{RxQueues: 4, TxQueues: 4})
	r.exchange(100)
	for _, p := range r.ports {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
	for i := range 4 {
		for _, c := range r.cards {
			if rx, tx := c.Read32(reg.RXDCTL(i)), c.Read32(reg.TXDCTL(i)); (rx|tx)&(1<<25) != 0 {
				t.Errorf("queue %d: RXDCTL %#x, TXDCTL %#x", i, rx, tx)
			}
		}
	}
	r.end()
}

// DMA stops until reboot (Snabb 39): whoever drove the card before left it in the middle of everything.
func TestNICCore18_CardLeftRunningIsTakenOver(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	r.send(200, 1000)
	// The process dies here: nothing is stopped. Its memory stays mapped for the test's sake.
	for i := range r.ports {
		p, err := ixgbe.Open(context.Background(), r.fns[i], ixgbe.Options{Space: r.space, Clock: r.clk, Node: -1})
		if err != nil {
			t.Fatal(err)
		}
		r.ports[i] = r.stepped(p)
	}
	r.pools = nil // the buffers of the dead
	r.start(nic.Config{})
	r.exchange(100)
	r.end()
}

// Packets dropped when the ring is full, a panic on an empty pool, a TXDCTL mask off by one (ixy.rs 6216a58, 21e6575, e3539fe).
func TestNICCore20_ThresholdsAreWhatWasMeant(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{TxQueues: 3})
	for i := range 3 {
		v := uint32(r.cards[0].Peek(reg.TXDCTL(i)))
		if p, h, w := reg.Get(v, reg.TXDCTL_PTHRESH), reg.Get(v, reg.TXDCTL_HTHRESH), reg.Get(v, reg.TXDCTL_WTHRESH); p != 36 || h != 8 || w != 0 || v&^(1<<25|0x7f7f7f) != 0 {
			t.Errorf("TXDCTL(%d) is %#x: PTHRESH %d, HTHRESH %d, WTHRESH %d", i, v, p, h, w)
		}
	}
	r.end()
}

func TestNICCore20_EmptyPoolIsNoPanic(t *testing.T) {
	r := newRig(t, rigConfig{})
	pool := r.pool(mbuf.Config{Buffers: 8, ReserveReceive: -1, ReserveControl: -1})
	cache := pool.NewCache()
	var held []*mbuf.Buf
	for b := cache.Alloc(); b != nil; b = cache.Alloc() {
		held = append(held, b)
	}
	r.start(nic.Config{Pool: pool}) // not one buffer is left for the ring
	r.send(5, 60)
	r.settle()
	if n := r.drain(1, 0); n != 0 {
		t.Errorf("%d frames received without a buffer", n)
	}
	for _, b := range held {
		b.Free()
	}
	cache.Close()
	r.drain(1, 0) // the ring gets what there is
	r.settle()
	r.send(3, 60)
	r.settle()
	if n := r.drain(1, 0); n != 3 {
		t.Errorf("%d of 3 frames received with the buffers back", n)
	}
	r.end()
}

func TestOpenRefusesWhatIsNoUse(t *testing.T) {
	r := newBareRig(t, rigConfig{})
	for name, opt := range map[string]ixgbe.Options{
		"no space": {Clock: clock.NewVirtual(time.Time{})}, "no clock": {Space: vtop.NewMapped()},
	} {
		if _, err := ixgbe.Open(context.Background(), r.fns[0], opt); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	r.fns[0].id = 0x10C6 // an 82598
	_, err := r.open(0)
	r.says(err, "8086:10c6", "sim:a")
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v is not ErrUnsupported", err)
	}
	r.fns[0].id = 0
	r.fns[0].small = true
	_, err = r.open(0)
	r.says(err, "BAR 0", "sim:a")
	r.end()
}
