package virtionet

import (
	"fmt"
	"unsafe"

	"bare.wire/sim"
	"bare.wire/virtio/spec"
)

// queue is a virtqueue. Positions are those of §2.7 in a split ring, free-running and modulo 2¹⁶, and of §2.8 in a packed
// one, below size, with a wrap counter each.
type queue struct {
	d    *Device
	i    int
	call func() // the driver's interrupt

	size                 int    // descriptors; 0: not set up
	desc, driver, device part   // where it lies
	on                   bool   // enabled
	packed, events       bool   // as agreed on when it was set up: what lies there is as long as they want it
	turn                 uint64 // of the device when the views were taken

	avail     uint16 // next to be fetched
	seen      uint16 // split: available index as last read
	used      uint16 // next to be reported
	availWrap bool
	usedWrap  bool

	held   []uint64 // split: heads that the device has; packed: ids
	staged []done   // done with, not reported
	window []chain  // fetched, not used: receive buffers
	have   int      // of them
	wait   backlog  // frames that wait for buffers
	lent   []lent   // with Config.Watch

	due   int64 // when to look at the ring
	pubAt int64 // when to report

	quiet bool // the driver has been told not to notify
	told  bool // … or to: else the ring says what another device may have left there
	waste [2]uint64
}

// part is a piece of a ring.
type part struct {
	bus  uint64
	n    int
	view []byte // all of it; nil where it does not lie together
}

// done is a chain that the device is done with.
type done struct {
	id    uint16
	count uint16 // descriptors of the ring that it took
	n     uint32 // bytes written
}

// Queues is the number of virtqueues there are.
func (d *Device) Queues() int { return len(d.queues) }

// controlQueue is the number of the control queue, −1 without one.
func (d *Device) controlQueue() int {
	if d.agreed&spec.FeatureCtrlVQ == 0 {
		return -1
	}
	return spec.ControlQueue(d.agreed, d.cfg.Pairs)
}

// there is queue i, or nil with the misuse kept.
func (d *Device) there(i int) *queue {
	if i < 0 || i >= len(d.queues) {
		d.wrong(QueueNumber, -1, "%d of %d", i, len(d.queues))
		return nil
	}
	return &d.queues[i]
}

// QueueMax is the most descriptors that queue i may have, 0 if there is no such queue.
func (d *Device) QueueMax(i int) int {
	if i < 0 || i >= len(d.queues) || d.cfg.Faults.NoQueue == i+1 {
		return 0
	}
	if d.cfg.Faults.QueueMax != 0 {
		return d.cfg.Faults.QueueMax
	}
	return d.cfg.Size
}

// SetQueue says where queue i lies: bus addresses of descriptor table, available and used ring, or of ring, driver and device
// event suppression.
func (d *Device) SetQueue(i, size int, desc, driver, device uint64) error {
	q := d.there(i)
	if q == nil {
		return fmt.Errorf("%s: there is no queue %d", d.cfg.Name, i)
	}
	if q.on {
		d.wrong(QueueChanged, i, "while it is enabled")
		return fmt.Errorf("%s: queue %d is enabled", d.cfg.Name, i)
	}
	packed := d.agreed&spec.FeatureRingPacked != 0
	if size < 1 || size > min(d.QueueMax(i), spec.MaxQueueSize) || !packed && size&(size-1) != 0 {
		d.wrong(QueueSize, i, "%d of at most %d", size, d.QueueMax(i))
		return fmt.Errorf("%s: queue %d: %d descriptors of at most %d, a power of two in a split ring", d.cfg.Name, i, size, d.QueueMax(i))
	}
	driverAlign, deviceAlign := uint64(2), uint64(4)
	if packed {
		driverAlign, deviceAlign = 4, 4
	}
	if desc%spec.DescSize != 0 || driver%driverAlign != 0 || device%deviceAlign != 0 {
		d.wrong(QueueUnaligned, i, "%#x, %#x, %#x", desc, driver, device)
		return fmt.Errorf("%s: queue %d: %#x, %#x, %#x are not multiples of 16, %d and %d", d.cfg.Name, i, desc, driver, device, driverAlign, deviceAlign)
	}
	q.size, q.packed, q.events = size, packed, d.agreed&spec.FeatureEventIdx != 0
	q.desc = part{bus: desc, n: size * spec.DescSize}
	if packed {
		q.driver, q.device = part{bus: driver, n: spec.EventSize}, part{bus: device, n: spec.EventSize}
		q.availWrap, q.usedWrap = true, true
		return nil
	}
	tail := 0
	if q.events {
		tail = 2
	}
	q.driver, q.device = part{bus: driver, n: 4 + 2*size + tail}, part{bus: device, n: 4 + 8*size + tail}
	return nil
}

