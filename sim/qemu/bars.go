package qemu

import "bare.wire/ixgbe/reg"

// The card's BARs (82599 datasheet §9.3.6): registers, the same through I/O ports, MSI-X.
const (
	barRegisters = iota
	barPorts
	barMSIX
	numBARs
)

var barLayout = [numBARs]struct {
	reg  int // first BAR register, 0 to 5
	size uint64
	wide bool // two registers
	io   bool
}{
	barRegisters: {reg: 0, size: reg.BARSize, wide: true},
	barPorts:     {reg: 2, size: 32, io: true},
	barMSIX:      {reg: 4, size: 16 << 10, wide: true},
}

// I/O ports: an address, and the register there.
const (
	portAddress = 0
	portData    = 4
)

// bars are where the guest has put the BARs.
type bars struct {
	base [numBARs]uint64
	port uint32 // what was written to the address port
}

func (b *bars) follow(get func(off, size int) uint32) {
	for i, l := range barLayout {
		v := uint64(get(cfgBARs+4*l.reg, 4))
		if l.io {
			b.base[i] = v &^ 3
			continue
		}
		b.base[i] = v &^ 15
		if l.wide {
			b.base[i] |= uint64(get(cfgBARs+4*l.reg+4, 4)) << 32
		}
	}
}

// find returns the BAR that an access falls into, and where.
func (b *bars) find(a barAccess) (bar int, off uint32, ok bool) {
	for i, l := range barLayout {
		if o := a.addr - b.base[i]; b.base[i] != 0 && l.io != a.mem && o < l.size && o+uint64(a.size) <= l.size {
			return i, uint32(o), true
		}
	}
	return 0, 0, false
}

// readBAR is the guest's read. The card's registers are words of 32 bits: of a smaller access it reads the word, with all that
// follows from it, and a larger one it reads as two, the lower first.
func (f *Function) readBAR(a barAccess) uint64 {
	bar, off, ok := f.bars.find(a)
	if !ok || off%uint32(a.size) != 0 && off%4+uint32(a.size) > 4 {
		f.strange("read", a)
		return 1<<(8*a.size-1)<<1 - 1
	}
	word := off &^ 3
	v := uint64(f.readWord(bar, word)) >> (8 * (off % 4))
	if a.size == 8 {
		v |= uint64(f.readWord(bar, word+4)) << 32
	}
	return v & (1<<(8*a.size-1)<<1 - 1)
}

// writeBAR is the guest's write. One of less than a word changes nothing: the card has no byte enables for its registers.
func (f *Function) writeBAR(a barAccess) {
	bar, off, ok := f.bars.find(a)
	if !ok || a.size < 4 || off%4 != 0 {
		f.strange("write", a)
		return
	}
	f.writeWord(bar, off, uint32(a.val))
	if a.size == 8 {
		f.writeWord(bar, off+4, uint32(a.val>>32))
	}
}

// strange is an access that no driver for the card makes.
func (f *Function) strange(what string, a barAccess) {
	if f.odd.Add(1) == 1 {
		f.log.Warn("strange access; further ones are only counted", "what", what, "address", a.addr, "size", a.size, "memory", a.mem)
	}
}

func (f *Function) readWord(bar int, off uint32) uint32 {
	switch bar {
	case barRegisters:
		return f.card.Read32(off)
	case barMSIX:
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.msix.read32(off)
	}
	switch off {
	case portAddress:
		return f.bars.port
	case portData:
		return f.card.Read32(f.bars.port)
	}
	return 0
}

func (f *Function) writeWord(bar int, off, v uint32) {
	switch bar {
	case barRegisters:
		f.card.Write32(off, v)
	case barMSIX:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.msix.write32(off, v, f.m.irqs.message)
	case barPorts:
		switch off {
		case portAddress:
			f.bars.port = v
		case portData:
			f.card.Write32(f.bars.port, v)
		}
	}
}
