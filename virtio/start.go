package virtio

import (
	"context"
	"errors"
	"fmt"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// controlDesc is the size of the control queue's ring where there is a choice: commands are given many at a time.
const controlDesc = 256

// Start implements nic.Port. The order of the steps is that of the specification (§3.1.1). Receive rings are filled last, when
// the filters are as they shall be: what comes before finds no buffer.
func (p *Port) Start(ctx context.Context, cfg nic.Config) error {
	p.mu.Lock()
	defer p.unlock()
	switch {
	case p.closed:
		return fmt.Errorf("%s: start: the port is closed", p.info.Name)
	case p.started:
		return fmt.Errorf("%s: start: it is started already: call Stop first", p.info.Name)
	case p.arena != nil:
		return fmt.Errorf("%s: start: the last stop could not end the device's use of memory (%d buffers are in quarantine): Close the port and open it again", p.info.Name, p.heldBack)
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s: start: %w", p.info.Name, err)
	}
	if err := p.complete(&cfg); err != nil {
		return fmt.Errorf("%s: start: %w", p.info.Name, err)
	}
	p.cfg = cfg
	for _, step := range []func(context.Context) error{
		p.forgetCounts,
		p.negotiate, // steps 1 to 6
		p.makeQueues,
		p.initInterrupts, // step 7
		p.enableQueues,
		p.driverOK, // step 8
		p.configure,
		p.startQueues,
	} {
		err := step(ctx)
		if err == nil {
			err = p.Err()
		}
		if err != nil {
			p.started = true // stop takes apart what has been built
			return errors.Join(fmt.Errorf("%s: start: %w", p.info.Name, err), p.stop())
		}
	}
	p.started = true
	p.updateLink()
	return nil
}

// queuePlan is a virtqueue to be made.
type queuePlan struct{ virtqueue, size int }

// plan says which virtqueues there are to be, receive, transmit and control. The pairs are whole: the device knows no others.
func (p *Port) plan() (rx, tx []queuePlan, ctrl *queuePlan, err error) {
	add := func(list *[]queuePlan, virtqueue, size int) {
		n, sizeErr := p.ringSize(virtqueue, size)
		err = errors.Join(err, sizeErr)
		*list = append(*list, queuePlan{virtqueue, n})
	}
	for i := range p.pairs(&p.cfg) {
		add(&rx, spec.ReceiveQueue(i), p.cfg.RxDesc)
		add(&tx, spec.TransmitQueue(i), p.cfg.TxDesc)
	}
	if p.Negotiated().Has(spec.FeatureCtrlVQ) {
		virtqueue := spec.ControlQueue(p.Negotiated(), p.device.pairs)
		have, sizeErr := p.t.QueueSize(virtqueue)
		if sizeErr == nil && have < 1 {
			sizeErr = fmt.Errorf("%s: the device offers a control queue and has no queue %d: features=-ctrl_vq does without", p.t.Name(), virtqueue)
		}
		if err = errors.Join(err, sizeErr); err == nil {
			var list []queuePlan
			add(&list, virtqueue, min(controlDesc, powerBelow(have)))
			ctrl = &list[0]
		}
	}
	return rx, tx, ctrl, err
}

// makeQueues allocates rings. The device has not seen them yet.
func (p *Port) makeQueues(context.Context) error {
	rx, tx, ctrl, err := p.plan()
	if err != nil {
		return err
	}
	f, legacy := p.Negotiated(), p.t.Legacy()
	size := 0
	for _, q := range append(rx[:len(rx):len(rx)], tx...) {
		size += ringBytes(f, legacy, q.size)
	}
	if ctrl != nil {
		size += ringBytes(f, legacy, ctrl.size)
	}
	if p.arena, err = vtop.NewArena(p.opt.Space, vtop.ArenaConfig{Name: p.info.Name + " rings", Node: p.opt.Node, Size: size}); err != nil {
		return err
	}
	env := &queueEnv{
		name: p.info.Name, space: p.opt.Space, features: f, legacy: legacy, header: spec.HeaderSize(f), maxFrame: p.cfg.MaxFrame,
		offloads: p.cfg.Offloads, fail: p.fail,
	}
	made, err := p.lay(env, rx, tx)
	p.queues.Store(made) // not before: fail may look at them at any time
	if err != nil {
		return err
	}
	p.rx, p.served = p.shown(made.rx), make([]servedWatch, len(made.tx))
	if p.control = nil; ctrl != nil {
		q, err := newSlowQueue(env, ctrl.virtqueue, ctrl.size, p.arena)
		if err != nil {
			return err
		}
		p.control = &control{q}
	}
	return nil
}

// lay makes the queues of a plan. With an error it returns those that could be made.
func (p *Port) lay(env *queueEnv, rx, tx []queuePlan) (*queues, error) {
	made := &queues{}
	for i, q := range rx {
		queue, err := newRxQueue(env, q.virtqueue, i, q.size, p.arena, p.cfg.RxPools[i%len(p.cfg.RxPools)])
		if err != nil {
			return made, err
		}
		made.rx = append(made.rx, queue)
	}
	for i, q := range tx {
		queue, err := newTxQueue(env, q.virtqueue, i, q.size, p.arena, p.cfg.Pool)
		if err != nil {
			return made, err
		}
		made.tx = append(made.tx, queue)
	}
	return made, nil
}

// shown are the receive queues as the user sees them. A device without RSS puts frames on any queue of the pairs that it has
// been told to use: those beyond Config.RxQueues are dealt out to the others.
func (p *Port) shown(rx []*rxQueue) []nic.RxQueue {
	groups := make([]rxGroup, p.cfg.RxQueues)
	for i, q := range rx {
		groups[i%len(groups)] = append(groups[i%len(groups)], q)
	}
	out := make([]nic.RxQueue, len(groups))
	for i, g := range groups {
		if out[i] = &groups[i]; len(g) == 1 || p.Negotiated().Has(spec.FeatureRSS) {
			out[i] = g[0]
		}
	}
	return out
}

// rxGroup is several queues of the device that are one to the user.
type rxGroup []*rxQueue

// Recv implements nic.RxQueue.
func (g *rxGroup) Recv(into []*mbuf.Buf) (n int) {
	for _, q := range *g {
		n += q.Recv(into[n:])
	}
	return n
}

// Arm implements nic.RxQueue.
func (g *rxGroup) Arm(w *nic.Waiter) bool {
	armed := false
	for _, q := range *g {
		switch {
		case q.Arm(w):
			armed = true
		case q.ready() || q.dead.Load():
			return false // those that are armed may wake once for nothing
		} // else it has no buffers: the others may have some
	}
	return armed
}

// enableQueues tells the device where the rings are, and which vectors they have.
func (p *Port) enableQueues(ctx context.Context) error {
	p.enabled = true
	made := p.queues.Load()
	made.rxBells, made.txBells = make([]Doorbell, len(made.rx)), make([]Doorbell, len(made.tx))
	for i := range made.rx { // in the order of their numbers
		if err := p.enableQueue(ctx, &made.rx[i].virtqueue, p.vectorOf(i), &made.rxBells[i]); err != nil {
			return err
		}
		if err := p.enableQueue(ctx, &made.tx[i].virtqueue, p.vectorOf(len(made.rx)+i), &made.txBells[i]); err != nil {
			return err
		}
	}
	if c := p.control; c != nil {
		var bell Doorbell
		if err := p.enableQueue(ctx, &c.q.virtqueue, -1, &bell); err != nil {
			return err
		}
		c.q.start(bell)
	}
	return nil
}

func (p *Port) enableQueue(ctx context.Context, v *virtqueue, vector int, bell *Doorbell) (err error) {
	at := v.area()
	at.Vector = vector
	*bell, err = p.t.EnableQueue(ctx, v.vq, at)
	return err
}

// driverOK lets the device work.
func (p *Port) driverOK(ctx context.Context) error {
	if err := p.t.AddStatus(ctx, spec.StatusDriverOK); err != nil {
		return err
	}
	p.healthy()
	return p.Err()
}

// configure says by control commands what the device is to do.
func (p *Port) configure(ctx context.Context) error {
	if err := p.setAddress(ctx); err != nil {
		return err
	}
	if err := p.setPairs(ctx); err != nil {
		return err
	}
	if f := p.Negotiated(); f.Has(spec.FeatureCtrlGuestOffloads) {
		if err := p.command(ctx, guestOffloadsCommand(f)); err != nil {
			return err
		}
	}
	return p.initFilters(ctx)
}

// setAddress gives the device the port's MAC address where it has another, or none.
func (p *Port) setAddress(ctx context.Context) error {
	f := p.Negotiated()
	switch {
	case p.opt.MAC == [6]byte{} && f.Has(spec.FeatureMAC):
		return nil
	case f.Has(spec.FeatureCtrlMACAddr):
		return p.command(ctx, command{spec.CtrlMAC, spec.CtrlMACAddrSet, p.info.MAC[:]})
	case p.t.Legacy():
		return p.t.WriteConfig(spec.NetMAC, p.info.MAC[:])
	}
	return nil
}

// setPairs says how many queue pairs are used, and how frames are spread over them.
func (p *Port) setPairs(ctx context.Context) error {
	f, pairs := p.Negotiated(), p.pairs(&p.cfg)
	if t, ok := p.t.(PairSetter); ok && !f.Has(spec.FeatureCtrlVQ) {
		return t.SetPairs(ctx, pairs)
	}
	switch {
	case f.Has(spec.FeatureRSS):
		return p.command(ctx, command{spec.CtrlMQ, spec.CtrlMQRSSConfig, p.rssConfig(true)})
	case f.Has(spec.FeatureMQ):
		if err := p.command(ctx, command{spec.CtrlMQ, spec.CtrlMQPairsSet, []byte{byte(pairs), byte(pairs >> 8)}}); err != nil {
			return err
		}
	}
	if f.Has(spec.FeatureHashReport) {
		return p.command(ctx, command{spec.CtrlMQ, spec.CtrlMQHashConfig, p.rssConfig(false)})
	}
	return nil
}

// startQueues fills the receive rings, and traffic flows.
func (p *Port) startQueues(context.Context) error {
	made := p.queues.Load()
	for i, q := range made.tx {
		q.start(made.txBells[i])
	}
	for i, q := range made.rx {
		if i < p.cfg.RxQueues || !p.Negotiated().Has(spec.FeatureRSS) { // others get no frames: see rssConfig
			q.start(made.rxBells[i])
		}
	}
	return nil
}
