package pci

import (
	"fmt"
	"log/slog"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"bare.wire/vtop"
)

// SysfsOpener opens functions of a fake tree by sysfs, with memory of any kind.
func SysfsOpener(h *Host, space *vtop.Space, log *slog.Logger) *Opener {
	o := newOpener(h, space, OpenOptions{Access: Sysfs, Logger: log}, linux{})
	o.anySpace = true
	return o
}

// AnySpace lets an opener that knows no IOMMU go with memory of any kind.
func AnySpace(o *Opener) { o.anySpace = true }

func guardianOf(f Function) *guarded {
	if v, ok := f.(*vfioFunction); ok {
		return v.guard
	}
	return f.(*sysfsFunction).guard
}

// GuardianDir is where the files are that a function's guardian has open.
func GuardianDir(f Function) string { return fmt.Sprintf("/proc/%d/fd", guardianOf(f).PID()) }

// KillGuardian ends a function's guardian by force.
func KillGuardian(t testing.TB, f Function) {
	t.Helper()
	if err := unix.Kill(guardianOf(f).PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// NewSignal waits for a descriptor to fire.
func NewSignal(fd int) error {
	_, err := newSignal(fd, "a test", func() {})
	return err
}

// Trigger has the kernel fire a vector of a kind, as if the device had.
func Trigger(f Function, index uint32, vector int) error {
	v := f.(*vfioFunction)
	set := vfioIRQSet{flags: vfioIRQDataNone | vfioIRQActionTrigger, index: index, start: uint32(vector), count: 1}
	set.argsz = sizeOf(&set)
	_, err := v.sys.ioctl(v.fd, vfioDeviceSetIRQs, unsafe.Pointer(&set))
	return err
}

// InterruptsOf is Function.Interrupts with one kind only.
func InterruptsOf(f Function, index uint32, n int, handler func(int)) (int, error) {
	v := f.(*vfioFunction)
	v.irqMu.Lock()
	defer v.irqMu.Unlock()
	if err := v.stopInterrupts(); err != nil {
		return 0, err
	}
	return v.startInterrupts(index, "a kind", n, handler)
}

// Windows are how many areas of a BAR are mapped.
func Windows(f Function, n int) int { return len(f.(*vfioFunction).bars[n].areas) }
