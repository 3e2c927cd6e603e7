package mbuf

import (
	"fmt"
	"testing"
)

func TestACacheCountsItsCopies(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 64})
	c := p.NewCache()
	sites := make([]*Site, cacheSites+2) // two more than the cache has room for
	src, dst := []byte("payload"), make([]byte, 5)
	for i := range sites {
		sites[i] = &Site{Name: fmt.Sprint("site ", i)}
	}
	for round := range 3 {
		for _, s := range sites {
			if n := c.Copy(s, dst, src); n != 5 || string(dst) != "paylo" {
				t.Fatalf("copied %d bytes: %q", n, dst)
			}
		}
		c.Flush()
		got := p.Stats().Copied
		for _, s := range sites {
			if want := (CopyStats{uint64(round + 1), uint64(5 * (round + 1))}); got[s.Name] != want {
				t.Errorf("%s: %+v, want %+v", s.Name, got[s.Name], want)
			}
		}
	}
	if n := testing.AllocsPerRun(100, func() { c.Copy(sites[0], dst, src) }); n != 0 {
		t.Errorf("%v allocations a copy", n)
	}
	c.Close()
	closePool(t, p)
}
