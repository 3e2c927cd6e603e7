package pci

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// sysfsTick is how often a function without interrupts calls its handler, nanoseconds.
const sysfsTick = 1e6

// commandNoINTx is bit 10 of the PCI command register, Interrupt Disable (PCI Local Bus Specification 3.0 §6.2.2).
const commandNoINTx = 1 << 10

// sysfsFunction is a function whose registers and configuration space are files in sysfs. Nothing stands between the device
// and physical memory; see package guardian for what happens when this process dies.
type sysfsFunction struct {
	notifier
	opener *Opener
	sys    kernel
	device *Device
	dir    string

	enabled bool
	guard   *guarded
	closes  error // what Close returned

	irqMu sync.Mutex
	tick  *signal

	mu     sync.Mutex
	config *Config // nil once closed
	bars   map[int]*regionBAR
	files  []int // of BARs
}

// openSysfs opens d, which no driver has, with a guardian.
func (o *Opener) openSysfs(ctx context.Context, d *Device) (_ *sysfsFunction, err error) {
	if err := o.checkSysfs(d); err != nil {
		return nil, err
	}
	f := &sysfsFunction{opener: o, sys: o.sys, device: d, dir: o.host.devicePath(d.Address), bars: map[int]*regionBAR{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.shut())
		}
	}()
	if f.config, err = o.lockConfig(d.Address); err != nil {
		return nil, err
	}
	if err := f.prepare(); err != nil {
		return nil, err
	}
	if f.guard, err = o.startGuardian(f, f.config, f.gone); err != nil {
		return nil, err
	}
	o.log.Warn("driven through sysfs: no IOMMU and no interrupts; a fault of the driver or of the device can overwrite any memory of this machine",
		"device", f.Name(), "guardian", f.guard.PID())
	return f, ctx.Err()
}

// checkSysfs says what is to be done before d can be opened.
func (o *Opener) checkSysfs(d *Device) error {
	switch {
	case d.Driver != "":
		return fmt.Errorf("it is bound to the driver %s: \"pktgen devices unbind %s\" takes it away", d.Driver, d.Address)
	case !o.space.Physical() && !o.anySpace:
		return errors.New("without an IOMMU the address space has to be a physical one (vtop.NewPhysical)")
	case d.Group < 0:
		return nil
	}
	// A device without a driver sits in the group's default domain. Only "identity" lets physical addresses through.
	kind, err := readText(o.host.path("/sys/kernel/iommu_groups", strconv.Itoa(d.Group), "type"))
	if err != nil || kind != "identity" {
		return fmt.Errorf("there is an IOMMU, which physical addresses do not pass (group %d is of type %q): \"pktgen devices bind %s\" and open it as %s", d.Group, kind, d.Address, d.Address)
	}
	return nil
}

func needRoot(err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: run as root", err)
	}
	return err
}

// prepare powers the function up and lets its memory be reached, but not do DMA, nor raise INTx, which nobody would hear: the
// kernel takes a line that nobody answers away from all who share it.
func (f *sysfsFunction) prepare() error {
	if err := f.enable("1"); err != nil {
		return err
	}
	f.enabled = true
	v, err := f.ReadConfig(ConfigCommand, 2)
	if err != nil {
		return err
	}
	if v == allOnes>>16 {
		return fmt.Errorf("configuration space reads all ones: %w (unplugged, or powered down)", ErrGone)
	}
	if err := f.WriteConfig(ConfigCommand, 2, v&^CommandBusMaster|CommandMemory|commandNoINTx); err != nil {
		return err
	}
	return nil
}

// enable counts the users of the device in the kernel.
func (f *sysfsFunction) enable(count string) error {
	if err := f.writeAttribute("enable", count); err != nil {
		return fmt.Errorf("enable the device: %w", err)
	}
	return nil
}

// writeAttribute writes a file that may be there for writing only, which not even root can open for more.
func (f *sysfsFunction) writeAttribute(name, text string) error {
	return needRoot(writeAttribute(f.dir+"/"+name, text))
}

func (f *sysfsFunction) address() Address { return f.device.Address }

// Name implements Function.
func (f *sysfsFunction) Name() string { return f.device.Address.String() }

// ID implements Function.
func (f *sysfsFunction) ID() (vendor, device uint16) { return f.device.Vendor, f.device.Device }

// ReadConfig implements Function.
func (f *sysfsFunction) ReadConfig(off, size int) (uint32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.config == nil {
		return 0, fmt.Errorf("%s: read configuration space: the function is closed", f.Name())
	}
	return f.config.ReadConfig(off, size)
}

// WriteConfig implements Function.
func (f *sysfsFunction) WriteConfig(off, size int, v uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.config == nil {
		return fmt.Errorf("%s: write configuration space: the function is closed", f.Name())
	}
	return f.config.WriteConfig(off, size, v)
}

