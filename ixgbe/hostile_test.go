package ixgbe_test

import (
	"encoding/binary"
	"testing"

	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

// forge writes receive descriptors of port i's queue 0 as a card that is up to no good would.
type forge struct {
	ring []byte
	next int
}

func (r *rig) forge(i int) *forge {
	r.Helper()
	c := r.cards[i]
	bus := c.Peek(reg.RDBAH(0))<<32 | c.Peek(reg.RDBAL(0))
	ring, err := r.space.Bytes(bus, int(c.Peek(reg.RDLEN(0))))
	if err != nil {
		r.Fatal(err)
	}
	return &forge{ring: ring}
}

// done writes back the next descriptor: length bytes, and more bits of the second word.
func (f *forge) done(length int, more uint64) {
	d := f.ring[16*f.next:]
	binary.LittleEndian.PutUint64(d, 0)
	binary.LittleEndian.PutUint64(d[8:], uint64(length)<<32|reg.RXD_DD|more)
	f.next = (f.next + 1) % (len(f.ring) / 16)
}

// TestACardThatNeverEndsAFrameTakesNoBuffers writes back parts of a frame for ever, of every length that a part can claim.
func TestACardThatNeverEndsAFrameTakesNoBuffers(t *testing.T) {
	for _, length := range []int{0, 1, 1024, 2048, 2049, 0xffff} {
		r := newRig(t, rigConfig{})
		rx := r.pool(mbuf.Config{Buffers: 4096})
		r.startPort(1, nic.Config{Pool: rx, RxDesc: 64})
		f := r.forge(1)
		into := make([]*mbuf.Buf, 8)
		most := 0
		for range 5000 {
			f.done(length, 0)
			if n := r.ports[1].Port.Rx(0).Recv(into); n != 0 {
				t.Fatalf("parts of %d bytes: a frame of %d bytes came", length, into[0].FrameLen())
			}
			most = max(most, r.ports[1].ixgbe.PartialSegs(0))
		}
		if limit := 1518; most > limit {
			t.Errorf("parts of %d bytes: a frame of %d of them is held", length, most)
		}
		f.done(60, reg.RXD_EOP) // the end, at last, of a frame that is too long
		if n := r.ports[1].Port.Rx(0).Recv(into); n != 0 {
			t.Errorf("parts of %d bytes: the frame came", length)
		}
		f.done(60, reg.RXD_EOP)
		n := r.ports[1].Port.Rx(0).Recv(into)
		if n != 1 || into[0].FrameLen() != 60 {
			t.Fatalf("parts of %d bytes: the next frame does not come", length)
		}
		into[0].Free()
		if s := r.ports[1].Stats(); s.RxErrors != 1 {
			t.Errorf("parts of %d bytes: %d errors, want 1", length, s.RxErrors)
		}
		for _, p := range r.ports {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		r.home() // every buffer is back
	}
}

// TestNobodySleepsOnARingWithoutBuffers has a pool that is out in full: no frame can come, so nobody would wake.
func TestNobodySleepsOnARingWithoutBuffers(t *testing.T) {
	r := newRig(t, rigConfig{})
	pool := r.pool(mbuf.Config{Buffers: 8, ReserveReceive: -1, ReserveControl: -1})
	cache := pool.NewCache()
	var held []*mbuf.Buf
	for b := cache.Alloc(); b != nil; b = cache.Alloc() {
		held = append(held, b)
	}
	r.startPort(1, nic.Config{Pool: pool})
	w, err := nic.NewWaiter(r.clk)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	rx := r.ports[1].Port.Rx(0)
	if rx.Arm(w) {
		t.Error("Arm says that one may sleep, with not one buffer in the ring")
	}
	held[0].Free()
	if !rx.Arm(w) {
		t.Error("there is a buffer in the ring, and Arm says that one may not sleep")
	}
	for _, b := range held[1:] {
		b.Free()
	}
	cache.Close()
	r.end()
}
