//go:build amd64 || arm64

package pci

// store32 is a store that the compiler can neither drop, merge nor turn into a locked exchange, after all stores that
// precede it in the program.
//
//go:noescape
func store32(p *uint32, v uint32)
