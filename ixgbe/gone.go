package ixgbe

import (
	"context"
	"errors"
	"fmt"

	"bare.wire/nic"
	"bare.wire/pci"
)

// watchGone has the function tell when it can no longer be used: the kernel wants it back, or its registers have gone. A
// function that does not notice that by itself is asked by Housekeep.
func (p *Port) watchGone() {
	if fn, ok := p.fn.(pci.GoneNotifier); ok {
		fn.OnGone(p.functionGone)
	}
}

// functionGone is called from any goroutine, also from one that is inside Recv, Send, Start or Close, at an access to a
// register, with whatever it has locked. From then on Err says why every register reads all ones; the queues stand still
// a little later, when nobody is making or unmaking them.
func (p *Port) functionGone(reason error) {
	err := fmt.Errorf("%w: %w", reason, nic.ErrGone)
	if !p.gone.CompareAndSwap(nil, &err) {
		return
	}
	go func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.log.Error("port is gone", "err", err)
		p.standStill(err)
	}()
}

// resetFunction resets the card for the last time: by the bus, or, where the kernel knows no way to do that for this function
// alone, by the card's own reset, after which it does no DMA either (§4.2.1.6). Bus mastering is off already.
func (p *Port) resetFunction(ctx context.Context) error {
	err := p.fn.Reset(ctx)
	if !errors.Is(err, errors.ErrUnsupported) || p.Err() != nil {
		return err
	}
	if own := p.softwareReset(ctx); own != nil {
		return errors.Join(err, own)
	}
	p.maskInterrupts()
	return nil
}
