package virtionet

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/virtio/spec"
)

var le = binary.LittleEndian

// arena is memory for a device under test: bus addresses start at base, and nothing else may be touched.
type arena struct {
	base  uint64
	words []uint64
	used  int
	piece int // Bytes returns no more than up to the next multiple of this; 0: no limit
}

func newArena(size int) *arena { return &arena{base: 0x1_0000_0000, words: make([]uint64, size/8)} }

func (a *arena) all() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&a.words[0])), len(a.words)*8)
}

func (a *arena) alloc(n, align int) (uint64, []byte) {
	a.used = (a.used + align - 1) / align * align
	if a.used+n > len(a.words)*8 {
		panic("arena is full")
	}
	b := a.all()[a.used : a.used+n : a.used+n]
	bus := a.base + uint64(a.used)
	a.used += n
	return bus, b
}

func (a *arena) Bytes(bus uint64, n int) ([]byte, error) {
	if bus < a.base || bus-a.base >= uint64(len(a.words)*8) || n <= 0 {
		return nil, fmt.Errorf("%d bytes at %#x are not mapped", n, bus)
	}
	off := int(bus - a.base)
	end := min(off+n, len(a.words)*8)
	if a.piece > 0 {
		end = min(end, (off/a.piece+1)*a.piece)
	}
	return a.all()[off:end:end], nil
}

// vring is the driver side of a virtqueue, as simple as can be.
type vring struct {
	packed   bool
	size     int
	event    bool
	indirect bool
	mem      *arena
	desc     uint64
	driver   uint64
	device   uint64
	d, a, u  []byte

	free  []uint16 // split: descriptors; packed: ids
	room  int      // packed: descriptors of the ring
	chain map[uint16][]uint16
	count map[uint16]int
	avail uint16
	used  uint16
	aw    bool
	uw    bool
	table map[uint16][]byte
}

type piece struct {
	bus   uint64
	n     int
	write bool
}

func newVring(mem *arena, size int, f spec.Features) *vring {
	r := &vring{
		packed: f&spec.FeatureRingPacked != 0, size: size, event: f&spec.FeatureEventIdx != 0, mem: mem, room: size,
		chain: map[uint16][]uint16{}, count: map[uint16]int{}, aw: true, uw: true, table: map[uint16][]byte{},
	}
	r.desc, r.d = mem.alloc(16*size, 4096)
	if r.packed {
		r.driver, r.a = mem.alloc(4, 4)
		r.device, r.u = mem.alloc(4, 4)
	} else {
		r.driver, r.a = mem.alloc(6+2*size, 2)
		r.device, r.u = mem.alloc(6+8*size, 4)
	}
	for i := range size {
		r.free = append(r.free, uint16(i))
	}
	return r
}

// add makes a chain available, and says under which id.
func (r *vring) add(pieces ...piece) uint16 {
	need := len(pieces)
	if r.indirect {
		bus, b := r.mem.alloc(16*len(pieces), 16)
		for i, p := range pieces {
			flags := uint16(0)
			if p.write {
				flags |= spec.DescWrite
			}
			if !r.packed && i+1 < len(pieces) {
				flags |= spec.DescNext
			}
			putDesc(b[16*i:], p.bus, p.n, flags, uint16(i+1))
			if r.packed {
				le.PutUint16(b[16*i+12:], 0)
				le.PutUint16(b[16*i+14:], flags)
			}
		}
		pieces, need = []piece{{bus: bus, n: len(b)}}, 1
	}
	if r.packed {
		return r.addPacked(pieces, need)
	}
	ids := append([]uint16(nil), r.free[:need]...)
	r.free = r.free[need:]
	for i, p := range pieces {
		flags := uint16(0)
		if p.write {
			flags |= spec.DescWrite
		}
		next := uint16(0)
		if i+1 < need {
			flags |= spec.DescNext
			next = ids[i+1]
		}
		if r.indirect {
			flags = spec.DescIndirect
		}
		putDesc(r.d[16*int(ids[i]):], p.bus, p.n, flags, next)
	}
	r.chain[ids[0]] = ids
	le.PutUint16(r.a[4+2*(int(r.avail)%r.size):], ids[0])
	r.avail++
	store16(word16(r.a[2:]), r.avail)
	return ids[0]
}

