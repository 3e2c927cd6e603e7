//go:build guest

package virtio

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"bare.wire/nic"
	"bare.wire/test/judges/internal/frames"
	"bare.wire/virtio/spec"
)

// everything is what a card of a cell can do and the checks use: all its queues, all offloads but joined segments.
func (s *station) everything() nic.Config {
	info := s.port.Info()
	return nic.Config{RxQueues: info.RxQueues, TxQueues: info.TxQueues, Offloads: offloads & info.Offloads}
}

// judge is what every cell has to bear.
func judge(t *testing.T, c card, addr string) {
	c.bind(t, addr)
	begun := realTime.Now()
	s := open(t, c, addr, spec.Restriction{})
	s.start(s.everything())
	var took []string
	for _, check := range []struct {
		what string
		do   func()
	}{
		{"agreement", s.testAgreement},
		{"lengths", s.testEveryLength},
		{"counts", s.testCounts},
		{"segments", s.testSegments},
		{"queues", s.testQueues},
		{"sleep", func() { s.testSleep(times(20, 200)) }},
		{"offloads", s.testTxOffloads},
		{"received", s.testRxOffloads},
		{"stream", func() { s.testStream(20000, uint64(times(1<<18, 1<<20))) }},
		{"joined", func() { s.again(s.joined()); s.testRxOffloads() }},
		{"stream, joined", func() { s.testStream(20002, uint64(times(1<<18, 1<<20))) }},
		{"plain", func() { s.again(nic.Config{}); s.testRxOffloads() }}, // nothing is left to the card, or by it
		{"stream, plain", func() { s.testStream(20004, 1<<17) }},
		{"filters", func() { s.again(nic.Config{VLANFilter: true}); s.testFilters() }},
		{"link", s.testLink},
		{"start and stop", func() { s.testStartStop(times(10, 50)) }},
	} {
		at := realTime.Now()
		check.do()
		took = append(took, fmt.Sprintf("%s %v", check.what, since(at)))
	}
	s.close()
	t.Logf("%v: %s", since(begun), strings.Join(took, ", "))
}

// joined is everything, and segments joined.
func (s *station) joined() nic.Config {
	cfg := s.everything()
	cfg.Offloads |= nic.RxGSO & s.port.Info().Offloads
	return cfg
}

// again stops and starts with another configuration.
func (s *station) again(cfg nic.Config) {
	s.Helper()
	if err := s.port.Stop(); err != nil {
		s.Fatal(err)
	}
	s.start(cfg)
}

// testAgreement compares the features that were agreed on with what the cell is.
func (s *station) testAgreement() {
	s.Helper()
	c, f := s.card, s.port.Negotiated()
	for _, x := range []struct {
		f    spec.Features
		want bool
	}{
		{spec.FeatureVersion1, !c.legacy},
		{spec.FeatureAccessPlatform, !c.legacy && !c.sysfs},
		{spec.FeatureRingPacked, c.packed && !c.legacy},
		{spec.FeatureMrgRxBuf, c.mergeable},
		{spec.FeatureEventIdx, c.eventIdx},
		{spec.FeatureMQ, c.pairs > 1},
		{spec.FeatureRingReset, !c.legacy},
		{spec.FeatureInOrder, false},
		{spec.FeatureIndirectDesc, true},
		{spec.FeatureCtrlVQ | spec.FeatureCtrlRx, true},
		{spec.FeatureCtrlVLAN, s.cfg.VLANFilter},
		{spec.FeatureCSum | spec.FeatureHostTSO4 | spec.FeatureHostTSO6 | spec.FeatureGuestCSum, true},
		{spec.FeatureMAC | spec.FeatureStatus, true},
	} {
		if x.want != f.Has(x.f) {
			s.Errorf("%v: agreed on is %v, want %v; offered are %v", x.f, f.Has(x.f), x.want, s.port.Offered())
		}
	}
	if got := s.port.Info().MAC; got != c.mac() {
		s.Errorf("the MAC address is %x, want %x", got, c.mac())
	}
	if got := s.port.Info().RxQueues; got != c.pairs {
		s.Errorf("the card has %d queue pairs, want %d", got, c.pairs)
	}
}

