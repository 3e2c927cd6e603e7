package pci

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sync/atomic"
)

// ErrGone is wrapped by what a function reports when it can no longer be used: unplugged, wanted back by the kernel, broken.
var ErrGone = errors.New("the PCI function is gone")

// allOnes is what a register reads as when nobody answers.
const allOnes = math.MaxUint32

// GuardedBAR is a BAR in this process's memory that survives the memory going away. The kernel takes a mapping of registers
// back when the device is reset, switched off or removed; the next access then raises SIGBUS, which would end the process.
// Here the access does nothing, or reads all ones, as it does on a bus that nobody answers on; the one who made the window is
// told, once, and the registers are not touched any more.
//
// The fault is caught at the access and not further up, so that a driver is never interrupted in the middle of a burst, with
// buffers in its hands, and whatever goroutine it runs on.
type GuardedBAR struct {
	size    int
	regs    atomic.Pointer[MappedBAR] // nil once the memory has gone, or been given back
	faulted func(error)
}

// GuardBAR is MapBAR for memory that may go away. faulted is called, once at most, by the goroutine whose access found out;
// it may be nil.
func GuardBAR(mem []byte, faulted func(error)) (*GuardedBAR, error) {
	regs, err := MapBAR(mem)
	if err != nil {
		return nil, err
	}
	b := &GuardedBAR{size: regs.Size(), faulted: faulted}
	b.regs.Store(regs)
	return b, nil
}

// Size is the length of the window in bytes.
func (b *GuardedBAR) Size() int { return b.size }

// Read32 is one aligned load; all ones when the memory has gone.
func (b *GuardedBAR) Read32(off uint32) (v uint32) {
	v = math.MaxUint32 // stays, should the access fault
	regs := b.regs.Load()
	if regs == nil {
		return v
	}
	defer b.catch(off, debug.SetPanicOnFault(true))
	v = regs.Read32(off)
	return v
}

// Read16 implements NarrowBAR.
func (b *GuardedBAR) Read16(off uint32) (v uint16) {
	v = math.MaxUint16 // stays, should the access fault
	regs := b.regs.Load()
	if regs == nil {
		return v
	}
	defer b.catch(off, debug.SetPanicOnFault(true))
	v = regs.Read16(off)
	return v
}

// Read8 implements NarrowBAR.
func (b *GuardedBAR) Read8(off uint32) (v uint8) {
	v = math.MaxUint8 // stays, should the access fault
	regs := b.regs.Load()
	if regs == nil {
		return v
	}
	defer b.catch(off, debug.SetPanicOnFault(true))
	v = regs.Read8(off)
	return v
}

// Write32 is one plain aligned store, ordered after every store before it, or nothing when the memory has gone.
func (b *GuardedBAR) Write32(off uint32, v uint32) {
	regs := b.regs.Load()
	if regs == nil {
		return
	}
	defer b.catch(off, debug.SetPanicOnFault(true))
	regs.Write32(off, v)
}

// Write16 implements NarrowBAR.
func (b *GuardedBAR) Write16(off uint32, v uint16) {
	regs := b.regs.Load()
	if regs == nil {
		return
	}
	defer b.catch(off, debug.SetPanicOnFault(true))
	regs.Write16(off, v)
}

// Write8 implements NarrowBAR.
func (b *GuardedBAR) Write8(off uint32, v uint8) {
	regs := b.regs.Load()
	if regs == nil {
		return
	}
	defer b.catch(off, debug.SetPanicOnFault(true))
	regs.Write8(off, v)
}

// catch is deferred around an access; it ends a panic that comes from a fault of the memory.
func (b *GuardedBAR) catch(off uint32, old bool) {
	debug.SetPanicOnFault(old)
	if p := recover(); p != nil {
		b.fault(off, p)
	}
}

// fault tells a fault of the memory, which carries an address, from an offset that lies outside the window, which is the
// driver's mistake and goes on its way.
func (b *GuardedBAR) fault(off uint32, p any) {
	at, ok := p.(interface {
		error
		Addr() uintptr
	})
	if !ok {
		panic(p) // impossible: BAR says that offsets lie within
	}
	if b.regs.Swap(nil) != nil && b.faulted != nil {
		b.faulted(fmt.Errorf("access to register %#x at address %#x faulted: %w (unplugged, powered down or reset by somebody else)", off, at.Addr(), ErrGone))
	}
}

// release keeps everybody off the registers from now on; an access that has begun may still be under way.
func (b *GuardedBAR) release() { b.regs.Store(nil) }
