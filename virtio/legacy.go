package virtio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/virtio/spec"
)

// legacy speaks the legacy PCI interface (§4.1.4.10): registers at the beginning of BAR 0, in I/O space as a rule.
//
// The device reads and writes memory by physical addresses: the legacy interface knows no IOMMU.
type legacy struct {
	*pciTransport
	regs   window
	config window // the device configuration
}

// NewLegacy returns the transport over the legacy interface. The device is not touched yet. On an error the function is still
// the caller's; afterwards the transport closes it.
func NewLegacy(ctx context.Context, fn pci.Function, opt TransportOptions) (Transport, error) {
	if _, device := fn.ID(); device != spec.PCITransitionalNet {
		return nil, fmt.Errorf("%s: device %04x has no legacy interface, %04x has", fn.Name(), device, spec.PCITransitionalNet)
	}
	t, err := newPCITransport(ctx, fn, opt, "virtio-net (legacy)")
	if err != nil {
		return nil, err
	}
	bar, err := narrowBAR(fn, 0)
	if err != nil {
		return nil, fmt.Errorf("legacy registers: %w", err)
	}
	if bar.Size() < spec.LegacyConfigMSIX {
		return nil, t.errorf("BAR 0 has %d bytes: legacy registers need %d", bar.Size(), spec.LegacyConfigMSIX)
	}
	l := &legacy{pciTransport: t, regs: window{bar, 0, uint32(min(bar.Size(), math.MaxUint16))}}
	if err := l.findConfig(); err != nil {
		return nil, err
	}
	return l, nil
}

// findConfig looks where the device configuration is: it moves when MSI-X is switched on or off, because two more registers are
// in front of it then.
func (t *legacy) findConfig() error {
	on, err := t.msix()
	if err != nil {
		return err
	}
	off := uint32(spec.LegacyConfig)
	if on {
		off = spec.LegacyConfigMSIX
	}
	t.config = window{t.regs.bar, off, t.regs.size - off}
	return nil
}

// Legacy implements Transport.
func (t *legacy) Legacy() bool { return true }

// Reset implements Transport.
func (t *legacy) Reset(ctx context.Context) error {
	return t.reset(ctx, t.regs.bar, spec.LegacyStatus)
}

// Status implements Transport.
func (t *legacy) Status() (uint8, error) { return t.status(t.regs.bar, spec.LegacyStatus) }

// AddStatus implements Transport.
func (t *legacy) AddStatus(_ context.Context, bits uint8) error {
	return t.addStatus(t.regs.bar, spec.LegacyStatus, bits)
}

// Features implements Transport: there are 32.
func (t *legacy) Features() (spec.Features, error) {
	v := t.regs.read32(spec.LegacyDeviceFeatures)
	if v == math.MaxUint32 {
		if err := t.gone("the features"); err != nil {
			return 0, err
		}
	}
	return spec.Features(v), nil
}

// SetFeatures implements Transport.
func (t *legacy) SetFeatures(f spec.Features) error {
	if f>>32 != 0 {
		return t.errorf("features %s: the legacy interface has no bits for them", f>>32<<32)
	}
	t.regs.write32(spec.LegacyDriverFeatures, uint32(f))
	return nil
}

// ReadConfig implements Transport. There is no generation: what is read twice the same did not change meanwhile (§2.5.4).
func (t *legacy) ReadConfig(off int, p []byte) error {
	again := make([]byte, len(p))
	return t.readConfig(&t.config, off, p, func() {}, func() bool {
		t.config.read(off, again)
		return bytes.Equal(p, again)
	})
}

// WriteConfig implements Transport.
func (t *legacy) WriteConfig(off int, p []byte) error { return t.writeConfig(&t.config, off, p) }

// Queues implements Transport. No register says it: the first queue without a size is behind the last.
func (t *legacy) Queues() (int, error) {
	for n := range math.MaxUint16 + 1 {
		size, err := t.QueueSize(n)
		if err != nil {
			return 0, err
		}
		if size == 0 {
			return n, nil
		}
	}
	return math.MaxUint16 + 1, nil
}

// selectQueue has the queue registers mean queue.
func (t *legacy) selectQueue(queue int) error {
	if err := t.checkQueue(queue); err != nil {
		return err
	}
	t.regs.write16(spec.LegacyQueueSelect, uint16(queue))
	return nil
}

// QueueSize implements Transport: the size is the device's, and cannot be changed.
func (t *legacy) QueueSize(queue int) (int, error) {
	if err := t.selectQueue(queue); err != nil {
		return 0, err
	}
	size := int(t.regs.read16(spec.LegacyQueueSize))
	if err := t.checkSize(queue, size); err != nil {
		return 0, err
	}
	if bits.OnesCount(uint(size)) > 1 {
		return 0, t.errorf("the device says that queue %d has %d descriptors: the legacy interface knows powers of two", queue, size)
	}
	return size, nil
}

