package mbuf

import (
	"runtime"
	"testing"

	"bare.wire/hugepage"
	"bare.wire/vtop"
)

// raceBuild says whether the race detector is built in: it allocates where the plain build does not.
var raceBuild = hasRace

// newTestPool makes a pool in a Space of its own if cfg has none. The test closes it.
func newTestPool(tb testing.TB, cfg Config) *Pool {
	tb.Helper()
	if cfg.Space == nil {
		cfg.Space = vtop.NewMapped()
	}
	p, err := NewPool(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// closePool closes a pool that everything must have come back to.
func closePool(tb testing.TB, p *Pool) {
	tb.Helper()
	if err := p.Close(); err != nil {
		tb.Error(err)
	}
}

// checkHome fails unless every block and every view of p is home exactly once: in the depot, or in one of the caches given.
func checkHome(tb testing.TB, p *Pool, caches ...*Cache) {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.collect()
	seen := make(map[*Block]int)
	take := func(firsts []*Buf) {
		for _, b := range firsts {
			seen[b.blk]++
		}
	}
	free := 0
	for i, m := range p.full {
		if m.n < 1 || m.n > p.magSize || m.n < p.magSize && i != len(p.full)-1 {
			tb.Errorf("magazine %d of %d in the depot has %d blocks of %d", i, len(p.full), m.n, p.magSize)
		}
		take(m.b[:m.n])
		free += m.n
	}
	if free != p.free {
		tb.Errorf("the depot has %d blocks and counts %d", free, p.free)
	}
	for _, c := range caches {
		take(c.mag.b[:c.n])
		take(c.spare.b[:c.spare.n])
	}
	for i := range p.blocks {
		blk := &p.blocks[i]
		if seen[blk] != 1 || blk.state.Load() != 1 || blk.acct.Load() != nil {
			tb.Errorf("block %d is home %d times, state %#x", i, seen[blk], blk.state.Load())
		}
	}
	if len(seen) != len(p.blocks) {
		tb.Errorf("%d blocks are home, the pool has %d", len(seen), len(p.blocks))
	}
	checkViewsHome(tb, p, caches)
}

// checkViewsHome is checkHome for views; the sanitizer has none to come home. The caller holds the pool's lock.
func checkViewsHome(tb testing.TB, p *Pool, caches []*Cache) {
	tb.Helper()
	if checking {
		return
	}
	seen := make(map[*Buf]bool)
	n := 0
	walk := func(v *Buf) {
		for ; v != nil; v = v.next {
			seen[v] = true
			n++
		}
	}
	walk(p.freeViews)
	if n != p.nviews {
		tb.Errorf("the pool has %d views and counts %d", n, p.nviews)
	}
	for _, c := range caches {
		before := n
		walk(c.views)
		if n-before != c.nviews {
			tb.Errorf("a cache has %d views and counts %d", n-before, c.nviews)
		}
	}
	if n != len(p.views) || len(seen) != n {
		tb.Errorf("%d views are home (%d different ones), the pool has %d", n, len(seen), len(p.views))
	}
	for i := range p.views {
		if !seen[&p.views[i]] {
			tb.Errorf("view %d is not home", i)
			return
		}
	}
}

// newRegion adds memory of the application's to s until the test ends.
func newRegion(tb testing.TB, s *vtop.Space) *hugepage.Region {
	tb.Helper()
	r, err := hugepage.Alloc(hugepage.Config{Size: 1 << 16, PageSize: 4096, Node: hugepage.AnyNode, Name: "application"})
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.Add(r); err != nil {
		tb.Fatal(err)
	}
	return r
}

// fill writes bytes that follow from tag, so that a mix-up shows.
func fill(room []byte, tag byte) {
	for i := range room {
		room[i] = tag + byte(i)*7
	}
}

// allocs counts allocations of f; builds that allocate by themselves are not asked.
func allocs(t *testing.T, what string, f func()) {
	t.Helper()
	if checking || raceBuild {
		f()
		return
	}
	runtime.GC()
	if n := testing.AllocsPerRun(200, f); n != 0 {
		t.Errorf("%s allocates %v times", what, n)
	}
}
