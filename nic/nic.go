// Package nic is the contract between a network card's driver and whoever uses it: the packet generator, the stack, a
// test.
//
// A [Port] is one port of one card. It is started with a [Config], and then has queues: an [RxQueue] hands out the frames
// that the card has written into buffers, a [TxQueue] takes frames whose buffers the card reads. Frames are [mbuf.Buf]
// values, one entry a frame: the head of its chain of segments. Nothing is copied on the way; the buffer that Recv returns
// is the one the card wrote.
//
// Who owns a buffer: what Recv returns belongs to the caller, who frees it. What Send takes belongs to the driver until
// the card says that it has been sent; then the driver frees it. What Send does not take stays the caller's.
//
// Who may call: one goroutine for each queue. Everything else on a Port may be called from any goroutine.
//
// # Offloads
//
// A card does for a frame what its flags ask for ([mbuf.TxFlags]) and Config.Offloads allows; asked for nothing, it sends
// the bytes as they are. For all drivers alike:
//
//   - L2Len, L3Len and L4Len of the head say where the headers are: link header with its tags, IPv4 header with options or
//     IPv6 header with extensions, TCP header with options (L4Len counts for TxTSO only). VLAN holds the tag for TxVLAN,
//     which is inserted behind the addresses and is no part of L2Len.
//   - All of these headers lie in the first segment, which is writable (see mbuf.Buf.Writable) unless TxVLAN is all that is
//     asked for: the driver may edit them. Drivers write nothing else.
//   - The L4 checksum field holds the sum of the pseudo-header, with the length of the L4 header and all that follows it,
//     not complemented. With TxIPSum the field of the IPv4 checksum may hold anything.
//   - TxTSO cuts a TCP frame, which may be longer than Config.MaxFrame, into segments of MSS bytes of payload. It implies
//     TxL4Sum, and for IPv4 TxIPSum. Lengths in the IP header may be anything; the IPv4 id counts up from the first
//     segment's; FIN and PSH are for the last segment alone, CWR for the first. Stats.TxPackets counts segments, the queues' counts frames.
//   - Nothing follows the datagram: padding in the buffer would be summed too.
//   - What does not fit together is TxBadOffload: taken, freed and counted like every frame that can never be sent.
//
// Received frames whose checksums were checked say so by RxIPGood, RxIPBad, RxL4Good or RxL4Bad. Neither means that nobody
// knows: the card did not look, or is known to err there. A frame is never dropped for a bad checksum.
//
// Package device opens ports by name. Whoever writes a driver runs package nictest on it.
package nic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"bare.wire/mbuf"
)

// ErrGone means that the card can no longer be used: it was unplugged, it stopped answering, or it broke the rules of
// its own interface. Errors that carry the reason wrap it. Only Close makes sense after it.
var ErrGone = errors.New("the device is gone")

// ErrNotStarted is returned by calls that need a started port.
var ErrNotStarted = errors.New("the port is not started: call Start first")

// Port is one port of a card.
type Port interface {
	// Info says what the card is and can do. It does not change.
	Info() Info
	// Start resets and configures the card, fills its receive rings from the pools of cfg and lets traffic flow. It
	// does not wait for the link (see Link). An error names what was refused and leaves the port stopped.
	Start(ctx context.Context, cfg Config) error
	// Stop ends traffic. When it returns nil every buffer is back in its pool; buffers that the card may still touch
	// are quarantined (see mbuf.Pool), and the error says how many and why. Stop on a stopped port does nothing. No call of
	// a queue may be running; whoever sleeps on an armed one is woken.
	Stop() error
	// Close stops the port, resets the card, switches off its bus mastering and gives everything back.
	Close() error
	// Rx and Tx return queue i of the started port; i below Config.RxQueues or TxQueues. The value is good until Stop.
	Rx(i int) RxQueue
	Tx(i int) TxQueue
	// Link is the state of the link as last seen by Housekeep or an interrupt; it costs no register access.
	Link() Link
	// ArmLink asks for w to be woken once when Link is no longer as seen, which the caller has from Link, or the port stops.
	// It returns false when that is so already, and on a port that is closed.
	ArmLink(w *Waiter, seen Link) bool
	// Stats returns totals since Start: 64 bits, never going back, bytes without FCS. It includes what the card has
	// counted up to the call.
	Stats() Stats
	// Err is nil until the port is gone, then the reason, wrapping ErrGone. Recv and Send return 0 from then on.
	Err() error
	// Housekeep does what has to be done now and then: counters (36-bit ones wrap in 55 s at 10 Gb/s), link, transmit
	// hang. Call it once a second; at most 20 s may lie between two calls. It may run beside Recv and Send.
	Housekeep(now time.Time)
	// Filters returns what is let in. Calls that a card cannot serve return errors.ErrUnsupported.
	Filters() Filters
}

