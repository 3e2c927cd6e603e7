package ixgbe

import (
	"context"
	"slices"
	"sync"
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

// linkChange guards the state of the link, and has those who wait for it to change.
type linkChange struct {
	mu      sync.Mutex
	waiters []*nic.Waiter
	ended   bool // the port is closed: the link will not change any more
}

// end wakes everybody who waits, and lets nobody wait any more.
func (c *linkChange) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.wakeLocked(nil)
}

// wake wakes everybody who waits; with an error, for good.
func (c *linkChange) wake(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeLocked(err)
}

func (c *linkChange) wakeLocked(err error) {
	for _, w := range c.waiters {
		if err != nil {
			w.Fail(err)
		} else {
			w.Wake()
		}
	}
	c.waiters = nil
}

// ArmLink implements nic.Port.
func (p *Port) ArmLink(w *nic.Waiter, seen nic.Link) bool {
	c := &p.linkChange
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || p.Err() != nil || p.Link() != seen {
		return false
	}
	if !slices.Contains(c.waiters, w) {
		c.waiters = append(c.waiters, w)
	}
	return true
}

// setLink notes the state of the link, with linkChange locked, and tells whoever waits for another than it was.
func (p *Port) setLink(now nic.Link) {
	if old := p.link.Swap(&now); *old != now {
		p.log.Info("link", "state", now.String())
		p.linkChange.wakeLocked(nil)
	}
}

// lostLink is setLink of a port that has stopped or is gone.
func (p *Port) lostLink() {
	p.linkChange.mu.Lock()
	defer p.linkChange.mu.Unlock()
	p.setLink(nic.Link{})
}

// updateLink reads the state of the link. LINKS.UP is latched low, so the first read may tell of the past. It is called by
// interrupts and by Housekeep, at the same time if need be: whoever reads last has the last word. A change that is none is
// not told: the card may interrupt without a reason (specification update, software clarification 6).
func (p *Port) updateLink() {
	p.linkChange.mu.Lock()
	defer p.linkChange.mu.Unlock()
	if p.Err() != nil {
		return
	}
	p.read(reg.LINKS)
	v := p.read(reg.LINKS)
	var now nic.Link
	if v&reg.LINKS_UP != 0 && v != allOnes {
		now = nic.Link{Up: true, Speed: linkSpeeds[v&reg.LINKS_SPEED]}
	}
	p.setLink(now)
}