// testEveryLength has a frame of every length come back.
func (s *station) testEveryLength() {
	s.Helper()
	s.card.ask(s, question{Do: "reset"})
	step := times(7, 1)
	lengths := everyLength(frames.MinLen, 1514, step)
	s.exchange(lengths)
	total := uint64(0)
	for _, n := range lengths {
		total += uint64(n)
	}
	a := s.card.ask(s, question{Do: "counts"})
	if a.Frames != uint64(len(lengths)) || a.Bytes != total || a.Echoed != a.Frames || len(a.Wrong) > 0 {
		s.Errorf("the host has counted %+v, want %d frames, %d bytes", a.counts, len(lengths), total)
	}
}

// testCounts has host and driver count the same frames, those of a burst from the host too.
func (s *station) testCounts() {
	s.Helper()
	before := s.port.Stats()
	s.card.ask(s, question{Do: "reset"})
	const sink, burstLen = 37, 200
	for i := range sink {
		s.patterned(i%s.cfg.TxQueues, frames.Sink, 100+i)
	}
	s.exchange(everyLength(500, 600, 10))
	s.card.ask(s, question{Do: "burst", Burst: burst{To: s.card.mac(), From: s.card.peerMAC(), First: 1 << 20, Count: burstLen, Least: 60, Max: 1514}})
	got := s.expect(burstLen, "frames of a burst", isPatterned)
	for i, r := range got {
		if wrong := frames.WrongPattern(r.bytes); wrong != "" {
			s.Error(wrong)
		}
		if number := binary.BigEndian.Uint32(r.bytes[frames.PatternNumber:]); s.cfg.RxQueues == 1 && number != uint32(1<<20+i) {
			s.Fatalf("frame %d of a burst has number %d", i, number)
		}
	}
	s.within(patience, "the host gets all frames", func() bool { return s.card.ask(s, question{Do: "counts"}).Frames >= sink+11 })
	a, after := s.card.ask(s, question{Do: "counts"}), s.port.Stats()
	rxBytes := a.Bytes
	for i := range sink {
		rxBytes -= uint64(100 + i)
	}
	for _, r := range got {
		rxBytes += uint64(len(r.bytes))
	}
	var queues nic.QueueStats
	for _, q := range after.Queues {
		queues.RxBytes += q.RxBytes
		queues.TxBytes += q.TxBytes
	}
	for _, x := range []struct {
		what      string
		got, want uint64
	}{
		{"bytes received, of all queues", after.RxBytes, queues.RxBytes},
		{"bytes sent, of all queues", after.TxBytes, queues.TxBytes},
		{"sent", after.TxPackets - before.TxPackets, a.Frames},
		{"bytes sent", after.TxBytes - before.TxBytes, a.Bytes},
		{"received", after.RxPackets - before.RxPackets, a.Echoed + burstLen},
		{"bytes received", after.RxBytes - before.RxBytes, rxBytes},
		{"errors", after.RxErrors + after.TxErrors + after.RxNoBuf + after.Quarantined, 0},
	} {
		if x.got != x.want {
			s.Errorf("%s: the driver has counted %d, the host %d", x.what, x.got, x.want)
		}
	}
}

