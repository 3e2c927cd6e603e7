package mbuf

import (
	"fmt"
	"testing"
)

// drain allocates until the cache says no.
func drain(c *Cache) []*Buf {
	var bufs []*Buf
	for b := c.Alloc(); b != nil; b = c.Alloc() {
		bufs = append(bufs, b)
	}
	return bufs
}

func TestEveryBlockCanBeAllocatedAndComesBack(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 8, 64, 65, 300, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			p := newTestPool(t, Config{Buffers: n, ReserveReceive: -1, ReserveControl: -1, Size: 64})
			c := p.NewCache()
			bufs := drain(c)
			seen := make(map[uint64]bool)
			for _, b := range bufs {
				seen[b.Bus()] = true
			}
			if len(bufs) != n || len(seen) != n {
				t.Fatalf("%d buffers at %d addresses of %d", len(bufs), len(seen), n)
			}
			if p.Close() == nil {
				t.Fatal("Close with buffers out must fail")
			}
			for i, b := range bufs {
				if i%2 == 0 {
					b.Free()
				} else {
					c.Free(b)
				}
			}
			checkHome(t, p, c)
			c.Close()
			if s := p.Stats(); s.Out != 0 || s.Free != n || s.Failed[Normal] != 1 {
				t.Fatalf("%+v", s)
			}
			closePool(t, p)
		})
	}
}

func TestAFreshBufferIsEmptyBehindItsHeadroom(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 4})
	c := p.NewCache()
	b := c.Alloc()
	b.SetInfo(RxHash, 7)
	b.SetTxFlags(TxTSO)
	if _, err := b.Reserve(p.Size()); err != nil {
		t.Fatal(err)
	}
	c.Free(b)
	b = c.Alloc()
	if b.Len() != 0 || b.Headroom() != DefaultHeadroom || b.Tailroom() != DefaultSize || b.Flags() != 0 || b.TxFlags() != 0 || b.Next() != nil ||
		b.Refs() != 1 || b.Pool() != p || c.Pool() != p {
		t.Errorf("length %d, headroom %d, tailroom %d, flags %v, %d references", b.Len(), b.Headroom(), b.Tailroom(), b.Flags(), b.Refs())
	}
	c.Free(b)
	c.Free(nil)
	c.Close()
	closePool(t, p)
}

// TestReservesAreExact has the levels take all they can, one after the other, in each order.
func TestReservesAreExact(t *testing.T) {
	const buffers, receive, control = 100, 13, 7
	tests := []struct {
		name  string
		order []Level
		want  []int
	}{
		{"in order", []Level{Normal, Receive, Control}, []int{buffers - receive - control, receive, control}},
		{"receive first", []Level{Receive, Normal, Control}, []int{buffers - control, 0, control}},
		{"control first", []Level{Control, Receive, Normal}, []int{buffers, 0, 0}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := newTestPool(t, Config{Buffers: buffers, ReserveReceive: receive, ReserveControl: control, Size: 64})
			var caches []*Cache
			var out []*Buf
			for i, l := range test.order {
				c := p.NewCacheAt(l)
				caches = append(caches, c)
				got := drain(c)
				if len(got) != test.want[i] {
					t.Errorf("level %d got %d buffers, want %d", l, len(got), test.want[i])
				}
				if f := p.Stats().Failed[l]; f != 1 {
					t.Errorf("level %d failed %d times, want 1", l, f)
				}
				out = append(out, got...)
			}
			for _, b := range out {
				b.Free()
			}
			for _, c := range caches {
				c.Close()
			}
			checkHome(t, p)
			closePool(t, p)
		})
	}
}

// TestReservedBufferComesBackToTheReserve frees one of the reserve: a level below must not get it.
func TestReservedBufferComesBackToTheReserve(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 64, ReserveReceive: 4, ReserveControl: 4})
	normal, control := p.NewCache(), p.NewCacheAt(Control)
	out, held := drain(normal), drain(control)
	held[0].Free()
	if b := normal.Alloc(); b != nil {
		t.Fatal("a Normal allocation got a buffer of the reserve")
	}
	// Freed in bulk into a Normal cache it does not stay there either: the pool is low.
	normal.FreeBulk(held[1:2])
	if b := normal.Alloc(); b != nil {
		t.Fatal("a Normal allocation got a buffer of the reserve that was freed into its cache")
	}
	if got := drain(control); len(got) != 2 {
		t.Fatalf("Control got %d of the 2 that were freed", len(got))
	} else {
		held = append(held[2:], got...)
	}
	normal.FreeBulk(append(out, held...))
	normal.Close()
	control.Close()
	checkHome(t, p)
	closePool(t, p)
}

