package pci

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vfioFunction is a function that the kernel has handed over by VFIO.
type vfioFunction struct {
	notifier
	opener         *Opener
	sys            kernel
	at             Address
	vendor, device uint16
	group          *group
	canReset       bool
	regions, irqs  uint32
	config         vfioRegionInfo
	guard          *guarded // where there is no IOMMU
	closes         error    // what Close returned

	irqMu   sync.Mutex
	on      *interrupts
	notices []*signal

	barMu sync.Mutex // held while registers are mapped or unmapped; comes before mu
	bars  map[int]*regionBAR

	mu sync.Mutex
	fd int // -1 once closed
}

// openVFIO takes d's group, and d out of it.
func (o *Opener) openVFIO(d *Device) (_ *vfioFunction, err error) {
	if err := o.checkVFIO(d); err != nil {
		return nil, err
	}
	g, err := o.takeGroup(d)
	if err != nil {
		return nil, err
	}
	f := &vfioFunction{opener: o, sys: o.sys, at: d.Address, vendor: d.Vendor, device: d.Device, group: g, fd: -1, bars: map[int]*regionBAR{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, stopAll(f.notices), f.shut(), o.dropGroup(g))
		}
	}()
	name := append([]byte(d.Address.String()), 0)
	if f.fd, err = o.sys.ioctl(g.fd, vfioGroupGetDeviceFD, unsafe.Pointer(&name[0])); err != nil {
		f.fd = -1
		return nil, fmt.Errorf("take the device out of group %d: %w (is it in use by another process, or powered off?)", g.number, err)
	}
	if err := f.getInfo(); err != nil {
		return nil, err
	}
	if err := f.watch(); err != nil || !d.NoIOMMU {
		return f, err
	}
	config, err := o.lockConfig(d.Address)
	if err != nil {
		return nil, err
	}
	defer config.Close() // the guardian has it
	f.guard, err = o.startGuardian(f, config, f.gone)
	return f, err
}

// checkVFIO says what is to be done before d can be opened.
func (o *Opener) checkVFIO(d *Device) error {
	switch {
	case d.Driver == "" && d.Group < 0:
		return fmt.Errorf("there is no IOMMU: switch it on (VT-d or AMD-Vi in the firmware, intel_iommu=on on the kernel's command line) and \"pktgen devices bind %s\"; or do without its protection: %s?access=sysfs", d.Address, d.Address)
	case d.Driver != VFIODriver:
		driver := d.Driver
		if driver == "" {
			driver = "none"
		}
		return fmt.Errorf("it is bound to the driver %s, not to vfio-pci: \"pktgen devices bind %s\"", driver, d.Address)
	case d.Group < 0:
		return errors.New("it is bound to vfio-pci and yet in no IOMMU group: bind it again")
	case d.NoIOMMU && o.opt.Access == VFIO:
		return fmt.Errorf("there is no IOMMU that would keep the device to its buffers: switch it on (intel_iommu=on), or accept that the device can write to all memory: %s?access=noiommu", d.Address)
	case !d.NoIOMMU && o.opt.Access == VFIONoIOMMU:
		return fmt.Errorf("there is an IOMMU: leave access=noiommu away, as %s", d.Address)
	case o.opt.Access == VFIONoIOMMU && !o.space.Physical() && !o.anySpace:
		return errors.New("without an IOMMU the address space has to be a physical one (vtop.NewPhysical)")
	case o.opt.Access == VFIONoIOMMU:
		o.log.Warn("no IOMMU: a fault of the driver or of the device can overwrite any memory of this machine", "device", d.Address.String())
	}
	return nil
}

// getInfo asks for the device's regions and interrupts.
func (f *vfioFunction) getInfo() error {
	answer, err := infoOf[vfioDeviceInfo](f.sys, f.fd, vfioDeviceGetInfo, nil)
	if err != nil {
		return fmt.Errorf("ask for the device's regions: %w", err)
	}
	var info vfioDeviceInfo
	if !readStruct(answer, &info) || info.flags&vfioDevicePCI == 0 || info.regions <= vfioRegionConfig {
		return fmt.Errorf("VFIO says that it is no PCI device (flags %#x, %d regions): %w", info.flags, info.regions, errors.ErrUnsupported)
	}
	f.canReset, f.regions, f.irqs = info.flags&vfioDeviceCanReset != 0, info.regions, info.irqs
	f.config, _, _, err = f.region(vfioRegionConfig)
	if err == nil && f.config.size < 64 {
		err = fmt.Errorf("configuration space has %d bytes", f.config.size)
	}
	return err
}

