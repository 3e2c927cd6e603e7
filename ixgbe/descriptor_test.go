package ixgbe_test

import (
	"context"
	"encoding/binary"
	"testing"

	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/nic82599"
)

// TestEmptyDescriptorsLeadNowhere looks at a receive ring in memory: what has no buffer has an address that no device can
// reach, so that a stray write faults, and a second word of 0, of which bit 0 would be DD.
func TestEmptyDescriptorsLeadNowhere(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{RxDesc: 64, Pool: r.pool(mbuf.Config{Size: 1024, Buffers: 256})})
	check := func(when string, empty map[int]bool) {
		t.Helper()
		bus := r.cards[1].Peek(reg.RDBAH(0))<<32 | r.cards[1].Peek(reg.RDBAL(0))
		ring, err := r.space.Bytes(bus, 64*16)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 64 {
			lo, hi := binary.LittleEndian.Uint64(ring[16*i:]), binary.LittleEndian.Uint64(ring[16*i+8:])
			// Not even an address that some bus could have: 0, or what the card wrote there, would be one.
			_, err := r.space.Bytes(lo, 1)
			if nowhere := err != nil && lo>>63 != 0; empty[i] != nowhere || hi != 0 {
				t.Errorf("%s: descriptor %d has address %#x (%v) and %#x", when, i, lo, err, hi)
			}
		}
	}
	check("at first", map[int]bool{63: true})
	r.send(5, 60) // of one buffer each …
	r.settle()
	if n := r.drain(1, 0); n != 5 {
		t.Fatal(n)
	}
	check("after five frames", map[int]bool{63: true, 0: true, 1: true, 2: true, 3: true, 4: true})
	r.send(2, 1500) // … and of two
	r.settle()
	if n := r.drain(1, 0); n != 2 {
		t.Fatal(n)
	}
	check("after two long ones", map[int]bool{63: true, 0: true, 1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true, 8: true})
	r.end()
}

// TestRequestsThatDoNotEndNeedTwoResets counts resets: one, or two with the transmit path flushed before them when bus
// requests do not end (specification update, clarification 9).
func TestRequestsThatDoNotEndNeedTwoResets(t *testing.T) {
	for _, sticky := range []bool{false, true} {
		r := newBareRig(t, rigConfig{faults: [2]nic82599.Faults{{StickyGIO: sticky}}})
		resets, flushes := 0, 0
		r.fns[0].onWrite32 = func(off, v uint32) {
			switch {
			case off == reg.CTRL && v&reg.CTRL_RST != 0:
				resets++
			case off == reg.GCR_EXT && v&reg.GCR_EXT_BUFFERS_CLEAR != 0:
				flushes++
				if resets%2 != 0 {
					t.Error("flushed between two resets, not before them")
				}
			}
		}
		p, err := r.open(0)
		if err != nil {
			t.Fatal(err)
		}
		r.ports[0] = p
		if err := p.Start(context.Background(), nic.Config{Pool: r.pool(mbuf.Config{})}); err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{false: 2, true: 4}[sticky]; resets != want || flushes != map[bool]int{false: 0, true: 2}[sticky] {
			t.Errorf("requests end %v: %d resets and %d flushes in Open and Start, want %d resets", !sticky, resets, flushes, want)
		}
		r.end()
	}
}

// TestAllOnesAloneIsNoRemoval has STATUS read all ones while configuration space answers.
func TestAllOnesAloneIsNoRemoval(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	r.fns[0].read = func(off, v uint32) uint32 {
		if off == reg.STATUS {
			return 0xffffffff
		}
		return v
	}
	r.housekeep()
	if err := r.ports[0].Err(); err != nil {
		t.Errorf("the card answers in configuration space: %v", err)
	}
	r.exchange(10)
	r.fns[0].read = nil
	r.end()
}
