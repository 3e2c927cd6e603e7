package mbuf

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Errors of buffer operations. They are returned wrapped, with the numbers.
var (
	ErrNoRoom   = errors.New("no room in the buffer")
	ErrShared   = errors.New("the buffer is shared: its bytes have other readers")
	ErrNoBuffer = errors.New("the pool has no buffer left")
)

// Flags say what is known of a received frame. They stand in its head.
//
// The low ten bits are laid out as the 82599 reports them (datasheet §7.1.6.2, RSS type and packet type), so that its driver
// has nothing to translate for each frame.
type Flags uint32

// Flags of received frames.
const (
	RxHash   Flags = 0xf // not 0: Hash is the RSS hash, of this RSS type (82599 datasheet table 7-15)
	RxIPv4   Flags = 1 << 4
	RxIPv4Op Flags = 1 << 5 // IPv4 with options
	RxIPv6   Flags = 1 << 6
	RxIPv6Ex Flags = 1 << 7 // IPv6 with extension headers
	RxTCP    Flags = 1 << 8
	RxUDP    Flags = 1 << 9
	RxVLAN   Flags = 1 << 16 // VLAN is the tag that was taken out of the frame
	RxIPGood Flags = 1 << 17 // the IPv4 header checksum was checked: right
	RxIPBad  Flags = 1 << 18 // … wrong
	RxL4Good Flags = 1 << 19 // the TCP or UDP checksum was checked: right
	RxL4Bad  Flags = 1 << 20 // … wrong
	RxStamp  Flags = 1 << 21 // Stamp is the card's time of arrival

	// RxL4Partial comes with RxL4Good: the frame was made by a neighbour on the same machine, who has left the TCP or UDP
	// checksum to whoever puts it on a wire. Its field holds the sum of the pseudo-header, not complemented; who sends the frame
	// on asks for TxL4Sum.
	RxL4Partial Flags = 1 << 22
	// RxGSO marks a TCP frame that is longer than the wire allows, because segments of MSS bytes of payload were joined, or have
	// not been cut yet. Who sends it on asks for TxTSO.
	RxGSO Flags = 1 << 23

	// RxTypes are the flags that tell what kind of packet it is.
	RxTypes = RxHash | RxIPv4 | RxIPv4Op | RxIPv6 | RxIPv6Ex | RxTCP | RxUDP
)

// TxFlags say what the card is asked to do to a frame before it sends it. They stand in its head.
type TxFlags uint32

// What a card can be asked for.
const (
	TxIPSum   TxFlags = 1 << iota // fill in the IPv4 header checksum
	TxL4Sum                       // fill in the TCP or UDP checksum; its field holds the pseudo-header sum with the length
	TxTSO                         // cut a TCP frame into segments of MSS bytes of payload, with both sums
	TxVLAN                        // insert VLAN
	TxUDP                         // TxL4Sum means UDP (else TCP)
	TxIPv6                        // the network header is IPv6 (else IPv4)
	txAll     = 1<<iota - 1
	extraView = 1 << 31 // this is not the view that the block embeds
)

// Buf is a view of a block: bytes off … off+len of its storage, the next segment, and the metadata of the frame if this is
// its head. Its owner alone may use it. 64 bytes: one cache line.
type Buf struct {
	check checkState

	base unsafe.Pointer // first byte of the block's storage
	next *Buf
	blk  *Block
	off  uint32
	len  uint32

	info uint64  // Flags, and in the high half Hash
	tx   TxFlags // 0 while the block is free
	// VLAN is the 802.1Q tag control information, host order.
	VLAN uint16
	// Port is a number of the user's own for the port of arrival.
	Port uint16
	// L2Len, L3Len and L4Len are the header lengths, bytes, that offloads of sent frames need.
	L2Len uint8
	L4Len uint8
	L3Len uint16
	// MSS is the TCP payload of one segment, bytes, for TxTSO and with RxGSO.
	MSS uint16
	// Stamp is the card's time of arrival, ns, when Flags have RxStamp. Before a Send it is free for the user's own use.
	Stamp int64
}

