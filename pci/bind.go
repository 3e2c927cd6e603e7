package pci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// VFIODriver is the kernel driver that hands a device to a process.
const VFIODriver = "vfio-pci"

// BindOptions say how Bind is to behave. The zero value binds to vfio-pci and refuses whatever could hurt.
type BindOptions struct {
	// Driver is the kernel driver that gets the device, "" for vfio-pci.
	Driver string
	// Force overrides ErrInUse, ErrNotViable and ErrNotNetwork: connections over the card break.
	Force bool
	// AllowNoIOMMU allows VFIO without an IOMMU: nothing then keeps the card from writing anywhere in memory.
	AllowNoIOMMU bool
	// Owner gets the device node of the IOMMU group, so that the process which uses the card needs no root; nil: as it is.
	Owner *Owner
}

// Owner is who may open a device node.
type Owner struct{ UID, GID int } // -1: unchanged

// Bind gives the device at a to a driver, by driver_override and drivers_probe: no other device with the same identifiers is
// touched, and the kernel does not take it back by itself. What it was bound to before is noted in /run/barewire/bind.json for
// Restore. It does nothing to a device that the driver has already, but to give its node to the owner.
//
// A *RefusedError (errors.Is: ErrInUse, ErrNotViable, ErrNoIOMMU, ErrNoDriver, ErrNotNetwork) says that nothing was changed.
// When the kernel refuses half-way, the device is given back to the driver it had; the error says so, or that it failed too.
func (h *Host) Bind(ctx context.Context, a Address, opt BindOptions) error {
	if opt.Driver == "" {
		opt.Driver = VFIODriver
	}
	if err := checkDriver(opt.Driver, false); err != nil {
		return err
	}
	d, err := h.Device(a)
	if err != nil {
		return err
	}
	if d.Driver == opt.Driver {
		return h.own(d, opt)
	}
	if err := h.refuseBind(d, opt); err != nil {
		return err
	}
	err = h.change(ctx, a, func(s *state, d *Device) error {
		// Another process may have been at it while we waited, and the card be in use now.
		if d.Driver == opt.Driver {
			return nil
		}
		if err := h.refuseBind(d, opt); err != nil {
			return err
		}
		s.note(d)
		if err := h.saveState(s); err != nil {
			return err
		}
		return h.move(ctx, d, opt.Driver)
	})
	if err != nil {
		return err
	}
	if d, err = h.Device(a); err != nil {
		return err
	}
	return h.own(d, opt)
}

// refuseBind looks for a reason not to.
func (h *Host) refuseBind(d *Device, opt BindOptions) error {
	refuse := func(kind error, remedy string, reasons ...string) error {
		return &RefusedError{Address: d.Address, Kind: kind, Reasons: reasons, Remedy: remedy}
	}
	if !d.IsNetwork() && !opt.Force {
		return refuse(ErrNotNetwork, "--force binds it all the same", fmt.Sprintf("its class is %06x", d.Class))
	}
	if err := h.refuseInUse(d, opt.Force); err != nil {
		return err
	}
	if _, err := os.Stat(h.path("/sys/bus/pci/drivers", opt.Driver)); errors.Is(err, fs.ErrNotExist) {
		return refuse(ErrNoDriver, "load it: sudo modprobe "+opt.Driver, "the kernel has no driver "+opt.Driver)
	}
	if strings.HasPrefix(opt.Driver, "vfio-") {
		return h.refuseVFIO(d, opt)
	}
	return nil
}

func (h *Host) refuseInUse(d *Device, force bool) error {
	if force {
		return nil
	}
	if reasons := h.InUse(d); len(reasons) > 0 {
		return &RefusedError{Address: d.Address, Kind: ErrInUse, Reasons: reasons, Remedy: freeing(d)}
	}
	return nil
}

// freeing says how a device becomes free.
func freeing(d *Device) string {
	if len(d.Interfaces) == 0 {
		return "end what uses it, or --force"
	}
	var b strings.Builder
	for _, i := range d.Interfaces {
		fmt.Fprintf(&b, "sudo ip link set %s nomaster down; sudo ip address flush dev %s; ", i.Name, i.Name)
	}
	return "when it may be cut off: " + b.String() + "or --force"
}

