package mbuf

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// newChain makes a chain of segments with the lengths given, and says what is in it.
func newChain(tb testing.TB, c *Cache, lens ...int) (*Chain, []byte) {
	tb.Helper()
	q := new(Chain)
	var want []byte
	for i, n := range lens {
		b := c.Alloc()
		if b == nil {
			tb.Fatal("no buffer")
		}
		room, err := b.Reserve(n)
		if err != nil {
			tb.Fatal(err)
		}
		fill(room, byte(i*13))
		want = append(want, room...)
		q.Append(b)
	}
	return q, want
}

func TestChainIsAProperReader(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 128, Size: 256})
	c := p.NewCache()
	for _, lens := range [][]int{{}, {0}, {1}, {256}, {1, 0, 2}, {0, 0, 5}, {100, 200, 0}, {3, 0, 256, 17, 0, 0, 1}} {
		q, want := newChain(t, c, lens...)
		if err := iotest.TestReader(q, want); err != nil {
			t.Errorf("segments of %v: %v", lens, err)
		}
		if !q.Empty() {
			t.Errorf("segments of %v: the chain is not empty at its end", lens)
		}
		q.Free()
	}
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}

// TestReadCountsAndWriteToPassesReferences: Read copies, under its own site; what WriteTo hands to the writer is the buffers'
// own memory.
func TestReadCountsAndWriteToPassesReferences(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	q, want := newChain(t, c, 100, 0, 50)
	var lie []*byte
	for b := q.Head(); b != nil; b = b.Next() {
		if b.Len() > 0 {
			lie = append(lie, &b.Bytes()[0])
		}
	}
	w := new(keeper)
	if n, err := q.WriteTo(w); n != 150 || err != nil || len(w.at) != 2 || w.at[0] != lie[0] || w.at[1] != lie[1] || !bytes.Equal(w.got, want) {
		t.Errorf("wrote %d, %v, in %d pieces", n, err, len(w.at))
	}
	if s := p.Stats(); len(s.Copied) != 0 {
		t.Errorf("WriteTo copied: %v", s.Copied)
	}
	if s := p.Stats(); s.Out != c.n+c.spare.n {
		t.Errorf("%d out, the cache has %d: what was written is not freed", s.Out, c.n+c.spare.n)
	}
	q, want = newChain(t, c, 100, 50)
	got := make([]byte, 120)
	if n, err := q.Read(got); n != 120 || err != nil || !bytes.Equal(got, want[:120]) {
		t.Errorf("read %d, %v", n, err)
	}
	if b, err := q.ReadByte(); b != want[120] || err != nil {
		t.Errorf("read %#x, %v", b, err)
	}
	s := p.Stats().Copied
	if len(s) != 1 || s["mbuf.Chain.Read"] != (CopyStats{Calls: 3, Bytes: 121}) {
		t.Errorf("copied %v", s)
	}
	q.Free()
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}

// keeper is a writer that notes where the bytes were.
type keeper struct {
	at  []*byte
	got []byte
}

func (w *keeper) Write(p []byte) (int, error) {
	w.at = append(w.at, &p[0])
	w.got = append(w.got, p...)
	return len(p), nil
}

// liar says that it wrote more than it was given, or less than nothing.
type liar int

func (n liar) Write([]byte) (int, error) { return int(n), nil }

func TestWriterThatLiesLosesNothing(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	for _, n := range []liar{11, -1} {
		q, want := newChain(t, c, 10, 10)
		if n, err := q.WriteTo(n); n != 0 || err == nil {
			t.Errorf("%d, %v", n, err)
		}
		got, err := io.ReadAll(q)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%x, %v, want %x", got, err, want)
		}
	}
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}

