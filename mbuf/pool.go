package mbuf

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"bare.wire/hugepage"
	"bare.wire/vtop"
)

// Geometry of a pool's blocks.
const (
	// DefaultHeadroom is the room in front of a received frame, bytes: headers of a tunnel, a VLAN tag, a vnet header.
	DefaultHeadroom = 192
	// DefaultSize is the data room after the headroom, bytes. The 82599 counts receive buffers in KiB (SRRCTL.BSIZEPKT)
	// and would write beyond one that has less.
	DefaultSize = 2048

	lineSize = 64
	pageSize = 4096
	maxSize  = 1 << 20
	maxBufs  = 1 << 26

	viewBatchMax = 32
)

// Level is the importance of an allocation. What is reserved for a level is not given to those before it.
type Level uint8

// Levels.
const (
	Normal  Level = iota // an application's or a generator's frames
	Receive              // refill of receive rings
	Control              // ACK, RST, ARP: frames without which nothing is ever freed
	levels  = iota
)

// Config describes a pool. Zero fields take their defaults.
type Config struct {
	Name    string
	Space   *vtop.Space // bus addresses; required
	Buffers int         // blocks; required
	Size    int         // data room after the headroom, bytes; default DefaultSize
	// Headroom is the room in front, bytes; default DefaultHeadroom. Negative: none.
	Headroom int
	Workers  int // how many workers will have caches: bounds what a cache may hold; default 1
	Views    int // views for Clone and Split; default 2·Buffers
	// ReserveViews is how many of them are kept for caches of level Control, so that a retransmission does not fail for
	// want of one; default Views/8. Negative: none.
	ReserveViews int
	// Externals is how many buffers of application memory there can be at once (see External); default 1024.
	Externals int
	// ReserveReceive and ReserveControl are blocks kept for these levels; default Buffers/16 each. Negative: none.
	ReserveReceive int
	ReserveControl int
	// Node is 1 + the NUMA node of the memory; 0: any.
	Node        int
	RequireHuge bool // refuse ordinary memory
}

// Pool is a region of memory cut into blocks. All methods may be called from any goroutine.
type Pool struct {
	name     string
	space    *vtop.Space
	region   *hugepage.Region
	unhold   func()
	headroom uint32
	size     uint32
	blocks   []Block
	views    []Buf
	magSize  int
	floor    [levels]int // blocks of the depot that a level leaves alone

	viewBatch int // views that a cache takes at a time
	viewFloor int // views that only Control may have

	ret     atomic.Pointer[Block] // blocks freed from anywhere
	retView atomic.Pointer[Buf]

	mu          sync.Mutex
	full        []*magazine // depot: magazines with blocks
	empty       []*magazine
	free        int  // blocks in full
	freeViews   *Buf // linked by next
	nviews      int  // in freeViews
	caches      int
	quarantined map[string][]*Buf
	closed      bool

	pressed atomic.Bool // the depot is below low water: caches give back
	fails   [levels]atomic.Uint64
	copies  copies
	ext     externals
}

// NewPool allocates the memory, gives it bus addresses in cfg.Space and cuts it into blocks.
func NewPool(cfg Config) (*Pool, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("mbuf pool %q: %w", cfg.Name, err)
	}
	stride := (cfg.Headroom + cfg.Size + lineSize - 1) &^ (lineSize - 1)
	if stride%pageSize == 0 {
		// Headers at the same offset of every page would fight for one set of the first-level cache.
		stride += lineSize
	}
	region, err := hugepage.Alloc(hugepage.Config{Size: stride * (cfg.Buffers + 1), Node: cfg.Node - 1, RequireHuge: cfg.RequireHuge, Name: cfg.Name})
	if err != nil {
		return nil, fmt.Errorf("mbuf pool %q: %d buffers of %d bytes: %w", cfg.Name, cfg.Buffers, stride, err)
	}
	p := &Pool{name: cfg.Name, space: cfg.Space, region: region, headroom: uint32(cfg.Headroom), size: uint32(cfg.Size)}
	if err := p.attach(); err != nil {
		return nil, errors.Join(fmt.Errorf("mbuf pool %q: %w", cfg.Name, err), region.Close())
	}
	if err := p.cut(cfg, stride); err != nil {
		return nil, errors.Join(fmt.Errorf("mbuf pool %q: %w", cfg.Name, err), p.giveBackMemory())
	}
	p.stock(cfg)
	return p, nil
}

