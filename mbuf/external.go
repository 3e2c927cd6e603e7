package mbuf

import (
	"fmt"
	"sync"
	"unsafe"

	"bare.wire/hugepage"
)

// external is what a block of application memory has that others have not.
type external struct {
	region *hugepage.Region
	done   func()
}

// externals are the blocks for application memory: as many as can live at once, a count of users for each region, and
// those whose last view has gone and whose done has yet to be called.
type externals struct {
	mu     sync.Mutex
	blocks []Block
	free   *Block // linked by next
	inUse  int
	holds  map[*hugepage.Region]*regionHold
	done   *Block // linked by next, last first
}

type regionHold struct {
	n       int
	release func()
}

func (x *externals) init(p *Pool, n int) {
	x.blocks = make([]Block, n)
	x.holds = make(map[*hugepage.Region]*regionHold)
	for i := range x.blocks {
		blk := &x.blocks[i]
		blk.pool, blk.index = p, uint32(len(p.blocks)+i)
		blk.first.blk, blk.ext = blk, new(external)
		blk.next, x.free = x.free, blk
	}
}

func (x *externals) live() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.inUse
}

// External makes a buffer of n bytes of the application's memory at off in region, which has been added to the pool's
// Space. When the last view of it is freed, done is queued, and the next RunDone calls it, once: then the memory is the
// application's again. The bytes must not be changed before. An address that no card can reach is an error here and now.
func (p *Pool) External(region *hugepage.Region, off, n int, done func()) (*Buf, error) {
	if off < 0 || n < 0 || n > region.Size()-off {
		return nil, fmt.Errorf("external buffer of %d bytes at %d of region %q of %d: %w", n, off, region.Name(), region.Size(), ErrNoRoom)
	}
	base := unsafe.Add(region.Base(), off)
	bus, err := p.space.Bus(base, n)
	if err != nil {
		return nil, fmt.Errorf("external buffer in region %q: %w", region.Name(), err)
	}
	x := &p.ext
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.free == nil {
		return nil, fmt.Errorf("pool %q: all %d external buffers are in use (Config.Externals): %w", p.name, len(x.blocks), ErrNoBuffer)
	}
	if err := x.hold(p, region); err != nil {
		return nil, err
	}
	blk := x.free
	x.free, blk.next = blk.next, nil
	x.inUse++
	blk.base, blk.bus, blk.cap = base, bus, uint32(n)
	*blk.ext = external{region: region, done: done}
	blk.state.Store(1 | stateExt)
	return blk.externalView(n), nil
}

func (x *externals) hold(p *Pool, region *hugepage.Region) error {
	h := x.holds[region]
	if h == nil {
		release, err := p.space.Hold(region)
		if err != nil {
			return fmt.Errorf("external buffer in region %q: %w", region.Name(), err)
		}
		h = &regionHold{release: release}
		x.holds[region] = h
	}
	h.n++
	return nil
}

// externalView is the first view of an external block.
func (blk *Block) externalView(n int) *Buf {
	b := &blk.first
	if checking {
		b = new(Buf)
	}
	*b = Buf{base: blk.base, blk: blk, len: uint32(n)}
	b.born(true)
	return b
}

// finishExternal queues the done call of a block whose last view has gone.
func (p *Pool) finishExternal(blk *Block) {
	x := &p.ext
	x.mu.Lock()
	defer x.mu.Unlock()
	blk.next, x.done = x.done, blk
}

// RunDone calls what External was given for the buffers whose last view has gone, in the order in which they went, and
// returns how many they were. A worker's loop calls it; the calls run on its goroutine, with no lock held.
func (p *Pool) RunDone() int {
	x := &p.ext
	x.mu.Lock()
	list := x.done
	x.done = nil
	x.mu.Unlock()
	var first *Block
	for list != nil {
		next := list.next
		list.next, first = first, list
		list = next
	}
	n := 0
	for blk := first; blk != nil; n++ {
		next := blk.next
		done, region := blk.ext.done, blk.ext.region
		x.retire(blk, region)
		if done != nil {
			done()
		}
		blk = next
	}
	return n
}

// retire makes the block free for the next External and lets go of the region.
func (x *externals) retire(blk *Block, region *hugepage.Region) {
	x.mu.Lock()
	*blk.ext = external{}
	blk.base = nil
	blk.next, x.free = x.free, blk
	x.inUse--
	h := x.holds[region]
	h.n--
	last := h.n == 0
	if last {
		delete(x.holds, region)
	}
	x.mu.Unlock()
	if last {
		h.release()
	}
}
