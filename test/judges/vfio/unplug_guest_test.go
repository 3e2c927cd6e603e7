//go:build guest

package vfio

import (
	"os"
	"testing"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/test/guest"
)

// drain receives and frees what comes, until the port has gone.
func (s *station) drain() {
	into := make([]*mbuf.Buf, 32)
	for s.port.Err() == nil {
		n := s.port.Rx(0).Recv(into)
		for _, b := range into[:n] {
			b.Free()
		}
		if n == 0 {
			pause(time.Millisecond)
		}
	}
}

// testUnplugged has the kernel want a card back under load, as for a hot-unplug (VFIO's request interrupt): the port says that
// it has gone, its buffers come back, Close lets go, and only then is the device taken away. It comes back, and works.
func testUnplugged(t *testing.T) {
	p := openPair(t, pci.VFIO)
	a, b := p.stations(t, nic.Config{})
	stop := a.background(b.port.Info().MAC)
	removed := make(chan error, 1)
	go func() {
		pause(50 * time.Millisecond)
		removed <- os.WriteFile("/sys/bus/pci/devices/"+cards[1]+"/remove", []byte("1"), 0)
	}()
	b.drain() // ends because the port has gone
	isGone(t, b.port.Err())
	contains(t, b.port.Err(), cards[1])
	pause(settleTime) // the queues stand still a little later
	w := p.waiter(t)
	if b.port.Rx(0).Arm(w) {
		t.Error("one may sleep on a port that has gone")
	}
	pause(settleTime)
	select {
	case err := <-removed:
		t.Errorf("the kernel took the device away before it was closed: %v", err)
	default:
	}
	if err := b.port.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := <-removed; err != nil {
		t.Errorf("remove: %v", err)
	}
	stop()
	b.home()
	if err := a.port.Err(); err != nil {
		t.Errorf("the other port: %v", err)
	}
	a.close()
	rescan(t)
	p = openPair(t, pci.VFIO)
	a, b = p.stations(t, nic.Config{})
	a.send(b.port.Info().MAC, 20, 500)
	b.receive(20)
	a.close()
	b.close()
	blameless(t)
}

// rescan lets the kernel find what was removed, and gives it to VFIO.
func rescan(t testing.TB) {
	t.Helper()
	if err := os.WriteFile("/sys/bus/pci/rescan", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "the card is back", func() bool {
		_, err := os.Stat("/sys/bus/pci/devices/" + cards[1])
		return err == nil
	})
	bind(t, "vfio-pci")
}

// testPulledOut removes a card under load without a word: its registers read all ones. The port finds out, its buffers come
// back, Close works, and so does the other card.
func testPulledOut(t *testing.T) {
	p := openPair(t, pci.VFIO)
	a, b := p.stations(t, nic.Config{})
	stop := a.background(b.port.Info().MAC)
	pause(50 * time.Millisecond)
	mustAsk(t, `{"do":"remove","card":1}`)
	within(t, 30*time.Second, "the port has gone", func() bool {
		b.port.Housekeep(realTime.Now())
		return b.port.Err() != nil
	})
	isGone(t, b.port.Err())
	into := make([]*mbuf.Buf, 8)
	if n := b.port.Rx(0).Recv(into); n != 0 {
		t.Errorf("%d frames from a card that is not there", n)
	}
	stop()
	began := realTime.Now()
	if err := b.port.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	t.Logf("closed after %v (the kernel waits for a reset of a card that does not answer)", realTime.Now().Sub(began).Round(time.Millisecond))
	b.home()
	if err := a.port.Err(); err != nil {
		t.Errorf("the other port: %v", err)
	}
	a.close()
	if _, err := p.open(cards[1]); err == nil {
		t.Error("a card that is not there can be opened")
	} else {
		t.Logf("opened again: %v", err)
	}
	if got := guest.Driver(cards[0]); got != "vfio-pci" {
		t.Errorf("the other card's driver is %q", got)
	}
	port, err := p.open(cards[0])
	if err != nil {
		t.Fatalf("the other card: %v", err)
	}
	if err := port.Close(); err != nil {
		t.Error(err)
	}
}
