package pci

import "runtime"

// AwaitUnmask waits until the handler of INTx has returned and the line is let through again.
func (k *FakeKernel) AwaitUnmask(d *FakeDevice) { k.await(func() bool { return !d.masked }) }

// AwaitOff waits until no vector of a kind is on.
func (k *FakeKernel) AwaitOff(d *FakeDevice, index int) {
	k.await(func() bool { return len(d.events[index]) == 0 })
}

func (k *FakeKernel) await(f func() bool) {
	for {
		k.mu.Lock()
		done := f()
		k.mu.Unlock()
		if done {
			return
		}
		runtime.Gosched()
	}
}
