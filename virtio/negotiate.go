package virtio

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"bare.wire/nic"
	"bare.wire/virtio/spec"
)

// understood is what this driver knows how to use, each when there is a use for it (see want). It has no use for coalescing
// (spec.FeatureRSCExt), for UDP in pieces, and for being the stand-in of another device.
const understood = spec.FeatureCSum | spec.FeatureGuestCSum | spec.FeatureCtrlGuestOffloads | spec.FeatureMTU | spec.FeatureMAC |
	spec.FeatureGuestTSO4 | spec.FeatureGuestTSO6 | spec.FeatureGuestECN | spec.FeatureHostTSO4 | spec.FeatureHostTSO6 | spec.FeatureHostECN |
	spec.FeatureMrgRxBuf | spec.FeatureStatus | spec.FeatureCtrlVQ | spec.FeatureCtrlRx | spec.FeatureCtrlRxExtra | spec.FeatureCtrlVLAN | spec.FeatureGuestAnnounce |
	spec.FeatureMQ | spec.FeatureCtrlMACAddr | spec.FeatureAnyLayout | spec.FeatureIndirectDesc | spec.FeatureEventIdx | spec.FeatureVersion1 |
	spec.FeatureAccessPlatform | spec.FeatureRingPacked | spec.FeatureInOrder | spec.FeatureNotificationData | spec.FeatureNotifConfigData |
	spec.FeatureRingReset | spec.FeatureHashReport | spec.FeatureRSS | spec.FeatureSpeedDuplex

// guestOffloads are those that may be switched while the device runs (§5.1.6.5.8.1).
const guestOffloads = spec.FeatureGuestCSum | spec.FeatureGuestTSO4 | spec.FeatureGuestTSO6 | spec.FeatureGuestECN

// legacyFeatures are those that the legacy interface can tell.
const legacyFeatures = spec.Features(1)<<32 - 1

// usable is what the driver may take of what a device offers, whatever it is started for: what it understands, less what was
// forbidden, less what has lost the feature that it needs (§5.1.3.1).
func (p *Port) usable(offered spec.Features) spec.Features {
	f := offered & understood
	if runtime.GOARCH == "amd64" {
		// What Go's atomics order here they order for devices too.
		f |= offered & spec.FeatureOrderPlatform
	}
	if p.t.Legacy() {
		f &= legacyFeatures
	} else {
		f &^= spec.FeatureAnyLayout // it goes without saying
	}
	f = p.opt.Features.Apply(f)
	if !f.Has(spec.FeatureCtrlRx) {
		// Who cannot be told so lets everything in, and the VLANs too that are not to come in.
		f &^= spec.FeatureCtrlVLAN | spec.FeatureCtrlRxExtra
	}
	kept, dropped := f.Consistent()
	if _, ok := p.t.(PairSetter); ok {
		kept |= dropped & spec.FeatureMQ
	}
	return kept
}

// needed says why the driver cannot work with what it may take, nil if it can.
func (p *Port) needed(offered, usable spec.Features) error {
	var errs []error
	missing := func(f spec.Features, why string) {
		if usable.Has(f) {
			return
		}
		what := "the device does not offer it"
		if offered.Has(f) {
			what = "features= forbids it"
		}
		errs = append(errs, fmt.Errorf("%s: the driver needs the feature %v (%s), and %s; offered are %v", p.t.Name(), f, why, what, offered))
	}
	if !p.t.Legacy() {
		missing(spec.FeatureVersion1, "without it the device is a legacy one, which has other registers")
	}
	if offered.Has(spec.FeatureAccessPlatform) && !p.t.Legacy() {
		missing(spec.FeatureAccessPlatform, "the device's addresses are those of an IOMMU")
	}
	return errors.Join(errs...)
}

