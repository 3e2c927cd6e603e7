package nic82599

import (
	"bare.wire/ixgbe/reg"
	"bare.wire/sim"
)

// pauser asks the link partner for silence while the receive packet buffer is nearly full (802.3x, §3.7.7.3): XOFF at the
// high mark, again and again until the low mark, then XON.
type pauser struct {
	off   bool  // XOFF holds
	again int64 // when it is repeated
}

// pauseQuantum is the unit of pause times in byte times: 512 bits.
const pauseQuantum = 64

// runPause compares the fill of the packet buffer with its marks and returns when to look again.
func (c *Card) runPause() int64 {
	p := &c.rx.pause
	high := c.val(reg.FCRTH(0))
	if c.val(reg.FCCFG)&reg.FCCFG_TFCE_802_3X == 0 || high&reg.FCRTH_FCEN == 0 || !c.phy.up || c.hot.loopback {
		p.off = false
		return sim.Never
	}
	low, used := c.val(reg.FCRTL(0)), uint32(c.rx.buf.used)
	switch {
	case !p.off && used >= high&reg.FCRTH_RTH:
		p.off = true
		c.sendPause(uint16(c.val(reg.FCTTV(0))))
		p.again = c.pauseRefresh()
	case p.off && used <= low&reg.FCRTL_RTL:
		p.off = false
		if low&reg.FCRTL_XONE != 0 {
			c.sendPause(0)
		}
	case p.off && c.now >= p.again:
		c.sendPause(uint16(c.val(reg.FCTTV(0))))
		p.again = c.pauseRefresh()
	}
	if !p.off {
		return sim.Never
	}
	return p.again
}

// pauseRefresh is when an XOFF is repeated: after FCRTV, or, where that is 0, when half of the pause has passed.
func (c *Card) pauseRefresh() int64 {
	quanta := int64(c.val(reg.FCRTV) & 0xFFFF)
	if quanta == 0 {
		quanta = max(1, int64(c.val(reg.FCTTV(0))&0xFFFF)/2)
	}
	return c.now + max(1, quanta*pauseQuantum*c.hot.psPerByte/1000)
}

// sendPause sends a pause frame, past whatever the partner has asked for itself. The statistics have it among the frames
// sent (drivers take it off again).
func (c *Card) sendPause(quanta uint16) {
	var f [60]byte
	copy(f[:], []byte{0x01, 0x80, 0xC2, 0, 0, 0x01})
	lo, hi := c.val(reg.RAL(0)), c.val(reg.RAH(0))
	copy(f[6:], []byte{byte(lo), byte(lo >> 8), byte(lo >> 16), byte(lo >> 24), byte(hi), byte(hi >> 8)})
	copy(f[12:], []byte{etherMAC >> 8, etherMAC & 0xFF, 0, 1, byte(quanta >> 8), byte(quanta)})
	m := &c.tx.mac
	hold := m.hold
	m.hold = 0
	at := m.send(c.now, len(f)+fcsLen, c.hot.psPerByte)
	m.hold = hold
	if quanta == 0 {
		c.add(reg.LXONTXC, 1)
	} else {
		c.add(reg.LXOFFTXC, 1)
	}
	c.count.PauseSent++
	c.countWire(f[:])
	if c.end != nil {
		c.end.Transmit(f[:], at)
	}
}
