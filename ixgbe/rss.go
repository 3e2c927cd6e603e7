package ixgbe

import (
	"encoding/binary"
	"errors"
	"fmt"

	"bare.wire/ixgbe/reg"
	"bare.wire/nic"
)

// rssTypes are the MRQC bits for what is hashed (§7.1.2.8.1).
var rssTypes = []struct {
	t    nic.RSSType
	mrqc uint32
}{
	{nic.RSSIPv4, reg.MRQC_RSS_IP4}, {nic.RSSTCP4, reg.MRQC_RSS_TCP4}, {nic.RSSUDP4, reg.MRQC_RSS_UDP4},
	{nic.RSSIPv6, reg.MRQC_RSS_IP6}, {nic.RSSTCP6, reg.MRQC_RSS_TCP6}, {nic.RSSUDP6, reg.MRQC_RSS_UDP6},
}

// completeRSS fills in the defaults of receive-side scaling and checks what was given.
func completeRSS(cfg *nic.Config) error {
	r := &cfg.RSS
	reach := min(cfg.RxQueues, reg.RSSQueues)
	if r.Key == nil {
		r.Key = nic.DefaultRSSKey()
	}
	if len(r.Key) != reg.RSSKeySize {
		return fmt.Errorf("RSS key of %d bytes: want %d", len(r.Key), reg.RSSKeySize)
	}
	if r.Table == nil {
		for i := range reg.RETASize {
			r.Table = append(r.Table, uint8(i%reach))
		}
	}
	if len(r.Table) != reg.RETASize {
		return fmt.Errorf("RSS table of %d entries: want %d", len(r.Table), reg.RETASize)
	}
	for i, q := range r.Table {
		if int(q) >= reach {
			return fmt.Errorf("RSS table entry %d is queue %d: %d queues are configured, and RSS reaches the first %d", i, q, cfg.RxQueues, reg.RSSQueues)
		}
	}
	if no := r.Types &^ nic.RSSAll; no != 0 {
		return fmt.Errorf("RSS types %#x: %w", uint32(no), errors.ErrUnsupported)
	}
	if r.Types == 0 {
		r.Types = nic.RSSAll
	}
	return nil
}

// initRSS programs key, table and types (§7.1.2.8). With one queue and no wish for hashes it is off.
func (p *Port) initRSS() {
	if p.cfg.RxQueues == 1 && p.cfg.Offloads&nic.RxRSSHash == 0 {
		p.write(reg.MRQC, reg.MRQC_MRQE_OFF)
		return
	}
	for i := range reg.RSSRK_Count {
		p.write(reg.RSSRK(i), binary.LittleEndian.Uint32(p.cfg.RSS.Key[4*i:]))
	}
	for i := range reg.RETA_Count {
		p.write(reg.RETA(i), binary.LittleEndian.Uint32(p.cfg.RSS.Table[4*i:]))
	}
	mrqc := reg.MRQC_MRQE_RSS
	for _, x := range rssTypes {
		if p.cfg.RSS.Types&x.t != 0 {
			mrqc |= x.mrqc
		}
	}
	p.write(reg.MRQC, mrqc)
}
