package pci_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"bare.wire/pci"
)

// Kinds of interrupts, as VFIO numbers them.
const irqINTx, irqMSI, irqMSIX, irqErr, irqReq = 0, 1, 2, 3, 4

func TestInterruptsAreTheBestThatThereAre(t *testing.T) {
	for what, c := range map[string]struct {
		irqs    [5]int
		most    int // vectors that the machine has left
		refuse  string
		ask     int
		kind    int
		vectors int
	}{
		"MSI-X":                          {irqs: [5]int{1, 1, 8}, ask: 5, kind: irqMSIX, vectors: 5},
		"MSI-X with fewer vectors":       {irqs: [5]int{1, 1, 3}, ask: 64, kind: irqMSIX, vectors: 3},
		"the machine has not so many":    {irqs: [5]int{1, 1, 8}, most: 2, ask: 5, kind: irqMSIX, vectors: 2},
		"at least one":                   {irqs: [5]int{1, 1, 8}, ask: 0, kind: irqMSIX, vectors: 1},
		"no MSI-X":                       {irqs: [5]int{1, 1}, ask: 5, kind: irqMSI, vectors: 1},
		"MSI-X that the kernel refuses":  {irqs: [5]int{1, 1, 8}, refuse: "SET_IRQS 2", ask: 5, kind: irqMSI, vectors: 1},
		"INTx only":                      {irqs: [5]int{1}, ask: 5, kind: irqINTx, vectors: 1},
		"a table that cannot be so long": {irqs: [5]int{0, 0, 1 << 30}, most: 4, ask: 5, kind: irqMSIX, vectors: 4},
	} {
		t.Run(what, func(t *testing.T) {
			r := newVFIORig(t, map[string]int{nic0: 7})
			d := r.kernel.Devices[nic0]
			d.IRQs, d.Vectors = c.irqs, c.most
			if c.refuse != "" {
				r.kernel.Refuse[c.refuse] = unix.EINVAL
			}
			f := r.open(nic0)
			fired := make(chan int)
			n, err := f.Interrupts(c.ask, func(v int) { fired <- v })
			if err != nil || n != c.vectors {
				t.Fatalf("%d vectors, %v", n, err)
			}
			if got := f.(interface{ MSIX() bool }).MSIX(); got != (c.kind == irqMSIX) {
				t.Errorf("MSIX says %v", got)
			}
			for range 3 {
				for v := range n {
					if !r.kernel.Raise(d, c.kind, v) {
						t.Fatalf("vector %d of kind %d is not on", v, c.kind)
					}
					if got := <-fired; got != v {
						t.Errorf("vector %d fired, %d was called", v, got)
					}
					if c.kind == irqINTx {
						r.kernel.AwaitUnmask(d)
					}
				}
			}
			if n, err := f.Interrupts(0, nil); n != 0 || err != nil {
				t.Errorf("off: %d, %v", n, err)
			}
			if r.kernel.Raise(d, c.kind, 0) {
				t.Error("it still fires")
			}
		})
	}
}

func TestMoreVectorsAreSetFromScratch(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	f := r.open(nic0)
	for _, n := range []int{1, 3, 2} { // the fake kernel refuses vectors beside others
		if got, err := f.Interrupts(n, func(int) {}); got != n || err != nil {
			t.Errorf("%d vectors of %d, %v", got, n, err)
		}
	}
}

func TestInterruptsThatCannotBeHadSayWhy(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	d := r.kernel.Devices[nic0]
	f := r.open(nic0)
	for kind := range 3 {
		r.kernel.Refuse[fmt.Sprintf("SET_IRQS %d", kind)] = unix.ENOSPC
	}
	if _, err := f.Interrupts(1, func(int) {}); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "INTx") {
		t.Errorf("all refused: %v", err)
	}
	d.IRQs = [5]int{}
	if _, err := f.Interrupts(1, func(int) {}); err == nil || !strings.Contains(err.Error(), nic0) {
		t.Errorf("none there: %v", err)
	}
}