// TestLowPoolIsNotHoarded has one cache give back what it holds when the other needs it.
func TestLowPoolIsNotHoarded(t *testing.T) {
	for _, how := range []string{"FreeBulk", "Free"} {
		t.Run(how, func(t *testing.T) {
			const buffers = 256
			p := newTestPool(t, Config{Buffers: buffers, ReserveReceive: -1, ReserveControl: -1, Size: 64})
			hoarder, needy := p.NewCache(), p.NewCache()
			out := drain(hoarder)
			if !p.pressed.Load() {
				t.Fatal("an empty pool is not low")
			}
			for len(out) > 0 {
				k := min(len(out), 32)
				if how == "FreeBulk" {
					hoarder.FreeBulk(out[:k])
				} else {
					for _, b := range out[:k] {
						hoarder.Free(b)
					}
				}
				out = out[k:]
			}
			if n := hoarder.n + hoarder.spare.n; n > buffers/4 {
				t.Fatalf("the cache holds %d of %d", n, buffers)
			}
			got := drain(needy)
			if want := buffers - hoarder.n - hoarder.spare.n; len(got) != want || len(got) < buffers*3/4 {
				t.Fatalf("the other cache got %d, want %d", len(got), want)
			}
			needy.FreeBulk(got)
			needy.Flush()
			hoarder.Flush()
			checkHome(t, p, needy, hoarder)
			hoarder.Close()
			needy.Close()
			closePool(t, p)
		})
	}
}

// TestLowPoolGetsFullMagazinesBack from a cache that is freed into one by one.
func TestLowPoolGetsFullMagazinesBack(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 256, ReserveReceive: -1, ReserveControl: -1, Size: 64})
	hoarder, needy := p.NewCache(), p.NewCache()
	out := drain(needy)
	for _, b := range out[:2*hoarder.size] {
		hoarder.Free(b)
	}
	got := drain(needy)
	if len(got) != hoarder.size || hoarder.n != hoarder.size {
		t.Errorf("%d buffers of the %d that were freed can be had, the other cache holds %d", len(got), 2*hoarder.size, hoarder.n)
	}
	needy.FreeBulk(append(got, out[2*hoarder.size:]...))
	needy.Close()
	hoarder.Close()
	checkHome(t, p)
	closePool(t, p)
}

// TestPoolIsLowWhenOnlyTheReserveIsLeft, however much that is: what is freed in one cache can be had in another.
func TestPoolIsLowWhenOnlyTheReserveIsLeft(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 64, ReserveReceive: 24, ReserveControl: -1, Size: 64})
	a, b := p.NewCache(), p.NewCache()
	out := drain(a)
	if len(out) != 40 {
		t.Fatalf("%d buffers, want 40", len(out))
	}
	a.FreeBulk(out[:5])
	got := drain(b)
	if len(got) != 5 {
		t.Errorf("%d of the 5 that were freed can be had", len(got))
	}
	b.FreeBulk(append(got, out[5:]...))
	a.Close()
	b.Close()
	checkHome(t, p)
	closePool(t, p)
}

// TestPressureEndsWhenBuffersComeBack: caches hold buffers again.
func TestPressureEndsWhenBuffersComeBack(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 256, Size: 64})
	c := p.NewCache()
	c.FreeBulk(drain(c))
	c.FreeBulk([]*Buf{c.Alloc()})
	if p.pressed.Load() || c.n == 0 {
		t.Fatalf("low: %v, the cache holds %d", p.pressed.Load(), c.n)
	}
	c.Close()
	closePool(t, p)
}

