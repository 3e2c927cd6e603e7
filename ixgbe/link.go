package ixgbe

import (
	"context"
	"time"

	"bare.wire/ixgbe/reg"
	"bare.wire/nic"
)

// initLink starts the link (§4.6.4) and does not wait for it: that may take seconds, and traffic can be set up meanwhile.
// The medium is the one that the EEPROM configured.
func (p *Port) initLink(ctx context.Context) error {
	release, err := p.acquire(ctx, reg.GSSR_MAC_CSR_SM)
	if err != nil {
		return err
	}
	defer release()
	autoc := p.autoc
	if p.cfg.Loopback {
		// In MAC loopback the link is forced up without a partner.
		autoc = autoc&^reg.AUTOC_LMS | reg.AUTOC_LMS_10G_PARALLEL | reg.AUTOC_FLU
	}
	p.write(reg.AUTOC, autoc|reg.AUTOC_AN_RESTART)
	p.flush()
	if !p.cfg.Loopback {
		return nil
	}
	return p.sleep(ctx, 50*time.Millisecond)
}

// linkSpeeds decodes LINKS.SPEED (§8.2.3.22.20).
var linkSpeeds = map[uint32]uint64{reg.LINKS_SPEED_100M: 100e6, reg.LINKS_SPEED_1G: 1e9, reg.LINKS_SPEED_10G: 10e9}

// ArmLink implements nic.Port.
func (p *Port) ArmLink(w *nic.Waiter, seen nic.Link) bool {
	return p.link.Arm(w, seen) && p.Err() == nil
}

// setLink notes the state of the link, and logs a change.
func (p *Port) setLink(read func() (nic.Link, bool)) {
	if now, changed := p.link.Update(read); changed {
		p.log.Info("link", "state", now.String())
	}
}

// lostLink is the state of a port that has stopped or is gone.
func (p *Port) lostLink() {
	p.setLink(func() (nic.Link, bool) { return nic.Link{}, true })
}

// updateLink reads the state of the link. LINKS.UP is latched low, so the first read may tell of the past. A change that is
// none is not told: the card may interrupt without a reason (specification update, software clarification 6).
func (p *Port) updateLink() {
	p.setLink(func() (now nic.Link, known bool) {
		if p.Err() != nil {
			return now, false
		}
		p.read(reg.LINKS)
		v := p.read(reg.LINKS)
		if v&reg.LINKS_UP != 0 && v != allOnes {
			now = nic.Link{Up: true, Speed: linkSpeeds[v&reg.LINKS_SPEED]}
		}
		return now, true
	})
}
