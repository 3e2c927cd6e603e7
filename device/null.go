package device

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"bare.wire/clock"
	"bare.wire/ixgbe"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/sim/nullnic"
)

// nullFrame is the length of the frames that null: receives, bytes without FCS.
const nullFrame = 60

// openNull opens the 82599 driver on a card whose data path only sets DD, and which is stepped inside Recv and Send: each
// Recv finds as many frames as it asks for, and what is sent is done at once. What is in the frames is whatever was in the
// buffers.
func openNull(ctx context.Context, opt Options, s *Set, names []name) error {
	if len(names) != 1 || names[0].rest != "" {
		return fmt.Errorf("%q: there is one null: device", names[0].uri)
	}
	cfg, err := parseNull(names[0].query)
	if err != nil {
		return err
	}
	cfg.Name, cfg.Memory, cfg.MAC = "null:", s.Space, macOf("null:")
	card, err := nullnic.New(cfg)
	if err != nil {
		return err
	}
	s.Clock = clock.Real()
	s.About = "a card that only says done"
	port, err := ixgbe.Open(ctx, &nullFunction{card}, ixgbe.Options{
		Space: s.Space, Clock: card.Clock(s.Clock), Logger: opt.Logger, Node: -1, Software: true,
	})
	if err != nil {
		return err
	}
	s.URIs = []string{"null:"}
	s.Ports = []nic.Port{&nullPort{Port: port, card: card}}
	return nil
}

func parseNull(q url.Values) (cfg nullnic.Config, err error) {
	for key, values := range q {
		if key != "rx" {
			return cfg, fmt.Errorf("parameter %q: null: takes rx=BYTES", key)
		}
		if cfg.Length, err = strconv.Atoi(values[0]); err != nil || cfg.Length < 1 {
			return cfg, fmt.Errorf("rx=%s: want the bytes of each received frame, without FCS", values[0])
		}
	}
	return cfg, nil
}

// nullPort steps the card inside the calls of one queue pair.
type nullPort struct {
	nic.Port
	card *nullnic.NIC
	rx   nullRx
	tx   nullTx
}

func (p *nullPort) Start(ctx context.Context, cfg nic.Config) error {
	if cfg.RxQueues > 1 || cfg.TxQueues > 1 {
		return fmt.Errorf("null: has one queue of each kind; %d and %d were asked for", cfg.RxQueues, cfg.TxQueues)
	}
	if err := p.Port.Start(ctx, cfg); err != nil {
		return err
	}
	if err := p.card.Attach(); err != nil {
		return errors.Join(err, p.Stop())
	}
	p.rx, p.tx = nullRx{p.Port.Rx(0), p.card}, nullTx{p.Port.Tx(0), p.card}
	return nil
}

// Stop implements nic.Port. The card forgets the rings before the driver gives their memory back.
func (p *nullPort) Stop() error {
	p.card.Detach()
	return p.Port.Stop()
}

// Close implements nic.Port.
func (p *nullPort) Close() error {
	p.card.Detach()
	return p.Port.Close()
}

func (p *nullPort) Rx(int) nic.RxQueue { return &p.rx }
func (p *nullPort) Tx(int) nic.TxQueue { return &p.tx }

type nullRx struct {
	nic.RxQueue
	card *nullnic.NIC
}

func (q *nullRx) Recv(into []*mbuf.Buf) int {
	q.card.RxStep(len(into))
	return q.RxQueue.Recv(into)
}

// RecvSegments is Recv for frames of segs buffers each.
func (q *nullRx) RecvSegments(into []*mbuf.Buf, segs int) int {
	q.card.RxSegments(len(into), segs)
	return q.RxQueue.Recv(into)
}

type nullTx struct {
	nic.TxQueue
	card *nullnic.NIC
}

func (q *nullTx) Send(pkts []*mbuf.Buf) int {
	n := q.TxQueue.Send(pkts)
	q.card.TxStep()
	return n
}

// nullFunction is the null card as a PCI function.
type nullFunction struct{ *nullnic.NIC }

func (f *nullFunction) BAR(n int) (pci.BAR, error) {
	if n != 0 {
		return nil, fmt.Errorf("null: BAR %d: there is BAR 0 only", n)
	}
	return pci.GuardBAR(f.Mem(), nil) // as a real card's registers are reached, so that costs are those of real cards
}

var _ pci.Function = (*nullFunction)(nil)
