package virtio

import (
	"context"
	"errors"
	"fmt"
	"math"

	"bare.wire/pci"
	"bare.wire/virtio/spec"
)

// modern speaks the modern PCI interface (§4.1): structures that capabilities point to.
type modern struct {
	*pciTransport
	structures
	agreed spec.Features
}

// NewModern returns the transport over the modern interface. The device is not touched yet. On an error the function is still
// the caller's; afterwards the transport closes it.
func NewModern(ctx context.Context, fn pci.Function, opt TransportOptions) (Transport, error) {
	about := "virtio-net (modern)"
	if _, device := fn.ID(); device == spec.PCITransitionalNet {
		about = "virtio-net (transitional, modern interface)"
	}
	t, err := newPCITransport(ctx, fn, opt, about)
	if err != nil {
		return nil, err
	}
	s, err := findStructures(fn)
	if err != nil {
		if gone := t.gone("registers"); gone != nil {
			return nil, gone
		}
		return nil, err
	}
	return &modern{pciTransport: t, structures: *s}, nil
}

// Legacy implements Transport.
func (t *modern) Legacy() bool { return false }

func (t *modern) statusAt() (pci.NarrowBAR, uint32) {
	return t.common.bar, t.common.off + spec.CommonStatus
}

// Reset implements Transport.
func (t *modern) Reset(ctx context.Context) error {
	t.agreed = 0
	bar, off := t.statusAt()
	return t.reset(ctx, bar, off)
}

// Status implements Transport.
func (t *modern) Status() (uint8, error) { return t.status(t.statusAt()) }

// AddStatus implements Transport.
func (t *modern) AddStatus(_ context.Context, bits uint8) error {
	bar, off := t.statusAt()
	return t.addStatus(bar, off, bits)
}

// newFields are features whose fields a common configuration structure of before version 1.2 does not have.
const newFields = spec.FeatureRingReset | spec.FeatureNotifConfigData

// Features implements Transport.
func (t *modern) Features() (f spec.Features, err error) {
	for half := range uint32(2) {
		t.common.write32(spec.CommonDeviceFeatureSelect, half)
		v := t.common.read32(spec.CommonDeviceFeature)
		if v == math.MaxUint32 {
			if err := t.gone("the features"); err != nil {
				return 0, err
			}
		}
		f |= spec.Features(v) << (32 * half)
	}
	if f&newFields != 0 && t.common.size < spec.CommonSizeReset {
		t.log.Warn("the device offers features for which its common configuration structure is too short: they are left out",
			"features", f&newFields, "bytes", t.common.size)
		f &^= newFields
	}
	return f, nil
}

// SetFeatures implements Transport.
func (t *modern) SetFeatures(f spec.Features) error {
	for half := range uint32(2) {
		t.common.write32(spec.CommonDriverFeatureSelect, half)
		t.common.write32(spec.CommonDriverFeature, uint32(f>>(32*half)))
	}
	t.agreed = f
	return nil
}

// ReadConfig implements Transport: between two equal generations nothing has changed (§4.1.4.3.1).
func (t *modern) ReadConfig(off int, p []byte) error {
	var before uint8
	return t.readConfig(&t.device, off, p,
		func() { before = t.common.read8(spec.CommonGeneration) },
		func() bool { return t.common.read8(spec.CommonGeneration) == before })
}

// WriteConfig implements Transport.
func (t *modern) WriteConfig(off int, p []byte) error { return t.writeConfig(&t.device, off, p) }

// Queues implements Transport.
func (t *modern) Queues() (int, error) {
	n := t.common.read16(spec.CommonNumQueues)
	if n == 0xffff {
		if err := t.gone("the number of queues"); err != nil {
			return 0, err
		}
	}
	return int(n), nil
}

// selectQueue has the queue registers mean queue.
func (t *modern) selectQueue(queue int) error {
	if err := t.checkQueue(queue); err != nil {
		return err
	}
	t.common.write16(spec.CommonQueueSelect, uint16(queue))
	return nil
}

// QueueSize implements Transport.
func (t *modern) QueueSize(queue int) (int, error) {
	if err := t.selectQueue(queue); err != nil {
		return 0, err
	}
	size := int(t.common.read16(spec.CommonQueueSize))
	return size, t.checkSize(queue, size)
}

// EnableQueue implements Transport.
func (t *modern) EnableQueue(_ context.Context, queue int, at QueueArea) (Doorbell, error) {
	bell, err := t.enable(queue, at)
	return bell, t.orGone(err)
}

