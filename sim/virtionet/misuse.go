package virtionet

import (
	"fmt"

	"bare.wire/sim"
)

// Kind says what a driver did wrong.
type Kind uint8

// The kinds of misuse. Each has its section of the specification and its explanation in kinds.
const (
	StatusOrder Kind = iota
	StatusCleared
	ResetBusy
	FeaturesLate
	FeatureNotOffered
	FeatureNeeds
	FeatureRefused
	ConfigBeyond
	ConfigReadOnly
	RegisterWidth
	RegisterReadOnly
	RegisterUndefined
	VectorRange
	QueueNumber
	QueueSize
	QueueUnaligned
	QueueChanged
	QueueDisabled
	NotifyEarly
	NotifyDisabled
	NotifyAddress
	NotifyData
	IndexJump
	HeadRange
	NextRange
	ChainLength
	ChainUnready
	ZeroLength
	ReadAfterWrite
	IndirectForm
	BufferTwice
	BufferSize
	ChainDirection
	EventForm
	HeaderForm
	HeaderLayout
	FrameLength
	ControlForm
	ControlValue
	RxBufferTouched
	TxBufferTouched
	DMAFault
	numKinds
)

var kinds = [numKinds]struct{ name, section, text string }{
	StatusOrder:       {"StatusOrder", "§3.1.1", "status bit set before those that come before it"},
	StatusCleared:     {"StatusCleared", "§2.1.1", "status bit cleared otherwise than by a reset"},
	ResetBusy:         {"ResetBusy", "§4.1.4.3.2", "device used after a reset before its status was read as 0"},
	FeaturesLate:      {"FeaturesLate", "§2.2.1", "features changed after FEATURES_OK"},
	FeatureNotOffered: {"FeatureNotOffered", "§2.2.1", "features taken that were not offered"},
	FeatureNeeds:      {"FeatureNeeds", "§5.1.3.1", "features taken without those that they need"},
	FeatureRefused:    {"FeatureRefused", "§6.1", "features not taken that a driver has to take when they are offered"},
	ConfigBeyond:      {"ConfigBeyond", "§2.5.1", "device configuration read beyond its end"},
	ConfigReadOnly:    {"ConfigReadOnly", "§5.1.4", "device configuration written"},
	RegisterWidth:     {"RegisterWidth", "§4.1.3.1", "register accessed with another width than its own, or within another register"},
	RegisterReadOnly:  {"RegisterReadOnly", "§4.1.4.3", "register written that is for reading"},
	RegisterUndefined: {"RegisterUndefined", "§4.1.4", "access to where there is no register"},
	VectorRange:       {"VectorRange", "§4.1.5.1.2", "vector that there is not"},
	QueueNumber:       {"QueueNumber", "§4.1.4.3", "queue that there is not"},
	QueueSize:         {"QueueSize", "§2.7", "queue size that is 0, too large, or no power of two in a split ring"},
	QueueUnaligned:    {"QueueUnaligned", "§2.7, §2.8.10.1", "part of a ring at an address that is not a multiple of its alignment"},
	QueueChanged:      {"QueueChanged", "§4.1.4.3.2", "queue set up while it is enabled, or enabled before it is set up"},
	QueueDisabled:     {"QueueDisabled", "§4.1.4.3.2", "0 written to queue_enable"},
	NotifyEarly:       {"NotifyEarly", "§3.1.1", "notification before DRIVER_OK"},
	NotifyDisabled:    {"NotifyDisabled", "§3.1.1", "notification of a queue that is not enabled"},
	NotifyAddress:     {"NotifyAddress", "§4.1.4.4", "notification at another queue's address"},
	NotifyData:        {"NotifyData", "§2.9", "notification with a position that is not the ring's"},
	IndexJump:         {"IndexJump", "§2.7.13.3", "available index that is more than the ring ahead, or goes back"},
	HeadRange:         {"HeadRange", "§2.7.6", "head beyond the descriptor table"},
	NextRange:         {"NextRange", "§2.7.5", "next beyond the descriptor table"},
	ChainLength:       {"ChainLength", "§2.7.5.1", "chain longer than the queue, perhaps a loop"},
	ChainUnready:      {"ChainUnready", "§2.8.16", "chain of a packed ring of which the first descriptor was made available before the others"},
	ZeroLength:        {"ZeroLength", "§2.7.5", "descriptor of no bytes"},
	ReadAfterWrite:    {"ReadAfterWrite", "§2.7.4.2", "descriptor to be read behind one to be written"},
	IndirectForm:      {"IndirectForm", "§2.7.5.3.1", "indirect table that is not agreed on, nested, chained, empty, or of an odd length"},
	BufferTwice:       {"BufferTwice", "§2.7.13", "buffer made available that the device has"},
	BufferSize:        {"BufferSize", "§5.1.6.3.1", "receive buffer that does not hold a header"},
	ChainDirection:    {"ChainDirection", "§5.1.6", "bytes to be written in a frame to be sent, or to be read in a receive buffer"},
	EventForm:         {"EventForm", "§2.8.10", "event suppression of a form that is not agreed on, or beyond the ring"},
	HeaderForm:        {"HeaderForm", "§5.1.6.2", "header that makes no sense, or asks for what is not agreed on; the frame may not be sent"},
	HeaderLayout:      {"HeaderLayout", "§5.1.6.1", "header and frame in one descriptor without any_layout being agreed on"},
	FrameLength:       {"FrameLength", "§5.1.6.2", "frame that is too short or too long; it is not sent"},
	ControlForm:       {"ControlForm", "§5.1.6.5", "command without a class, a command, or room for the answer"},
	ControlValue:      {"ControlValue", "§5.1.6.5", "command that is not agreed on, or with values that make no sense"},
	RxBufferTouched:   {"RxBufferTouched", "§2.7.13", "receive buffer written by the driver while the device has it"},
	TxBufferTouched:   {"TxBufferTouched", "§2.7.13", "frame changed before it was given back"},
	DMAFault:          {"DMAFault", "", "an address that the device may not touch"},
}

func (k Kind) String() string {
	if k < numKinds {
		return kinds[k].name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Explain implements sim.MisuseKind.
func (k Kind) Explain() (section, text string) { return kinds[k].section, kinds[k].text }

// Misuse is something a driver did that the specification forbids.
type Misuse = sim.Misuse[Kind]

// wrong records a misuse; q is −1 where it is no queue's.
func (d *Device) wrong(k Kind, q int, format string, args ...any) {
	d.misuse.Add(d.now, k, q, format, args...)
}

// Misuse returns what the driver has done wrong so far: one entry for each kind and queue, in order of first occurrence.
func (d *Device) Misuse() []Misuse {
	d.w.Lock()
	defer d.w.Unlock()
	return d.misuse.List()
}

// ForgetMisuse empties the record.
func (d *Device) ForgetMisuse() {
	d.w.Lock()
	defer d.w.Unlock()
	d.misuse = sim.Misuses[Kind]{}
}
