package ixgbe

import (
	"encoding/binary"
	"unsafe"

	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

const (
	// maxData is the most that one descriptor has the card read, bytes: longer segments take several (§7.2.3.2.4, DTALEN).
	maxData = 15872
	// maxTSO is the payload of the longest frame that is cut, bytes: PAYLEN has 18 bits (§7.2.3.2.4).
	maxTSO = 1<<18 - 1
	// minMSS is the shortest segment that is asked for, bytes of payload. It keeps a frame from becoming thousands.
	minMSS = 64
	// Bounds of context fields, bytes (§7.2.3.2.3).
	maxL2 = 1<<7 - 1
	maxL3 = 1<<9 - 1

	tagLen = 4

	ipSumAt  = 10 // IPv4 header checksum, in its header
	tcpSumAt = 16 // TCP checksum, in its header
)

// headerFlags are those for which the card has to know where headers are.
const headerFlags = mbuf.TxIPSum | mbuf.TxL4Sum | mbuf.TxTSO

// allowedFlags are what frames may ask for when a port has been started with offloads.
func allowedFlags(offloads nic.Offload) mbuf.TxFlags {
	f := mbuf.TxUDP | mbuf.TxIPv6 // these ask for nothing
	for _, o := range []struct {
		offload nic.Offload
		flag    mbuf.TxFlags
	}{
		{nic.TxIPChecksum, mbuf.TxIPSum}, {nic.TxL4Checksum, mbuf.TxL4Sum}, {nic.TxTSO, mbuf.TxTSO}, {nic.TxVLANInsert, mbuf.TxVLAN},
	} {
		if offloads&o.offload != 0 {
			f |= o.flag
		}
	}
	return f
}

// txContext is a context descriptor without its index (§7.2.3.2.3).
type txContext struct{ lo, hi uint64 }

// txPlan is what the descriptors of a frame say beside where its bytes are. But for frames that are cut it is the same for
// all that ask for the same, so it is worked out once for many of them.
type txPlan struct {
	key     uint64    // mbuf.Buf.TxKey of the frames that it is for, 0 for a frame that is cut
	context txContext // zero: the frame needs none
	bits    uint64    // of data descriptors

	// What a frame has to look like that this plan is for. Nothing else of it was looked at.
	headers uint32 // bytes that are in its first segment
	span    uint32 // longest frame − headers
	ip      uint32 // where the IP header is
	mask    byte   // of its first byte
	version byte

	// Of a frame that is cut, which has a plan of its own; 0 otherwise.
	cutHeaders uint32 // bytes of headers, which PAYLEN is without
	sumAt      uint32 // where the TCP checksum is
	l4         uint32 // bytes from the L4 header on
}

// planCache has the plans for the two contexts that the card keeps for the queue, each until it is given another
// (§7.2.3.2.3).
type planCache struct {
	kept [2]txPlan
	last uint64 // index of the one that was used last; the other makes room
}

// known returns the plan for what b asks for, which it takes to be used now; nil when there is none.
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

// missing is the number of context descriptors that a plan costs.
func (c *planCache) missing(p *txPlan) int {
	if x := p.context; x.hi == 0 || x == c.kept[0].context || x == c.kept[1].context {
		return 0
	}
	return 1
}

// use keeps a plan, with a context for it if the card does not have that, and returns it as it is kept.
func (q *txQueue) use(p *txPlan) *txPlan {
	c := &q.plans
	index := c.last
	if p.context != c.kept[index].context {
		if index ^= 1; p.context != c.kept[index].context {
			// It asks for no report: the frame behind it does.
			q.ring[q.tail] = txDesc{p.context.lo, p.context.hi | index<<reg.TXC_IDX_Shift}
			q.advance(1)
		}
	}
	c.last = index
	kept := &c.kept[index]
	if kept != p {
		*kept = *p
		kept.bits |= index << reg.TXD_IDX_Shift
	}
	return kept
}

// fits says whether a frame of length bytes that asks for what a plan is for can have it. The key has been compared; what is
// left are bounds, and whether there is the IP header that it was made for.
func (p *txPlan) fits(b *mbuf.Buf, length int) bool {
	return uint32(b.Len()) >= p.headers && uint32(length)-p.headers <= p.span && b.Writable() && b.Bytes()[p.ip]&p.mask == p.version
}

// describePlanned is describe for frames that ask for something, with the plan for it.
func describePlanned(descs []txDesc, pkts []*mbuf.Buf, pool *mbuf.Pool, p *txPlan) (n int, bytes uint64) {
	pkts = pkts[:len(descs)]
	d := unsafe.SliceData(descs) // see collect
	for n < len(descs) {
		b := pkts[n]
		length := uint64(b.Len())
		if !b.Asks(p.key, pool) || uint32(length)-p.headers > p.span || b.Bytes()[p.ip]&p.mask != p.version {
			break
		}
		p.clearSum(b)
		b.SetTxFlags(0) // it is plain from here on
		b.Seal()
		d.lo = b.PlainBus()
		d.hi = length<<reg.TXD_PAYLEN_Shift | length | p.bits | txData | txEnd
		bytes += length
		n++
		d = (*txDesc)(unsafe.Add(unsafe.Pointer(d), descSize))
	}
	return n, bytes
}

// plan works out what a frame of length bytes needs, or why it can never have it.
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
	tag, l2 := 0, uint64(minFrame)
	if flags&mbuf.TxVLAN != 0 {
		tag = tagLen
		p.bits |= reg.TXD_VLE
		p.context.lo |= uint64(b.VLAN) << reg.TXC_VLAN_Shift
	}
	most := int(q.maxFrame) - tag // of a frame in memory
	if flags&mbuf.TxTSO == 0 {
		p.key, p.headers = b.TxKey(), minFrame
		if length > most {
			return nic.TxTooLong, false
		}
	}
	if flags&headerFlags != 0 {
		if !p.plan(b, flags, length, most) {
			return nic.TxBadOffload, false
		}
		l2 = uint64(b.L2Len)
	}
	p.span = uint32(most) - p.headers
	if p.bits != 0 {
		p.context.lo |= l2 << reg.TXC_MACLEN_Shift
		p.context.hi |= reg.TXC_DTYP_CTXT | reg.TXC_DEXT
	}
	return 0, true
}

