package mbuf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"bare.wire/hugepage"
	"bare.wire/vtop"
)

// thing is a chain or a frame, beside the bytes that it has to have.
type thing struct {
	q    Chain
	b    *Buf // a frame; else q counts
	want []byte
}

func (x *thing) head() *Buf {
	if x.b != nil {
		return x.b
	}
	return x.q.head
}

// model drives pools and the plain bytes that say what must come out.
type model struct {
	tb       testing.TB
	pick     func(n int) int // 0 … n-1
	pools    []*Pool
	caches   []*Cache
	region   *hugepage.Region
	lent     int // external buffers made
	done     int // … and given back
	accounts []*Account
	charged  map[*Block]*Account
	things   []*thing
	tag      byte
	step     int
	dry      int // operations that failed for want of a buffer
	shared   int // … because somebody else reads the bytes
}

func newModel(tb testing.TB, pick func(n int) int) *model {
	space := vtop.NewMapped()
	m := &model{tb: tb, pick: pick, region: newRegion(tb, space), charged: make(map[*Block]*Account)}
	for i := range 2 {
		p := newTestPool(tb, Config{
			Name: fmt.Sprintf("model%d", i), Space: space, Buffers: 3 + pick(62), Size: 48, Headroom: 16,
			Workers: 1 + pick(2), Views: 1 + pick(100), Externals: 1 + pick(6),
		})
		m.pools = append(m.pools, p)
		m.caches = append(m.caches, p.NewCache(), p.NewCacheAt(Level(pick(levels))))
	}
	for _, n := range []int64{0, 200} {
		m.accounts = append(m.accounts, NewAccount(n, func() {}))
	}
	return m
}

func (m *model) cache() *Cache { return m.caches[m.pick(len(m.caches))] }

// size is a number of bytes that is often right and sometimes not.
func (m *model) size(n int) int {
	if m.pick(16) == 0 {
		return n + m.pick(3) - 1
	}
	return m.pick(n + 1)
}

func (m *model) fill(room []byte) []byte {
	m.tag += 31
	fill(room, m.tag)
	return room
}

// failed takes note of an error, which must be one of those that leave everything as it was; check sees whether it did.
func (m *model) failed(err error, allowed ...error) {
	m.tb.Helper()
	for _, a := range allowed {
		if errors.Is(err, a) {
			switch a {
			case ErrNoBuffer:
				m.dry++
			case ErrShared:
				m.shared++
			}
			return
		}
	}
	m.tb.Fatalf("step %d: %v", m.step, err)
}

func (m *model) add(x *thing) { m.things = append(m.things, x) }

func (m *model) remove(x *thing) {
	for i, y := range m.things {
		if x == y {
			m.things[i] = m.things[len(m.things)-1]
			m.things = m.things[:len(m.things)-1]
			return
		}
	}
}

// some returns a chain or frame at random; nil when there is none of the kind.
func (m *model) some(frame bool) *thing {
	var of []*thing
	for _, x := range m.things {
		if (x.b != nil) == frame {
			of = append(of, x)
		}
	}
	if len(of) == 0 {
		return nil
	}
	return of[m.pick(len(of))]
}

// run does n operations, looks at everything after each, and takes it all down at the end.
func (m *model) run(n int) {
	for m.step = range n {
		op := modelOps[m.pick(len(modelOps))]
		if x := m.some(op.frame); x != nil || op.make {
			op.do(m, x)
		}
		m.check()
		if m.tb.Failed() {
			m.tb.Fatalf("after step %d, %s", m.step, op.name)
		}
	}
	m.end()
}

func (m *model) end() {
	for _, x := range m.things {
		m.free(x.head())
	}
	m.pools[0].ReleaseQuarantine("card")
	for _, c := range m.caches {
		c.Close()
	}
	for _, p := range m.pools {
		p.RunDone()
		checkHome(m.tb, p)
		closePool(m.tb, p)
	}
	for i, a := range m.accounts {
		if a.Bytes() != 0 {
			m.tb.Errorf("account %d has %d bytes at the end", i, a.Bytes())
		}
	}
	if m.done != m.lent {
		m.tb.Errorf("%d external buffers, %d done calls", m.lent, m.done)
	}
	if err := m.pools[0].Space().Remove(m.tb.Context(), m.region); err != nil {
		m.tb.Error(err)
	}
	if err := m.region.Close(); err != nil {
		m.tb.Error(err)
	}
}

// free gives a frame back in one of the ways that there are.
func (m *model) free(b *Buf) {
	switch {
	case b == nil:
	case m.pick(2) == 0:
		b.Free()
	case m.pick(2) == 0:
		m.cache().Free(b)
	case m.pick(2) == 0:
		c := m.cache()
		if b.Plain(c.pool) {
			c.FreePlain([]*Buf{b})
		} else {
			c.Free(b)
		}
	default:
		m.cache().FreeBulk([]*Buf{b})
	}
}

