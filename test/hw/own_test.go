package hw

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"bare.wire/ixgbe"
	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/wire"
)

// testLoopbackIsOn reads back that the MAC returns what it sends.
func testLoopbackIsOn(t *testing.T, s *station) {
	s.start(nic.Config{})
	d, ok := s.port.(dumper)
	if !ok {
		t.Log("a software card shows no registers: not looked at")
		return
	}
	for _, r := range d.Dump() {
		if r.Offset == reg.HLREG0 && r.Value&reg.HLREG0_LPBK == 0 {
			t.Errorf("started with loopback, and HLREG0 is %08x: frames go out on the wire", r.Value)
		}
	}
	s.stop()
}

// dumper is the driver of a card that has registers.
type dumper interface{ Dump() []ixgbe.Register }

// testEachQueueWakes sends a datagram to each queue in turn: who sleeps on that queue wakes.
func testEachQueueWakes(t *testing.T, s *station) {
	queues := s.port.Info().RSSQueues
	s.start(nic.Config{RxQueues: queues, RxDesc: 64})
	for q := range queues {
		w, err := nic.NewWaiter(s.set.Clock)
		if err != nil {
			t.Fatal(err)
		}
		s.wakes(w, q, portFor(q, queues))
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	s.stop()
}

// Addresses of datagrams, and the port that they go to.
var (
	srcIP, dstIP = [4]byte{10, 0, 0, 1}, [4]byte{10, 0, 0, 2}
	dstPort      = uint16(4001)
)

// portFor is a source port with which RSS gives a datagram to queue q: queues in turn, by the low 7 bits of the hash.
func portFor(q, queues int) uint16 {
	for p := uint16(1024); ; p++ {
		in := slices.Concat(srcIP[:], dstIP[:])
		in = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(in, p), dstPort)
		if int(nic.Toeplitz(nic.DefaultRSSKey(), in)&127)%queues == q {
			return p
		}
	}
}

// wakes sends a datagram that queue q gets, and sleeps on q until it has come. The port's own sending may wake too, when its
// queue has the same interrupt.
func (s *station) wakes(w *nic.Waiter, q int, port uint16) {
	s.Helper()
	rx := s.port.Rx(q)
	if !rx.Arm(w) {
		s.Fatalf("queue %d has frames, and nothing was sent", q)
	}
	if s.port.Tx(0).Send([]*mbuf.Buf{s.datagram(port, 32)}) != 1 {
		s.Fatal("a ring without frames is full")
	}
	into := make([]*mbuf.Buf, 4)
	for {
		if woken, err := w.Wait(s.set.Clock.Nanos() + int64(wakeTime)); !woken || err != nil {
			s.Errorf("a datagram comes on queue %d, and who sleeps there does not wake: %v, %v", q, woken, err)
		} else if rx.Arm(w) {
			continue
		}
		n := rx.Recv(into)
		if n != 1 {
			s.Errorf("%d frames on queue %d, want 1", n, q)
		}
		free(into[:n])
		return
	}
}

func free(bufs []*mbuf.Buf) {
	for _, b := range bufs {
		b.Free()
	}
}

// datagram is a UDP datagram for the port, which RSS can hash.
func (s *station) datagram(port uint16, payload int) *mbuf.Buf {
	s.Helper()
	b := s.cache.Alloc()
	if b == nil {
		s.Fatalf("the pool is dry: %+v", s.pool.Stats())
	}
	room, err := b.Reserve(wire.EthernetLen + wire.IPv4MinLen + wire.UDPLen + payload)
	if err != nil {
		s.Fatal(err)
	}
	clear(room)
	mac := s.port.Info().MAC
	if _, err := wire.PutEthernet(room, wire.EthernetFields{Dst: mac, Src: mac, Type: wire.EtherTypeIPv4}); err != nil {
		s.Fatal(err)
	}
	ip := room[wire.EthernetLen:]
	if _, err := wire.PutIPv4(ip, wire.IPv4Fields{TTL: 64, Proto: wire.ProtoUDP, Src: srcIP, Dst: dstIP, PayloadLen: wire.UDPLen + payload}); err != nil {
		s.Fatal(err)
	}
	if _, err := wire.PutUDP(ip[wire.IPv4MinLen:], wire.UDPFields{SrcPort: port, DstPort: dstPort, PayloadLen: payload}); err != nil {
		s.Fatal(err)
	}
	return b
}

// testCountersBeyond32Bits sends more bytes than 32 bits can count, which takes 4 s at 10 Gb/s, and compares the totals with
// what was sent. A software card would take minutes: there it sends for a moment.
func testCountersBeyond32Bits(t *testing.T, s *station) {
	const size = 1500
	limit := 20 * time.Second
	if !realCard() {
		limit = 5 * time.Millisecond
	}
	s.start(nic.Config{RxDesc: 4096, TxDesc: 512})
	rx, tx := s.port.Rx(0), s.port.Tx(0)
	var sent, got, bytes uint64
	into, bufs := make([]*mbuf.Buf, 64), make([]*mbuf.Buf, 0, 64)
	begin, seen := s.set.Clock.Nanos(), s.port.Stats()
	housekept := begin
	for now := begin; now < begin+int64(limit) && bytes < math.MaxUint32+1<<20; now = s.set.Clock.Nanos() {
		if now-housekept > int64(time.Second) {
			housekept = now
			s.port.Housekeep(s.set.Clock.Now())
			next := s.port.Stats()
			if next.TxBytes < seen.TxBytes || next.RxBytes < seen.RxBytes {
				t.Fatalf("the totals go back: %+v, then %+v", seen, next)
			}
			seen = next
		}
		for tx.Reclaim(); len(bufs) < 32; {
			bufs = append(bufs, s.datagram(4000, size-wire.EthernetLen-wire.IPv4MinLen-wire.UDPLen))
		}
		n := tx.Send(bufs)
		sent, bytes = sent+uint64(n), bytes+uint64(n)*size
		bufs = append(bufs[:0], bufs[n:]...)
		for k := -1; k != 0; got += uint64(k) {
			k = rx.Recv(into)
			free(into[:k])
		}
		if !realCard() {
			settle(t, s.set)
		}
	}
	free(bufs)
	settle(t, s.set)
	for k := -1; k != 0; got += uint64(k) {
		k = rx.Recv(into)
		free(into[:k])
	}
	st := s.port.Stats()
	if st.TxPackets != sent || st.TxBytes != bytes {
		t.Errorf("%d frames of %d bytes sent, and the card counts %d and %d", sent, bytes, st.TxPackets, st.TxBytes)
	}
	if lost := st.RxMissed + st.RxNoDesc; st.RxPackets != got || got+lost != sent || st.RxBytes != got*size {
		t.Errorf("%d frames sent, %d received; the card counts %d received of %d bytes, %d lost", sent, got, st.RxPackets, st.RxBytes, lost)
	}
	if bytes <= math.MaxUint32 {
		t.Logf("only %d bytes in %v: not looked at: counters beyond 32 bits", bytes, limit)
	} else {
		t.Logf("%d bytes in %v", bytes, time.Duration(s.set.Clock.Nanos()-begin))
	}
	s.stop()
}
