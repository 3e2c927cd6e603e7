package reg

// Where a row comes from. The texts are what docs/registers.md explains in its
// legend; a row may name several, joined by "; ".
const (
	srcHdr    = "headers"          // offset and bits equal in the public headers of DPDK, Intel's Linux driver and ixy
	srcDPDK   = "DPDK"             // DPDK's base driver header only
	srcDS     = "datasheet"        // document 331520, as cited in the comments of ixy and Snabb
	srcSnabb  = "Snabb"            // the register table of Snabb's intel_mp driver (offset and mode)
	srcTest   = "Linux self-test"  // a mask that `ethtool -t` writes and reads back
	srcProbe  = "Linux probe"      // a behaviour that Linux's driver insists on when it probes a card
	srcBarrel = "Barrelfish"       // the device description of Barrelfish (e10k.dev), which follows the datasheet
	srcUpdate = "spec. update"     // document 331521
	srcX540   = "DPDK, later card" // described for the X540 and later, reserved on the 82599
)

// Sources returns the legend: what each word in a Source stands for.
func Sources() []Value {
	return []Value{
		{Name: srcHdr, Doc: "Offset and bits are equal in the public headers of DPDK, of Intel's out-of-tree Linux driver and of ixy."},
		{Name: srcDPDK, Doc: "Found in DPDK's base driver (ixgbe_type.h and the code that uses it) only."},
		{Name: srcDS, Doc: "Intel 82599 10 GbE Controller Datasheet, document 331520, with the section where it is known."},
		{Name: srcSnabb, Doc: "The register table of Snabb's intel_mp driver, which follows the datasheet in offsets and access modes."},
		{Name: srcBarrel, Doc: "The device description of the Barrelfish operating system (e10k.dev), which follows the datasheet."},
		{Name: srcTest, Doc: "A mask that the self-test of Linux's ixgbe driver (ethtool -t) writes and reads back."},
		{Name: srcProbe, Doc: "A value or behaviour that Linux's ixgbe driver insists on when it probes the card or brings it up."},
		{Name: srcUpdate, Doc: "Intel 82599 Specification Update, document 331521."},
		{Name: srcX540, Doc: "Described for the X540 and later members of the family; reserved on the 82599."},
	}
}

// They stand in a row where no source gives the mask or the reset value.
var (
	unknown      = Mask{}
	unknownReset = Reset{}
)

const all = 0xFFFFFFFF

func mask(v uint32) Mask { return Mask{Value: v, Known: true} }

// resetBelow is a reset value that is known for indices below n only.
func resetBelow(n int, v uint32) Reset { return Reset{Value: v, Known: true, Count: n} }

func at(off uint32) []Bank { return []Bank{{Off: off, Stride: 4, Count: 1}} }

func array(off, stride uint32, count int) []Bank {
	return []Bank{{Off: off, Stride: stride, Count: count}}
}

// rxRing is a register of the 128 receive rings: 64 of them at off, the rest
// from D000 on.
func rxRing(off uint32) []Bank {
	return []Bank{{off, 0x40, 64}, {off + 0xC000, 0x40, 64}}
}

// txRing is a register of the 128 transmit rings.
func txRing(off uint32) []Bank { return array(off, 0x40, 128) }

// def makes a row. All of its arguments are always written, so that an unknown
// mask or reset value is a statement and not an omission.
func def(name string, banks []Bank, mode Mode, m Mask, r Reset, source, doc string, fields ...Field) Reg {
	return Reg{Name: name, Banks: banks, Mode: mode, Mask: m, Reset: r, Source: source, Doc: doc, Fields: fields}
}

// alias adds further offsets of the same registers.
func (r Reg) alias(banks ...Bank) Reg {
	r.Aliases = append(r.Aliases, banks...)
	return r
}

// bit is a field of one bit.
func bit(name string, n uint8, doc string) Field {
	return Field{Name: name, Lo: n, Hi: n, Doc: doc}
}

// field is bits hi:lo.
func field(name string, hi, lo uint8, doc string, values ...Value) Field {
	return Field{Name: name, Lo: lo, Hi: hi, Doc: doc, Values: values}
}

// as gives a field a mode of its own.
func (f Field) as(m Mode) Field {
	f.Mode = m
	return f
}

// from gives a field a source of its own.
func (f Field) from(source string) Field {
	f.Source = source
	return f
}

func val(name string, v uint32, doc string) Value { return Value{Name: name, V: v, Doc: doc} }