func (r *vring) addPacked(pieces []piece, need int) uint16 {
	id := r.free[0]
	r.free = r.free[1:]
	if r.room -= need; r.room < 0 {
		panic("packed ring is full")
	}
	r.count[id] = need
	first, firstFlags := -1, uint16(0)
	for i, p := range pieces {
		flags := uint16(0)
		if p.write {
			flags |= spec.DescWrite
		}
		if i+1 < need {
			flags |= spec.DescNext
		}
		if r.indirect {
			flags |= spec.DescIndirect
		}
		if r.aw {
			flags |= spec.DescAvail
		} else {
			flags |= spec.DescUsed
		}
		b := r.d[16*int(r.avail):]
		le.PutUint64(b, p.bus)
		le.PutUint32(b[8:], uint32(p.n))
		if first < 0 {
			first, firstFlags = int(r.avail), flags
		} else {
			store32(word32(b[12:]), uint32(id)|uint32(flags)<<16)
		}
		if r.avail++; int(r.avail) == r.size {
			r.avail, r.aw = 0, !r.aw
		}
	}
	store32(word32(r.d[16*first+12:]), uint32(id)|uint32(firstFlags)<<16)
	return id
}

func putDesc(b []byte, addr uint64, n int, flags, next uint16) {
	le.PutUint64(b, addr)
	le.PutUint32(b[8:], uint32(n))
	le.PutUint16(b[12:], flags)
	le.PutUint16(b[14:], next)
}

// take returns the next used chain.
func (r *vring) take() (id uint16, n int, ok bool) {
	if !r.packed {
		if load16(word16(r.u[2:])) == r.used {
			return 0, 0, false
		}
		e := r.u[4+8*(int(r.used)%r.size):]
		id, n = uint16(le.Uint32(e)), int(le.Uint32(e[4:]))
		r.used++
		r.free = append(r.free, r.chain[id]...)
		delete(r.chain, id)
		return id, n, true
	}
	b := r.d[16*int(r.used):]
	flags := load16(word16(b[14:]))
	if a, u := flags&spec.DescAvail != 0, flags&spec.DescUsed != 0; a != u || u != r.uw {
		return 0, 0, false
	}
	id, n = le.Uint16(b[12:]), int(le.Uint32(b[8:]))
	k, known := r.count[id]
	if !known {
		panic(fmt.Sprintf("id %d was not given", id))
	}
	delete(r.count, id)
	r.room += k
	if r.used += uint16(k); int(r.used) >= r.size {
		r.used -= uint16(r.size)
		r.uw = !r.uw
	}
	r.free = append(r.free, id)
	return id, n, true
}

// mini is a driver as small as can be, for one device.
type mini struct {
	t     testing.TB
	d     *Device
	w     *sim.World
	clk   *clock.Virtual
	mem   *arena
	f     spec.Features
	ring  []*vring
	buf   []map[uint16][]piece // by queue and id
	calls []int
	conf  int
	hdr   int
}

// rig is two devices on one wire.
type rig struct {
	clk  *clock.Virtual
	w    *sim.World
	wire *link.Wire
	a, b *mini
}

var macA, macB = [6]byte{2, 0, 0, 0, 0, 0xA}, [6]byte{2, 0, 0, 0, 0, 0xB}

func newRig(t testing.TB, seed uint64, adjust func(cfg *Config)) *rig {
	t.Helper()
	return newRigOf(t, seed, 8<<20, adjust)
}

