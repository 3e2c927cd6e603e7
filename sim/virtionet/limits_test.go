package virtionet

import (
	"bytes"
	"testing"
	"time"

	"bare.wire/sim/link"
	"bare.wire/sim/offload"
	"bare.wire/virtio/spec"
)

// scripted is a Net that gives what a test says.
type scripted struct {
	list    []link.Frame // with Data nil: one that turns out not to be worth receiving
	h       Header
	does    spec.Features
	allowed spec.Features
	sent    int
}

func (n *scripted) Send(Header, []byte, int64) { n.sent++ }
func (n *scripted) Next() (int64, bool) {
	if len(n.list) == 0 {
		return 0, false
	}
	return n.list[0].At, true
}
func (n *scripted) Receive(now int64) (Header, []byte, bool) {
	if len(n.list) == 0 || n.list[0].At > now {
		return Header{}, nil, false
	}
	f := n.list[0]
	n.list = n.list[1:]
	return n.h, f.Data, f.Data != nil
}
func (n *scripted) Offloads() spec.Features     { return n.does }
func (n *scripted) SetOffloads(f spec.Features) { n.allowed = f }
func (n *scripted) Up() bool                    { return true }
func (n *scripted) SetUp(bool)                  {}
func (n *scripted) OnArrival(func(int64))       {}
func (n *scripted) OnChange(func(bool))         {}

// newScripted is a rig whose device a has n behind it.
func newScripted(t *testing.T, n *scripted, adjust func(*Config)) *rig {
	return newRig(t, 1, func(c *Config) {
		if c.Name == "a" {
			c.Net = n
		}
		if adjust != nil {
			adjust(c)
		}
	})
}

func TestFrameWithAByteToBeWrittenIsNoLonger(t *testing.T) {
	r := newRig(t, 1, nil)
	r.a.start(0, 64)
	bus, _ := r.a.mem.alloc(60000, 16)
	r.a.put(1, piece{bus, 60000, false}, piece{bus, 60000, false}, piece{bus, 1, true})
	r.a.kick(1)
	r.run(5 * time.Microsecond)
	if c := r.a.d.Counts(); c.TxFrames != 0 || c.TxRefused != 1 {
		t.Errorf("%+v", c)
	}
	if n := cap(r.a.d.buf); n > maxFrame {
		t.Errorf("%d bytes were gathered", n)
	}
	if n := r.a.sent(1); n != 1 {
		t.Errorf("%d frames came back", n)
	}
}

func TestMTUIsKeptWithAChecksumToComplete(t *testing.T) {
	r := newRig(t, 1, func(c *Config) { c.MTU = 1000 })
	r.a.start(allOffloads|spec.FeatureMTU, 8)
	f, h := tcpFrame(false, numbers(2000))
	h.GSOType = spec.GSONone
	r.a.send(1, h, f, 1)
	r.run(5 * time.Microsecond)
	if list := r.a.d.Misuse(); len(list) != 1 || list[0].Kind != FrameLength {
		t.Errorf("%v", list)
	}
	h.GSOType, h.GSOSize = spec.GSOTCPv4, 900 // cut, it may be as long
	r.a.send(1, h, f, 1)
	r.run(5 * time.Microsecond)
	if c := r.a.d.Counts(); c.TxRefused != 1 || c.TxFrames != 1 {
		t.Errorf("%+v", c)
	}
}

// TestEventsAgreedOnBehindTheRing has a legacy driver place its rings before it takes event_idx: the event words are not part of
// what was looked up.
func TestEventsAgreedOnBehindTheRing(t *testing.T) {
	r := newRig(t, 1, nil)
	c := newCard(r.a, FunctionConfig{Kind: Legacy})
	l, err := spec.NewSplitLayout(64, spec.LegacyAlign)
	if err != nil {
		t.Fatal(err)
	}
	c.prepare(0)
	r.a.hdr = spec.HdrSizeLegacy
	for i := range r.a.d.Queues() {
		ring := newVring(r.a.mem, 64, 0)
		bus, b := r.a.mem.alloc(l.Bytes, 4096)
		ring.d, ring.a, ring.u = b, b[l.Avail:], b[l.Used:]
		r.a.ring[i] = ring
		c.io.Write16(spec.LegacyQueueSelect, uint16(i))
		c.io.Write32(spec.LegacyQueuePFN, uint32(bus>>12))
	}
	c.io.Write8(spec.LegacyStatus, 1)
	c.io.Write8(spec.LegacyStatus, 3)
	c.io.Write32(spec.LegacyDriverFeatures, uint32(spec.FeatureEventIdx|spec.FeatureAnyLayout))
	c.io.Write8(spec.LegacyStatus, 7)
	bus, _ := r.a.mem.alloc(110, 16)
	r.a.put(1, piece{bus, 110, false})
	c.io.Write16(spec.LegacyQueueNotify, 1)
	r.run(10 * time.Microsecond)
	if n := r.a.sent(1); n != 1 {
		t.Errorf("%d frames sent", n)
	}
}

