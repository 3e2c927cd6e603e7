package mbuf

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestAccountIsChargedOnceForManyViews: by capacity, when the first view is charged, until the last has gone.
func TestAccountIsChargedOnceForManyViews(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	capacity := int64(DefaultHeadroom + DefaultSize)
	a := NewAccount(0, nil)
	b := c.Alloc()
	v := b.Clone(c)
	for _, x := range []*Buf{b, v, b} {
		x.Charge(a)
		if a.Bytes() != capacity {
			t.Fatalf("%d bytes, want %d", a.Bytes(), capacity)
		}
	}
	w := v.Clone(c)
	c.Free(b)
	v.Free()
	if a.Bytes() != capacity {
		t.Fatalf("%d bytes while a view lives, want %d", a.Bytes(), capacity)
	}
	c.Free(w)
	if a.Bytes() != 0 {
		t.Fatalf("%d bytes after the last view", a.Bytes())
	}
	// The block is nobody's in its next life.
	c.Free(c.Alloc())
	if a.Bytes() != 0 {
		t.Fatalf("%d bytes: a free block is still charged", a.Bytes())
	}
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}

// TestChargeCoversEverySegmentAndMoves from one account to another, and to none.
func TestChargeCoversEverySegmentAndMoves(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16, Size: 100, Headroom: 28})
	c := p.NewCache()
	var q Chain
	for range 3 {
		b := c.Alloc()
		if _, err := b.Reserve(10); err != nil {
			t.Fatal(err)
		}
		q.Append(b)
	}
	reader, sender := NewAccount(0, nil), NewAccount(0, nil)
	state := func(what string, r, s int64) {
		t.Helper()
		if reader.Bytes() != r || sender.Bytes() != s {
			t.Errorf("%s: %d and %d bytes, want %d and %d", what, reader.Bytes(), sender.Bytes(), r, s)
		}
	}
	q.Head().Charge(reader)
	state("charged", 3*128, 0)
	front, err := q.Split(c, 15)
	if err != nil {
		t.Fatal(err)
	}
	front.Head().Charge(sender) // the block that the cut goes through moves too
	state("moved", 128, 2*128)
	q.Head().Charge(nil)
	state("charge ended", 0, 128)
	front.Free()
	state("front freed", 0, 0)
	q.Head().Charge(sender)
	state("charged again", 0, 2*128)
	q.Free()
	state("freed", 0, 0)
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}

// TestWakeComesExactlyAtTheCrossing from above the threshold to it or below, once for each crossing, on whatever goroutine
// frees.
func TestWakeComesExactlyAtTheCrossing(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16, Size: 100, Headroom: -1})
	c := p.NewCache()
	for _, test := range []struct {
		threshold int64
		wakeAt    int // buffers left when wake is due; -1: never
	}{{0, 0}, {99, 0}, {100, 1}, {250, 2}, {399, 3}, {400, -1}, {1000, -1}, {-1, -1}} {
		wakes := 0
		a := NewAccount(test.threshold, func() { wakes++ })
		for range 2 { // the second time as the first
			wakes = 0
			var bufs []*Buf
			for range 4 {
				b := c.Alloc()
				b.Charge(a)
				bufs = append(bufs, b)
			}
			for left := 3; left >= 0; left-- {
				before := wakes
				done := make(chan struct{})
				go func() {
					bufs[left].Free()
					close(done)
				}()
				<-done
				if want := left == test.wakeAt; (wakes == before+1) != want || wakes > before+1 {
					t.Errorf("threshold %d, %d buffers left: woken %d times, want %v", test.threshold, left, wakes-before, want)
				}
			}
		}
	}
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}

// TestChargingAgainIsNoCredit: nothing crosses the threshold.
func TestChargingAgainIsNoCredit(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	a := NewAccount(DefaultHeadroom+DefaultSize+10, func() { t.Error("woken") })
	b := c.Alloc()
	for range 3 {
		b.Charge(a)
	}
	c.Free(b)
	c.Close()
	closePool(t, p)
}

// TestMovingAChargeWakesToo: it is a credit like any other.
func TestMovingAChargeWakesToo(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	var wakes, otherWakes int
	a, other := NewAccount(0, func() { wakes++ }), NewAccount(0, func() { otherWakes++ })
	b := c.Alloc()
	b.Charge(a)
	b.Charge(other)
	if wakes != 1 || otherWakes != 0 {
		t.Errorf("woken %d and %d times, want once and never", wakes, otherWakes)
	}
	b.Charge(nil)
	if wakes != 1 || otherWakes != 1 {
		t.Errorf("woken %d and %d times, want once each", wakes, otherWakes)
	}
	c.Free(b)
	c.Close()
	closePool(t, p)
}

// TestCreditsFromManyGoroutinesCrossOnce frees from many goroutines what was charged: one wake, not none and not two.
func TestCreditsFromManyGoroutinesCrossOnce(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 256, Size: 64, ReserveReceive: -1, ReserveControl: -1})
	c := p.NewCache()
	for range 50 {
		var wakes atomic.Int32
		a := NewAccount(1000, func() { wakes.Add(1) })
		bufs := drain(c)
		for _, b := range bufs {
			b.Charge(a)
		}
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := w; i < len(bufs); i += 4 {
					bufs[i].Free()
				}
			})
		}
		wg.Wait()
		if wakes.Load() != 1 || a.Bytes() != 0 {
			t.Fatalf("woken %d times, %d bytes left", wakes.Load(), a.Bytes())
		}
	}
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}

// TestTwoViewsChargedAtTheSameTime, to different accounts: one of them has the block.
func TestTwoViewsChargedAtTheSameTime(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	a, other := NewAccount(0, nil), NewAccount(0, nil)
	for range 500 {
		b := c.Alloc()
		v := b.Clone(c)
		var wg sync.WaitGroup
		wg.Go(func() { b.Charge(a) })
		wg.Go(func() { v.Charge(other) })
		wg.Wait()
		if a.Bytes()+other.Bytes() != int64(b.Capacity()) || a.Bytes() != 0 && other.Bytes() != 0 {
			t.Fatalf("%d and %d bytes for a block of %d", a.Bytes(), other.Bytes(), b.Capacity())
		}
		wg.Go(v.Free)
		wg.Go(b.Free)
		wg.Wait()
		if a.Bytes() != 0 || other.Bytes() != 0 {
			t.Fatalf("%d and %d bytes are left", a.Bytes(), other.Bytes())
		}
	}
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}
