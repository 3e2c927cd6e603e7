package nic82599

import (
	"encoding/binary"
	"fmt"
)

// Identity of an 82599ES SFP+ (82599.md: the most common part).
const (
	vendorID = 0x8086
	deviceID = 0x10FB
)

// Offsets in configuration space. The capabilities are where the silicon has them: drivers hard-code some.
const (
	cfgCommand      = 0x04
	cfgStatus       = 0x06
	cfgBAR0         = 0x10
	cfgBAR2         = 0x18
	cfgBAR4         = 0x20
	cfgCapPM        = 0x40
	cfgCapMSI       = 0x50
	cfgCapMSIX      = 0x70
	cfgCapPCIe      = 0xA0
	cfgDeviceCtl    = cfgCapPCIe + 0x08
	cfgDeviceStatus = cfgCapPCIe + 0x0A
	cfgLinkStatus   = cfgCapPCIe + 0x12
	cfgDeviceCtl2   = cfgCapPCIe + 0x28

	cmdMemory    = 1 << 1
	cmdBusMaster = 1 << 2
	cmdINTxOff   = 1 << 10

	statusINTx = 1 << 3 // an interrupt is pending, whether or not the pin may say so

	devStatusPending = 1 << 5  // transactions pending
	devCtlFLR        = 1 << 15 // function-level reset, reads 0
)

// writable are the bits of configuration space that keep what is written.
var writable = [256]byte{
	cfgCommand: 0x07 | 0x40, cfgCommand + 1: 0x05, // I/O, memory, bus master, parity, SERR, INTx off
	0x0C:        0xFF,                    // cache line size
	cfgBAR0 + 2: 0xFE, cfgBAR0 + 3: 0xFF, // 128 KiB
	cfgBAR0 + 4: 0xFF, cfgBAR0 + 5: 0xFF, cfgBAR0 + 6: 0xFF, cfgBAR0 + 7: 0xFF,
	cfgBAR2: 0xE0, cfgBAR2 + 1: 0xFF, cfgBAR2 + 2: 0xFF, cfgBAR2 + 3: 0xFF, // 32 bytes
	cfgBAR4 + 1: 0xC0, cfgBAR4 + 2: 0xFF, cfgBAR4 + 3: 0xFF, // 16 KiB
	cfgBAR4 + 4: 0xFF, cfgBAR4 + 5: 0xFF, cfgBAR4 + 6: 0xFF, cfgBAR4 + 7: 0xFF,
	0x3C:         0xFF, // interrupt line
	cfgCapPM + 4: 0x03, cfgCapPM + 5: 0x01,
	cfgCapMSI + 2: 0x71,
	cfgCapMSI + 4: 0xFC, cfgCapMSI + 5: 0xFF, cfgCapMSI + 6: 0xFF, cfgCapMSI + 7: 0xFF,
	cfgCapMSI + 8: 0xFF, cfgCapMSI + 9: 0xFF, cfgCapMSI + 10: 0xFF, cfgCapMSI + 11: 0xFF,
	cfgCapMSI + 12: 0xFF, cfgCapMSI + 13: 0xFF, cfgCapMSI + 16: 0x01,
	cfgCapMSIX + 3: 0xC0, // enable, mask all
	cfgDeviceCtl:   0xFF, cfgDeviceCtl + 1: 0x7F,
	cfgCapPCIe + 0x10: 0xC3,
	cfgDeviceCtl2:     0x1F,
}

func (c *Card) resetConfig() {
	c.config = [256]byte{}
	le := binary.LittleEndian
	put16 := func(off int, v uint16) { le.PutUint16(c.config[off:], v) }
	put32 := func(off int, v uint32) { le.PutUint32(c.config[off:], v) }
	put16(0x00, vendorID)
	put16(0x02, deviceID)
	put16(cfgStatus, 1<<4)  // capabilities
	put32(0x08, 0x02000001) // Ethernet controller, revision 1
	put32(cfgBAR0, 0x4)     // memory, 64-bit: the registers
	put32(cfgBAR2, 0x1)     // I/O: the same through an address and a data port
	put32(cfgBAR4, 0x4)     // memory, 64-bit: the MSI-X table
	put16(0x2C, vendorID)
	put16(0x2E, 0x0003)
	c.config[0x34] = cfgCapPM
	c.config[0x3D] = 1 // INTA
	put32(cfgCapPM, 0x00230001|cfgCapMSI<<8)
	next := uint32(cfgCapPCIe)
	if !c.cfg.NoMSIX {
		put32(cfgCapMSIX, 0x003F0011|next<<8) // 64 vectors
		put32(cfgCapMSIX+4, 4)                // table in BAR 4
		put32(cfgCapMSIX+8, 4|0x2000)
		next = cfgCapMSIX
	}
	put32(cfgCapMSI, 0x01800005|next<<8) // 64-bit, maskable, one message
	put16(cfgCapPCIe, 0x0010)
	put16(cfgCapPCIe+2, 0x0002)
	put32(cfgCapPCIe+4, 1<<28|0x8CC2) // FLR
	put16(cfgDeviceCtl, 0x2810)
	put32(cfgCapPCIe+0x0C, 0x00000482) // x8, 5 GT/s
	put16(cfgLinkStatus, 0x1082)
}

// ReadConfig reads size (1, 2 or 4) bytes of configuration space at off. A removed card reads as all ones.
func (c *Card) ReadConfig(off, size int) (uint32, error) {
	if err := checkConfig(off, size); err != nil {
		return 0, fmt.Errorf("%s: %w", c.cfg.Name, err)
	}
	c.w.Lock()
	defer c.w.Unlock()
	c.touch()
	if c.gone {
		return 1<<(8*size) - 1, nil
	}
	c.config[cfgDeviceStatus] &^= devStatusPending
	if c.inFlight() {
		c.config[cfgDeviceStatus] |= devStatusPending
	}
	c.config[cfgStatus] &^= statusINTx
	if c.waiting() {
		c.config[cfgStatus] |= statusINTx
	}
	var b [4]byte
	copy(b[:], c.config[off:off+size])
	return binary.LittleEndian.Uint32(b[:]), nil
}

// WriteConfig writes size (1, 2 or 4) bytes of configuration space at off.
func (c *Card) WriteConfig(off, size int, v uint32) error {
	if err := checkConfig(off, size); err != nil {
		return fmt.Errorf("%s: %w", c.cfg.Name, err)
	}
	c.w.Lock()
	defer c.w.Unlock()
	c.touch()
	if c.gone {
		return nil
	}
	for i := range size {
		m := writable[off+i]
		if c.cfg.NoMSIX && off+i == cfgCapMSIX+3 {
			m = 0
		}
		c.config[off+i] = c.config[off+i]&^m | byte(v>>(8*i))&m
	}
	if o := cfgDeviceCtl - off; o >= 0 && o+1 < size && v>>(8*o)&devCtlFLR != 0 {
		c.powerOn()
	}
	c.reheat()
	c.kick()
	return nil
}

func checkConfig(off, size int) error {
	if size != 1 && size != 2 && size != 4 || off < 0 || off+size > 256 || off%size != 0 {
		return fmt.Errorf("configuration space: %d bytes at %#x, want 1, 2 or 4 aligned bytes below 0x100", size, off)
	}
	return nil
}

// command is the PCI command register.
func (c *Card) command() uint16 { return binary.LittleEndian.Uint16(c.config[cfgCommand:]) }