func TestUsedEntriesLieAcrossPages(t *testing.T) {
	r := newRig(t, 1, func(c *Config) { c.Size = 1024 })
	r.a.mem.piece = 4096
	r.a.start(0, 1024)
	if across := (4096 - r.a.ring[1].device%4096 - 4) % 8; across != 4 {
		t.Fatalf("the used ring at %#x has no entry across a page's end", r.a.ring[1].device)
	}
	for i := range 600 {
		r.a.send(1, Header{}, frameTo(macB, 64, i), 1)
		r.run(2 * time.Microsecond)
		if n := r.a.sent(1); n != 1 {
			r.a.clean()
			t.Fatalf("frame %d: %d came back", i, n)
		}
	}
	r.a.clean()
}

func TestFeaturesThatNobodyLookedAtAreLeftOut(t *testing.T) {
	n := &scripted{}
	r := newScripted(t, n, nil)
	r.w.Lock()
	d := r.a.d
	d.SetStatus(1)
	d.SetStatus(3)
	if err := d.SetFeatures(spec.FeatureVersion1 | spec.FeatureCSum | spec.FeatureGuestCSum); err == nil {
		t.Error("features that are not offered were taken")
	}
	d.SetStatus(7) // and no FEATURES_OK
	got := d.Agreed()
	r.w.Unlock()
	if got != spec.FeatureVersion1 || n.allowed != 0 {
		t.Errorf("the device works with %v, its net with %v", got, n.allowed)
	}
}

func TestGenerationChangesWithTheConfiguration(t *testing.T) {
	r := newRig(t, 5, nil)
	r.a.start(controlFeatures, 16)
	last := r.a.d.Generation()
	for _, x := range []struct {
		what string
		do   func()
	}{
		{"another MAC address", func() { r.control(r.a, spec.CtrlMAC, spec.CtrlMACAddrSet, 2, 9, 9, 9, 9, 9) }},
		{"an announcement asked for", r.a.d.Announce},
		{"an announcement acknowledged", func() { r.control(r.a, spec.CtrlAnnounce, spec.CtrlAnnounceAck) }},
		{"link up", func() { r.b.start(0, 16) }},
		{"reset", func() { set(r.a.d, 0) }},
	} {
		if x.do(); r.a.d.Generation() == last {
			t.Errorf("%s: the generation is still %d", x.what, last)
		}
		last = r.a.d.Generation()
	}
	if set(r.a.d, 0); r.a.d.Generation() != last {
		t.Error("the generation changes without the configuration")
	}
}

func TestQueueThatIsOffHoldsNothingBack(t *testing.T) {
	r := newRig(t, 5, func(c *Config) { c.Pairs, c.Hold = 2, true })
	r.a.start(spec.FeatureCtrlVQ|spec.FeatureMQ, 16)
	if got := r.control(r.a, spec.CtrlMQ, spec.CtrlMQPairsSet, 2, 0); got != spec.CtrlOK {
		t.Fatalf("answer %d", got)
	}
	here, there := [4]byte{10, 0, 0, 1}, [4]byte{10, 0, 0, 2}
	for pair, port := range []uint16{1000, 2000} {
		r.a.send(2*pair+1, Header{}, udp4(here, there, port, 53, 30), 1)
		r.run(4 * time.Microsecond)
	}
	r.a.fill(0, 4, 1600)
	r.arrive(udp4(there, here, 53, 2000, 30)) // waits for buffers of pair 1
	r.w.Lock()
	r.a.d.EnableQueue(2, false)
	r.w.Unlock()
	r.arrive(udp4(there, here, 53, 1000, 30))
	if _, _, ok := r.a.recv(0); !ok {
		t.Error("a frame for pair 0 is held back by pair 1, which is off")
	}
}

