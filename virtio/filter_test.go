package virtio_test

import (
	"context"
	"errors"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

// hearing is a rig whose first port starts, and a look at whether a frame to an address comes through its filter.
func hearing(t *testing.T, cfg rigConfig) (r *rig, comes func(dst [6]byte) bool, end func()) {
	r = newRig(t, cfg)
	r.start(nic.Config{})
	cache := r.pool(mbuf.Config{}).NewCache()
	return r, func(dst [6]byte) bool {
		b := r.frame(cache, r.ports[0], 60, 1)
		copy(b.Bytes(), dst[:])
		r.ports[1].Tx(0).Send([]*mbuf.Buf{b})
		r.settle()
		r.ports[1].Tx(0).Reclaim()
		return r.drain(0, 0) == 1
	}, func() { cache.Close(); r.end() }
}

// TestAddressesAreToldWhileThoseOfTheOtherKindAreTooMany: with too many of one kind the filter is open for these, and still has to
// know the others, those that are added then too.
func TestAddressesAreToldWhileThoseOfTheOtherKindAreTooMany(t *testing.T) {
	for _, kind := range []byte{0, 1} { // what there are too many of: stations, groups
		r, comes, end := hearing(t, rigConfig{})
		f := r.ports[0].Filters()
		for i := range 257 {
			if err := f.AddMAC([6]byte{2 | kind, 1, 0, 0, byte(i >> 8), byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		other, stranger := [6]byte{3 &^ kind, 7}, [6]byte{3 &^ kind, 8}
		if comes(other) {
			t.Errorf("kind %d: one that has not been added comes", kind)
		}
		if err := f.AddMAC(other); err != nil {
			t.Fatal(err)
		}
		if !comes(other) || comes(stranger) {
			t.Errorf("kind %d: an address of the other kind that is added comes %v, a stranger %v", kind, comes(other), comes(stranger))
		}
		if err := f.RemoveMAC(other); err != nil || comes(other) {
			t.Errorf("kind %d: one that was removed comes (%v)", kind, err)
		}
		end()
	}
}

// shortTable is a device whose table for receive-side scaling is shorter than that of package nic.
type shortTable struct{ virtio.Transport }

func (s shortTable) ReadConfig(off int, p []byte) error {
	err := s.Transport.ReadConfig(off, p)
	for i := range p {
		switch off + i {
		case spec.NetRSSMaxTable:
			p[i] = spec.RSSTable / 2
		case spec.NetRSSMaxTable + 1:
			p[i] = 0
		}
	}
	return err
}

// TestPairsThatCannotBeAskedForAreNotThere: a device that has further pairs by a command that the driver has no use for serves one.
func TestPairsThatCannotBeAskedForAreNotThere(t *testing.T) {
	for _, c := range []struct {
		not   spec.Features
		pairs int
	}{{spec.FeatureMQ, 1}, {0, 4}} {
		r := newBareRig(t, rigConfig{device: virtionet.Config{Pairs: 4}})
		p, err := virtio.Open(context.Background(), shortTable{r.seats[0]}, virtio.Options{Space: r.space, Clock: r.clk, Node: -1, Features: not(c.not)})
		if err != nil {
			t.Fatal(err)
		}
		if i := p.Info(); i.RxQueues != c.pairs || i.TxQueues != c.pairs || i.RSSQueues != 0 {
			t.Errorf("without %v: %d and %d queues, of which RSS reaches %d; want %d", c.not, i.RxQueues, i.TxQueues, i.RSSQueues, c.pairs)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestStartThatIsCancelledEndsBetweenCommands: the command that the device has is waited for, the next is not begun.
func TestStartThatIsCancelledEndsBetweenCommands(t *testing.T) {
	r := newRig(t, rigConfig{})
	ctx, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("enough")
	cancel(reason)
	pool := r.pool(mbuf.Config{})
	err := r.ports[0].Start(ctx, nic.Config{Pool: pool})
	if !errors.Is(err, reason) || r.ports[0].Err() != nil {
		t.Errorf("start: %v, gone: %v", err, r.ports[0].Err())
	}
	if n := pool.Stats().Out; n != 0 {
		t.Errorf("%d buffers are not back", n)
	}
	r.start(nic.Config{})
	r.end()
}

// TestPromiscuousPortIsInEveryVLAN: the device is told of all of them, and afterwards of those again that were added.
func TestPromiscuousPortIsInEveryVLAN(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{VLANFilter: true})
	f := r.ports[0].Filters()
	if err := f.AddVLAN(5); err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		before := r.devs[0].Counts().Commands
		if err := f.SetPromiscuous(on); err != nil {
			t.Fatal(err)
		}
		if n := r.devs[0].Counts().Commands - before; n < 4095 || n > 4100 {
			t.Errorf("promiscuous %v: %d commands, want one for each of 4095 VLANs", on, n)
		}
	}
	r.end()
}

// changing is a device whose configuration changes just after it has been read.
type changing struct {
	virtio.Transport
	change func()
}

func (c *changing) ReadConfig(off int, p []byte) error {
	err := c.Transport.ReadConfig(off, p)
	if f := c.change; f != nil {
		c.change = nil
		f()
	}
	return err
}

// TestConfigurationThatChangesDuringACall: an interrupt that comes while a call has the port's lock is looked at when it gives it back.
func TestConfigurationThatChangesDuringACall(t *testing.T) {
	r := newBareRig(t, rigConfig{})
	c := &changing{Transport: r.seats[0]}
	p, err := virtio.Open(context.Background(), c, virtio.Options{Space: r.space, Clock: r.clk, Node: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(context.Background(), nic.Config{Pool: r.pool(mbuf.Config{})}); err != nil {
		t.Fatal(err)
	}
	if r.ports[1], err = r.open(1, rigConfig{}); err != nil {
		t.Fatal(err)
	}
	r.startPort(1, nic.Config{})
	r.settle()
	if p.Housekeep(r.clk.Now()); !p.Link().Up {
		t.Fatal("no link")
	}
	c.change = func() {
		r.devs[0].SetLink(false)
		r.world.Step()
	}
	if p.Housekeep(r.clk.Now()); p.Link().Up || c.change != nil {
		t.Error("the link went down during Housekeep, and is still said to be up")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	r.end()
}
