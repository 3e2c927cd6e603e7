package nic82599

import (
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
	"bare.wire/sim/link"
)

// pending is how many frames a still has in its ring.
func (d *mini) pending(q int) int {
	d.reclaim(q)
	return d.tx[q].busy
}

func TestFramesWaitInTheRingWhenThePacketBufferIsFull(t *testing.T) {
	r := newRig(t, 2, miniOptions{}, nil)
	r.start()
	r.a.wr(reg.TXPBSIZE(0), 2<<10) // 2048 bytes: 8 frames of 256 with FCS
	for i := range 40 {
		r.a.send(0, frameTo(macB, 252, byte(i)), 0, i == 39)
	}
	step(r.clk, r.w, 3*time.Microsecond)
	if n := r.a.pending(0); n < 17 || n > 26 {
		t.Errorf("%d frames are in the ring after 3 µs, want about 40 - 8 in the buffer - 13 sent", n)
	}
	r.run(20 * time.Microsecond)
	if n := r.a.pending(0); n != 0 {
		t.Errorf("%d frames never left", n)
	}
	r.clean()
}

func TestRingFilledToTheLastDescriptorIsMisuse(t *testing.T) {
	r := newRig(t, 2, miniOptions{}, nil)
	r.start()
	r.a.card.SetFaults(Faults{DMAStops: 1})
	r.a.wr(reg.TDT(0), 63)
	r.clean()
	r.a.wr(reg.TDT(0), 0) // 64 of 64: head = tail again, which is empty
	if !r.a.has(TailPassedHead) {
		t.Error("64 descriptors in a ring of 64 go unnoticed")
	}
}

// TestDescriptorsNotYetFetchedAreNotMissing has a ring much longer than what the card fetches ahead, slow fetches and
// DROP_EN: nothing may be dropped.
func TestDescriptorsNotYetFetchedAreNotMissing(t *testing.T) {
	r := newRig(t, 2, miniOptions{desc: 512, drop: true}, func(c *Config) {
		if c.Name == "b" {
			c.Timing.Fetch = 20 * time.Microsecond
		}
	})
	r.start()
	r.b.card.EnableDMALog(0)
	for i := range 500 {
		r.a.send(0, frameTo(macB, 60, byte(i)), 0, i == 499)
	}
	r.run(200 * time.Microsecond)
	fetched := int64(0)
	for _, e := range r.b.card.DMALog() {
		if e.Kind == FetchRx {
			fetched = e.At
		} else if e.At < fetched {
			t.Errorf("%s at %d, its descriptor was fetched at %d", e.Kind, e.At, fetched)
		}
	}
	for i := range 500 {
		r.b.expect(0, frameTo(macB, 60, byte(i)))
	}
	if n := r.b.rd(reg.QPRDC(0)); n != 0 {
		t.Errorf("QPRDC is %d, want 0", n)
	}
	r.clean()
}

func TestLastDescriptorMayShowFirst(t *testing.T) {
	r := newRig(t, 2, miniOptions{}, func(c *Config) {
		c.Faults.ShuffledStatus = true
		c.Timing.WriteBack = 5 * time.Microsecond
	})
	r.start()
	for i := range 4 {
		r.a.send(0, frameTo(macB, 60, byte(i)), 0, i == 3)
	}
	seen := false
	for range 500 {
		step(r.clk, r.w, 50)
		dd := func(i int) bool { return load(r.b.rx[0].ring[16*i+8:])&reg.RXD_DD != 0 }
		seen = seen || dd(3) && !dd(0)
	}
	if !seen {
		t.Error("no descriptor showed DD before an earlier one")
	}
	for i := range 4 {
		r.b.expect(0, frameTo(macB, 60, byte(i)))
	}
	r.clean()
}

func TestStaleDataStandsInTheBufferUntilDD(t *testing.T) {
	r := newRig(t, 2, miniOptions{}, func(c *Config) {
		c.Faults.StaleData = true
		c.Timing.WriteBack = 50 * time.Microsecond
	})
	r.start()
	f := frameTo(macB, 60, 1)
	r.a.send(0, f, 0, true)
	waited := 0
	for load(r.b.rx[0].ring[8:])&reg.RXD_DD == 0 {
		if r.b.rx[0].buf[0][0] != 0 {
			t.Fatal("data before DD")
		}
		step(r.clk, r.w, 100)
		if waited++; waited > 1000 {
			t.Fatal("no DD")
		}
	}
	r.b.expect(0, f)
	r.clean()
}