// EnableQueue implements Transport.
func (t *legacy) EnableQueue(_ context.Context, queue int, at QueueArea) (Doorbell, error) {
	bell, err := t.enable(queue, at)
	return bell, t.orGone(err)
}

// enable tells the device the number of a page of 4096 bytes, which is all that it is told.
func (t *legacy) enable(queue int, at QueueArea) (Doorbell, error) {
	size, err := t.QueueSize(queue) // selects it
	if err != nil {
		return nil, err
	}
	if err := t.checkArea(queue, size, at); err != nil {
		return nil, err
	}
	if pfn := t.regs.read32(spec.LegacyQueuePFN); pfn != 0 {
		return nil, t.errorf("queue %d has a ring already (page %#x): the device has to be reset first", queue, pfn)
	}
	if err := t.startDMA(); err != nil {
		return nil, err
	}
	pfn := uint32(at.Desc >> spec.LegacyPageShift)
	t.regs.write32(spec.LegacyQueuePFN, pfn)
	if got := t.regs.read32(spec.LegacyQueuePFN); got != pfn {
		return nil, t.errorf("queue %d: its page reads %#x after %#x was written: the device does not take the ring", queue, got, pfn)
	}
	if err := t.setVector(vectorRegister{t.regs.bar, spec.LegacyQueueVector}, queue, at.Vector); err != nil {
		return nil, err
	}
	return &legacyBell{t.regs.bar, uint16(queue)}, nil
}

// checkArea refuses a ring that the legacy interface cannot express.
func (t *legacy) checkArea(queue, size int, at QueueArea) error {
	if size == 0 || at.Size != size || at.Packed || at.NotificationData {
		return t.errorf("queue %d: the legacy interface serves a split ring of %d descriptors and no other: not one of %d (packed: %v)", queue, size, at.Size, at.Packed)
	}
	l, err := spec.NewSplitLayout(size, spec.LegacyAlign)
	if err != nil {
		return t.errorf("queue %d: %w", queue, err)
	}
	if at.Desc%spec.LegacyAlign != 0 || at.Driver != at.Desc+uint64(l.Avail) || at.Device != at.Desc+uint64(l.Used) {
		return t.errorf("queue %d: the legacy interface wants a ring in one piece, from a multiple of %d on: not at %#x, %#x, %#x", queue, spec.LegacyAlign, at.Desc, at.Driver, at.Device)
	}
	const limit = uint64(1) << (32 + spec.LegacyPageShift)
	if at.Desc == 0 || at.Desc+uint64(l.Bytes) > limit {
		return t.errorf("queue %d: a ring at bus address %#x: the legacy interface reaches 16 TiB: use the device's modern interface (QEMU: disable-modern=off), or memory below", queue, at.Desc)
	}
	return nil
}

// legacyBell is the one notification register.
type legacyBell struct {
	bar   pci.NarrowBAR
	queue uint16
}

// Ring implements Doorbell.
func (b *legacyBell) Ring(uint16) { b.bar.Write16(spec.LegacyQueueNotify, b.queue) }

// DisableQueue implements Transport: page 0 takes the ring away. Some devices take that for a reset of the whole.
func (t *legacy) DisableQueue(_ context.Context, queue int) error {
	if err := t.selectQueue(queue); err != nil {
		return err
	}
	before, err := t.Status()
	if err != nil {
		return err
	}
	t.regs.write32(spec.LegacyQueuePFN, 0)
	if got := t.regs.read32(spec.LegacyQueuePFN); got != 0 {
		return t.orGone(t.errorf("queue %d still has a ring (page %#x) after it was taken away: the device has to be reset", queue, got))
	}
	after, err := t.Status()
	if err == nil && after != before {
		return fmt.Errorf("%s: queue %d cannot be taken away by itself, the device has reset all of itself (status %#02x, before %#02x): %w", t.Name(), queue, after, before, errors.ErrUnsupported)
	}
	return err
}

// Interrupts implements Transport.
func (t *legacy) Interrupts(n int, f func(vector int)) (int, error) {
	got, err := t.interrupts(n, f, vectorRegister{t.regs.bar, spec.LegacyConfigVector}, vectorRegister{t.regs.bar, spec.LegacyISR})
	findErr := t.findConfig()
	if f == nil && errors.Is(findErr, nic.ErrGone) {
		findErr = nil // nobody reads the configuration of a device that is not there
	}
	return got, errors.Join(err, findErr)
}
