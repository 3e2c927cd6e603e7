package mbuf

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// TestManyWorkersPassBuffersAround has workers allocate, clone, split, hand on and free, each on frames of all the others.
// Whatever the interleaving, every block is home exactly once at the end.
func TestManyWorkersPassBuffersAround(t *testing.T) {
	for _, test := range []struct{ buffers, workers, rounds int }{{64, 4, 3000}, {1000, 6, 3000}, {9, 3, 2000}} {
		t.Run(fmt.Sprintf("%d buffers %d workers", test.buffers, test.workers), func(t *testing.T) {
			p := newTestPool(t, Config{Buffers: test.buffers, Workers: test.workers, Views: 2 * test.buffers, Size: 64})
			account := NewAccount(1000, func() {})
			inbox := make([]chan *Buf, test.workers)
			for i := range inbox {
				inbox[i] = make(chan *Buf, 32)
			}
			var wg sync.WaitGroup
			for id := range test.workers {
				wg.Go(func() {
					w := &passer{rng: rand.New(rand.NewPCG(uint64(id), 7)), c: p.NewCacheAt(Level(id % levels)), inbox: inbox, id: id, account: account}
					for range test.rounds {
						w.round()
					}
					w.c.Close()
				})
			}
			wg.Wait()
			for _, in := range inbox {
				close(in)
				for b := range in {
					b.Free()
				}
			}
			checkHome(t, p)
			if account.Bytes() != 0 {
				t.Errorf("%d bytes are charged", account.Bytes())
			}
			closePool(t, p)
		})
	}
}

// passer is a worker that owns what it has taken out of its inbox, and writes to it while it may.
type passer struct {
	rng     *rand.Rand
	c       *Cache
	inbox   []chan *Buf
	id      int
	account *Account
}

func (w *passer) round() {
	switch w.rng.IntN(4) {
	case 0:
		b := w.c.Alloc()
		if b == nil {
			return
		}
		if room, err := b.Reserve(32); err == nil {
			fill(room, byte(w.id))
		}
		w.pass(b)
	case 1:
		var bufs [8]*Buf
		w.c.FreeBulk(bufs[:w.c.AllocBulk(bufs[:])])
	default:
		select {
		case b := <-w.inbox[w.id]:
			w.work(b)
		default:
		}
	}
}

// work does something to a frame and lets go of it.
func (w *passer) work(b *Buf) {
	switch w.rng.IntN(6) {
	case 0:
		w.pass(b)
	case 1:
		if v := b.Clone(w.c); v != nil {
			w.pass(v)
		}
		w.pass(b)
	case 2:
		var q Chain
		q.Append(b)
		if front, err := q.Split(w.c, q.Len()/2); err == nil && !front.Empty() {
			w.pass(front.Take())
		}
		if !q.Empty() {
			w.pass(q.Take())
		}
	case 3:
		b.Charge(w.account)
		if b.Writable() {
			fill(b.Bytes(), byte(w.id))
		}
		w.pass(b)
	case 4:
		b.Free()
	default:
		w.c.Free(b)
	}
}

// pass gives b to some worker, or frees it when that has enough.
func (w *passer) pass(b *Buf) {
	select {
	case w.inbox[w.rng.IntN(len(w.inbox))] <- b:
	default:
		b.Free()
	}
}

// TestLastTwoOwnersFreeAtTheSameTime is the race for who takes the block home.
func TestLastTwoOwnersFreeAtTheSameTime(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 8, Size: 64})
	c := p.NewCache()
	start := make(chan *Buf)
	var wg sync.WaitGroup
	wg.Go(func() {
		own := p.NewCache()
		for v := range start {
			own.Free(v)
		}
		own.Close()
	})
	for range 3000 {
		b := c.Alloc()
		if b == nil {
			t.Fatal("a block is lost")
		}
		v := b.Clone(c)
		if v == nil {
			t.Fatal("a view is lost")
		}
		start <- v
		c.Free(b)
	}
	close(start)
	wg.Wait()
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}

// TestStatisticsWhileWorkersRun: reading them disturbs nobody, and they always add up.
func TestStatisticsWhileWorkersRun(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 128, Workers: 2, Size: 64})
	var wg sync.WaitGroup
	site := &Site{"busy"}
	for range 2 {
		wg.Go(func() {
			c := p.NewCache()
			var bufs [16]*Buf
			for range 500 {
				n := c.AllocBulk(bufs[:])
				Copy(p, site, make([]byte, 4), []byte{1, 2, 3, 4})
				if n > 0 {
					bufs[0].Free()
					c.FreeBulk(bufs[1:n])
				}
			}
			c.Close()
		})
	}
	for range 200 {
		if s := p.Stats(); s.Free+s.Out != s.Buffers || s.Free < 0 || s.Free > s.Buffers {
			t.Fatalf("%+v", s)
		}
	}
	wg.Wait()
	if s := p.Stats(); s.Copied["busy"] != (CopyStats{Calls: 1000, Bytes: 4000}) {
		t.Errorf("%+v", s.Copied)
	}
	checkHome(t, p)
	closePool(t, p)
}
