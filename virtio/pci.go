package virtio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"bare.wire/clock"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/virtio/spec"
)

// TransportOptions are what the transports over PCI need besides the function.
type TransportOptions struct {
	// Clock measures every wait.
	Clock clock.Clock
	// Logger gets what people should know (a vector that was refused, say); nil: nothing is logged.
	Logger *slog.Logger
}

// What a device is given to do what it is told, and how often it is asked meanwhile. A device answers in microseconds; one that
// has hardware of its own to stop may take longer.
const (
	deviceLimit = 3 * time.Second
	deviceStep  = time.Millisecond
	// configTries bounds how often the configuration is read because it has changed meanwhile.
	configTries = 64
	msixSize    = 12 // of the MSI-X capability, bytes
)

// NewPCI returns the transport for a function by what it is: the modern interface where its structures can be used, else, on a
// transitional device only, the legacy one (§4.1.2, §4.1.3.1). On an error the function is still the caller's; afterwards the
// transport closes it.
func NewPCI(ctx context.Context, fn pci.Function, opt TransportOptions) (Transport, error) {
	vendor, device := fn.ID()
	switch {
	case vendor == spec.PCIVendor && device == spec.PCIModernNet:
		return NewModern(ctx, fn, opt)
	case vendor != spec.PCIVendor || device != spec.PCITransitionalNet:
		return nil, fmt.Errorf("%s: %04x:%04x is no virtio network device: those are %04x:%04x and %04x:%04x",
			fn.Name(), vendor, device, spec.PCIVendor, spec.PCITransitionalNet, spec.PCIVendor, spec.PCIModernNet)
	}
	t, modernErr := NewModern(ctx, fn, opt)
	if modernErr == nil || errors.Is(modernErr, nic.ErrGone) || ctx.Err() != nil {
		return t, modernErr
	}
	t, err := NewLegacy(ctx, fn, opt)
	if err != nil {
		return nil, errors.Join(err, modernErr)
	}
	if opt.Logger != nil {
		opt.Logger.Info("the legacy interface is spoken, since the modern one cannot be used", "port", fn.Name(), "err", modernErr)
	}
	return t, nil
}

// pciTransport is what the two transports over PCI have in common.
type pciTransport struct {
	fn    pci.Function
	clk   clock.Clock
	log   *slog.Logger
	about string

	vectors   vectors
	mastering bool // the function may do DMA
	onGone    atomic.Pointer[func(error)]
	told      atomic.Bool
}

func newPCITransport(ctx context.Context, fn pci.Function, opt TransportOptions, about string) (*pciTransport, error) {
	if opt.Clock == nil {
		return nil, fmt.Errorf("%s: TransportOptions.Clock is required", fn.Name())
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", fn.Name(), err)
	}
	log := opt.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	t := &pciTransport{fn: fn, clk: opt.Clock, log: log.With("port", fn.Name()), about: about}
	if present, err := t.answers(); !present {
		return nil, errors.Join(fmt.Errorf("%s: configuration space reads all ones: %w (unplugged, or powered down)", fn.Name(), nic.ErrGone), err)
	}
	return t, nil
}

// Name implements Transport.
func (t *pciTransport) Name() string { return t.fn.Name() }

// About implements Transport.
func (t *pciTransport) About() string { return t.about }

// OnGone implements Transport.
func (t *pciTransport) OnGone(f func(error)) {
	t.onGone.Store(&f)
	fn, ok := t.fn.(pci.GoneNotifier)
	if !ok {
		return
	}
	fn.OnGone(func(reason error) {
		f := *t.onGone.Load()
		if f != nil && t.told.CompareAndSwap(false, true) {
			f(fmt.Errorf("%w: %w", reason, nic.ErrGone))
		}
	})
}

// Close implements Transport: bus mastering is read back off in configuration space, which works when registers do not.
func (t *pciTransport) Close() error {
	if _, err := t.fn.Interrupts(0, nil); err != nil {
		t.log.Warn("interrupts do not switch off; they go with the function", "err", err)
	}
	if err := pci.SetBusMaster(t.fn, false); err != nil {
		t.log.Warn("bus mastering does not switch off; the function is closed all the same", "err", err)
	}
	return t.fn.Close()
}

// errorf is an error that names the device.
func (t *pciTransport) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %w", t.fn.Name(), fmt.Errorf(format, args...))
}

// answers asks the configuration space for class and revision: vendor and device would be no proof, VFIO keeps a copy of them.
func (t *pciTransport) answers() (bool, error) {
	v, err := t.fn.ReadConfig(pci.ConfigClass, 4)
	return err == nil && v != math.MaxUint32, err
}

