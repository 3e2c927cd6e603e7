package virtionet

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"bare.wire/virtio/spec"
)

// PCIKind is which interfaces a PCI function has.
type PCIKind uint8

// The kinds: the modern interface of version 1, the one before it, or both.
const (
	Modern PCIKind = iota
	Transitional
	Legacy
)

// FunctionConfig describes a device as a PCI function.
type FunctionConfig struct {
	Kind    PCIKind
	NoMSIX  bool // INTx only
	Vectors int  // of MSI-X; 0: one for each queue and one for the configuration
	// Multiplier of the notification addresses (§4.1.4.4): 0: 4; negative: 0, all queues have the same.
	Multiplier int
	Layout     Layout
}

// Layout makes configuration space one that drivers find hard, or wrong. The zero value is a good one.
type Layout struct {
	Decoys        bool // capabilities to be passed over come first: of reserved BARs, beyond the BAR, too short
	CommonBeyond  bool // the common structure does not lie in its BAR, and there is no other
	NotifyBeyond  bool // nor do the notification addresses
	NoDevice      bool // there is no device configuration
	ShortDevice   bool // it ends behind the MAC address
	CommonShort   bool // the common structure ends before queue_device
	Loop          bool // the list of capabilities has no end
	OddMultiplier bool // 3
	NoCaps        bool // there are no capabilities at all
}

// Function is a device as a PCI function. It has the methods of a pci.Function, but that its BARs are of type [*Window].
type Function struct {
	d   *Device
	cfg FunctionConfig

	config  [256]byte
	msix    int // offset of the MSI-X capability; 0: none
	access  int // offset of the capability for access by configuration space; 0: none
	command uint16

	devSelect, drvSelect uint32 // feature words
	driverFeatures       uint64
	selected             int
	setup                []queueSetup
	configVector         uint16
	isr                  uint8

	raised  []func() // by vector
	mu      sync.Mutex
	idle    *sync.Cond
	running int
	handler func(vector int)
	vectors int // that Interrupts gave
	onGone  func(error)
}

// queueSetup is what the registers say of a queue.
type queueSetup struct {
	size                 uint16
	vector               uint16
	desc, driver, device uint64
	pfn                  uint32
	resetting            bool
}

// NewFunction makes a device a PCI function.
func NewFunction(d *Device, cfg FunctionConfig) *Function {
	if cfg.Vectors <= 0 {
		cfg.Vectors = d.Queues() + 1
	}
	cfg.Vectors = min(cfg.Vectors, 2048)
	switch {
	case cfg.Layout.OddMultiplier:
		cfg.Multiplier = 3
	case cfg.Multiplier == 0:
		cfg.Multiplier = 4
	case cfg.Multiplier < 0:
		cfg.Multiplier = 0
	}
	f := &Function{d: d, cfg: cfg, setup: make([]queueSetup, d.Queues())}
	f.idle = sync.NewCond(&f.mu)
	f.raised = make([]func(), cfg.Vectors)
	for v := range f.raised {
		f.raised[v] = func() { f.deliver(v) }
	}
	d.w.Lock()
	defer d.w.Unlock()
	f.fillSpace()
	f.resetRegisters()
	d.SetBusMaster(false)
	d.OnConfigChange(f.configCall)
	for i := range f.setup {
		d.OnCall(i, func() { f.queueCall(i) })
	}
	return f
}

// Device is the device behind the function.
func (f *Function) Device() *Device { return f.d }

// Name is the device's name.
func (f *Function) Name() string { return f.d.Name() }

// ID returns the vendor and device id.
func (f *Function) ID() (vendor, device uint16) {
	if f.cfg.Kind == Modern {
		return spec.PCIVendor, spec.PCIModernNet
	}
	return spec.PCIVendor, spec.PCITransitionalNet
}

// resetRegisters forgets what the driver has written, at reset. Queues' sizes are the most there are.
func (f *Function) resetRegisters() {
	f.devSelect, f.drvSelect, f.driverFeatures, f.selected, f.isr = 0, 0, 0, 0, 0
	f.configVector = spec.NoVector
	for i := range f.setup {
		f.setup[i] = queueSetup{size: uint16(f.d.QueueMax(i)), vector: spec.NoVector}
	}
}

// lock takes the world's lock and brings the device up to the present.
func (f *Function) lock() {
	f.d.w.Lock()
	f.d.touch()
}

// Reset is a function-level reset: no DMA when it returns, registers and configuration space at their defaults.
func (f *Function) Reset(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.lock()
	defer f.d.w.Unlock()
	if f.d.gone {
		return fmt.Errorf("%s: %w", f.Name(), errRemoved)
	}
	f.d.reset()
	f.fillSpace()
	f.resetRegisters()
	f.d.SetBusMaster(false)
	f.d.kick()
	return nil
}

// Remove pulls the function out: registers and configuration space read as all ones, and OnGone is told.
func (f *Function) Remove() {
	f.d.Remove()
	f.d.w.Lock()
	tell := f.onGone
	f.onGone = nil
	f.d.w.Unlock()
	if tell != nil {
		tell(fmt.Errorf("%s: %w", f.Name(), errRemoved))
	}
}

// OnGone names what Remove tells, as pci.GoneNotifier has it; its error is the bare reason.
func (f *Function) OnGone(g func(error)) {
	f.d.w.Lock()
	defer f.d.w.Unlock()
	f.onGone = g
}