// newRigOf is newRig with so many bytes of memory for each device.
func newRigOf(t testing.TB, seed uint64, memory int, adjust func(cfg *Config)) *rig {
	t.Helper()
	clk := clock.NewVirtual(time.Unix(0, 0))
	w := sim.NewWorld(clk)
	wire, err := link.New(link.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{clk: clk, w: w, wire: wire}
	mk := func(name string, end *link.End, mac [6]byte, seed uint64) *mini {
		mem := newArena(memory)
		cfg := Config{Name: name, Memory: mem, World: w, Net: OnWire(end), MAC: mac, Seed: seed, Size: 64}
		if adjust != nil {
			adjust(&cfg)
		}
		d, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return &mini{t: t, d: d, w: w, clk: clk, mem: mem}
	}
	r.a = mk("a", wire.A(), macA, seed)
	r.b = mk("b", wire.B(), macB, seed+1000)
	return r
}

// start brings a device up with features f and rings of the given size, without buffers.
func (m *mini) start(f spec.Features, size int) {
	m.t.Helper()
	m.w.Lock()
	defer m.w.Unlock()
	d := m.d
	f |= spec.FeatureVersion1
	m.f, m.hdr = f, spec.HeaderSize(f)
	d.SetStatus(0)
	d.SetStatus(1)
	d.SetStatus(3)
	if err := d.SetFeatures(f); err != nil {
		m.t.Fatal(err)
	}
	d.SetStatus(11)
	if d.Status()&spec.StatusFeaturesOK == 0 {
		m.t.Fatalf("%v were refused", f)
	}
	m.ring, m.buf, m.calls = nil, nil, make([]int, d.Queues())
	for i := range d.Queues() {
		r := newVring(m.mem, size, f)
		m.ring = append(m.ring, r)
		m.buf = append(m.buf, map[uint16][]piece{})
		if err := d.SetQueue(i, size, r.desc, r.driver, r.device); err != nil {
			m.t.Fatal(err)
		}
		d.OnCall(i, func() { m.calls[i]++ })
		d.EnableQueue(i, true)
	}
	d.OnConfigChange(func() { m.conf++ })
	d.SetStatus(15)
}

// put makes a chain available, and notifies.
func (m *mini) put(q int, pieces ...piece) uint16 {
	id := m.ring[q].add(pieces...)
	m.buf[q][id] = pieces
	return id
}

func (m *mini) kick(q int) {
	m.w.Lock()
	m.d.Kick(q)
	m.w.Unlock()
}

// fill gives a receive queue n buffers of size bytes.
func (m *mini) fill(q, n, size int) {
	for range n {
		bus, _ := m.mem.alloc(size, 16)
		m.put(q, piece{bus, size, true})
	}
	m.kick(q)
}

// send sends a frame in the given number of pieces, header in front.
func (m *mini) send(q int, h Header, frame []byte, pieces int) {
	all := make([]byte, m.hdr+len(frame))
	h.Put(all)
	copy(all[m.hdr:], frame)
	var list []piece
	for i := range pieces {
		from, to := len(all)*i/pieces, len(all)*(i+1)/pieces
		bus, b := m.mem.alloc(to-from, 16)
		copy(b, all[from:to])
		list = append(list, piece{bus, to - from, false})
	}
	m.put(q, list...)
	m.kick(q)
}

// recv returns the next received frame, gathered from all its buffers; ok is false when there is none.
func (m *mini) recv(q int) (h Header, raw []byte, ok bool) {
	id, n, ok := m.ring[q].take()
	if !ok {
		return h, nil, false
	}
	raw = m.read(q, id, n)
	h = ParseHeader(raw)
	k := int(le.Uint16(raw[spec.HdrNumBuffers:]))
	for i := 1; i < k; i++ {
		id, n, ok := m.ring[q].take()
		if !ok {
			m.t.Fatalf("buffer %d of %d is not there", i, k)
		}
		raw = append(raw, m.read(q, id, n)...)
	}
	return h, raw, true
}

// read returns what the device wrote into a chain.
func (m *mini) read(q int, id uint16, n int) []byte {
	var out []byte
	pieces, known := m.buf[q][id]
	if !known {
		m.t.Fatalf("queue %d: id %d is not ours", q, id)
	}
	delete(m.buf[q], id)
	for _, p := range pieces {
		if !p.write {
			continue
		}
		b, err := m.mem.Bytes(p.bus, min(p.n, n))
		if err != nil && n > 0 {
			m.t.Fatal(err)
		}
		for len(b) < min(p.n, n) { // memory in pieces
			c, err := m.mem.Bytes(p.bus+uint64(len(b)), min(p.n, n)-len(b))
			if err != nil {
				m.t.Fatal(err)
			}
			b = append(append([]byte(nil), b...), c...)
		}
		out = append(out, b...)
		n -= len(b)
	}
	if n != 0 {
		m.t.Fatalf("queue %d: id %d: %d bytes more than the buffer holds", q, id, n)
	}
	return out
}

// sent takes back n sent frames.
func (m *mini) sent(q int) (n int) {
	for {
		id, l, ok := m.ring[q].take()
		if !ok {
			return n
		}
		if l != 0 {
			m.t.Errorf("%d bytes written into a frame that was sent", l)
		}
		delete(m.buf[q], id)
		n++
	}
}

// run lets d pass, in small steps.
func (r *rig) run(d time.Duration) {
	for range 40 {
		r.clk.Advance(d / 40)
		r.w.Step()
	}
}

// clean fails the test for each misuse.
func (m *mini) clean() {
	m.t.Helper()
	for _, x := range m.d.Misuse() {
		m.t.Errorf("%s: %v", m.d.Name(), x)
	}
}

// frameTo is a frame of n bytes that nobody takes for IP, with contents that follow from tag.
func frameTo(dst [6]byte, n int, tag int) []byte {
	f := make([]byte, n)
	copy(f, dst[:])
	copy(f[6:], []byte{2, 0, 0, 0, 0, 0x77})
	f[12], f[13] = 0x88, 0xB5
	for i := 14; i < n; i++ {
		f[i] = byte(i*7 + tag)
	}
	if n >= 18 {
		le.PutUint32(f[14:], uint32(tag))
	}
	return f
}
