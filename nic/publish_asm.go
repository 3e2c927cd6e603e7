//go:build amd64 || arm64

package nic

// publish stores v at p so that an atomic load on another processor sees either the old or the new value. The compiler
// can neither drop nor split it, and it is not the locked exchange that atomic.StoreUint64 is on amd64.
//
//go:noescape
func publish(p *uint64, v uint64)