// Block is storage with a count of its views. Applications see it through Buf only.
type Block struct {
	trace checkTrace // of no size without the sanitizer
	first Buf

	// state is the count of views in the low half. The high half says what a fast free has to leave to the slow one: the
	// block is external, or charged to an account. So state == 1 means: one view, nothing special.
	state atomic.Uint64
	base  unsafe.Pointer
	bus   uint64
	cap   uint32
	index uint32
	pool  *Pool
	acct  atomic.Pointer[Account]
	next  *Block // in the return list or the done queue
	ext   *external
}

const (
	refMask      = 1<<32 - 1
	stateExt     = 1 << 32 // memory of the application's, not of the pool's
	stateCharged = 1 << 33 // acct is set
)

// Bytes returns the bytes of this segment. The slice is good until the buffer is freed or handed on.
func (b *Buf) Bytes() []byte {
	b.alive("Bytes")
	// As unsafe.Slice, without its checks: off and len are within the block by construction.
	return (*[1 << 32]byte)(unsafe.Add(b.base, b.off))[:b.len:b.len]
}

// Len is the number of bytes of this segment.
func (b *Buf) Len() int {
	b.alive("Len")
	return int(b.len)
}

// Next is the next segment of the frame, or nil.
func (b *Buf) Next() *Buf {
	b.alive("Next")
	return b.next
}

// SetNext makes n (nil: nothing) follow b. What followed b before is not freed.
func (b *Buf) SetNext(n *Buf) {
	b.alive("SetNext")
	b.next = n
}

// Last is the last segment of the frame that b begins.
func (b *Buf) Last() *Buf {
	for b.next != nil {
		b = b.next
	}
	return b
}

// FrameLen is the number of bytes of the frame that b begins, without FCS: the sum over its segments.
func (b *Buf) FrameLen() int {
	n := 0
	for ; b != nil; b = b.next {
		n += int(b.len)
	}
	return n
}

// Segs is the number of segments of the frame that b begins.
func (b *Buf) Segs() int {
	n := 0
	for ; b != nil; b = b.next {
		n++
	}
	return n
}

// Bus is the bus address of the first byte of this segment.
func (b *Buf) Bus() uint64 {
	b.alive("Bus")
	return b.blk.bus + uint64(b.off)
}

// Headroom is the number of bytes in front of this segment's.
func (b *Buf) Headroom() int { return int(b.off) }

// Tailroom is the number of bytes behind this segment's.
func (b *Buf) Tailroom() int { return int(b.blk.cap - b.off - b.len) }

// Capacity is the size of the storage under b, bytes: what an account is charged for it.
func (b *Buf) Capacity() int { return int(b.blk.cap) }

// Refs is the number of views of the storage under b.
func (b *Buf) Refs() int { return int(b.blk.state.Load() & refMask) }

// Writable says whether b is the only view of its storage, and that is the pool's own: an application's (External) may
// have further readers that no count knows of. Only then may the bytes be changed.
func (b *Buf) Writable() bool {
	b.alive("Writable")
	return b.blk.state.Load()&^stateCharged == 1
}

// Pool is the pool that the storage belongs to.
func (b *Buf) Pool() *Pool { return b.blk.pool }

// Reserve appends n bytes to this segment and returns them, to be written by the caller: the room itself, not a copy of
// something. It fails with ErrNoRoom or ErrShared and then has changed nothing.
func (b *Buf) Reserve(n int) ([]byte, error) {
	b.alive("Reserve")
	if n < 0 || n > b.Tailroom() {
		return nil, fmt.Errorf("reserve %d bytes where %d are free: %w", n, b.Tailroom(), ErrNoRoom)
	}
	if !b.Writable() {
		return nil, fmt.Errorf("reserve %d bytes: %w", n, ErrShared)
	}
	room := unsafe.Slice((*byte)(unsafe.Add(b.base, b.off+b.len)), n)
	b.len += uint32(n)
	return room, nil
}