// gone is an error when the device is not there any more. It is asked for when a register read as all ones, which alone is no
// proof: configuration space has to agree.
func (t *pciTransport) gone(register string) error {
	if present, _ := t.answers(); present {
		return nil
	}
	return t.errorf("%s and configuration space read all ones: %w (unplugged, or powered down)", register, nic.ErrGone)
}

// orGone is err, which says that the device answered nonsense, unless the reason is that it is not there any more.
func (t *pciTransport) orGone(err error) error {
	if err == nil || errors.Is(err, nic.ErrGone) {
		return err
	}
	if gone := t.gone("registers"); gone != nil {
		return gone
	}
	return err
}

// await asks done every now and then until it says yes. What it waits for, and what is to be done if that does not come, is in
// the error.
func (t *pciTransport) await(ctx context.Context, what, remedy string, done func() (bool, error)) error {
	for waited := time.Duration(0); ; waited += deviceStep {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if waited >= deviceLimit {
			return t.errorf("%s does not come within %v: %s", what, deviceLimit, remedy)
		}
		if err := t.clk.Sleep(ctx, deviceStep); err != nil {
			return t.errorf("wait for %s: %w", what, err)
		}
	}
}

// startDMA lets the function reach memory, once a queue needs it.
func (t *pciTransport) startDMA() error {
	if t.mastering {
		return nil
	}
	t.mastering = true
	return pci.SetBusMaster(t.fn, true)
}

// stopDMA ends the device's use of memory and is an error when that is not certain.
func (t *pciTransport) stopDMA(resetErr error) error {
	if !t.mastering {
		return resetErr
	}
	err := pci.SetBusMaster(t.fn, false)
	if err == nil {
		t.mastering = false
	}
	return errors.Join(resetErr, err)
}

// reset writes 0 to the status register and waits until it reads 0 (§4.1.4.3.2); a device may take its time.
func (t *pciTransport) reset(ctx context.Context, status pci.NarrowBAR, off uint32) error {
	status.Write8(off, 0)
	var v uint8
	err := t.await(ctx, "a device status of 0 after a reset", "the device is stuck: unplug it or reset the machine that makes it",
		func() (bool, error) {
			if v = status.Read8(off); v != math.MaxUint8 {
				return v == 0, nil
			}
			return false, t.gone("the device status")
		})
	if err != nil {
		err = fmt.Errorf("%w (it reads %#02x)", err, v)
	}
	return t.stopDMA(err)
}

// status reads the status register.
func (t *pciTransport) status(bar pci.NarrowBAR, off uint32) (uint8, error) {
	v := bar.Read8(off)
	if v == math.MaxUint8 {
		return v, t.gone("the device status")
	}
	return v, nil
}

// addStatus sets bits and leaves the others (§2.1.1).
func (t *pciTransport) addStatus(bar pci.NarrowBAR, off uint32, bits uint8) error {
	v, err := t.status(bar, off)
	if err != nil {
		return err
	}
	bar.Write8(off, v|bits)
	return nil
}

// checkQueue refuses a queue number that no register takes.
func (t *pciTransport) checkQueue(queue int) error {
	if queue < 0 || queue > math.MaxUint16 {
		return t.errorf("queue %d: there are 0 to %d", queue, math.MaxUint16)
	}
	return nil
}

// checkSize is an error for a queue size that no device has.
func (t *pciTransport) checkSize(queue, size int) error {
	if size == math.MaxUint16 {
		if err := t.gone(fmt.Sprintf("the size of queue %d", queue)); err != nil {
			return err
		}
	}
	if size > spec.MaxQueueSize {
		return t.errorf("the device says that queue %d has %d descriptors: %d are possible", queue, size, spec.MaxQueueSize)
	}
	return nil
}

// msix says whether MSI-X is enabled now: what the device sees in its own configuration space decides, not what was asked for.
func (t *pciTransport) msix() (bool, error) {
	space, err := readConfigSpace(t.fn)
	if space == nil {
		return false, err
	}
	c, ok := pci.FindCapability(space.list, pci.CapMSIX)
	if !ok {
		return false, err // a list that breaks off may have had it
	}
	if err := space.read(c.Offset, msixSize); err != nil {
		return false, err
	}
	m, err := pci.ParseMSIX(space.bytes[:], c)
	if err != nil {
		return false, fmt.Errorf("%s: %w", t.fn.Name(), err)
	}
	return m.Enabled, nil
}