// want is what the driver takes of usable for a configuration.
func (p *Port) want(cfg *nic.Config) spec.Features {
	f := p.usableFeatures
	for _, r := range []struct {
		f    spec.Features
		wish bool
	}{
		{spec.FeatureCSum | spec.FeatureHostTSO4 | spec.FeatureHostTSO6 | spec.FeatureHostECN, cfg.Offloads&(nic.TxL4Checksum|nic.TxTSO) != 0},
		{spec.FeatureHostTSO4 | spec.FeatureHostTSO6 | spec.FeatureHostECN, cfg.Offloads&nic.TxTSO != 0},
		{guestOffloads | spec.FeatureCtrlGuestOffloads, cfg.Offloads&(nic.RxL4Checksum|nic.RxGSO) != 0},
		{spec.FeatureGuestTSO4 | spec.FeatureGuestTSO6 | spec.FeatureGuestECN, cfg.Offloads&nic.RxGSO != 0},
		{spec.FeatureHashReport, cfg.Offloads&nic.RxRSSHash != 0},
		{spec.FeatureRSS, p.info.RSSQueues > 0 && (p.pairs(cfg) > 1 || cfg.Offloads&nic.RxRSSHash != 0)},
		{spec.FeatureMQ, p.pairs(cfg) > 1},
		{spec.FeatureCtrlVLAN, cfg.VLANFilter || len(p.filters.vlans) > 0},
		{spec.FeatureGuestAnnounce, p.opt.Announce != nil},
		{spec.FeatureCtrlMACAddr, p.opt.MAC != [6]byte{} || !p.usableFeatures.Has(spec.FeatureMAC)},
	} {
		if !r.wish {
			f &^= r.f
		}
	}
	if f.Has(spec.FeatureRSS) && p.pairs(cfg) > 1 {
		f &^= spec.FeatureMQ // one command says both
	}
	return f
}

// pairs is how many queue pairs a configuration needs: the device knows only pairs.
func (p *Port) pairs(cfg *nic.Config) int { return max(cfg.RxQueues, cfg.TxQueues) }

// Offered is what the device offers.
func (p *Port) Offered() spec.Features { return p.offered }

// Negotiated is what driver and device have agreed on at the last Start, 0 before the first.
func (p *Port) Negotiated() spec.Features { return spec.Features(p.agreed.Load()) }

// negotiate resets the device and comes to an agreement with it (§3.1.1, steps 1 to 6). A device that offers less than it did
// when the port was opened is told so: its queues and limits may be others too.
func (p *Port) negotiate(ctx context.Context) error {
	if err := p.greet(ctx); err != nil {
		return err
	}
	offered, err := p.t.Features()
	if err != nil {
		return err
	}
	agreed := p.want(&p.cfg)
	if gone := agreed &^ offered; gone != 0 {
		return fmt.Errorf("%s: the device no longer offers %v: open the port again", p.t.Name(), gone)
	}
	if err := p.t.SetFeatures(agreed); err != nil {
		return p.refused(ctx, err)
	}
	if !p.t.Legacy() {
		if err := p.featuresOK(ctx, agreed); err != nil {
			return p.refused(ctx, err)
		}
	}
	p.agreed.Store(uint64(agreed))
	p.log.Info("features", "offered", offered.String(), "negotiated", agreed.String())
	return nil
}

// greet resets the device and says that it has a driver.
func (p *Port) greet(ctx context.Context) error {
	if err := p.t.Reset(ctx); err != nil {
		return err
	}
	if err := p.t.AddStatus(ctx, spec.StatusAcknowledge); err != nil {
		return err
	}
	return p.t.AddStatus(ctx, spec.StatusDriver)
}

// featuresOK asks whether the device can do with what the driver has taken.
func (p *Port) featuresOK(ctx context.Context, agreed spec.Features) error {
	if err := p.t.AddStatus(ctx, spec.StatusFeaturesOK); err != nil {
		return err
	}
	s, err := p.t.Status()
	if err != nil {
		return err
	}
	if s&spec.StatusFeaturesOK == 0 {
		return fmt.Errorf("%s: the device does not accept the features %v (FEATURES_OK does not stay set, status %#02x): take some out with features=-NAME",
			p.t.Name(), agreed, s)
	}
	return nil
}

// refused tells the device that the driver gives up.
func (p *Port) refused(ctx context.Context, err error) error {
	if p.Err() == nil {
		err = errors.Join(err, p.t.AddStatus(ctx, spec.StatusFailed))
	}
	return err
}
