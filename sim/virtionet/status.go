package virtionet

import (
	"fmt"

	"bare.wire/sim"
	"bare.wire/virtio/spec"
)

// Features are what the device offers. The caller holds the lock, here and in all that follows.
func (d *Device) Features() spec.Features {
	if d.legacy {
		return d.offered & 0xFFFF_FFFF &^ d.cfg.Faults.Hide
	}
	return d.offered &^ d.cfg.Faults.Hide
}

// Agreed are the features that SetFeatures has been given.
func (d *Device) Agreed() spec.Features { return d.agreed }

// SetFeatures takes what the driver wants. One that was not offered is an error, and FEATURES_OK will not stick.
func (d *Device) SetFeatures(f spec.Features) error {
	if d.status&(spec.StatusFeaturesOK|spec.StatusDriverOK) != 0 {
		d.wrong(FeaturesLate, -1, "%v after status %#02x", f, d.status)
		return fmt.Errorf("%s: features are changed with status %#02x: reset the device first", d.cfg.Name, d.status)
	}
	d.agreed = f
	if extra := f &^ d.Features(); extra != 0 {
		d.wrong(FeatureNotOffered, -1, "%v", extra)
		return fmt.Errorf("%s: features %v are not offered", d.cfg.Name, extra)
	}
	return nil
}

// featuresFit says whether the device can work with the features agreed on.
func (d *Device) featuresFit() bool {
	ok := d.agreed&^d.Features() == 0
	if _, left := d.agreed.Consistent(); left != 0 {
		d.wrong(FeatureNeeds, -1, "%v", left)
		ok = false
	}
	if must := d.Features() & (spec.FeatureVersion1 | spec.FeatureAccessPlatform) &^ d.agreed; must != 0 && !d.legacy {
		d.wrong(FeatureRefused, -1, "%v", must)
		ok = false
	}
	return ok && !d.cfg.Faults.FeaturesRefused
}

// UseLegacy says that the driver speaks the legacy interface, until it resets the device.
func (d *Device) UseLegacy(on bool) { d.legacy = on }

// Status is the status byte.
func (d *Device) Status() uint8 {
	if d.gone {
		return 0xFF
	}
	if d.cfg.Faults.ResetStuck && d.resetOld != 0 {
		return d.resetOld
	}
	if d.resets > 0 {
		d.resets--
		return d.resetOld
	}
	return d.status
}

// SetStatus writes the status byte. 0 resets the device, which does no DMA from then on.
func (d *Device) SetStatus(v uint8) {
	if d.gone {
		return
	}
	if v == 0 {
		if d.status != 0 { // else nobody could tell by the status that a reset is under way
			d.resetOld, d.resets = d.status, d.cfg.Faults.ResetReads
		}
		d.reset()
		d.kick()
		return
	}
	old := d.status
	if d.resets > 0 || d.cfg.Faults.ResetStuck && d.resetOld != 0 {
		d.wrong(ResetBusy, -1, "status %#02x written", v)
		d.resets = 0
	}
	d.resetOld = 0
	if cleared := old &^ v &^ spec.StatusNeedsReset; cleared != 0 {
		d.wrong(StatusCleared, -1, "%#02x after %#02x", v, old)
	}
	fresh := v &^ old
	d.checkOrder(old, fresh)
	if fresh&spec.StatusFeaturesOK != 0 && !d.featuresFit() {
		v &^= spec.StatusFeaturesOK
	}
	d.status = v&^spec.StatusNeedsReset | old&spec.StatusNeedsReset
	if fresh&spec.StatusDriverOK != 0 {
		d.begin()
	}
	if fresh&spec.StatusFailed != 0 {
		d.count.Failed++
	}
}

// checkOrder holds fresh bits against §3.1.1.
func (d *Device) checkOrder(old, fresh uint8) {
	before := []struct{ bit, needs uint8 }{
		{spec.StatusDriver, spec.StatusAcknowledge},
		{spec.StatusFeaturesOK, spec.StatusAcknowledge | spec.StatusDriver},
		{spec.StatusDriverOK, spec.StatusAcknowledge | spec.StatusDriver | spec.StatusFeaturesOK},
	}
	for _, b := range before {
		needs := b.needs
		if d.legacy {
			needs &^= spec.StatusFeaturesOK
		}
		if fresh&b.bit != 0 && (old|fresh&^b.bit)&needs != needs {
			d.wrong(StatusOrder, -1, "bit %#02x after status %#02x", b.bit, old)
		}
	}
}

// begin is DRIVER_OK.
func (d *Device) begin() {
	if d.status&spec.StatusFeaturesOK == 0 && !d.featuresFit() { // nobody has looked: the legacy interface has no FEATURES_OK
		d.agreed &= d.Features()
		d.agreed, _ = d.agreed.Consistent()
	}
	d.header = spec.HeaderSize(d.agreed)
	if d.agreed&spec.FeatureCtrlVLAN == 0 {
		d.filter.allVLANs = true
	}
	if d.agreed&(spec.FeatureMQ|spec.FeatureRSS) == 0 {
		d.pairs = 1
	}
	d.setGuest(d.agreed & guestFeatures)
	d.ready()
	d.fillConfig()
	for i := range d.queues {
		q := &d.queues[i]
		q.begin()
		if q.on {
			q.due = d.now + d.rng.Delay(d.cfg.Timing.Fetch)
		}
	}
	d.kick()
}

// reset forgets everything but counts, misuse and what the device is made of.
func (d *Device) reset() {
	d.status, d.agreed, d.legacy, d.broken = 0, 0, false, false
	d.header = spec.HdrSize
	d.pairs = 1
	d.announce = false
	for i := range d.queues {
		d.queues[i].reset()
	}
	d.filter.reset(d.cfg.MAC)
	d.steer.reset()
	d.setGuest(0)
	d.ready()
	d.fillConfig()
}

// fail is what becomes of a driver that has broken a rule of the rings (§2.1.2).
func (d *Device) fail() {
	if d.broken {
		return
	}
	d.broken = true
	d.status |= spec.StatusNeedsReset
	d.count.NeedsReset++
	for i := range d.queues {
		d.queues[i].due, d.queues[i].pubAt = sim.Never, sim.Never
	}
	if d.status&spec.StatusDriverOK != 0 && d.changed != nil {
		d.changed()
	}
}