func TestNothingIsDatedBeforeItCouldHappen(t *testing.T) {
	r := newRig(t, 2, miniOptions{}, nil)
	r.start()
	off, on := uint32(cmdMemory), uint32(cmdMemory|cmdBusMaster)
	for _, d := range []*mini{r.a, r.b} {
		if err := d.card.WriteConfig(cfgCommand, 2, off); err != nil {
			t.Fatal(err)
		}
		d.card.EnableDMALog(0)
	}
	r.inject(frameTo(macB, 60, 1))
	r.a.send(0, frameTo(macB, 60, 2), 0, true)
	r.run(100 * time.Microsecond)
	at := r.clk.Nanos()
	for _, d := range []*mini{r.a, r.b} {
		if err := d.card.WriteConfig(cfgCommand, 2, on); err != nil {
			t.Fatal(err)
		}
	}
	r.run(100 * time.Microsecond)
	for _, d := range []*mini{r.a, r.b} {
		for _, e := range d.card.DMALog() {
			if e.Kind != FetchTx && e.Kind != FetchRx && e.At < at {
				t.Errorf("%s of %s is dated %d, the bus was free from %d on", e.Kind, d.card.Name(), e.At, at)
			}
		}
	}
	if n := r.b.drain(); n != 2 {
		t.Errorf("%d frames arrived, want 2", n)
	}
	r.clean()
}

func TestStrippedTagsAndFCSInTheByteCounters(t *testing.T) {
	r := newRig(t, 2, miniOptions{vme: true, fcs: true}, nil)
	r.start()
	f := frameTo(macB, 100, 1)
	f[12], f[13] = 0x81, 0
	r.a.send(0, f, 0, true)
	r.run(20 * time.Microsecond)
	if n := r.b.drain(); n != 1 {
		t.Fatalf("%d frames", n)
	}
	if got := r.b.card.Peek(reg.QBRC_L(0)); got != 100-4+4 {
		t.Errorf("QBRC is %d, want 100 less a tag and with an FCS", got)
	}
}

func TestBadFCSStaysBadInMemory(t *testing.T) {
	r := newRig(t, 8, miniOptions{promisc: true, fcs: true}, nil)
	r.start()
	r.b.or(reg.FCTRL, reg.FCTRL_SBP)
	f := frameTo(macB, 60, 1)
	good := r.b.card.rebuild(f, false, false)
	fcs := [4]byte(good[60:])
	if bad := r.b.card.rebuild(f, false, true); [4]byte(bad[60:]) == fcs {
		t.Error("the FCS of a bad frame is right")
	}
}

func TestLengthFieldErrorsAreCountedWhenAsked(t *testing.T) {
	for _, on := range []bool{false, true} {
		r := newRig(t, 8, miniOptions{}, nil)
		r.start()
		if on {
			r.b.or(reg.HLREG0, reg.HLREG0_RXLNGTHERREN)
		}
		f := frameTo(macB, 60, 1)
		f[12], f[13] = 0, 47 // one more than there is
		r.inject(f)
		if got := r.b.rd(reg.RLEC); (got == 1) != on {
			t.Errorf("RLEC is %d with RXLNGTHERREN %v", got, on)
		}
	}
}

func TestPacketBufferKeepsOrderAndContents(t *testing.T) {
	var b packetBuffer
	const limit = 16 << 10
	in, out := 0, 0
	frame := func(i int) []byte { return frameTo(macB, 60+i*37%1400, byte(i)) }
	for round := range 200 {
		for b.push(frame(in), int64(in), in%3 == 0, limit) {
			in++
		}
		if b.used > limit || b.used < limit-1500 {
			t.Fatalf("full at %d of %d bytes", b.used, limit)
		}
		for range 1 + round%9 {
			f, at, bad, ok := b.front()
			if !ok || at != int64(out) || bad != (out%3 == 0) || string(f) != string(frame(out)) {
				t.Fatalf("frame %d is not what went in", out)
			}
			b.pop()
			out++
		}
	}
	for !b.empty() {
		b.pop()
	}
	if b.used != 0 {
		t.Errorf("%d bytes are left in an empty buffer", b.used)
	}
}

