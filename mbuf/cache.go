package mbuf

import "unsafe"

// Cache is one worker's supply of buffers. It belongs to one goroutine at a time and takes no lock for most buffers. It
// holds at most two magazines: a quarter of the pool divided by the workers, but at least two buffers. What it holds it
// hands out again whatever its level; when the pool runs low, FreeBulk and full magazines give everything back.
type Cache struct {
	pool   *Pool
	mag    *magazine
	n      int // blocks in mag
	size   int
	level  Level
	spare  *magazine // empty (n 0) or full
	views  *Buf      // linked by next
	nviews int
	batch  int // views that are taken from the pool at a time
	closed bool
	copied [cacheSites]localCopies
}

// NewCache returns a cache whose allocations are Normal.
func (p *Pool) NewCache() *Cache { return p.NewCacheAt(Normal) }

// NewCacheAt returns a cache whose allocations are of the level given.
func (p *Pool) NewCacheAt(level Level) *Cache {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.caches++
	// New magazines, not the depot's: those are as many as its blocks can need, so that deposit never allocates.
	return &Cache{pool: p, mag: new(magazine), spare: new(magazine), size: p.magSize, batch: p.viewBatch, level: min(level, Control)}
}

// Pool is the pool behind the cache.
func (c *Cache) Pool() *Pool { return c.pool }

// Alloc returns an empty buffer with the pool's headroom in front, or nil when the pool has none left for the cache's
// level. The caller owns it. Of its metadata flags and hash are 0; the rest is what it was in its last use.
func (c *Cache) Alloc() *Buf {
	if c.n == 0 && !c.refill() {
		return nil
	}
	c.n--
	b := c.mag.b[c.n&(magMax-1)]
	if checking {
		return b.blk.freshView(c.pool.headroom)
	}
	b.off, b.len, b.info = c.pool.headroom, 0, 0
	return b
}

// AllocBulk fills dst from the front and returns how many it got.
func (c *Cache) AllocBulk(dst []*Buf) int {
	got := c.AllocRaw(dst)
	headroom := c.pool.headroom
	for _, b := range dst[:got] {
		b.off, b.len, b.info = headroom, 0, 0
	}
	return got
}

// AllocRaw is AllocBulk for a driver that fills a receive ring: the buffers are as their last owner left them, and have to
// be made ready one by one with Renew.
func (c *Cache) AllocRaw(dst []*Buf) int {
	got := 0
	for got < len(dst) {
		if c.n == 0 && !c.refill() {
			break
		}
		k := min(c.n, len(dst)-got)
		copy(dst[got:], c.mag.b[c.n-k:c.n])
		c.n -= k
		got += k
	}
	if checking {
		for i, b := range dst[:got] {
			dst[i] = b.blk.freshView(c.pool.headroom)
		}
	}
	return got
}

// refill gets blocks when mag is empty.
func (c *Cache) refill() bool {
	if c.closed {
		return false
	}
	c.mag.n = 0
	c.tellCopies()
	if c.spare.n > 0 {
		c.mag, c.spare = c.spare, c.mag
		c.n = c.mag.n
		return true
	}
	m := c.pool.exchange(c.mag, c.level)
	if m == nil {
		return false
	}
	c.mag, c.n = m, m.n
	return true
}

// Free gives back the frame that b begins, all its segments.
func (c *Cache) Free(b *Buf) {
	for b != nil {
		next := b.next
		if checking || b.tx != 0 || c.n >= c.size {
			b.release(c)
			b = next
			continue
		}
		// As tx is 0, b is the first thing in its block; see Plain.
		if blk := (*Block)(unsafe.Pointer(b)); blk.pool == c.pool && blk.state.Load() == 1 {
			if next != nil {
				b.next = nil
			}
			c.mag.b[c.n&(magMax-1)] = b
			c.n++
		} else {
			b.release(c)
		}
		b = next
	}
}

// FreeBulk gives back many frames, none of them nil.
func (c *Cache) FreeBulk(bufs []*Buf) {
	for len(bufs) > 0 {
		k := 0
		if !checking {
			k = c.putPlain(bufs)
		}
		if k < len(bufs) {
			c.Free(bufs[k])
			k++
		}
		bufs = bufs[k:]
	}
	if c.pool.pressed.Load() {
		c.Flush()
	}
}

