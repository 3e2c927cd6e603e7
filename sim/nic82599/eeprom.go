package nic82599

import "bare.wire/ixgbe/reg"

// Words of the EEPROM.
const (
	nvmWords    = 4096
	nvmFirmware = 0x0F
	nvmPBA      = 0x15
	nvmSFPList  = 0x2B
	nvmCaps     = 0x2C
	nvmChecksum = 0x3F
	nvmSum      = 0xBABA
)

// makeNVM returns a valid image: address, part number, capabilities, the sections that drivers look for, and a checksum
// over it all.
func makeNVM(mac [6]byte, lan int) []uint16 {
	w := make([]uint16, nvmWords)
	for i := range 0x40 {
		w[i] = 0xFFFF
	}
	w[0] = 0x0004
	w[1], w[2] = 0, 0

	// Sections that words 3…E point to; the first word of each is its length in words.
	section := func(ptr, at int, words ...uint16) {
		w[ptr] = uint16(at)
		w[at] = uint16(len(words))
		copy(w[at+1:], words)
	}
	section(0x03, 0x100, 0x1111, 0x2222) // PCIe analog
	section(0x04, 0x110, 0, 1, 2, 3)     // core 0
	section(0x05, 0x120, 0, 1, 2, 3)
	section(0x06, 0x130, 0x3333, 0x4444) // PCIe general
	section(0x07, 0x140, 0x0000, 0x10FB, 0x8086)
	section(0x08, 0x150, 0x0000, 0x10FB, 0x8086)
	macWords := []uint16{uint16(mac[0]) | uint16(mac[1])<<8, uint16(mac[2]) | uint16(mac[3])<<8, uint16(mac[4]) | uint16(mac[5])<<8}
	section(0x09+lan, 0x160+lan*16, macWords...)

	w[nvmFirmware] = 0x180
	w[0x182] = 0xFFFF // no LESM
	w[0x184] = 0x190  // patch block
	w[0x197] = 0x0010 // its version: production
	w[nvmPBA], w[nvmPBA+1] = 0xE664, 0x0100
	w[0x26], w[0x28] = 0xFFFF, 0xFFFF // no alternative, no SAN address
	w[nvmCaps] = 0x0083               // any SFP+, no FCoE, no crosstalk workaround

	// SFP+ initialisation: pairs of module type and where its list of CORECTL values starts.
	w[nvmSFPList] = 0x1A0
	w[0x1A0] = 0xFFFF
	for t := range uint16(12) {
		w[0x1A1+2*t], w[0x1A2+2*t] = t, 0x1C0
	}
	w[0x1A1+24] = 0xFFFF
	w[0x1C0], w[0x1C1], w[0x1C2] = 0x0001, 0x0101, 0xFFFF

	w[nvmChecksum] = nvmSum - sumNVM(w)
	return w
}

// sumNVM adds words 0…3E and every section that words 3…E point to.
func sumNVM(w []uint16) uint16 {
	var sum uint16
	for _, v := range w[:nvmChecksum] {
		sum += v
	}
	for _, ptr := range w[0x03:0x0F] {
		if ptr == 0 || int(ptr) >= len(w) {
			continue
		}
		n := int(w[ptr])
		for i := int(ptr) + 1; i <= int(ptr)+n && i < len(w); i++ {
			sum += w[i]
		}
	}
	return sum
}

func (c *Card) writeEERD(v uint32) {
	if v&reg.EERD_START == 0 {
		return
	}
	c.set(reg.EERD, v&reg.EERD_ADDR)
	c.eerd.start(c.now, c.rng.Delay(c.cfg.Timing.Enable), 1+c.rng.Below(4))
	if c.now < c.ready.at {
		c.eerd.never()
	}
}

func (c *Card) readEERD() uint32 {
	v := c.val(reg.EERD) & reg.EERD_ADDR
	if !c.eerd.poll(c.now) {
		return v
	}
	word := uint32(0xFFFF)
	if a := int(reg.Get(v, reg.EERD_ADDR)); a < len(c.nvm) {
		word = uint32(c.nvm[a])
		if a == nvmChecksum && c.cfg.Faults.BadEEPROM {
			word = (word + 1) & 0xFFFF
		}
	}
	return v | reg.EERD_DONE | word<<16
}

func (c *Card) writeEEWR(v uint32) {
	if v&reg.EEWR_START == 0 {
		return
	}
	if c.val(reg.GSSR)&reg.GSSR_EEP_SM == 0 {
		c.wrong(SemaphoreMissing, -1, "EEWR = %08X without GSSR.EEP_SM", v)
	}
	if a := int(reg.Get(v, reg.EEWR_ADDR)); a < len(c.nvm) {
		c.nvm[a] = uint16(v >> 16)
	}
	c.set(reg.EEWR, v&^reg.EEWR_START|reg.EEWR_DONE)
}

// readSWSM takes the semaphore between drivers: it returns what SMBI was and leaves it set.
func (c *Card) readSWSM() uint32 {
	v := c.val(reg.SWSM)
	if c.cfg.Faults.SMBIAlways {
		v |= reg.SWSM_SMBI
	}
	c.set(reg.SWSM, v|reg.SWSM_SMBI)
	return v
}

// writeSWSM lets SWESMBI stick only once the firmware has let go.
func (c *Card) writeSWSM(v uint32) {
	old := c.val(reg.SWSM)
	if v&^old&reg.SWSM_SWESMBI != 0 {
		if old&reg.SWSM_SMBI == 0 {
			c.wrong(SemaphoreMissing, -1, "SWSM.SWESMBI set without SMBI")
		}
		if c.sticky > 0 {
			c.sticky--
			v &^= reg.SWSM_SWESMBI
		} else {
			c.sticky = c.rng.Below(3)
		}
	}
	c.set(reg.SWSM, v&(reg.SWSM_SMBI|reg.SWSM_SWESMBI))
}

func (c *Card) writeGSSR(v uint32) {
	if c.val(reg.SWSM)&reg.SWSM_SWESMBI == 0 {
		c.wrong(SemaphoreMissing, -1, "GSSR = %08X without SWSM.SWESMBI", v)
	}
	// The firmware's bits are not software's to write.
	const software = reg.GSSR_EEP_SM | reg.GSSR_PHY0_SM | reg.GSSR_PHY1_SM | reg.GSSR_MAC_CSR_SM | reg.GSSR_FLASH_SM
	c.set(reg.GSSR, c.val(reg.GSSR)&^software|v&software)
}