// EnableQueue lets the device use queue i, or not use it for the time being: nothing of it is forgotten.
func (d *Device) EnableQueue(i int, on bool) {
	q := d.there(i)
	if q == nil || q.on == on {
		return
	}
	if q.size == 0 {
		d.wrong(QueueChanged, i, "enabled before it is set up")
		return
	}
	if !on {
		q.flush()
		q.on = false
		return
	}
	q.on = true
	q.turn = 0
	words := q.size
	if q.packed {
		words = 1 << 16
	}
	if want := (words + 63) / 64; len(q.held) < want {
		q.held = make([]uint64, want)
	}
	if d.status&spec.StatusDriverOK != 0 {
		q.begin()
		q.due = d.now + d.rng.Delay(d.cfg.Timing.Fetch)
		d.kick()
	}
}

// QueueEnabled says whether queue i is.
func (d *Device) QueueEnabled(i int) bool { return i >= 0 && i < len(d.queues) && d.queues[i].on }

// ResetQueue takes queue i away (§2.6.1). The device uses none of its memory any more.
func (d *Device) ResetQueue(i int) {
	if q := d.there(i); q != nil {
		q.reset()
	}
}

// OnCall names what is called, with the lock held, when the driver is to be told of queue i.
func (d *Device) OnCall(i int, f func()) {
	if q := d.there(i); q != nil {
		if f == nil {
			f = func() {}
		}
		q.call = f
	}
}

// Kick is a notification of queue i.
func (d *Device) Kick(i int) {
	if d.gone {
		return
	}
	q := d.there(i)
	switch {
	case q == nil:
		return
	case d.status&spec.StatusDriverOK == 0:
		d.wrong(NotifyEarly, i, "status %#02x", d.status)
		return
	case !q.on:
		d.wrong(NotifyDisabled, i, "")
		return
	}
	d.count.Kicks++
	d.now = max(d.now, d.w.Clock().Nanos())
	q.due = min(q.due, d.now+d.rng.Delay(d.cfg.Timing.Fetch))
	if q.due < d.next {
		d.next = q.due
		d.w.Poke()
	}
}

// KickAt is a notification that says how far the driver is (§2.9): position as virtio.Doorbell has it.
func (d *Device) KickAt(i int, position uint16) {
	if q := d.there(i); q != nil && q.on && d.live() {
		d.turn++ // this is no part of the last run, since when memory may have gone
		if q.view(); !d.broken {
			q.checkPosition(position)
		}
	}
	d.Kick(i)
}

// QueueBase is how far the device has come in queue i, as vhost-user tells it: of a split ring the available index; of a
// packed one that position in bits 0 … 14 and its wrap counter in bit 15, and where it reports next above.
func (d *Device) QueueBase(i int) uint32 {
	q := d.there(i)
	if q == nil {
		return 0
	}
	q.flush()
	q.unfetch()
	if !q.packed {
		return uint32(q.avail)
	}
	return uint32(pack(q.avail, q.availWrap)) | uint32(pack(q.used, q.usedWrap))<<16
}

func pack(pos uint16, wrap bool) uint16 {
	if wrap {
		return pos | spec.EventWrap
	}
	return pos
}

// SetQueueBase says where the device goes on in queue i, once it has been set up.
func (d *Device) SetQueueBase(i int, base uint32) error {
	q := d.there(i)
	if q == nil || q.on {
		return fmt.Errorf("%s: queue %d: its position is set while it is not enabled", d.cfg.Name, i)
	}
	if !q.packed {
		q.avail, q.used, q.seen = uint16(base), uint16(base), uint16(base)
		return nil
	}
	avail, used := uint16(base)&^spec.EventWrap, uint16(base>>16)&^spec.EventWrap
	if int(avail) >= q.size || int(used) >= q.size {
		return fmt.Errorf("%s: queue %d: positions %d and %d in a ring of %d", d.cfg.Name, i, avail, used, q.size)
	}
	q.avail, q.availWrap = avail, base&spec.EventWrap != 0
	q.used, q.usedWrap = used, base>>16&spec.EventWrap != 0
	return nil
}

