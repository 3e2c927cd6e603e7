package mbuf

import (
	"sync"
	"sync/atomic"
)

// Site names a place in the code where payload is copied, for the counters. Declare one for each place, as a package
// variable that is never changed.
type Site struct{ Name string }

// CopyStats counts the copies of one site.
type CopyStats struct{ Calls, Bytes uint64 }

type copyCount struct{ calls, bytes atomic.Uint64 }

// copies counts by site. The map is read without a lock.
type copies struct{ bySite sync.Map }

// Copy copies min(len(dst), len(src)) bytes of payload and counts them under site in p. It is the only way by which
// payload is copied; a path that claims to copy nothing shows no counts.
func Copy(p *Pool, site *Site, dst, src []byte) int {
	n := copy(dst, src)
	p.copies.add(site, 1, uint64(n))
	return n
}

// cacheSites is how many sites a cache counts by itself.
const cacheSites = 4

// localCopies are what one cache has copied at one site since it last told the pool.
type localCopies struct {
	site         *Site
	calls, bytes uint64
}

// Copy is Copy for a worker's hot path: it counts in the cache, without a locked instruction. The pool is told when the
// cache exchanges buffers with it, or is flushed.
func (c *Cache) Copy(site *Site, dst, src []byte) int {
	n := copy(dst, src)
	for i := range c.copied {
		if c.closed {
			break // nobody would tell the pool
		}
		l := &c.copied[i]
		if l.site == nil {
			l.site = site
		}
		if l.site == site {
			l.calls++
			l.bytes += uint64(n)
			return n
		}
	}
	c.pool.copies.add(site, 1, uint64(n))
	return n
}

// tellCopies adds what the cache has counted to the pool's counts.
func (c *Cache) tellCopies() {
	for i := range c.copied {
		if l := &c.copied[i]; l.calls > 0 {
			c.pool.copies.add(l.site, l.calls, l.bytes)
			l.calls, l.bytes = 0, 0
		}
	}
}

func (c *copies) add(site *Site, calls, bytes uint64) {
	v, ok := c.bySite.Load(site)
	if !ok {
		v, _ = c.bySite.LoadOrStore(site, new(copyCount))
	}
	count := v.(*copyCount)
	count.calls.Add(calls)
	count.bytes.Add(bytes)
}

func (c *copies) snapshot() map[string]CopyStats {
	out := make(map[string]CopyStats)
	c.bySite.Range(func(k, v any) bool {
		count := v.(*copyCount)
		s := out[k.(*Site).Name]
		s.Calls += count.calls.Load()
		s.Bytes += count.bytes.Load()
		out[k.(*Site).Name] = s
		return true
	})
	return out
}