func TestAFrameThatWaitsKeepsThoseBehindItInOrder(t *testing.T) {
	// RSS on b: queue 1 has no room, without DROP_EN; frames for queue 0 behind it wait.
	r := newRig(t, 3, miniOptions{queues: 2, key: microsoftKey, promisc: true}, nil)
	r.start()
	var toQ [2][]byte
	for _, v := range microsoftVectors[:5] {
		toQ[v.tcp&1] = ipFrameOf(v.src, v.dst)
	}
	for range 64 { // one more than queue 1 holds
		for !r.a.send(0, toQ[1], 0, true) {
			r.run(10 * time.Microsecond)
		}
	}
	r.a.send(0, toQ[0], 0, true)
	r.run(200 * time.Microsecond)
	if f, _, _ := r.b.recv(0); f != nil {
		t.Error("a frame passed one that waits")
	}
	for range 64 {
		r.b.expect(1, toQ[1])
	}
	r.b.expect(0, toQ[0])
	r.clean()
}

func TestWireDownLosesFramesAndComesBack(t *testing.T) {
	r := newRig(t, 3, miniOptions{}, nil)
	r.start()
	r.b.card.SetCable(false)
	f := frameTo(macB, 60, 1)
	r.a.send(0, f, 0, true)
	r.run(100 * time.Microsecond)
	if n := r.a.pending(0); n != 1 {
		t.Errorf("%d frames pending without a link, want 1", n)
	}
	r.b.card.SetCable(true)
	r.b.expect(0, f)
	if d := r.wire.Drops(link.AToB); len(d) != 0 {
		t.Errorf("lost %v", d)
	}
	r.clean()
}

// TestFrameBegunWithTooFewDescriptorsIsFinishedLater has a driver that gives three buffers for a frame of five, with
// DROP_EN clear: it sees three descriptors without EOP, and the rest when it gives more.
func TestFrameBegunWithTooFewDescriptorsIsFinishedLater(t *testing.T) {
	r := newRig(t, 3, miniOptions{jumbo: true, bufKiB: 1}, nil)
	r.start()
	rx := r.b.rx[0]
	short := frameTo(macB, 60, 0)
	for range 60 { // leaves 3 of 63
		r.a.send(0, short, 0, true)
		r.run(2 * time.Microsecond)
	}
	long := frameTo(macB, 5000, 1)
	r.a.send(0, long, 0, true)
	r.run(50 * time.Microsecond)
	for i := 60; i < 63; i++ {
		if w1 := load(rx.ring[16*i+8:]); w1&reg.RXD_DD == 0 || w1&reg.RXD_EOP != 0 || w1>>32&0xFFFF != 1024 {
			t.Errorf("descriptor %d is %016X, want DD without EOP and 1024 bytes", i, w1)
		}
	}
	for range 60 {
		r.b.expect(0, short)
	}
	r.b.expect(0, long)
	r.a.send(0, short, 0, true)
	r.b.expect(0, short)
	if n := r.b.rd(reg.QPRC(0)); n != 62 {
		t.Errorf("QPRC is %d, want 62", n)
	}
	r.clean()
}

func TestNothingIsReceivedWithoutRXEN(t *testing.T) {
	r := newRig(t, 3, miniOptions{}, nil)
	r.start()
	r.b.wr(reg.RXCTRL, 0)
	r.inject(frameTo(macB, 60, 1))
	if n, tpr := r.b.drain(), r.b.rd(reg.TPR); n != 0 || tpr != 0 {
		t.Errorf("%d frames arrived, TPR %d", n, tpr)
	}
	r.b.or(reg.SECRXCTRL, reg.SECRXCTRL_RX_DIS)
	r.b.poll(reg.SECRXSTAT, reg.SECRXSTAT_SECRX_RDY, reg.SECRXSTAT_SECRX_RDY)
	r.b.wr(reg.RXCTRL, reg.RXCTRL_RXEN)
	r.inject(frameTo(macB, 60, 1))
	if n := r.b.drain(); n != 0 {
		t.Errorf("%d frames arrived through a stopped security path", n)
	}
	r.b.wr(reg.SECRXCTRL, 0)
	r.inject(frameTo(macB, 60, 1))
	if n := r.b.drain(); n != 1 {
		t.Errorf("%d frames arrived, want 1", n)
	}
	r.clean()
}

