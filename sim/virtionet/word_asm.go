//go:build (amd64 || arm64) && !race

package virtionet

// load16 is a load that no later access passes, of two bytes and no more: what lies beside them may be the driver's.
//
//go:noescape
func load16(p *uint16) uint16

// store16 is a store that passes no earlier access, of two bytes and no more. Go has neither, and a store of 32 bits would
// overwrite what the driver has just written.
//
//go:noescape
func store16(p *uint16, v uint16)

// store32 is the same for the last four bytes of a packed descriptor, which are all the device's to write.
//
//go:noescape
func store32(p *uint32, v uint32)

// fence keeps a load after it from passing a store before it: position published, event index then read.
//
//go:noescape
func fence()
