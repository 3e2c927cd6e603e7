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

// nullCard is a device that says "done".
type nullCard interface {
	RxStep(k int) int
	RxSegments(k, segs int) int
	TxStep() int
}

// nullConfig is what the parameters say.
type nullConfig struct {
	length int // of received frames, bytes without FCS
	virtio nullVirtio
}

// openNull opens a driver on a device whose data path only says "done", and which is stepped inside Recv and Send: each Recv
// finds as many frames as it asks for, and what is sent is done at once. What is in the frames is whatever was in the buffers.
func openNull(ctx context.Context, opt Options, s *Set, names []name) error {
	if len(names) != 1 || names[0].rest != "" {
		return fmt.Errorf("%q: there is one null: device", names[0].uri)
	}
	cfg, err := parseNull(names[0].query)
	if err != nil {
		return err
	}
	s.Clock = clock.Real()
	s.About = "a card that only says done"
	open := openNullCard
	if cfg.virtio.chosen {
		open = openNullVirtio
	}
	port, err := open(ctx, opt, s, cfg)
	if err != nil {
		return err
	}
	s.URIs = []string{"null:"}
	s.Ports = []nic.Port{port}
	return nil
}

// openNullCard opens the 82599 driver.
func openNullCard(ctx context.Context, opt Options, s *Set, cfg nullConfig) (nic.Port, error) {
	card, err := nullnic.New(nullnic.Config{Name: "null:", Memory: s.Space, MAC: macOf("null:"), Length: cfg.length})
	if err != nil {
		return nil, err
	}
	port, err := ixgbe.Open(ctx, &nullFunction{card}, ixgbe.Options{
		Space: s.Space, Clock: card.Clock(s.Clock), Logger: opt.Logger, Node: -1, Software: true,
	})
	if err != nil {
		return nil, err
	}
	return &nullPort{Port: port, card: card, attach: card.Attach, detach: card.Detach}, nil
}

// nullUsage is the help on the parameters.
func nullUsage() string {
	return fmt.Sprintf("%-17s bytes of each received frame, without FCS (%d)\n", "rx", nullFrame) +
		fmt.Sprintf("%-17s 82599 or virtio (82599)\n", "driver") +
		fmt.Sprintf("%-17s of virtio: split or packed (packed)\n", "ring") +
		fmt.Sprintf("%-17s of virtio: those to take, or with a minus to leave (all)\n", "features")
}

func parseNull(q url.Values) (cfg nullConfig, err error) {
	if v := q.Get("rx"); q.Has("rx") {
		if cfg.length, err = strconv.Atoi(v); err != nil || cfg.length < 1 {
			return cfg, fmt.Errorf("rx=%s: want the bytes of each received frame, without FCS", v)
		}
	}
	q.Del("rx")
	if cfg.virtio.chosen, err = choice(q, "driver", "82599", "virtio"); err != nil {
		return cfg, err
	}
	if cfg.virtio.chosen {
		if err := cfg.virtio.parse(q); err != nil {
			return cfg, err
		}
	}
	for key := range q {
		return cfg, fmt.Errorf("parameter %q: null: takes rx=BYTES and driver=, and driver=virtio ring= and features=", key)
	}
	return cfg, nil
}

// nullPort steps the card inside the calls of one queue pair.
type nullPort struct {
	nic.Port
	card   nullCard
	attach func() error // once the driver has started
	detach func()       // before it gives the memory of its rings back
	rx     nullRx
	tx     nullTx
}

func (p *nullPort) Start(ctx context.Context, cfg nic.Config) error {
	if cfg.RxQueues > 1 || cfg.TxQueues > 1 {
		return fmt.Errorf("null: has one queue of each kind; %d and %d were asked for", cfg.RxQueues, cfg.TxQueues)
	}
	if err := p.Port.Start(ctx, cfg); err != nil {
		return err
	}
	if err := p.attach(); err != nil {
		return errors.Join(err, p.Stop())
	}
	p.rx, p.tx = nullRx{p.Port.Rx(0), p.card}, nullTx{p.Port.Tx(0), p.card}
	return nil
}

// Stop implements nic.Port. The card forgets the rings before the driver gives their memory back.
func (p *nullPort) Stop() error {
	p.detach()
	return p.Port.Stop()
}

// Close implements nic.Port.
func (p *nullPort) Close() error {
	p.detach()
	return p.Port.Close()
}

func (p *nullPort) Rx(int) nic.RxQueue { return &p.rx }
func (p *nullPort) Tx(int) nic.TxQueue { return &p.tx }

type nullRx struct {
	nic.RxQueue
	card nullCard
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
	card nullCard
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
