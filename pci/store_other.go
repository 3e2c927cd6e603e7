//go:build !amd64 && !arm64

package pci

import "sync/atomic"

func store32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// Calls that are not inlined cannot be merged or dropped, and the fence of an atomic orders them.

var fence atomic.Uint32

//go:noinline
func store16(p *uint16, v uint16) { fence.Add(1); *p = v }

//go:noinline
func store8(p *uint8, v uint8) { fence.Add(1); *p = v }

//go:noinline
func load16(p *uint16) uint16 { v := *p; fence.Add(1); return v }

//go:noinline
func load8(p *uint8) uint8 { v := *p; fence.Add(1); return v }