func (h *Host) refuseVFIO(d *Device, opt BindOptions) error {
	if d.Group >= 0 && !d.NoIOMMU {
		if opt.Force {
			return nil
		}
		return h.Viable(d)
	}
	iommus, err := readNames(h.path("/sys/class/iommu"))
	if err != nil {
		return fmt.Errorf("PCI device %s: look for an IOMMU: %w", d.Address, err)
	}
	reason := "this machine has none switched on"
	remedy := "switch it on (VT-d or AMD-Vi in the firmware, and intel_iommu=on on the kernel's command line); or drive the card without VFIO: " + d.Address.String() + "?access=sysfs"
	if len(iommus) > 0 {
		reason, remedy = "the one of this machine does not watch it", "use another slot, or drive the card without VFIO: "+d.Address.String()+"?access=sysfs"
	}
	if !opt.AllowNoIOMMU {
		return &RefusedError{Address: d.Address, Kind: ErrNoIOMMU, Reasons: []string{reason},
			Remedy: remedy + "; or --allow-noiommu, and then nothing keeps the card from writing anywhere in memory"}
	}
	unsafe := h.path("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode")
	switch on, err := readText(unsafe); {
	case errors.Is(err, fs.ErrNotExist):
		return &RefusedError{Address: d.Address, Kind: ErrNoIOMMU, Reasons: []string{reason, "and vfio of this kernel does not know the mode without one"}, Remedy: remedy}
	case err != nil:
		return fmt.Errorf("PCI device %s: %w", d.Address, err)
	case on != "Y" && on != "1":
		return &RefusedError{Address: d.Address, Kind: ErrNoIOMMU, Reasons: []string{reason, "and vfio is not told to do without"},
			Remedy: "tell it: echo Y | sudo tee /sys/module/vfio/parameters/enable_unsafe_noiommu_mode"}
	}
	return nil
}

// Unbind takes the device at a from its driver and leaves it without one. It is refused (ErrInUse) like Bind.
func (h *Host) Unbind(ctx context.Context, a Address, opt BindOptions) error {
	d, err := h.Device(a)
	if err != nil {
		return err
	}
	if err := h.refuseUnbind(d, opt); err != nil || d.Driver == "" {
		return err
	}
	return h.change(ctx, a, func(s *state, d *Device) error {
		if err := h.refuseUnbind(d, opt); err != nil || d.Driver == "" {
			return err
		}
		s.note(d)
		if err := h.saveState(s); err != nil {
			return err
		}
		if err := h.override(ctx, d.Address, ""); err != nil {
			return err
		}
		if err := h.unbind(ctx, d.Address, d.Driver); err != nil {
			return fmt.Errorf("%w; %s", err, h.rollBack(ctx, d))
		}
		return nil
	})
}

// refuseUnbind looks for a reason not to take d from the driver that it has.
func (h *Host) refuseUnbind(d *Device, opt BindOptions) error {
	switch {
	case d.Driver == "":
		return nil
	case !d.IsNetwork() && !opt.Force:
		return &RefusedError{Address: d.Address, Kind: ErrNotNetwork, Reasons: []string{fmt.Sprintf("its class is %06x", d.Class)}, Remedy: "--force unbinds it all the same"}
	}
	return h.refuseInUse(d, opt.Force)
}

// Restore gives the device at a back to the driver that it had before Bind or Unbind, or, when that is not known, to the one
// that the kernel chooses. It is refused (ErrInUse) while somebody has the device open.
func (h *Host) Restore(ctx context.Context, a Address, opt BindOptions) error {
	if _, err := h.Device(a); err != nil {
		return err
	}
	return h.change(ctx, a, func(s *state, d *Device) error {
		r, known := s.of(d)
		settled := known && d.Driver == r.Driver && d.Override == r.Override
		if settled || !known && d.Driver != "" && !handsOut(d.Driver) {
			return h.forget(s, a)
		}
		if err := h.refuseInUse(d, opt.Force); err != nil {
			return err
		}
		if err := h.giveBack(ctx, d, r, known); err != nil {
			return err
		}
		return h.forget(s, a)
	})
}

// giveBack binds d to what r says, or to the kernel's choice.
func (h *Host) giveBack(ctx context.Context, d *Device, r record, known bool) error {
	switch {
	case known && r.Driver == "":
		if d.Driver != "" {
			if err := h.unbind(ctx, d.Address, d.Driver); err != nil {
				return err
			}
		}
		return h.override(ctx, d.Address, r.Override)
	case known && r.Driver == d.Driver:
		return h.override(ctx, d.Address, r.Override)
	case known:
		if _, err := os.Stat(h.path("/sys/bus/pci/drivers", r.Driver)); errors.Is(err, fs.ErrNotExist) {
			return &RefusedError{Address: d.Address, Kind: ErrNoDriver, Reasons: []string{"it was with driver " + r.Driver + ", which the kernel has no more"},
				Remedy: "load it: sudo modprobe " + r.Driver}
		}
		if err := h.move(ctx, d, r.Driver); err != nil {
			return err
		}
		return h.override(ctx, d.Address, r.Override)
	}
	return h.move(ctx, d, "")
}

// change calls f with the notes and the device as it is now, while no other process changes bindings in this way.
func (h *Host) change(ctx context.Context, a Address, f func(s *state, d *Device) error) error {
	unlock, err := h.lock(ctx)
	if err != nil {
		return fmt.Errorf("PCI device %s: %w", a, err)
	}
	defer unlock()
	s, err := h.loadState()
	if err != nil {
		return fmt.Errorf("PCI device %s: %w", a, err)
	}
	d, err := h.Device(a) // it may have changed while we waited
	if err != nil {
		return err
	}
	return f(s, d)
}

// note remembers what d is bound to. What an earlier note says is older news, except when d is with nobody's driver: then that
// was our own doing.
func (s *state) note(d *Device) {
	if _, known := s.of(d); !known || d.Driver != "" && !handsOut(d.Driver) {
		s.Devices[d.Address.String()] = record{Vendor: d.Vendor, Device: d.Device, Driver: d.Driver, Override: d.Override}
	}
}

