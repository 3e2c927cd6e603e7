package nic82599

import (
	"bare.wire/ixgbe/reg"
)

// hook names what is special about a register. Everything else follows from its row in the table.
type hook uint8

const (
	plain hook = iota
	hCTRL
	hSTATUS
	hEEC
	hEERD
	hEEWR
	hSWSM
	hGSSR
	hFRTIMER
	hEICR
	hEICS
	hEIMS
	hEIMC
	hEICSEX
	hEIMSEX
	hEIMCEX
	hRDRXCTL
	hRXCTRL
	hRingBase
	hRingLen
	hHead
	hRDT
	hTDT
	hRXDCTL
	hTXDCTL
	hSRRCTL
	hMTQC
	hMRQC
	hRSSKey
	hFilter
	hHot
	hRxSetup
	hAUTOC
	hLINKS
	hSECRXSTAT
	hSECTXSTAT
	hFDIRCTRL
	hMSCA
	hI2CCTL
	hESDP
	hGPIE
)

// hooks says which registers are special, by name.
var hooks = map[string]hook{
	"CTRL": hCTRL, "STATUS": hSTATUS, "EEC": hEEC, "EERD": hEERD, "EEWR": hEEWR, "SWSM": hSWSM, "GSSR": hGSSR, "FRTIMER": hFRTIMER,
	"EICR": hEICR, "EICS": hEICS, "EIMS": hEIMS, "EIMC": hEIMC, "EICS_EX": hEICSEX, "EIMS_EX": hEIMSEX, "EIMC_EX": hEIMCEX,
	"RDRXCTL": hRDRXCTL, "RXCTRL": hRXCTRL,
	"RDBAL": hRingBase, "RDBAH": hRingBase, "TDBAL": hRingBase, "TDBAH": hRingBase, "RDLEN": hRingLen, "TDLEN": hRingLen,
	"RDH": hHead, "TDH": hHead, "RDT": hRDT, "TDT": hTDT, "RXDCTL": hRXDCTL, "TXDCTL": hTXDCTL, "SRRCTL": hSRRCTL,
	"MTQC": hMTQC, "MRQC": hMRQC, "RSSRK": hRSSKey,
	"RAL": hFilter, "RAH": hFilter, "MCSTCTRL": hFilter, "FCTRL": hFilter, "VLNCTRL": hFilter,
	"HLREG0": hRxSetup, "RXPBSIZE": hRxSetup, "RXCSUM": hRxSetup,
	"MAXFRS": hHot, "MFLCN": hHot, "TXPBSIZE": hHot, "DMATXCTL": hHot, "RTTDCS": hHot, "SECRXCTRL": hHot, "SECTXCTRL": hHot,
	"AUTOC": hAUTOC, "AUTOC2": hAUTOC, "LINKS": hLINKS, "SECRXSTAT": hSECRXSTAT, "SECTXSTAT": hSECTXSTAT,
	"FDIRCTRL": hFDIRCTRL, "MSCA": hMSCA, "I2CCTL": hI2CCTL, "ESDP": hESDP, "GPIE": hGPIE,
}

// cell is what one register of an array does.
type cell struct {
	off   uint32 // canonical: an alias has the cell of what it is an alias of
	index uint16
	hook  hook
	rx    bool // of a receive ring
	fixed bool // writes change nothing
	mode  reg.Mode
	keep  uint32 // bits that keep what is written
	clear uint32 // bits that a read clears
	reset uint32
	habit uint32 // reset value that only a driver's habits tell
	alien uint32 // bits that the model does not obey
	name  *reg.Reg
}