// region asks for one region.
func (f *vfioFunction) region(index uint32) (vfioRegionInfo, []area, bool, error) {
	answer, err := infoOf(f.sys, f.fd, vfioDeviceGetRegionInfo, func(r *vfioRegionInfo) { r.index = index })
	if err != nil {
		return vfioRegionInfo{}, nil, false, fmt.Errorf("ask for region %d: %w", index, err)
	}
	return parseRegion(answer)
}

func (f *vfioFunction) address() Address { return f.at }

// Name implements Function.
func (f *vfioFunction) Name() string { return f.at.String() }

// ID implements Function.
func (f *vfioFunction) ID() (vendor, device uint16) { return f.vendor, f.device }

// ReadConfig implements Function.
func (f *vfioFunction) ReadConfig(off, size int) (uint32, error) {
	var b [4]byte
	if err := f.accessConfig(off, b[:], size, f.sys.pread); err != nil {
		return 0, fmt.Errorf("%s: read configuration space at %#x: %w", f.Name(), off, err)
	}
	return binary.LittleEndian.Uint32(b[:]), nil
}

// WriteConfig implements Function.
func (f *vfioFunction) WriteConfig(off, size int, v uint32) error {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	if err := f.accessConfig(off, b[:], size, f.sys.pwrite); err != nil {
		return fmt.Errorf("%s: write configuration space at %#x: %w", f.Name(), off, err)
	}
	return nil
}

func (f *vfioFunction) accessConfig(off int, b []byte, size int, access func(int, []byte, int64) (int, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd < 0 {
		return errors.New("the function is closed")
	}
	if err := checkConfig(off, size, f.config.size); err != nil {
		return err
	}
	return transfer(access, f.fd, b[:size], int64(f.config.offset)+int64(off))
}

// transfer reads or writes all of b, or fails: a short access is an error, not a value.
func transfer(access func(int, []byte, int64) (int, error), fd int, b []byte, off int64) error {
	n, err := access(fd, b, off)
	if err == nil && n != len(b) {
		err = fmt.Errorf("%d bytes of %d: %w", n, len(b), io.ErrUnexpectedEOF)
	}
	return err
}

// Reset implements Function. The kernel saves and restores configuration space around it.
func (f *vfioFunction) Reset(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: reset: %w", f.Name(), ctx.Err())
	case f.fd < 0:
		return fmt.Errorf("%s: reset: the function is closed", f.Name())
	case !f.canReset:
		return fmt.Errorf("%s: reset: the kernel knows no way to reset this function alone (no FLR, no slot or power reset): %w", f.Name(), errors.ErrUnsupported)
	}
	if _, err := f.sys.ioctl(f.fd, vfioDeviceReset, nil); err != nil {
		return fmt.Errorf("%s: reset: %w", f.Name(), err)
	}
	return nil
}

// Close implements Function. The kernel stops the device's DMA when its file is closed for the last time, and mappings of
// its registers keep it open: those go first. With the last function of a container its memory is unmapped too. A second Close
// returns what the first did.
func (f *vfioFunction) Close() error {
	f.opener.mu.Lock()
	defer f.opener.mu.Unlock()
	f.irqMu.Lock()
	defer f.irqMu.Unlock()
	if f.group == nil {
		return f.closes
	}
	f.opener.forget(f)
	// What cannot be switched off goes with the file.
	_ = f.stopInterrupts()
	_ = stopAll(f.notices)
	f.notices = nil
	stopped := SetBusMaster(f, false)
	shutErr := f.shut()
	if shutErr == nil {
		stopped = nil
	}
	if stopped != nil {
		shutErr = fmt.Errorf("the device may still be doing DMA: %w", errors.Join(shutErr, stopped))
	}
	var guardErr error
	if f.guard != nil {
		guardErr = f.guard.end(stopped)
	}
	groupErr := f.opener.dropGroup(f.group)
	f.group = nil
	if err := errors.Join(shutErr, guardErr, groupErr); err != nil {
		f.closes = fmt.Errorf("%s: close: %w", f.Name(), err)
	}
	return f.closes
}

