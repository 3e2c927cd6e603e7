package nic82599

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"bare.wire/ixgbe/reg"
)

// Faults makes the card misbehave, in ways that silicon, firmware or a careless predecessor have, or that a software card
// could by a mistake in it. The zero value is a good card.
type Faults struct {
	StickyGIO     bool   // STATUS.GIO never clears after CTRL.GIO_DIS (specification update, clarification 9)
	StuckReset    bool   // CTRL.RST never clears itself
	SMBIHeld      bool   // SWSM.SMBI was left set by a driver that died
	SMBIAlways    bool   // SWSM.SMBI is set at every read: somebody else never lets go
	FirmwareHeld  uint32 // bits of GSSR that the firmware holds for ever
	ARDNever      bool   // the EEPROM is never read
	DMAIDoneNever bool   // the receive DMA is never ready
	BadEEPROM     bool   // the EEPROM's checksum is wrong
	SECRXNever    bool   // SECRXSTAT never says ready
	LinkNever     bool   // no link, cable or not

	EnableNever  uint64 // queues (bit n of 64, receive and transmit) whose ENABLE never reads back set
	DisableNever uint64 // … whose ENABLE never reads back clear
	DMAStops     int64  // from this time on (ns of the world's clock) the card fetches nothing any more; 0: never
	NoWriteBack  bool   // descriptors are never written back
	RemoveAt     int64  // the card is pulled out at this time; 0: never
	RxErrors     int    // one received frame in so many is reported with an error (RXE) although it is good; 0: none

	StaleData      bool // the bytes of a frame are written right before its DD, garbage before
	ShuffledStatus bool // the descriptors of one write-back become visible last first
	PartialFetch   bool // descriptors are fetched one at a time

	// Mistakes of a card, to see which judge notices.
	Flip            MaskFlip
	NoEICS          bool // EICS sets nothing
	NoLSC           bool // a link that changes causes no interrupt
	NoAutoMask      bool // EIAM and EIAM_EX do nothing
	NoQueueIRQ      bool // queues cause no interrupts
	NoClearOnRead   bool // reading a counter leaves it
	NoLoopback      bool // frames in loopback go nowhere
	NoTxWriteBack   bool // transmit descriptors are never written back
	NoRxWriteBack   bool // receive descriptors are never written back
	RxByteFlipped   bool // one bit of a received frame's byte 64 or a later one
	TxByteFlipped   bool // the same of a frame sent, after its checksums are made
	RxLengthShort   bool // the length of a received frame is one less than it is
	RxJumboCut      bool // what does not fit into a frame's first buffer is lost
	BadTSOSize      bool // segments are one byte shorter than MSS
	BadTSOID        bool // the IP id of segments is that of the first
	BadTSOFlags     bool // FIN and PSH are in every segment
	BadTxChecksum   bool // an L4 checksum that is put in is wrong
	BadTxIPChecksum bool // an IPv4 header checksum that is put in is wrong
	NoTxTag         bool // VLAN tags are not put in
	VLANSwapped     bool // the bytes of a tag are exchanged, put in or taken out
	NoVLANFilter    bool // VFTA lets everything through
	BadVFTA         bool // VFTA is looked up one id too far
	BadMTA          bool // MTA is looked up one bit too far
	BadAddress      bool // of a receive address the last bit does not count
	BadRSSQueue     bool // RSS leads to the neighbour of the right queue
	BadRSSHash      bool // the hash in the descriptor is not the one that chose the queue
	RxChecksumLies  bool // bad L4 checksums are called good
	RxChecksumLost  bool // checksums are not looked at
	BadCount        bool // each received frame is counted twice in the MAC's counters
	BadQueueCount   bool // each received frame is counted twice in its queue's counter
	BadSFPByte      bool // the module calls itself something that no driver knows
	NoPause         bool // pause frames are not obeyed
}

// MaskFlip exchanges keeping and not keeping what is written, for one bit of a register.
type MaskFlip struct {
	Reg string // name in the register table; "" for none
	Bit uint8
}

