package pci

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// irqKinds are the interrupts that a function may have, best first.
var irqKinds = []struct {
	index uint32
	name  string
}{{vfioIRQMSIX, "MSI-X"}, {vfioIRQMSI, "MSI"}, {vfioIRQINTx, "INTx"}}

// interrupts are what is switched on, at most one kind at a time.
type interrupts struct {
	index   uint32
	name    string
	signals []*signal
	off     atomic.Bool // being switched off: a handler that still runs may find nothing to unmask
}

// irqCount is how many vectors a function has of a kind; 0 when the kernel knows of none.
func (f *vfioFunction) irqCount(index uint32) int {
	if index >= f.irqs {
		return 0
	}
	info := vfioIRQInfo{index: index}
	info.argsz = sizeOf(&info)
	if _, err := f.sys.ioctl(f.fd, vfioDeviceGetIRQInfo, unsafe.Pointer(&info)); err != nil {
		return 0
	}
	return int(min(info.count, maxVectors))
}

// maxVectors is how many an MSI-X table can have (PCI Local Bus Specification 3.0 §6.8.2).
const maxVectors = 2048

// Interrupts implements Function.
//
// The vectors of a kind are set in one call, and taken away together before their number changes: MSI-X vectors cannot be
// added one by one. VFIO masks INTx at each interrupt, because the line stays raised until the device has been asked; it is
// unmasked after the handler.
func (f *vfioFunction) Interrupts(n int, handler func(vector int)) (int, error) {
	f.irqMu.Lock()
	defer f.irqMu.Unlock()
	if err := f.stopInterrupts(); err != nil {
		return 0, fmt.Errorf("%s: %w", f.Name(), err)
	}
	if handler == nil {
		return 0, nil
	}
	if f.fd < 0 {
		return 0, fmt.Errorf("%s: interrupts: the function is closed", f.Name())
	}
	var failed []error
	for _, kind := range irqKinds {
		count := f.irqCount(kind.index)
		if count == 0 {
			continue
		}
		got, err := f.startInterrupts(kind.index, kind.name, min(max(n, 1), count), handler)
		if err == nil {
			return got, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", kind.name, err))
	}
	if len(failed) == 0 {
		failed = append(failed, errors.New("it has neither MSI-X nor MSI nor INTx"))
	}
	return 0, fmt.Errorf("%s: interrupts: %w", f.Name(), errors.Join(failed...))
}

// MSIX says whether the vectors of the last call of Interrupts are MSI-X. Otherwise there is one, MSI or INTx, and the device
// has to be asked what it means.
func (f *vfioFunction) MSIX() bool {
	f.irqMu.Lock()
	defer f.irqMu.Unlock()
	return f.on != nil && f.on.index == vfioIRQMSIX
}

// startInterrupts switches n vectors of a kind on, or as many as the machine has left.
func (f *vfioFunction) startInterrupts(index uint32, name string, n int, handler func(int)) (int, error) {
	for n >= 1 {
		on := &interrupts{index: index, name: name}
		fds, err := f.newEvents(on, n, handler)
		if err != nil {
			return 0, err
		}
		left, err := f.setIRQs(index, fds)
		if err == nil && left == 0 {
			f.on = on
			return n, nil
		}
		on.off.Store(true)
		err = errors.Join(err, stopAll(on.signals))
		if left <= 0 || left >= n {
			return 0, errors.Join(err, fmt.Errorf("the kernel refuses %d vectors", n))
		}
		n = left // so many there are, says the kernel
	}
	return 0, errors.New("no vector is left on this machine")
}

// newEvents makes an eventfd and a goroutine for each vector.
func (f *vfioFunction) newEvents(on *interrupts, n int, handler func(int)) (fds []int32, err error) {
	for i := range n {
		call := func() { handler(i) }
		if on.index == vfioIRQINTx {
			call = func() {
				handler(i)
				if err := f.unmaskINTx(); err != nil && !on.off.Load() {
					f.gone(fmt.Errorf("%s: unmask INTx: %w: %w", f.Name(), err, ErrGone))
				}
			}
		}
		s, fd, err := newEvent(fmt.Sprintf("%s %s %d", f.Name(), on.name, i), call)
		if err != nil {
			return nil, errors.Join(err, stopAll(on.signals))
		}
		on.signals, fds = append(on.signals, s), append(fds, int32(fd))
	}
	return fds, nil
}

// stopInterrupts switches off what is on. The kernel lets go of the eventfds first: nothing is raised any more when their
// goroutines end.
func (f *vfioFunction) stopInterrupts() error {
	on := f.on
	if on == nil {
		return nil
	}
	f.on = nil
	on.off.Store(true)
	_, err := f.setIRQs(on.index, nil)
	if err != nil {
		err = fmt.Errorf("switch interrupts off: %w", err)
	}
	return errors.Join(err, stopAll(on.signals))
}

// setIRQs gives each vector from 0 on an eventfd, or with none switches the kind off. A number above 0 says that only so
// many vectors could be had, and that none is on.
func (f *vfioFunction) setIRQs(index uint32, fds []int32) (left int, err error) {
	const head = int(unsafe.Sizeof(vfioIRQSet{}) / 4)
	words := make([]uint32, head+len(fds))
	set := (*vfioIRQSet)(unsafe.Pointer(&words[0]))
	*set = vfioIRQSet{
		argsz: uint32(4 * len(words)), flags: vfioIRQDataEventFD | vfioIRQActionTrigger, index: index, count: uint32(len(fds)),
	}
	if len(fds) == 0 {
		set.flags = vfioIRQDataNone | vfioIRQActionTrigger
	}
	for i, fd := range fds {
		words[head+i] = uint32(fd)
	}
	return f.sys.ioctl(f.fd, vfioDeviceSetIRQs, unsafe.Pointer(set))
}

func (f *vfioFunction) unmaskINTx() error {
	set := vfioIRQSet{flags: vfioIRQDataNone | vfioIRQActionUnmask, index: vfioIRQINTx, count: 1}
	set.argsz = sizeOf(&set)
	_, err := f.sys.ioctl(f.fd, vfioDeviceSetIRQs, unsafe.Pointer(&set))
	return err
}

// watch asks to be told when the kernel wants the device back (it is being unbound or unplugged, and waits until Close), and
// when the bus reports an error of it that cannot be corrected. Not every device has these.
func (f *vfioFunction) watch() error {
	for _, w := range []struct {
		index uint32
		what  string
	}{
		{vfioIRQReq, "the kernel wants the device back (it is being unbound, or unplugged)"},
		{vfioIRQErr, "the bus reports an error of the device that cannot be corrected"},
	} {
		if f.irqCount(w.index) == 0 {
			continue
		}
		s, fd, err := newEvent(f.Name()+" notice", func() { f.gone(fmt.Errorf("%s: %s: %w", f.Name(), w.what, ErrGone)) })
		if err != nil {
			return err
		}
		if _, err := f.setIRQs(w.index, []int32{int32(fd)}); err != nil {
			return errors.Join(fmt.Errorf("ask to be told when %s: %w", w.what, err), s.stop())
		}
		f.notices = append(f.notices, s)
	}
	return nil
}
