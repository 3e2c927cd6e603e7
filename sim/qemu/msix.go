package qemu

import "math/bits"

// Layout of the MSI-X BAR (PCI Local Bus 3.0 §6.8.2; offsets are those that the card's capability names).
const (
	msixVectors   = 64
	msixEntry     = 16
	msixTableLen  = msixVectors * msixEntry
	msixPBA       = 0x2000
	msixPBALen    = msixVectors / 8
	msixMasked    = 1 << 0 // of the fourth word of an entry
	msixReservedW = 3      // which word of an entry only its mask bit is kept of
)

// msix is the table of messages and the bits of those that wait.
type msix struct {
	table   [msixVectors][4]uint32
	pending uint64
	on      bool // from the capability
	masked  bool // all of them
}

// reset is what a reset of the function leaves: every vector masked.
func (m *msix) reset() {
	*m = msix{}
	for v := range m.table {
		m.table[v][msixReservedW] = msixMasked
	}
}

// read32 reads the word at off.
func (m *msix) read32(off uint32) uint32 {
	switch {
	case off < msixTableLen:
		return m.table[off/msixEntry][off/4%4]
	case off >= msixPBA && off < msixPBA+msixPBALen:
		return uint32(m.pending >> (8 * (off - msixPBA)))
	}
	return 0
}

// write32 writes the word at off; what may be sent then is sent.
func (m *msix) write32(off, v uint32, send func(addr uint64, data uint32)) {
	if off >= msixTableLen {
		return
	}
	entry, word := off/msixEntry, off/4%4
	switch word {
	case 0:
		v &^= 3
	case msixReservedW:
		v &= msixMasked
	}
	m.table[entry][word] = v
	m.flush(send)
}

// fire is an interrupt of the card.
func (m *msix) fire(vector int, send func(addr uint64, data uint32)) {
	if vector < 0 || vector >= msixVectors || !m.on {
		return
	}
	m.pending |= 1 << vector
	m.flush(send)
}

// control takes the capability's control word.
func (m *msix) control(v uint16, send func(addr uint64, data uint32)) {
	m.on, m.masked = v&(1<<15) != 0, v&(1<<14) != 0
	if !m.on {
		m.pending = 0
	}
	m.flush(send)
}

// flush sends what waits and is not masked.
func (m *msix) flush(send func(addr uint64, data uint32)) {
	if !m.on || m.masked {
		return
	}
	for p := m.pending; p != 0; p &= p - 1 {
		v := bits.TrailingZeros64(p)
		e := &m.table[v]
		if e[msixReservedW]&msixMasked != 0 {
			continue
		}
		m.pending &^= 1 << v
		send(uint64(e[1])<<32|uint64(e[0]), e[2])
	}
}
