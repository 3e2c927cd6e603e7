package reg

import (
	"fmt"
	"math/bits"
)

// BARSize is the size in bytes of the register space, BAR 0.
const BARSize = 0x20000

// Mode says what an access to a register or field does.
type Mode uint8

// The access modes. ModeOfReg is only for fields: the register's own mode.
const (
	ModeOfReg Mode = iota
	RW             // keeps what is written
	RO             // writes change nothing
	WO             // acts on a write; what a read returns means nothing
	RC             // counter or flags: a read returns them and clears them
	W1C            // writing 1 clears the bit, 0 leaves it
	RCW1C          // EICR: cleared by a read or by writing 1, depending on GPIE
	W1S            // writing 1 sets the bit, 0 leaves it
	SC             // set by software, cleared by the card when it is done
	RS             // SWSM.SMBI: a read returns the bit and then sets it
	LL             // latched low: shows a past 0 once, so read twice
	RC36Lo         // low 32 bits of a 36-bit counter; read it first, it clears nothing
	RC36Hi         // top 4 bits of a 36-bit counter, 4 bytes above the low half; a read clears both
)

var modeNames = [...]string{
	ModeOfReg: "as register", RW: "RW", RO: "RO", WO: "WO", RC: "RC", W1C: "W1C", RCW1C: "RC/W1C",
	W1S: "W1S", SC: "SC", RS: "RS", LL: "LL", RC36Lo: "RC36 low", RC36Hi: "RC36 high",
}

// String returns the mode as docs/registers.md prints it.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// Mask is the set of bits of a register that keep what is written to them.
// The zero Mask is Unknown.
type Mask struct {
	Value uint32
	Known bool
}

// String returns the mask in hexadecimal, or "unknown".
func (m Mask) String() string {
	if !m.Known {
		return "unknown"
	}
	return fmt.Sprintf("%08X", m.Value)
}

// Reset is the value of a register after a device reset. The zero Reset is
// Unknown.
type Reset struct {
	Value uint32
	Known bool
	Count int // the value holds for indices below Count only; 0: for all
}

// String returns the reset value in hexadecimal, or "unknown".
func (r Reset) String() string {
	switch {
	case !r.Known:
		return "unknown"
	case r.Count > 0:
		return fmt.Sprintf("%08X for n<%d, else unknown", r.Value, r.Count)
	}
	return fmt.Sprintf("%08X", r.Value)
}

// Value is a named value of a field, not shifted.
type Value struct {
	Name string
	V    uint32
	Doc  string
}

// Field is bits Hi:Lo of a register, or of a 64-bit descriptor word.
type Field struct {
	Name   string
	Lo, Hi uint8
	Mode   Mode // ModeOfReg: as the register
	Values []Value
	Doc    string
	Source string // empty: as the register
}

// Mask returns the field's bits in place.
func (f *Field) Mask() uint32 { return uint32(f.Mask64()) }

// Mask64 returns the bits in place of a field in a descriptor word.
func (f *Field) Mask64() uint64 {
	return (1<<(f.Hi-f.Lo+1) - 1) << f.Lo
}

// Bank is a run of Count registers, the first at byte offset Off, Stride bytes
// apart. A single register is a Bank of Count 1.
type Bank struct {
	Off, Stride uint32
	Count       int
}

// Reg is one register, or one array of equal registers.
type Reg struct {
	Name    string
	Group   string // heading in docs/registers.md
	Banks   []Bank // indices run on from one bank to the next
	Aliases []Bank // further offsets of the same registers, from index 0
	Mode    Mode
	Mask    Mask
	Reset   Reset
	Fields  []Field
	Doc     string
	Source  string
}

// Count returns how many registers there are of this name.
func (r *Reg) Count() int {
	n := 0
	for _, b := range r.Banks {
		n += b.Count
	}
	return n
}

// Offset returns the byte offset of the register with index n. ok is false when
// there is none.
func (r *Reg) Offset(n int) (off uint32, ok bool) {
	if n < 0 {
		return 0, false
	}
	for _, b := range r.Banks {
		if n < b.Count {
			return b.Off + uint32(n)*b.Stride, true
		}
		n -= b.Count
	}
	return 0, false
}

// Bits returns the bits of r whose mode is m: of the fields with that mode of
// their own and, when the register itself has it, all bits that no field claims
// for another mode. A software card asks with RO, RC, W1C, SC and so on.
func (r *Reg) Bits(m Mode) uint32 {
	var v uint32
	if r.Mode == m {
		v = ^uint32(0)
	}
	for i := range r.Fields {
		f := &r.Fields[i]
		switch f.Mode {
		case ModeOfReg:
		case m:
			v |= f.Mask()
		default:
			v &^= f.Mask()
		}
	}
	return v
}

// WriteMask returns the bits that keep what is written. When the mask is not
// known it returns every bit that is not marked as one that ignores writes, and
// known is false.
func (r *Reg) WriteMask() (mask uint32, known bool) {
	keep := ^(r.Bits(RO) | r.Bits(RC) | r.Bits(RC36Lo) | r.Bits(RC36Hi))
	if r.Mask.Known {
		return r.Mask.Value & keep, true
	}
	return keep, keep == 0
}

// ResetValue returns the value of index n after a device reset, and whether it
// is known; it is 0 where it is not.
func (r *Reg) ResetValue(n int) (v uint32, known bool) {
	if !r.Reset.Known || r.Reset.Count > 0 && n >= r.Reset.Count {
		return 0, false
	}
	return r.Reset.Value, true
}

// Get returns the field with the given mask out of the register value v,
// shifted down.
func Get(v, mask uint32) uint32 { return v & mask >> bits.TrailingZeros32(mask) }

// Put returns v with the field of the given mask set to x; bits of x that do
// not fit are dropped.
func Put(v, mask, x uint32) uint32 {
	return v&^mask | x<<bits.TrailingZeros32(mask)&mask
}

// Get64 is Get for a descriptor word.
func Get64(v, mask uint64) uint64 { return v & mask >> bits.TrailingZeros64(mask) }

// Put64 is Put for a descriptor word.
func Put64(v, mask, x uint64) uint64 {
	return v&^mask | x<<bits.TrailingZeros64(mask)&mask
}
