package nic82599

import "encoding/binary"

// Line reports whether the card drives its INTx pin: a cause waits that is not masked, and neither the command register nor
// a message-signalled mode has taken the pin out of use. It rises where the function given to OnInterrupt is called, and falls
// in register and configuration accesses and resets: whoever carries the pin to an interrupt controller looks after each.
func (c *Card) Line() bool {
	c.w.Lock()
	defer c.w.Unlock()
	const msiOn, msixOn = 1 << 0, 1 << 15
	switch {
	case c.gone || c.command()&cmdINTxOff != 0:
		return false
	case binary.LittleEndian.Uint16(c.config[cfgCapMSI+2:])&msiOn != 0:
		return false
	case binary.LittleEndian.Uint16(c.config[cfgCapMSIX+2:])&msixOn != 0:
		return false
	}
	return c.waiting() && c.irq.held&1 == 0
}

// waiting says whether there is a cause that is not masked.
func (c *Card) waiting() bool { return c.irq.cause&c.irq.mask != 0 || c.irq.misc&c.irq.miscMask != 0 }