// putPlain pushes the frames that are plain (see Buf.Plain) and alone on their block, up to the first that is not or to
// the end of the magazine, and returns how many.
func (c *Cache) putPlain(bufs []*Buf) int {
	n := 0
	for _, b := range bufs {
		if !b.Plain(c.pool) {
			break
		}
		n++
	}
	return c.putVouched(bufs[:n])
}

// FreePlain is FreeBulk for frames that were all plain for the cache's pool when the caller got them, and that the caller
// has not changed: a driver looks once, when it takes a frame, and not again when it is done with it.
func (c *Cache) FreePlain(bufs []*Buf) {
	for len(bufs) > 0 {
		if c.n == c.size && !c.closed {
			c.spill()
		}
		k := 0
		if !checking {
			k = c.putVouched(bufs)
		}
		if k < len(bufs) && c.n < c.size || c.closed {
			c.Free(bufs[k])
			k++
		}
		bufs = bufs[k:]
	}
	if c.pool.pressed.Load() {
		c.Flush()
	}
}

// putVouched pushes plain frames up to the first that has another view, or to the end of the magazine.
func (c *Cache) putVouched(bufs []*Buf) int {
	to := c.mag.b[c.n:max(c.n, c.size)]
	if len(bufs) > len(to) {
		bufs = bufs[:len(to)]
	}
	n := 0
	for _, b := range bufs {
		// b is the first thing in its block.
		if (*Block)(unsafe.Pointer(b)).state.Load() != 1 {
			break
		}
		n++
	}
	copy(to, bufs[:n])
	c.n += n
	return n
}

// put pushes a block that is ready for its next use.
func (c *Cache) put(blk *Block) {
	if c.closed {
		c.pool.returnBlock(blk)
		return
	}
	if c.n == c.size {
		c.spill()
	}
	c.mag.b[c.n&(magMax-1)] = &blk.first
	c.n++
}

// spill makes room when mag is full.
func (c *Cache) spill() {
	if c.pool.pressed.Load() {
		c.Flush()
		return
	}
	c.mag.n = c.n
	if c.spare.n > 0 {
		c.spare = c.pool.deposit(c.spare)
	}
	c.mag, c.spare = c.spare, c.mag
	c.n = 0
}

// Flush gives everything that the cache holds to the pool.
func (c *Cache) Flush() {
	c.tellCopies()
	c.mag.n, c.n = c.n, 0
	if c.mag.n > 0 {
		c.mag = c.pool.deposit(c.mag)
	}
	if c.spare.n > 0 {
		c.spare = c.pool.deposit(c.spare)
	}
	if c.views != nil {
		c.pool.giveViews(c.views)
		c.views, c.nviews = nil, 0
	}
}

// Close flushes the cache; it allocates no more. What is freed into it later still finds its way back.
func (c *Cache) Close() {
	c.Flush()
	if c.closed {
		return
	}
	c.closed, c.size, c.batch = true, 0, 1 // views too are taken one by one from here on: nobody would give the rest back
	c.pool.mu.Lock()
	c.pool.caches--
	c.pool.mu.Unlock()
}

// view makes another view of s.
func (c *Cache) view(s *Buf) *Buf {
	var v *Buf
	switch {
	case checking:
		v = new(Buf)
	case s.blk.pool != c.pool:
		// A view goes home to the pool of the storage under it, so that is where it has to come from.
		if v, _ = s.blk.pool.takeViews(1, c.level); v == nil {
			return nil
		}
	default:
		if c.views == nil {
			c.views, c.nviews = c.pool.takeViews(c.batch, c.level)
		}
		if c.views == nil {
			return nil
		}
		v = c.views
		c.views = v.next
		c.nviews--
	}
	s.blk.state.Add(1)
	*v = *s
	v.tx |= extraView
	v.next = nil
	v.born(false)
	return v
}

// putView takes a view back.
func (c *Cache) putView(v *Buf) {
	if checking || c.closed {
		c.pool.returnView(v)
		return
	}
	v.blk, v.base = nil, nil
	v.next, c.views = c.views, v
	c.nviews++
	if c.nviews > 2*c.batch {
		c.pool.giveViews(c.views)
		c.views, c.nviews = nil, 0
	}
}
