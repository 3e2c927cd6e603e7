package ixgbe

import (
	"context"
	"time"

	"bare.wire/ixgbe/reg"
)

// Descriptor prefetch thresholds (§7.2.3.4.1). WTHRESH is 0: a descriptor with RS is written back at once, and those
// without are not written back at all.
const (
	prefetchThreshold = 36
	hostThreshold     = 8
	writeThreshold    = 0
)

// Control bits of a TCP header (RFC 9293 §3.1).
const (
	allFlags = 1<<12 - 1
	flagFIN  = 1 << 0
	flagPSH  = 1 << 3
	flagCWR  = 1 << 7
)

// initTx sets the transmit path up (§4.6.8). HLREG0 has been written by initMAC.
func (p *Port) initTx(ctx context.Context) error {
	p.write(reg.TXPBSIZE(0), reg.TxPacketBuffer)
	p.write(reg.TXPBTHRESH(0), reg.TxPacketBuffer/1024)
	for i := 1; i < reg.TXPBSIZE_Count; i++ {
		p.write(reg.TXPBSIZE(i), 0)
		p.write(reg.TXPBTHRESH(i), 0)
	}
	p.write(reg.DTXMXSZRQ, reg.DTXMXSZRQ_MAX_BYTES) // §4.6.11.3.4: no limit without traffic classes
	// The arbiter stands still while the queues are divided up (§7.2.1.2.1).
	p.set(reg.RTTDCS, reg.RTTDCS_ARBDIS)
	p.write(reg.MTQC, reg.MTQC_NUM_TC_64Q_1PB)
	p.unset(reg.RTTDCS, reg.RTTDCS_ARBDIS)
	for i, q := range p.tx {
		p.initTxRing(i, q)
	}
	p.put(reg.DMATXCTL, reg.DMATXCTL_VT, reg.Put(0, reg.DMATXCTL_VT, etherVLAN))
	// Of a frame that is cut FIN and PSH are the last segment's, CWR the first's (§8.2.3.9.3 – 4; RFC 3168 §6.1.2).
	p.write(reg.DTXTCPFLGL, allFlags&^(flagFIN|flagPSH)|(allFlags&^(flagFIN|flagPSH|flagCWR))<<reg.DTXTCPFLGL_MIDDLE_Shift)
	p.write(reg.DTXTCPFLGH, allFlags&^flagCWR)
	p.set(reg.DMATXCTL, reg.DMATXCTL_TE) // before any queue is enabled
	for i := range p.tx {
		if err := p.startTxQueue(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// initTxRing tells the card where the ring is (§8.2.3.9.5 – 9). Head and tail are written before the queue is enabled,
// and the head never again.
func (p *Port) initTxRing(i int, q *txQueue) {
	p.write(reg.TDBAL(i), uint32(q.bus))
	p.write(reg.TDBAH(i), uint32(q.bus>>32))
	p.write(reg.TDLEN(i), uint32(len(q.ring)*descSize))
	p.write(reg.TDH(i), 0)
	p.write(reg.TDT(i), 0)
	v := p.read(reg.TXDCTL(i)) &^ (reg.TXDCTL_PTHRESH | reg.TXDCTL_HTHRESH | reg.TXDCTL_WTHRESH)
	v |= reg.Put(0, reg.TXDCTL_PTHRESH, prefetchThreshold) | reg.Put(0, reg.TXDCTL_HTHRESH, hostThreshold) | reg.Put(0, reg.TXDCTL_WTHRESH, writeThreshold)
	p.write(reg.TXDCTL(i), v)
}

func (p *Port) startTxQueue(ctx context.Context, i int) error {
	p.set(reg.TXDCTL(i), reg.TXDCTL_ENABLE)
	return p.poll(ctx, "transmit queue enable (TXDCTL.ENABLE)", reg.TXDCTL(i), reg.TXDCTL_ENABLE, reg.TXDCTL_ENABLE,
		time.Millisecond, 100*time.Millisecond, "close the port and open it again")
}