// plan plans for checksums and segmentation; most is the longest frame that may go out, before it is tagged. It returns
// false when the lengths do not fit each other, the frame or the card. The card does not look: it would write a checksum
// wherever it was told to.
func (p *txPlan) plan(b *mbuf.Buf, flags mbuf.TxFlags, length, most int) bool {
	l2, l3, tso := int(b.L2Len), int(b.L3Len), flags&mbuf.TxTSO != 0
	v6, udp := flags&mbuf.TxIPv6 != 0, flags&mbuf.TxUDP != 0
	all := l2 + l3
	switch {
	case tso:
		all += int(b.L4Len)
	case flags&mbuf.TxL4Sum != 0 && udp:
		all += 8
	case flags&mbuf.TxL4Sum != 0:
		all += 20
	}
	if l2 < minFrame || l2 > maxL2 || all > b.Len() || !b.Writable() {
		return false
	}
	if p.version, p.mask = ipHeader(l3, v6); p.mask == 0 || b.Bytes()[l2]&p.mask != p.version || v6 && flags&mbuf.TxIPSum != 0 {
		return false
	}
	p.headers, p.ip = uint32(all), uint32(l2)
	p.context.lo |= uint64(l3) << reg.TXC_IPLEN_Shift
	if !v6 {
		p.context.hi |= reg.TXC_IPV4
	}
	if flags&mbuf.TxIPSum != 0 || tso && !v6 {
		p.bits |= reg.TXD_IXSM
	}
	if flags&(mbuf.TxL4Sum|mbuf.TxTSO) != 0 {
		p.bits |= reg.TXD_TXSM
		if !udp {
			p.context.hi |= reg.TXC_L4T_TCP
		}
	}
	return !tso || !udp && p.segmentation(b, all, length, most)
}

// ipHeader is what an IP header of n bytes begins with: the bits of its first byte under mask, which is 0 when no header has
// that length.
func ipHeader(n int, v6 bool) (first, mask byte) {
	switch {
	case v6 && n >= 40 && n <= maxL3:
		return 6 << 4, 0xf0
	case !v6 && n >= 20 && n <= 60 && n&3 == 0:
		return 4<<4 | byte(n>>2), 0xff
	}
	return 0, 0
}

// segmentation plans for cutting a frame with so many bytes of headers.
func (p *txPlan) segmentation(b *mbuf.Buf, headers, length, most int) bool {
	l4, mss, payload := int(b.L4Len), int(b.MSS), length-headers
	at := headers - l4
	switch {
	case l4 < 20 || l4 > 60 || int(b.Bytes()[at+12]>>4)*4 != l4:
		return false
	case mss < minMSS || headers+mss > most || payload < 1 || payload > maxTSO:
		return false
	}
	p.context.hi |= uint64(mss)<<reg.TXC_MSS_Shift | uint64(l4)<<reg.TXC_L4LEN_Shift
	p.bits |= reg.TXD_TSE
	p.cutHeaders, p.sumAt, p.l4 = uint32(headers), uint32(at+tcpSumAt), uint32(length-at)
	return true
}

// clearSum makes the IPv4 checksum 0 that the card is to fill in, as it wants it (§7.2.4.2).
func (p *txPlan) clearSum(b *mbuf.Buf) {
	if p.bits&reg.TXD_IXSM != 0 {
		binary.BigEndian.PutUint16(b.Bytes()[p.ip+ipSumAt:], 0)
	}
}

// edit makes the headers what the card wants to find. Of a frame that is cut that is the pseudo-header's sum without the
// length (§7.2.4.2), which it adds itself, for each segment.
func (p *txPlan) edit(b *mbuf.Buf) {
	p.clearSum(b)
	if p.sumAt == 0 {
		return
	}
	field := b.Bytes()[p.sumAt:]
	n := uint16(p.l4)
	sum := uint32(binary.BigEndian.Uint16(field)) + uint32(^n)
	if p.context.hi&reg.TXC_IPV4 == 0 {
		sum += uint32(^uint16(p.l4 >> 16)) // IPv6 has 32 bits for the length (RFC 8200 §8.1)
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(field, uint16(sum+sum>>16))
}