func (cfg *Config) complete() error {
	def := func(v *int, d int) {
		switch {
		case *v == 0:
			*v = d
		case *v < 0:
			*v = 0
		}
	}
	if cfg.Buffers < 1 || cfg.Buffers > maxBufs {
		return fmt.Errorf("%d buffers: want 1 to %d", cfg.Buffers, maxBufs)
	}
	if cfg.Space == nil {
		return errors.New("Config.Space is nil: make one with vtop.NewMapped or vtop.NewPhysical")
	}
	def(&cfg.Size, DefaultSize)
	def(&cfg.Headroom, DefaultHeadroom)
	if cfg.Size < 1 || cfg.Size > maxSize || cfg.Headroom > maxSize {
		return fmt.Errorf("buffers of %d bytes with headroom %d: want at most %d of each, and some room", cfg.Size, cfg.Headroom, maxSize)
	}
	def(&cfg.Workers, 1)
	def(&cfg.Views, 2*cfg.Buffers)
	def(&cfg.ReserveViews, cfg.Views/8)
	def(&cfg.Externals, 1024)
	def(&cfg.ReserveReceive, cfg.Buffers/16)
	def(&cfg.ReserveControl, cfg.Buffers/16)
	if cfg.Workers < 1 || max(cfg.Workers, cfg.Externals, cfg.Views/2) > maxBufs {
		return fmt.Errorf("%d workers, %d external buffers, %d views: want 1 worker or more, and at most %d, %d and %d",
			cfg.Workers, cfg.Externals, cfg.Views, maxBufs, maxBufs, 2*maxBufs)
	}
	// Subtracted, not added: a sum of two that are far too large could look small.
	if cfg.ReserveReceive >= cfg.Buffers-min(cfg.ReserveControl, cfg.Buffers) {
		return fmt.Errorf("%d and %d buffers reserved of %d: nothing is left to allocate", cfg.ReserveReceive, cfg.ReserveControl, cfg.Buffers)
	}
	if cfg.ReserveViews > cfg.Views {
		return fmt.Errorf("%d views reserved of %d", cfg.ReserveViews, cfg.Views)
	}
	return nil
}

// attach gives the region bus addresses, and holds it there.
func (p *Pool) attach() error {
	if err := p.space.Add(p.region); err != nil {
		return err
	}
	unhold, err := p.space.Hold(p.region)
	if err != nil {
		return errors.Join(err, p.space.Remove(context.Background(), p.region))
	}
	p.unhold = unhold
	return nil
}

// cut makes the blocks. One that would lie across a physical discontinuity starts after it instead.
func (p *Pool) cut(cfg Config, stride int) error {
	p.blocks = make([]Block, cfg.Buffers)
	capacity := cfg.Headroom + cfg.Size
	at, end := 0, p.region.Size()
	for i := range p.blocks {
		base := unsafe.Add(p.region.Base(), at)
		for at+capacity <= end {
			run := p.space.Contiguous(base)
			if run >= capacity {
				break
			}
			at += run
			base = unsafe.Add(p.region.Base(), at)
		}
		if at+capacity > end {
			return fmt.Errorf("only %d of %d buffers fit between the physical discontinuities of %d bytes: use larger huge pages", i, cfg.Buffers, end)
		}
		bus, err := p.space.Bus(base, capacity)
		if err != nil {
			return err
		}
		blk := &p.blocks[i]
		blk.base, blk.bus, blk.cap, blk.index, blk.pool = base, bus, uint32(capacity), uint32(i), p
		blk.state.Store(1)
		blk.first.base, blk.first.blk = base, blk
		blk.poison()
		at += stride
	}
	return nil
}

// stock fills the depot, all of it, and threads the views.
func (p *Pool) stock(cfg Config) {
	p.magSize = max(1, min(magMax, cfg.Buffers/(8*cfg.Workers)))
	p.viewBatch = max(1, min(viewBatchMax, cfg.Views/(8*cfg.Workers)))
	p.viewFloor, p.nviews = cfg.ReserveViews, cfg.Views
	p.floor = [levels]int{Normal: cfg.ReserveReceive + cfg.ReserveControl, Receive: cfg.ReserveControl}
	for i := range p.blocks {
		p.depotPut(&p.blocks[i])
	}
	p.views = make([]Buf, cfg.Views)
	for i := range p.views {
		p.views[i].next, p.freeViews = p.freeViews, &p.views[i]
	}
	p.quarantined = make(map[string][]*Buf)
	p.ext.init(p, cfg.Externals)
}

