package mbuf

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
)

// modelOp is one kind of step: do gets a chain (or a frame), or, with make, perhaps nil.
type modelOp struct {
	name  string
	frame bool
	make  bool
	do    func(*model, *thing)
}

// modelOps are the steps; what makes things is there twice, so that there is something to work on.
var modelOps = []modelOp{
	{"new chain", false, true, func(m *model, _ *thing) { m.add(&thing{}) }},
	{"alloc", true, true, (*model).alloc},
	{"alloc", true, true, (*model).alloc},
	{"raw", true, true, (*model).raw},
	{"external", true, true, (*model).external},
	{"run done", true, true, (*model).runDone},
	{"swap cache", true, true, (*model).swapCache},
	{"quarantine", true, true, (*model).quarantine},
	{"append", false, false, (*model).appendFrame},
	{"append", false, false, (*model).appendFrame},
	{"append chain", false, false, (*model).appendChain},
	{"split", false, false, (*model).split},
	{"split", false, false, (*model).split},
	{"chain trim front", false, false, (*model).chainTrimFront},
	{"chain trim back", false, false, (*model).chainTrimBack},
	{"chain reserve", false, false, (*model).chainReserve},
	{"chain reserve", false, false, (*model).chainReserve},
	{"chain clone", false, false, (*model).chainClone},
	{"take", false, false, (*model).take},
	{"read", false, false, (*model).read},
	{"read byte", false, false, (*model).readByte},
	{"write to", false, false, (*model).writeTo},
	{"pieces", false, false, (*model).pieces},
	{"free chain", false, false, (*model).freeChain},
	{"clone", true, false, (*model).clone},
	{"prepend", true, false, (*model).prepend},
	{"prepend", true, false, (*model).prepend},
	{"reserve", true, false, (*model).reserve},
	{"trim", true, false, (*model).trim},
	{"charge", true, false, (*model).charge},
	{"charge", false, false, (*model).charge},
	{"free", true, false, (*model).freeFrame},
}

func (m *model) alloc(*thing) {
	b := m.cache().Alloc()
	if b == nil {
		m.dry++
		return
	}
	x := &thing{b: b}
	m.add(x)
	if n := m.size(b.Tailroom()); m.pick(8) != 0 {
		m.reserveIn(x, b, n)
	}
}

// raw allocates as a driver does for its ring, and receives into what it got.
func (m *model) raw(*thing) {
	bufs := make([]*Buf, 1+m.pick(4))
	c := m.cache()
	n := c.AllocRaw(bufs)
	if n < len(bufs) {
		m.dry++
	}
	for _, b := range bufs[:n] {
		headroom := m.pick(c.pool.Headroom() + 1)
		bus := b.Renew(uint32(headroom))
		b.Received(uint32(m.pick(c.pool.Size()+1)), uint64(m.step)<<32|uint64(RxHash))
		if bus != b.Bus() || b.Headroom() != headroom || b.Hash() != uint32(m.step) || b.Flags() != RxHash || b.TxFlags() != 0 || b.Next() != nil {
			m.tb.Errorf("a raw buffer at %#x says %#x, headroom %d of %d, flags %v", bus, b.Bus(), b.Headroom(), headroom, b.Flags())
		}
		if !b.Plain(c.pool) || b.PlainBus() != bus {
			m.tb.Error("a raw buffer is not plain")
		}
		m.add(&thing{b: b, want: slices.Clone(m.fill(b.Bytes()))})
	}
}

// reserveIn reserves n bytes in the last segment of x.
func (m *model) reserveIn(x *thing, b *Buf, n int) {
	room, err := b.Reserve(n)
	if err != nil {
		m.failed(err, ErrNoRoom, ErrShared)
		return
	}
	x.want = append(x.want, m.fill(room)...)
}

func (m *model) external(*thing) {
	off := m.pick(1000)
	n := 1 + m.pick(100)
	b, err := m.pools[m.pick(len(m.pools))].External(m.region, off, n, func() { m.done++ })
	if err != nil {
		m.failed(err, ErrNoBuffer)
		return
	}
	m.lent++
	m.add(&thing{b: b, want: slices.Clone(m.region.Bytes()[off : off+n])})
}

func (m *model) runDone(*thing) { m.pools[m.pick(len(m.pools))].RunDone() }

