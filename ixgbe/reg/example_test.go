package reg_test

import (
	"fmt"

	"bare.wire/ixgbe/reg"
)

// A driver uses the generated names: offsets as constants or functions of an
// index, fields as masks in place.
func Example() {
	v := reg.Put(reg.SRRCTL_DESCTYPE_ADV_ONEBUF|reg.SRRCTL_DROP_EN, reg.SRRCTL_BSIZEPKT, 2)
	fmt.Printf("write %08X to %05X\n", v, reg.SRRCTL(70))
	// Output: write 12000002 to 0D194
}

// A software card or a dump goes the other way, from the offset of an access.
func ExampleLookup() {
	r, n, ok := reg.Lookup(0xD018)
	mask, known := r.WriteMask()
	fmt.Println(r.Name, n, ok, r.Mode)
	fmt.Printf("%04X %v\n", mask, known)
	// Output:
	// RDT 64 true RW
	// FFFF true
}

// Fields take a value apart.
func ExampleReg_Bits() {
	r, _ := reg.ByName("CTRL")
	fmt.Println(r.Bits(reg.SC) == reg.CTRL_RST|reg.CTRL_LNK_RST)
	// Output: true
}

// A descriptor's fields are masks in one of its two words.
func ExampleGet64() {
	w1 := uint64(1514)<<reg.RXD_LEN_Shift | reg.RXD_EOP | reg.RXD_DD
	fmt.Println(w1&reg.RXD_DD != 0, reg.Get64(w1, reg.RXD_LEN))
	// Output: true 1514
}
