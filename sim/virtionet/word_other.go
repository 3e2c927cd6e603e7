//go:build race || (!amd64 && !arm64)

package virtionet

import (
	"sync/atomic"
	"unsafe"
)

// The race detector knows atomic operations of four bytes; so the word around the two bytes is loaded, or exchanged if
// nobody has changed the other half meanwhile. Memory comes in pages: the word is always there.

func around(p *uint16) (word *uint32, shift int) {
	at := uintptr(unsafe.Pointer(p)) & 2
	return (*uint32)(unsafe.Add(unsafe.Pointer(p), -int(at))), int(at) * 8
}

func load16(p *uint16) uint16 {
	w, shift := around(p)
	return uint16(atomic.LoadUint32(w) >> shift)
}

func store16(p *uint16, v uint16) {
	for w, shift := around(p); ; {
		old := atomic.LoadUint32(w)
		if atomic.CompareAndSwapUint32(w, old, old&^(0xFFFF<<shift)|uint32(v)<<shift) {
			return
		}
	}
}

func store32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

func fence() {
	var full atomic.Uint32
	full.Add(1)
}
