//go:build mbufcheck

package mbuf

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// wantFault runs f, which must end in a report that says all of says,.
func wantFault(t *testing.T, f func(), says ...string) {
	t.Helper()
	defer func() {
		t.Helper()
		r := recover()
		if r == nil {
			t.Error("nothing was reported")
			return
		}
		text := fmt.Sprint(r)
		for _, s := range append(says, "mbufcheck: ") {
			if !strings.Contains(text, s) {
				t.Errorf("the report does not say %q:\n%s", s, text)
			}
		}
	}()
	f()
}

// allocHere and freeHere are named by the reports.
//
//go:noinline
func allocHere(c *Cache) *Buf {
	b := c.Alloc()
	_, _ = b.Reserve(40)
	return b
}

//go:noinline
func freeHere(b *Buf) { b.Free() }

func TestSanitizerSeesEveryUseAfterFree(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	for _, test := range []struct {
		op  string
		use func(b *Buf)
	}{
		{"Bytes", func(b *Buf) { b.Bytes() }},
		{"Len", func(b *Buf) { b.Len() }},
		{"Next", func(b *Buf) { b.Next() }},
		{"SetNext", func(b *Buf) { b.SetNext(nil) }},
		{"Bus", func(b *Buf) { b.Bus() }},
		{"Writable", func(b *Buf) { b.Writable() }},
		{"Reserve", func(b *Buf) { _, _ = b.Reserve(1) }},
		{"SetLen", func(b *Buf) { _ = b.SetLen(1) }},
		{"Received", func(b *Buf) { b.Received(1, 0) }},
		{"TrimFront", func(b *Buf) { _ = b.TrimFront(1) }},
		{"TrimBack", func(b *Buf) { _ = b.TrimBack(1) }},
		{"Prepend", func(b *Buf) { _, _, _ = b.Prepend(c, 1) }},
		{"Clone", func(b *Buf) { b.Clone(c) }},
		{"Charge", func(b *Buf) { b.Charge(NewAccount(0, nil)) }},
		{"Chain.Append", func(b *Buf) { new(Chain).Append(b) }},
		{"Transfer", func(b *Buf) { b.Transfer("somebody") }},
		{"Seal", func(b *Buf) { b.Seal() }},
		{"Unseal", func(b *Buf) { b.Unseal() }},
		{"Transfer", func(b *Buf) { p.Quarantine("card", b) }},
	} {
		t.Run(test.op, func(t *testing.T) {
			b := allocHere(c)
			freeHere(b)
			wantFault(t, func() { test.use(b) }, "use after free: "+test.op, "mbuf.allocHere", "mbuf.freeHere")
		})
	}
	c.Close()
	closePool(t, p)
}

// TestStalePointerIsCaughtAfterItsStorageWasReused: the new owner of the block is not touched by the old one.
func TestStalePointerIsCaughtAfterItsStorageWasReused(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 1})
	c := p.NewCache()
	stale := allocHere(c)
	c.Free(stale)
	b := c.Alloc()
	if b.blk != stale.blk || b == stale {
		t.Fatal("the block is to be the same, the view is not")
	}
	wantFault(t, func() { stale.Bytes() }, "use after free: Bytes", "mbuf.allocHere")
	wantFault(t, stale.Free, "double free")
	if b.Refs() != 1 {
		t.Errorf("%d references", b.Refs())
	}
	c.Free(b)
	c.Close()
	closePool(t, p)
}

func TestSanitizerSeesEveryDoubleFree(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	frees := map[string]func(*Buf){
		"Buf.Free": freeHere, "Cache.Free": c.Free, "FreeBulk": func(b *Buf) { c.FreeBulk([]*Buf{b}) },
		"FreePlain":  func(b *Buf) { c.FreePlain([]*Buf{b}) },
		"Chain.Free": func(b *Buf) { (&Chain{head: b, tail: b}).Free() },
	}
	for first, free := range frees {
		for second, again := range frees {
			for _, kind := range []string{"alone", "first view", "clone", "second segment"} {
				t.Run(first+" "+second+" "+kind, func(t *testing.T) {
					b := allocHere(c)
					var rest *Buf
					switch kind {
					case "first view":
						rest = b.Clone(c)
					case "clone":
						rest = b
						b = cloneHere(b, c)
					case "second segment":
						rest = allocHere(c)
						rest.SetNext(b)
						rest, b = b, rest
					}
					free(b)
					if kind == "second segment" {
						b = rest
						rest = nil
					}
					wantFault(t, func() { again(b) }, "double free", map[bool]string{true: "mbuf.cloneHere", false: "mbuf.allocHere"}[kind == "clone"])
					if rest != nil {
						c.Free(rest)
					}
				})
			}
		}
	}
	c.Close()
	closePool(t, p)
}

// TestTwoGoroutinesFreeOneBuffer: one of them is told.
func TestTwoGoroutinesFreeOneBuffer(t *testing.T) {
	if raceBuild {
		return // the detector reports it first, as the race that it is
	}
	p := newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	for range 200 {
		b := c.Alloc()
		var faults atomic.Int32
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				defer func() {
					if recover() != nil {
						faults.Add(1)
					}
				}()
				b.Free()
			})
		}
		wg.Wait()
		if faults.Load() != 1 {
			t.Fatalf("%d reports, want 1", faults.Load())
		}
	}
	c.Close()
	closePool(t, p)
}