// Close gives the function back: interrupts off, the device out of its world.
func (f *Function) Close() error {
	_, err := f.Interrupts(0, nil)
	if err != nil {
		return err
	}
	return f.d.Close()
}

// ReadConfig reads size (1, 2 or 4) bytes of configuration space at off. A removed function reads as all ones.
func (f *Function) ReadConfig(off, size int) (uint32, error) {
	if err := checkSpace(off, size); err != nil {
		return 0, fmt.Errorf("%s: %w", f.Name(), err)
	}
	f.lock()
	defer f.d.w.Unlock()
	if f.d.gone {
		return 1<<(8*size) - 1, nil
	}
	if f.access != 0 && off == f.access+spec.CapPCIData {
		f.through(size, false)
	}
	binary.LittleEndian.PutUint16(f.config[cfgStatus:], f.pciStatus())
	var b [4]byte
	copy(b[:], f.config[off:off+size])
	return binary.LittleEndian.Uint32(b[:]), nil
}

// WriteConfig writes size (1, 2 or 4) bytes of configuration space at off.
func (f *Function) WriteConfig(off, size int, v uint32) error {
	if err := checkSpace(off, size); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	f.lock()
	defer f.d.w.Unlock()
	if f.d.gone {
		return nil
	}
	for i := range size {
		m := f.writable(off + i)
		f.config[off+i] = f.config[off+i]&^m | byte(v>>(8*i))&m
	}
	masked := f.command&cmdINTxOff != 0
	if f.command = binary.LittleEndian.Uint16(f.config[cfgCommand:]); masked {
		f.assert()
	}
	f.d.SetBusMaster(f.command&cmdBusMaster != 0)
	if f.access != 0 && off == f.access+spec.CapPCIData {
		f.through(size, true)
	}
	return nil
}

func checkSpace(off, size int) error {
	if size != 1 && size != 2 && size != 4 || off < 0 || off+size > 256 || off%size != 0 {
		return fmt.Errorf("configuration space: %d bytes at %#x, want 1, 2 or 4 aligned bytes below 0x100", size, off)
	}
	return nil
}

// Interrupts asks for n vectors and returns how many there are, at least 1; f is called, from any goroutine and without the
// world's lock, when one fires. With more vectors than one, or with MSI-X at all, MSI-X is enabled. A nil f switches them
// off; when it returns, f is not running and will not run. It must not be called from f.
func (f *Function) Interrupts(n int, g func(vector int)) (int, error) {
	got := 1
	if !f.cfg.NoMSIX {
		got = max(1, min(n, f.cfg.Vectors))
	}
	f.lock()
	if f.msix != 0 {
		f.config[f.msix+3] &^= 0x80
		if g != nil {
			f.config[f.msix+3] |= 0x80
		}
	}
	f.vectors = got
	f.d.w.Unlock()
	f.listen(g)
	if g != nil {
		f.lock()
		f.assert()
		f.d.w.Unlock()
	}
	return got, nil
}

// listen takes another handler, and waits for the one before when there is none any more.
func (f *Function) listen(g func(vector int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handler = g
	for g == nil && f.running > 0 {
		f.idle.Wait()
	}
}

// msixOn says whether interrupts are messages.
func (f *Function) msixOn() bool { return f.msix != 0 && f.config[f.msix+3]&0x80 != 0 }

func (f *Function) deliver(v int) {
	f.mu.Lock()
	g := f.handler
	if g == nil {
		f.mu.Unlock()
		return
	}
	f.running++
	f.mu.Unlock()
	g(v)
	f.mu.Lock()
	if f.running--; f.running == 0 {
		f.idle.Broadcast()
	}
	f.mu.Unlock()
}

// queueCall is an interrupt of a queue.
func (f *Function) queueCall(i int) { f.interrupt(f.setup[i].vector, spec.ISRQueue) }

// configCall is an interrupt because the configuration has changed.
func (f *Function) configCall() { f.interrupt(f.configVector, spec.ISRConfig) }

// interrupt sends a message, or raises INTx: its handler is called again only once the ISR has been read.
func (f *Function) interrupt(vector uint16, cause uint8) {
	if f.msixOn() {
		switch {
		case vector == spec.NoVector:
		case int(vector) >= f.vectors:
			f.d.wrong(VectorRange, -1, "vector %d of %d", vector, f.vectors)
		default:
			f.d.w.Defer(f.raised[vector])
		}
		return
	}
	was := f.isr
	if f.isr |= cause; was == 0 {
		f.assert()
	}
}

// assert delivers INTx if its line is up: it is a level, and waits for whoever begins to listen.
func (f *Function) assert() {
	if f.isr != 0 && !f.msixOn() && f.command&cmdINTxOff == 0 {
		f.d.w.Defer(f.raised[0])
	}
}

// takeVector is what a vector register holds after v was written.
func (f *Function) takeVector(v uint32) uint16 {
	switch {
	case v == spec.NoVector || f.d.cfg.Faults.VectorsRefused:
		return spec.NoVector
	case int(v) >= f.cfg.Vectors || f.cfg.NoMSIX:
		f.d.wrong(VectorRange, -1, "vector %d of %d", v, f.cfg.Vectors)
		return spec.NoVector
	}
	return uint16(v)
}