// namedFaults are the faults that a test names from outside.
var namedFaults = map[string]Faults{
	"rah-mask":          {Flip: MaskFlip{"RAH", 18}}, // of the bits that nothing keeps, Linux's self-test writes 18 and 19 alone
	"eics":              {NoEICS: true},
	"no-lsc":            {NoLSC: true},
	"no-auto-mask":      {NoAutoMask: true},
	"no-queue-irq":      {NoQueueIRQ: true},
	"no-dd":             {NoWriteBack: true},
	"no-tx-dd":          {NoTxWriteBack: true},
	"no-rx-dd":          {NoRxWriteBack: true},
	"eeprom-sum":        {BadEEPROM: true},
	"rx-byte-64":        {RxByteFlipped: true},
	"tx-byte-64":        {TxByteFlipped: true},
	"rx-length":         {RxLengthShort: true},
	"rx-jumbo":          {RxJumboCut: true},
	"tso-segment-size":  {BadTSOSize: true},
	"tso-ip-id":         {BadTSOID: true},
	"tso-flags":         {BadTSOFlags: true},
	"rss-queue":         {BadRSSQueue: true},
	"rss-hash":          {BadRSSHash: true},
	"vlan-byte-order":   {VLANSwapped: true},
	"vlan-no-insert":    {NoTxTag: true},
	"vlan-filter-open":  {NoVLANFilter: true},
	"vfta-bit":          {BadVFTA: true},
	"rx-checksum-flag":  {RxChecksumLies: true},
	"rx-checksum-lost":  {RxChecksumLost: true},
	"tx-checksum":       {BadTxChecksum: true},
	"tx-ip-checksum":    {BadTxIPChecksum: true},
	"clear-on-read":     {NoClearOnRead: true},
	"count-twice":       {BadCount: true},
	"queue-count-twice": {BadQueueCount: true},
	"mta-bit":           {BadMTA: true},
	"address-bit":       {BadAddress: true},
	"no-loopback":       {NoLoopback: true},
	"no-link":           {LinkNever: true},
	"sfp-byte":          {BadSFPByte: true},
	"no-pause":          {NoPause: true},
}

// FaultNames returns the names that FaultByName knows, sorted; "mask:REG:BIT" is one more for each bit of each register.
func FaultNames() []string { return slices.Sorted(maps.Keys(namedFaults)) }

// FaultByName returns the fault of that name, "" being none. "mask:REG:BIT" makes bit BIT of register REG (all of them, if
// it is an array) keep what is written if it does not, and not if it does.
func FaultByName(name string) (Faults, error) {
	if name == "" {
		return Faults{}, nil
	}
	if f, ok := namedFaults[name]; ok {
		return f, nil
	}
	rest, ok := strings.CutPrefix(name, "mask:")
	if !ok {
		return Faults{}, fmt.Errorf("fault %q: there is none of that name; there are mask:REG:BIT and %s", name, strings.Join(FaultNames(), ", "))
	}
	r, bit, ok := strings.Cut(rest, ":")
	n, err := strconv.ParseUint(bit, 10, 8)
	if !ok || err != nil || n > 31 {
		return Faults{}, fmt.Errorf("fault %q: want mask:REG:BIT with BIT from 0 to 31", name)
	}
	if _, ok := reg.ByName(r); !ok {
		return Faults{}, fmt.Errorf("fault %q: the register table has no %q (docs/registers.md)", name, r)
	}
	return Faults{Flip: MaskFlip{r, uint8(n)}}, nil
}

// SetFaults changes the faults from now on.
func (c *Card) SetFaults(f Faults) {
	c.w.Lock()
	defer c.w.Unlock()
	c.touch()
	c.cfg.Faults = f
	c.flt.stale, c.rss.stale = true, true
	c.reheat()
	c.kick()
}

// flip is a write to a register that keeps nothing of it but, with Faults.Flip, one bit.
func (c *Card) flip(r *cell, v uint32) {
	if f := c.flipped(r); f != 0 && (r.fixed || f > 0xFFFF) {
		c.set(r.off, c.val(r.off)&^f|v&f)
	}
}

// flipped is the bit of a register that Faults.Flip names, 0 if it names another.
func (c *Card) flipped(r *cell) uint32 {
	if f := &c.cfg.Faults.Flip; f.Reg != "" && f.Reg == r.name.Name {
		return 1 << f.Bit
	}
	return 0
}
