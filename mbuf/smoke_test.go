package mbuf

import (
	"testing"
	"unsafe"

	"bare.wire/vtop"
)

func newTestPool(tb testing.TB, cfg Config) *Pool {
	tb.Helper()
	if cfg.Space == nil {
		cfg.Space = vtop.NewMapped()
	}
	p, err := NewPool(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func TestABufFillsOneCacheLine(t *testing.T) {
	if n := unsafe.Sizeof(Buf{}); !checking && n != 64 {
		t.Fatalf("Buf has %d bytes, want 64", n)
	}
	if n := unsafe.Sizeof(Block{}); !checking && n > 128 {
		t.Fatalf("Block has %d bytes, want at most 128", n)
	}
}

func TestEveryBlockCanBeAllocatedAndComesBack(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 300, ReserveReceive: -1, ReserveControl: -1})
	c := p.NewCache()
	var bufs []*Buf
	for b := c.Alloc(); b != nil; b = c.Alloc() {
		bufs = append(bufs, b)
	}
	if len(bufs) != 300 {
		t.Fatalf("%d buffers of 300", len(bufs))
	}
	if p.Close() == nil {
		t.Fatal("Close with 300 buffers out must fail")
	}
	for i, b := range bufs {
		if i%2 == 0 {
			b.Free()
		} else {
			c.Free(b)
		}
	}
	c.Close()
	if s := p.Stats(); s.Out != 0 {
		t.Fatalf("%d buffers out", s.Out)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}
