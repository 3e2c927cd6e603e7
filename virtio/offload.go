package virtio

import (
	"encoding/binary"
	"unsafe"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
)

const (
	ipSumAt  = 10 // IPv4 header checksum, in its header
	tcpSumAt = 16 // TCP checksum, in its header
	udpSumAt = 6
	cwr      = 0x80 // in a TCP header's flags

	// maxTSO is the payload of the longest frame that is sure to be cut, bytes: the length of an IP packet has 16 bits, and its
	// header and TCP's have up to 60 bytes each. minMSS keeps a frame from becoming thousands.
	maxTSO = 65535 - 60 - 60
	minMSS = 64
)

// headerFlags are those for which the device has to know where headers are.
const headerFlags = mbuf.TxL4Sum | mbuf.TxTSO

// allowedFlags are what frames may ask for when a port has been started with offloads. The IPv4 checksum is the driver's, and
// only that of a frame that is cut (see nic's comment).
func allowedFlags(offloads nic.Offload) mbuf.TxFlags {
	f := mbuf.TxUDP | mbuf.TxIPv6 // these ask for nothing
	if offloads&nic.TxL4Checksum != 0 {
		f |= mbuf.TxL4Sum
	}
	if offloads&nic.TxTSO != 0 {
		f |= mbuf.TxTSO
	}
	return f
}

// txPlan is the header of a frame, and what the frame has to look like for it. But for frames that are cut it is the same for
// all that ask for the same, so it is worked out once for many of them.
type txPlan struct {
	lo uint64 // flags, gso_type, hdr_len, gso_size, csum_start; see rxHeader
	hi uint32 // csum_offset

	key     uint64 // mbuf.Buf.TxKey of the frames that it is for, 0 for a frame that is cut, or asks for nothing
	headers uint32 // bytes that are in its first segment
	span    uint32 // longest frame − headers
	ip      uint32 // where the IP header is
	mask    byte   // of its first byte
	version byte

	// Of a frame that is cut; 0 otherwise.
	mss uint32
	l3  uint32 // bytes of the IP header
}

// planCache has two plans, of which that makes room which was not used last.
type planCache struct {
	kept [2]txPlan
	last uint32
}

// known returns the plan for what b asks for; nil when there is none.
func (c *planCache) known(b *mbuf.Buf) *txPlan {
	if b.TxFlags() == 0 {
		return nil
	}
	key := b.TxKey()
	if p := &c.kept[c.last&1]; p.key == key {
		return p
	}
	if p := &c.kept[c.last&1^1]; p.key == key {
		c.last ^= 1
		return p
	}
	return nil
}

// keep keeps a plan that others may use.
func (c *planCache) keep(p *txPlan) {
	if p.key == 0 || p == &c.kept[0] || p == &c.kept[1] {
		return
	}
	c.last ^= 1
	c.kept[c.last&1] = *p
}

// fits says whether a frame of length bytes that asks for what a plan is for can have it. The key has been compared; what is
// left are bounds, and whether there is the IP header that it was made for.
func (p *txPlan) fits(b *mbuf.Buf, length int) bool {
	return uint32(b.Len()) >= p.headers && uint32(length)-p.headers <= p.span && b.Writable() && b.Bytes()[p.ip]&p.mask == p.version
}

// fillPlanned is fill for frames that ask for something, with the plan for it.
func (q *txQueue) fillPlanned(pkts []*mbuf.Buf, p *txPlan) (n int, bytes uint64) {
	run := min(uint32(len(pkts)), q.size-q.out, q.size-q.tail)
	pkts = pkts[:run]
	for n < len(pkts) {
		b := pkts[n]
		if !b.Asks(p.key, q.pool) || uint32(b.Len())-p.headers > p.span || uint32(b.Headroom()) < q.hdr || b.Bytes()[p.ip]&p.mask != p.version {
			break
		}
		b.SetTxFlags(0) // it is plain from here on
		n++
	}
	return q.fill(pkts[:n], p.lo, p.hi) // takes them all: what it asks for has been looked at
}

