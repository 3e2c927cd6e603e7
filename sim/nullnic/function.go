package nullnic

import (
	"context"
	"encoding/binary"
	"fmt"

	"bare.wire/ixgbe/reg"
)

// deviceID is the 82599's most common one, SFP+.
const deviceID = 0x10fb

// configSpace is the part of PCI configuration space that drivers look at: memory, but for the ids.
type configSpace [256]byte

func (c *configSpace) reset() {
	*c = configSpace{}
	binary.LittleEndian.PutUint16(c[0:], reg.PCI_VENDOR_INTEL)
	binary.LittleEndian.PutUint16(c[2:], deviceID)
}

// Name, ID, ReadConfig, WriteConfig, Interrupts, Reset and Close are those of a pci.Function; whoever opens the card adds
// BAR, by pci.MapBAR of Mem.

// Name is Config.Name.
func (n *NIC) Name() string { return n.cfg.Name }

// ID is that of an 82599 with SFP+.
func (n *NIC) ID() (vendor, device uint16) { return reg.PCI_VENDOR_INTEL, deviceID }

func checkConfig(off, size int) bool {
	return (size == 1 || size == 2 || size == 4) && off >= 0 && off%size == 0 && off+size <= len(configSpace{})
}

// ReadConfig reads size bytes of configuration space.
func (n *NIC) ReadConfig(off, size int) (uint32, error) {
	if !checkConfig(off, size) {
		return 0, fmt.Errorf("%s: read %d bytes of configuration space at %#x: %w", n.cfg.Name, size, off, errConfigAccess)
	}
	var v uint32
	for i := range size {
		v |= uint32(n.pci[off+i]) << (8 * i)
	}
	return v, nil
}

// WriteConfig writes size bytes of configuration space; the ids stay.
func (n *NIC) WriteConfig(off, size int, v uint32) error {
	if !checkConfig(off, size) {
		return fmt.Errorf("%s: write %d bytes of configuration space at %#x: %w", n.cfg.Name, size, off, errConfigAccess)
	}
	for i := range size {
		if off+i >= 4 {
			n.pci[off+i] = byte(v >> (8 * i))
		}
	}
	return nil
}

// Interrupts gives every vector that is asked for. None ever fires.
func (n *NIC) Interrupts(vectors int, _ func(int)) (int, error) { return max(vectors, 1), nil }

// Reset puts the card to its defaults; it forgets its rings.
func (n *NIC) Reset(context.Context) error {
	n.pci.reset()
	n.reset()
	return nil
}

// Close does nothing.
func (n *NIC) Close() error { return nil }
