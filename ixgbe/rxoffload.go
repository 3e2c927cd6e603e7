package ixgbe

import (
	"sync/atomic"
	"unsafe"

	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

// rxNotes turns what a write-back says of checksums and tag into flags: by one look into a table, whose index is made of
// these bits.
//
//	bit    5    4    3    2    1     0
//	     UDP  TCP  IPE  L4E  IPCS  L4CS
type rxNotes struct {
	sums [64]mbuf.Flags
	vlan mbuf.Flags // RxVLAN if tags are stripped
}

const (
	noteL4CS = 1 << iota
	noteIPCS
	noteL4E
	noteIPE
	noteTCP
	noteUDP
)

// newRxNotes returns the notes of a queue with these offloads; nil if it has none to make.
func newRxNotes(offloads nic.Offload) *rxNotes {
	if offloads&(nic.RxIPChecksum|nic.RxL4Checksum|nic.RxVLANStrip) == 0 {
		return nil
	}
	n := new(rxNotes)
	if offloads&nic.RxVLANStrip != 0 {
		n.vlan = mbuf.RxVLAN
	}
	for i := range n.sums {
		if offloads&nic.RxIPChecksum != 0 {
			n.sums[i] |= ipNote(i)
		}
		if offloads&nic.RxL4Checksum != 0 {
			n.sums[i] |= l4Note(i)
		}
	}
	return n
}

// ipNote is what index i says of the IPv4 header checksum. The card may find an error where there is none in fragments
// (specification update, erratum 66), which have no L4 type: there it knows nothing.
func ipNote(i int) mbuf.Flags {
	switch {
	case i&noteIPCS == 0:
		return 0
	case i&noteIPE == 0:
		return mbuf.RxIPGood
	case i&(noteTCP|noteUDP) == 0:
		return 0
	}
	return mbuf.RxIPBad
}

// l4Note is what index i says of the TCP or UDP checksum. UDP without a checksum (RFC 768) may be called bad by the card, so
// of bad UDP it knows nothing: whoever receives it adds it up (DPDK, 9a40edb599).
func l4Note(i int) mbuf.Flags {
	switch {
	case i&noteL4CS == 0:
		return 0
	case i&noteL4E == 0:
		return mbuf.RxL4Good
	case i&noteUDP != 0:
		return 0
	}
	return mbuf.RxL4Bad
}

// flags returns what a write-back says.
func (n *rxNotes) flags(lo, hi uint64) mbuf.Flags {
	const (
		checked = reg.RXD_L4CS | reg.RXD_IPCS // bits 5 and 6 of hi
		wrong   = reg.RXD_L4E | reg.RXD_IPE   // bits 30 and 31
		l4      = reg.RXD_PT_TCP | reg.RXD_PT_UDP
	)
	i := hi&checked>>5 | hi&wrong>>28 | lo&l4>>4
	return n.sums[i&63] | mbuf.Flags(hi<<13)&n.vlan // VP is bit 3, RxVLAN 16
}

// collectNoted is collect for a queue with notes to make. A frame without a tag keeps no note of an earlier one's but in
// VLAN, which means nothing without the flag.
func collectNoted(descs []rxDesc, bufs []*mbuf.Buf, notes *rxNotes, room uint32) (n int, bytes uint32) {
	bufs = bufs[:len(descs)]
	d := unsafe.SliceData(descs)
	for n < len(descs) {
		hi := atomic.LoadUint64(&d.hi)
		length := uint32(uint16(hi >> 32))
		if hi&rxCare != reg.RXD_DD|reg.RXD_EOP || length > room {
			break
		}
		lo := d.lo
		d.lo, d.hi = poisonBus, 0
		b := bufs[n]
		b.Received(length, lo&rxInfo|uint64(notes.flags(lo, hi)))
		b.VLAN = uint16(hi >> 48)
		bytes += length
		n++
		d = (*rxDesc)(unsafe.Add(unsafe.Pointer(d), descSize))
	}
	return n, bytes
}
