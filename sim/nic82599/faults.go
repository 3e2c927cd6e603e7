package nic82599

// Faults makes the card misbehave, in ways that silicon, firmware or a careless predecessor have. The zero value is a good
// card.
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
}

// SetFaults changes the faults from now on.
func (c *Card) SetFaults(f Faults) {
	c.w.Lock()
	defer c.w.Unlock()
	c.touch()
	c.cfg.Faults = f
	c.kick()
}