// of returns the note about d. One about another card in the same slot is none.
func (s *state) of(d *Device) (record, bool) {
	r, ok := s.Devices[d.Address.String()]
	return r, ok && r.Vendor == d.Vendor && r.Device == d.Device
}

func (h *Host) forget(s *state, a Address) error {
	if _, ok := s.Devices[a.String()]; !ok {
		return nil
	}
	delete(s.Devices, a.String())
	return h.saveState(s)
}

// move takes d from its driver and gives it to another, or with "" to the one that the kernel chooses. When that fails d is
// given back.
func (h *Host) move(ctx context.Context, d *Device, driver string) error {
	fail := func(err error) error {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			// A write that hangs holds the device's lock in the kernel: whatever is written now would hang behind it.
			return fmt.Errorf("%w; when it has, run: pktgen devices restore %s", err, d.Address)
		}
		return fmt.Errorf("%w; %s", err, h.rollBack(ctx, d))
	}
	if err := h.override(ctx, d.Address, driver); err != nil {
		return err // nothing has changed yet
	}
	if d.Driver != "" {
		if err := h.unbind(ctx, d.Address, d.Driver); err != nil {
			return fail(err)
		}
	}
	if err := h.writeFile(ctx, h.path("/sys/bus/pci/drivers_probe"), d.Address.String()); err != nil {
		return fail(fmt.Errorf("PCI device %s: have the kernel bind it: %w", d.Address, err))
	}
	now, err := readLink(h.devicePath(d.Address), "driver")
	switch {
	case err != nil:
		return fail(fmt.Errorf("PCI device %s: %w", d.Address, err))
	case driver == "" && now == "":
		return fail(fmt.Errorf("PCI device %s: no driver that is loaded wants it; load the one it had (sudo modprobe NAME), then restore again", d.Address))
	case driver != "" && now != driver:
		return fail(fmt.Errorf("PCI device %s: driver %s did not take it (\"sudo dmesg\" may say why)", d.Address, driver))
	}
	return nil
}

// override sets driver_override; "" takes it away.
func (h *Host) override(ctx context.Context, a Address, driver string) error {
	err := h.writeFile(ctx, filepath.Join(h.devicePath(a), "driver_override"), driver+"\n")
	if err != nil {
		return fmt.Errorf("PCI device %s: set driver_override to %q: %w%s", a, driver, err, askRoot(err))
	}
	return nil
}

func (h *Host) unbind(ctx context.Context, a Address, driver string) error {
	err := h.writeFile(ctx, h.path("/sys/bus/pci/drivers", driver, "unbind"), a.String())
	if err != nil {
		return fmt.Errorf("PCI device %s: take it from driver %s: %w%s", a, driver, err, askRoot(err))
	}
	return nil
}

// rollBack gives d back to the driver that it had, also when ctx is over, and says in words how that went.
func (h *Host) rollBack(ctx context.Context, d *Device) string {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	now, err := readLink(h.devicePath(d.Address), "driver")
	errs = append(errs, err)
	if now != "" && now != d.Driver {
		errs = append(errs, h.unbind(ctx, d.Address, now))
	}
	if now != d.Driver && d.Driver != "" {
		errs = append(errs, h.override(ctx, d.Address, d.Driver),
			h.writeFile(ctx, h.path("/sys/bus/pci/drivers_probe"), d.Address.String()))
	}
	errs = append(errs, h.override(ctx, d.Address, d.Override))
	back, err := readLink(h.devicePath(d.Address), "driver")
	errs = append(errs, err)
	had := d.Driver
	if had == "" {
		had = "no driver"
	}
	if back != d.Driver || errors.Join(errs...) != nil {
		why := "the kernel did not bind it"
		if err := errors.Join(errs...); err != nil {
			why = strings.ReplaceAll(err.Error(), "\n", ", ")
		}
		return fmt.Sprintf("and it could not be given back to %s (%s); try pktgen devices restore %s", had, why, d.Address)
	}
	return "it is with " + had + " again"
}

// own gives the device node of d's group to the owner.
func (h *Host) own(d *Device, opt BindOptions) error {
	if opt.Owner == nil || opt.Owner.UID < 0 && opt.Owner.GID < 0 {
		return nil
	}
	node := d.GroupNode()
	if node == "" || !strings.HasPrefix(d.Driver, "vfio-") {
		return fmt.Errorf("PCI device %s: it is bound to %s, but there is no group whose device node could be given away", d.Address, d.Driver)
	}
	name := h.path(node)
	if err := os.Lchown(name, opt.Owner.UID, opt.Owner.GID); err != nil {
		return fmt.Errorf("PCI device %s: it is bound to %s, but its node cannot be given away: %w%s", d.Address, d.Driver, err, askRoot(err))
	}
	if opt.Owner.GID >= 0 {
		if err := os.Chmod(name, 0o660); err != nil {
			return fmt.Errorf("PCI device %s: it is bound to %s, but its node cannot be opened to the group: %w%s", d.Address, d.Driver, err, askRoot(err))
		}
	}
	return nil
}