// Interrupts implements Function. There are none to be had; a timer calls f with vector 0 every millisecond instead, which
// wakes those who sleep, late.
func (f *sysfsFunction) Interrupts(_ int, handler func(vector int)) (int, error) {
	f.irqMu.Lock()
	defer f.irqMu.Unlock()
	err := f.stopTick()
	if handler == nil || err != nil {
		return 0, err
	}
	if f.isClosed() {
		return 0, fmt.Errorf("%s: interrupts: the function is closed", f.Name())
	}
	if f.tick, err = newTick(f.Name()+" tick", sysfsTick, func() { handler(0) }); err != nil {
		return 0, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return 1, nil
}

// stopTick is called with irqMu held.
func (f *sysfsFunction) stopTick() error {
	tick := f.tick
	f.tick = nil
	if tick == nil {
		return nil
	}
	return tick.stop()
}

// MSIX says that the device has to be asked what the timer's call means.
func (f *sysfsFunction) MSIX() bool { return false }

func (f *sysfsFunction) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config == nil
}

// Reset implements Function. The kernel saves and restores configuration space around it.
func (f *sysfsFunction) Reset(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: reset: %w", f.Name(), err)
	}
	if f.isClosed() {
		return fmt.Errorf("%s: reset: the function is closed", f.Name())
	}
	err := f.writeAttribute("reset", "1")
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s: reset: the kernel knows no way to reset this function alone (no FLR, no slot or power reset): %w", f.Name(), errors.ErrUnsupported)
	}
	if err != nil {
		return fmt.Errorf("%s: reset: %w", f.Name(), err)
	}
	return nil
}

// BAR implements Function.
func (f *sysfsFunction) BAR(n int) (BAR, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, known := f.bars[n]
	switch {
	case f.config == nil:
		return nil, fmt.Errorf("%s: BAR %d: the function is closed", f.Name(), n)
	case known:
		return b.view(), nil
	case n < 0 || n > 5:
		return nil, fmt.Errorf("%s: BAR %d: a function has BARs 0 to 5", f.Name(), n)
	}
	b, err := f.mapBAR(n)
	if err != nil {
		return nil, fmt.Errorf("%s: BAR %d: %w", f.Name(), n, err)
	}
	f.bars[n] = b
	return b.view(), nil
}

func (f *sysfsFunction) mapBAR(n int) (*regionBAR, error) {
	var r Resource
	if n < len(f.device.Resources) {
		r = f.device.Resources[n]
	}
	if r.Flags&(ResourceMemory|ResourceIO) == 0 || r.Size() == 0 || r.Size() > maxBAR || r.Size()%4 != 0 {
		return nil, fmt.Errorf("it has %d bytes, flags %#x: no registers (a missing BAR, or the upper half of one?)", r.Size(), r.Flags)
	}
	if page := uint64(unix.Getpagesize()); r.Flags&ResourceMemory != 0 && r.Size()%page != 0 {
		return nil, fmt.Errorf("it has %d bytes, less than a page, which sysfs does not map: bind the device to vfio-pci, which reads and writes it", r.Size())
	}
	fd, err := f.sys.open(f.dir + "/resource" + strconv.Itoa(n))
	if err != nil {
		return nil, needRoot(err)
	}
	b := &regionBAR{sys: f.sys, fd: fd, size: int(r.Size()), name: f.Name(), lost: f.gone}
	if r.Flags&ResourceMemory != 0 {
		if err = b.mmap([]area{{0, r.Size()}}); err != nil {
			err = fmt.Errorf("map it: %w (does the kernel forbid it? see lockdown(7))", err)
		}
	} else {
		err = enableDecoding(f.config, CommandIO) // it is read and written
	}
	if err != nil {
		return nil, errors.Join(err, f.sys.close(fd))
	}
	f.files = append(f.files, fd)
	return b, nil
}

// Close implements Function: no error when bus mastering has been read back off, here or by the guardian, or when the device
// is not there any more.
func (f *sysfsFunction) Close() error {
	f.opener.mu.Lock()
	defer f.opener.mu.Unlock()
	f.irqMu.Lock()
	defer f.irqMu.Unlock()
	if f.isClosed() {
		return f.closes
	}
	f.opener.forget(f)
	if err := errors.Join(f.stopTick(), f.shut()); err != nil {
		f.closes = fmt.Errorf("%s: close: %w", f.Name(), err)
	}
	return f.closes
}

// shut ends DMA, then the guardian, and lets go of the rest.
func (f *sysfsFunction) shut() error {
	if f.config == nil {
		return nil
	}
	var errs []error
	stopped := SetBusMaster(f, false)
	if stopped != nil && f.unplugged() {
		stopped = nil
	}
	if f.guard != nil {
		errs = append(errs, f.guard.end(stopped))
	} else {
		errs = append(errs, stopped)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for n, b := range f.bars {
		if err := b.unmap(); err != nil {
			errs = append(errs, fmt.Errorf("unmap BAR %d: %w", n, err))
		}
	}
	clear(f.bars)
	for _, fd := range f.files {
		errs = append(errs, f.sys.close(fd))
	}
	if f.enabled {
		_ = f.enable("0") // a device that was unplugged has no such file
	}
	errs = append(errs, f.config.Close())
	f.config, f.files = nil, nil
	return errors.Join(errs...)
}

// unplugged says whether the device is not there any more.
func (f *sysfsFunction) unplugged() bool {
	v, err := f.ReadConfig(ConfigVendor, 2)
	return errors.Is(err, unix.ENODEV) || err == nil && v == allOnes>>16
}