// TestCopyCountsBySite: in the pool that it is given, sites of one name together.
func TestCopyCountsBySite(t *testing.T) {
	p, other := newTestPool(t, Config{Buffers: 8}), newTestPool(t, Config{Buffers: 8})
	a, b, twin := &Site{"a"}, &Site{"b"}, &Site{"a"}
	dst := make([]byte, 10)
	for _, step := range []struct {
		p    *Pool
		site *Site
		n    int
		want int
	}{{p, a, 4, 4}, {p, a, 20, 10}, {p, b, 3, 3}, {p, twin, 1, 1}, {p, b, 0, 0}, {other, a, 2, 2}} {
		src := make([]byte, step.n)
		fill(src, 3)
		if n := Copy(step.p, step.site, dst, src); n != step.want || !bytes.Equal(dst[:n], src[:n]) {
			t.Errorf("copied %d, want %d", n, step.want)
		}
	}
	s := p.Stats().Copied
	if len(s) != 2 || s["a"] != (CopyStats{3, 15}) || s["b"] != (CopyStats{2, 3}) {
		t.Errorf("%v", s)
	}
	if s := other.Stats().Copied; s["a"] != (CopyStats{1, 2}) {
		t.Errorf("the other pool: %v", s)
	}
	closePool(t, p)
	closePool(t, other)
}

// TestSplitSharesTheBlockItCutsThrough: no byte moves, and the two halves cannot be written until one has gone.
func TestSplitSharesTheBlockItCutsThrough(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	q, _ := newChain(t, c, 10, 10)
	at := q.Head().Next().Bus()
	front, err := q.Split(c, 14)
	if err != nil {
		t.Fatal(err)
	}
	left, right := front.Head().Next(), q.Head()
	if left.Bus() != at || left.Len() != 4 || right.Bus() != at+4 || right.Len() != 6 || left.Refs() != 2 || right.Writable() {
		t.Errorf("cut at %#x: %d bytes at %#x, %d at %#x", at+4, left.Len(), left.Bus(), right.Len(), right.Bus())
	}
	if _, err := front.tail.Reserve(1); !errors.Is(err, ErrShared) {
		t.Errorf("the front half reserves over the back half: %v", err)
	}
	if h, _, err := right.Prepend(c, 4); err != nil || h == right {
		t.Errorf("the back half prepends over the front half: %v", err)
	} else {
		q.head = h
		q.n += 4
	}
	front.Free()
	if !right.Writable() {
		t.Error("the half that is left cannot be written")
	}
	q.Free()
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}

func TestChainAppendedToItselfIsLeftAlone(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	q, want := newChain(t, c, 10, 10)
	q.AppendChain(q)
	if got, err := io.ReadAll(q); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%x, %v", got, err)
	}
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}

// TestDriverSetsWhatTheCardWrote covers the small calls that a driver uses.
func TestDriverSetsWhatTheCardWrote(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	b, n := c.Alloc(), c.Alloc()
	for _, bad := range []int{-1, DefaultSize + 1} {
		if err := b.SetLen(bad); !errors.Is(err, ErrNoRoom) || b.Len() != 0 {
			t.Errorf("SetLen(%d): %v, length %d", bad, err, b.Len())
		}
	}
	if err := b.SetLen(DefaultSize); err != nil || b.Len() != DefaultSize || b.Tailroom() != 0 {
		t.Errorf("%v, length %d", err, b.Len())
	}
	b.Received(60, 0x1234<<32|uint64(RxHash))
	n.Received(10, 0)
	b.SetNext(n)
	if b.Len() != 60 || b.Hash() != 0x1234 || b.Flags() != RxHash || b.FrameLen() != 70 || b.Segs() != 2 || b.Last() != n {
		t.Errorf("%d bytes, hash %#x, flags %b, frame of %d in %d", b.Len(), b.Hash(), b.Flags(), b.FrameLen(), b.Segs())
	}
	b.SetTxFlags(TxTSO | TxVLAN | 1<<31)
	if f := b.TxFlags(); f != TxTSO|TxVLAN || b.Plain(p) {
		t.Errorf("asked for %b", f)
	}
	v := n.Clone(c)
	v.SetTxFlags(0)
	if v.Plain(p) || v.TxFlags() != 0 || !n.Plain(p) {
		t.Error("a second view is not plain, the first is")
	}
	c.Free(v)
	b.SetNext(nil)
	c.FreeBulk([]*Buf{b, n})
	c.Close()
	checkHome(t, p)
	closePool(t, p)
}
