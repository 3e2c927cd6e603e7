package virtio

import (
	"unsafe"

	"bare.wire/vtop"
)

// slowQueue is a ring for buffers of which each is a thing of its own: the control queue's commands.
type slowQueue struct {
	virtqueue
	tokens []uint64 // by id
	mem    []byte   // for the data of commands, shared with the device
	memBus uint64
}

// newSlowQueue lays out a queue with some memory for data, see slowQueue.data.
func newSlowQueue(env *queueEnv, vq, size int, mem *vtop.Arena) (*slowQueue, error) {
	q := new(slowQueue)
	if err := q.init(env, "control queue", vq, size, mem); err != nil {
		return nil, err
	}
	p, bus, err := mem.Cut(slowBytes, ringLine)
	if err != nil {
		return nil, err
	}
	q.tokens = make([]uint64, size)
	q.mem, q.memBus = unsafe.Slice((*byte)(p), slowBytes), bus
	return q, nil
}

// data returns memory of n bytes at off, for a part of a buffer, and its bus address. There are slowBytes.
func (q *slowQueue) data(off, n int) ([]byte, part) {
	return q.mem[off : off+n : off+n], part{q.memBus + uint64(off), uint32(n)}
}

func (q *slowQueue) start(bell Doorbell) { q.bell = bell }

// add makes a buffer available: the device reads out and writes in. token comes back with take. It returns false when the ring
// has no room. The device sees it after kick.
func (q *slowQueue) add(out, in []part, token uint64) bool {
	parts := append(append(make([]part, 0, len(out)+len(in)), out...), in...)
	if q.dead.Load() || len(parts) == 0 || len(parts) > int(q.size-q.out) {
		return false
	}
	at := q.virtqueue.add(parts, len(out))
	q.tokens[q.order[at]] = token
	return true
}

// kick tells the device what was added.
func (q *slowQueue) kick() { q.publish() }

// take returns a buffer that the device has used, and how many bytes it says it has written (all, when it does not say).
func (q *slowQueue) take() (token uint64, written uint32, ok bool) {
	if !q.ready() {
		return 0, 0, false
	}
	if q.armed {
		q.disarm()
	}
	id, written, ok := q.virtqueue.take()
	if !ok {
		return 0, 0, false
	}
	q.retire(id)
	return q.tokens[id], written, true
}

// drain forgets what the device had, once it has been reset, and returns how many buffers that were.
func (q *slowQueue) drain() int {
	n := int(q.buffers())
	q.out, q.extra = 0, 0
	return n
}
