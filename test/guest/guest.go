// Package guest runs tests inside a virtual machine, with a kernel, an IOMMU, devices and privileges of its own, from an ordinary test:
//
//	func TestGuestBindsToVFIO(t *testing.T) {
//		guest.Run(t, guest.Machine{IOMMU: true, Modules: []string{"vfio-pci", "vfio_iommu_type1"}, QEMU: []string{"-device", "virtio-net-pci,addr=3"}}, func(t *testing.T) {
//			t.Run("viable", func(t *testing.T) { ... }) // in the guest, as root, with nothing to lose
//		})
//	}
//
// On the host, Run boots a guest whose only program is this very test binary, and that runs the same test again; there, Run calls the function.
// The subtests come back as subtests, with their output and result. A guest boots in about three seconds: put many subtests into one.
//
//	host                                            guest
//	go test ─▶ TestX ─▶ Run ─▶ boots ──────────────▶ init ─▶ the same binary, -test.run ^TestX$ ─▶ Run ─▶ f(t)
//	            t.Run("sub") ◀── results ◀─────────────────────────────────────────────────────────── t.Run("sub")
//	            Answer(question) ◀─────────────────────────────────────────────────────────────────── Ask(question)
//
// Kernels and programs are Debian's, unpacked into a cache and not installed ($BAREWIRE_CACHE, else barewire in the user's cache directory).
// Guest tests carry the build tag "guest" and are run by `make guest`; docs/guest.md tells how to write one.
package guest

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"bare.wire/test/guest/internal/kernel"
	"bare.wire/test/guest/internal/vm"
)

// Kernel is a kernel of Debian's for a guest.
type Kernel int

const (
	// Cloud boots quickest. It has virtio and VFIO, and no driver of a real card.
	Cloud Kernel = iota
	// Generic has every driver, ixgbe among them, 9p and more.
	Generic
)

func (k Kernel) flavour() kernel.Flavour {
	if k == Generic {
		return kernel.Generic
	}
	return kernel.Cloud
}

// Machine is the virtual machine of a test. The zero value is one with two processors, enough memory and no device but those that connect it to the host.
// Slots 0x1e and 0x1f of bus 0 are taken, the others free.
type Machine struct {
	Kernel Kernel
	// Modules are loaded before the test, with all they need. Parameters follow the name after a space.
	Modules []string
	// ModuleFiles are there for LoadModule, with all they need, and not loaded.
	ModuleFiles []string
	// IOMMU gives the machine a VT-d unit with interrupt remapping, and tells the kernel to use it.
	IOMMU bool
	// Cmdline is further words for the kernel.
	Cmdline []string
	// Memory is in MiB; 0 is 512, with what Files and HugePages need besides.
	Memory int
	// HugePages of 2 MiB are set aside.
	HugePages int
	// CPUs is 2 if 0, or 1 with ShareRAM.
	CPUs int
	// QEMU is further arguments of QEMU's: devices.
	QEMU []string
	// Wrap is a command that is put before QEMU's, and that must end with its status: nicsim qemu … --.
	Wrap []string
	// Files maps paths in the guest to files and directories of the host.
	Files map[string]string
	// ShareRAM puts the guest's memory where other processes can map it, which a device that is another process (x-pci-proxy-dev) needs.
	// Such a device bears no two processors at once: with more than one CPU they take turns.
	ShareRAM bool
	// Restarts is how often the guest may boot again (Restart).
	Restarts int
	// Answer answers the guest's questions (Ask), one at a time, on a goroutine that is not the test's.
	Answer func(question string) string
	// Timeout is for the test in the guest, not counting the boot, and anew after each Restart; 0 is two minutes. On time-out the test prints its stacks and fails.
	Timeout time.Duration
	// Out is a directory of the host that gets what the test leaves in OutDir; "" is none.
	Out string
}

// defaultTimeout is Machine.Timeout when it is 0.
const defaultTimeout = 2 * time.Minute

// insideVariable names, in a guest, the test whose Run calls its function.
const insideVariable = "BAREWIRE_GUEST_TEST"

// OutDir is the directory in a guest whose files are brought to the host: into Machine.Out, and with everything else when the test fails.
const OutDir = "/out"

// Inside says whether this process runs in a guest.
func Inside() bool { return os.Getenv(insideVariable) != "" }

// Run runs f in a guest. Everything before Run in the test runs on the host and in the guest; Inside tells which. A test calls Run once: give each of several machines a subtest.
//
// The test fails when f fails, and when the guest does: it cannot be booted, its kernel panics or oopses, it hangs. The failure then names a
// directory with all that is known.
func Run(t *testing.T, m Machine, f func(t *testing.T)) {
	t.Helper()
	switch name := os.Getenv(insideVariable); name {
	case "":
		onHost(t, m)
	case t.Name():
		f(t)
	default:
		t.Fatalf("this guest was booted for %s, and not for %s: is Run called within Run?", name, t.Name())
	}
}

// testContext is the test's context, ended some time before the test binary would be, so that there is time to say what happened, and ended when
// somebody stops the test binary, so that it tidies up.
func testContext(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := context.AfterFunc(interruption(), func() { cancel(vm.ErrInterrupted) })
	done := func() {
		stop()
		cancel(nil)
	}
	if interruption().Err() != nil {
		done()
		t.Fatal(vm.ErrInterrupted) // and so are all tests that would follow
	}
	end, ok := t.Deadline()
	if !ok {
		return ctx, done
	}
	ctx, cancelDeadline := context.WithDeadlineCause(ctx, end.Add(-reportTime), errNoTime)
	return ctx, func() {
		cancelDeadline()
		done()
	}
}

// interruption ends when somebody stops this process.
var interruption = sync.OnceValue(func() context.Context {
	ctx, _ := vm.Interruptible(context.Background())
	return ctx
})
