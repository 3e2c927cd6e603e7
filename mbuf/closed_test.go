package mbuf

import "testing"

// TestAClosedCacheKeepsNothing uses a cache after its Close: its clones still work, and neither views nor counts stay in it.
func TestAClosedCacheKeepsNothing(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 64, Views: 64, ReserveViews: -1})
	open, closed := p.NewCache(), p.NewCache()
	b := open.Alloc()
	closed.Close()
	for range 3 {
		v := b.Clone(closed)
		if v == nil {
			t.Fatal("no view")
		}
		closed.Free(v)
	}
	site := &Site{"test.closed"}
	closed.Copy(site, make([]byte, 8), make([]byte, 5))
	if got := p.Stats().Copied[site.Name]; got != (CopyStats{Calls: 1, Bytes: 5}) {
		t.Errorf("counted %+v, want one copy of 5 bytes", got)
	}
	open.Free(b)
	open.Close()
	checkHome(t, p)
	closePool(t, p)
}