// MemoryChanged says that bus addresses lead elsewhere now, or nowhere.
func (d *Device) MemoryChanged() {
	for i := range d.queues {
		q := &d.queues[i]
		q.turn = 0
		q.desc.view, q.driver.view, q.device.view = nil, nil, nil
	}
}

// begin prepares a queue for work, at DRIVER_OK or when it is enabled later.
func (q *queue) begin() {
	q.pubAt, q.quiet, q.told = sim.Never, false, false
}

// reset makes the queue one that was never set up.
func (q *queue) reset() {
	for i := range q.window {
		q.window[i].segs = q.window[i].segs[:0]
	}
	clear(q.held)
	q.d.count.RxUnready += uint64(q.wait.n)
	q.wait.reset()
	*q = queue{
		d: q.d, i: q.i, call: q.call, due: sim.Never, pubAt: sim.Never,
		held: q.held, staged: q.staged[:0], window: q.window, wait: q.wait, lent: q.lent[:0],
	}
}

// flush reports what is done with.
func (q *queue) flush() {
	if q.on && len(q.staged) > 0 && q.d.live() {
		q.publish()
	}
}

// unfetch gives receive buffers back that were fetched and not used.
func (q *queue) unfetch() {
	for i := q.have - 1; i >= 0; i-- {
		c := &q.window[i]
		q.release(c.id)
		if !q.packed {
			q.avail--
			continue
		}
		if q.avail < c.count {
			q.avail += uint16(q.size)
			q.availWrap = !q.availWrap
		}
		q.avail -= c.count
	}
	q.have = 0
	q.lent = q.lent[:0]
}

// hold notes that the device has the chain of this head or id; false: it had it already.
func (q *queue) hold(id uint16) bool {
	w, bit := &q.held[id/64], uint64(1)<<(id%64)
	if *w&bit != 0 {
		return false
	}
	*w |= bit
	return true
}

func (q *queue) release(id uint16) { q.held[id/64] &^= 1 << (id % 64) }

// view looks up where the ring lies, once in each run of the device: memory may have been taken away in between.
func (q *queue) view() {
	if q.turn == q.d.turn && q.d.turn != 0 {
		return
	}
	q.turn = q.d.turn
	in := q.d.mem
	if q.packed {
		in = q.d.out // read and written
	}
	q.desc.look(in)
	q.driver.look(q.d.mem)
	q.device.look(q.d.out)
}

// look takes a view of the whole part if it lies together.
func (p *part) look(m sim.Memory) {
	b, err := m.Bytes(p.bus, p.n)
	if err != nil || len(b) < p.n || !matches(b, p.bus) {
		p.view = nil
		return
	}
	p.view = b[:p.n]
}

// matches says whether memory is aligned as its bus address is, as far as it matters to a processor.
func matches(b []byte, bus uint64) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%4 == uintptr(bus%4)
}

// at returns n bytes at off of a part; after a fault bytes that nobody looks at.
func (q *queue) at(p *part, m sim.Memory, off, n int) []byte {
	if p.view != nil {
		return p.view[off : off+n]
	}
	b, err := m.Bytes(p.bus+uint64(off), n)
	if err != nil || len(b) < n || !matches(b, p.bus+uint64(off)) {
		q.fault("ring", p.bus+uint64(off), err)
		return unsafe.Slice((*byte)(unsafe.Pointer(&q.waste[0])), 16)[:n]
	}
	return b[:n]
}

func word16(b []byte) *uint16 { return (*uint16)(unsafe.Pointer(unsafe.SliceData(b))) }
func word32(b []byte) *uint32 { return (*uint32)(unsafe.Pointer(unsafe.SliceData(b))) }

// fault is DMA to where the device may not go.
func (q *queue) fault(what string, bus uint64, err error) {
	q.d.wrong(DMAFault, q.i, "%s at bus address %#x: %v", what, bus, err)
	q.d.count.DMAFaults++
	q.d.fail()
}

// breaks is a rule of the rings that the driver has broken.
func (q *queue) breaks(k Kind, format string, args ...any) {
	q.d.wrong(k, q.i, format, args...)
	q.d.fail()
}
