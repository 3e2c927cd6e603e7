//go:build mbufcheck

package mbuf

import (
	"fmt"
	"hash/crc64"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// checking says whether the sanitizer is built in.
const checking = true

// Checking says whether the sanitizer is built in.
const Checking = checking

const poisonByte = 0xdb

// maxDepth is how much of a stack is kept.
const maxDepth = 12

// maxLeakText is about how long the report of a leak may get, bytes.
const maxLeakText = 4000

// checkState is what the sanitizer knows of a view.
type checkState struct {
	freed  uint32 // atomic
	first  bool
	sealed bool
	sum    uint64
	owner  string
	born   [maxDepth]uintptr // where the view came to its owner
	died   [maxDepth]uintptr // where it was freed
}

// checkTrace is what the sanitizer knows of a block.
type checkTrace struct {
	dirty bool                // storage is in use: there is no poison to look at
	last  atomic.Pointer[Buf] // the newest view

	mu   sync.Mutex
	live map[*Buf]struct{} // views that have not been freed
}

// fault ends the program's goroutine with a report: memory that two own is not survivable.
func fault(format string, args ...any) {
	panic("mbufcheck: " + fmt.Sprintf(format, args...)) // impossible: unless the program has the bug that this build looks for
}

func (b *Buf) alive(op string) {
	if atomic.LoadUint32(&b.check.freed) != 0 {
		fault("use after free: %s of a buffer\nallocated or handed over at\n%s\nfreed at\n%s", op, stack(&b.check.born), stack(&b.check.died))
	}
}

func (b *Buf) dying() {
	if atomic.SwapUint32(&b.check.freed, 1) != 0 {
		fault("double free of a buffer\nallocated or handed over at\n%s\nfreed at\n%s", stack(&b.check.born), stack(&b.check.died))
	}
	runtime.Callers(3, b.check.died[:])
	t := &b.blk.trace
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, b)
}

// born starts the life of a view.
func (b *Buf) born(first bool) {
	atomic.StoreUint32(&b.check.freed, 0)
	b.check.first, b.check.sealed, b.check.owner = first, false, ""
	b.check.born, b.check.died = [maxDepth]uintptr{}, [maxDepth]uintptr{}
	runtime.Callers(3, b.check.born[:])
	t := &b.blk.trace
	t.last.Store(b)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = make(map[*Buf]struct{})
	}
	t.live[b] = struct{}{}
}

func (b *Buf) isFirst() bool { return b.check.first }

// freshView is a view that nobody has ever had, of a block that comes off the free list; its poison must be whole.
func (blk *Block) freshView(headroom uint32) *Buf {
	if !blk.trace.dirty {
		for i, c := range blk.storage() {
			if c != poisonByte {
				old := blk.trace.last.Load()
				where := "never used before"
				if old != nil {
					where = "freed at\n" + stack(&old.check.died)
				}
				fault("write after free: byte %d of block %d changed while it was free\n%s", i, blk.index, where)
			}
		}
	}
	blk.trace.dirty = true
	b := &Buf{base: blk.base, blk: blk, off: headroom}
	b.born(true)
	return b
}

func (blk *Block) storage() []byte { return unsafe.Slice((*byte)(blk.base), blk.cap) }

func (blk *Block) poison() {
	s := blk.storage()
	for i := range s {
		s[i] = poisonByte
	}
	blk.trace.dirty = false
}

// Transfer notes that owner has the frame now, and from where.
func (b *Buf) Transfer(owner string) {
	for ; b != nil; b = b.next {
		b.alive("Transfer")
		b.check.owner = owner
		b.check.born = [maxDepth]uintptr{}
		runtime.Callers(2, b.check.born[:])
	}
}

// Seal notes what is in the frame as it is handed to a card.
func (b *Buf) Seal() {
	for ; b != nil; b = b.next {
		b.alive("Seal")
		b.check.sealed, b.check.sum = true, b.sum()
	}
}

// Unseal reports if the frame has changed since Seal: somebody wrote to what a card was sending.
func (b *Buf) Unseal() {
	for ; b != nil; b = b.next {
		b.alive("Unseal")
		if b.check.sealed && b.check.sum != b.sum() {
			fault("a frame changed between Send and its completion\nhanded over at\n%s", stack(&b.check.born))
		}
		b.check.sealed = false
	}
}

func (b *Buf) sum() uint64 {
	return crc64.Checksum(unsafe.Slice((*byte)(unsafe.Add(b.base, b.off)), b.len), crc64.MakeTable(crc64.ECMA))
}

// leaks says where the views that have not been freed came to their owners.
func (p *Pool) leaks() string {
	var s strings.Builder
	for _, blocks := range [][]Block{p.blocks, p.ext.blocks} {
		for i := range blocks {
			if blocks[i].leak(&s); s.Len() > maxLeakText {
				s.WriteString("\n…")
				return s.String()
			}
		}
	}
	return s.String()
}

func (blk *Block) leak(s *strings.Builder) {
	blk.trace.mu.Lock()
	defer blk.trace.mu.Unlock()
	for b := range blk.trace.live {
		fmt.Fprintf(s, "\nblock %d, owner %q, leaked from\n%s", blk.index, b.check.owner, stack(&b.check.born))
	}
}

func stack(pcs *[maxDepth]uintptr) string {
	n := 0
	for n < maxDepth && pcs[n] != 0 {
		n++
	}
	if n == 0 {
		return "  (not recorded)"
	}
	var s strings.Builder
	frames := runtime.CallersFrames(pcs[:n])
	for {
		f, more := frames.Next()
		fmt.Fprintf(&s, "  %s\n    %s:%d\n", f.Function, f.File, f.Line)
		if !more {
			return strings.TrimSuffix(s.String(), "\n")
		}
	}
}