// testSegments sends frames of many segments.
func (s *station) testSegments() {
	s.Helper()
	s.card.ask(s, question{Do: "reset"})
	n := 0
	for _, length := range []int{60, 200, 1000, 1514} {
		for _, most := range []int{19, 100, 700} {
			if (length+most-1)/most > s.port.Info().MaxSegs {
				continue
			}
			s.number++
			f := make([]byte, length)
			frames.PutPattern(f, s.card.peerMAC(), s.port.Info().MAC, s.number, frames.Sink)
			s.send(0, s.load(f, most))
			n++
		}
	}
	var a answer
	s.within(patience, "the host gets all frames", func() bool {
		a = s.card.ask(s, question{Do: "counts"})
		return a.Frames >= uint64(n)
	})
	if len(a.Wrong) > 0 || a.Frames != uint64(n) {
		s.Errorf("frames of several segments: %+v", a.counts)
	}
}

// flow is a datagram for the host's echo port.
func (s *station) flow(port uint16, payload int) frames.Datagram {
	d := s.kinds(payload)[0]
	d.SrcPort, d.DstPort = port, portEcho
	return d
}

// testQueues sends datagrams of many flows on every queue. The host's kernel sends what it has for a flow to the queue on which it has
// had something of that flow last (Documentation/networking/tuntap.rst).
func (s *station) testQueues() {
	s.Helper()
	const flows = 16
	for q := range s.cfg.TxQueues {
		for i := range flows {
			d := s.flow(uint16(30000+q*flows+i), 100+i)
			s.send(q, s.load(d.Whole(), 0))
			back := d.Backwards()
			back.SrcPort, back.DstPort = d.DstPort, d.SrcPort
			r := s.expect(1, "answers", mine(back))[0]
			if wrong := frames.Difference(r.bytes, back.Whole()); string(r.bytes) != string(back.Whole()) {
				s.Errorf("flow %d of queue %d: %s", i, q, wrong)
			}
			if r.queue != q && s.cfg.RxQueues > 1 {
				s.Errorf("flow %d was sent on queue %d, and answered on %d", i, q, r.queue)
			}
		}
	}
	if s.cfg.RxQueues == 1 {
		return
	}
	for q, n := range s.port.Stats().Queues {
		if n.RxPackets == 0 || n.TxPackets == 0 {
			s.Errorf("queue %d has had %d frames in and %d out", q, n.RxPackets, n.TxPackets)
		}
	}
}

// testSleep has a worker sleep between frames: each wakes it.
func (s *station) testSleep(rounds int) {
	s.Helper()
	var queues []nic.Armer
	for q := range s.cfg.RxQueues {
		queues = append(queues, s.port.Rx(q))
	}
	for q := range s.cfg.TxQueues {
		queues = append(queues, s.port.Tx(q))
	}
	idle, rng := nic.NewIdle(s.waiter, 2, queues...), rand.New(rand.NewPCG(7, 7))
	for i := range rounds {
		q := i % s.cfg.TxQueues
		d := s.flow(uint16(31000+q), 50)
		s.send(q, s.load(d.Whole(), 0))
		back := d.Backwards()
		back.SrcPort, back.DstPort = d.DstPort, d.SrcPort
		s.sleep(idle, "an answer", mine(back))
		if rng.IntN(4) == 0 {
			pause(time.Duration(rng.IntN(3000)) * time.Microsecond)
		}
	}
}