func TestCacheHoldsABoundedPartOfThePool(t *testing.T) {
	for _, test := range []struct{ buffers, workers, most int }{{4096, 1, 128}, {1024, 4, 64}, {256, 8, 8}, {64, 4, 4}, {3, 4, 2}} {
		t.Run(fmt.Sprintf("%d buffers %d workers", test.buffers, test.workers), func(t *testing.T) {
			p := newTestPool(t, Config{Buffers: test.buffers, Workers: test.workers, ReserveReceive: -1, ReserveControl: -1, Size: 64})
			from, into := p.NewCache(), p.NewCache()
			most := 0
			for _, b := range drain(from) {
				into.Free(b)
				most = max(most, into.n+into.spare.n)
			}
			if most > test.most || test.most > max(2, test.buffers/4/test.workers) {
				t.Errorf("the cache held %d, want at most %d", most, test.most)
			}
			from.Close()
			into.Close()
			checkHome(t, p)
			closePool(t, p)
		})
	}
}

// TestClosedCacheStillTakesBuffersBack: whoever has a buffer of a worker that has gone can free it where it came from.
func TestClosedCacheStillTakesBuffersBack(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	var bufs [5]*Buf
	if n := c.AllocBulk(bufs[:]); n != 5 {
		t.Fatal(n)
	}
	v := bufs[0].Clone(c)
	c.Close()
	c.Close()
	if c.Alloc() != nil || c.AllocBulk(make([]*Buf, 3)) != 0 {
		t.Fatal("a closed cache allocates")
	}
	if s := p.Stats(); s.Out != 5 {
		t.Fatalf("%d out, want 5", s.Out)
	}
	c.Free(bufs[0])
	c.FreeBulk(bufs[1:4])
	bufs[4].Free()
	c.Free(v)
	c.Flush()
	if p.caches != 0 {
		t.Errorf("%d caches are counted", p.caches)
	}
	checkHome(t, p)
	closePool(t, p)
}

func TestBulkAllocationGivesWhatThereIs(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 100, ReserveReceive: -1, ReserveControl: -1, Size: 64})
	c := p.NewCache()
	bufs := make([]*Buf, 128)
	if n := c.AllocBulk(bufs[:77]); n != 77 {
		t.Fatalf("%d of 77", n)
	}
	if n := c.AllocBulk(bufs[77:]); n != 23 || bufs[100] != nil {
		t.Fatalf("%d of the 23 that are left", n)
	}
	seen := make(map[*Block]bool)
	for _, b := range bufs[:100] {
		seen[b.blk] = true
	}
	if len(seen) != 100 {
		t.Fatalf("%d different blocks of 100", len(seen))
	}
	if n := c.AllocBulk(bufs[:0]); n != 0 {
		t.Fatal(n)
	}
	c.FreeBulk(bufs[:100])
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}

// TestPlainFramesAreFreedWithoutAFurtherLook: more than two magazines of them, some shared by now, into open and closed
// caches.
func TestPlainFramesAreFreedWithoutAFurtherLook(t *testing.T) {
	for _, state := range []string{"open", "closed", "full"} {
		t.Run(state, func(t *testing.T) {
			p := newTestPool(t, Config{Buffers: 1000, ReserveReceive: -1, ReserveControl: -1, Size: 64})
			from, into := p.NewCache(), p.NewCache()
			bufs := make([]*Buf, 400)
			if n := from.AllocRaw(bufs); n != len(bufs) {
				t.Fatal(n)
			}
			var clones []*Buf
			for i, b := range bufs {
				b.Renew(0)
				if i%50 == 7 || i > 390 {
					clones = append(clones, b.Clone(from))
				}
			}
			switch state {
			case "closed":
				into.Close()
			case "full":
				into.FreeBulk(bufs[:2*into.size])
				bufs = bufs[2*into.size:]
			}
			into.FreePlain(nil)
			into.FreePlain(bufs)
			for _, v := range clones {
				if v.Plain(p) {
					t.Error("a second view is plain")
				}
			}
			from.FreeBulk(clones)
			checkHome(t, p, from, into)
			from.Close()
			into.Close()
			closePool(t, p)
		})
	}
}

