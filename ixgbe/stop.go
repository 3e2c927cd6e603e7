package ixgbe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

// drainTime is how long Stop waits for frames that the card has yet to send: a full ring of the longest frames takes
// 32 ms at 10 Gb/s.
const drainTime = 50 * time.Millisecond

// Stop implements nic.Port. No Recv and no Send may be running.
func (p *Port) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		return nil
	}
	return p.stop()
}

// stop ends DMA and takes the buffers back. They are safe when every queue's disable has been read back, or bus
// mastering has been seen to be off; otherwise they are quarantined.
func (p *Port) stop() error {
	ctx := context.Background()
	p.started = false
	p.silence()
	if p.enabled && p.Err() == nil {
		p.maskInterrupts()
	}
	_, irqErr := p.fn.Interrupts(0, nil)
	p.wakeAll(nil)
	p.vectors.Store(nil) // what is raised while the port is started again finds nobody, and touches no register
	var err error
	if p.enabled {
		err = p.stopQueues(ctx)
	}
	if err != nil && p.enabled {
		p.log.Warn("queues do not stop, switching bus mastering off", "err", err)
		if busErr := p.stopBusMaster(); busErr != nil {
			return errors.Join(err, busErr, irqErr, p.quarantine())
		}
	}
	p.enabled = false
	p.takeBack()
	p.lostLink()
	return errors.Join(irqErr, p.dropQueues())
}

// stopQueues stops reception, lets transmission finish, and disables every queue (§4.6.7.1.2, §4.6.8.1.2).
func (p *Port) stopQueues(ctx context.Context) error {
	if err := p.Err(); err != nil {
		return err
	}
	p.unset(reg.RXCTRL, reg.RXCTRL_RXEN)
	var errs []error
	for i := range p.tx {
		if p.Link().Up {
			// A frame that stays is lost, which is no reason not to stop.
			_ = p.poll(ctx, "transmit queue to run empty", reg.TDH(i), 0xffff, p.read(reg.TDT(i)), time.Millisecond, drainTime, "")
		}
		errs = append(errs, p.disableQueue(ctx, "transmit queue disable (TXDCTL.ENABLE)", reg.TXDCTL(i), reg.TXDCTL_ENABLE))
	}
	for i := range p.rx {
		errs = append(errs, p.disableQueue(ctx, "receive queue disable (RXDCTL.ENABLE)", reg.RXDCTL(i), reg.RXDCTL_ENABLE))
	}
	// Writes of the card that are under way still land (§4.6.7.1.2).
	_ = p.clk.Sleep(ctx, 100*time.Microsecond)
	p.stats.collect(p) // the last: with what was sent and received meanwhile
	return errors.Join(errs...)
}

func (p *Port) disableQueue(ctx context.Context, what string, off, enable uint32) error {
	p.unset(off, enable)
	return p.poll(ctx, what, off, enable, 0, time.Millisecond, 100*time.Millisecond, "close the port")
}

// takeBack frees the buffers of queues that the card no longer touches. Frames that were not reported as sent count as
// lost with the stop.
func (p *Port) takeBack() {
	for _, q := range p.rx {
		q.drain((*mbuf.Buf).Free)
	}
	for _, q := range p.tx {
		q.drainAll()
	}
}

// drainAll first frees what was reported, then the rest.
func (q *txQueue) drainAll() {
	q.Reclaim()
	lost, _ := q.drain((*mbuf.Buf).Free)
	q.dropped[nic.TxLost].Add(uint64(lost))
}

// quarantine keeps the buffers that the card may still touch out of use until Close has reset it. Frames that were not
// reported as sent count as lost here too.
func (p *Port) quarantine() error {
	n := 0
	keep := func(b *mbuf.Buf) {
		p.quarantinePools = appendUnique(p.quarantinePools, b.Pool())
		b.Pool().Quarantine(p.info.Name, b)
	}
	for _, q := range p.rx {
		n += q.drain(keep)
	}
	for _, q := range p.tx {
		q.Reclaim() // what was reported is nobody's any more
		lost, bufs := q.drain(keep)
		q.dropped[nic.TxLost].Add(uint64(lost))
		n += bufs
	}
	p.heldBack += uint64(n)
	p.closeCaches()
	return fmt.Errorf("%s: %d buffers are in quarantine, since the card may still write to them: Close resets it and gives them back", p.info.Name, n)
}

func appendUnique(pools []*mbuf.Pool, pool *mbuf.Pool) []*mbuf.Pool {
	for _, x := range pools {
		if x == pool {
			return pools
		}
	}
	return append(pools, pool)
}

// dropQueues gives rings and caches back; the queues stay, dead, for their counters.
func (p *Port) dropQueues() error {
	p.closeCaches()
	err := p.rings.Free()
	p.rings = nil
	return err
}

func (p *Port) closeCaches() {
	for _, q := range p.rx {
		q.cache.Close()
	}
	for _, q := range p.tx {
		q.cache.Close()
	}
}

// Close implements nic.Port: interrupts, queues, bus master, reset, and only then memory.
func (p *Port) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	defer p.link.End()
	var errs []error
	if p.started {
		err := p.stop()
		if p.heldBack == 0 {
			errs = append(errs, err)
		} // else what it says is put right here
	}
	if p.Err() == nil {
		p.unset(reg.CTRL_EXT, reg.CTRL_EXT_DRV_LOAD)
		p.maskInterrupts()
		p.set(reg.CTRL, reg.CTRL_GIO_DIS)
	}
	busErr := p.stopBusMaster()
	resetErr := p.resetFunction(context.Background())
	closeErr := p.fn.Close()
	if busErr != nil && resetErr != nil && closeErr != nil {
		// Nothing has shown that DMA is over: the quarantine stays for good, and says so.
		return errors.Join(append(errs, fmt.Errorf("%s: close: the card may still write to %d buffers: %w", p.info.Name, p.heldBack, errors.Join(busErr, resetErr, closeErr)))...)
	}
	for _, pool := range p.quarantinePools {
		pool.ReleaseQuarantine(p.info.Name)
	}
	p.heldBack, p.quarantinePools = 0, nil
	if p.rings != nil {
		errs = append(errs, p.dropQueues())
	}
	if p.Err() == nil {
		errs = append(errs, busErr, resetErr)
	}
	return errors.Join(append(errs, closeErr)...)
}
