package pci

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Capability is one entry of a function's capability lists.
type Capability struct {
	ID       uint16
	Extended bool  // in the list from 0x100 on (PCI Express)
	Version  uint8 // of extended ones
	Offset   int   // where it begins in configuration space, bytes
}

// Capability ids (PCI Code and ID Assignment §2) that are looked at here.
const (
	CapPowerManagement = 0x01
	CapMSI             = 0x05
	CapVendor          = 0x09
	CapExpress         = 0x10
	CapMSIX            = 0x11
)

var standardNames = map[uint16]string{
	CapPowerManagement: "power management", 0x02: "AGP", 0x03: "vital product data", 0x04: "slot identification", CapMSI: "MSI",
	0x06: "CompactPCI hot swap", 0x07: "PCI-X", 0x08: "HyperTransport", CapVendor: "vendor specific", 0x0a: "debug port",
	0x0c: "hot-plug", 0x0d: "bridge subsystem vendor", 0x0f: "secure device", CapExpress: "PCI Express", CapMSIX: "MSI-X",
	0x12: "SATA", 0x13: "advanced features", 0x14: "enhanced allocation",
}

var extendedNames = map[uint16]string{
	0x01: "advanced error reporting", 0x02: "virtual channel", 0x03: "device serial number", 0x04: "power budgeting",
	0x0b: "vendor specific", 0x0d: "access control services", 0x0e: "alternative routing id", 0x0f: "address translation services",
	0x10: "single root I/O virtualization", 0x13: "page request", 0x15: "resizable BAR", 0x17: "TPH requester",
	0x18: "latency tolerance reporting", 0x19: "secondary PCI Express", 0x1b: "process address space id", 0x1e: "L1 PM substates",
	0x1f: "precision time measurement", 0x25: "data link feature", 0x26: "16 GT/s physical layer", 0x27: "lane margining",
}

// Name is what the specification calls the capability, "" when it is not known here.
func (c Capability) Name() string {
	if c.Extended {
		return extendedNames[c.ID]
	}
	return standardNames[c.ID]
}

// ErrConfigShort says that configuration space was shown in part only.
var ErrConfigShort = errors.New("the kernel shows only the beginning of configuration space: root sees all of it")

// Fields of configuration space (PCI Local Bus Specification 3.0 §6.1, §6.7).
const (
	configStatus       = 0x06
	statusCapabilities = 1 << 4
	configHeaderType   = 0x0e
	configCapabilities = 0x34
	configCardBusCaps  = 0x14 // CardBus bridges have the pointer elsewhere
	firstExtended      = 0x100
)

// Capabilities walks both lists of a configuration space. Each entry is met once and lies inside config: a list that leads in a
// circle or out of its part of the space is an error, and so (ErrConfigShort) is one that goes on where config ends. What was
// found until then is returned with the error.
func Capabilities(config []byte) ([]Capability, error) {
	list, err := standardCapabilities(config)
	if err != nil {
		return list, err
	}
	extended, err := extendedCapabilities(config)
	return append(list, extended...), err
}

func standardCapabilities(config []byte) ([]Capability, error) {
	if len(config) < ConfigHeaderSize {
		return nil, fmt.Errorf("capabilities: %w (%d bytes)", ErrConfigShort, len(config))
	}
	if binary.LittleEndian.Uint16(config[configStatus:])&statusCapabilities == 0 {
		return nil, nil
	}
	pointer := configCapabilities
	if config[configHeaderType]&0x7f == 2 {
		pointer = configCardBusCaps
	}
	var list []Capability
	var met [ConfigSize]bool
	for at := int(config[pointer] &^ 3); at != 0; at = int(config[at+1] &^ 3) {
		switch {
		case at < ConfigHeaderSize:
			return list, fmt.Errorf("capabilities: one at %#x, inside the header", at)
		case at+4 > len(config):
			return list, fmt.Errorf("capabilities: %w (%d bytes, and one is at %#x)", ErrConfigShort, len(config), at)
		case met[at]:
			return list, fmt.Errorf("capabilities: the list leads in a circle at %#x", at)
		}
		met[at] = true
		list = append(list, Capability{ID: uint16(config[at]), Offset: at})
	}
	return list, nil
}

