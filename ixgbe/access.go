package ixgbe

import (
	"context"
	"fmt"
	"time"

	"bare.wire/ixgbe/reg"
	"bare.wire/nic"
	"bare.wire/pci"
)

// allOnes is what a read returns when nobody answers.
const allOnes = ^uint32(0)

func (p *Port) read(off uint32) uint32     { return p.bar.Read32(off) }
func (p *Port) write(off uint32, v uint32) { p.bar.Write32(off, v) }

// set and clear change some bits of a register.
func (p *Port) set(off, bits uint32)   { p.write(off, p.read(off)|bits) }
func (p *Port) unset(off, bits uint32) { p.write(off, p.read(off)&^bits) }

// put replaces a field.
func (p *Port) put(off, field, v uint32) { p.write(off, p.read(off)&^field|v) }

// flush makes writes reach the card before what follows: a read may not pass them.
func (p *Port) flush() { p.read(reg.STATUS) }

func (p *Port) sleep(ctx context.Context, d time.Duration) error {
	if err := p.clk.Sleep(ctx, d); err != nil {
		return fmt.Errorf("%s: %w", p.fn.Name(), err)
	}
	return nil
}

// poll reads register off every step until its bits in mask are want, for at most limit. What it waits for and what to do
// when that does not come is in the error.
func (p *Port) poll(ctx context.Context, name string, off, mask, want uint32, step, limit time.Duration, remedy string) error {
	var v uint32
	for waited := time.Duration(0); ; waited += step {
		if v = p.read(off); v&mask == want && v != allOnes {
			return nil
		}
		if v == allOnes && p.checkGone() {
			return p.Err()
		}
		if waited >= limit {
			break
		}
		if err := p.sleep(ctx, step); err != nil {
			return fmt.Errorf("wait for %s: %w", name, err)
		}
	}
	return fmt.Errorf("%s: %s does not come: register %#05x reads %#08x after %v, want %#08x under mask %#08x: %s",
		p.fn.Name(), name, off, v, limit, want, mask, remedy)
}

// answers asks the configuration space for its class and revision. Vendor and device would be no proof: VFIO keeps a copy of
// them, and gives that even when there is no card.
func (p *Port) answers() (bool, error) {
	v, err := p.fn.ReadConfig(pci.ConfigClass, 4)
	return err == nil && v != allOnes, err
}

// checkGone looks whether the card still answers. A register full of ones is no proof, so the configuration space is
// asked too. It returns true, and Err the reason from then on, when the card has gone.
func (p *Port) checkGone() bool {
	if p.Err() != nil {
		return true
	}
	if p.read(reg.STATUS) != allOnes {
		return false
	}
	if ok, _ := p.answers(); ok {
		return false
	}
	p.fail(fmt.Errorf("%s: STATUS and configuration space read all ones: %w (unplugged, or powered down)", p.fn.Name(), nic.ErrGone))
	return true
}

// fail makes the port gone: the queues stand still, sleepers wake up.
func (p *Port) fail(err error) {
	if !p.gone.CompareAndSwap(nil, &err) {
		return
	}
	p.log.Error("port is gone", "err", err)
	p.standStill(err)
}

// standStill makes the queues of a port that is gone useless, and wakes those who sleep on it.
func (p *Port) standStill(err error) {
	p.silence()
	p.wakeAll(err) // before the link goes, which wakes without a reason
	p.lostLink()
}

// silence makes Recv and Send return 0.
func (p *Port) silence() {
	for _, q := range p.rx {
		q.dead.Store(true)
	}
	for _, q := range p.tx {
		q.dead.Store(true)
	}
}

// Register is one register of a dump.
type Register struct {
	Name   string
	Offset uint32
	Value  uint32
}

// Dump reads every register that can be read without changing anything, for a bug report. Those that clear when read are
// left out. A closed port has no registers.
func (p *Port) Dump() []Register {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	var out []Register
	for _, r := range reg.All() {
		switch r.Mode {
		case reg.RC, reg.RCW1C, reg.WO, reg.RS, reg.RC36Lo, reg.RC36Hi, reg.LL:
			continue
		}
		for i := range r.Count() {
			off, ok := r.Offset(i)
			if !ok || r.Bits(reg.RS)|r.Bits(reg.RC) != 0 {
				continue
			}
			name := r.Name
			if r.Count() > 1 {
				name = fmt.Sprintf("%s[%d]", r.Name, i)
			}
			out = append(out, Register{name, off, p.read(off)})
		}
	}
	return out
}
