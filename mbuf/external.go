package mbuf

import (
	"context"
	"fmt"
	"math"
	"os"
	"sync"
	"unsafe"

	"bare.wire/hugepage"
)

// maxExternal is the longest external buffer, bytes: views count in 32 bits.
const maxExternal uint64 = math.MaxUint32

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
	closed bool
	holds  map[*hugepage.Region]*regionHold
	done   *Block        // linked by next, last first
	went   chan struct{} // something was put into done; for ServeDone
}

type regionHold struct {
	n       int
	release func()
}

func (x *externals) init(p *Pool, n int) {
	x.blocks = make([]Block, n)
	x.went = make(chan struct{}, 1)
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

// close lets nobody make another, if none lives; reopen takes that back.
func (x *externals) close() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = x.inUse == 0
	return x.closed
}

func (x *externals) reopen() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = false
}

// External makes a buffer of n bytes of the application's memory at off in region, which has been added to the pool's
// Space. When the last view of it is freed, done is queued, and the next RunDone calls it, once: then the memory is the
// application's again. The bytes must not be changed before, and the buffer is never Writable. An address that no card
// can reach is an error here and now.
func (p *Pool) External(region *hugepage.Region, off, n int, done func()) (*Buf, error) {
	if off < 0 || n < 1 || uint64(n) > maxExternal || n > region.Size()-off {
		return nil, fmt.Errorf("external buffer of %d bytes at %d of region %q of %d: want 1 byte to %d: %w",
			n, off, region.Name(), region.Size(), maxExternal, ErrNoRoom)
	}
	x := &p.ext
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, fmt.Errorf("external buffer: pool %q: %w", p.name, os.ErrClosed)
	}
	if x.free == nil {
		return nil, fmt.Errorf("pool %q: all %d external buffers are in use (Config.Externals): %w", p.name, len(x.blocks), ErrNoBuffer)
	}
	// Held first: only then do the addresses stay what they are.
	if err := x.hold(p, region); err != nil {
		return nil, err
	}
	base := unsafe.Add(region.Base(), off)
	bus, err := p.space.Bus(base, n)
	if err != nil {
		if release := x.unhold(region); release != nil {
			release()
		}
		return nil, fmt.Errorf("external buffer in region %q: %w", region.Name(), err)
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

// unhold takes one user off region; it returns what lets go of the region if that was the last.
func (x *externals) unhold(region *hugepage.Region) (release func()) {
	h := x.holds[region]
	if h.n--; h.n > 0 {
		return nil
	}
	delete(x.holds, region)
	return h.release
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
	select {
	case x.went <- struct{}{}:
	default: // ServeDone has yet to see the last one
	}
}

// ServeDone runs RunDone whenever there is something for it, until ctx ends, and returns its error: for programs that have
// no loop of their own to call RunDone from. The calls run on this goroutine.
func (p *Pool) ServeDone(ctx context.Context) error {
	for {
		p.RunDone()
		select {
		case <-p.ext.went:
		case <-ctx.Done():
			p.RunDone()
			return ctx.Err()
		}
	}
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
	release := x.unhold(region)
	x.mu.Unlock()
	if release != nil {
		release()
	}
}
