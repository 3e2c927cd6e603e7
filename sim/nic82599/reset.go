package nic82599

import (
	"bare.wire/ixgbe/reg"
	"bare.wire/sim"
)

// powerOn is power-on and function-level reset: registers and configuration space at their defaults.
func (c *Card) powerOn() {
	c.resetConfig()
	c.resetRegisters()
	c.resetting = false
	if c.cfg.Faults.SMBIHeld {
		c.set(reg.SWSM, reg.SWSM_SMBI)
	}
}

// resetRegisters is what a reset of the function does (§4.2.1): all DMA stops, registers go to their defaults, and the
// EEPROM is read again, which takes a while.
func (c *Card) resetRegisters() {
	c.vals = [reg.BARSize / 4]uint32{}
	c.count.Resets++
	for i := range cells {
		if v := cells[i].reset; v != 0 {
			c.set(cells[i].off, v)
		}
	}
	if !c.cfg.BareReset {
		for i := range cells {
			if v := cells[i].habit; v != 0 {
				c.set(cells[i].off, v)
			}
		}
	}
	c.mod.bus, c.spi = i2c{scl: true, sda: true}, spi{cs: true}
	clear(c.latch)
	c.set(reg.STATUS, uint32(c.cfg.LAN)<<2)
	c.tx.reset()
	c.rx.reset()
	c.irq.reset()
	c.watch.reset()
	c.flt.stale, c.rss.stale = true, true
	c.lanMAC = false
	c.sticky = c.rng.Below(3)

	half := int64(c.cfg.Timing.AutoRead) / 2
	c.ready.start(c.now, half+c.rng.Delay(c.cfg.Timing.AutoRead/2), 0)
	if c.cfg.Faults.ARDNever {
		c.ready.never()
	}
	c.dmaReady.start(c.ready.at, c.rng.Delay(c.cfg.Timing.AutoRead/4), 0)
	if c.cfg.Faults.DMAIDoneNever {
		c.dmaReady.never()
	}
	c.restartLink()
	c.reheat()
}

// runControl does what the control plane has to do at c.now and returns when there is more.
func (c *Card) runControl() int64 {
	next := sim.Never
	if c.resetting {
		if c.endReset(); c.resetting && c.resetDone.at < 1<<62 {
			next = c.resetDone.at
		}
	}
	if !c.lanMAC {
		if c.now >= c.ready.at {
			c.loadMAC()
		} else if c.ready.at < 1<<62 {
			next = min(next, c.ready.at)
		}
	}
	return min(next, c.runLink())
}

// loadMAC takes the address from the EEPROM into receive address 0.
func (c *Card) loadMAC() {
	c.lanMAC = true
	m := c.cfg.MAC
	c.set(reg.RAL(0), uint32(m[0])|uint32(m[1])<<8|uint32(m[2])<<16|uint32(m[3])<<24)
	c.set(reg.RAH(0), uint32(m[4])|uint32(m[5])<<8|reg.RAH_AV)
	c.flt.stale = true
}

func (c *Card) writeCTRL(v uint32) {
	old := c.val(reg.CTRL)
	if v&(reg.CTRL_RST|reg.CTRL_LNK_RST) != 0 {
		if old&reg.CTRL_GIO_DIS == 0 && c.busMaster() && c.anyQueueOn() {
			c.wrong(ResetBusy, -1, "CTRL = %08X", v)
		}
		c.resetRegisters()
		c.resetting = true
		c.resetDone.start(c.now, 1000+c.rng.Delay(c.cfg.Timing.Enable/2), 2+c.rng.Below(4))
		if c.cfg.Faults.StuckReset {
			c.resetDone.never()
		}
		c.set(reg.CTRL, v&(reg.CTRL_RST|reg.CTRL_LNK_RST))
		return
	}
	c.set(reg.CTRL, v)
	if v&^old&reg.CTRL_GIO_DIS != 0 {
		c.gioIdle.start(c.now, c.rng.Delay(c.cfg.Timing.Enable), 1+c.rng.Below(4))
	}
	c.reheat()
}

func (c *Card) readCTRL() uint32 {
	if c.resetting && c.resetDone.poll(c.now) {
		c.endReset()
	}
	return c.val(reg.CTRL)
}

// anyQueueOn says whether a queue could still do DMA.
func (c *Card) anyQueueOn() bool {
	for i := range Queues {
		if c.rx.q[i].state != qOff || c.tx.q[i].state != qOff {
			return true
		}
	}
	return false
}

// endReset lets CTRL.RST clear itself once it is time.
func (c *Card) endReset() {
	if c.now < c.resetDone.at {
		return
	}
	c.resetting = false
	c.set(reg.CTRL, c.val(reg.CTRL)&^(reg.CTRL_RST|reg.CTRL_LNK_RST))
	c.reheat()
}