// TestSanitizerSeesAWriteAfterFree at any byte of the storage, when the block is next handed out.
func TestSanitizerSeesAWriteAfterFree(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 1, Size: 64, Headroom: 16})
	c := p.NewCache()
	for _, at := range []int{0, 15, 16, 79} {
		b := allocHere(c)
		storage := b.blk.storage()
		freeHere(b)
		old := storage[at]
		storage[at] = 7
		wantFault(t, func() { c.Alloc() }, fmt.Sprintf("write after free: byte %d of block 0", at), "mbuf.freeHere")
		storage[at] = old
		c.n = 1 // the fault has interrupted Alloc: put the block back
	}
	c.Close()
	closePool(t, p)
}

func TestWriteIntoABufferThatNobodyEverHad(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 1})
	c := p.NewCache()
	p.blocks[0].storage()[3] = 1
	wantFault(t, func() { c.Alloc() }, "write after free: byte 3", "never used before")
}

// TestSanitizerSeesAChangeUnderTheCard: between Seal and Unseal, in any segment and through any view.
func TestSanitizerSeesAChangeUnderTheCard(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 16})
	c := p.NewCache()
	frame := func() *Buf {
		b := allocHere(c)
		b.SetNext(allocHere(c))
		return b
	}
	changes := map[string]func(b *Buf){
		"first byte":     func(b *Buf) { b.Bytes()[0]++ },
		"last byte":      func(b *Buf) { s := b.Next().Bytes(); s[len(s)-1]++ },
		"length":         func(b *Buf) { _ = b.TrimBack(1) },
		"position":       func(b *Buf) { _ = b.TrimFront(1); _, _ = b.Reserve(1); b.Bytes()[0]++ },
		"through a view": func(b *Buf) { v := b.Clone(c); v.Bytes()[5]++; c.Free(v) },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			b := frame()
			b.Seal()
			change(b)
			wantFault(t, b.Unseal, "changed between Send and its completion", "mbuf.allocHere")
			b.check.sealed = false
			c.Free(b)
		})
	}
	b := frame()
	b.Seal()
	b.Unseal()
	b.Bytes()[0]++ // the owner's again
	b.Unseal()
	b.Seal()
	b.Unseal()
	c.Free(b)
	c.Close()
	closePool(t, p)
}

//go:noinline
func leakHere(c *Cache) *Buf { return c.Alloc() }

// TestLeakReportNamesWhoAllocated: the function, the owner of the last transfer; also a first view whose clone is gone, a
// clone whose first view is gone, and memory of the application's.
func TestLeakReportNamesWhoAllocated(t *testing.T) {
	leaks := map[string]struct {
		says []string
		make func(p *Pool, c *Cache) *Buf
	}{
		"buffer":      {[]string{"mbuf.leakHere", `owner ""`}, func(_ *Pool, c *Cache) *Buf { return leakHere(c) }},
		"transferred": {[]string{"mbuf.transferHere", `owner "queue 3"`}, func(_ *Pool, c *Cache) *Buf { return transferHere(leakHere(c)) }},
		"first view": {[]string{"mbuf.leakHere"}, func(_ *Pool, c *Cache) *Buf {
			b := leakHere(c)
			b.Clone(c).Free()
			return b
		}},
		"clone": {[]string{"mbuf.cloneHere"}, func(_ *Pool, c *Cache) *Buf {
			b := leakHere(c)
			v := cloneHere(b, c)
			b.Free()
			return v
		}},
		"quarantine": {[]string{`owner "sim:a"`, "1 by sim:a"}, func(p *Pool, c *Cache) *Buf {
			p.Quarantine("sim:a", leakHere(c))
			return nil
		}},
		"external": {[]string{"mbuf.lendHere", "1 external"}, func(p *Pool, _ *Cache) *Buf { return lendHere(t, p) }},
	}
	for name, leak := range leaks {
		t.Run(name, func(t *testing.T) {
			p := newTestPool(t, Config{Buffers: 16})
			c := p.NewCache()
			c.Free(c.Alloc())
			b := leak.make(p, c)
			c.Close()
			err := p.Close()
			if err == nil {
				t.Fatal("closed with a leak")
			}
			for _, says := range leak.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("the report does not say %q:\n%v", says, err)
				}
			}
			if n := strings.Count(err.Error(), "leaked from"); n != 1 {
				t.Errorf("%d leaks reported, want 1:\n%v", n, err)
			}
			if b != nil {
				b.Free()
			}
			p.ReleaseQuarantine("sim:a")
			closePool(t, p)
		})
	}
}

//go:noinline
func transferHere(b *Buf) *Buf {
	b.Transfer("queue 3")
	return b
}

//go:noinline
func cloneHere(b *Buf, c *Cache) *Buf { return b.Clone(c) }

//go:noinline
func lendHere(t *testing.T, p *Pool) *Buf { return lend(t, p, newRegion(t, p.Space()), 0, 10, nil) }

// TestLongLeakReportIsCutShort: a thousand leaks make a report that can be read.
func TestLongLeakReportIsCutShort(t *testing.T) {
	p := newTestPool(t, Config{Buffers: 1000, Size: 64})
	c := p.NewCache()
	bufs := drain(c)
	err := p.Close()
	if err == nil || len(err.Error()) > 3*maxLeakText || !strings.Contains(err.Error(), "…") {
		t.Errorf("%d bytes of report", len(fmt.Sprint(err)))
	}
	c.FreeBulk(bufs)
	c.Close()
	closePool(t, p)
}
