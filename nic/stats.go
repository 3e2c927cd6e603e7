package nic

import "fmt"

// Stats are the totals of a port since Start. Bytes are without FCS.
type Stats struct {
	RxPackets, TxPackets uint64
	RxBytes, TxBytes     uint64
	RxMulticast          uint64
	RxBroadcast          uint64
	RxMissed             uint64 // the card's packet buffer was full
	RxNoDesc             uint64 // dropped by a queue without descriptors
	RxNoBuf              uint64 // times that a ring could not be refilled for want of buffers
	RxErrors             uint64 // bad CRC, length, symbol and the like
	RxCRCErrors          uint64
	RxLengthErrors       uint64 // runts, fragments, oversize, jabber, length field
	TxErrors             uint64 // frames taken and not sent, of all reasons below
	TxDropped            [TxDropReasons]uint64
	TxFull               uint64 // calls of Send that could not take all
	Queues               []QueueStats
	Quarantined          uint64 // buffers in quarantine now
}

// QueueStats are the totals of queue i of both directions.
type QueueStats struct {
	RxPackets, RxBytes uint64 // what Recv has handed out
	RxNoDesc           uint64
	RxNoBuf            uint64
	TxPackets, TxBytes uint64 // what Send has given to the card
	TxFull             uint64
}

// TxDropReason says why a frame that Send took was not sent.
type TxDropReason int

// Reasons.
const (
	TxTooShort   TxDropReason = iota // shorter than an Ethernet header, or with a segment of no bytes
	TxTooLong                        // longer than Config.MaxFrame
	TxTooManySeg                     // more segments than Info.MaxSegs
	TxBadOffload                     // asks for an offload that is off, or with headers that do not fit
	TxNoAddress                      // memory that the card cannot reach
	TxLost                           // the port stopped or went away first

	// TxDropReasons is the number of reasons.
	TxDropReasons int = iota
)

var txDropNames = [TxDropReasons]string{"too short", "too long", "too many segments", "bad offload", "no bus address", "port stopped"}

func (r TxDropReason) String() string {
	if r < 0 || int(r) >= TxDropReasons {
		return fmt.Sprintf("TxDropReason(%d)", int(r))
	}
	return txDropNames[r]
}