// RxQueue is a receive queue of a started port.
type RxQueue interface {
	// Recv moves up to len(into) received frames into it and returns how many. Each entry is the head of a frame, whose
	// segments follow by Next; the caller owns them all. It never waits and does not allocate.
	Recv(into []*mbuf.Buf) int
	// Arm asks for w to be woken at the next frame. It returns false when frames wait already, or when none can come
	// because the pool has no buffer for the ring: then do not sleep.
	Arm(w *Waiter) bool
}

// TxQueue is a transmit queue of a started port.
type TxQueue interface {
	// Send takes the first n frames of pkts and returns n. Fewer than len(pkts) means that the ring is full, and
	// nothing else. A frame that can never be sent (empty, too long, too many segments) is taken, freed and counted by
	// reason in Stats. A frame is freed when the card has sent it, never earlier.
	Send(pkts []*mbuf.Buf) int
	// Reclaim frees what the card has finished with and returns the number of frames. Send reclaims too, but not while
	// only a few frames are out: whoever waits for buffers, or goes idle, calls Reclaim.
	Reclaim() int
	// Arm asks for w to be woken when the card finishes a frame. It returns false when something can be reclaimed now.
	Arm(w *Waiter) bool
}

// Info describes a card.
type Info struct {
	Driver    string // "ixgbe"
	Name      string // "0000:03:00.0", "sim:a"
	Device    string // name of the part, "82599ES 10G SFP+"
	MAC       [6]byte
	NUMANode  int // -1: unknown
	RxQueues  int // at most
	TxQueues  int
	RSSQueues int // queues that RSS can spread over; 16 on the 82599
	MinDesc   int // ring sizes that are accepted
	MaxDesc   int
	DescAlign int // ring sizes are multiples of this; a driver may round one up to what its device can do
	MaxFrame  int // longest frame, bytes without FCS, that can be configured
	MaxSegs   int // segments of one frame on Send
	MaxTSO    int // payload of one frame with TxTSO, bytes; 0: there is no TxTSO
	MinMSS    int // least mbuf.Buf.MSS for it, bytes
	// MaxInterruptInterval is the longest Config.InterruptInterval; 0: there is no choice.
	MaxInterruptInterval time.Duration
	Offloads             Offload
	Software             bool // a software card: no silicon, nobody else's bus
}

// Offload is a set of things that a card does for the frames it sends or receives.
type Offload uint32

// Offloads. The driver sets in received buffers, and obeys in sent ones, the flags of mbuf that correspond.
const (
	RxRSSHash      Offload = 1 << iota // the hash of each frame is in the buffer
	RxIPChecksum                       // IPv4 header checksum checked
	RxL4Checksum                       // TCP and UDP checksum checked
	RxVLANStrip                        // tag moved from the frame to the buffer
	RxScatter                          // frames longer than a buffer come in several
	RxTimestamp                        // hardware time stamps
	TxIPChecksum                       // IPv4 header checksum filled in
	TxL4Checksum                       // TCP and UDP checksum filled in
	TxTSO                              // TCP segmentation
	TxVLANInsert                       // tag taken from the buffer
	TxMultiSegment                     // frames of several segments are gathered
	RxGSO                              // TCP segments come joined, in frames longer than Config.MaxFrame (mbuf.RxGSO)
)

