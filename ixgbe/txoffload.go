package ixgbe

import (
	"encoding/binary"

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

// contextCache knows which two contexts the card has for the queue; it keeps each until it is given another (§7.2.3.2.3).
type contextCache struct {
	have [2]txContext
	last uint64 // index of the one that was used last; the other makes room
}

// find returns the index of a context, and whether the card has it already.
func (c *contextCache) find(x txContext) (index uint64, have bool) {
	switch x {
	case c.have[c.last]:
		return c.last, true
	case c.have[c.last^1]:
		return c.last ^ 1, true
	}
	return c.last ^ 1, false
}

// txPlan is what the descriptors of a frame say beside where its bytes are.
type txPlan struct {
	context txContext // zero: the frame needs none
	bits    uint64    // of data descriptors
	payload int       // PAYLEN
	sumAt   int       // where the TCP checksum is in the frame, for a frame that is cut; 0 otherwise
	l4      int       // bytes from the L4 header on
}

// sendOffloaded is sendSlow for a frame that asks for something.
func (q *txQueue) sendOffloaded(b *mbuf.Buf) (taken bool, bytes uint64) {
	descs, length, reason, ok := q.measure(b)
	var plan txPlan
	if ok {
		plan, reason, ok = q.plan(b, length)
	}
	if !ok {
		q.dropped[reason].Add(1)
		q.cache.Free(b)
		return true, 0
	}
	index, have := uint64(0), true
	if plan.context.hi != 0 {
		if index, have = q.contexts.find(plan.context); !have {
			descs++
		}
	}
	if uint32(descs) > q.free {
		return false, 0 // and nothing has been changed
	}
	if !have {
		q.putContext(plan.context, index)
	}
	if plan.context.hi != 0 {
		q.contexts.last = index
	}
	plan.edit(b)
	b.Seal()
	q.putData(b, uint64(plan.payload)<<reg.TXD_PAYLEN_Shift|index<<reg.TXD_IDX_Shift|plan.bits|txData)
	if q.sinceRS >= reportEvery {
		q.report()
	}
	return true, uint64(length)
}

// measure adds up the descriptors and bytes of a frame, and refuses those that cannot be sent whatever they ask for.
func (q *txQueue) measure(b *mbuf.Buf) (descs, length int, reason nic.TxDropReason, ok bool) {
	for s := b; s != nil; s = s.Next() {
		n := s.Len()
		if n == 0 {
			return 0, 0, nic.TxTooShort, false // see refuse
		}
		if s.Pool() != q.pool && s.Pool().Space() != q.port.space {
			return 0, 0, nic.TxNoAddress, false
		}
		descs += (n-1)/maxData + 1
		length += n
	}
	switch {
	case length < minFrame:
		return 0, 0, nic.TxTooShort, false
	case descs > maxSegs:
		return 0, 0, nic.TxTooManySeg, false
	}
	return descs, length, 0, true
}

// plan works out what a frame of length bytes needs, or why it can never have it.
func (q *txQueue) plan(b *mbuf.Buf, length int) (p txPlan, reason nic.TxDropReason, ok bool) {
	flags := b.TxFlags()
	if flags&^q.allowed != 0 {
		return p, nic.TxBadOffload, false
	}
	tag, l2 := 0, uint64(minFrame)
	p.payload = length
	if flags&mbuf.TxVLAN != 0 {
		tag = tagLen
		p.bits |= reg.TXD_VLE
		p.context.lo |= uint64(b.VLAN) << reg.TXC_VLAN_Shift
	}
	most := int(q.maxFrame) - tag // of a frame in memory
	if flags&mbuf.TxTSO == 0 && length > most {
		return p, nic.TxTooLong, false
	}
	if flags&headerFlags != 0 {
		if !p.headers(b, flags, length, most) {
			return p, nic.TxBadOffload, false
		}
		l2 = uint64(b.L2Len)
	}
	if p.bits != 0 {
		p.context.lo |= l2 << reg.TXC_MACLEN_Shift
		p.context.hi |= reg.TXC_DTYP_CTXT | reg.TXC_DEXT
	}
	return p, 0, true
}

// headers plans for checksums and segmentation; most is the longest frame that may go out, before it is tagged. It returns
// false when the lengths do not fit each other, the frame or the card. The card does not look: it would write a checksum
// wherever it was told to.
func (p *txPlan) headers(b *mbuf.Buf, flags mbuf.TxFlags, length, most int) bool {
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
	if !ipHeader(b.Bytes()[l2:], l3, v6) || v6 && flags&mbuf.TxIPSum != 0 {
		return false
	}
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

// ipHeader says whether h begins with an IP header of n bytes.
func ipHeader(h []byte, n int, v6 bool) bool {
	if v6 {
		return n >= 40 && n <= maxL3 && h[0]>>4 == 6
	}
	return n >= 20 && n <= 60 && n&3 == 0 && int(h[0]) == 0x40|n>>2
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
	p.payload, p.sumAt, p.l4 = payload, at+tcpSumAt, length-at
	return true
}

// edit makes the headers what the card wants to find. Of a frame that is cut it wants the pseudo-header's sum without the
// length (§7.2.4.2), which it adds itself, for each segment; the IPv4 checksum it wants to be 0.
func (p *txPlan) edit(b *mbuf.Buf) {
	if p.bits&reg.TXD_IXSM != 0 {
		at := int(b.L2Len) + ipSumAt
		binary.BigEndian.PutUint16(b.Bytes()[at:], 0)
	}
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

// putContext writes a context descriptor. It asks for no report: the frame behind it does.
func (q *txQueue) putContext(x txContext, index uint64) {
	d := &q.ring[q.tail]
	d.lo, d.hi = x.lo, x.hi|index<<reg.TXC_IDX_Shift
	q.bufs[q.tail] = nil
	q.contexts.have[index] = x
	q.advance(1)
}

// putData writes the data descriptors of a frame, with these bits in each.
func (q *txQueue) putData(b *mbuf.Buf, bits uint64) {
	for s := b; s != nil; s = s.Next() {
		for bus, left := s.Bus(), s.Len(); left > 0; {
			n := min(left, maxData)
			d := &q.ring[q.tail]
			d.lo, d.hi = bus, bits|uint64(n)
			q.bufs[q.tail] = nil
			if left == n && s.Next() == nil {
				d.hi |= txEnd
				q.bufs[q.tail], q.odd[q.tail] = b, true
			}
			q.advance(1)
			bus, left = bus+uint64(n), left-n
		}
	}
	q.nOdd++
}
