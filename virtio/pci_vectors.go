package virtio

import (
	"math"
	"slices"
	"sync/atomic"

	"bare.wire/pci"
	"bare.wire/virtio/spec"
)

// vectors are the interrupts of a PCI transport. A device may refuse to take a vector for a queue although the function has it
// (§4.1.5.1.2): the queue then shares another one, and whoever is to hear of that queue is called for that one too.
type vectors struct {
	n    int  // the function's; 0: none
	msix bool // otherwise there is one, and the device has to be asked what it means
	// shared says by vector which others it stands in for. Interrupts come from any goroutine while queues are enabled: the
	// table is replaced, not changed.
	shared atomic.Pointer[[][]int]
}

// vectorRegister is where a device is told a vector, of a queue or of its configuration.
type vectorRegister struct {
	bar pci.NarrowBAR
	off uint32
}

// take writes a vector and says whether the device has taken it.
func (r vectorRegister) take(vector uint16) bool {
	r.bar.Write16(r.off, vector)
	return r.bar.Read16(r.off) == vector
}

// interrupts switches n vectors on, the last of them for the configuration, or all off. config is the register for that, which
// a legacy device has with MSI-X only; isr is the interrupt status register (§4.1.4.5).
func (t *pciTransport) interrupts(n int, f func(vector int), config, isr vectorRegister) (int, error) {
	v := &t.vectors
	if f == nil {
		v.n, v.msix = 0, false
		_, err := t.fn.Interrupts(0, nil)
		return 0, err
	}
	n = min(max(n, 1), math.MaxUint16)
	for {
		got, err := t.startInterrupts(n, f, isr)
		if err != nil || !v.msix {
			return got, err
		}
		if config.take(uint16(got - 1)) {
			return got, nil
		}
		if got == 1 {
			t.log.Warn("the device refuses a vector for changes of its configuration: they are noticed when somebody looks, by Housekeep")
			return got, nil
		}
		t.log.Warn("the device refuses its last vector: all queues share one", "vectors", got)
		n = 1
	}
}

// startInterrupts asks the function for n vectors and has them passed on.
func (t *pciTransport) startInterrupts(n int, f func(int), isr vectorRegister) (int, error) {
	v := &t.vectors
	// Nothing of the device is told a vector yet, but an interrupt of before may still be on its way.
	var on, msix atomic.Bool
	got, err := t.fn.Interrupts(n, func(vector int) {
		switch {
		case !on.Load():
		case msix.Load():
			f(vector)
			if shared := *v.shared.Load(); vector < len(shared) {
				for _, other := range shared[vector] {
					f(other)
				}
			}
		case isr.bar.Read8(isr.off) != 0: // reading lets the line go; 0 is somebody else's on the same line
			f(0)
		}
	})
	if err != nil {
		return 0, err
	}
	if got < 1 || got > n {
		return 0, t.errorf("the function has %d vectors after %d were asked for", got, n)
	}
	if v.msix, err = t.msix(); err != nil {
		return 0, err
	}
	if !v.msix {
		got = 1
	}
	shared := make([][]int, got)
	v.shared.Store(&shared)
	v.n = got
	msix.Store(v.msix)
	on.Store(true)
	return got, nil
}

// setVector tells the device which vector a queue has.
func (t *pciTransport) setVector(r vectorRegister, queue, vector int) error {
	v := &t.vectors
	if !v.msix {
		return nil // there is no such register, or it is not looked at
	}
	if vector < 0 {
		r.take(spec.NoVector)
		return nil
	}
	if vector >= v.n {
		return t.errorf("queue %d is to have vector %d: there are %d", queue, vector, v.n)
	}
	if r.take(uint16(vector)) {
		return nil
	}
	for _, other := range []int{v.n - 1, 0} {
		if other == vector || !r.take(uint16(other)) {
			continue
		}
		t.log.Warn("the device refuses a vector: the queue shares another", "queue", queue, "vector", vector, "instead", other)
		table := slices.Clone(*v.shared.Load())
		if slices.Contains(table[other], vector) {
			return nil // another queue has that vector too
		}
		table[other] = append(slices.Clip(table[other]), vector)
		v.shared.Store(&table)
		return nil
	}
	r.take(spec.NoVector)
	t.log.Warn("the device refuses every vector: who waits for this queue is woken by time-outs only", "queue", queue)
	return nil
}
