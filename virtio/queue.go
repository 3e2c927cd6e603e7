package virtio

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// queueEnv is what the queues of a port have in common.
type queueEnv struct {
	name     string // of the port, for errors
	space    *vtop.Space
	features spec.Features // agreed on
	legacy   bool          // the interface: the rings' layout is fixed
	header   int           // bytes in front of each frame, spec.HeaderSize
	maxFrame int           // bytes without FCS
	offloads nic.Offload
	// fail is told, from any goroutine, that the device has broken a rule. The first reason counts. It may call kill.
	fail func(error)
}

// ownHeader says that the header has a descriptor of its own: a legacy device may take the first one for it, whatever its length
// (§5.1.6.6).
func (e *queueEnv) ownHeader() bool {
	return e.features&(spec.FeatureVersion1|spec.FeatureAnyLayout) == 0
}

// ringDesc is a descriptor of either kind of ring. The second word of a split ring's is len, flags, next (32, 16, 16 bits, the
// lowest first), that of a packed ring's len, id, flags.
type ringDesc struct{ addr, hi uint64 }

// splitHi and packedHi make second words.
func splitHi(length, flags, next uint32) uint64 {
	return uint64(length) | uint64(flags)<<32 | uint64(next)<<48
}

func packedHi(length, id, flags uint32) uint64 {
	return uint64(length) | uint64(id)<<32 | uint64(flags)<<48
}

// part is a piece of memory that the device reads or writes, by its bus address.
type part struct {
	bus uint64
	len uint32
}

// virtqueue is the driver's side of a ring, of either kind.
//
//	    clean            tail
//	      ▼               ▼
//	free  │ the device's… │ free          positions, modulo the ring's size
//
// Descriptors have ids, in a split ring their places in the table. order is a permutation of the ids: those between clean and
// tail are the device's, in any order, the rest are free; pos is its inverse. A buffer of several descriptors takes as many ids,
// and goes by the first of them. A device that uses buffers in the order in which it got them, which is what they do, leaves
// order as it is, and then nothing has to be looked up: the next id is known, and lies beside its buffer. One that does not has
// the id it returns swapped to the front.
//
// What the device writes is an index or a length only after it has been checked; what the driver needs to know it keeps in
// order, pos, chain and link, which the device cannot write to.
type virtqueue struct {
	desc  []ringDesc
	order []uint16
	pos   []uint16
	bufs  []*mbuf.Buf // by position
	odd   []bool      // by position; transmit queues only: not a plain frame in one descriptor
	chain []uint16    // by id: descriptors of the buffer that begins with it; 0 for those behind the first
	link  []uint16    // by id: the next of the buffer

	size        uint32
	tail, clean uint32
	out         uint32 // descriptors that the device has
	extra       uint32 // of them those behind the first of a buffer: out − extra buffers

	split  splitRing
	pack   packedRing
	packed bool

	inOrder, eventIdx bool
	armed             bool // the device has been asked for an interrupt
	// A batch is buffers that an in-order device returns with one used element, which stands for the last (§2.7.9, §2.8.9).
	batchLeft uint32
	batchLen  uint32 // written to the last

	dead  atomic.Bool // stopped or gone
	bell  Doorbell
	env   *queueEnv
	what  string // "receive queue 0"
	vq    int    // its number
	sleep nic.Sleeper
}

// whole is what take says of a buffer that the device has used all of without telling how much that is.
const whole = ^uint32(0)

const (
	minRing   = 2  // descriptors: the event words of smaller split rings are not aligned
	ringLine  = 64 // alignment of what the driver writes apart from what the device writes
	hdrStride = 32 // bytes for a header in memory of the ring's own

	// maxSegs is the number of segments that a sent frame may have: 64 KiB in buffers of 2 KiB, and some headers.
	maxSegs = 40
	// tableParts is the most descriptors of an indirect table: a header and segments. maxTables is how many there are of them.
	tableParts = maxSegs + 1
	tableBytes = (tableParts*spec.DescSize + ringLine - 1) &^ (ringLine - 1)
	maxTables  = 256
	slowBytes  = 8 << 10 // data of control commands
)

// ringBytes is the memory that any queue of so many descriptors takes of an Arena, at most.
func ringBytes(features spec.Features, legacy bool, size int) int {
	n := (spec.DescSize+8+2)*size + 4096 + hdrStride*size + slowBytes + 4*ringLine
	if legacy {
		n += 2 * spec.LegacyAlign
	}
	if features.Has(spec.FeatureIndirectDesc) {
		n += tableBytes * min(size, maxTables)
	}
	return n
}

