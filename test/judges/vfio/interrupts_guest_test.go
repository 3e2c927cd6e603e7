//go:build guest

package vfio

import (
	"math/rand/v2"
	"testing"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/wire"
)

// testQueueWakes sends one datagram to each of several queues in turn: whoever sleeps on that queue wakes, and nobody else.
func testQueueWakes(t *testing.T) {
	const queues = 4
	for target := range queues {
		p := openPair(t, pci.VFIO)
		table := make([]uint8, 128)
		for i := range table {
			table[i] = uint8(target)
		}
		a, b := p.stations(t, nic.Config{RxQueues: queues, RSS: nic.RSSConfig{Table: table}})
		var sleepers [queues]*nic.Waiter
		for q := range sleepers {
			sleepers[q] = p.waiter(t)
			if !b.port.Rx(q).Arm(sleepers[q]) {
				t.Fatalf("queue %d has frames, and nothing was sent", q)
			}
		}
		a.sendDatagram(b.port.Info().MAC)
		if woken, err := sleepers[target].Wait(p.clk.Nanos() + int64(wakeTime)); !woken || err != nil {
			t.Errorf("a datagram came on queue %d, and who sleeps there wakes: %v, %v", target, woken, err)
		}
		for q, w := range sleepers {
			if q == target {
				continue
			}
			if woken, _ := w.Wait(p.clk.Nanos() + int64(20*time.Millisecond)); woken {
				t.Errorf("a datagram came on queue %d, and queue %d woke", target, q)
			}
		}
		into := make([]*mbuf.Buf, 4)
		if n := b.port.Rx(target).Recv(into); n != 1 {
			t.Errorf("%d frames on queue %d, want 1", n, target)
		} else {
			into[0].Free()
		}
		a.close()
		b.close()
	}
	blameless(t)
}

// sendDatagram sends a UDP datagram, which RSS can hash.
func (s *station) sendDatagram(to [6]byte) {
	s.Helper()
	b := s.cache.Alloc()
	const payload = 32
	room, err := b.Reserve(wire.EthernetLen + wire.IPv4MinLen + wire.UDPLen + payload)
	if err != nil {
		s.Fatal(err)
	}
	eth, ip := room, room[wire.EthernetLen:]
	if _, err := wire.PutEthernet(eth, wire.EthernetFields{Dst: to, Src: s.port.Info().MAC, Type: wire.EtherTypeIPv4}); err != nil {
		s.Fatal(err)
	}
	_, err = wire.PutIPv4(ip, wire.IPv4Fields{TTL: 64, Proto: wire.ProtoUDP, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}, PayloadLen: wire.UDPLen + payload})
	if err != nil {
		s.Fatal(err)
	}
	if _, err := wire.PutUDP(ip[wire.IPv4MinLen:], wire.UDPFields{SrcPort: 4000, DstPort: 4001, PayloadLen: payload}); err != nil {
		s.Fatal(err)
	}
	if s.port.Tx(0).Send([]*mbuf.Buf{b}) != 1 {
		s.Fatal("a ring without frames is full")
	}
}

// testNoWakeIsLost is a receiver that sleeps whenever there is nothing, and a sender on a goroutine of its own that sends at
// every moment around that.
func testNoWakeIsLost(t *testing.T, access pci.Access, cycles int) {
	p := openPair(t, access)
	a, b := p.stations(t, nic.Config{})
	w := p.waiter(t)
	to := b.port.Info().MAC
	begin := make(chan time.Duration)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause := range begin {
			for at := p.clk.Nanos() + int64(pause); p.clk.Nanos() < at; {
			}
			a.port.Tx(0).Reclaim()
			a.send(to, 1, 100)
		}
	}()
	rng := rand.New(rand.NewPCG(3, 3))
	into := make([]*mbuf.Buf, 4)
	sleeps := 0
	for k := range cycles {
		begin <- time.Duration(rng.IntN(400)) * time.Microsecond
		for got := 0; got < 1; {
			if n := b.port.Rx(0).Recv(into); n > 0 {
				got += n
				into[0].Free()
				continue
			}
			if !b.port.Rx(0).Arm(w) {
				continue
			}
			sleeps++
			if woken, err := w.Wait(p.clk.Nanos() + int64(2*wakeTime)); !woken || err != nil {
				t.Fatalf("cycle %d: asleep while a frame waits: %v, %v; B: %+v", k, woken, err, b.port.Stats())
			}
		}
	}
	close(begin)
	<-done
	if sleeps < cycles/4 {
		t.Errorf("%d cycles, and only %d sleeps: the frames come before anybody can sleep", cycles, sleeps)
	}
	t.Logf("%d cycles, %d sleeps", cycles, sleeps)
	a.close()
	b.close()
	blameless(t)
}

// testLinkWakes takes the wire off and puts it back: who waits for that wakes, by the interrupt, without Housekeep.
func testLinkWakes(t *testing.T) {
	p := openPair(t, pci.VFIO)
	a, b := p.stations(t, nic.Config{})
	w := p.waiter(t)
	for _, up := range []bool{false, true, false, true} {
		if !b.port.ArmLink(w, b.port.Link()) {
			t.Fatal("the link has changed by itself")
		}
		mustAsk(t, `{"do":"link","card":1,"up":%t}`, up)
		if woken, err := w.Wait(p.clk.Nanos() + int64(2*wakeTime)); !woken || err != nil {
			t.Fatalf("the link is %t and nobody wakes: %v, %v", up, woken, err)
		}
		if b.port.Link().Up != up {
			t.Errorf("woken, and the link is %v, want %t", b.port.Link(), up)
		}
	}
	a.up()
	a.send(b.port.Info().MAC, 10, 300)
	b.receive(10)
	a.close()
	b.close()
	blameless(t)
}

// blameless fails when the cards have something to hold against the drivers.
func blameless(t testing.TB) {
	t.Helper()
	for _, m := range misuse() {
		t.Errorf("a card holds against the driver: %s", m)
	}
}