// TestSwitchingOffWaitsForTheHandler: when Interrupts with nil returns, the handler is not running, and never runs again.
func TestSwitchingOffWaitsForTheHandler(t *testing.T) {
	for _, kind := range []int{irqMSIX, irqINTx} {
		r := newVFIORig(t, map[string]int{nic0: 7})
		d := r.kernel.Devices[nic0]
		d.IRQs = [5]int{}
		d.IRQs[kind] = 1
		f := r.open(nic0)
		f.(pci.GoneNotifier).OnGone(func(err error) { t.Errorf("gone: %v", err) })
		entered, leave := make(chan bool), make(chan bool)
		var running atomic.Bool
		if _, err := f.Interrupts(1, func(int) {
			running.Store(true)
			entered <- true
			<-leave
			running.Store(false)
		}); err != nil {
			t.Fatal(err)
		}
		r.kernel.Raise(d, kind, 0)
		<-entered
		off := make(chan error)
		go func() {
			_, err := f.Interrupts(0, nil)
			if running.Load() {
				err = errors.New("the handler is still running")
			}
			off <- err
		}()
		select {
		case err := <-off:
			t.Errorf("it did not wait: %v", err)
		default:
		}
		r.kernel.AwaitOff(d, kind)
		leave <- true
		if err := <-off; err != nil {
			t.Error(err)
		}
	}
}

func TestKernelThatWantsTheDeviceBackIsHeard(t *testing.T) {
	for kind, words := range map[int]string{irqReq: "wants the device back", irqErr: "cannot be corrected"} {
		r := newVFIORig(t, map[string]int{nic0: 7})
		d := r.kernel.Devices[nic0]
		f := r.open(nic0)
		told := make(chan error, 10)
		f.(pci.GoneNotifier).OnGone(func(err error) { told <- err })
		for range 3 { // the kernel repeats it
			r.kernel.Raise(d, kind, 0)
		}
		if err := <-told; !errors.Is(err, pci.ErrGone) || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), nic0) {
			t.Errorf("told: %v", err)
		}
		late := make(chan error, 1)
		f.(pci.GoneNotifier).OnGone(func(err error) { late <- err })
		if err := <-late; !errors.Is(err, pci.ErrGone) {
			t.Errorf("who comes late is told: %v", err)
		}
		if err := f.Close(); err != nil { // which is what the kernel waits for
			t.Error(err)
		}
		if len(told) > 0 {
			t.Errorf("told again: %v", <-told)
		}
	}
}

// TestKernelMayWantTheDeviceBackWhileItIsClosed: whoever is told, or nobody, Close ends and nothing is left.
func TestKernelMayWantTheDeviceBackWhileItIsClosed(t *testing.T) {
	for range 30 {
		r := newVFIORig(t, map[string]int{nic0: 7})
		d := r.kernel.Devices[nic0]
		f := r.open(nic0)
		var told atomic.Int32
		f.(pci.GoneNotifier).OnGone(func(error) { told.Add(1) })
		if _, err := f.Interrupts(1, func(int) { _, _ = f.ReadConfig(0, 2) }); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			for range 5 {
				r.kernel.Raise(d, irqReq, 0)
				r.kernel.Raise(d, irqErr, 0)
				r.kernel.Raise(d, irqMSIX, 0)
			}
		})
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		if n := told.Load(); n > 1 {
			t.Errorf("told %d times", n)
		}
	}
}

// TestEventThatIsNotPolledForIsAnError: else its interrupts would be lost without a word.
func TestEventThatIsNotPolledForIsAnError(t *testing.T) {
	fd, err := unix.MemfdCreate("no event", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := pci.NewSignal(fd); err == nil {
		t.Error("a file that is always ready is waited for")
	}
}

func TestDeviceWithoutNoticesOpens(t *testing.T) {
	r := newVFIORig(t, map[string]int{nic0: 7})
	r.kernel.Devices[nic0].IRQs = [5]int{1}
	r.open(nic0)
}
