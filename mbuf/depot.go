package mbuf

// magMax is the number of blocks of a magazine: one exchange with the depot, a lock taken and given back, in 64 buffers.
const magMax = 64

// magazine is a stack of blocks that changes hands as a whole. A block is in it as its first view, so that moving many to
// a ring, or from one, is a move of memory.
type magazine struct {
	n int
	b [magMax]*Buf
}

// depotPut adds one block. The caller holds the lock.
func (p *Pool) depotPut(blk *Block) {
	if k := len(p.full); k > 0 && p.full[k-1].n < p.magSize {
		m := p.full[k-1]
		m.b[m.n] = &blk.first
		m.n++
	} else {
		m := p.takeEmpty()
		m.b[0], m.n = &blk.first, 1
		p.full = append(p.full, m)
	}
	p.free++
}

func (p *Pool) takeEmpty() *magazine {
	if k := len(p.empty); k > 0 {
		m := p.empty[k-1]
		p.empty = p.empty[:k-1]
		return m
	}
	return new(magazine)
}

// collect brings home what was freed from anywhere. The caller holds the lock.
func (p *Pool) collect() {
	for blk := p.ret.Swap(nil); blk != nil; {
		next := blk.next
		blk.next = nil
		p.depotPut(blk)
		blk = next
	}
	for v := p.retView.Swap(nil); v != nil; {
		next := v.next
		v.next, p.freeViews = p.freeViews, v
		p.nviews++
		v = next
	}
}

// exchange takes the empty magazine m and returns one with blocks, as many as level may have; nil, and m is kept by the
// caller, when there are none.
func (p *Pool) exchange(m *magazine, level Level) *magazine {
	p.mu.Lock()
	if p.ret.Load() != nil {
		p.collect()
	}
	got := p.take(m, level)
	p.press()
	p.mu.Unlock()
	return got
}

// take is exchange under the lock.
func (p *Pool) take(m *magazine, level Level) *magazine {
	may := p.free - p.floor[level]
	if may <= 0 || p.closed {
		p.fails[level].Add(1)
		return nil
	}
	k := len(p.full) - 1
	got := p.full[k]
	if got.n <= may {
		p.full = p.full[:k]
		p.free -= got.n
		p.empty = append(p.empty, m)
		return got
	}
	// The reserve begins inside this magazine.
	for m.n < may {
		got.n--
		m.b[m.n] = got.b[got.n]
		m.n++
	}
	p.free -= may
	return m
}

// deposit takes a magazine with blocks and returns an empty one. Only the magazine on top may be less than full, or caches
// would soon be trading magazines of a block or two.
func (p *Pool) deposit(m *magazine) *magazine {
	p.mu.Lock()
	empty := p.giveBack(m)
	p.press()
	p.mu.Unlock()
	return empty
}

// giveBack is deposit under the lock.
func (p *Pool) giveBack(m *magazine) *magazine {
	if m.n < p.magSize {
		for ; m.n > 0; m.n-- {
			p.depotPut(m.b[m.n-1].blk)
		}
		return m
	}
	p.free += m.n
	p.full = append(p.full, m)
	if k := len(p.full) - 1; k > 0 && p.full[k-1].n < p.magSize {
		p.full[k-1], p.full[k] = m, p.full[k-1]
	}
	return p.takeEmpty()
}

// press tells the caches whether to hold anything back: below an eighth of the pool, and in any case when only the reserve
// is left.
func (p *Pool) press() {
	low := p.free <= max(len(p.blocks)/8, p.floor[Normal])
	if p.pressed.Load() != low {
		p.pressed.Store(low)
	}
}

// returnBlock is the free from anywhere: a push to a list that is only ever taken whole, so no block can come back to
// the head between a load and its compare-and-swap unseen.
func (p *Pool) returnBlock(blk *Block) {
	for {
		head := p.ret.Load()
		blk.next = head
		if p.ret.CompareAndSwap(head, blk) {
			return
		}
	}
}

func (p *Pool) returnView(v *Buf) {
	if checking {
		return // views are never used again
	}
	v.blk, v.base = nil, nil
	for {
		head := p.retView.Load()
		v.next = head
		if p.retView.CompareAndSwap(head, v) {
			return
		}
	}
}

// takeViews returns a list of up to n views, as many as level may have.
func (p *Pool) takeViews(n int, level Level) (head *Buf, got int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	floor := 0
	if level < Control {
		floor = p.viewFloor
	}
	if p.nviews-floor < n {
		p.collect()
	}
	for ; got < n && p.nviews > floor; got++ {
		v := p.freeViews
		p.freeViews = v.next
		p.nviews--
		v.next, head = head, v
	}
	return head, got
}

// giveViews takes back the list that begins at head.
func (p *Pool) giveViews(head *Buf) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for head != nil {
		next := head.next
		head.next, p.freeViews = p.freeViews, head
		p.nviews++
		head = next
	}
}
