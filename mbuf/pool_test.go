package mbuf

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"bare.wire/vtop"
)

func TestConfigThatCannotWorkIsRefused(t *testing.T) {
	space := vtop.NewMapped()
	for _, test := range []struct {
		name string
		cfg  Config
		says string
	}{
		{"no space", Config{Buffers: 8}, "vtop.NewMapped"},
		{"no buffers", Config{Space: space}, "0 buffers"},
		{"fewer than none", Config{Space: space, Buffers: -1}, "-1 buffers"},
		{"too many buffers", Config{Space: space, Buffers: maxBufs + 1}, "want 1 to"},
		{"endless buffers", Config{Space: space, Buffers: math.MaxInt}, "want 1 to"},
		{"no data room", Config{Space: space, Buffers: 8, Size: -1}, "some room"},
		{"too large", Config{Space: space, Buffers: 8, Size: maxSize + 1}, "at most"},
		{"too much headroom", Config{Space: space, Buffers: 8, Headroom: math.MaxInt}, "at most"},
		{"no workers", Config{Space: space, Buffers: 8, Workers: -1}, "1 worker or more"},
		{"endless workers", Config{Space: space, Buffers: 8, Workers: 1 << 61}, "1 worker or more"},
		{"endless views", Config{Space: space, Buffers: 8, Views: math.MaxInt}, "views"},
		{"endless externals", Config{Space: space, Buffers: 8, Externals: math.MaxInt}, "external"},
		{"all reserved", Config{Space: space, Buffers: 8, ReserveReceive: 4, ReserveControl: 4}, "nothing is left"},
		{"endless reserve", Config{Space: space, Buffers: 8, ReserveReceive: math.MaxInt, ReserveControl: math.MaxInt}, "nothing is left"},
		{"endless reserve of one", Config{Space: space, Buffers: 8, ReserveControl: math.MaxInt}, "nothing is left"},
		{"more views reserved than there are", Config{Space: space, Buffers: 8, Views: 4, ReserveViews: 5}, "5 views reserved of 4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.cfg.Name = "refused"
			p, err := NewPool(test.cfg)
			if err == nil {
				t.Fatalf("accepted: %+v", p.Stats())
			}
			if !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), `"refused"`) {
				t.Errorf("%v: want it to say %q and the pool's name", err, test.says)
			}
		})
	}
	if n := len(space.Regions()); n != 0 {
		t.Errorf("%d regions are left in the space", n)
	}
}

// TestGeometry: room for headroom and data, on cache lines, not page after page at one offset, no two blocks in one place.
func TestGeometryOfBlocks(t *testing.T) {
	for _, test := range []struct{ size, headroom, wantSize, wantHeadroom, stride int }{
		{0, 0, DefaultSize, DefaultHeadroom, 2240},
		{1, -1, 1, 0, 64},
		{2048, -1, 2048, 0, 2048},
		{4096, -1, 4096, 0, 4160},
		{4000, 96, 4000, 96, 4160},
		{8190, 2, 8190, 2, 8256},
		{9700, 192, 9700, 192, 9920},
	} {
		p := newTestPool(t, Config{Buffers: 20, Size: test.size, Headroom: test.headroom, ReserveReceive: -1, ReserveControl: -1})
		if p.Size() != test.wantSize || p.Headroom() != test.wantHeadroom || p.Buffers() != 20 {
			t.Errorf("%+v: size %d, headroom %d", test, p.Size(), p.Headroom())
		}
		for i := range p.blocks[1:] {
			if d := p.blocks[i+1].bus - p.blocks[i].bus; d != uint64(test.stride) {
				t.Errorf("%+v: stride %d", test, d)
			}
		}
		c := p.NewCache()
		bufs := drain(c)
		for i, b := range bufs {
			room, err := b.Reserve(p.Size())
			if err != nil {
				t.Fatal(err)
			}
			fill(room, byte(i))
			if _, err := b.Reserve(1); !errors.Is(err, ErrNoRoom) {
				t.Errorf("%+v: a byte more than the size: %v", test, err)
			}
		}
		want := make([]byte, p.Size())
		for i, b := range bufs {
			fill(want, byte(i))
			if string(b.Bytes()) != string(want) {
				t.Fatalf("%+v: buffer %d was overwritten by another", test, i)
			}
		}
		c.FreeBulk(bufs)
		c.Close()
		checkHome(t, p)
		closePool(t, p)
	}
}

