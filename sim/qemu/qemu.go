// Package qemu plugs software cards into the virtual machine of a stock QEMU, where a guest's own kernel and drivers find them
// as PCI functions.
//
// The seam is QEMU's device x-pci-proxy-dev ("multi-process QEMU", hw/remote in QEMU 6.0 and later): every access of the guest
// to the function's configuration space and BARs comes as a message on a socket, and waits there for the answer; the
// guest's memory comes as descriptors to map. The rest is ours, because the proxy has none of it without KVM:
//
//	guest ── config, BAR access ──► proxy ══ socket ══► wire.go ─► function.go ─► the card, msix.go
//	guest's RAM ◄── mapped ── ram.go ◄── memory.go ◄── vtd.go ◄── the card's DMA, by bus address
//	guest's APIC ◄══ qtest.go ◄── irq.go ◄── function.go ◄── the card's interrupts
//
// DMA goes through the guest's own VT-d tables (Intel Virtualization Technology for Directed I/O, rev. 3.3, legacy mode): root,
// context, second level, down to RAM. Nothing is cached, so whatever the guest unmaps is gone at once. Interrupts are written
// through QEMU's test socket (-qtest), in order, by a goroutine that holds no lock: QEMU's main loop serves that socket, and
// the same main loop waits for us when it resets the card.
//
// Limits. One vCPU thread only: with two the proxy loses accesses and can stand still for ever; -smp N needs
// "-accel tcg,thread=single". No KVM. A conventional function: 256 bytes of configuration space. An access takes 0.1 ms, an
// interrupt 1 to 3 ms: nothing can be said about speed.
package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"bare.wire/clock"
)