func TestWriteBackThresholdDelaysDD(t *testing.T) {
	r := newRig(t, 3, miniOptions{wthresh: 4}, nil)
	r.start()
	for i := range 3 {
		r.a.send(0, frameTo(macB, 60, byte(i)), 0, true)
	}
	r.run(20 * time.Microsecond)
	if n := r.a.pending(0); n != 3 {
		t.Errorf("%d descriptors pending of 3, WTHRESH is 4", n)
	}
	r.a.send(0, frameTo(macB, 60, 3), 0, true)
	r.run(5 * time.Microsecond)
	if n := r.a.pending(0); n != 0 {
		t.Errorf("%d descriptors pending after the fourth", n)
	}
	r.a.send(0, frameTo(macB, 60, 3), 0, true)
	r.run(2 * wthreshFlush)
	if n := r.a.pending(0); n != 0 {
		t.Error("a lone descriptor is never written back")
	}
	r.clean()
}

func TestHeadMovesOverDescriptorsThatAskForNoReport(t *testing.T) {
	r := newRig(t, 3, miniOptions{}, nil)
	r.start()
	for range 10 {
		r.a.putTx(r.a.tx[0].bus[0], txWords(60, 60, true, false))
	}
	r.a.ring()
	r.run(20 * time.Microsecond)
	if h := r.a.rd(reg.TDH(0)); h != 10 {
		t.Errorf("TDH is %d, want 10", h)
	}
	for i := range 10 {
		if load(r.a.tx[0].ring[16*i+8:])&reg.TXD_DD != 0 {
			t.Errorf("descriptor %d reports though RS is clear", i)
		}
	}
	r.clean()
}

func TestNothingIsSentWhileTheArbiterIsStopped(t *testing.T) {
	r := newRig(t, 3, miniOptions{}, nil)
	r.start()
	r.a.or(reg.RTTDCS, reg.RTTDCS_ARBDIS)
	f := frameTo(macB, 60, 1)
	r.a.send(0, f, 0, true)
	r.run(50 * time.Microsecond)
	if n := r.a.pending(0); n != 1 {
		t.Error("sent")
	}
	r.a.clear(reg.RTTDCS, reg.RTTDCS_ARBDIS)
	r.b.expect(0, f)
	r.clean()
}

func TestWriteBackChangesNothingButTheStatusDword(t *testing.T) {
	r := newRig(t, 3, miniOptions{}, nil)
	r.start()
	w1 := txWords(60, 60, true, true)
	r.a.putTx(r.a.tx[0].bus[0], w1)
	r.a.ring()
	r.run(20 * time.Microsecond)
	ring := r.a.tx[0].ring
	if a, b := load(ring), load(ring[8:]); a != r.a.tx[0].bus[0] || uint32(b) != uint32(w1) || b&reg.TXD_DD == 0 {
		t.Errorf("descriptor is %016X %016X, was %016X %016X", a, b, r.a.tx[0].bus[0], w1)
	}
}

// TestLongChainsThatStraddleFetchesAreSent has frames of up to 40 segments lie anywhere with respect to what the card
// fetches at once.
func TestLongChainsThatStraddleFetchesAreSent(t *testing.T) {
	r := newRig(t, 3, miniOptions{desc: 512}, nil)
	r.start()
	n := 0
	for round := range 60 {
		var sent [][]byte
		for i := range 9 {
			f := frameTo(macB, 40*(2+(round*7+i*11)%16), byte(n))
			segs := [2]int{40, 1 + (round*13+i*5)%38}[i%2]
			if !r.a.send(0, f, (len(f)+segs-1)/segs, i == 8) {
				r.a.ring()
				break
			}
			sent = append(sent, f)
			n++
		}
		for _, f := range sent {
			r.b.expect(0, f)
		}
	}
	r.clean()
}

// TestJumboFrameIsStoredThoughDescriptorsComeOneByOne needs more buffers for a frame than the card keeps ready.
func TestJumboFrameIsStoredThoughDescriptorsComeOneByOne(t *testing.T) {
	r := newRig(t, 3, miniOptions{jumbo: true, bufKiB: 1, desc: 128}, func(c *Config) {
		c.Faults.PartialFetch = true
		c.Timing.Fetch = 2 * time.Microsecond
	})
	r.start()
	r.b.wr(reg.RXCTRL, 0)
	r.b.wr(reg.MAXFRS, 60000<<16)
	r.b.or(reg.SECRXCTRL, reg.SECRXCTRL_RX_DIS)
	r.b.poll(reg.SECRXSTAT, reg.SECRXSTAT_SECRX_RDY, reg.SECRXSTAT_SECRX_RDY)
	r.b.wr(reg.RXCTRL, reg.RXCTRL_RXEN)
	r.b.wr(reg.SECRXCTRL, 0)
	f := frameTo(macB, 50_000, 1)
	r.inject(f)
	r.b.expect(0, f)
}
