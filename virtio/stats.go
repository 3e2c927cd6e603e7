package virtio

import (
	"context"

	"bare.wire/nic"
)

// totals is what statistics need beside the queues' own.
type totals struct {
	lostBytes          uint64 // of frames that were given to the device and not sent when the port stopped
	txPackets, txBytes uint64 // as Stats said last
}

// Stats implements nic.Port. A virtio device counts nothing: these are what the driver has handed out and given away. What the
// device dropped for want of a buffer nobody knows but whoever runs it. What counts as sent is what was given to the device,
// until a Stop finds that it was not; a total that has been told does not go back for that.
func (p *Port) Stats() nic.Stats {
	p.mu.Lock()
	defer p.unlock()
	out := nic.Stats{Quarantined: p.heldBack}
	made := p.queues.Load()
	if made == nil {
		return out
	}
	out.Queues = make([]nic.QueueStats, max(p.cfg.RxQueues, p.cfg.TxQueues))
	for i, q := range made.rx {
		q.count(&out, &out.Queues[i%p.cfg.RxQueues])
	}
	for i, q := range made.tx[:min(len(made.tx), p.cfg.TxQueues)] {
		q.count(&out, &out.Queues[i])
	}
	c := &p.counts
	out.TxPackets = max(c.txPackets, out.TxPackets)
	out.TxBytes = max(c.txBytes, out.TxBytes-min(c.lostBytes, out.TxBytes))
	c.txPackets, c.txBytes = out.TxPackets, out.TxBytes
	return out
}

// count adds up a queue's totals.
func (q *rxQueue) count(all *nic.Stats, s *nic.QueueStats) {
	packets, bytes, noBuf := q.packets.Load(), q.bytes.Load(), q.noBuf.Load()
	s.RxPackets += packets
	s.RxBytes += bytes
	s.RxNoBuf += noBuf
	all.RxPackets += packets
	all.RxBytes += bytes
	all.RxNoBuf += noBuf
	all.RxErrors += q.errors.Load()
}

func (q *txQueue) count(all *nic.Stats, s *nic.QueueStats) {
	s.TxPackets, s.TxBytes, s.TxFull = q.packets.Load(), q.bytes.Load(), q.full.Load()
	all.TxPackets += s.TxPackets + q.cutPackets.Load() - q.dropped[nic.TxLost].Load()
	all.TxBytes += s.TxBytes + q.cutBytes.Load()
	all.TxFull += s.TxFull
	for r := range q.dropped {
		n := q.dropped[r].Load()
		all.TxDropped[r] += n
		all.TxErrors += n
	}
}

// ExtendedStats returns what there is to tell beyond nic.Stats, by name.
func (p *Port) ExtendedStats() map[string]uint64 {
	p.mu.Lock()
	defer p.unlock()
	return map[string]uint64{"filter_overflows": p.filters.overflows}
}

// forgetCounts begins the totals of a Start.
func (p *Port) forgetCounts(context.Context) error {
	p.counts = totals{}
	return nil
}