// swapCache closes a cache that keeps being freed into for a while, and puts another in its place.
func (m *model) swapCache(x *thing) {
	i := m.pick(len(m.caches))
	old := m.caches[i]
	old.Close()
	if x != nil && m.pick(2) == 0 {
		m.remove(x)
		old.Free(x.b)
	}
	if old.Alloc() != nil {
		m.tb.Error("a closed cache allocates")
	}
	m.caches[i] = old.pool.NewCacheAt(old.level)
}

func (m *model) quarantine(x *thing) {
	if x == nil || m.pick(2) == 0 {
		m.pools[0].ReleaseQuarantine("card")
		return
	}
	m.remove(x)
	m.pools[0].Quarantine("card", x.b)
}

func (m *model) appendFrame(q *thing) {
	x := m.some(true)
	if x == nil {
		q.q.Append(nil)
		return
	}
	m.remove(x)
	q.q.Append(x.b)
	q.want = append(q.want, x.want...)
}

func (m *model) appendChain(q *thing) {
	o := m.some(false)
	q.q.AppendChain(&o.q)
	if o == q {
		return
	}
	q.want = append(q.want, o.want...)
	o.want = nil
}

func (m *model) split(q *thing) {
	n := m.size(len(q.want))
	front, err := q.q.Split(m.cache(), n)
	if err != nil {
		m.failedAt(err, n, len(q.want))
		return
	}
	m.add(&thing{q: front, want: slices.Clone(q.want[:n])})
	q.want = slices.Clone(q.want[n:])
}

// failedAt is failed for a position in n bytes: ErrNoRoom is right only outside.
func (m *model) failedAt(err error, at, n int) {
	m.tb.Helper()
	if at < 0 || at > n {
		m.failed(err, ErrNoRoom)
		return
	}
	m.failed(err, ErrNoBuffer)
}

func (m *model) chainTrimFront(q *thing) {
	n := m.size(len(q.want))
	if err := q.q.TrimFront(n); err != nil {
		m.failedAt(err, n, len(q.want))
		return
	}
	q.want = q.want[n:]
}

func (m *model) chainTrimBack(q *thing) {
	n := m.size(len(q.want))
	if err := q.q.TrimBack(n); err != nil {
		m.failedAt(err, n, len(q.want))
		return
	}
	q.want = q.want[:len(q.want)-n]
}

func (m *model) chainReserve(q *thing) {
	n := m.size(50)
	c := m.cache()
	room, err := q.q.Reserve(c, n)
	if err != nil {
		m.failed(err, ErrNoBuffer, ErrNoRoom)
		if n >= 0 && n <= c.pool.Size() && errors.Is(err, ErrNoRoom) {
			m.tb.Errorf("%d bytes fit: %v", n, err)
		}
		return
	}
	if len(room) != n {
		m.tb.Errorf("%d bytes of room, want %d", len(room), n)
	}
	q.want = append(q.want, m.fill(room)...)
}

func (m *model) chainClone(q *thing) {
	o, err := q.q.Clone(m.cache())
	if err != nil {
		m.failed(err, ErrNoBuffer)
		return
	}
	m.add(&thing{q: o, want: slices.Clone(q.want)})
}

func (m *model) take(q *thing) {
	b := q.q.Take()
	if b != nil {
		m.add(&thing{b: b, want: q.want})
	}
	q.want = nil
}

func (m *model) read(q *thing) {
	p := make([]byte, m.pick(100))
	n, err := q.q.Read(p)
	switch {
	case len(p) == 0:
		if n != 0 || err != nil {
			m.tb.Errorf("read of nothing: %d, %v", n, err)
		}
	case len(q.want) == 0:
		if n != 0 || err != io.EOF || !q.q.Empty() {
			m.tb.Errorf("read of an empty chain: %d, %v", n, err)
		}
	case err != nil || n != min(len(p), len(q.want)) || !bytes.Equal(p[:n], q.want[:n]):
		m.tb.Errorf("read %x, %v of %x", p[:n], err, q.want)
	}
	q.want = q.want[n:]
}

func (m *model) readByte(q *thing) {
	c, err := q.q.ReadByte()
	if len(q.want) == 0 {
		if err != io.EOF {
			m.tb.Errorf("read a byte of an empty chain: %v", err)
		}
		return
	}
	if err != nil || c != q.want[0] {
		m.tb.Errorf("read byte %#x, %v, want %#x", c, err, q.want[0])
	}
	q.want = q.want[1:]
}

// errFull is what a stubborn writer says.
var errFull = errors.New("full")

