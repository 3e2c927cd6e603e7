package nic82599

import (
	"encoding/binary"
	"hash/crc32"

	"bare.wire/ixgbe/reg"
	"bare.wire/sim/offload"
)

// txContext is a context descriptor: where the headers are, and what to do with them (§7.2.3.2.3).
type txContext struct {
	valid  bool
	vlan   uint16
	macLen int
	ipLen  int
	l4Len  int
	mss    int
	ipv4   bool
	l4     uint64 // 0 UDP, 1 TCP, 2 SCTP
}

const (
	l4UDP  = 0
	l4TCP  = 1
	l4SCTP = 2
)

// minMSS is the shortest segment that is cut; drivers never ask for less than the 536 - 20 of RFC 9293 §3.7.1.
const minMSS = 64

// takeContext remembers a context descriptor until another takes its place.
func (c *Card) takeContext(q *txQueue, d *txDesc) {
	i := reg.Get64(d.w1, reg.TXC_IDX)
	if i > 1 {
		c.wrong(TxDescriptor, q.id, "context index %d, there are two", i)
		return
	}
	q.ctx[i] = txContext{
		valid:  true,
		vlan:   uint16(reg.Get64(d.addr, reg.TXC_VLAN)),
		macLen: int(reg.Get64(d.addr, reg.TXC_MACLEN)),
		ipLen:  int(reg.Get64(d.addr, reg.TXC_IPLEN)),
		l4Len:  int(reg.Get64(d.w1, reg.TXC_L4LEN)),
		mss:    int(reg.Get64(d.w1, reg.TXC_MSS)),
		ipv4:   d.w1&reg.TXC_IPV4 != 0,
		l4:     reg.Get64(d.w1, reg.TXC_L4T),
	}
}

// needContext are the bits of a data descriptor that mean nothing without a context.
const needContext = reg.TXD_VLE | reg.TXD_TSE | reg.TXD_IXSM | reg.TXD_TXSM

// context returns the context of a frame; nil, with the misuse kept, when there is none or it does not fit the frame.
func (c *Card) context(q *txQueue, w1 uint64, length int) *txContext {
	x := &q.ctx[reg.Get64(w1, reg.TXD_IDX)&1]
	switch {
	case !x.valid:
		c.wrong(TxDescriptor, q.id, "descriptor %d asks for an offload without a context", q.use)
		return nil
	case w1&(reg.TXD_TSE|reg.TXD_IXSM|reg.TXD_TXSM) == 0:
		return x
	}
	l4 := [4]int{l4UDP: 8, l4TCP: 20, l4SCTP: 12}[x.l4] // the shortest header
	if w1&reg.TXD_TSE != 0 {
		l4 = max(l4, x.l4Len)
	}
	switch {
	case w1&reg.TXD_TSE != 0 && x.l4 > l4TCP, w1&reg.TXD_TXSM != 0 && x.l4 > l4SCTP:
		c.wrong(TxDescriptor, q.id, "context with L4T %d", x.l4)
		return nil
	// Linux's driver says IPV4 only to have packets segmented: where the checksum is, IPLEN tells alone.
	case x.macLen < 14 || x.ipLen < 20 || x.ipv4 && x.ipLen > 60 || !x.ipv4 && w1&reg.TXD_TSE != 0 && x.ipLen < 40,
		w1&(reg.TXD_TSE|reg.TXD_TXSM) != 0 && x.macLen+x.ipLen+l4 > length:
		c.wrong(TxDescriptor, q.id, "context with MACLEN %d, IPLEN %d, L4LEN %d for %d bytes", x.macLen, x.ipLen, x.l4Len, length)
		return nil
	case w1&reg.TXD_TSE != 0 && (x.mss < minMSS || x.headers()+x.mss > maxTx || x.l4 == l4TCP && x.l4Len < 20 || x.l4 == l4UDP && x.l4Len != 8):
		c.wrong(TxDescriptor, q.id, "context with MSS %d, L4LEN %d for segmentation", x.mss, x.l4Len)
		return nil
	case w1&reg.TXD_TSE != 0 && w1&reg.TXD_TXSM == 0:
		c.wrong(TxDescriptor, q.id, "TSE without TXSM")
		return nil
	}
	return x
}

