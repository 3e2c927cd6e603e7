package spec

import "fmt"

// MaxQueueSize is the most descriptors that a queue has (§2.7, §2.8.10.1).
const MaxQueueSize = 32768

// DescSize is the length of a descriptor of either kind of ring, bytes.
const DescSize = 16

// Descriptor flags (§2.7.5, §2.8.1).
const (
	DescNext     = 1 << 0 // the chain goes on
	DescWrite    = 1 << 1 // for the device to write; else to read
	DescIndirect = 1 << 2 // addr and len are a table of descriptors
	DescAvail    = 1 << 7 // packed: the driver's wrap counter when it made the descriptor available
	DescUsed     = 1 << 15
)

// A descriptor of a split ring (§2.7.5), offsets in bytes.
const (
	SplitDescAddr  = 0  // 8
	SplitDescLen   = 8  // 4
	SplitDescFlags = 12 // 2
	SplitDescNext  = 14 // 2
)

// A descriptor of a packed ring (§2.8.13): SplitDescAddr and SplitDescLen are the same.
const (
	PackedDescID    = 12 // 2
	PackedDescFlags = 14 // 2
)

// Flags of the rings' heads, bit 0 (§2.7.6, §2.7.8).
const (
	AvailNoInterrupt = 1
	UsedNoNotify     = 1
)

// Event suppression of packed rings (§2.8.14): two bytes of position, two of flags.
const (
	EventEnable  = 0
	EventDisable = 1
	EventDesc    = 2 // at the position; FeatureEventIdx
	EventWrap    = 1 << 15
	EventSize    = 4
)

// SplitLayout says where the three parts of a split ring lie in one piece of memory, offsets in bytes.
//
//	descriptor table   16·N
//	available ring     flags u16, idx u16, N × u16, used_event u16
//	used ring          flags u16, idx u16, N × {id u32, len u32}, avail_event u16
//
// Behind each event word are two bytes that nobody uses, so that its owner may write it as part of an aligned word of four, in
// rings of two descriptors or more.
type SplitLayout struct {
	Size                      int // descriptors
	Avail, Used               int // the descriptor table is at 0
	UsedEvent, AvailEvent     int
	AvailEntries, UsedEntries int
	Bytes                     int // of all
}

// NewSplitLayout lays out a ring of n descriptors, a power of two, with the used ring at a multiple of align bytes:
// [LegacyAlign], or anything from 4 on for a device that is told where each part lies.
func NewSplitLayout(n, align int) (SplitLayout, error) {
	if n < 1 || n > MaxQueueSize || n&(n-1) != 0 {
		return SplitLayout{}, fmt.Errorf("split ring of %d descriptors: want a power of two, at most %d", n, MaxQueueSize)
	}
	if align < 4 || align&(align-1) != 0 {
		return SplitLayout{}, fmt.Errorf("split ring: used ring aligned to %d: want a power of two, at least 4", align)
	}
	l := SplitLayout{Size: n, Avail: DescSize * n}
	l.AvailEntries = l.Avail + 4
	l.UsedEvent = l.AvailEntries + 2*n
	l.Used = (l.UsedEvent + 4 + align - 1) &^ (align - 1)
	l.UsedEntries = l.Used + 4
	l.AvailEvent = l.UsedEntries + 8*n
	l.Bytes = l.AvailEvent + 4
	return l, nil
}

// PackedLayout says where the parts of a packed ring lie in one piece of memory: the ring at 0, then the two event structures.
type PackedLayout struct {
	Size                     int // descriptors, any number
	DriverEvent, DeviceEvent int
	Bytes                    int
}

// NewPackedLayout lays out a ring of n descriptors.
func NewPackedLayout(n int) (PackedLayout, error) {
	if n < 1 || n > MaxQueueSize {
		return PackedLayout{}, fmt.Errorf("packed ring of %d descriptors: want 1 to %d", n, MaxQueueSize)
	}
	l := PackedLayout{Size: n, DriverEvent: DescSize * n}
	l.DeviceEvent = l.DriverEvent + EventSize
	l.Bytes = l.DeviceEvent + EventSize
	return l, nil
}

// NeedEvent says whether the peer, who wants to hear when its event position is passed, is to be told now that an index has
// gone from old to new (§2.7.7.1). All are positions modulo 2¹⁶; in a packed ring those of one lap.
func NeedEvent(event, to, from uint16) bool { return to-event-1 < to-from }
