package device

import (
	"context"
	"errors"
	"net/url"

	"bare.wire/nic"
	"bare.wire/sim/nullvirtio"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

// nullVirtio is what the parameters of null: say of virtio.
type nullVirtio struct {
	chosen   bool
	features spec.Restriction
}

func (c *nullVirtio) parse(q url.Values) error {
	split, err := choice(q, "ring", "packed", "split")
	if err != nil {
		return err
	}
	if c.features, err = spec.ParseRestriction(q.Get("features")); err != nil {
		return err
	}
	q.Del("features")
	if split {
		c.features.Not |= spec.FeatureRingPacked
	}
	return nil
}

// openNullVirtio opens the virtio driver.
func openNullVirtio(ctx context.Context, opt Options, s *Set, cfg nullConfig) (nic.Port, error) {
	dev, err := nullvirtio.New(nullvirtio.Config{Name: "null:", Memory: s.Space, MAC: macOf("null:"), Length: cfg.length})
	if err != nil {
		return nil, err
	}
	port, err := virtio.Open(ctx, nullTransport{dev}, virtio.Options{
		Space: s.Space, Clock: s.Clock, Logger: opt.Logger, Node: -1, Software: true, Features: cfg.virtio.features,
	})
	if err != nil {
		return nil, err
	}
	return &nullPort{Port: port, card: dev, attach: func() error { return nil }, detach: dev.Reset}, nil
}

// nullTransport reaches a null device by calls.
type nullTransport struct{ dev *nullvirtio.Device }

func (t nullTransport) Name() string  { return t.dev.Name() }
func (t nullTransport) About() string { return "virtio-net that only says done" }
func (t nullTransport) Legacy() bool  { return false }

func (t nullTransport) Reset(context.Context) error {
	t.dev.Reset()
	return nil
}

func (t nullTransport) Status() (uint8, error) { return t.dev.Status(), nil }

func (t nullTransport) AddStatus(_ context.Context, bits uint8) error {
	t.dev.AddStatus(bits)
	return nil
}

func (t nullTransport) Features() (spec.Features, error)        { return t.dev.Features(), nil }
func (t nullTransport) SetFeatures(f spec.Features) error       { return t.dev.SetFeatures(f) }
func (t nullTransport) ReadConfig(off int, p []byte) error      { return t.dev.ReadConfig(off, p) }
func (t nullTransport) WriteConfig(int, []byte) error           { return errors.ErrUnsupported }
func (t nullTransport) Queues() (int, error)                    { return t.dev.Queues(), nil }
func (t nullTransport) QueueSize(queue int) (int, error)        { return t.dev.QueueSize(queue), nil }
func (t nullTransport) DisableQueue(context.Context, int) error { return errors.ErrUnsupported }

func (t nullTransport) EnableQueue(_ context.Context, queue int, at virtio.QueueArea) (virtio.Doorbell, error) {
	bell, err := t.dev.EnableQueue(queue, nullvirtio.Area{Size: at.Size, Desc: at.Desc, Driver: at.Driver, Device: at.Device})
	return nullBell{bell}, err
}

// Interrupts implements virtio.Transport. None ever fires.
func (t nullTransport) Interrupts(n int, _ func(int)) (int, error) { return max(n, 1), nil }
func (t nullTransport) OnGone(func(error))                         {}

// Close implements virtio.Transport: a device that has been reset reaches no memory.
func (t nullTransport) Close() error {
	t.dev.Reset()
	return nil
}

// nullBell is a store. The device looks for itself, and says that it wants none.
type nullBell struct{ word *uint32 }

func (b nullBell) Ring(position uint16) { *b.word = uint32(position) }

var _ virtio.Transport = nullTransport{}
