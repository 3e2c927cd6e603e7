package virtionet

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bare.wire/virtio/spec"
)

// Faults makes the device break the rules. The zero value is a good device. Those that strike now and then do so once in
// Every publications, or frames.
type Faults struct {
	any bool // set by New and SetFaults: some fault of frames or rings is on

	Every int // how often the faults below strike: at each n-th occasion; 0: the third, and every third after it

	UsedID        bool // a used id beyond the ring (split), or one that nobody gave (packed)
	UsedTwice     bool // a used id is reported twice
	UsedLength    bool // more bytes written than the buffer has
	UsedShort     bool // fewer than a header
	NumBuffers    int  // what the header says there are of a frame: −1: none; else so many more than there are
	IndexJump     bool // the used index is more than the ring ahead
	WrapFlip      bool // used descriptors of a packed ring are marked for another lap
	CSumBeyond    bool // received: a checksum that lies beyond the frame
	GSOLie        bool // received: segments of no bytes, whatever was agreed on
	TxSilent      bool // nothing is ever sent
	RxSilent      bool // nothing is ever received
	NoInterrupts  bool
	EventLie      bool // notifications are asked for, or not, without reason
	ControlSilent bool // commands are never answered
	ControlAnswer uint8
	NeedsReset    bool // NEEDS_RESET in mid-traffic

	FeaturesRefused bool          // FEATURES_OK never sticks
	Hide            spec.Features // features that there are no more
	ResetReads      int           // so often the status is read as before, after a reset
	ResetStuck      bool          // … always
	VectorsRefused  bool          // vectors are read back as NoVector
	NoQueue         int           // queue NoQueue−1 is not there
	QueueMax        int           // told as the size of all queues
	Churn           int           // so often the configuration changes while it is read; −1: always
	BadMAC          bool          // a multicast address
	BadPairs        bool          // no pairs
	BadMTU          bool          // an MTU of 10
	RemoveAt        int64         // the device is unplugged, ns of the world's clock

	seen int
}

// namedFaults are those that can be asked for by name.
var namedFaults = map[string]Faults{
	"used-id":          {UsedID: true},
	"used-twice":       {UsedTwice: true},
	"used-length":      {UsedLength: true},
	"used-short":       {UsedShort: true},
	"num-buffers-zero": {NumBuffers: -1},
	"num-buffers-more": {NumBuffers: 1},
	"num-buffers-many": {NumBuffers: 60000},
	"index-jump":       {IndexJump: true},
	"wrap-flip":        {WrapFlip: true},
	"csum-beyond":      {CSumBeyond: true},
	"gso-lie":          {GSOLie: true},
	"tx-silent":        {TxSilent: true},
	"rx-silent":        {RxSilent: true},
	"no-interrupts":    {NoInterrupts: true},
	"event-lie":        {EventLie: true},
	"control-silent":   {ControlSilent: true},
	"control-error":    {ControlAnswer: spec.CtrlErr},
	"control-garbage":  {ControlAnswer: 0x77},
	"needs-reset":      {NeedsReset: true},
	"features-refused": {FeaturesRefused: true},
	"reset-slow":       {ResetReads: 3},
	"reset-stuck":      {ResetStuck: true},
	"vectors-refused":  {VectorsRefused: true},
	"no-tx-queue":      {NoQueue: 2},
	"queue-size-odd":   {QueueMax: 100},
	"queue-size-huge":  {QueueMax: 65535},
	"config-churn":     {Churn: 3},
	"config-unstable":  {Churn: -1},
	"bad-mac":          {BadMAC: true},
	"bad-pairs":        {BadPairs: true},
	"bad-mtu":          {BadMTU: true},
	"removed":          {RemoveAt: 1},
}

// FaultNames returns the names that FaultByName knows, sorted.
func FaultNames() []string { return slices.Sorted(maps.Keys(namedFaults)) }

// FaultByName returns the fault of that name, "" being none.
func FaultByName(name string) (Faults, error) {
	if name == "" {
		return Faults{}, nil
	}
	f, ok := namedFaults[name]
	if !ok {
		return Faults{}, fmt.Errorf("fault %q: there is none of that name; there are %s", name, strings.Join(FaultNames(), ", "))
	}
	return f, nil
}

// prepare looks which faults are on.
func (f *Faults) prepare() {
	f.any = f.UsedID || f.UsedTwice || f.UsedLength || f.UsedShort || f.NumBuffers != 0 || f.CSumBeyond || f.GSOLie || f.NeedsReset
	if f.Every <= 0 {
		f.Every = 3
	}
}

// strikes says whether it is time for a fault.
func (d *Device) strikes() bool {
	f := &d.cfg.Faults
	f.seen++
	return f.seen%f.Every == 0
}

// bend makes what is reported wrong.
func (q *queue) bend(list []done) []done {
	f := &q.d.cfg.Faults
	e := &list[len(list)-1]
	switch {
	case f.UsedID && q.d.strikes():
		e.id = uint16(q.size) + 5
	case f.UsedTwice && len(list) > 1 && q.d.strikes():
		e.id = list[0].id
	case f.UsedLength && e.n > 0 && q.d.strikes():
		e.n = 1 << 20
	case f.UsedShort && e.n > 0 && q.d.strikes():
		e.n = 3
	case f.NeedsReset && q.d.strikes():
		q.d.fail()
		return nil
	}
	return list
}

// numBuffers is what the header says, of k buffers.
func (d *Device) numBuffers(k int) uint16 {
	n := d.cfg.Faults.NumBuffers
	switch {
	case n == 0 || !d.strikes():
		return uint16(k)
	case n < 0:
		return 0
	}
	return uint16(k + n)
}

// bendArrival makes the header of a received frame wrong.
func (d *Device) bendArrival(a *arrival) {
	f := &d.cfg.Faults
	switch {
	case f.CSumBeyond && d.strikes():
		a.h.Flags, a.h.CSumStart, a.h.CSumOffset = spec.HdrNeedsCSum, uint16(len(a.data)), 16
	case f.GSOLie && d.strikes():
		a.h.GSOType, a.h.GSOSize, a.h.Flags = spec.GSOTCPv4, 0, spec.HdrNeedsCSum
	}
}

// bendConfig makes the configuration wrong.
func (f *Faults) bendConfig(c []byte) {
	if f.BadMAC {
		c[spec.NetMAC] |= 1
	}
	if f.BadPairs {
		binary.LittleEndian.PutUint16(c[spec.NetMaxPairs:], 0)
	}
	if f.BadMTU {
		binary.LittleEndian.PutUint16(c[spec.NetMTU:], 10)
	}
}