// TestWhatIsNotPlain: everything that needs a further look when it is sent or freed.
func TestWhatIsNotPlain(t *testing.T) {
	p, other := newTestPool(t, Config{Buffers: 16}), newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	b, n := c.Alloc(), c.Alloc()
	v := b.Clone(c)
	state := func(what string, b *Buf, of *Pool, want bool) {
		t.Helper()
		if b.Plain(of) != want {
			t.Errorf("%s: plain is %v", what, !want)
		}
	}
	state("one segment", b, p, true)
	state("of another pool", b, other, false)
	state("a second view", v, p, false)
	if v.tx&extraView == 0 || b.tx&extraView != 0 {
		t.Error("the mark of a second view is not where it belongs") // then Plain looks at memory that is no block
	}
	b.SetTxFlags(TxIPSum)
	state("an offload", b, p, false)
	b.SetTxFlags(0)
	state("no offload", b, p, true)
	b.SetNext(n)
	state("two segments", b, p, false)
	state("the last of two", n, p, true)
	b.SetTxFlags(TxTSO)
	c.Free(b)
	v.SetTxFlags(TxTSO)
	c.Free(v)
	for _, b := range drain(c) {
		state("fresh", b, p, true)
		b.Free()
	}
	c.Close()
	checkHome(t, p)
	closePool(t, p)
	closePool(t, other)
}

// TestWhatAsksForTheSame: a frame that is written to and sent without a further look has the same request, and its block to
// itself.
func TestWhatAsksForTheSame(t *testing.T) {
	p, other := newTestPool(t, Config{Buffers: 16}), newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	b, n := c.Alloc(), c.Alloc()
	b.SetTxFlags(TxIPSum | TxL4Sum)
	b.L2Len, b.L3Len = 14, 20
	key := b.TxKey()
	state := func(what string, b *Buf, of *Pool, want bool) {
		t.Helper()
		if b.Asks(key, of) != want {
			t.Errorf("%s: asks for the same is %v", what, !want)
		}
	}
	state("itself", b, p, true)
	state("of another pool", b, other, false)
	for what, change := range map[string]func(x *Buf){
		"other flags":   func(x *Buf) { x.SetTxFlags(TxL4Sum) },
		"UDP":           func(x *Buf) { x.SetTxFlags(TxIPSum | TxL4Sum | TxUDP) },
		"another L2Len": func(x *Buf) { x.L2Len = 18 },
		"another L3Len": func(x *Buf) { x.L3Len = 24 },
		"a longer one":  func(x *Buf) { x.L3Len = 20 + 1<<8 },
		"another tag":   func(x *Buf) { x.VLAN = 1 << 15 },
	} {
		was := *b
		change(b)
		state(what, b, p, false)
		b.SetTxFlags(was.TxFlags())
		b.L2Len, b.L3Len, b.VLAN = was.L2Len, was.L3Len, was.VLAN
	}
	b.SetNext(n)
	state("two segments", b, p, false)
	b.SetNext(nil)
	v := b.Clone(c)
	state("shared", b, p, false)
	b.Free()
	key = v.TxKey()
	state("the last view, but not the block's own", v, p, false)
	v.Free()
	n.Free()
	c.Close()
	checkHome(t, p)
	closePool(t, p)
	closePool(t, other)
}

// TestFramesOfOtherPoolsGoHome frees into a cache what is not its pool's, and clones with it.
func TestFramesOfOtherPoolsGoHome(t *testing.T) {
	a := newTestPool(t, Config{Name: "a", Buffers: 16})
	b := newTestPool(t, Config{Name: "b", Buffers: 16, Views: 64})
	ca, cb := a.NewCache(), b.NewCache()
	// More often than b has views: each has to go back to where it came from.
	for range 200 {
		x := ca.Alloc()
		v := x.Clone(cb)
		if v == nil {
			t.Fatal("no view: they have gone to the other pool")
		}
		head, _, err := x.Prepend(cb, 10)
		if err != nil {
			t.Fatal(err)
		}
		cb.FreeBulk([]*Buf{v, head})
	}
	ca.Close()
	cb.Close()
	checkHome(t, a)
	checkHome(t, b)
	closePool(t, a)
	closePool(t, b)
}

