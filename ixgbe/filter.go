package ixgbe

import (
	"context"
	"errors"
	"fmt"

	"bare.wire/ixgbe/reg"
	"bare.wire/nic"
)

// etherVLAN is the EtherType of an 802.1Q tag.
const etherVLAN = 0x8100

// filterState is what is let in. It outlives a restart.
type filterState struct {
	promiscuous, allMulticast bool
	macs                      [reg.RAL_Count][6]byte // entry 0 is the card's own
	used                      [reg.RAL_Count]bool
	multicast                 map[[6]byte]bool
	vlans                     map[uint16]bool
}

// initFilters writes the whole filter state (§7.1.1). Frames begin to come in only with RXCTRL.RXEN.
func (p *Port) initFilters(context.Context) error {
	f := &p.filters
	if f.vlans == nil {
		f.vlans, f.multicast = map[uint16]bool{}, map[[6]byte]bool{}
		f.macs[0], f.used[0] = p.info.MAC, true
	}
	f.promiscuous, f.allMulticast = p.cfg.Promiscuous, p.cfg.AllMulticast
	p.write(reg.VT_CTL, 0)
	for i := range reg.RAL_Count {
		p.writeRAR(i)
	}
	p.writeMulticast()
	p.writeVLANs()
	p.writeFCTRL()
	return nil
}

// writeRAR writes one exact-match address (§8.2.3.7.8 – 9). The entry is invalid while it changes.
func (p *Port) writeRAR(i int) {
	p.write(reg.RAH(i), 0)
	m := p.filters.macs[i]
	p.write(reg.RAL(i), uint32(m[0])|uint32(m[1])<<8|uint32(m[2])<<16|uint32(m[3])<<24)
	if p.filters.used[i] {
		p.write(reg.RAH(i), uint32(m[4])|uint32(m[5])<<8|reg.RAH_AV)
	}
	// Pool 0, in case anybody turns pools on.
	if i == 0 {
		p.write(reg.MPSAR_LO(0), 1)
	} else {
		p.write(reg.MPSAR_LO(i), 0)
	}
	p.write(reg.MPSAR_HI(i), 0)
}

// writeMulticast writes the 4096-bit table, indexed by bits 47:36 of the address (§7.1.1.2, MCSTCTRL.MO = 0). It lets
// others through that share a bit.
func (p *Port) writeMulticast() {
	var table [reg.MTA_Count]uint32
	for m := range p.filters.multicast {
		bit := uint32(m[5])<<4 | uint32(m[4])>>4
		table[bit>>5] |= 1 << (bit & 31)
	}
	for i, v := range table {
		p.write(reg.MTA(i), v)
	}
	v := reg.MCSTCTRL_MO_47_36
	if len(p.filters.multicast) > 0 {
		v |= reg.MCSTCTRL_MFE
	}
	p.write(reg.MCSTCTRL, v)
}

// writeVLANs writes the VLAN table (§7.1.1.3); empty, the filter is off.
func (p *Port) writeVLANs() {
	var table [reg.VFTA_Count]uint32
	for vid := range p.filters.vlans {
		table[vid>>5] |= 1 << (vid & 31)
	}
	for i, v := range table {
		p.write(reg.VFTA(i), v)
	}
	v := p.read(reg.VLNCTRL) &^ (reg.VLNCTRL_VFE | reg.VLNCTRL_CFIEN | reg.VLNCTRL_VET)
	v |= etherVLAN
	if len(p.filters.vlans) > 0 && !p.filters.promiscuous {
		v |= reg.VLNCTRL_VFE
	}
	p.write(reg.VLNCTRL, v)
}

// writeFCTRL writes the wide filters: broadcast always, the rest as asked (§8.2.3.7.1). Bad frames stay out.
func (p *Port) writeFCTRL() {
	v := p.read(reg.FCTRL) &^ (reg.FCTRL_SBP | reg.FCTRL_UPE | reg.FCTRL_MPE)
	v |= reg.FCTRL_BAM
	if p.filters.promiscuous {
		v |= reg.FCTRL_UPE | reg.FCTRL_MPE
	}
	if p.filters.allMulticast {
		v |= reg.FCTRL_MPE
	}
	p.write(reg.FCTRL, v)
}

