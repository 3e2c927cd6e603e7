//go:build amd64 || arm64

package pci

// store32 is a store that the compiler can neither drop, merge nor turn into a locked exchange, after all stores that
// precede it in the program. store16 and store8 are narrower ones.
//
//go:noescape
func store32(p *uint32, v uint32)

//go:noescape
func store16(p *uint16, v uint16)

//go:noescape
func store8(p *uint8, v uint8)

// load16 and load8 are loads of just that width which the compiler can neither drop, merge nor widen, before all loads that
// follow them in the program. sync/atomic has none below 32 bits.
//
//go:noescape
func load16(p *uint16) uint16

//go:noescape
func load8(p *uint8) uint8
