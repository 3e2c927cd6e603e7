package nic82599

import "bare.wire/ixgbe/reg"

// Counts are what the card has done since it was made. No reset and no driver clears them: they are for whoever compares a
// driver's figures with the truth, or asks whether a feature has been used at all. Frames are counted when their
// registers are; bytes are with FCS.
type Counts struct {
	TxFrames, TxBytes           uint64 // given to the wire or the loopback, pause frames with them
	TxMulticast, TxBroadcast    uint64
	RxFrames, RxBytes           uint64 // good, and past the filters, whether or not there was room
	RxMulticast, RxBroadcast    uint64
	RxFiltered                  uint64 // good, and for somebody else
	RxMissed                    uint64 // no room in the packet buffer
	RxNoDescriptor              uint64 // dropped by DROP_EN
	TxQueue, RxQueue            [16]uint64
	TxSegmented, TxSegments     uint64 // frames that were cut, and what came of them
	TxL4Checksums, TxIPChecksum uint64 // put in; those of segments with them
	TxTagged, RxStripped        uint64 // VLAN tags put in and taken out
	RxL4Good, RxL4Bad           uint64 // checksums looked at
	RxHashed                    uint64 // frames that RSS placed
	RxChained                   uint64 // frames that took more than one buffer
	PauseSent, PauseSeen        uint64
	Interrupts                  uint64 // messages, of all vectors
	Resets                      uint64 // by CTRL, function-level and at power-on
	DMAFaults                   uint64
}

// Counts returns what the card has done so far.
func (c *Card) Counts() Counts {
	c.w.Lock()
	defer c.w.Unlock()
	return c.count
}

// countKinds counts what was found out about a received frame.
func (c *Card) countKinds(w1 uint64, stripped, chained bool) {
	n := &c.count
	switch {
	case w1&reg.RXD_L4CS == 0:
	case w1&reg.RXD_L4E != 0:
		n.RxL4Bad++
	default:
		n.RxL4Good++
	}
	if stripped {
		n.RxStripped++
	}
	if chained {
		n.RxChained++
	}
}

// countWire counts a frame that is sent, in the registers and here.
func (c *Card) countWire(f []byte) {
	c.countTxMAC(f)
	c.count.TxFrames++
	c.count.TxBytes += uint64(len(f) + fcsLen)
	switch d := destination(f); {
	case d == broadcast:
		c.count.TxBroadcast++
	case d&1 != 0:
		c.count.TxMulticast++
	}
}
