package virtionet

import (
	"bare.wire/sim"
	"bare.wire/virtio/spec"
)

// complete is done with a chain, of which n bytes were written. It is reported a little later.
func (q *queue) complete(c *chain, n int) {
	q.staged = append(q.staged, done{c.id, c.count, uint32(n)})
	if q.pubAt == sim.Never {
		q.pubAt = q.d.now + q.d.rng.Delay(q.d.cfg.Timing.Used)
	}
}

// publish reports what the device is done with, and interrupts if the driver wants that.
func (q *queue) publish() {
	q.pubAt = sim.Never
	list := q.staged
	if len(list) == 0 {
		return
	}
	q.view()
	for _, e := range list {
		q.release(e.id)
		if q.d.cfg.Watch && q.i&1 == 1 {
			q.inspect(e.id, TxBufferTouched)
		}
	}
	list = q.arrange(list)
	if q.d.cfg.Faults.any {
		list = q.bend(list)
	}
	q.staged = q.staged[:0]
	old := q.used
	if q.packed {
		q.putPacked(list)
	} else {
		q.putSplit(list)
	}
	if q.d.broken || len(list) == 0 {
		return
	}
	if q.d.dma.On {
		q.d.logDMA(ReportUsed, q.i, q.device.bus, len(list))
	}
	fence() // what the driver wants is read only now
	if q.wants(old) && !q.d.broken && !q.d.cfg.Faults.NoInterrupts {
		q.d.count.Calls++
		q.call()
	}
}

// arrange puts what is reported into the order that there is to be. Receive buffers were shuffled when they were chosen: those
// of one frame stay together.
func (q *queue) arrange(list []done) []done {
	d := q.d
	receive := q.i&1 == 0 && q.i != d.controlQueue()
	switch {
	case d.agreed&spec.FeatureInOrder != 0:
		if !receive && d.rng.Below(2) == 0 { // one may stand for all before it (§2.7.11, §2.8.21.3.1)
			last := list[len(list)-1]
			for _, e := range list[:len(list)-1] {
				last.count += e.count
			}
			list[0] = last
			return list[:1]
		}
	case d.cfg.Order == Shuffled && !receive:
		for i := len(list) - 1; i > 0; i-- {
			j := d.rng.Below(i + 1)
			list[i], list[j] = list[j], list[i]
		}
	}
	return list
}

// wants says whether the driver wants an interrupt now that used has gone on from old.
func (q *queue) wants(old uint16) bool {
	if q.packed {
		return q.wantsPacked(old)
	}
	return q.wantsSplit(old)
}

// hush tells the driver that the device looks by itself.
func (q *queue) hush() {
	if q.quiet {
		return
	}
	q.quiet, q.told = true, true
	q.suppress(true)
}

func (q *queue) suppress(quiet bool) {
	if q.d.cfg.Faults.EventLie {
		quiet = q.d.rng.Below(2) == 0
	}
	if q.packed {
		q.suppressPacked(quiet)
	} else {
		q.suppressSplit(quiet)
	}
}

// rest asks the driver for a notification, and looks once more, as one may have been thought unnecessary meanwhile; false:
// there is something.
func (q *queue) rest() bool {
	if q.d.polling {
		q.hush()
		return true
	}
	if q.quiet || !q.told || q.events {
		q.suppress(false)
		q.quiet, q.told = false, true
	}
	fence()
	if q.packed {
		return !q.lookPacked()
	}
	return !q.look()
}

// checkPosition holds the position that came with a notification against the ring.
func (q *queue) checkPosition(position uint16) {
	if q.packed {
		if int(position&^spec.EventWrap) >= q.size {
			q.d.wrong(NotifyData, q.i, "position %#04x in a ring of %d", position, q.size)
		}
		return
	}
	idx := load16(word16(q.at(&q.driver, q.d.mem, ringIndex, 2)))
	if behind := idx - position; int(behind) > q.size && !q.d.broken {
		q.d.wrong(NotifyData, q.i, "available index %d, which is %d", position, idx)
	}
}