// resets are values after a reset for registers of which the table knows none: where 0 would not do, or would hide a
// driver's mistake.
var resets = map[string]uint32{
	"DCA_RXCTRL": reg.DCA_RXCTRL_MUST_CLEAR | reg.DCA_RXCTRL_DESC_RRO_EN | reg.DCA_RXCTRL_DATA_WRO_EN | reg.DCA_RXCTRL_HEAD_WRO_EN,
	"RDRXCTL":    8 << 17, // RSCFRSTSIZE, which software has to clear
	"VLNCTRL":    0x8100,
	"DMATXCTL":   0x8100 << 16,
	"DTXTCPFLGL": 0x0F76<<16 | 0x0FF6, // no FIN or PSH but in the last segment, no CWR but in the first
	"DTXTCPFLGH": 0x0F7F,
	"FWSM":       reg.FWSM_FW_VALID | 2<<1,
	"EEC":        reg.EEC_PRES | reg.EEC_ADDR_SIZE | 6<<11, // 4096 words, addresses of 16 bits
	"AUTOC":      3<<13 | reg.AUTOC_PMA_1G,
	"ANLP1":      1 << 16,
	"I2CCTL":     reg.I2CCTL_CLK_OUT | reg.I2CCTL_DATA_OUT,
	"LEDCTL":     0x00000104,
	"SECRXSTAT":  reg.SECRXSTAT_SECRX_OFF_DIS,
	"SECTXSTAT":  reg.SECTXSTAT_SECTX_OFF_DIS,
}

// habits are values after a reset that no text states, but on which Linux's driver relies: it does not write these bits and
// they have to be as they are here. With Config.BareReset they are 0, so that a driver is found out that relies on them.
var habits = map[string]uint32{
	"HLREG0": reg.HLREG0_TXCRCEN | reg.HLREG0_RXCRCSTRP | reg.HLREG0_TXPADEN | reg.HLREG0_RXLNGTHERREN,
}

// absent are the bits that turn on what the model does not do.
var absent = map[string]uint32{
	"FTQF": reg.FTQF_ENABLE, "ETQF": reg.ETQF_FILTER_EN, "SYNQF": reg.SYNQF_ENABLE, "FDIRCTRL": reg.FDIRCTRL_PBALLOC,
	"VT_CTL": reg.VT_CTL_VT_ENABLE, "FCCFG": reg.FCCFG_TFCE_PRIORITY, "RSCCTL": reg.RSCCTL_RSCEN,
}

// cells has an entry for each register that exists, cellAt the entry for each 32-bit word of the window, 0 for none. They
// are the register table in the form that an access needs, the same for all cards.
var cells, cellAt = makeCells()

func makeCells() ([]cell, *[reg.BARSize / 4]uint16) {
	list, at := make([]cell, 1), new([reg.BARSize / 4]uint16)
	for _, r := range reg.All() {
		keep, _ := r.WriteMask()
		proto := cell{
			hook: hooks[r.Name], mode: r.Mode, name: &r,
			keep:  keep &^ r.Bits(reg.SC) &^ r.Bits(reg.WO),
			clear: r.Bits(reg.RC),
			fixed: keep == 0,
			alien: absent[r.Name],
			habit: habits[r.Name],
			rx:    len(r.Name) > 1 && r.Name[0] == 'R',
		}
		for n := range r.Count() {
			c := proto
			c.index = uint16(n)
			c.off, _ = r.Offset(n)
			var known bool
			if c.reset, known = r.ResetValue(n); !known {
				c.reset = resets[r.Name]
			}
			at[c.off/4] = uint16(len(list))
			list = append(list, c)
		}
		n := 0
		for _, b := range r.Aliases {
			for k := range b.Count {
				off, _ := r.Offset(n)
				at[(b.Off+uint32(k)*b.Stride)/4] = at[off/4]
				n++
			}
		}
	}
	return list, at
}

// find returns the register at off; nil for none, which is kept as misuse.
func (c *Card) find(off uint32, what string) *cell {
	if off < reg.BARSize && off%4 == 0 {
		if i := cellAt[off/4]; i != 0 {
			return &cells[i]
		}
	}
	c.wrong(UndefinedRegister, -1, "%s of %05X", what, off)
	return nil
}

// Size is the length of the register window in bytes.
func (c *Card) Size() int { return reg.BARSize }