// headers is the length of all headers.
func (x *txContext) headers() int { return x.macLen + x.ipLen + x.l4Len }

// sums puts in the checksums that w1 asks for. Each is of all its bytes with the field that it goes into: the L4 field holds
// the sum of the pseudo header, to which l4len is added where segments are cut, and that of IPv4 has to hold 0 (§7.2.4.2).
func (x *txContext) sums(c *Card, f []byte, w1 uint64, l4len int) {
	ip := f[x.macLen:]
	if w1&reg.TXD_IXSM != 0 && x.ipv4 {
		binary.BigEndian.PutUint16(ip[10:], ^uint16(offload.Sum(ip[:x.ipLen], 0)))
		c.count.TxIPChecksum++
		if c.cfg.Faults.BadTxIPChecksum {
			ip[11]++
		}
	}
	if w1&reg.TXD_TXSM == 0 {
		return
	}
	c.count.TxL4Checksums++
	l4, at := ip[x.ipLen:], 16
	if x.l4 == l4SCTP {
		clear(l4[8:12])
		binary.LittleEndian.PutUint32(l4[8:], crc32.Checksum(l4, castagnoli))
		return
	}
	if x.l4 == l4UDP {
		at = 6
	}
	s := ^uint16(offload.Sum(l4, uint64(l4len)))
	if x.l4 == l4UDP && s == 0 {
		s = 0xFFFF // RFC 768: 0 would be no checksum
	}
	if c.cfg.Faults.BadTxChecksum {
		s ^= 0x0100
	}
	binary.BigEndian.PutUint16(l4[at:], s)
}

// castagnoli is the polynomial of SCTP's checksum, which goes into the packet low byte first (RFC 9260 appendix A).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tag is a VLAN tag as the card puts it in or takes it out.
func (c *Card) tag(v uint16) uint16 {
	if c.cfg.Faults.VLANSwapped {
		return v<<8 | v>>8
	}
	return v
}

// cut sends a large frame as segments of MSS bytes of payload, each with headers of its own (§7.2.4).
func (c *Card) cut(q *txQueue, x *txContext, w1 uint64, f []byte, t int64) {
	hdr := x.headers()
	payload := f[hdr:]
	mss := x.mss
	if c.cfg.Faults.BadTSOSize {
		mss--
	}
	c.count.TxSegmented++
	for off, i := 0, 0; off < len(payload); off, i = off+mss, i+1 {
		n := min(mss, len(payload)-off)
		c.count.TxSegments++
		s := append(append(c.tx.segment[:0], f[:hdr]...), payload[off:off+n]...)
		c.tx.segment = s[:0]
		x.number(c, s, off, i, n, off+n == len(payload))
		x.sums(c, s, w1, x.l4Len+n)
		c.emit(q, x, w1, s, len(s), t)
	}
}

// number gives segment i, of n bytes from off on, its lengths, IP id, sequence number and flags.
func (x *txContext) number(c *Card, s []byte, off, i, n int, last bool) {
	if c.cfg.Faults.BadTSOID {
		i = 0
	}
	low, high := c.val(reg.DTXTCPFLGL), c.val(reg.DTXTCPFLGH)
	keep := offload.FlagMasks{
		First:  uint16(reg.Get(low, reg.DTXTCPFLGL_FIRST)),
		Middle: uint16(reg.Get(low, reg.DTXTCPFLGL_MIDDLE)),
		Last:   uint16(reg.Get(high, reg.DTXTCPFLGH_LAST)),
	}
	if c.cfg.Faults.BadTSOFlags {
		keep = offload.FlagMasks{First: 0xFFF, Middle: 0xFFF, Last: 0xFFF}
	}
	h := offload.Headers{Link: x.macLen, IP: x.ipLen, L4: x.l4Len, IPv4: x.ipv4, UDP: x.l4 == l4UDP}
	h.Number(s, off, i, n, last, keep)
}
