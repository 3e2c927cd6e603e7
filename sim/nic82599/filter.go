package nic82599

import (
	"bare.wire/ixgbe/reg"
)

// filters are the address filters as programmed, in the form that a frame needs.
type filters struct {
	stale bool
	addrs []uint64 // the valid receive addresses, first byte lowest
	upe   bool
	mpe   bool
	bam   bool
	mfe   bool
	mo    uint
	vfe   bool
	cfi   uint32 // VLNCTRL, of which CFIEN and CFI matter
}

const broadcast = 0xFFFFFFFFFFFF

func (f *filters) build(c *Card) {
	f.stale = false
	f.addrs = f.addrs[:0]
	for n := range reg.RAL_Count {
		if hi := c.val(reg.RAH(n)); hi&reg.RAH_AV != 0 {
			f.addrs = append(f.addrs, uint64(c.val(reg.RAL(n)))|uint64(hi&0xFFFF)<<32)
		}
	}
	fc, mc, vl := c.val(reg.FCTRL), c.val(reg.MCSTCTRL), c.val(reg.VLNCTRL)
	f.upe, f.mpe, f.bam = fc&reg.FCTRL_UPE != 0, fc&reg.FCTRL_MPE != 0, fc&reg.FCTRL_BAM != 0
	f.mfe, f.mo = mc&reg.MCSTCTRL_MFE != 0, uint(mc&reg.MCSTCTRL_MO)
	f.vfe, f.cfi = vl&reg.VLNCTRL_VFE != 0, vl
}

// pass says whether a frame gets through the address and VLAN filters (§7.1.1).
func (c *Card) pass(frame []byte) bool {
	f := &c.flt
	if f.stale {
		f.build(c)
	}
	if !c.passAddress(destination(frame)) {
		return false
	}
	if !f.vfe || be16(frame[12:]) != c.hot.vet || len(frame) < 18 {
		return true
	}
	tci := uint32(be16(frame[14:]))
	if f.cfi&reg.VLNCTRL_CFIEN != 0 && (f.cfi&reg.VLNCTRL_CFI != 0) != (tci>>12&1 != 0) {
		return false
	}
	vid := tci & 0xFFF
	if c.cfg.Faults.BadVFTA {
		vid = (vid + 1) & 0xFFF
	}
	return c.cfg.Faults.NoVLANFilter || c.val(reg.VFTA(int(vid>>5)))>>(vid&31)&1 != 0
}

// destination is the destination address, first byte lowest.
func destination(frame []byte) uint64 {
	return uint64(frame[0]) | uint64(frame[1])<<8 | uint64(frame[2])<<16 | uint64(frame[3])<<24 | uint64(frame[4])<<32 | uint64(frame[5])<<40
}

func (c *Card) passAddress(d uint64) bool {
	f := &c.flt
	switch {
	case d == broadcast:
		return f.bam
	case d&1 != 0 && f.mpe, d&1 == 0 && f.upe:
		return true
	}
	for _, a := range f.addrs {
		if a == d || c.cfg.Faults.BadAddress && a^d == 1<<40 {
			return true
		}
	}
	if d&1 == 0 || !f.mfe {
		return false
	}
	// 12 of the address's bits 47…32 index the table; the last byte on the wire has bits 47…40 (§8.2.3.7.7).
	if c.cfg.Faults.BadMTA {
		d += 1 << 36
	}
	h := d >> 32 & 0xFFFF >> [4]uint{4, 3, 2, 0}[f.mo] & 0xFFF
	return c.val(reg.MTA(int(h>>5)))>>(h&31)&1 != 0
}
