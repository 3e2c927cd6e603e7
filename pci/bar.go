// Package pci is how a driver sees a PCI function: its configuration space, its memory-mapped registers and its
// interrupts.
//
// This is the seam: [Function] and [BAR], or [NarrowBAR], are what drivers are written against, whatever stands behind them, a
// real card or a software one. [MapBAR] serves registers that lie in memory.
//
// A [Host] lists the functions of a machine, says who uses them, and binds them to the driver that hands them out. An [Opener]
// then opens them:
//
//	by VFIO      the IOMMU keeps the device to what the vtop.Space maps; interrupts are eventfds
//	             (Documentation/driver-api/vfio.rst, include/uapi/linux/vfio.h in the kernel)
//	by sysfs     where there is no IOMMU: the resource files are mapped, or read and written where they are ports; a timer stands
//	             in for interrupts, and a guardian process ends the device's DMA should this one die (package guardian), as
//	             with VFIO without an IOMMU
//
// Registers may go away at any time, with the card. They read as all ones then, and [GoneNotifier] tells: see [GuardedBAR].
package pci

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// BAR is a window of registers. Offsets are in bytes, aligned to the access, and below Size; the driver that names an
// offset beyond it has a bug, not bad luck.
type BAR interface {
	Size() int
	Read32(off uint32) uint32
	Write32(off uint32, v uint32)
}

// NarrowBAR is a BAR whose registers can be accessed with 8 and 16 bits too, and each access has just the width that is asked
// for: virtio's registers want that. Offsets of 16-bit accesses are even. What an Opener opens has these; software cards whose
// datasheet knows 32 bits only do not.
type NarrowBAR interface {
	BAR
	Read8(off uint32) uint8
	Read16(off uint32) uint16
	Write8(off uint32, v uint8)
	Write16(off uint32, v uint16)
}

// Function is one PCI function.
type Function interface {
	// Name is how people call it: "0000:03:00.0", "sim:a".
	Name() string
	// ID returns the vendor and device id.
	ID() (vendor, device uint16)
	// BAR maps base address register n. It stays valid until Close.
	BAR(n int) (BAR, error)
	// ReadConfig and WriteConfig access size (1, 2 or 4) bytes of configuration space at off.
	ReadConfig(off, size int) (uint32, error)
	WriteConfig(off, size int, v uint32) error
	// Interrupts asks for n vectors and returns how many there are, at least 1; f is called, from any goroutine, when
	// one fires. A nil f switches them off; when it returns, f is not running and will not run.
	Interrupts(n int, f func(vector int)) (int, error)
	// Reset is a function-level reset: when it returns the device does no DMA and its registers are at their defaults.
	Reset(ctx context.Context) error
	// Close gives the function back; its registers may not be touched any more. The driver has stopped DMA before, if it
	// could. A nil error says that the device can reach no memory from here on, even so: its DMA mappings are gone, it was
	// reset, or it was unplugged. Who cannot know that returns an error.
	Close() error
}

// Configuration space offsets and bits (PCI Local Bus Specification 3.0 §6.2).
const (
	ConfigVendor  = 0x00
	ConfigDevice  = 0x02
	ConfigCommand = 0x04
	ConfigClass   = 0x08 // revision, and the class in the upper 3 bytes
	ConfigBAR     = 0x10 // BAR 0; the others follow, 4 bytes each
	ConfigBARIO   = 1    // bit 0 of a BAR: it is in I/O space

	CommandIO        = 1 << 0
	CommandMemory    = 1 << 1
	CommandBusMaster = 1 << 2
)

// SetBusMaster lets the function start DMA, or forbids it and reads back that it took effect. It goes through
// configuration space, which works when the registers no longer do.
func SetBusMaster(f Function, on bool) error {
	v, err := f.ReadConfig(ConfigCommand, 2)
	if err != nil {
		return fmt.Errorf("%s: read PCI command: %w", f.Name(), err)
	}
	v &^= CommandBusMaster
	if on {
		v |= CommandBusMaster
	}
	if err := f.WriteConfig(ConfigCommand, 2, v); err != nil {
		return fmt.Errorf("%s: write PCI command: %w", f.Name(), err)
	}
	got, err := f.ReadConfig(ConfigCommand, 2)
	if err != nil {
		return fmt.Errorf("%s: read PCI command back: %w", f.Name(), err)
	}
	if got&CommandBusMaster != v&CommandBusMaster {
		return fmt.Errorf("%s: bus mastering does not switch (PCI command reads %#06x after %#06x was written)", f.Name(), got, v)
	}
	return nil
}

// configSpace is the part of a function, or of its file, that holds the command register.
type configSpace interface {
	ReadConfig(off, size int) (uint32, error)
	WriteConfig(off, size int, v uint32) error
}

// enableDecoding has a function answer in a space, CommandMemory or CommandIO: who does not has no registers there.
func enableDecoding(f configSpace, space uint32) error {
	v, err := f.ReadConfig(ConfigCommand, 2)
	if err != nil || v&space != 0 {
		return err
	}
	return f.WriteConfig(ConfigCommand, 2, v|space)
}

// MappedBAR is a BAR in this process's memory.
type MappedBAR struct{ words []uint32 }

// MapBAR returns the registers that mem holds. mem is a mapping of at least 4 bytes, aligned to 4.
func MapBAR(mem []byte) (*MappedBAR, error) {
	if len(mem) < 4 || len(mem)%4 != 0 || uintptr(unsafe.Pointer(&mem[0]))%4 != 0 {
		return nil, fmt.Errorf("map registers: %d bytes, want a multiple of 4 that starts at a multiple of 4", len(mem))
	}
	return &MappedBAR{unsafe.Slice((*uint32)(unsafe.Pointer(&mem[0])), len(mem)/4)}, nil
}

// Size is the length of the window in bytes.
func (b *MappedBAR) Size() int { return 4 * len(b.words) }

// Read32 is one aligned load.
func (b *MappedBAR) Read32(off uint32) uint32 { return atomic.LoadUint32(&b.words[off/4]) }

// Write32 is one plain aligned store, ordered after every store before it. It is not atomic.StoreUint32: on amd64 that is
// a locked exchange, and on an uncached register a read over the bus.
func (b *MappedBAR) Write32(off uint32, v uint32) { store32(&b.words[off/4], v) }

// Read16 implements NarrowBAR. Narrow accesses are ordered as those of 32 bits are.
func (b *MappedBAR) Read16(off uint32) uint16 { return load16(b.half(off)) }

// Read8 implements NarrowBAR.
func (b *MappedBAR) Read8(off uint32) uint8 { return load8(b.byte(off)) }

// Write16 implements NarrowBAR.
func (b *MappedBAR) Write16(off uint32, v uint16) { store16(b.half(off), v) }

// Write8 implements NarrowBAR.
func (b *MappedBAR) Write8(off uint32, v uint8) { store8(b.byte(off), v) }

func (b *MappedBAR) byte(off uint32) *uint8 {
	return (*uint8)(unsafe.Add(unsafe.Pointer(&b.words[off/4]), off%4))
}

func (b *MappedBAR) half(off uint32) *uint16 {
	if off%2 != 0 {
		panic(fmt.Sprintf("16-bit register at %#x", off)) // impossible: NarrowBAR says that offsets are even
	}
	return (*uint16)(unsafe.Pointer(b.byte(off)))
}