// val returns the contents of a register, by its canonical offset.
func (c *Card) val(off uint32) uint32 { return c.vals[off/4] }

// set changes the contents of a register, by its canonical offset.
func (c *Card) set(off, v uint32) { c.vals[off/4] = v }

// Read32 reads the register at off. A removed card reads as all ones.
func (c *Card) Read32(off uint32) uint32 {
	c.w.Lock()
	defer c.w.Unlock()
	c.touch()
	if c.gone {
		return 0xFFFFFFFF
	}
	r := c.find(off, "read")
	if r == nil {
		return 0
	}
	return c.read(r)
}

func (c *Card) read(r *cell) uint32 {
	n := int(r.index)
	switch r.hook {
	case hCTRL:
		return c.readCTRL()
	case hSTATUS:
		return c.readSTATUS()
	case hEEC:
		return c.readEEC()
	case hEERD:
		return c.readEERD()
	case hSWSM:
		return c.readSWSM()
	case hGSSR:
		return c.val(reg.GSSR) | c.cfg.Faults.FirmwareHeld
	case hFRTIMER:
		return uint32(c.now / 1000)
	case hEICR:
		return c.readEICR()
	case hEICS: // the causes, and none is cleared: Linux's way round an erratum, read here and write EICR
		return c.causes()
	case hI2CCTL:
		return c.readI2CCTL()
	case hESDP:
		return c.readESDP()
	case hEIMS:
		return uint32(c.irq.mask)&^miscBits | c.irq.miscMask
	case hEIMSEX:
		return uint32(c.irq.mask >> (32 * n))
	case hRDRXCTL:
		return c.readRDRXCTL()
	case hHead:
		return c.readHead(r.rx, n)
	case hRXDCTL:
		return c.readRXDCTL(n)
	case hTXDCTL:
		return c.readTXDCTL(n)
	case hLINKS:
		return c.readLINKS()
	case hSECRXSTAT:
		return c.readSECRXSTAT()
	case hSECTXSTAT:
		return c.readSECTXSTAT()
	}
	switch r.mode {
	case reg.WO:
		return 0
	case reg.RC36Lo:
		return c.readLow(r.off)
	case reg.RC36Hi:
		return c.readHigh(r.off)
	}
	v := c.val(r.off)
	if !c.cfg.Faults.NoClearOnRead {
		c.set(r.off, v&^r.clear)
	}
	return v
}

// Write32 writes the register at off.
func (c *Card) Write32(off, v uint32) {
	c.w.Lock()
	defer c.w.Unlock()
	if c.gone {
		return
	}
	r := c.find(off, "write")
	if r == nil {
		return
	}
	switch r.hook {
	case hRDT:
		c.now = c.clk.Nanos()
		c.writeRDT(int(r.index), v&^(c.flipped(r)&0xFFFF))
		c.flip(r, v)
		return
	case hTDT:
		c.now = c.clk.Nanos()
		c.writeTDT(int(r.index), v&^(c.flipped(r)&0xFFFF))
		c.flip(r, v)
		return
	}
	c.touch()
	if r.fixed {
		c.flip(r, v)
	}
	if c.gone || !c.mayWrite(r, v) {
		return
	}
	c.write(r, v)
	c.kick()
}

// mayWrite checks what holds for every register; false: the write is lost.
func (c *Card) mayWrite(r *cell, v uint32) bool {
	switch {
	case r.fixed && r.mode != reg.WO:
		c.wrong(ReadOnlyWrite, -1, "%s = %08X", reg.Name(r.off), v)
		return false
	case c.resetting:
		c.wrong(AccessInReset, -1, "%s = %08X", reg.Name(r.off), v)
		return false
	case c.now < c.dmaReady.at && !earlyWrite[r.hook]:
		c.wrong(WriteBeforeReady, -1, "%s = %08X", reg.Name(r.off), v)
	}
	return true
}

