package mbuf

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"bare.wire/hugepage"
	"bare.wire/vtop"
)

func lend(t *testing.T, p *Pool, r *hugepage.Region, off, n int, done func()) *Buf {
	t.Helper()
	b, err := p.External(r, off, n, done)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDoneIsCalledOnceAfterTheLastView(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 8})
	c := p.NewCache()
	region := newRegion(t, p.Space())
	fill(region.Bytes()[:200], 5)
	calls := 0
	b := lend(t, p, region, 100, 50, func() { calls++ })
	if &b.Bytes()[0] != &region.Bytes()[100] || b.Len() != 50 || b.Capacity() != 50 {
		t.Fatal("the buffer is not the application's memory")
	}
	if want, err := p.Space().Bus(b.base, 50); err != nil || b.Bus() != want {
		t.Fatalf("bus address %#x, want %#x", b.Bus(), want)
	}
	v := b.Clone(c)
	var q Chain
	q.Append(v)
	front, err := q.Split(c, 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, free := range []func(){b.Free, q.Free} {
		free()
		if n := p.RunDone(); n != 0 || calls != 0 || p.Stats().Externals != 1 {
			t.Fatal("done before the last view was freed")
		}
	}
	front.Free()
	if calls != 0 {
		t.Fatal("done is called by RunDone only")
	}
	if n := p.RunDone(); n != 1 || calls != 1 || p.Stats().Externals != 0 {
		t.Fatalf("%d done calls, %d counted", calls, n)
	}
	if p.RunDone() != 0 || calls != 1 {
		t.Fatal("done is called twice")
	}
	c.Free(lend(t, p, region, 0, 1, nil)) // no done: nothing to call, everything else as usual
	if n := p.RunDone(); n != 1 {
		t.Fatalf("%d, want 1", n)
	}
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}

func TestDoneCallsComeInTheOrderOfTheFrees(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 8})
	region := newRegion(t, p.Space())
	var bufs []*Buf
	var got []int
	for i := range 10 {
		bufs = append(bufs, lend(t, p, region, i, 1, func() { got = append(got, i) }))
	}
	order := []int{3, 1, 4, 0, 5, 9, 2, 6, 8, 7}
	for _, i := range order[:6] {
		bufs[i].Free()
	}
	p.RunDone()
	for _, i := range order[6:] {
		bufs[i].Free()
	}
	p.RunDone()
	if !slices.Equal(got, order) {
		t.Errorf("done in order %v, freed in order %v", got, order)
	}
	closePool(t, p)
}

// TestRegionStaysUntilItsLastBufferIsDone: Remove waits, gives up with its context, and succeeds once RunDone has run.
func TestRegionStaysUntilItsLastBufferIsDone(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 8})
	region := newRegion(t, p.Space())
	a, b := lend(t, p, region, 0, 10, nil), lend(t, p, region, 5, 10, nil)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, step := range []func(){func() {}, a.Free, func() { p.RunDone() }, b.Free} {
		step()
		if err := p.Space().Remove(over, region); !errors.Is(err, context.Canceled) {
			t.Fatalf("Remove under a buffer: %v", err)
		}
	}
	removed := make(chan error)
	go func() { removed <- p.Space().Remove(context.Background(), region) }()
	p.RunDone()
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	if _, err := p.External(region, 0, 10, nil); err == nil {
		t.Fatal("a buffer of a region that has left the space")
	}
	if err := region.Close(); err != nil {
		t.Fatal(err)
	}
	closePool(t, p)
}

// TestDoneMayRemoveItsRegion: the region is let go of before done is called.
func TestDoneMayRemoveItsRegion(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 8})
	region := newRegion(t, p.Space())
	var err error
	lend(t, p, region, 0, 10, func() { err = errors.Join(p.Space().Remove(t.Context(), region), region.Close()) }).Free()
	p.RunDone()
	if err != nil || region.Bytes() != nil {
		t.Errorf("%v", err)
	}
	closePool(t, p)
}

func TestExternalRefusesWhatNoCardCanReach(t *testing.T) {
	space := vtop.NewMapped()
	p := newTestPool(t, Config{Buffers: 8, Space: space})
	region := newRegion(t, space)
	stranger := newRegion(t, vtop.NewMapped())
	closed := newRegion(t, space)
	if err := errors.Join(space.Remove(t.Context(), closed), closed.Close()); err != nil {
		t.Fatal(err)
	}
	size := region.Size()
	for _, test := range []struct {
		name   string
		region *hugepage.Region
		off, n int
		says   string
	}{
		{"before the region", region, -1, 10, "want 1 byte"},
		{"behind the region", region, size, 1, "want 1 byte"},
		{"over the end", region, size - 1, 2, "want 1 byte"},
		{"far outside", region, math.MaxInt, 2, "want 1 byte"},
		{"overflow", region, 10, math.MaxInt, "want 1 byte"},
		{"of no bytes", region, 10, 0, "want 1 byte"},
		{"of less than none", region, 10, -5, "want 1 byte"},
		{"not in the space", stranger, 0, 10, "add it first"},
		{"closed", closed, 0, 10, "add it first"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b, err := p.External(test.region, test.off, test.n, func() { t.Error("done of a buffer that never was") })
			if err == nil || b != nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "application") {
				t.Errorf("%v, want %q", err, test.says)
			}
		})
	}
	lend(t, p, region, size-1, 1, nil).Free()
	if s := p.Stats(); s.Externals != 1 {
		t.Errorf("%+v", s)
	}
	closePool(t, p)
	// Nothing of all this holds the region.
	if err := space.Remove(t.Context(), region); err != nil {
		t.Error(err)
	}
	if _, err := p.External(region, 0, 1, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("external buffer of a closed pool: %v", err)
	}
}