// stubborn takes so many bytes and then refuses: with an error, or with a short count.
type stubborn struct {
	left int
	err  error
	got  bytes.Buffer
}

func (w *stubborn) Write(p []byte) (int, error) {
	n := min(w.left, len(p))
	w.left -= n
	w.got.Write(p[:n])
	if n < len(p) {
		return n, w.err
	}
	return n, nil
}

func (m *model) writeTo(q *thing) {
	w := &stubborn{left: m.size(len(q.want)), err: []error{errFull, nil}[m.pick(2)]}
	w.left = max(w.left, 0)
	expect := min(w.left, len(q.want))
	n, err := q.q.WriteTo(w)
	want := w.err
	switch {
	case expect == len(q.want):
		want = nil
	case want == nil:
		want = io.ErrShortWrite
	}
	if int(n) != expect || err != want || !bytes.Equal(w.got.Bytes(), q.want[:expect]) {
		m.tb.Errorf("wrote %d, %v, want %d, %v", n, err, expect, want)
	}
	q.want = q.want[expect:]
}

func (m *model) pieces(q *thing) {
	var got []byte
	for p := range q.q.Pieces() {
		if len(p) == 0 {
			m.tb.Error("an empty piece")
		}
		got = append(got, p...)
		if m.pick(10) == 0 {
			break
		}
	}
	if !strings.HasPrefix(string(q.want), string(got)) {
		m.tb.Errorf("pieces %x of %x", got, q.want)
	}
}

func (m *model) freeChain(q *thing) {
	m.remove(q)
	q.q.Free()
	if !q.q.Empty() || q.q.Len() != 0 {
		m.tb.Error("a freed chain is not empty")
	}
}

func (m *model) clone(x *thing) {
	x.b.SetInfo(RxHash, uint32(m.step))
	v := x.b.Clone(m.cache())
	if v == nil {
		m.dry++
		return
	}
	if v.Hash() != x.b.Hash() || v.Flags() != x.b.Flags() || v.Bus() != x.b.Bus() {
		m.tb.Error("a clone has other metadata, or lies elsewhere")
	}
	m.add(&thing{b: v, want: slices.Clone(x.want)})
}

func (m *model) prepend(x *thing) {
	n := m.size(20)
	x.b.SetInfo(RxHash, uint32(m.step))
	x.b.L4Len = 20
	inPlace := n <= x.b.Headroom() && x.b.Writable()
	h, room, err := x.b.Prepend(m.cache(), n)
	if err != nil {
		m.failed(err, ErrNoBuffer, ErrNoRoom)
		if x.b.Flags() != RxHash {
			m.tb.Error("a failed Prepend took the metadata")
		}
		return
	}
	if (h == x.b) != inPlace || len(room) != n {
		m.tb.Errorf("prepend in place: %v, want %v; %d bytes of room, want %d", h == x.b, inPlace, len(room), n)
	}
	if h.Hash() != uint32(m.step) || h.Flags() != RxHash || h.L4Len != 20 || h != x.b && x.b.Flags() != 0 {
		m.tb.Error("the metadata did not move to the new head")
	}
	x.want = append(slices.Clone(m.fill(room)), x.want...)
	x.b = h
}

func (m *model) reserve(x *thing) {
	last := x.b.Last()
	m.reserveIn(x, last, m.size(last.Tailroom()))
}

// trim takes bytes off the ends of a frame's first and last segments.
func (m *model) trim(x *thing) {
	n := m.size(x.b.Len())
	if err := x.b.TrimFront(n); err != nil {
		m.failed(err, ErrNoRoom)
	} else {
		x.want = x.want[n:]
	}
	last := x.b.Last()
	n = m.size(last.Len())
	if err := last.TrimBack(n); err != nil {
		m.failed(err, ErrNoRoom)
	} else {
		x.want = x.want[:len(x.want)-n]
	}
}

func (m *model) charge(x *thing) {
	if x.head() == nil {
		return
	}
	a := m.accounts[m.pick(len(m.accounts))]
	if m.pick(4) == 0 {
		a = nil
	}
	x.head().Charge(a)
	for b := x.head(); b != nil; b = b.next {
		if a == nil {
			delete(m.charged, b.blk)
		} else {
			m.charged[b.blk] = a
		}
	}
}

func (m *model) freeFrame(x *thing) {
	m.remove(x)
	m.free(x.b)
}