// TestViewsAreReservedForControl: a retransmission gets a view when ordinary clones no longer do.
func TestViewsAreReservedForControl(t *testing.T) {
	if checking {
		return // the sanitizer never runs out of views
	}
	p := newTestPool(t, Config{Buffers: 16, Views: 80, ReserveViews: 10, ReserveControl: -1})
	normal, control := p.NewCache(), p.NewCacheAt(Control)
	b := normal.Alloc()
	var clones []*Buf
	for v := b.Clone(normal); v != nil; v = b.Clone(normal) {
		clones = append(clones, v)
	}
	if len(clones) != 70 {
		t.Errorf("%d ordinary clones, want 70", len(clones))
	}
	n := 0
	for v := b.Clone(control); v != nil; v = b.Clone(control) {
		clones = append(clones, v)
		n++
	}
	if n != 10 {
		t.Errorf("%d clones of the reserve, want 10", n)
	}
	normal.FreeBulk(append(clones, b))
	normal.Close()
	control.Close()
	checkHome(t, p)
	closePool(t, p)
}

// TestCloneThatRunsOutOfViewsChangesNothing clones a frame of more segments than there are views.
func TestCloneThatRunsOutOfViewsChangesNothing(t *testing.T) {
	if checking {
		return // the sanitizer never runs out of views
	}
	p := newTestPool(t, Config{Buffers: 16, Views: 3, ReserveViews: -1})
	c := p.NewCache()
	var q Chain
	for range 4 {
		b := c.Alloc()
		if _, err := b.Reserve(10); err != nil {
			t.Fatal(err)
		}
		q.Append(b)
	}
	if _, err := q.Clone(c); err == nil {
		t.Fatal("4 segments cloned with 3 views")
	}
	for b := q.Head(); b != nil; b = b.Next() {
		if b.Refs() != 1 {
			t.Errorf("%d references, want 1", b.Refs())
		}
	}
	q.Free()
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}

func TestFastPathsDoNotAllocate(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 512})
	c, other := p.NewCache(), p.NewCache()
	region := newRegion(t, p.Space())
	site := &Site{"test"}
	dst, src := make([]byte, 64), make([]byte, 64)
	bufs := make([]*Buf, 200) // more than two magazines
	allocs(t, "Alloc and Free", func() { c.Free(c.Alloc()) })
	allocs(t, "AllocBulk and FreeBulk", func() { c.FreeBulk(bufs[:c.AllocBulk(bufs)]) })
	allocs(t, "AllocRaw and FreePlain", func() { c.FreePlain(bufs[:c.AllocRaw(bufs)]) })
	allocs(t, "freeing into another cache", func() { other.FreeBulk(bufs[:c.AllocBulk(bufs)]) })
	allocs(t, "freeing from anywhere", func() {
		for _, b := range bufs[:c.AllocBulk(bufs)] {
			b.Free()
		}
	})
	allocs(t, "Clone", func() {
		b := c.Alloc()
		for i := range 100 {
			bufs[i] = b.Clone(c)
		}
		c.Free(b)
		other.FreeBulk(bufs[:100])
	})
	allocs(t, "Split, TrimFront and AppendChain", func() {
		var q Chain
		if _, err := q.Reserve(c, 100); err != nil {
			t.Fatal(err)
		}
		front, err := q.Split(c, 40)
		if err != nil {
			t.Fatal(err)
		}
		_ = q.TrimFront(10)
		front.AppendChain(&q)
		front.Free()
	})
	allocs(t, "Prepend", func() {
		h, _, err := c.Alloc().Prepend(c, 300)
		if err != nil {
			t.Fatal(err)
		}
		c.Free(h)
	})
	allocs(t, "Copy", func() { Copy(p, site, dst, src) })
	var q Chain
	allocs(t, "Reserve and Read", func() {
		if _, err := q.Reserve(c, 64); err != nil {
			t.Fatal(err)
		}
		_, _ = q.ReadByte()
		_, _ = q.Read(dst)
	})
	// The first buffer in a region holds the region, which allocates.
	done := func() {}
	keep, err := p.External(region, 0, 100, done)
	if err != nil {
		t.Fatal(err)
	}
	allocs(t, "External and RunDone", func() {
		b, err := p.External(region, 0, 100, done)
		if err != nil {
			t.Fatal(err)
		}
		c.Free(b)
		p.RunDone()
	})
	keep.Free()
	q.Free()
	c.Close()
	other.Close()
	checkHome(t, p)
	closePool(t, p)
}
