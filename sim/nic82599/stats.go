package nic82599

import (
	"math/bits"

	"bare.wire/ixgbe/reg"
)

// add counts in a 32-bit counter, which wraps.
func (c *Card) add(off uint32, n uint32) { c.vals[off/4] += n }

// add36 counts in a 36-bit pair, the low half of which is at off.
func (c *Card) add36(off uint32, n int) {
	v := uint64(c.vals[off/4]) | uint64(c.vals[off/4+1])<<32
	v += uint64(n)
	c.vals[off/4], c.vals[off/4+1] = uint32(v), uint32(v>>32)&0xF
}

// readLow reads the low half of a 36-bit counter and keeps the high half that belongs to it.
func (c *Card) readLow(off uint32) uint32 {
	c.latch[off] = uint64(c.val(off)) | uint64(c.val(off+4))<<32
	return c.val(off)
}

// readHigh reads the high half as it was when the low half was read, and clears what has been read: what was counted since
// stays. Without a read of the low half before it, that is lost.
func (c *Card) readHigh(off uint32) uint32 {
	lo := off - 4
	whole := uint64(c.val(lo)) | uint64(c.val(off))<<32
	read, ok := c.latch[lo]
	if !ok {
		c.wrong(CounterOrder, -1, "%s", reg.Name(off))
		read = whole
	}
	delete(c.latch, lo)
	if c.cfg.Faults.NoClearOnRead {
		return uint32(read >> 32)
	}
	rest := whole - read
	c.set(lo, uint32(rest))
	c.set(off, uint32(rest>>32)&0xF)
	return uint32(read >> 32)
}

// The size counters of both directions, smallest first: 64, …127, …255, …511, …1023, above. Sizes are with FCS.
var (
	rxSizes = [6]uint32{reg.PRC64, reg.PRC127, reg.PRC255, reg.PRC511, reg.PRC1023, reg.PRC1522}
	txSizes = [6]uint32{reg.PTC64, reg.PTC127, reg.PTC255, reg.PTC511, reg.PTC1023, reg.PTC1522}
)

// sizeClass is the index in rxSizes and txSizes for n bytes with FCS.
func sizeClass(n int) int {
	if n <= 64 {
		return 0
	}
	return min(bits.Len(uint(n))-6, 5)
}

// countRx counts a good frame that has passed the filters. It is counted here, before it is known whether there is room for
// it: GPRC includes what is then missed (DPDK, 77889afaf1).
func (c *Card) countRx(f []byte) {
	n := len(f) + fcsLen
	c.add(rxSizes[sizeClass(n)], 1)
	c.add(reg.GPRC, 1)
	c.add36(reg.GORCL, n)
	c.count.RxFrames++
	c.count.RxBytes += uint64(n)
	switch d := destination(f); {
	case d == broadcast:
		c.add(reg.BPRC, 1)
		c.count.RxBroadcast++
	case d&1 != 0:
		c.add(reg.MPRC, 1)
		c.count.RxMulticast++
	}
	if c.cfg.Faults.BadCount {
		c.add(reg.GPRC, 1)
		c.add36(reg.GORCL, n)
	}
}

// countQueue counts a frame that takes size bytes of memory, in the counter set of its queue. These counters are the DMA's:
// they have the FCS in them only if memory has (DPDK takes it off only then, 5168e13017).
func (c *Card) countQueue(q, size int) {
	set := c.counterRx(q)
	c.add(reg.QPRC(set), 1)
	c.add36(reg.QBRC_L(set), size)
	c.count.RxQueue[q&15]++
	if c.cfg.Faults.BadQueueCount {
		c.add(reg.QPRC(set), 1)
	}
	c.add(reg.RXDGPC, 1)
	c.add36(reg.RXDGBCL, size)
}

// countTx counts a frame that is sent: as it goes onto the wire, and, of size bytes, as it came from memory.
func (c *Card) countTx(q int, f []byte, size int) {
	c.countWire(f)
	set := int(c.val(reg.TQSM(q/4)) >> (q % 4 * 8) & 15)
	c.add(reg.QPTC(set), 1)
	c.add36(reg.QBTC_L(set), size)
	c.add(reg.TXDGPC, 1)
	c.add36(reg.TXDGBCL, size)
	c.count.TxQueue[q&15]++
}

// countTxMAC counts a frame in the MAC's registers.
func (c *Card) countTxMAC(f []byte) {
	n := len(f) + fcsLen
	c.add(txSizes[sizeClass(n)], 1)
	c.add(reg.GPTC, 1)
	c.add(reg.TPT, 1)
	c.add36(reg.GOTCL, n)
	switch d := destination(f); {
	case d == broadcast:
		c.add(reg.BPTC, 1)
	case d&1 != 0:
		c.add(reg.MPTC, 1)
	}
}

// counterRx is the counter set of receive queue q.
func (c *Card) counterRx(q int) int { return int(c.val(reg.RQSMR(q/4)) >> (q % 4 * 8) & 15) }