// earlyWrite are the registers that may be written before the card has finished its start after a reset.
var earlyWrite = map[hook]bool{hCTRL: true, hEIMC: true, hEIMCEX: true, hSWSM: true, hGSSR: true}

func (c *Card) write(r *cell, v uint32) {
	n := int(r.index)
	old := c.val(r.off)
	keep := r.keep ^ c.flipped(r)
	kept := old&^keep | v&keep
	if v&r.alien != 0 {
		c.wrong(Unsupported, -1, "%s = %08X", reg.Name(r.off), v)
	}
	switch r.hook {
	case hCTRL:
		c.writeCTRL(v)
		return
	case hEERD:
		c.writeEERD(v)
		return
	case hEEWR:
		c.writeEEWR(v)
		return
	case hSWSM:
		c.writeSWSM(v)
		return
	case hGSSR:
		c.writeGSSR(v)
		return
	case hEICR:
		c.writeEICR(v)
		return
	case hEICS:
		if !c.cfg.Faults.NoEICS {
			c.raise(split(v))
		}
		return
	case hEICSEX:
		if !c.cfg.Faults.NoEICS {
			c.raise(uint64(v)<<(32*n), 0)
		}
		return
	case hEIMS:
		if v == 0 {
			c.wrong(MaskWrittenZero, -1, "EIMS = 0")
		}
		c.enableInterrupts(split(v))
		return
	case hEIMSEX:
		c.enableInterrupts(uint64(v)<<(32*n), 0)
		return
	case hEIMC:
		c.irq.mask &^= uint64(v &^ miscBits)
		c.irq.miscMask &^= v & miscBits
		return
	case hEIMCEX:
		c.irq.mask &^= uint64(v) << (32 * n)
		return
	case hRingBase:
		c.writeRingBase(r, v)
	case hRingLen:
		c.writeRingLen(r, v)
	case hHead:
		c.writeHead(r.rx, n, v)
		return
	case hRXDCTL:
		c.writeRXDCTL(n, old, kept)
		return
	case hTXDCTL:
		c.writeTXDCTL(n, old, kept)
		return
	case hMTQC:
		c.writeMTQC(v)
	case hMRQC:
		c.writeMRQC(v)
	case hRXCTRL:
		c.writeRXCTRL(old, kept)
	case hRxSetup, hRDRXCTL:
		c.checkRxSetup(r, old, kept)
	case hMSCA:
		c.writeMSCA(v)
	case hEEC:
		c.writeEEC(v)
	case hI2CCTL:
		c.writeI2CCTL(v)
	case hAUTOC:
		c.writeAUTOC(r.off, v)
	case hFDIRCTRL:
		kept |= reg.FDIRCTRL_INIT_DONE
	case hHot:
		c.checkSEC(r.off, kept)
	}
	c.set(r.off, kept)
	switch r.hook {
	case hRSSKey:
		c.rss.stale = true
	case hFilter:
		c.flt.stale = true
	case hSRRCTL:
		c.rx.q[n].reload(c)
	}
	c.reheat()
}

// Preset puts a value into a register past all rules, 36-bit counters whole: for tests that start a counter next to its
// wrap. off is that of the low half.
func (c *Card) Preset(off uint32, v uint64) {
	c.w.Lock()
	defer c.w.Unlock()
	r := c.find(off, "preset")
	if r == nil {
		return
	}
	c.set(r.off, uint32(v))
	if r.mode == reg.RC36Lo {
		c.set(r.off+4, uint32(v>>32)&0xF)
	}
}

// Peek returns the contents of a register without any effect of reading, 36-bit counters whole: for tests that look at
// what a driver has programmed or counted.
func (c *Card) Peek(off uint32) uint64 {
	c.w.Lock()
	defer c.w.Unlock()
	r := c.find(off, "peek")
	if r == nil {
		return 0
	}
	v := uint64(c.val(r.off))
	if r.mode == reg.RC36Lo {
		v |= uint64(c.val(r.off+4)) << 32
	}
	return v
}