// SetLen makes this segment n bytes long; n reaches at most to the end of the storage. The bytes that are new to it are
// whatever is in memory: the driver uses it for what the card wrote.
func (b *Buf) SetLen(n int) error {
	b.alive("SetLen")
	if uint(n) > uint(b.blk.cap-b.off) {
		return b.noRoom(n)
	}
	b.len = uint32(n)
	return nil
}

// TxFlags is what the card is asked to do.
func (b *Buf) TxFlags() TxFlags { return b.tx & txAll }

// SetTxFlags asks the card for f.
func (b *Buf) SetTxFlags(f TxFlags) {
	b.alive("SetTxFlags")
	b.tx = b.tx&extraView | f&txAll
}

func (b *Buf) noRoom(n int) error {
	return fmt.Errorf("set length %d where %d fit: %w", n, b.blk.cap-b.off, ErrNoRoom)
}

// Plain says whether b is a frame of one segment that asks for nothing, and the view that is embedded in its block, in a
// block of pool p: what nearly every frame is, and what can be given back without a further look.
func (b *Buf) Plain(p *Pool) bool {
	if checking {
		return b.next == nil && b.tx == 0 && b.blk.pool == p
	}
	// The order matters: b is its block's first view, and so the first thing in it, when tx is 0.
	return b.next == nil && b.tx == 0 && (*Block)(unsafe.Pointer(b)).pool == p
}

// TxKey is what the card is asked for in one word: TxFlags, VLAN, L2Len and L3Len. Of two frames with the same key the card
// is asked for the same, unless they are to be cut (TxTSO).
func (b *Buf) TxKey() uint64 {
	return uint64(b.tx) | uint64(b.VLAN)<<8 | uint64(b.L3Len)<<32 | uint64(b.L2Len)<<48
}

// Asks says whether b is a frame of one segment that asks for what key says (see TxKey), and the only view of a block of pool
// p: it is writable, and without TxFlags it is plain.
func (b *Buf) Asks(key uint64, p *Pool) bool {
	if b.TxKey() != key || b.next != nil || int32(b.tx) <= 0 { // negative: extraView
		return false
	}
	if checking {
		return b.blk.pool == p && b.blk.state.Load() == 1
	}
	blk := (*Block)(unsafe.Pointer(b)) // b is the first thing in it
	return blk.pool == p && blk.state.Load() == 1
}

// PlainBus is Bus for a frame that Plain has said yes to.
func (b *Buf) PlainBus() uint64 {
	if checking {
		return b.Bus()
	}
	return (*Block)(unsafe.Pointer(b)).bus + uint64(b.off)
}

// Renew makes a buffer that comes from Cache.AllocRaw ready for the card to write to, with headroom bytes in front, and
// returns the bus address behind them. Length, hash and flags are stale until Received.
func (b *Buf) Renew(headroom uint32) uint64 {
	b.off = headroom
	if checking {
		return b.Bus()
	}
	return (*Block)(unsafe.Pointer(b)).bus + uint64(headroom)
}

// Received is SetLen for the driver's fast path, for lengths that it has checked against the room it gave the card, with
// what every frame has to say: flags in the low half of info, hash in the high one.
func (b *Buf) Received(n uint32, info uint64) {
	b.alive("Received")
	b.len = n
	b.info = info
}

// Flags say what is known of the received frame that b begins.
func (b *Buf) Flags() Flags { return Flags(b.info) }

// Hash is the RSS hash, when Flags has RxHash.
func (b *Buf) Hash() uint32 { return uint32(b.info >> 32) }

// SetInfo sets flags and hash.
func (b *Buf) SetInfo(flags Flags, hash uint32) {
	b.alive("SetInfo")
	b.info = uint64(hash)<<32 | uint64(flags)
}