// extendedCapabilities walks the list of PCI Express (Base Specification §7.6.3): id, version and next in one word.
func extendedCapabilities(config []byte) ([]Capability, error) {
	if len(config) <= ConfigSize {
		return nil, nil // plain PCI, or not shown
	}
	var list []Capability
	var met [ConfigSizeMax]bool
	for at := firstExtended; at != 0; {
		switch {
		case at < firstExtended:
			return list, fmt.Errorf("capabilities: an extended one at %#x, want %#x or more", at, firstExtended)
		case at+4 > len(config) || at+4 > ConfigSizeMax:
			return list, fmt.Errorf("capabilities: %w (%d bytes, and one is at %#x)", ErrConfigShort, len(config), at)
		case met[at]:
			return list, fmt.Errorf("capabilities: the extended list leads in a circle at %#x", at)
		}
		met[at] = true
		word := binary.LittleEndian.Uint32(config[at:])
		if word == 0 || word == 1<<32-1 {
			break // an empty list, or a device that is gone
		}
		list = append(list, Capability{ID: uint16(word), Extended: true, Version: uint8(word >> 16 & 0xf), Offset: at})
		at = int(word >> 20 &^ 3)
	}
	return list, nil
}

// FindCapability returns the first standard capability with that id.
func FindCapability(list []Capability, id uint16) (Capability, bool) {
	for _, c := range list {
		if c.ID == id && !c.Extended {
			return c, true
		}
	}
	return Capability{}, false
}

// MSIX is where a function keeps its MSI-X vectors.
type MSIX struct {
	Vectors     int
	TableBAR    int // base address register that holds the table, 16 bytes a vector
	TableOffset uint32
	PBABAR      int // and the one with the pending bits
	PBAOffset   uint32
	Enabled     bool
}

// ParseMSIX reads an MSI-X capability (PCI Local Bus Specification 3.0 §6.8.2).
func ParseMSIX(config []byte, c Capability) (MSIX, error) {
	b, err := body(config, c, CapMSIX, 12)
	if err != nil {
		return MSIX{}, err
	}
	control := binary.LittleEndian.Uint16(b[2:])
	table, pending := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	m := MSIX{
		Vectors:  int(control&0x7ff) + 1,
		TableBAR: int(table & 7), TableOffset: table &^ 7, PBABAR: int(pending & 7), PBAOffset: pending &^ 7,
		Enabled: control&(1<<15) != 0,
	}
	if m.TableBAR > 5 || m.PBABAR > 5 {
		return MSIX{}, fmt.Errorf("MSI-X capability at %#x: its table is in BAR %d and its pending bits in BAR %d, and there are 0 to 5", c.Offset, m.TableBAR, m.PBABAR)
	}
	return m, nil
}

// Express is what a PCI Express function says about its link and its reset.
type Express struct {
	FLR bool // can be reset alone
	// Lanes and transfers per second and lane, in MT/s, of the link as it is and as the function could; 0 when not said.
	Width, MaxWidth int
	Speed, MaxSpeed int
}

// ParseExpress reads a PCI Express capability (Base Specification §7.5.3).
func ParseExpress(config []byte, c Capability) (Express, error) {
	b, err := body(config, c, CapExpress, 20)
	if err != nil {
		return Express{}, err
	}
	device, link, status := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint16(b[18:])
	return Express{
		FLR:   device&(1<<28) != 0,
		Width: int(status >> 4 & 0x3f), MaxWidth: int(link >> 4 & 0x3f),
		Speed: transfers(uint32(status)), MaxSpeed: transfers(link),
	}, nil
}

// transfers translates a link speed code, MT/s.
func transfers(code uint32) int {
	speeds := [16]int{1: 2500, 2: 5000, 3: 8000, 4: 16000, 5: 32000, 6: 64000}
	return speeds[code&0xf]
}

// body returns the n bytes of a capability.
func body(config []byte, c Capability, id uint16, n int) ([]byte, error) {
	if c.ID != id || c.Extended {
		return nil, fmt.Errorf("capability %#x is not %s", c.ID, standardNames[id])
	}
	if c.Offset < 0 || c.Offset+n > len(config) {
		return nil, fmt.Errorf("%s capability at %#x: %w (%d bytes)", standardNames[id], c.Offset, ErrConfigShort, len(config))
	}
	return config[c.Offset : c.Offset+n], nil
}