// testFilters has frames come by the addresses and VLANs that are let in, and no others.
func (s *station) testFilters() {
	s.Helper()
	f := s.port.Filters()
	mine, other := s.card.mac(), [6]byte{2, 9, 9, 9, 9, 9}
	group := [6]byte{0x33, 0x33, 9, 9, 9, 9}
	number := uint32(1 << 24)
	comes := func(what string, to [6]byte, tag uint16, want bool) {
		s.Helper()
		number += 16
		// A frame for the card itself follows; when it is there, the first was let in or not.
		first, second := s.fromHost(to, number), s.fromHost(mine, number+1)
		if tag != 0 {
			first = frames.TagAt(first, frames.VnetLen+12, tag)
		}
		s.card.ask(s, question{Do: "send", Frames: [][]byte{first, second}})
		came := false
		s.expect(1, "frames", func(r received) bool {
			at := frames.PatternNumber
			if len(r.bytes) > 18 && binary.BigEndian.Uint16(r.bytes[12:]) == 0x8100 {
				at += 4
			}
			if len(r.bytes) < at+4 {
				return false
			}
			got := binary.BigEndian.Uint32(r.bytes[at:])
			came = came || got == number
			return got == number+1
		})
		if came != want {
			s.Errorf("%s: came %v, want %v", what, came, want)
		}
	}
	do := func(err error) {
		s.Helper()
		if err != nil {
			s.Error(err)
		}
	}
	broadcast := [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	comes("a broadcast", broadcast, 0, true)
	comes("another station's", other, 0, false)
	comes("a group's", group, 0, false)
	do(f.AddMAC(other))
	do(f.AddMAC(group))
	comes("a second address", other, 0, true)
	comes("a group that was joined", group, 0, true)
	do(f.RemoveMAC(other))
	do(f.RemoveMAC(group))
	comes("an address that was given up", other, 0, false)
	comes("a group that was left", group, 0, false)
	do(f.SetAllMulticast(true))
	comes("any group's", group, 0, true)
	comes("another station's, with all groups let in", other, 0, false)
	do(f.SetAllMulticast(false))
	do(f.SetPromiscuous(true))
	comes("another station's, promiscuous", other, 0, true)
	comes("a group's, promiscuous", group, 0, true)
	do(f.SetPromiscuous(false))
	comes("another station's, no longer promiscuous", other, 0, false)
	comes("a tagged frame without a VLAN filter", mine, 5, true)
	do(f.AddVLAN(5))
	comes("a VLAN that was added", mine, 5, true)
	comes("another VLAN", mine, 6, false)
	do(f.RemoveVLAN(5))
	comes("a tagged frame, no VLAN filter again", mine, 6, true)
}

// fromHost is a patterned frame for the host to send, with its header.
func (s *station) fromHost(to [6]byte, number uint32) []byte {
	f := make([]byte, frames.VnetLen+100)
	frames.PutPattern(f[frames.VnetLen:], to, s.card.peerMAC(), number, frames.Sink)
	return f
}

// testLink pulls the cable: the port hears of it, and frames flow again when it is back.
func (s *station) testLink() {
	s.Helper()
	for _, up := range []bool{false, true} {
		armed := s.port.ArmLink(s.waiter, s.port.Link())
		s.card.cable(s, up)
		if armed && !s.card.sysfs { // without interrupts nobody is told
			if woken, err := s.waiter.Wait(realTime.Nanos() + int64(patience)); !woken || err != nil {
				s.Errorf("the link is up %v, and who waits for that wakes: %v, %v", up, woken, err)
			}
		}
		s.within(patience, "the link changes", func() bool {
			s.port.Housekeep(realTime.Now())
			return s.port.Link().Up == up
		})
	}
	s.exchange(everyLength(60, 200, 10))
}

// testStartStop stops with frames on their way and starts again, many times.
func (s *station) testStartStop(rounds int) {
	s.Helper()
	s.late = true
	defer func() { s.late = false }()
	info := s.port.Info()
	for i := range rounds {
		cfg := nic.Config{RxDesc: max(info.MinDesc, 2<<(i%8)), TxDesc: max(info.MinDesc, 2<<(i%7))}
		if s.card.pairs > 1 {
			cfg.RxQueues, cfg.TxQueues = 1+i%s.card.pairs, 1+i/2%s.card.pairs
		}
		s.again(cfg)
		s.exchange(everyLength(60, 1514, 200))
		for range 8 { // what stands in the rings at the stop
			s.patterned(0, frames.Echo, 600)
		}
	}
	s.again(s.everything())
	if got := s.port.Negotiated(); got.Has(spec.FeatureVersion1) == s.card.legacy {
		s.Errorf("agreed on are %v", got)
	}
	s.quiet(20*time.Millisecond, func(received) bool { return false })
	s.exchange(everyLength(60, 1514, 50))
}
