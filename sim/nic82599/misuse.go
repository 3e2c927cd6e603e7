package nic82599

import (
	"fmt"

	"bare.wire/sim"
)

// Kind says what a driver did wrong.
type Kind uint8

// The kinds of misuse. Each has its section of the datasheet and its explanation in kinds.
const (
	UndefinedRegister Kind = iota
	ReadOnlyWrite
	AccessInReset
	ResetBusy
	WriteBeforeReady
	SemaphoreMissing
	Unsupported
	RingUnaligned
	RingLength
	RingChangedEnabled
	HeadWrittenEnabled
	TailBeforeEnable
	TailBeyondRing
	TailPassedHead
	EnableNotEmpty
	EnableTwice
	DisableBusy
	BufferSizeZero
	RelaxedOrderLeft
	TxEnableBeforeTE
	HeadWriteBack
	MTQCWithoutARBDIS
	RXENBeforeRings
	RXENWithoutSECRX
	ChangedWithRXEN
	CRCStripMismatch
	FixedBits
	NoSnoopLeft
	PacketBufferSize
	RxFrameLimit
	CounterOrder
	MaskWrittenZero
	RetaBeyondQueues
	InterruptUnmapped
	RxStatusNotClear
	RxBufferTwice
	RxBufferTouched
	TxStale
	TxLengthZero
	TxFrameLength
	TxNotTerminated
	TxTooManySegments
	TxPayloadLength
	TxNoFCS
	TxNoReport
	TxDescriptor
	TxBufferTouched
	DMAFault
	numKinds
)