// readSTATUS shows in GIO whether the card may still use the bus: it stays set after CTRL.GIO_DIS while a request is
// pending.
func (c *Card) readSTATUS() uint32 {
	v := c.val(reg.STATUS)
	if c.val(reg.CTRL)&reg.CTRL_GIO_DIS == 0 || c.cfg.Faults.StickyGIO || c.inFlight() || !c.gioIdle.poll(c.now) {
		v |= reg.STATUS_GIO
	}
	return v
}

func (c *Card) readEEC() uint32 {
	v := c.val(reg.EEC)
	if c.now >= c.ready.at {
		v |= reg.EEC_ARD
	}
	if v&reg.EEC_REQ != 0 {
		v |= reg.EEC_GNT
		if c.spi.out {
			v |= reg.EEC_DO
		}
	}
	return v
}

func (c *Card) readRDRXCTL() uint32 {
	v := c.val(reg.RDRXCTL) &^ reg.RDRXCTL_DMAIDONE
	if c.now >= c.dmaReady.at {
		v |= reg.RDRXCTL_DMAIDONE
	}
	return v
}

// checkSEC starts the wait for a security path that is being stopped.
func (c *Card) checkSEC(off, v uint32) {
	switch off {
	case reg.SECRXCTRL:
		if v&^c.val(off)&reg.SECRXCTRL_RX_DIS != 0 {
			c.secrx.start(c.now, c.rng.Delay(c.cfg.Timing.Enable), 1+c.rng.Below(4))
			if c.cfg.Faults.SECRXNever {
				c.secrx.never()
			}
			c.rx.secSeen = false
		}
	case reg.SECTXCTRL:
		if v&^c.val(off)&reg.SECTXCTRL_TX_DIS != 0 {
			c.sectx.start(c.now, c.rng.Delay(c.cfg.Timing.Enable), 1+c.rng.Below(4))
		}
	}
}

func (c *Card) readSECRXSTAT() uint32 {
	v := c.val(reg.SECRXSTAT)
	if c.secrx.poll(c.now) {
		v |= reg.SECRXSTAT_SECRX_RDY
		c.rx.secSeen = true
	}
	return v
}

func (c *Card) readSECTXSTAT() uint32 {
	v := c.val(reg.SECTXSTAT)
	if c.sectx.poll(c.now) {
		v |= reg.SECTXSTAT_SECTX_RDY
	}
	return v
}

// busMaster says whether the PCI command register lets the card use the bus.
func (c *Card) busMaster() bool {
	return c.command()&cmdBusMaster != 0 && !c.resetting
}

// inFlight says whether the card has requests on the bus, or owes some for work it has begun.
func (c *Card) inFlight() bool {
	return c.busMaster() && (c.tx.owes(c.hot.master) || c.rx.owes(c.hot.master))
}

// reheat takes the fields that the engines look at for every frame from the registers.
func (c *Card) reheat() {
	h := &c.hot
	hl := c.val(reg.HLREG0)
	h.master = c.busMaster() && c.val(reg.CTRL)&reg.CTRL_GIO_DIS == 0
	dma := c.val(reg.DMATXCTL)
	h.txOn = dma&reg.DMATXCTL_TE != 0 && c.val(reg.RTTDCS)&reg.RTTDCS_ARBDIS == 0 && c.val(reg.SECTXCTRL)&reg.SECTXCTRL_TX_DIS == 0
	h.rxOn = c.val(reg.RXCTRL)&reg.RXCTRL_RXEN != 0 && c.val(reg.SECRXCTRL)&reg.SECRXCTRL_RX_DIS == 0
	h.loopback = hl&reg.HLREG0_LPBK != 0
	h.pad, h.strip = hl&reg.HLREG0_TXPADEN != 0, hl&reg.HLREG0_RXCRCSTRP != 0
	h.countLenErr = hl&reg.HLREG0_RXLNGTHERREN != 0
	h.maxRx = 1518
	if hl&reg.HLREG0_JUMBOEN != 0 {
		h.maxRx = int(reg.Get(c.val(reg.MAXFRS), reg.MAXFRS_MFS))
	}
	h.vet = uint16(c.val(reg.VLNCTRL))
	h.insertVT = uint16(dma >> 16)
	h.rxBuf = int(c.val(reg.RXPBSIZE(0)) & reg.RXPBSIZE_SIZE)
	h.txBuf = int(c.val(reg.TXPBSIZE(0)) & reg.TXPBSIZE_SIZE)
	h.psPerByte = int64(8e12 / c.cfg.Speed)
	h.ipidInsteadOfHash = c.val(reg.RXCSUM)&reg.RXCSUM_PCSD == 0
	mf := c.val(reg.MFLCN)
	h.honourPause, h.passMC, h.dropPause = mf&reg.MFLCN_RFCE != 0, mf&reg.MFLCN_PMCF != 0, mf&reg.MFLCN_DPF != 0
	h.sbp = c.val(reg.FCTRL)&reg.FCTRL_SBP != 0
}