// enable tells the device all about the queue, and then sets queue_enable (§4.1.5.1.3).
func (t *modern) enable(queue int, at QueueArea) (Doorbell, error) {
	most, err := t.QueueSize(queue) // selects it
	if err != nil {
		return nil, err
	}
	c := &t.common
	switch {
	case at.Size < 1 || at.Size > most:
		return nil, t.errorf("queue %d has %d descriptors at most: a ring of %d is not possible", queue, most, at.Size)
	case c.read16(spec.CommonQueueEnable) != 0:
		return nil, t.errorf("queue %d is enabled already: the device has to be reset first", queue)
	}
	bell, err := t.doorbell(queue, at.NotificationData)
	if err != nil {
		return nil, err
	}
	c.write16(spec.CommonQueueSize, uint16(at.Size))
	if got := c.read16(spec.CommonQueueSize); int(got) != at.Size {
		return nil, t.errorf("queue %d: its size reads %d after %d was written (it may be %d): the device does not lower it", queue, got, at.Size, most)
	}
	c.write64(spec.CommonQueueDesc, at.Desc)
	c.write64(spec.CommonQueueDriver, at.Driver)
	c.write64(spec.CommonQueueDevice, at.Device)
	if err := t.setVector(vectorRegister{c.bar, c.off + spec.CommonQueueVector}, queue, at.Vector); err != nil {
		return nil, err
	}
	if err := t.startDMA(); err != nil {
		return nil, err
	}
	c.write16(spec.CommonQueueEnable, 1)
	if got := c.read16(spec.CommonQueueEnable); got != 1 {
		return nil, t.errorf("queue %d: queue_enable reads %d after 1 was written: the device does not take the queue", queue, got)
	}
	return bell, nil
}

// doorbell is the notification register of the queue that is selected (§4.1.4.4). Each queue says where its own is.
func (t *modern) doorbell(queue int, data bool) (Doorbell, error) {
	where := t.common.read16(spec.CommonQueueNotifyOff)
	off, size := uint64(where)*uint64(t.multiplier), 2
	if data {
		size = 4
	}
	if off > uint64(t.notify.size) || !t.notify.has(int(off), size) {
		return nil, t.errorf("queue %d: its notification register is at %d × %d, and there are %d bytes of them", queue, where, t.multiplier, t.notify.size)
	}
	b := &modernBell{bar: t.notify.bar, off: t.notify.off + uint32(off), value: uint16(queue)}
	if t.agreed.Has(spec.FeatureNotifConfigData) {
		b.value = t.common.read16(spec.CommonQueueNotifyData)
	}
	if !data {
		return b, nil
	}
	if b.off%4 != 0 {
		return nil, t.errorf("queue %d: its notification register is at %#x, which is no multiple of 4: features=-notification_data does without", queue, b.off)
	}
	return (*dataBell)(b), nil
}

// modernBell is a notification register.
type modernBell struct {
	bar   pci.NarrowBAR
	off   uint32
	value uint16 // the queue's number, or what the device wants in its place
}

// Ring implements Doorbell.
func (b *modernBell) Ring(uint16) { b.bar.Write16(b.off, b.value) }

// dataBell is one that is told the ring's position too (§4.1.5.2.1).
type dataBell modernBell

// Ring implements Doorbell.
func (b *dataBell) Ring(position uint16) { b.bar.Write32(b.off, uint32(b.value)|uint32(position)<<16) }

// DisableQueue implements Transport (§4.1.4.3.1): with spec.FeatureRingReset a queue can be reset by itself. 0 is never written
// to queue_enable.
func (t *modern) DisableQueue(ctx context.Context, queue int) error {
	if !t.agreed.Has(spec.FeatureRingReset) {
		return fmt.Errorf("%s: queue %d cannot be reset by itself (%s is not agreed on): %w", t.Name(), queue, spec.FeatureRingReset, errors.ErrUnsupported)
	}
	if err := t.selectQueue(queue); err != nil {
		return err
	}
	t.common.write16(spec.CommonQueueReset, 1)
	err := t.await(ctx, fmt.Sprintf("the end of the reset of queue %d", queue), "the device is stuck: it has to be reset",
		func() (bool, error) {
			v := t.common.read16(spec.CommonQueueReset)
			if v == 0xffff {
				return false, t.gone("queue_reset")
			}
			return v == 0, nil
		})
	if err != nil {
		return err
	}
	if got := t.common.read16(spec.CommonQueueEnable); got != 0 {
		return t.orGone(t.errorf("queue %d is still enabled (%d) after its reset: the device has to be reset", queue, got))
	}
	return nil
}

// Interrupts implements Transport.
func (t *modern) Interrupts(n int, f func(vector int)) (int, error) {
	config := vectorRegister{t.common.bar, t.common.off + spec.CommonConfigVector}
	return t.interrupts(n, f, config, vectorRegister{t.isr.bar, t.isr.off})
}