var kinds = [numKinds]struct{ name, section, text string }{
	UndefinedRegister:  {"UndefinedRegister", "§8.2", "access to an offset at which there is no register"},
	ReadOnlyWrite:      {"ReadOnlyWrite", "§8.2", "write to a register that ignores writes"},
	AccessInReset:      {"AccessInReset", "§4.2.1", "register written while CTRL.RST has not cleared itself"},
	ResetBusy:          {"ResetBusy", "§4.6.3", "software reset of a card with enabled queues without CTRL.GIO_DIS before it"},
	WriteBeforeReady:   {"WriteBeforeReady", "§4.6.3", "register written after a reset before EEC.ARD and RDRXCTL.DMAIDONE were set"},
	SemaphoreMissing:   {"SemaphoreMissing", "§10.5.4", "shared resource touched without its semaphore"},
	Unsupported:        {"Unsupported", "", "the card has this, the model does not"},
	RingUnaligned:      {"RingUnaligned", "§8.2.3.8.1", "ring base is not a multiple of 128 bytes"},
	RingLength:         {"RingLength", "§8.2.3.8.3", "ring length is 0, not a multiple of 128 bytes, or above 8192 descriptors"},
	RingChangedEnabled: {"RingChangedEnabled", "§8.2.3.8", "ring base or length written while the queue is enabled"},
	HeadWrittenEnabled: {"HeadWrittenEnabled", "§8.2.3.9.8", "head written while the queue is enabled"},
	TailBeforeEnable:   {"TailBeforeEnable", "§4.6.7", "tail written before ENABLE was read back set; the write is lost"},
	TailBeyondRing:     {"TailBeyondRing", "§8.2.3.8.5", "tail is not below the ring's length; the write is lost"},
	TailPassedHead:     {"TailPassedHead", "§7.1.9", "tail moved over descriptors that the card had not given back"},
	EnableNotEmpty:     {"EnableNotEmpty", "§4.6.7", "queue enabled with a head that is not its tail"},
	EnableTwice:        {"EnableTwice", "§4.6.7.1", "ENABLE set again before its clearing was read back"},
	DisableBusy:        {"DisableBusy", "§4.6.8.1", "transmit queue disabled while the card had descriptors to send"},
	BufferSizeZero:     {"BufferSizeZero", "§8.2.3.8.7", "receive queue enabled with SRRCTL.BSIZEPKT 0"},
	RelaxedOrderLeft:   {"RelaxedOrderLeft", "§4.6.7", "receive queue enabled with bit 12 of DCA_RXCTRL set"},
	TxEnableBeforeTE:   {"TxEnableBeforeTE", "§4.6.8", "TXDCTL.ENABLE set before DMATXCTL.TE"},
	HeadWriteBack:      {"HeadWriteBack", "§7.2.3.5.2", "head write-back with WTHRESH above 0 or DCA_TXCTRL.DESC_WRO_EN set"},
	MTQCWithoutARBDIS:  {"MTQCWithoutARBDIS", "§7.2.1.2.1", "MTQC written without RTTDCS.ARBDIS"},
	RXENBeforeRings:    {"RXENBeforeRings", "§4.6.7", "RXCTRL.RXEN set while no receive queue is enabled"},
	RXENWithoutSECRX:   {"RXENWithoutSECRX", "§4.6.7", "RXCTRL.RXEN set without stopping the security path and seeing SECRXSTAT ready"},
	ChangedWithRXEN:    {"ChangedWithRXEN", "§4.6.7", "receive set-up changed while RXCTRL.RXEN is set"},
	CRCStripMismatch:   {"CRCStripMismatch", "§8.2.3.8.8", "HLREG0.RXCRCSTRP and RDRXCTL.CRCSTRIP differ"},
	FixedBits:          {"FixedBits", "§4.6.7", "RXEN set with bits of RDRXCTL that have one allowed value at the other: RSCFRSTSIZE 0, RSCACKC and FCOE_WRFIX 1"},
	NoSnoopLeft:        {"NoSnoopLeft", "§4.6.7", "RXEN set with CTRL_EXT.NS_DIS clear"},
	PacketBufferSize:   {"PacketBufferSize", "§8.2.3.8.9", "packet buffers larger than the memory there is: 512 KiB to receive, 160 to send"},
	RxFrameLimit:       {"RxFrameLimit", "§8.2.3.22.13", "MAXFRS above 9728 bytes"},
	CounterOrder:       {"CounterOrder", "§8.2.3.23", "high half of a 36-bit counter read without the low half before it: the count is lost"},
	MaskWrittenZero:    {"MaskWrittenZero", "§8.2.3.5.5", "0 written to EIMS, which does nothing: EIMC masks"},
	RetaBeyondQueues:   {"RetaBeyondQueues", "§7.1.2.8", "RSS leads to a queue that is not enabled"},
	InterruptUnmapped:  {"InterruptUnmapped", "§7.3.4", "interrupt enabled to which no IVAR entry leads"},
	RxStatusNotClear:   {"RxStatusNotClear", "§7.1.6.1", "receive descriptor given with DD set in its second word: not rewritten since its last use"},
	RxBufferTwice:      {"RxBufferTwice", "§7.1.6.1", "receive buffer given while the card already has it"},
	RxBufferTouched:    {"RxBufferTouched", "§7.1.6.1", "receive buffer written by software while the card has it"},
	TxStale:            {"TxStale", "§7.2.3.2", "transmit descriptor with DD set: not rewritten since its last use"},
	TxLengthZero:       {"TxLengthZero", "§7.2.3.2.4", "transmit descriptor with a data length of 0 or above 16 KiB; the queue hangs"},
	TxFrameLength:      {"TxFrameLength", "§7.2.3.2.4", "frame below 14 bytes or above the longest; it is not sent"},
	TxNotTerminated:    {"TxNotTerminated", "§7.2.3.2.4", "the tail lies inside a frame: no EOP before it"},
	TxTooManySegments:  {"TxTooManySegments", "§7.2.1.1", "frame of more than 40 - WTHRESH descriptors; the queue hangs"},
	TxPayloadLength:    {"TxPayloadLength", "§7.2.3.2.4", "PAYLEN is not the sum of the frame's data lengths"},
	TxNoFCS:            {"TxNoFCS", "§7.2.3.2.4", "frame without IFCS"},
	TxNoReport:         {"TxNoReport", "§7.2.3.3", "as many descriptors as the ring can hold without RS among them"},
	TxDescriptor:       {"TxDescriptor", "§7.2.3.2", "descriptor of a form that does not exist"},
	TxBufferTouched:    {"TxBufferTouched", "§7.2.3.3", "transmit buffer changed before its descriptor was done"},
	DMAFault:           {"DMAFault", "", "DMA to an address that the card may not touch; the queue hangs"},
}

func (k Kind) String() string {
	if k < numKinds {
		return kinds[k].name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Explain implements sim.MisuseKind.
func (k Kind) Explain() (section, text string) { return kinds[k].section, kinds[k].text }

// Misuse is something a driver did that the datasheet forbids.
type Misuse = sim.Misuse[Kind]

// wrong records a misuse; q is −1 where it is no queue's.
func (c *Card) wrong(k Kind, q int, format string, args ...any) {
	c.misuse.Add(c.now, k, q, format, args...)
}

// Misuse returns what the driver has done wrong so far: one entry for each kind and queue, in order of first occurrence.
func (c *Card) Misuse() []Misuse {
	c.w.Lock()
	defer c.w.Unlock()
	return c.misuse.List()
}

// ForgetMisuse empties the record.
func (c *Card) ForgetMisuse() {
	c.w.Lock()
	defer c.w.Unlock()
	c.misuse = sim.Misuses[Kind]{}
}
