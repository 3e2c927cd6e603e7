//go:build guest

package linux

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/sim/nic82599"
	"bare.wire/test/guest"
	"bare.wire/test/judges/internal/calls"
)

// cardAddress is where nicsim's first card is.
const cardAddress = "0000:00:04.0"

// bench is what a check works with, in the guest: the kernel's interface on the card, and the host behind the wire.
type bench struct {
	nic
	vlan     nic
	mac      [6]byte
	stream   uint64        // bytes of a stream each way
	broken   bool          // a fault has done more than can be healed
	patience time.Duration // for what the other side must do
}

const (
	usually = 30 * time.Second
	faulty  = 2 * time.Second // with a fault in the card
)

// start finds the interface, gives it an address and waits for a link.
func start(t *testing.T) *bench {
	t.Helper()
	b := &bench{stream: 16 << 20, patience: usually}
	if err := b.find(); err != nil {
		t.Fatal(err)
	}
	return b
}

// find takes the interface that the driver has made, as it is after it was loaded.
func (b *bench) find() (err error) {
	names := guest.Interfaces(cardAddress)
	if len(names) != 1 {
		return fmt.Errorf("driver %q of %s has made interfaces %q: has its probe failed?", guest.Driver(cardAddress), cardAddress, names)
	}
	b.nic, b.vlan = nic(names[0]), ""
	if b.mac, err = b.hardwareAddress(); err != nil {
		return err
	}
	return b.open()
}

// open brings the interface up and waits until the host's kernel answers.
func (b *bench) open() error {
	if err := errors.Join(b.setAddress(guestAddr), b.up(true)); err != nil {
		return err
	}
	if b.vlan == "" {
		v, err := b.addVLAN(vlanID)
		if err != nil {
			return err
		}
		b.vlan = v
	}
	if err := errors.Join(b.vlan.setAddress(vlanGuest), b.vlan.up(true)); err != nil {
		return err
	}
	if err := b.waitLink(true, usually); err != nil {
		return err
	}
	return b.eventually(usually, func() error { return b.echo(hostAddr, 100, time.Second) })
}

// restart brings the interface down and up again, which resets the card.
func (b *bench) restart() error {
	if err := b.up(false); err != nil {
		return err
	}
	return b.open()
}

// waitLink waits until the driver says that there is a link, or none.
func (b *bench) waitLink(want bool, patience time.Duration) error {
	return b.eventually(patience, func() error {
		up, err := b.link()
		if err == nil && up != want {
			err = fmt.Errorf("%s says link %v, want %v", b.nic, up, want)
		}
		return err
	})
}

// eventually tries until f succeeds.
func (b *bench) eventually(patience time.Duration, f func() error) error {
	for end := deadline(patience); ; pause(20 * time.Millisecond) {
		err := f()
		if err == nil || real.Now().After(end) {
			return err
		}
	}
}

// real is the guest's time, and the host's: the kernels live by it.
var real = clock.Real()

// deadline is d from now.
func deadline(d time.Duration) time.Time { return real.Now().Add(d) }

func pause(d time.Duration) { _ = real.Sleep(context.Background(), d) }

// ask puts a question to the host.
func (b *bench) ask(q question) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return calls.Ask[answer](ctx, q)
}

// send has the host send frames as they are.
func (b *bench) send(frames ...[]byte) error {
	_, err := b.ask(question{Frames: frames})
	return err
}

// control puts a request to nicsim, as a JSON object, and reads its answer into v.
func (b *bench) control(v any, format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	a, err := b.ask(question{Control: json.RawMessage(line)})
	if err == nil {
		err = calls.Done(a.Control, v)
	}
	if err != nil {
		return fmt.Errorf("nicsim: %s: %w", line, err)
	}
	return nil
}

// fault puts a fault into the card, or takes it out ("").
func (b *bench) fault(name string) error {
	return b.control(nil, `{"do":"fault","card":0,"name":%q}`, name)
}

// cable pulls the card's cable, or plugs it in.
func (b *bench) cable(in bool) error { return b.control(nil, `{"do":"link","card":0,"up":%v}`, in) }

// counts is what the card has done since the guest was started.
func (b *bench) counts() (nic82599.Counts, error) {
	var a struct{ Counts nic82599.Counts }
	err := b.control(&a, `{"do":"counts","card":0}`)
	return a.Counts, err
}

// misuse is what the card has seen done to it that its datasheet forbids; it forgets it.
func (b *bench) misuse() ([]misuse, error) {
	var a struct{ Misuse []misuse }
	if err := b.control(&a, `{"do":"misuse","card":0}`); err != nil {
		return nil, err
	}
	return a.Misuse, b.control(nil, `{"do":"forget","card":0}`)
}

type misuse struct {
	Kind, Text string
	Detail     string
	Queue      int
	Count      int
}

// reload takes the driver from the card and gives it back.
func (b *bench) reload() error {
	if err := errors.Join(guest.UnloadModule("ixgbe"), guest.LoadModule("ixgbe")); err != nil {
		return err
	}
	return b.find()
}

// equal compares what came back with what was sent.
func equal(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	return fmt.Errorf("%d bytes came back of %d; the first difference is at %d", len(got), len(want), at)
}