func TestExternalsRunOutAndComeBack(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 8, Externals: 3})
	region := newRegion(t, p.Space())
	var bufs []*Buf
	for range 3 {
		bufs = append(bufs, lend(t, p, region, 0, 1, nil))
	}
	if _, err := p.External(region, 0, 1, nil); !errors.Is(err, ErrNoBuffer) || !strings.Contains(err.Error(), "Config.Externals") {
		t.Fatalf("a fourth of three: %v", err)
	}
	err := p.Close()
	if err == nil || !strings.Contains(err.Error(), "3 external") {
		t.Fatalf("Close says %v", err)
	}
	bufs[0].Free()
	if _, err := p.External(region, 0, 1, nil); !errors.Is(err, ErrNoBuffer) {
		t.Fatalf("a block is used again before its done was called: %v", err)
	}
	p.RunDone()
	lend(t, p, region, 0, 1, nil).Free()
	bufs[1].Free()
	bufs[2].Free()
	closePool(t, p)
}

// TestDoneMayLendAgain: the only block there is is free by the time done is called.
func TestDoneMayLendAgain(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 8, Externals: 1})
	region := newRegion(t, p.Space())
	calls := 0
	var done func()
	done = func() {
		if calls++; calls < 5 {
			lend(t, p, region, 0, 1, done).Free()
		}
	}
	lend(t, p, region, 0, 1, done).Free()
	for i := 1; i <= 5; i++ {
		// One round a call: what done lends and frees is for the next.
		if n := p.RunDone(); n != 1 || calls != i {
			t.Fatalf("round %d: %d done, %d calls", i, n, calls)
		}
	}
	if p.RunDone() != 0 {
		t.Fatal("a sixth")
	}
	closePool(t, p)
}

// TestExternalMemoryIsNotWritten: it may be read by somebody that no count knows of, another buffer on the same bytes for
// one. Headers go in front, not into it.
func TestExternalMemoryIsNotWritten(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 8})
	c := p.NewCache()
	region := newRegion(t, p.Space())
	fill(region.Bytes(), 9)
	before := slices.Clone(region.Bytes())
	b, twin := lend(t, p, region, 0, 100, nil), lend(t, p, region, 0, 100, nil)
	if b.Refs() != 1 || b.Writable() {
		t.Error("an application's memory is writable")
	}
	account := NewAccount(0, nil)
	b.Charge(account)
	if b.Writable() || account.Bytes() != 100 {
		t.Errorf("charged: writable %v, %d bytes", b.Writable(), account.Bytes())
	}
	if err := errors.Join(b.TrimFront(20), b.TrimBack(20)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reserve(10); !errors.Is(err, ErrShared) {
		t.Errorf("room in an application's memory: %v", err)
	}
	head, room, err := b.Prepend(c, 14)
	if err != nil || head == b {
		t.Fatalf("prepended in an application's memory: %v", err)
	}
	fill(room, 77)
	var q Chain
	q.Append(head)
	if room, err = q.Reserve(c, 10); err != nil {
		t.Fatal(err)
	}
	fill(room, 78)
	if !slices.Equal(region.Bytes(), before) {
		t.Error("an application's memory was written to")
	}
	q.Free()
	twin.Free()
	p.RunDone()
	if account.Bytes() != 0 {
		t.Errorf("%d bytes are charged", account.Bytes())
	}
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}

// TestLendingAndDoneFromManyGoroutines counts: every done once, whoever frees and whoever runs it.
func TestLendingAndDoneFromManyGoroutines(t *testing.T) {
	const workers, each = 4, 500
	p := newTestPool(t, Config{Buffers: 64, Externals: 7})
	region := newRegion(t, p.Space())
	var calls [workers][each]int
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			c := p.NewCache()
			defer c.Close()
			for i := 0; i < each; {
				count := &calls[w][i]
				b, err := p.External(region, i, 10, func() { *count++ })
				if err != nil {
					p.RunDone()
					continue
				}
				v := b.Clone(c)
				c.Free(b)
				if v != nil {
					v.Free()
				}
				i++
			}
		})
	}
	wg.Wait()
	p.RunDone()
	for w := range calls {
		for i, n := range calls[w] {
			if n != 1 {
				t.Fatalf("done %d of worker %d was called %d times", i, w, n)
			}
		}
	}
	checkHome(t, p)
	closePool(t, p)
}