// Config is what Start is given. The zero value of a field means its default.
type Config struct {
	RxQueues, TxQueues int // default 1
	RxDesc, TxDesc     int // descriptors a ring, default 512
	// Pool is where receive buffers come from; RxPools, when set, gives queue i RxPools[i]. Its data room after the
	// headroom decides how a frame is cut into segments.
	Pool    *mbuf.Pool
	RxPools []*mbuf.Pool
	// MaxFrame is the longest frame that is received and sent, bytes without FCS, tags included; default 1518 (1500
	// bytes of payload and one VLAN tag).
	MaxFrame int
	// Promiscuous and AllMulticast open the filters from the start.
	Promiscuous, AllMulticast bool
	// VLANFilter says that Filters.AddVLAN is going to be used. Some cards have to know that when they start: virtio drops every VLAN
	// that it has not been told of, once it filters at all. Others take AddVLAN at any time.
	VLANFilter bool
	// Offloads asks for a subset of Info.Offloads; Start refuses what the card cannot do.
	Offloads Offload
	// RSS spreads received frames over the queues when RxQueues > 1.
	RSS RSSConfig
	// DropWhenFull decides what a full queue does to the others. By default it drops its own frames, counted; with
	// BlockWhenFull they wait in the card's packet buffer, and once that is full all queues stand.
	BlockWhenFull bool
	// Loopback returns every sent frame to the port itself, inside the card, without a cable.
	Loopback bool
	// InterruptInterval is the shortest time between two interrupts of a queue; it is rounded up to what the card can count.
	// By default there is none: a queue interrupts only after it has been armed, so that a worker under load causes no storm
	// of them, and who sleeps wakes at once. Longer saves wakes where frames trickle in, and adds as much to their latency.
	InterruptInterval time.Duration
	// HonourPause stops sending while the link partner asks for it (802.3x pause frames). Pause frames are never sent.
	HonourPause bool
}

// RSSConfig is receive-side scaling. The zero value: the driver's default key, all hash types, queues in turn.
type RSSConfig struct {
	Key   []byte  // 40 bytes
	Table []uint8 // 128 queue numbers, indexed by the low 7 bits of the hash
	Types RSSType
}

// RSSType is a set of packet types whose addresses (and ports) are hashed.
type RSSType uint32

// RSS hash types, as in Microsoft's specification.
const (
	RSSIPv4 RSSType = 1 << iota
	RSSTCP4
	RSSUDP4
	RSSIPv6
	RSSTCP6
	RSSUDP6
)

// RSSAll is every hash type.
const RSSAll = RSSIPv4 | RSSTCP4 | RSSUDP4 | RSSIPv6 | RSSTCP6 | RSSUDP6

// Link is the state of a link.
type Link struct {
	Up    bool
	Speed uint64 // bit/s; 0 when unknown or down
}

func (l Link) String() string {
	if !l.Up {
		return "down"
	}
	switch {
	case l.Speed == 0:
		return "up"
	case l.Speed%1e9 == 0:
		return fmt.Sprintf("up %d Gb/s", l.Speed/1e9)
	default:
		return fmt.Sprintf("up %d Mb/s", l.Speed/1e6)
	}
}

// Filters decides which frames are let in.
type Filters interface {
	SetPromiscuous(on bool) error
	SetAllMulticast(on bool) error
	// AddMAC and RemoveMAC open the filter for a further unicast or multicast address.
	AddMAC(mac [6]byte) error
	RemoveMAC(mac [6]byte) error
	// AddVLAN and RemoveVLAN; with no VLAN added the VLAN filter is off. See Config.VLANFilter.
	AddVLAN(vid uint16) error
	RemoveVLAN(vid uint16) error
	// AddFlow steers matching frames to a queue, or drops them.
	AddFlow(Flow) (FlowID, error)
	RemoveFlow(FlowID) error
}

// FlowID names a rule that AddFlow made.
type FlowID uint32

// Flow is a rule for received frames. Zero fields match anything.
type Flow struct {
	EtherType        uint16
	Proto            uint8
	Src, Dst         [16]byte // IPv4 in the first four bytes
	SrcPort, DstPort uint16
	IPv6             bool
	Queue            int
	Drop             bool
	Priority         uint8 // 0 … 7, 7 wins
}