// Name is the pool's name.
func (p *Pool) Name() string { return p.name }

// Space is where the pool's memory has its bus addresses.
func (p *Pool) Space() *vtop.Space { return p.space }

// Region is the pool's memory.
func (p *Pool) Region() *hugepage.Region { return p.region }

// Headroom is the room in front of a fresh buffer, bytes.
func (p *Pool) Headroom() int { return int(p.headroom) }

// Size is the data room of a fresh buffer after its headroom, bytes.
func (p *Pool) Size() int { return int(p.size) }

// Buffers is the number of blocks.
func (p *Pool) Buffers() int { return len(p.blocks) }

// Stats is a snapshot of a pool.
type Stats struct {
	Buffers     int
	Free        int // in the pool
	Out         int // in use, or in a worker's cache
	Quarantined int // kept back because a card may still touch them; part of Out
	Externals   int // buffers of application memory that live
	Failed      [levels]uint64
	Copied      map[string]CopyStats // by site, those that have copied something
}

// Stats returns the state of the pool.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.collect()
	s := Stats{Buffers: len(p.blocks), Free: p.free, Out: len(p.blocks) - p.free, Externals: p.ext.live(), Copied: p.copies.snapshot()}
	for _, q := range p.quarantined {
		for _, b := range q {
			s.Quarantined += b.Segs()
		}
	}
	for l := range s.Failed {
		s.Failed[l] = p.fails[l].Load()
	}
	return s
}

// Quarantine keeps the frame that b begins out of use, because the card called owner may still read or write it. It stays
// counted and mapped until ReleaseQuarantine(owner).
func (p *Pool) Quarantine(owner string, b *Buf) {
	b.Transfer(owner)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quarantined[owner] = append(p.quarantined[owner], b)
}

// ReleaseQuarantine frees what was quarantined for owner: it has been reset, or its bus mastering was seen to be off.
func (p *Pool) ReleaseQuarantine(owner string) int {
	p.mu.Lock()
	held := p.quarantined[owner]
	delete(p.quarantined, owner)
	p.mu.Unlock()
	n := 0
	for _, b := range held {
		n += b.Segs()
		b.Free()
	}
	return n
}

// Close gives the memory back. Buffers that are still out make it fail: their memory stays mapped, because somebody may
// write to it, and the error says how many they are (and, with the tag mbufcheck, where they were allocated). Caches are
// to be closed before.
func (p *Pool) Close() error {
	p.RunDone()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.collect()
	if out := len(p.blocks) - p.free; out != 0 || !p.ext.close() {
		return fmt.Errorf("close mbuf pool %q: %d of %d buffers and %d external ones are not back (quarantined: %s; %d caches open)%s: free them, close the caches, then close again",
			p.name, out, len(p.blocks), p.ext.live(), p.quarantineText(), p.caches, p.leaks())
	}
	if err := p.giveBackMemory(); err != nil {
		p.ext.reopen()
		return fmt.Errorf("close mbuf pool %q: %w", p.name, err)
	}
	p.closed = true
	return nil
}

// quarantineText says who has how many segments in quarantine. The caller holds the lock.
func (p *Pool) quarantineText() string {
	if len(p.quarantined) == 0 {
		return "none"
	}
	var parts []string
	for _, owner := range slices.Sorted(maps.Keys(p.quarantined)) {
		n := 0
		for _, b := range p.quarantined[owner] {
			n += b.Segs()
		}
		parts = append(parts, fmt.Sprintf("%d by %s", n, owner))
	}
	return strings.Join(parts, ", ")
}

// giveBackMemory takes the region out of the space. It does not wait for others that hold it: that they do is an error,
// after which it can be tried again.
func (p *Pool) giveBackMemory() error {
	p.unhold()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.space.Remove(now, p.region); err != nil {
		if unhold, holdErr := p.space.Hold(p.region); holdErr == nil {
			p.unhold = unhold
		}
		return err
	}
	return p.region.Close()
}
