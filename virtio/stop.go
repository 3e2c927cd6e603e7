package virtio

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
)

// drainTime is how long Stop waits for frames that the device has yet to send.
const drainTime = 50 * time.Millisecond

// Stop implements nic.Port. No Recv and no Send may be running.
func (p *Port) Stop() error {
	p.mu.Lock()
	defer p.unlock()
	if !p.started {
		return nil
	}
	return p.stop()
}

// stop takes the buffers back. They are safe when every queue, or the device, has been reset and said so; otherwise they are
// quarantined. It also takes apart what a Start that failed has built.
func (p *Port) stop() error {
	ctx := context.Background()
	p.started = false
	p.drainTransmit(ctx)
	p.silence(nil)
	_, irqErr := p.t.Interrupts(0, nil)
	if p.Err() != nil {
		irqErr = nil // nobody answers
	}
	p.vectors.Store(nil)
	p.link.Wake(nil)
	p.lostLink()
	if p.enabled {
		if err := p.quieten(ctx); err != nil {
			return errors.Join(err, irqErr, p.quarantine())
		}
	}
	p.enabled = false
	p.eachBuffer((*mbuf.Buf).Free)
	return errors.Join(irqErr, p.dropQueues())
}

// drainTransmit waits for frames on their way, if there is a link for them to leave by. One that stays is lost, which is no
// reason not to stop.
func (p *Port) drainTransmit(ctx context.Context) {
	made := p.queues.Load()
	if made == nil || !p.enabled {
		return
	}
	step, end := 10*time.Microsecond, p.clk.Nanos()+int64(drainTime)
	for p.Err() == nil {
		busy := false
		for _, q := range made.tx {
			q.Reclaim()
			busy = busy || q.buffers() > 0
		}
		if !busy || !p.Link().Up || p.clk.Nanos() >= end || p.clk.Sleep(ctx, step) != nil {
			return
		}
		step = min(2*step, time.Millisecond)
	}
}

// quieten ends the device's use of memory: queue by queue where it can be reset that way, and then all of it. Either will do. One
// that has broken a rule, or asks for a reset, is reset only; one that has been pulled out does not answer.
func (p *Port) quieten(ctx context.Context) error {
	if err := p.Err(); err != nil {
		if p.t.Reset(ctx) == nil {
			return nil
		}
		return err
	}
	made := p.queues.Load()
	var errs []error
	for i := range made.tx {
		errs = append(errs, p.t.DisableQueue(ctx, spec.TransmitQueue(i)))
	}
	for i := range made.rx {
		errs = append(errs, p.t.DisableQueue(ctx, spec.ReceiveQueue(i)))
	}
	if c := p.control; c != nil {
		errs = append(errs, p.t.DisableQueue(ctx, c.q.vq))
	}
	queueErr, resetErr := errors.Join(errs...), p.t.Reset(ctx)
	if errors.Is(resetErr, nic.ErrGone) { // Stop may be the first to notice
		p.fail(resetErr)
	}
	switch {
	case resetErr == nil:
		return nil
	case queueErr == nil:
		p.log.Warn("the queues are stopped, and the device does not reset", "err", resetErr)
		return nil
	}
	return resetErr
}

// eachBuffer gives every buffer that the device had to f, and returns their number. Frames that were not reported as sent count as
// lost with the stop.
func (p *Port) eachBuffer(f func(*mbuf.Buf)) (n int) {
	made := p.queues.Load()
	if made == nil {
		return 0
	}
	for _, q := range made.rx {
		n += q.drain(f)
	}
	for _, q := range made.tx {
		lost := uint64(0)
		frames, bufs := q.drain(func(b *mbuf.Buf) {
			lost += uint64(b.Len())
			f(b)
		})
		q.dropped[nic.TxLost].Add(uint64(frames))
		p.counts.lostBytes += lost
		n += bufs
	}
	return n
}

// quarantine keeps the buffers that the device may still touch out of use until Close has ended that.
func (p *Port) quarantine() error {
	n := p.eachBuffer(func(b *mbuf.Buf) {
		if !slices.Contains(p.quarantinePools, b.Pool()) {
			p.quarantinePools = append(p.quarantinePools, b.Pool())
		}
		b.Pool().Quarantine(p.info.Name, b)
	})
	p.heldBack += uint64(n)
	p.closeCaches()
	return fmt.Errorf("%s: %d buffers are in quarantine, since the device may still write to them: Close gives them back", p.info.Name, n)
}

// dropQueues gives rings and caches back; the queues stay, dead, for their counters.
func (p *Port) dropQueues() error {
	p.closeCaches()
	p.control = nil
	if p.arena == nil {
		return nil
	}
	err := p.arena.Free()
	p.arena = nil
	return err
}

func (p *Port) closeCaches() {
	made := p.queues.Load()
	if made == nil {
		return
	}
	for _, q := range made.rx {
		q.cache.Close()
	}
	for _, q := range made.tx {
		q.cache.Close()
	}
}

// Close implements nic.Port: queues, reset, transport, and only then memory.
func (p *Port) Close() error {
	p.mu.Lock()
	defer p.unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	defer p.link.End()
	var errs []error
	if p.started {
		err := p.stop()
		if p.heldBack == 0 && p.arena == nil {
			errs = append(errs, err)
		} // else what it says is put right here
	}
	wasGone := p.Err() != nil
	resetErr := p.t.Reset(context.Background())
	closeErr := p.t.Close()
	if resetErr != nil && closeErr != nil {
		// Nothing has shown that the device is done: the quarantine stays for good, and says so.
		return errors.Join(append(errs, fmt.Errorf("%s: close: the device may still write to %d buffers: %w", p.info.Name, p.heldBack, errors.Join(resetErr, closeErr)))...)
	}
	for _, pool := range p.quarantinePools {
		pool.ReleaseQuarantine(p.info.Name)
	}
	p.heldBack, p.quarantinePools = 0, nil
	errs = append(errs, p.dropQueues())
	if wasGone || errors.Is(resetErr, nic.ErrGone) {
		resetErr = nil // nobody answers, which is no news
	}
	return errors.Join(append(errs, resetErr, closeErr)...)
}
