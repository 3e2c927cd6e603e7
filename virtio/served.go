package virtio

import (
	"sync/atomic"
	"time"

	"bare.wire/virtio/spec"
)

// unservedTime is how long a transmit queue may wait for its device, with the link up, before that is logged.
const unservedTime = 5 * time.Second

// servedWatch is what checkServed saw last of a transmit queue.
type servedWatch struct {
	mark  uint64 // how far the device was
	since int64  // ns of the clock
	waits bool   // frames waited for it
	told  bool
}

// checkServed logs, once each time, that a device leaves frames in a transmit queue. It is no reason to give the port up: a back end may
// be stopped for a while, by a debugger or with the machine that it runs in.
func (p *Port) checkServed() {
	now, up := p.clk.Nanos(), p.Link().Up
	for i, q := range p.queues.Load().tx {
		w := &p.served[i]
		mark, waits := q.served()
		if waits = waits && up; !waits || !w.waits || mark != w.mark {
			*w = servedWatch{mark: mark, waits: waits, since: now}
			continue
		}
		if stands := time.Duration(now - w.since); stands >= unservedTime && !w.told {
			w.told = true
			p.log.Warn("the device does not serve a transmit queue: is it paused, or its back end stopped?", "queue", i, "for", stands)
		}
	}
}

// served says how far the device is, and whether it has been given more. Any goroutine may ask: it looks at the ring alone.
func (q *txQueue) served() (mark uint64, waits bool) {
	taken := q.taken.Load()
	if !q.packed {
		used := atomic.LoadUint32(q.split.used) >> 16
		return taken<<16 | uint64(used), used != atomic.LoadUint32(q.split.avail)>>16
	}
	at, given := taken%uint64(q.size), uint32(spec.DescAvail)
	if taken/uint64(q.size)%2 == 1 { // the driver's wrap counter was 1 at first
		given ^= bothWraps
	}
	return taken, atomic.LoadUint32(wordOf(&q.desc[at]))>>16&bothWraps == given
}
