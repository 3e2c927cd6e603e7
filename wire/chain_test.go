package wire_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/vtop"
	"bare.wire/wire"
)

func newPool(t *testing.T) *mbuf.Cache {
	t.Helper()
	pool, err := mbuf.NewPool(mbuf.Config{Name: "wire test", Space: vtop.NewMapped(), Buffers: 512, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := pool.NewCache()
	t.Cleanup(func() {
		c.Close()
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// chainOf puts each part into a segment of its own.
func chainOf(t *testing.T, c *mbuf.Cache, parts [][]byte) *mbuf.Buf {
	t.Helper()
	var head, last *mbuf.Buf
	for _, p := range parts {
		b := c.Alloc()
		if b == nil {
			t.Fatal("pool is empty")
		}
		room, err := b.Reserve(len(p))
		if err != nil {
			t.Fatal(err)
		}
		copy(room, p)
		if head == nil {
			head = b
		} else {
			last.SetNext(b)
		}
		last = b
	}
	return head
}

func TestChainOfOddAndEmptySegmentsSumsLikeFlatBytes(t *testing.T) {
	c := newPool(t)
	r := rand.New(rand.NewPCG(13, 14))
	for i := range 500 {
		flat := make([]byte, r.IntN(900))
		random(flat, r)
		head := chainOf(t, c, split(flat, r))
		off := r.IntN(len(flat) + 1)
		n := r.IntN(len(flat) - off + 1)
		if i%2 == 0 {
			n = len(flat) - off
		}
		got, err := wire.SumChain(head, off, n)
		if want := naiveSum(flat[off : off+n]); err != nil || got != want {
			t.Fatalf("round %d: bytes %d to %d of %d: %#04x, %v; want %#04x", i, off, off+n, len(flat), got, err, want)
		}
		for _, bad := range [][2]int{{0, len(flat) + 1}, {len(flat), 1}, {len(flat) + 1, 1}} {
			if _, err := wire.SumChain(head, bad[0], bad[1]); !errors.Is(err, wire.ErrTruncated) {
				t.Fatalf("round %d: range %v of %d bytes: %v", i, bad, len(flat), err)
			}
		}
		head.Free()
	}
	if _, err := wire.SumChain(nil, -1, 1); !errors.Is(err, wire.ErrRange) {
		t.Errorf("negative offset: %v", err)
	}
	if s, err := wire.SumChain(nil, 0, 0); err != nil || s != 0 {
		t.Errorf("no bytes of no chain: %v, %v", s, err)
	}
}

func TestFrameInSegmentsParsesAndChecks(t *testing.T) {
	c := newPool(t)
	r := rand.New(rand.NewPCG(15, 16))
	for _, f := range goodFrames(t) {
		want, err := wire.Parse(f.data)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			at := want.Payload + r.IntN(len(f.data)-want.Payload+1)
			head := chainOf(t, c, append([][]byte{f.data[:at]}, split(f.data[at:], r)...))
			l, err := wire.ParseChain(head)
			if err != nil || l != want {
				t.Fatalf("%s: %+v, %v; want %+v", f.name, l, err, want)
			}
			if got, flat := l.CheckL4Chain(head), l.CheckL4(f.data); got != flat {
				t.Fatalf("%s cut at %d: %v in segments, %v flat", f.name, at, got, flat)
			}
			if l.HasL4() { // damage the last byte that counts
				damage(t, head, l.End-1)
				if got := l.CheckL4Chain(head); got != wire.Bad {
					t.Fatalf("%s cut at %d: %v with a byte changed", f.name, at, got)
				}
			}
			head.Free()
		}
	}
}

// damage flips a bit of byte at of the chain.
func damage(t *testing.T, b *mbuf.Buf, at int) {
	t.Helper()
	for ; b != nil; b = b.Next() {
		if at < b.Len() {
			b.Bytes()[at] ^= 4
			return
		}
		at -= b.Len()
	}
	t.Fatal("byte is not in the chain")
}
