package reg

import (
	"fmt"
	"slices"
)

// table is the whole description, in the order of docs/registers.md. It is
// never changed after the package is initialised.
var table = slices.Concat(
	group("General control and ownership", general),
	group("EEPROM, flash and semaphores", nvm),
	group("PCI Express", pcie),
	group("Interrupts", interrupts),
	group("Flow control", flowControl),
	group("Receive rings and DMA", rxDMA),
	group("Receive filters", rxFilters),
	group("Five-tuple, ethertype and SYN filters", tupleFilters),
	group("Flow director", flowDirector),
	group("Transmit", transmit),
	group("Data centre bridging", dcb),
	group("Security engines", security),
	group("MAC, link, PHY", mac),
	group("Statistics", statistics),
	group("Virtualisation", virt),
	group("Time stamps", timeSync),
	group("Wake-up and management", mng),
)

func group(name string, regs []Reg) []Reg {
	for i := range regs {
		regs[i].Group = name
	}
	return regs
}

// slot is what lies at one 32-bit word of the register space.
type slot struct {
	reg   uint16 // index in table + 1; 0: nothing
	index uint16
}

var slots = makeSlots()

func makeSlots() *[BARSize / 4]slot {
	s := new([BARSize / 4]slot)
	for i := range table {
		r := &table[i]
		for _, banks := range [][]Bank{r.Banks, r.Aliases} {
			n := 0
			for _, b := range banks {
				for k := range b.Count {
					s[(b.Off+uint32(k)*b.Stride)/4] = slot{reg: uint16(i + 1), index: uint16(n)}
					n++
				}
			}
		}
	}
	return s
}

// All returns every register, in the order of docs/registers.md. The slice is
// the caller's; what Banks, Aliases and Fields point to is shared and must not
// be changed.
func All() []Reg { return slices.Clone(table) }

// Lookup returns the register at byte offset off and its index; aliases are
// resolved. ok is false where nothing is described and for an offset that is
// not a multiple of 4 or lies outside the BAR. It takes constant time and does
// not allocate. The Reg must not be changed.
func Lookup(off uint32) (r *Reg, index int, ok bool) {
	if off >= BARSize || off%4 != 0 {
		return nil, 0, false
	}
	s := slots[off/4]
	if s.reg == 0 {
		return nil, 0, false
	}
	return &table[s.reg-1], int(s.index), true
}

// ByName returns the register with that name (without an index), or ok false.
// The Reg must not be changed.
func ByName(name string) (r *Reg, ok bool) {
	for i := range table {
		if table[i].Name == name {
			return &table[i], true
		}
	}
	return nil, false
}

// Name returns what to call the register at off in an error or a trace:
// "CTRL", "RDT(5)", or the offset when nothing is described there.
func Name(off uint32) string {
	r, n, ok := Lookup(off)
	switch {
	case !ok:
		return fmt.Sprintf("register %05X", off)
	case r.Count() == 1:
		return r.Name
	}
	return fmt.Sprintf("%s(%d)", r.Name, n)
}

// badIndex reports an index beyond the registers that exist. It is called by
// the generated offset functions.
func badIndex(name string, n, count int) uint32 {
	// impossible: callers index by queues and entries whose number they took from the _Count constants
	panic(fmt.Sprintf("reg: %s(%d): index outside 0…%d", name, n, count-1))
}
