package vhostuser

import (
	"fmt"
	"runtime/debug"
)

// guard runs f, which may touch the front end's memory. A memfd can be cut by its owner at any time, and an access behind its
// end raises SIGBUS; that is the front end's fault and comes back as an error. Every other fault is one of ours and stays a panic.
func guard(m *Memory, f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		r := recover()
		if r == nil {
			return
		}
		if fault, ok := r.(interface{ Addr() uintptr }); ok && m.contains(fault.Addr()) {
			err = fmt.Errorf("the front end has taken away memory that it had shared (fault at %#x): its file was made shorter, or has no page left to give", fault.Addr())
			return
		}
		panic(r) // impossible: nothing else that f touches can fault
	}()
	return f()
}