// TestQuarantineKeepsBuffersUntilTheCardIsOff: they are counted and kept, Close names who has them, and the release brings
// them home.
func TestQuarantineKeepsBuffersUntilTheCardIsOff(t *testing.T) {
	p := newTestPool(t, Config{Name: "rx", Buffers: 16, ReserveReceive: -1, ReserveControl: -1})
	c := p.NewCache()
	region := newRegion(t, p.Space())
	q, _ := newChain(t, c, 10, 20)
	p.Quarantine("0000:03:00.0 queue 1", q.Take())
	p.Quarantine("0000:03:00.0 queue 1", c.Alloc())
	p.Quarantine("sim:a", c.Alloc())
	p.Quarantine("sim:a", lend(t, p, region, 0, 10, nil))
	if s := p.Stats(); s.Quarantined != 5 || s.Out < 4 || s.Externals != 1 {
		t.Errorf("%+v", s)
	}
	c.Flush()
	rest := drain(c)
	if len(rest) != 12 {
		t.Errorf("%d of 16 buffers can be had while 4 are in quarantine", len(rest))
	}
	c.FreeBulk(rest)
	c.Close()
	err := p.Close()
	if err == nil {
		t.Fatal("closed with buffers in quarantine")
	}
	for _, says := range []string{`"rx"`, "4 of 16 buffers", "1 external", "3 by 0000:03:00.0 queue 1", "2 by sim:a"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%v: want it to say %q", err, says)
		}
	}
	if n := p.ReleaseQuarantine("sim:b"); n != 0 {
		t.Errorf("%d buffers of a card that has none", n)
	}
	if n := p.ReleaseQuarantine("sim:a"); n != 2 {
		t.Errorf("%d buffers released, want 2", n)
	}
	if s := p.Stats(); s.Quarantined != 3 || s.Out != 3 {
		t.Errorf("%+v", s)
	}
	if n := p.ReleaseQuarantine("0000:03:00.0 queue 1"); n != 3 {
		t.Errorf("%d buffers released, want 3", n)
	}
	if n := p.ReleaseQuarantine("sim:a"); n != 0 {
		t.Errorf("%d buffers released again", n)
	}
	p.RunDone()
	checkHome(t, p)
	closePool(t, p)
}

// TestCloseGivesTheMemoryBack, after which the pool gives out nothing.
func TestCloseGivesTheMemoryBack(t *testing.T) {
	space := vtop.NewMapped()
	p := newTestPool(t, Config{Buffers: 16, Space: space})
	open := p.NewCache()
	region := p.Region()
	closePool(t, p)
	closePool(t, p)
	if len(space.Regions()) != 0 || region.Bytes() != nil {
		t.Error("the memory is still there")
	}
	if open.Alloc() != nil {
		t.Error("a closed pool gave out a buffer")
	}
}

// TestCloseDoesNotWaitForOtherHolders of the memory: it fails, says so, and works when they have let go.
func TestCloseDoesNotWaitForOtherHolders(t *testing.T) {
	p := newTestPool(t, Config{Name: "held", Buffers: 16})
	release, err := p.Space().Hold(p.Region())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "held") || !strings.Contains(err.Error(), "1 holder") {
		t.Fatalf("Close under a holder: %v", err)
	}
	// The pool works on.
	c := p.NewCache()
	b := c.Alloc()
	if b == nil {
		t.Fatal("no buffer")
	}
	c.Free(b)
	region := newRegion(t, p.Space())
	lend(t, p, region, 0, 1, nil).Free()
	c.Close()
	release()
	// And holds its memory as before.
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Space().Remove(over, p.Region()); !errors.Is(err, context.Canceled) {
		t.Errorf("the memory of a pool that was not closed can be removed: %v", err)
	}
	closePool(t, p)
	if _, err := p.External(region, 0, 1, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestLeakIsCountedInEveryBuild(t *testing.T) {
	p := newTestPool(t, Config{Name: "leaky", Buffers: 16})
	c := p.NewCache()
	b := c.Alloc()
	err := p.Close()
	if err == nil || !strings.Contains(err.Error(), "1 caches open") {
		t.Errorf("Close says %v", err)
	}
	c.Close()
	err = p.Close()
	if err == nil || !strings.Contains(err.Error(), `"leaky": 1 of 16 buffers`) || !strings.Contains(err.Error(), "0 caches open") {
		t.Errorf("Close says %v", err)
	}
	b.Free()
	closePool(t, p)
}