// init lays the ring out, all descriptors free.
func (v *virtqueue) init(env *queueEnv, what string, vq, size int, mem *vtop.Arena) error {
	if size < minRing || size > spec.MaxQueueSize {
		return fmt.Errorf("%s: %s: a ring of %d descriptors: want %d to %d", env.name, what, size, minRing, spec.MaxQueueSize)
	}
	v.env, v.what, v.vq, v.size = env, what, vq, uint32(size)
	v.packed = env.features&spec.FeatureRingPacked != 0
	v.inOrder = env.features&spec.FeatureInOrder != 0
	v.eventIdx = env.features&spec.FeatureEventIdx != 0
	v.order, v.pos = make([]uint16, size), make([]uint16, size)
	v.chain, v.link = make([]uint16, size), make([]uint16, size)
	v.bufs = make([]*mbuf.Buf, size)
	for i := range v.order {
		v.order[i], v.pos[i], v.chain[i] = uint16(i), uint16(i), 1
	}
	var err error
	if v.packed {
		err = v.layPacked(mem)
	} else {
		err = v.laySplit(mem)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// word is the 32-bit word at an offset of ring memory.
func word(base unsafe.Pointer, off int) *uint32 { return (*uint32)(unsafe.Add(base, off)) }

// area says where the ring lies. The caller adds the vector.
func (v *virtqueue) area() QueueArea {
	a := QueueArea{Size: int(v.size), Packed: v.packed, Vector: -1, NotificationData: v.env.features&spec.FeatureNotificationData != 0}
	if v.packed {
		a.Desc, a.Driver, a.Device = v.pack.bus, v.pack.driverBus, v.pack.deviceBus
	} else {
		a.Desc, a.Driver, a.Device = v.split.bus, v.split.availBus, v.split.usedBus
	}
	return a
}

// buffers is how many buffers the device has.
func (v *virtqueue) buffers() uint32 { return v.out - v.extra }

// advanceTail moves the tail over n descriptors that have been written, no further than the end of the ring.
func (v *virtqueue) advanceTail(n uint32) {
	v.out += n
	if v.tail += n; v.tail == v.size {
		v.tail = 0
		v.pack.availFlags ^= bothWraps
	}
}

// advanceClean moves clean over n descriptors that the device has used, no further than the end of the ring.
func (v *virtqueue) advanceClean(n uint32) {
	v.out -= n
	if v.clean += n; v.clean == v.size {
		v.clean = 0
		v.pack.usedFlags ^= bothWraps
	}
}

// add makes a buffer of parts available, of which the device reads those before write and writes the others, and returns the
// position of its first descriptor; its others follow, modulo the size. The caller has looked that there is room.
func (v *virtqueue) add(parts []part, write int) (at uint32) {
	at = v.tail
	if v.packed {
		v.addPacked(parts, write)
	} else {
		v.addSplit(parts, write)
	}
	return at
}

// addTable makes a buffer of one descriptor available, whose parts are the n entries of the table there.
func (v *virtqueue) addTable(table uint64, n int) (at uint32) {
	at = v.tail
	p := part{table, uint32(n) * spec.DescSize}
	if v.packed {
		v.putPacked(p, uint32(v.order[at]), spec.DescIndirect)
	} else {
		v.putSplit(p, spec.DescIndirect)
	}
	return at
}

// chained notes the ids of a buffer of n descriptors, which begins at the tail.
func (v *virtqueue) chained(n uint32) {
	if n == 1 {
		return
	}
	at := v.tail
	id := v.order[at]
	v.chain[id] = uint16(n)
	for range n - 1 {
		if at++; at == v.size {
			at = 0
		}
		next := v.order[at]
		v.link[id], v.chain[next] = next, 0
		id = next
	}
	v.extra += n - 1
}

// publish tells the device what has been added, and notifies it if it wants to be.
func (v *virtqueue) publish() {
	var want bool
	var position uint16
	if v.packed {
		want, position = v.publishPacked()
	} else {
		want, position = v.publishSplit()
	}
	if want {
		v.bell.Ring(position)
	}
}

// ready says whether the device has returned a buffer.
func (v *virtqueue) ready() bool {
	switch {
	case v.out == 0 || v.dead.Load():
		return v.stray()
	case v.batchLeft > 0:
		return true
	case v.packed:
		return v.readyPacked()
	}
	return v.readySplit()
}

// stray says whether the device returns buffers although it has none, and then is the end of it.
func (v *virtqueue) stray() bool {
	if !v.packed && !v.dead.Load() && v.readySplit() {
		v.usedSplit()
	}
	return false
}

// take returns the next buffer that the device has used, by its first id, and how many bytes it has written; or whole. The buffer
// is the device's until the caller retires it, which it has to, before the next take. There is one; see ready. It returns false
// when the device has broken a rule.
func (v *virtqueue) take() (id, written uint32, ok bool) {
	if v.batchLeft > 0 {
		return v.takeOfBatch()
	}
	if v.packed {
		id, written = v.headPacked()
	} else {
		if v.usedSplit() == 0 {
			return 0, 0, false
		}
		id, written = v.headSplit()
	}
	written = min(written, whole-1) // so much it can only claim
	switch {
	case id >= v.size:
		v.broke("used id %d of a ring of %d descriptors", id, v.size)
	case !v.has(id):
		v.broke("used id %d, which the device does not have", id)
	case v.chain[id] == 0:
		v.broke("used id %d, which is not the first of its buffer", id)
	case v.inOrder && id != uint32(v.order[v.clean]):
		if v.beginBatch(id, written) {
			return v.takeOfBatch()
		}
	default:
		return id, written, true
	}
	return 0, 0, false
}

// has says whether an id of the ring is the device's.
func (v *virtqueue) has(id uint32) bool {
	from := uint32(v.pos[id]) - v.clean
	if int32(from) < 0 {
		from += v.size
	}
	return from < v.out
}

// beginBatch finds out how many buffers are used once the one that begins with id is.
func (v *virtqueue) beginBatch(id, written uint32) bool {
	n, at := uint32(1), v.clean
	for at != uint32(v.pos[id]) {
		n++
		if at += uint32(v.chain[v.order[at]]); at >= v.size {
			at -= v.size
		}
	}
	if !v.packed && n > v.usedSplit() {
		v.broke("used id %d ends a batch of %d buffers, but the index has moved by less", id, n)
		return false
	}
	v.batchLeft, v.batchLen = n, written
	return true
}

func (v *virtqueue) takeOfBatch() (id, written uint32, ok bool) {
	v.batchLeft--
	written = whole
	if v.batchLeft == 0 {
		written = v.batchLen
	}
	return uint32(v.order[v.clean]), written, true
}

// retire takes back the descriptors of a buffer that take has returned. Its bufs are at the positions that clean has passed.
func (v *virtqueue) retire(id uint32) {
	v.split.usedIdx++
	n := uint32(v.chain[id])
	for i := range n {
		next := uint32(v.link[id])
		v.chain[id] = 1
		if at := uint32(v.pos[id]); at != v.clean {
			v.swap(at, v.clean)
		}
		v.advanceClean(1)
		if i > 0 {
			v.extra--
		}
		id = next
	}
}

// swap has two ids change places.
func (v *virtqueue) swap(a, b uint32) {
	v.split.identity = false
	v.order[a], v.order[b] = v.order[b], v.order[a]
	v.pos[v.order[a]], v.pos[v.order[b]] = uint16(a), uint16(b)
	v.bufs[a], v.bufs[b] = v.bufs[b], v.bufs[a]
	if v.odd != nil {
		v.odd[a], v.odd[b] = v.odd[b], v.odd[a]
	}
}

// arm asks for an interrupt when the next buffer is used. The caller then looks at the ring once more.
func (v *virtqueue) arm(w *nic.Waiter) {
	v.sleep.Note(w)
	v.armed = true
	if v.packed {
		v.armPacked()
	} else {
		v.armSplit()
	}
}

// disarm asks for none.
func (v *virtqueue) disarm() {
	v.armed = false
	if v.packed {
		v.disarmPacked()
	} else {
		v.disarmSplit()
	}
}

// fired is called from any goroutine when the queue's interrupt has come. The queue's own goroutine then disarms.
func (v *virtqueue) fired() { v.sleep.Fire(nil) }

// kill makes the queue stand still, from any goroutine, and wakes who sleeps on it; with an error, for good.
func (v *virtqueue) kill(err error) {
	v.dead.Store(true)
	v.sleep.Fire(err)
}

// broke says what the device did that it must not do.
func (v *virtqueue) broke(format string, args ...any) {
	v.dead.Store(true)
	v.env.fail(fmt.Errorf("%s: %s: %s: %w", v.env.name, v.what, fmt.Sprintf(format, args...), nic.ErrGone))
}

// give takes a frame apart and frees its segments, one by one. It returns how many they are.
func give(b *mbuf.Buf, free func(*mbuf.Buf)) (n int) {
	for b != nil {
		next := b.Next()
		b.SetNext(nil)
		free(b)
		b = next
		n++
	}
	return n
}