// TrimFront takes n bytes off the front of this segment.
func (b *Buf) TrimFront(n int) error {
	b.alive("TrimFront")
	if n < 0 || n > int(b.len) {
		return fmt.Errorf("trim %d bytes of a segment of %d: %w", n, b.len, ErrNoRoom)
	}
	b.off += uint32(n)
	b.len -= uint32(n)
	return nil
}

// TrimBack takes n bytes off the end of this segment.
func (b *Buf) TrimBack(n int) error {
	b.alive("TrimBack")
	if n < 0 || n > int(b.len) {
		return fmt.Errorf("trim %d bytes of a segment of %d: %w", n, b.len, ErrNoRoom)
	}
	b.len -= uint32(n)
	return nil
}

// Prepend puts n bytes of room in front of the frame that b begins and returns its new head and the room. That is b
// itself when b is writable and has the headroom; otherwise a buffer from c, with b behind it. The metadata go with the
// head. On an error nothing has changed and b is still the caller's.
func (b *Buf) Prepend(c *Cache, n int) (head *Buf, room []byte, err error) {
	b.alive("Prepend")
	if n < 0 {
		return nil, nil, fmt.Errorf("prepend %d bytes: %w", n, ErrNoRoom)
	}
	if n <= int(b.off) && b.Writable() {
		b.off -= uint32(n)
		b.len += uint32(n)
		return b, unsafe.Slice((*byte)(unsafe.Add(b.base, b.off)), n), nil
	}
	h := c.Alloc()
	if h == nil {
		return nil, nil, fmt.Errorf("prepend %d bytes: %w", n, ErrNoBuffer)
	}
	room, err = h.Reserve(n)
	if err != nil {
		c.Free(h)
		return nil, nil, fmt.Errorf("prepend: %w", err)
	}
	h.info, h.VLAN, h.Port = b.info, b.VLAN, b.Port
	h.L2Len, h.L3Len, h.L4Len, h.MSS, h.Stamp = b.L2Len, b.L3Len, b.L4Len, b.MSS, b.Stamp
	h.tx = b.TxFlags()
	b.info, b.tx = 0, b.tx&extraView
	h.next = b
	return h, room, nil
}

// Clone returns a second view of the whole frame that b begins: same bytes, same metadata, no copy. Neither may be written
// while both live. The views come from c, or straight from the pool that a segment's storage belongs to when that is not
// c's; nil when there are not enough, and then nothing has changed.
func (b *Buf) Clone(c *Cache) *Buf {
	b.alive("Clone")
	var head, tail *Buf
	for s := b; s != nil; s = s.next {
		v := c.view(s)
		if v == nil {
			if head != nil {
				c.Free(head)
			}
			return nil
		}
		if tail == nil {
			head = v
		} else {
			tail.next = v
		}
		tail = v
	}
	return head
}

// Free gives back the frame that b begins, all its segments. Any goroutine may call it; a worker's own Cache.Free is
// cheaper.
func (b *Buf) Free() {
	for b != nil {
		next := b.next
		b.release(nil)
		b = next
	}
}

// release gives back one segment: the view, and the block if this was its last view. c, when given, takes what belongs to
// its pool.
func (b *Buf) release(c *Cache) {
	b.dying()
	blk := b.blk
	pool := blk.pool
	b.next = nil
	first := b.isFirst()
	if first {
		b.tx = 0 // as it is for every block that is free
	}
	last := blk.state.Load()&refMask == 1 || blk.state.Add(^uint64(0))&refMask == 0
	if !first {
		if c != nil && c.pool == pool {
			c.putView(b)
		} else {
			pool.returnView(b)
		}
	}
	if !last {
		return
	}
	if s := blk.state.Load(); s>>32 != 0 {
		if s&stateCharged != 0 {
			blk.credit()
		}
		if s&stateExt != 0 {
			pool.finishExternal(blk)
			return
		}
	}
	blk.state.Store(1)
	blk.poison()
	if c != nil && c.pool == pool {
		c.put(blk)
		return
	}
	pool.returnBlock(blk)
}