// plan works out the header of a frame of length bytes, or why it can never be sent.
func (q *txQueue) plan(p *txPlan, b *mbuf.Buf, length int) (reason nic.TxDropReason, ok bool) {
	flags := b.TxFlags()
	allowed := q.allowed
	if flags&mbuf.TxTSO != 0 { // which implies the others
		if allowed |= mbuf.TxL4Sum; flags&mbuf.TxIPv6 == 0 {
			allowed |= mbuf.TxIPSum
		}
	}
	if flags&^allowed != 0 {
		return nic.TxBadOffload, false
	}
	tso := flags&mbuf.TxTSO != 0
	if !tso {
		p.key, p.headers = b.TxKey(), minFrame
		if length > int(q.maxFrame) {
			return nic.TxTooLong, false
		}
	}
	if flags&headerFlags != 0 && !p.headersOf(b, flags) {
		return nic.TxBadOffload, false
	}
	p.span = q.maxFrame - p.headers
	if tso && !q.segmentation(p, b, length) {
		return nic.TxBadOffload, false
	}
	return 0, true
}

// headersOf plans for a checksum. It returns false when the lengths do not fit each other or the frame. The device would write
// a checksum wherever it was told to.
func (p *txPlan) headersOf(b *mbuf.Buf, flags mbuf.TxFlags) bool {
	l2, l3 := int(b.L2Len), int(b.L3Len)
	v6, udp := flags&mbuf.TxIPv6 != 0, flags&mbuf.TxUDP != 0
	all, field := l2+l3+20, tcpSumAt
	switch {
	case flags&mbuf.TxTSO != 0:
		all = l2 + l3 + int(b.L4Len)
	case udp:
		all, field = l2+l3+8, udpSumAt
	}
	if l2 < minFrame || all > b.Len() || !b.Writable() {
		return false
	}
	if p.version, p.mask = ipHeader(l3, v6); p.mask == 0 || b.Bytes()[l2]&p.mask != p.version {
		return false
	}
	p.headers, p.ip = uint32(all), uint32(l2)
	p.lo = spec.HdrNeedsCSum | uint64(l2+l3)<<48
	p.hi = uint32(field)
	return true
}

// ipHeader is what an IP header of n bytes begins with: the bits of its first byte under mask, which is 0 when no header has
// that length.
func ipHeader(n int, v6 bool) (first, mask byte) {
	switch {
	case v6 && n >= 40:
		return 6 << 4, 0xf0
	case !v6 && n >= 20 && n <= 60 && n&3 == 0:
		return 4<<4 | byte(n>>2), 0xff
	}
	return 0, 0
}

// segmentation plans for cutting a frame.
func (q *txQueue) segmentation(p *txPlan, b *mbuf.Buf, length int) bool {
	headers, l2, l4, mss := int(p.headers), int(b.L2Len), int(b.L4Len), int(b.MSS)
	at := headers - l4
	flags := b.TxFlags()
	v6 := flags&mbuf.TxIPv6 != 0
	switch {
	case flags&mbuf.TxUDP != 0 || l4 < 20 || l4 > 60 || int(b.Bytes()[at+12]>>4)*4 != l4:
		return false
	case mss < minMSS || headers+mss > int(q.maxFrame) || length <= headers || length-l2 > 65535:
		return false
	}
	kind := uint64(spec.GSOTCPv4)
	if v6 {
		kind = spec.GSOTCPv6
	}
	if q.ecn && b.Bytes()[at+13]&cwr != 0 {
		kind |= spec.GSOECN
	}
	p.lo |= kind<<8 | uint64(headers)<<16 | uint64(mss)<<32
	p.mss, p.l3 = uint32(mss), uint32(b.L3Len)
	return true
}

// edit gives the IP header of a frame that is cut its length, and IPv4's its checksum: the device takes them to be right.
func (p *txPlan) edit(b *mbuf.Buf, length int) {
	if p.mss == 0 {
		return
	}
	ip := b.Bytes()[p.ip:]
	n := length - int(p.ip)
	if p.version>>4 == 6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(n-40))
		return
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(n))
	binary.BigEndian.PutUint16(ip[ipSumAt:], 0)
	sum := uint32(0)
	for i := 0; i < int(p.l3); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[ipSumAt:], ^uint16(sum+sum>>16))
}

// countCut counts what goes out beyond one frame.
func (q *txQueue) countCut(p *txPlan, length int) {
	if p.mss == 0 {
		return
	}
	more := (uint32(length) - p.headers - 1) / p.mss
	q.cutPackets.Add(uint64(more))
	q.cutBytes.Add(uint64(more * p.headers))
}

// writeHeader writes a header of hdr bytes, num_buffers and what comes behind it 0.
func writeHeader(h unsafe.Pointer, hdr uint32, lo uint64, hi uint32) {
	mem := unsafe.Slice((*byte)(h), hdr)
	clear(mem)
	binary.LittleEndian.PutUint64(mem, lo)
	binary.LittleEndian.PutUint16(mem[spec.HdrCSumOffset:], uint16(hi))
}
