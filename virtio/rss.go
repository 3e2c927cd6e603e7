package virtio

import (
	"encoding/binary"
	"errors"
	"fmt"

	"bare.wire/nic"
	"bare.wire/virtio/spec"
)

// hashTypes are the bits of the device for what is hashed (§5.1.6.4.3.1).
var hashTypes = []struct {
	t   nic.RSSType
	bit uint32
}{
	{nic.RSSIPv4, spec.HashIPv4}, {nic.RSSTCP4, spec.HashTCPv4}, {nic.RSSUDP4, spec.HashUDPv4},
	{nic.RSSIPv6, spec.HashIPv6}, {nic.RSSTCP6, spec.HashTCPv6}, {nic.RSSUDP6, spec.HashUDPv6},
}

// hashable is what of nic.RSSAll the device can hash.
func (c *deviceConfig) hashable() (t nic.RSSType) {
	for _, h := range hashTypes {
		if c.hashTypes&h.bit != 0 {
			t |= h.t
		}
	}
	return t
}

// canHash says whether key and hash types of package nic fit the device.
func (c *deviceConfig) canHash() bool { return c.rssKey >= nic.RSSKeySize && c.hashable() != 0 }

// canSpread says that its table does too.
func (c *deviceConfig) canSpread() bool { return c.canHash() && c.rssTable >= spec.RSSTable }

// completeRSS fills in the defaults of receive-side scaling and checks what was given.
func (p *Port) completeRSS(cfg *nic.Config) error {
	r := &cfg.RSS
	hashes := p.info.RSSQueues > 0 || p.info.Offloads&nic.RxRSSHash != 0
	if !hashes {
		if r.Key != nil || r.Table != nil || r.Types != 0 {
			return fmt.Errorf("RSS: the device has none (features rss and hash_report are not usable): %w", errors.ErrUnsupported)
		}
		return nil
	}
	if r.Key == nil {
		r.Key = nic.DefaultRSSKey()
	}
	if len(r.Key) != nic.RSSKeySize {
		return fmt.Errorf("RSS key of %d bytes: want %d", len(r.Key), nic.RSSKeySize)
	}
	reach := max(1, min(cfg.RxQueues, p.info.RSSQueues))
	if r.Table == nil {
		for i := range spec.RSSTable {
			r.Table = append(r.Table, uint8(i%reach))
		}
	}
	if len(r.Table) != spec.RSSTable {
		return fmt.Errorf("RSS table of %d entries: want %d", len(r.Table), spec.RSSTable)
	}
	for i, q := range r.Table {
		if int(q) >= reach {
			return fmt.Errorf("RSS table entry %d is queue %d: %d queues are configured, and RSS reaches %d", i, q, cfg.RxQueues, p.info.RSSQueues)
		}
	}
	able := p.device.hashable()
	if no := r.Types &^ able; no != 0 {
		return fmt.Errorf("RSS types %#x, the device knows %#x: %w", uint32(no), uint32(able), errors.ErrUnsupported)
	}
	if r.Types == 0 {
		r.Types = able
	}
	return nil
}

// rssConfig is the data of spec.CtrlMQRSSConfig (§5.1.6.5.7.1), and of spec.CtrlMQHashConfig (§5.1.6.5.6.4), which has reserved
// fields where the table would be.
func (p *Port) rssConfig(spread bool) []byte {
	var types uint32
	for _, h := range hashTypes {
		if p.cfg.RSS.Types&h.t != 0 {
			types |= h.bit
		}
	}
	le := binary.LittleEndian
	out := le.AppendUint32(nil, types)
	if spread {
		out = le.AppendUint16(out, spec.RSSTable-1) // indirection_table_mask
		out = le.AppendUint16(out, 0)               // unclassified_queue
		for _, q := range p.cfg.RSS.Table {
			out = le.AppendUint16(out, uint16(q))
		}
		out = le.AppendUint16(out, uint16(p.pairs(&p.cfg))) // max_tx_vq
	} else {
		out = le.AppendUint64(out, 0)
	}
	out = append(out, byte(len(p.cfg.RSS.Key)))
	return append(out, p.cfg.RSS.Key...)
}