// shut lets go of registers and of the device's file.
func (f *vfioFunction) shut() error {
	f.barMu.Lock()
	defer f.barMu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for n, b := range f.bars {
		if err := b.unmap(); err != nil {
			errs = append(errs, fmt.Errorf("unmap BAR %d: %w", n, err))
		}
	}
	clear(f.bars)
	if f.fd >= 0 {
		if err := f.sys.close(f.fd); err != nil {
			errs = append(errs, err)
		}
		f.fd = -1
	}
	return errors.Join(errs...)
}

// BAR implements Function.
func (f *vfioFunction) BAR(n int) (BAR, error) {
	f.barMu.Lock()
	defer f.barMu.Unlock()
	b, known := f.bars[n]
	switch {
	case f.fd < 0:
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

// mapBAR maps what may be mapped of a BAR, and reaches the rest by reads and writes of the device's file. The caller holds barMu.
func (f *vfioFunction) mapBAR(n int) (*regionBAR, error) {
	r, sparse, msix, err := f.region(uint32(n))
	if err != nil {
		return nil, err
	}
	const both = vfioRegionRead | vfioRegionWrite
	if r.flags&both != both || r.size < 4 || r.size%4 != 0 || r.size > maxBAR {
		return nil, fmt.Errorf("it has %d bytes, flags %#x: no registers to read and write (a missing BAR, or the upper half of one?)", r.size, r.flags)
	}
	if err := f.decode(n); err != nil {
		return nil, err
	}
	b := &regionBAR{sys: f.sys, fd: f.fd, off: int64(r.offset), size: int(r.size), name: f.Name(), lost: f.gone}
	if r.flags&vfioRegionMmap == 0 {
		return b, nil
	}
	areas := sparse
	if areas == nil {
		areas = []area{{0, r.size}}
		if !msix {
			hole, err := f.msixTable(n)
			if err != nil {
				return nil, err
			}
			areas = cutHole(r.size, hole, uint64(unix.Getpagesize()))
		}
	}
	if err := b.mmap(wholePages(areas, uint64(unix.Getpagesize()))); err != nil {
		f.opener.log.Info("the kernel does not map registers: each access is a system call", "device", f.Name(), "bar", n, "err", err)
	}
	return b, nil
}

// decode has the function answer to accesses of BAR n, which there is: what stands in the upper half of another says nothing about
// a space.
func (f *vfioFunction) decode(n int) error {
	bar, err := f.ReadConfig(ConfigBAR+4*n, 4)
	if err != nil {
		return err
	}
	space := uint32(CommandMemory)
	if bar&ConfigBARIO != 0 {
		space = CommandIO
	}
	return enableDecoding(f, space)
}

// maxBAR bounds the address space that is taken for a BAR, bytes.
const maxBAR = 1 << 38

// msixTable is where in BAR n the MSI-X table lies; a size of 0 says that it is not there.
func (f *vfioFunction) msixTable(n int) (area, error) {
	config := make([]byte, min(f.config.size, ConfigSize))
	f.mu.Lock()
	err := transfer(f.sys.pread, f.fd, config, int64(f.config.offset))
	f.mu.Unlock()
	if err != nil {
		return area{}, fmt.Errorf("read configuration space: %w", err)
	}
	list, err := Capabilities(config)
	if err != nil {
		return area{}, err
	}
	c, ok := FindCapability(list, CapMSIX)
	if !ok {
		return area{}, nil
	}
	m, err := ParseMSIX(config, c)
	if err != nil || m.TableBAR != n {
		return area{}, err
	}
	const entry = 16
	return area{uint64(m.TableOffset), uint64(m.Vectors) * entry}, nil
}