func TestFramesBehindADamagedOneAreDiscardedToo(t *testing.T) {
	n := &scripted{list: []link.Frame{{At: 100}, {At: 5000, Data: frameTo(macA, 64, 1)}}}
	r := newScripted(t, n, nil)
	r.run(20 * time.Microsecond)
	if c := r.a.d.Counts(); c.RxUnready != 1 || len(n.list) != 0 {
		t.Errorf("%d frames are left for a driver that comes later; %+v", len(n.list), c)
	}
}

func TestFramesOfAQueueThatIsResetAreCounted(t *testing.T) {
	r := newRig(t, 5, nil)
	r.a.start(0, 16)
	for i := range 3 {
		r.arrive(frameTo(macA, 64, i))
	}
	set(r.a.d, 0)
	if c := r.a.d.Counts(); c.RxUnready != 3 {
		t.Errorf("%+v", c)
	}
}

func TestOldDeviceClosedAgainLeavesTheNewOne(t *testing.T) {
	r := newRig(t, 5, nil)
	if err := r.a.d.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{Name: "new", Memory: r.a.mem, World: r.w, Net: OnWire(r.wire.A()), MAC: macA, Size: 64})
	if err != nil {
		t.Fatal(err)
	}
	old := r.a.d
	r.a.d = d
	r.a.start(0, 16)
	r.a.fill(0, 4, 512)
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	r.arrive(frameTo(macA, 64, 1))
	if _, _, ok := r.a.recv(0); !ok {
		t.Error("nothing arrives any more")
	}
}

func TestNotificationOfARingThatIsGone(t *testing.T) {
	r := newRig(t, 1, nil)
	r.a.start(spec.FeatureNotificationData, 8)
	r.a.send(1, Header{}, frameTo(macB, 64, 1), 1)
	r.run(5 * time.Microsecond)
	r.w.Lock()
	r.a.mem.base += 1 << 32 // nothing is where it was
	r.a.d.KickAt(1, 1)
	r.w.Unlock()
	if list := r.a.d.Misuse(); len(list) != 1 || list[0].Kind != DMAFault {
		t.Errorf("%v", list)
	}
}

func TestOffloadsSwitchedOffAreOff(t *testing.T) {
	f, h := tcpFrame(false, numbers(100))
	h.GSOType = spec.GSONone
	n := &scripted{h: h, does: guestFeatures}
	r := newScripted(t, n, nil)
	r.a.start(spec.FeatureCtrlVQ|spec.FeatureCtrlGuestOffloads|spec.FeatureGuestCSum, 16)
	r.a.fill(0, 8, 1600)
	for i, want := range []bool{true, false} {
		n.list = append(n.list, link.Frame{At: r.clk.Nanos(), Data: f})
		r.a.kick(0)
		r.run(4 * time.Microsecond)
		if _, _, ok := r.a.recv(0); ok != want {
			t.Errorf("a frame without a checksum arrives: %t, want %t", ok, want)
		}
		if i == 0 && r.control(r.a, spec.CtrlGuestOffloads, spec.CtrlGuestOffloadsSet, make([]byte, 8)...) != spec.CtrlOK {
			t.Fatal("offloads are not switched off")
		}
	}
	if c := r.a.d.Counts(); c.RxRefused != 1 {
		t.Errorf("%+v", c)
	}
}

func TestRSSSpreadsOverMoreThanAreSentBy(t *testing.T) {
	r := newRig(t, 5, func(c *Config) { c.Pairs = 4 })
	r.a.start(controlFeatures|spec.FeatureRSS, 16)
	r.a.fill(6, 8, 1600)
	b := le.AppendUint32(nil, spec.HashIPv4)
	b = append(b, 0, 0, 0, 0, 3, 0, 1, 0, 40) // a table of one entry, queue 3; one queue for sending
	b = append(b, make([]byte, offload.KeyLen)...)
	if got := r.control(r.a, spec.CtrlMQ, spec.CtrlMQRSSConfig, b...); got != spec.CtrlOK {
		t.Fatalf("answer %d", got)
	}
	f := udp4([4]byte{1, 2, 3, 4}, [4]byte{5, 6, 7, 8}, 1, 2, 30)
	r.arrive(f)
	if _, raw, ok := r.a.recv(6); !ok || !bytes.Equal(raw[12:], f) {
		t.Error("the frame is not in the queue that the table names")
	}
}

