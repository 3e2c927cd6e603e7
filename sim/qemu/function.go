package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
)

// Card is what a software card offers to the machine that it is plugged into. A nic82599.Card is one.
type Card interface {
	Name() string
	// ReadConfig and WriteConfig access 1, 2 or 4 aligned bytes of configuration space, of which there are 256.
	ReadConfig(off, size int) (uint32, error)
	WriteConfig(off, size int, v uint32) error
	// Read32 and Write32 access registers in BAR 0, which is Size bytes long.
	Read32(off uint32) uint32
	Write32(off, v uint32)
	Size() int
	// Reset is a reset of the function, configuration space included.
	Reset(ctx context.Context) error
	// OnInterrupt has f called for each interrupt, with its MSI-X vector; vector 0 without MSI-X. f may call the card.
	OnInterrupt(f func(vector int))
	// Line is the level of the INTx pin.
	Line() bool
}

// rootBus is where a function is unless it is told otherwise.
const rootBus = "pcie.0"

// Function is a PCI function of a machine: a card behind a proxy.
type Function struct {
	m    *Machine
	at   Slot
	id   int // running number in the machine
	log  *slog.Logger
	mem  Memory
	card Card
	conn *conn

	caps capabilities
	bars bars // only the goroutine that serves uses it

	mu   sync.Mutex // guards msix and msi
	msix msix
	msi  msi

	pinMu sync.Mutex // one look at the pin at a time, so that the latest wins
	pin   int        // of the I/O APIC
	away  bool       // unplugged

	odd, accesses, interrupts atomic.Uint64
}

func newFunction(m *Machine, at Slot, id int) *Function {
	f := &Function{m: m, at: at, id: id, log: m.log.With("slot", at.Slot)}
	f.mem.ram.files, f.mem.unit, f.mem.requester, f.mem.clk = &m.files, m.unit, at.Requester, m.clk
	load := loader(f.mem.ram.load64)
	m.unit.load.Store(&load)
	f.pin = ioapicPin(at.Slot + at.port)
	return f
}

// ioapicPin is the input of the I/O APIC that INTA of a slot of q35's root bus leads to: PIRQ E to H by slot. Behind a port, a
// device's slot and the port's count together.
func ioapicPin(slot int) int { return 16 + 4 + slot%4 }

// Memory is where the card's DMA has to go.
func (f *Function) Memory() *Memory { return &f.mem }

// Attach puts a card into the slot.
func (f *Function) Attach(c Card) error {
	caps, err := findCapabilities(c)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name(), err)
	}
	f.card, f.caps = c, caps
	f.msix.reset()
	f.follow()
	c.OnInterrupt(f.interrupt)
	return nil
}

// Counts is what has happened at a function's seam.
type Counts struct {
	Accesses   uint64 // of the guest, to registers
	Odd        uint64 // of these, with a size or at an offset that the card does not understand
	Interrupts uint64 // that the card raised
}

// Counts returns the counts so far.
func (f *Function) Counts() Counts {
	return Counts{f.accesses.Load(), f.odd.Load(), f.interrupts.Load()}
}

// connect makes the socket and returns QEMU's end.
func (f *Function) connect() (*os.File, error) {
	ours, theirs, err := socketPair("proxy")
	if err != nil {
		return nil, err
	}
	f.conn = newConn(ours)
	return theirs, nil
}

func (f *Function) disconnect() {
	if f.conn != nil {
		f.conn.close()
	}
}

// deviceArg is QEMU's -device for the function.
func (f *Function) deviceArg(fd int) string {
	s := fmt.Sprintf("%s,id=nicsim%d,fd=%d,addr=%#x", proxyDevice, f.id, fd, f.at.Slot)
	if f.at.Bus != "" {
		s += ",bus=" + f.at.Bus
	}
	return s
}

// serve answers QEMU until it closes the socket.
func (f *Function) serve() error {
	for {
		m, err := f.conn.receive()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed) {
			f.unplugged()
			return nil
		}
		if err != nil {
			return err
		}
		err = f.handle(m)
		m.close()
		if err != nil {
			return err
		}
	}
}

// unplugged is what follows when QEMU closes the socket: it has ended, or the guest has let the device go. There is no DMA from
// here on, and no interrupt.
func (f *Function) unplugged() {
	if err := f.card.WriteConfig(cfgCommand, 2, 0); err != nil {
		f.log.Warn("configuration space", "error", err)
	}
	f.mu.Lock()
	f.msix.reset()
	f.msi = msi{}
	f.mu.Unlock()
	f.pinMu.Lock()
	defer f.pinMu.Unlock()
	f.away = true
	f.m.irqs.drive(f.pin, f.id, false)
}

func (f *Function) handle(m *message) error {
	switch m.cmd {
	case cmdSyncSysmem:
		sections, err := decodeSections(m.data, len(m.fds))
		if err != nil {
			return err
		}
		if err := f.mem.ram.sync(sections, m.fds); err != nil {
			f.log.Warn("memory map", "error", err)
		}
		return nil
	case cmdConfigRead, cmdConfigWrite:
		a, err := decodeConfig(m.data)
		if err != nil {
			return err
		}
		if m.cmd == cmdConfigRead {
			return f.conn.answer(uint64(f.readConfig(a.off, a.size)))
		}
		f.writeConfig(a.off, a.size, a.val)
		return f.conn.answer(0)
	case cmdBARRead, cmdBARWrite:
		a, err := decodeBAR(m.data)
		if err != nil {
			return err
		}
		v := uint64(0)
		if f.accesses.Add(1); m.cmd == cmdBARRead {
			v = f.readBAR(a)
		} else {
			f.writeBAR(a)
		}
		f.settle(true)
		return f.conn.answer(v)
	case cmdReset:
		f.reset()
		return f.conn.answer(0)
	}
	return nil // SET_IRQFD: its descriptors are closed
}

// reset is the machine's reset. QEMU's main loop waits for it, so it may not wait for QEMU.
func (f *Function) reset() {
	f.log.Info("reset")
	if err := f.card.Reset(context.Background()); err != nil {
		f.log.Warn("reset", "error", err)
	}
	f.mu.Lock()
	f.msix.reset()
	f.mu.Unlock()
	f.follow()
	f.settle(false)
}

// interrupt is called by the card, by whichever goroutine made it interrupt.
func (f *Function) interrupt(vector int) {
	f.interrupts.Add(1)
	f.mu.Lock()
	f.msix.fire(vector, f.m.irqs.message)
	f.msi.fire(f.msix.on, f.m.irqs.message)
	f.mu.Unlock()
	f.settle(false)
}

// settle brings the pin to the level that the card gives it, and waits for its fall if asked to: not where QEMU's main loop
// may be waiting for us.
func (f *Function) settle(wait bool) {
	f.pinMu.Lock()
	done := f.m.irqs.drive(f.pin, f.id, f.card.Line() && !f.away)
	f.pinMu.Unlock()
	if wait {
		f.m.irqs.wait(done)
	}
}