// Config describes a virtual machine.
type Config struct {
	// Command is qemu-system-x86_64 and its arguments, as a user would type them. Prepare says what has to be among them.
	Command []string
	// Clock is for time limits; nil: the real one.
	Clock clock.Clock
	// Logger gets what happens beside the guest's accesses; nil: nothing is logged.
	Logger *slog.Logger
	// Stdin, Stdout and Stderr are QEMU's own.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Machine is a virtual machine with software cards.
type Machine struct {
	cfg       Config
	clk       clock.Clock
	log       *slog.Logger
	command   []string
	files     files
	irqs      *interrupts
	test      *qtest
	unit      *vtd
	functions []*Function
	cancel    context.CancelFunc
	running   sync.WaitGroup

	mu    sync.Mutex
	fault error // why the machine was ended by us
}

// New prepares a machine: it checks the command and adds what is missing. Close it, started or not.
func New(ctx context.Context, cfg Config) (*Machine, error) {
	command, err := Prepare(ctx, cfg.Command)
	if err != nil {
		return nil, err
	}
	return newMachine(cfg, command), nil
}

func newMachine(cfg Config, command []string) *Machine {
	m := &Machine{cfg: cfg, clk: cfg.Clock, log: cfg.Logger, command: command}
	if m.clk == nil {
		m.clk = clock.Real()
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	m.test = newQtest(m.clk)
	m.unit = newVTD(m.test)
	m.irqs = newInterrupts(m.test, m.clk, m.log)
	return m
}

// Slot says where a function is.
type Slot struct {
	Bus  string // QEMU's name of the bus; "": pcie.0
	Slot int    // device number on it
	// Requester is the function's bus, device and function number as the IOMMU sees it (bus<<8 | device<<3); 0: found out. Ports
	// are taken to get their buses in the order of their slots, from 1 on, as firmware numbers them.
	Requester uint16

	port int // slot of the port that Bus is behind
}

// Add makes room for a card. Its DMA goes through the function's Memory; then it is attached.
func (m *Machine) Add(at Slot) (*Function, error) {
	if at.Slot < 0 || at.Slot > 31 {
		return nil, fmt.Errorf("slot %d: a bus has slots 0 to 31", at.Slot)
	}
	bus := 0
	if at.Bus != "" && at.Bus != rootBus {
		if at.port, bus = findPort(m.command, at.Bus); bus == 0 {
			return nil, fmt.Errorf("%w: no -device pcie-root-port,id=%s,addr=… is there to make the bus %s", ErrCommand, at.Bus, at.Bus)
		}
	}
	if at.Requester == 0 {
		at.Requester = uint16(bus<<8 | at.Slot<<3)
	}
	f := newFunction(m, at, len(m.functions))
	m.functions = append(m.functions, f)
	return f, nil
}

// Run starts QEMU, serves it and returns its exit status when it has ended. When ctx ends first, QEMU is asked to end, and
// killed if it does not. The error says why there is no status, or what was wrong besides.
func (m *Machine) Run(ctx context.Context) (status int, err error) {
	ctx, m.cancel = context.WithCancel(ctx)
	defer m.cancel()
	var ends []*os.File // QEMU's, in the order of their descriptors there
	defer func() {
		for _, e := range ends {
			_ = e.Close() // a second time where QEMU was started
		}
	}()
	args := m.command[1:len(m.command):len(m.command)]
	for i, f := range m.functions {
		if f.card == nil {
			return 0, fmt.Errorf("the function in slot %d has no card", f.at.Slot)
		}
		end, err := f.connect()
		if err != nil {
			return 0, err
		}
		ends = append(ends, end)
		args = append(args, "-device", f.deviceArg(firstFD+i))
	}
	ours, theirs, err := socketPair("qtest")
	if err != nil {
		return 0, err
	}
	m.test.connect(ours)
	args = append(args, "-chardev", fmt.Sprintf("socket,id=%s,fd=%d", qtestID, firstFD+len(ends)), "-qtest", "chardev:"+qtestID, "-qtest-log", "none")
	ends = append(ends, theirs)
	m.log.Info("start", "command", m.command[0], "args", args)
	q, err := start(m.command[0], args, ends, m.cfg)
	if err != nil {
		return 0, err
	}
	for _, e := range ends {
		_ = e.Close() // QEMU has its own
	}
	m.serve(ctx)
	status, err = q.wait(ctx, m.clk)
	m.cancel()
	m.test.close()
	for _, f := range m.functions {
		f.disconnect()
	}
	m.running.Wait()
	if _, dropped := m.irqs.counts(); dropped > 0 {
		m.log.Warn("interrupts were lost: too many were on their way", "number", dropped)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return status, errors.Join(err, m.fault)
}

// serve starts what works beside QEMU.
func (m *Machine) serve(ctx context.Context) {
	m.running.Go(func() { m.irqs.run(ctx, m.unit) })
	m.running.Go(func() { m.watch(ctx) })
	for _, f := range m.functions {
		m.running.Go(func() {
			if err := f.serve(); err != nil && ctx.Err() == nil {
				m.fail(fmt.Errorf("slot %d: %w", f.at.Slot, err))
			}
		})
	}
}

// fail ends the machine for a reason of ours.
func (m *Machine) fail(err error) {
	m.mu.Lock()
	m.fault = errors.Join(m.fault, err)
	m.mu.Unlock()
	m.log.Error("end", "error", err)
	m.cancel()
}

// lookEvery is how often the IOMMU's registers are looked at beside the times at which a card is let onto the bus.
const lookEvery = 250 * time.Millisecond

// lookWait is how long an access of the guest waits for the IOMMU's registers.
const lookWait = time.Second

// look reads the IOMMU's registers for an access of the guest that waits for it.
func (m *Machine) look() {
	done := make(chan struct{})
	m.running.Go(func() {
		defer close(done)
		if _, err := m.unit.refresh(); err != nil {
			m.log.Warn("VT-d registers", "error", err)
		}
	})
	if !within(m.clk, lookWait, done) {
		m.log.Warn("QEMU has not shown the VT-d registers in time", "limit", lookWait)
	}
}

// watch follows the IOMMU: translation is switched on once, long before a driver starts, but nobody says so.
func (m *Machine) watch(ctx context.Context) {
	var was vtdState
	for m.clk.Sleep(ctx, lookEvery) == nil {
		s, err := m.unit.refresh()
		if err == nil && s != was {
			m.log.Info("VT-d", "translation", s.on, "root", fmt.Sprintf("%#x", s.root), "interrupt remapping", s.remap)
			was = s
		}
	}
}

// Close gives everything back. The guest's memory goes: nothing may do DMA any more.
func (m *Machine) Close() error {
	for _, f := range m.functions {
		f.disconnect()
	}
	m.test.close()
	return m.files.close()
}