// check holds everything against the model: bytes, lengths, links, counts, charges.
func (m *model) check() {
	refs := make(map[*Block]int)
	for _, x := range m.things {
		m.checkThing(x, refs)
	}
	for _, p := range m.pools {
		p.mu.Lock()
		for _, list := range p.quarantined {
			for _, b := range list {
				for ; b != nil; b = b.next {
					refs[b.blk]++
				}
			}
		}
		p.mu.Unlock()
	}
	for blk, n := range refs {
		if got := int(blk.state.Load() & refMask); got != n {
			m.tb.Errorf("block %d counts %d views, there are %d", blk.index, got, n)
		}
	}
	want := make(map[*Account]int64)
	for blk, a := range m.charged {
		if refs[blk] == 0 {
			delete(m.charged, blk)
			continue
		}
		want[a] += int64(blk.cap)
	}
	for i, a := range m.accounts {
		if a.Bytes() != want[a] {
			m.tb.Errorf("account %d: %d bytes, want %d", i, a.Bytes(), want[a])
		}
	}
	m.checkOut(refs)
}

// checkOut compares what is out of each pool with what is in chains, frames and caches.
func (m *model) checkOut(refs map[*Block]int) {
	for _, p := range m.pools {
		s := p.Stats()
		out, ext := 0, 0
		for blk := range refs {
			switch {
			case blk.pool != p:
			case blk.state.Load()&stateExt != 0:
				ext++
			default:
				out++
			}
		}
		for _, c := range m.caches {
			if c.pool == p {
				out += c.n + c.spare.n
				if most := max(2, p.Buffers()/4); c.n+c.spare.n > most {
					m.tb.Errorf("a cache holds %d blocks of %d", c.n+c.spare.n, p.Buffers())
				}
			}
		}
		if s.Out != out || s.Out+s.Free != s.Buffers || s.Externals < ext {
			m.tb.Errorf("pool %s: %+v, want %d out, %d external at least", p.Name(), s, out, ext)
		}
	}
}

func (m *model) checkThing(x *thing, refs map[*Block]int) {
	var got []byte
	segs := 0
	var last *Buf
	for b := x.head(); b != nil; b = b.Next() {
		refs[b.blk]++
		got = append(got, b.Bytes()...)
		segs++
		last = b
		if b.Headroom() < 0 || b.Tailroom() < 0 || b.Headroom()+b.Len()+b.Tailroom() != b.Capacity() {
			m.tb.Errorf("headroom %d, length %d, tailroom %d of %d", b.Headroom(), b.Len(), b.Tailroom(), b.Capacity())
		}
	}
	if !bytes.Equal(got, x.want) {
		m.tb.Errorf("got  %x\nwant %x", got, x.want)
	}
	if x.b != nil {
		if x.b.FrameLen() != len(got) || x.b.Segs() != segs || x.b.Last() != last {
			m.tb.Errorf("frame of %d bytes in %d segments says %d in %d", len(got), segs, x.b.FrameLen(), x.b.Segs())
		}
		return
	}
	if x.q.Len() != len(got) || x.q.tail != last || x.q.Empty() != (segs == 0) {
		m.tb.Errorf("chain of %d bytes says %d, tail right: %v", len(got), x.q.Len(), x.q.tail == last)
	}
}

// TestEverythingBehavesLikePlainBytes runs seeds of random operations; a failing one is replayed by its number.
func TestEverythingBehavesLikePlainBytes(t *testing.T) {
	seeds := uint64(120)
	if raceBuild {
		seeds = 40 // ten times as slow, and it is one goroutine
	}
	dry, shared := 0, 0
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 82599))
			m := newModel(t, rng.IntN)
			m.run(400)
			dry += m.dry
			shared += m.shared
		})
	}
	if dry < 300 || shared < 100 {
		t.Errorf("only %d operations found no buffer and %d a shared one: the paths that matter are not run", dry, shared)
	}
}

// FuzzChainsAgainstPlainBytes drives the same operations from the fuzzer's bytes.
func FuzzChainsAgainstPlainBytes(f *testing.F) {
	for seed := range byte(8) {
		data := make([]byte, 300)
		fill(data, seed*37)
		f.Add(data)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		steps := min(len(data), 300)
		r := bytes.NewReader(data)
		m := newModel(t, func(n int) int {
			v, err := r.ReadByte()
			if err == io.EOF {
				return 0
			}
			return int(v) % n
		})
		m.run(steps)
	})
}