// Filters implements nic.Port.
func (p *Port) Filters() nic.Filters { return (*filters)(p) }

// filters is the Port as nic.Filters.
type filters Port

// change runs f under the lock of a started port.
func (f *filters) change(what string, do func(p *Port) error) error {
	p := (*Port)(f)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		return fmt.Errorf("%s: %s: %w", p.info.Name, what, nic.ErrNotStarted)
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s: %s: %w", p.info.Name, what, err)
	}
	if err := do(p); err != nil {
		return fmt.Errorf("%s: %s: %w", p.info.Name, what, err)
	}
	return nil
}

// SetPromiscuous lets every frame in, whatever its address or VLAN.
func (f *filters) SetPromiscuous(on bool) error {
	return f.change("set promiscuous", func(p *Port) error {
		p.filters.promiscuous = on
		p.writeVLANs()
		p.writeFCTRL()
		return nil
	})
}

// SetAllMulticast lets every multicast frame in.
func (f *filters) SetAllMulticast(on bool) error {
	return f.change("set all-multicast", func(p *Port) error {
		p.filters.allMulticast = on
		p.writeFCTRL()
		return nil
	})
}

// AddMAC implements nic.Filters. Unicast addresses have exact entries, multicast ones share a hash table.
func (f *filters) AddMAC(mac [6]byte) error {
	return f.change("add MAC filter", func(p *Port) error {
		if mac[0]&1 != 0 {
			p.filters.multicast[mac] = true
			p.writeMulticast()
			return nil
		}
		free := 0
		for i := range p.filters.used {
			switch {
			case p.filters.used[i] && p.filters.macs[i] == mac:
				return nil
			case !p.filters.used[i] && free == 0:
				free = i
			}
		}
		if free == 0 {
			return fmt.Errorf("%x: all %d entries are in use: remove one or set promiscuous", mac, reg.RAL_Count)
		}
		p.filters.macs[free], p.filters.used[free] = mac, true
		p.writeRAR(free)
		return nil
	})
}

// RemoveMAC implements nic.Filters. The card's own address stays.
func (f *filters) RemoveMAC(mac [6]byte) error {
	return f.change("remove MAC filter", func(p *Port) error {
		if mac[0]&1 != 0 {
			delete(p.filters.multicast, mac)
			p.writeMulticast()
			return nil
		}
		for i := 1; i < len(p.filters.used); i++ {
			if p.filters.used[i] && p.filters.macs[i] == mac {
				p.filters.macs[i], p.filters.used[i] = [6]byte{}, false
				p.writeRAR(i)
			}
		}
		return nil
	})
}

// AddVLAN implements nic.Filters.
func (f *filters) AddVLAN(vid uint16) error { return f.setVLAN("add VLAN filter", vid, true) }

// RemoveVLAN implements nic.Filters.
func (f *filters) RemoveVLAN(vid uint16) error { return f.setVLAN("remove VLAN filter", vid, false) }

func (f *filters) setVLAN(what string, vid uint16, on bool) error {
	return f.change(what, func(p *Port) error {
		if vid > 4095 {
			return fmt.Errorf("VLAN id %d: want 0 to 4095", vid)
		}
		if on {
			p.filters.vlans[vid] = true
		} else {
			delete(p.filters.vlans, vid)
		}
		p.writeVLANs()
		return nil
	})
}

// AddFlow implements nic.Filters; the card could, this driver does not yet.
func (f *filters) AddFlow(nic.Flow) (nic.FlowID, error) {
	return 0, fmt.Errorf("%s: flow rules: %w", f.info.Name, errors.ErrUnsupported)
}

// RemoveFlow implements nic.Filters.
func (f *filters) RemoveFlow(nic.FlowID) error {
	return fmt.Errorf("%s: flow rules: %w", f.info.Name, errors.ErrUnsupported)
}
