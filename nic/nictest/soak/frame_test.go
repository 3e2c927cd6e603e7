package soak

import (
	"testing"

	"bare.wire/mbuf"
	"bare.wire/vtop"
)

func TestEachByteOfAFrameIsChecked(t *testing.T) {
	pool, err := mbuf.NewPool(mbuf.Config{Name: "frames", Space: vtop.NewMapped(), Buffers: 16, Size: minBuffer})
	if err != nil {
		t.Fatal(err)
	}
	cache := pool.NewCacheAt(mbuf.Control)
	for cuts := range 3 {
		b := frame(cache, [6]byte{2}, 1000, 200, cuts)
		if id, err := check(b); id != 1000 || err != nil {
			t.Errorf("%d cuts: frame %d: %v", cuts, id, err)
		}
		segments, at := 0, 0
		for s := b; s != nil; s = s.Next() {
			segments++
			for i := range s.Bytes() {
				s.Bytes()[i] ^= 0x10
				if id, err := check(b); at >= offNumber && id == 1000 && err == nil {
					t.Errorf("%d cuts: byte %d is not checked", cuts, at)
				}
				s.Bytes()[i] ^= 0x10
				at++
			}
		}
		if segments != 1+cuts || at != 200 {
			t.Errorf("%d cuts make %d segments of %d bytes", cuts, segments, at)
		}
		b.Free()
	}
	short := cache.Alloc()
	if _, err := short.Reserve(minFrame - 1); err != nil {
		t.Fatal(err)
	}
	if _, err := check(short); err == nil {
		t.Error("a frame that is too short passes")
	}
	short.Free()
	cache.Close()
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
}
