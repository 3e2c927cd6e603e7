package virtio

import (
	"errors"
	"fmt"

	"bare.wire/nic"
	"bare.wire/virtio/spec"
)

// fail makes the port gone: the queues stand still, sleepers wake up. Queues call it when the device breaks a rule, transports
// when they have lost it; so it may run on any goroutine, inside any call, and takes no lock that one of these may hold.
func (p *Port) fail(err error) {
	if !errors.Is(err, nic.ErrGone) {
		err = fmt.Errorf("%w: %w", err, nic.ErrGone)
	}
	if !p.gone.CompareAndSwap(nil, &err) {
		return
	}
	p.log.Error("port is gone", "err", err)
	p.silence(err)
	p.link.Wake(err) // before the link goes, which wakes without a reason
	p.lostLink()
}

// silence makes Recv and Send return 0 and wakes those who sleep on a queue, with an error for good.
func (p *Port) silence(err error) {
	made := p.queues.Load()
	if made == nil {
		return
	}
	for _, q := range made.rx {
		q.kill(err)
	}
	for _, q := range made.tx {
		q.kill(err)
	}
}

// healthy asks the device how it is, with mu locked. It returns false, and Err the reason from then on, when it is not to be used
// any more (§2.1.2, and status ff when nobody answers).
func (p *Port) healthy() bool {
	s, err := p.t.Status()
	switch {
	case errors.Is(err, nic.ErrGone):
		p.fail(err)
	case err != nil:
		p.log.Warn("the status cannot be read", "err", err)
	case s&spec.StatusNeedsReset != 0:
		p.fail(fmt.Errorf("%s: the device has met an error and needs a reset (DEVICE_NEEDS_RESET, status %#02x): %w; Close the port and open it again",
			p.t.Name(), s, nic.ErrGone))
	}
	return p.Err() == nil
}
