package ixgbe

import (
	"context"
	"time"

	"bare.wire/ixgbe/reg"
	"bare.wire/nic"
)

// initRx sets the receive path up (§4.6.7) and lets frames in as its last step.
func (p *Port) initRx(ctx context.Context) error {
	p.unset(reg.RXCTRL, reg.RXCTRL_RXEN)
	// One traffic class, no flow director: the whole packet buffer is queue set 0's (§4.6.11.3.4).
	p.write(reg.RXPBSIZE(0), reg.RxPacketBuffer)
	for i := 1; i < reg.RXPBSIZE_Count; i++ {
		p.write(reg.RXPBSIZE(i), 0)
	}
	p.initMAC()
	// The FCS is stripped, in both places, which have to agree (§7.1.4). RSC's fixed bits as §8.2.3.8.8 wants them.
	p.put(reg.RDRXCTL, reg.RDRXCTL_RSCFRSTSIZE, reg.RDRXCTL_CRCSTRIP|reg.RDRXCTL_RSCACKC|reg.RDRXCTL_FCOE_WRFIX)
	p.set(reg.RFCTL, reg.RFCTL_RSC_DIS)
	p.write(reg.RXCSUM, reg.RXCSUM_PCSD) // the RSS hash, not the fragment checksum, in the descriptor
	p.initRSS()
	for i, q := range p.rx {
		p.initRxRing(i, q)
	}
	for i, q := range p.rx {
		if err := p.startRxQueue(ctx, i, q); err != nil {
			return err
		}
	}
	p.set(reg.CTRL_EXT, reg.CTRL_EXT_NS_DIS)
	return p.enableReceive(ctx)
}

// initMAC sets what the MAC does to frames in both directions (HLREG0, §8.2.3.22.8).
func (p *Port) initMAC() {
	v := p.read(reg.HLREG0) &^ reg.HLREG0_LPBK
	// JUMBOEN whatever the length: without it MAXFRS means nothing, and a frame of 1515 bytes without a tag is too long.
	v |= reg.HLREG0_RXCRCSTRP | reg.HLREG0_TXCRCEN | reg.HLREG0_TXPADEN | reg.HLREG0_JUMBOEN
	p.put(reg.MAXFRS, reg.MAXFRS_MFS, reg.Put(0, reg.MAXFRS_MFS, uint32(p.cfg.MaxFrame+fcsLen)))
	if p.cfg.Loopback {
		v |= reg.HLREG0_LPBK
	}
	p.write(reg.HLREG0, v)
	// Pause frames stop here, obeyed or not (§8.2.3.22.34); none are sent.
	flow := p.read(reg.MFLCN) &^ (reg.MFLCN_RFCE | reg.MFLCN_RPFCE | reg.MFLCN_PMCF)
	if p.cfg.HonourPause {
		flow |= reg.MFLCN_RFCE
	}
	p.write(reg.MFLCN, flow|reg.MFLCN_DPF)
	p.write(reg.FCCFG, 0)
}

// initRxRing tells the card where the ring is and how large its buffers are (§8.2.3.8.1 – 7).
func (p *Port) initRxRing(i int, q *rxQueue) {
	srrctl := p.read(reg.SRRCTL(i)) &^ (reg.SRRCTL_BSIZEPKT | reg.SRRCTL_BSIZEHDR | reg.SRRCTL_DESCTYPE | reg.SRRCTL_DROP_EN)
	srrctl |= reg.SRRCTL_DESCTYPE_ADV_ONEBUF | reg.Put(0, reg.SRRCTL_BSIZEPKT, q.room/bufferUnit)
	if !p.cfg.BlockWhenFull {
		// Without it one full queue ends up blocking all of them.
		srrctl |= reg.SRRCTL_DROP_EN
	}
	p.write(reg.SRRCTL(i), srrctl)
	p.write(reg.RDBAL(i), uint32(q.bus))
	p.write(reg.RDBAH(i), uint32(q.bus>>32))
	p.write(reg.RDLEN(i), uint32(len(q.ring)*descSize))
	p.write(reg.RDH(i), 0)
	p.write(reg.RDT(i), 0)
	// §4.6.7: a reserved bit that comes up set and corrupts DMA.
	p.unset(reg.DCA_RXCTRL(i), reg.DCA_RXCTRL_MUST_CLEAR)
}

// startRxQueue enables a queue, sees that it took effect, and only then hands it its buffers: a tail written earlier would
// be lost (§4.6.7.1).
func (p *Port) startRxQueue(ctx context.Context, i int, q *rxQueue) error {
	v := p.read(reg.RXDCTL(i)) | reg.RXDCTL_ENABLE
	if p.cfg.Offloads&nic.RxVLANStrip != 0 {
		v |= reg.RXDCTL_VME
	}
	p.write(reg.RXDCTL(i), v)
	if err := p.poll(ctx, "receive queue enable (RXDCTL.ENABLE)", reg.RXDCTL(i), reg.RXDCTL_ENABLE, reg.RXDCTL_ENABLE,
		time.Millisecond, 100*time.Millisecond, "close the port and open it again"); err != nil {
		return err
	}
	q.refill()
	return nil
}

// enableReceive sets RXCTRL.RXEN with the security path stopped, as the 82599 needs it (§4.6.7, §8.2.3.12.5).
func (p *Port) enableReceive(ctx context.Context) error {
	p.set(reg.SECRXCTRL, reg.SECRXCTRL_RX_DIS)
	if err := p.poll(ctx, "security path to run empty (SECRXSTAT.SECRX_RDY)", reg.SECRXSTAT, reg.SECRXSTAT_SECRX_RDY, reg.SECRXSTAT_SECRX_RDY,
		10*time.Microsecond, 4*time.Millisecond, "close the port and open it again"); err != nil {
		return err
	}
	p.set(reg.RXCTRL, reg.RXCTRL_RXEN)
	p.unset(reg.SECRXCTRL, reg.SECRXCTRL_RX_DIS)
	p.flush()
	return nil
}
