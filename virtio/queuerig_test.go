package virtio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"bare.wire/hugepage"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

const version1 = spec.FeatureVersion1

// ringConfig is a queue to be tested, and the device behind it.
type ringConfig struct {
	features spec.Features
	legacy   bool
	size     int
	pool     mbuf.Config
	maxFrame int
	offloads nic.Offload
}

// queueRig is a pool, one receive and one transmit queue, and the devices at their other ends.
type queueRig struct {
	t          testing.TB
	env        *queueEnv
	space      *vtop.Space
	pool       *mbuf.Pool
	cache      *mbuf.Cache
	arena      *vtop.Arena
	rx         *rxQueue
	tx         *txQueue
	rxDev      *ringDevice
	txDev      *ringDevice
	failed     error
	complaints int
	shared     []*mbuf.Buf // views of what is under way
	stock      []devChain  // receive buffers that the device has taken and not used
	pick       *rand.Rand  // has the device use them in any order
}

func newQueueRig(t testing.TB, c ringConfig) *queueRig {
	t.Helper()
	r := &queueRig{t: t, space: vtop.NewMapped()}
	if c.size == 0 {
		c.size = 64
	}
	if c.maxFrame == 0 {
		c.maxFrame = 1518
	}
	c.pool.Name, c.pool.Space = "test", r.space
	if c.pool.Buffers == 0 {
		c.pool.Buffers = 4*c.size + 64
	}
	var err error
	if r.pool, err = mbuf.NewPool(c.pool); err != nil {
		t.Fatal(err)
	}
	r.cache = r.pool.NewCacheAt(mbuf.Control)
	r.env = &queueEnv{
		name: "dev", space: r.space, features: c.features, legacy: c.legacy, header: spec.HeaderSize(c.features),
		maxFrame: c.maxFrame, offloads: c.offloads,
	}
	r.env.fail = func(err error) {
		if r.failed == nil {
			r.failed = err
		}
		if r.complaints++; r.complaints > 10 {
			t.Fatalf("a queue that is gone goes on: %v", err)
		}
		r.rx.kill(err)
		r.tx.kill(err)
	}
	size := 2 * ringBytes(c.features, c.legacy, c.size)
	if r.arena, err = vtop.NewArena(r.space, vtop.ArenaConfig{Name: "dev rings", Node: hugepage.AnyNode, Size: size}); err != nil {
		t.Fatal(err)
	}
	if r.rx, err = newRxQueue(r.env, 0, 0, c.size, r.arena, r.pool); err != nil {
		t.Fatal(err)
	}
	if r.tx, err = newTxQueue(r.env, 1, 0, c.size, r.arena, r.pool); err != nil {
		t.Fatal(err)
	}
	r.rxDev = newRingDevice(t, r.space, r.rx.area(), c.features)
	r.txDev = newRingDevice(t, r.space, r.tx.area(), c.features)
	r.rx.start(r.rxDev)
	r.tx.start(r.txDev)
	return r
}

// end stops everything, and finds every buffer back in the pool.
func (r *queueRig) end() {
	r.t.Helper()
	r.rx.kill(nil)
	r.tx.kill(nil)
	r.rx.drain((*mbuf.Buf).Free)
	r.tx.drain((*mbuf.Buf).Free)
	r.rx.cache.Close()
	r.tx.cache.Close()
	r.cache.Close()
	if err := errors.Join(r.pool.Close(), r.arena.Free()); err != nil {
		r.t.Error(err)
	}
}

// fails wants the device to have been found out, with these words.
func (r *queueRig) fails(words ...string) {
	r.t.Helper()
	if r.failed == nil || !errors.Is(r.failed, nic.ErrGone) {
		r.t.Fatalf("the device broke a rule, and the driver says %v", r.failed)
	}
	for _, w := range words {
		if !strings.Contains(r.failed.Error(), w) {
			r.t.Errorf("%q does not say %q", r.failed, w)
		}
	}
	var bufs [4]*mbuf.Buf
	if n := r.rx.Recv(bufs[:]); n != 0 {
		r.t.Errorf("%d frames come from a device that is gone", n)
	}
	if r.rx.Arm(nil) || r.tx.Arm(nil) {
		r.t.Error("a queue that is gone can be slept on")
	}
}

// works wants no complaint.
func (r *queueRig) works() {
	r.t.Helper()
	if r.failed != nil {
		r.t.Fatal(r.failed)
	}
}

// testFrame is the i-th test frame, of n bytes.
func testFrame(i, n int) []byte {
	p := make([]byte, n)
	for j := range p {
		p[j] = byte(i*7 + j)
	}
	binary.BigEndian.PutUint32(p, uint32(i))
	return p
}

// packet is a frame in the pool's buffers, cut into segments of these lengths (the last takes the rest).
func (r *queueRig) packet(p []byte, cuts ...int) *mbuf.Buf {
	r.t.Helper()
	var head, last *mbuf.Buf
	for len(p) > 0 {
		n := len(p)
		if len(cuts) > 0 {
			n, cuts = min(cuts[0], n), cuts[1:]
		}
		n = min(n, r.pool.Size())
		b := r.cache.Alloc()
		if b == nil {
			r.t.Fatal("the pool is dry")
		}
		room, err := b.Reserve(n)
		if err != nil {
			r.t.Fatal(err)
		}
		copy(room, p)
		p = p[n:]
		if head == nil {
			head = b
		} else {
			last.SetNext(b)
		}
		last = b
	}
	return head
}