// TestJoinedFramesFitTheBuffersThereAre joins tagged segments up to the longest packet there is, which with its tag is longer than
// the buffers that the specification asks of a driver.
func TestJoinedFramesFitTheBuffersThereAre(t *testing.T) {
	r := newRig(t, 1, nil)
	r.a.start(guestFeatures, 16)
	r.a.fill(0, 8, spec.MinRxBufferGSO)
	const mss = 8000
	whole := numbers(8*mss + 1483) // 65535 bytes with the headers of IP and TCP
	r.w.Lock()
	r.wire.B().SetUp(true)
	for i := 0; i*mss < len(whole); i++ {
		payload := whole[i*mss : min((i+1)*mss, len(whole))]
		f, h := tcpFrame(false, payload)
		l4 := int(h.CSumStart)
		f[l4+13] = tcpACK
		f[19] += byte(i)
		seq := uint32(i * mss)
		f[l4+4], f[l4+5], f[l4+6], f[l4+7] = byte(seq>>24), byte(seq>>16), byte(seq>>8), byte(seq)
		f[24], f[25] = 0, 0
		complete(f[14:34], 10, 0)
		complete(f[l4:], 16, 0)
		copy(f, macA[:])
		f = append(f[:12], append([]byte{0x81, 0, 0, 5}, f[12:]...)...)
		r.wire.B().Transmit(f, r.clk.Nanos())
	}
	r.w.Unlock()
	r.run(10 * time.Microsecond)
	var got []byte
	for {
		_, raw, ok := r.a.recv(0)
		if !ok {
			break
		}
		got = append(got, raw[12+18+20+32:]...)
	}
	if !bytes.Equal(got, whole) {
		t.Errorf("%d bytes of payload arrived, of %d; %+v", len(got), len(whole), r.a.d.Counts())
	}
	r.a.clean()
}

// TestRingThatSaysThatNoNotificationsAreWanted is one that another device has left, which looked by itself.
func TestRingThatSaysThatNoNotificationsAreWanted(t *testing.T) {
	for _, f := range []spec.Features{0, spec.FeatureRingPacked} {
		r := newRig(t, 1, nil)
		r.a.start(f, 16)
		r.w.Lock()
		r.a.d.EnableQueue(1, false)
		at, quiet := r.a.ring[1].u, uint16(spec.UsedNoNotify)
		if f != 0 {
			at, quiet = at[2:], spec.EventDisable
		}
		store16(word16(at), quiet)
		r.a.d.EnableQueue(1, true)
		r.w.Unlock()
		r.run(4 * time.Microsecond)
		if v := load16(word16(at)); v != 0 {
			t.Errorf("%v: flags %d: nobody will say when there is something to be sent", f, v)
		}
	}
}

func TestINTxIsALevel(t *testing.T) {
	r := newRig(t, 3, nil)
	c := newCard(r.a, FunctionConfig{NoMSIX: true})
	c.start(0, 16, 0)
	send := func() {
		bus, _ := r.a.mem.alloc(112, 16)
		r.a.put(1, piece{bus, 112, false})
		c.ring(1)
		r.run(10 * time.Microsecond)
	}
	send()
	if _, err := c.f.Interrupts(1, func(v int) { c.fired[v]++ }); err != nil {
		t.Fatal(err)
	}
	if c.fired[0] != 1 {
		t.Errorf("%d interrupts for who listens while the line is up", c.fired[0])
	}
	c.bar.Read8(c.isr)
	command := c.get(cfgCommand, 2)
	c.conf(cfgCommand, 2, command|cmdINTxOff)
	if send(); c.fired[0] != 1 {
		t.Errorf("%d interrupts, which are disabled", c.fired[0])
	}
	if c.conf(cfgCommand, 2, command); c.fired[0] != 2 {
		t.Errorf("%d interrupts once they are enabled", c.fired[0])
	}
}

func TestNothingIsReceivedOnceARingIsBroken(t *testing.T) {
	n := &scripted{}
	r := newScripted(t, n, nil)
	r.a.start(0, 8)
	r.a.fill(0, 4, 512)
	le.PutUint16(r.a.ring[1].a[2:], 9) // further ahead than the ring is long
	r.a.kick(1)
	n.list = []link.Frame{{At: 0, Data: frameTo(macA, 64, 1)}, {At: 20000, Data: frameTo(macA, 64, 2)}}
	r.clk.Advance(10 * time.Microsecond)
	r.w.Step()
	if c := r.a.d.Counts(); c.NeedsReset != 1 || c.RxFrames != 0 || c.RxUnready != 1 {
		t.Errorf("%+v", c)
	}
	r.run(20 * time.Microsecond)
	if c := r.a.d.Counts(); c.RxUnready != 2 {
		t.Errorf("what comes later is left: %+v", c)
	}
}
