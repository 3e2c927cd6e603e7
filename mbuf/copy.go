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
	c, ok := p.copies.bySite.Load(site)
	if !ok {
		c, _ = p.copies.bySite.LoadOrStore(site, new(copyCount))
	}
	count := c.(*copyCount)
	count.calls.Add(1)
	count.bytes.Add(uint64(n))
	return n
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
