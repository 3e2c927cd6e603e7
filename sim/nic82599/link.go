package nic82599

import (
	"bare.wire/ixgbe/reg"
	"bare.wire/sim"
)

// phy is the link as the MAC sees it.
type phy struct {
	at        int64 // when negotiation is done
	trained   bool  // it is
	unplugged bool  // by SetCable
	up        bool  // and the other side is, too
	wasDown   bool  // since LINKS was last read: the bit is latched low
	hooked    bool
}

// restartLink begins to bring the link up: after a reset and after AUTOC.AN_RESTART.
func (c *Card) restartLink() {
	half := int64(c.cfg.Timing.Link) / 2
	c.phy.at = c.now + half + c.rng.Delay(c.cfg.Timing.Link/2)
	c.phy.trained = false
	if c.end != nil && !c.phy.hooked {
		c.phy.hooked = true
		c.end.OnChange(func(bool) { c.kick() })
		c.end.OnArrival(c.arriving)
	}
	c.runLink()
}

// arriving is told by the wire, with the world locked, when the other end has sent something.
func (c *Card) arriving(at int64) {
	if at < c.next && !c.gone {
		c.next = at
		c.w.Poke()
	}
}

// SetCable pulls the card's cable, or plugs it in.
func (c *Card) SetCable(in bool) {
	c.w.Lock()
	defer c.w.Unlock()
	c.touch()
	c.phy.unplugged = !in
	c.runLink()
	c.kick()
}

// runLink follows the link; it returns when it may come up. The wire has a link when both its ends say they are ready.
func (c *Card) runLink() int64 {
	next := sim.Never
	disabled := c.cfg.Faults.LinkNever || c.mod.absent && !c.hot.loopback || c.resetting || c.val(reg.AUTOC2)&reg.AUTOC2_LINK_DISABLE != 0
	if !c.phy.trained && !disabled {
		c.phy.trained = c.now >= c.phy.at || c.val(reg.AUTOC)&reg.AUTOC_FLU != 0
		next = c.phy.at
	}
	ready := c.phy.trained && !disabled
	cable := false
	if c.end != nil {
		c.end.SetUp(ready && !c.phy.unplugged)
		cable = c.end.Up()
	}
	if up := ready && (cable || c.hot.loopback); up != c.phy.up {
		c.phy.up = up
		c.phy.wasDown = c.phy.wasDown || !up
		if !c.cfg.Faults.NoLSC {
			c.raise(0, reg.EICR_LSC)
		}
	}
	if c.phy.trained {
		return sim.Never
	}
	return next
}

// readLINKS shows the link as up only if it has not been down since the last read.
func (c *Card) readLINKS() uint32 {
	down := c.phy.wasDown
	c.phy.wasDown = !c.phy.up
	if !c.phy.up {
		return 0
	}
	speed := uint32(3)
	switch {
	case c.cfg.Speed <= 100e6:
		speed = 1
	case c.cfg.Speed <= 1e9:
		speed = 2
	}
	v := reg.Put(reg.Put(0, reg.LINKS_SPEED, speed), reg.LINKS_MODE, 2)
	if !down {
		v |= reg.LINKS_UP | reg.LINKS_STICKY_UP
	}
	return v
}

func (c *Card) writeAUTOC(off, v uint32) {
	if off == reg.AUTOC && v&reg.AUTOC_AN_RESTART != 0 {
		c.restartLink()
	}
	if off == reg.AUTOC && c.cfg.Faults.FirmwareHeld != 0 && c.val(reg.GSSR)&reg.GSSR_MAC_CSR_SM == 0 {
		c.wrong(SemaphoreMissing, -1, "AUTOC = %08X without GSSR.MAC_CSR_SM while the firmware is at work", v)
	}
}

// writeMSCA answers for an MDIO bus without a PHY: all ones.
func (c *Card) writeMSCA(v uint32) {
	if v&reg.MSCA_COMMAND == 0 {
		return
	}
	if c.val(reg.GSSR)&(reg.GSSR_PHY0_SM|reg.GSSR_PHY1_SM) == 0 {
		c.wrong(SemaphoreMissing, -1, "MSCA = %08X without a PHY's bit in GSSR", v)
	}
	c.set(reg.MSRWD, c.val(reg.MSRWD)|reg.MSRWD_READ)
}
