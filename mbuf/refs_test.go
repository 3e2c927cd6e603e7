package mbuf

import (
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"
)

func TestABufFillsOneCacheLine(t *testing.T) {
	if n := unsafe.Sizeof(Buf{}); !checking && n != 64 {
		t.Fatalf("Buf has %d bytes, want 64", n)
	}
	if n := unsafe.Sizeof(Block{}); !checking && n > 128 {
		t.Fatalf("Block has %d bytes, want at most 128", n)
	}
}

// TestSeventyThousandViewsOfOneBlock is beyond what a 16-bit count can hold. The block goes home with the last view, which
// may be any of them, freed anywhere.
func TestSeventyThousandViewsOfOneBlock(t *testing.T) {
	const views, workers = 70_000, 4
	p := newTestPool(t, Config{Buffers: 8, Views: views, ReserveViews: -1})
	c := p.NewCache()
	all := make([]*Buf, 0, views+1)
	b := c.Alloc()
	if _, err := b.Reserve(100); err != nil {
		t.Fatal(err)
	}
	all = append(all, b)
	for range views {
		v := b.Clone(c)
		if v == nil {
			t.Fatalf("no view after %d", len(all))
		}
		all = append(all, v)
	}
	if b.Refs() != views+1 || b.Writable() {
		t.Fatalf("%d references, want %d; writable: %v", b.Refs(), views+1, b.Writable())
	}
	if v := b.Clone(c); v != nil && !checking {
		t.Fatal("a view more than the pool has")
	} else if v != nil {
		c.Free(v)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			own := p.NewCache()
			defer own.Close()
			for i := w; i < len(all)-1; i += workers {
				if i%3 == 0 {
					all[i].Free()
				} else {
					own.Free(all[i])
				}
			}
		})
	}
	wg.Wait()
	last := all[len(all)-1]
	if last.Refs() != 1 || !last.Writable() || p.Stats().Out == 0 {
		t.Fatalf("one view is left: %d references, writable %v, %d out", last.Refs(), last.Writable(), p.Stats().Out)
	}
	last.Free()
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}