// content is the bytes of a frame.
func content(b *mbuf.Buf) (p []byte) {
	for ; b != nil; b = b.Next() {
		p = append(p, b.Bytes()...)
	}
	return p
}

// header is a header as the device writes it, of the length that was agreed on.
func (r *queueRig) header(lo uint64, field, buffers uint16) []byte {
	h := make([]byte, r.env.header)
	binary.LittleEndian.PutUint64(h, lo)
	binary.LittleEndian.PutUint16(h[spec.HdrCSumOffset:], field)
	if len(h) > spec.HdrNumBuffers {
		binary.LittleEndian.PutUint16(h[spec.HdrNumBuffers:], buffers)
	}
	return h
}

// deliver has the device write a frame, with this header, into as many buffers as that takes. False: there are not enough.
func (r *queueRig) deliver(lo uint64, field uint16, frame []byte) bool {
	r.t.Helper()
	used, lens := r.fill(append(r.header(lo, field, 1), frame...))
	for i, c := range used {
		r.rxDev.use(c, lens[i])
	}
	return used != nil
}

// fill has the device write a header and a frame, and returns the buffers, not used yet, and how much is in each.
func (r *queueRig) fill(all []byte) (used []devChain, lens []int) {
	r.t.Helper()
	for len(all) > 0 {
		c, ok := r.nextBuffer()
		if !ok {
			r.stock = append(used, r.stock...)
			return nil, nil
		}
		room := 0
		for _, p := range c.parts {
			room += int(p.len)
		}
		n := min(room, len(all))
		r.rxDev.write(c, all[:n])
		used, lens, all = append(used, c), append(lens, n), all[n:]
	}
	if r.rx.mrg {
		r.rxDev.put16(used[0].parts[0].bus+spec.HdrNumBuffers, uint16(len(used)))
	}
	return used, lens
}

// nextBuffer is a receive buffer for the device to write to: the next, or with pick one of all that it has.
func (r *queueRig) nextBuffer() (c devChain, ok bool) {
	for {
		c, ok := r.rxDev.pop()
		if !ok {
			break
		}
		r.stock = append(r.stock, c)
		if r.pick == nil {
			break
		}
	}
	if len(r.stock) == 0 {
		return c, false
	}
	i := 0
	if r.pick != nil {
		i = r.pick.IntN(len(r.stock))
	}
	c = r.stock[i]
	r.stock = slices.Delete(r.stock, i, i+1)
	return c, true
}

// recv receives one frame and compares it; the caller owns it.
func (r *queueRig) recv(want []byte) *mbuf.Buf {
	r.t.Helper()
	var bufs [1]*mbuf.Buf
	if n := r.rx.Recv(bufs[:]); n != 1 {
		r.works()
		r.t.Fatalf("%d frames instead of 1", n)
	}
	if got := content(bufs[0]); string(got) != string(want) {
		r.t.Fatalf("received %d bytes %.32x, want %d bytes %.32x", len(got), got, len(want), want)
	}
	return bufs[0]
}

// nothing wants no frame to be there.
func (r *queueRig) nothing() {
	r.t.Helper()
	var bufs [4]*mbuf.Buf
	if n := r.rx.Recv(bufs[:]); n != 0 {
		r.t.Fatalf("%d frames where there should be none: %.32x", n, content(bufs[0]))
	}
}

// send sends one frame.
func (r *queueRig) send(b *mbuf.Buf) {
	r.t.Helper()
	if n := r.tx.Send([]*mbuf.Buf{b}); n != 1 {
		r.works()
		r.t.Fatal("a frame is not taken")
	}
}

// sent has the device take one frame, and compares it; use says whether it is returned.
func (r *queueRig) sent(want []byte, use bool) (hdr []byte, c devChain) {
	r.t.Helper()
	c, ok := r.txDev.pop()
	if !ok {
		r.t.Fatal("nothing was sent")
	}
	p := r.txDev.read(c)
	if got := p[r.env.header:]; string(got) != string(want) {
		r.t.Fatalf("sent %d bytes %.32x, want %d bytes %.32x", len(got), got, len(want), want)
	}
	if use {
		r.txDev.use(c, 0)
	}
	return p[:r.env.header], c
}

// ringKinds are the rings that most tests run on.
var ringKinds = []spec.Features{
	version1, version1 | spec.FeatureEventIdx, version1 | spec.FeatureRingPacked, version1 | spec.FeatureRingPacked | spec.FeatureEventIdx,
	version1 | spec.FeatureMrgRxBuf, version1 | spec.FeatureMrgRxBuf | spec.FeatureRingPacked | spec.FeatureIndirectDesc,
	version1 | spec.FeatureInOrder | spec.FeatureMrgRxBuf, version1 | spec.FeatureInOrder | spec.FeatureRingPacked,
}

func kinds(t *testing.T, f func(t *testing.T, features spec.Features)) {
	for _, k := range ringKinds {
		t.Run(fmt.Sprint(k), func(t *testing.T) { f(t, k) })
	}
}

// mergeable is kinds, of those that have mergeable buffers.
func mergeable(t *testing.T, f func(t *testing.T, features spec.Features)) {
	for _, k := range ringKinds {
		if k.Has(spec.FeatureMrgRxBuf) {
			t.Run(fmt.Sprint(k), func(t *testing.T) { f(t, k) })
		}
	}
}
