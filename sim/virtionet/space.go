package virtionet

import (
	"encoding/binary"

	"bare.wire/virtio/spec"
)

// Offsets in configuration space, and bits of its command register.
const (
	cfgCommand = 0x04
	cfgStatus  = 0x06
	cfgBAR     = 0x10
	cfgCaps    = 0x34

	cmdIO        = 1 << 0
	cmdMemory    = 1 << 1
	cmdBusMaster = 1 << 2
	cmdINTxOff   = 1 << 10

	statusINTx = 1 << 3
	statusCaps = 1 << 4

	capMSIX   = 0x11
	capVendor = 0x09
)

// BARs, and where the structures lie in the modern one, a page apart.
const (
	barLegacy = 0
	barMSIX   = 1
	barModern = 4

	legacySize = 64
	msixSize   = 64 << 10
	modernSize = 64 << 10
	isrAt      = 0x1000
	deviceAt   = 0x2000
	notifyAt   = 0x3000
)

// capability is a vendor-specific capability that points to a structure.
type capability struct {
	kind        uint8
	bar         uint8
	off, length uint32
}

// fillSpace writes configuration space as it is after power-on.
func (f *Function) fillSpace() {
	le := binary.LittleEndian
	c := &f.config
	*c = [256]byte{}
	f.command, f.msix, f.access = 0, 0, 0
	vendor, device := f.ID()
	le.PutUint16(c[0x00:], vendor)
	le.PutUint16(c[0x02:], device)
	le.PutUint32(c[0x08:], 0x02000000) // Ethernet controller
	le.PutUint16(c[0x2C:], spec.PCIVendor)
	le.PutUint16(c[0x2E:], spec.DeviceNet)
	c[0x3D] = 1 // INTA
	if f.cfg.Kind == Modern {
		c[0x08] = 1
		le.PutUint16(c[0x2E:], 0x1100)
	}
	if f.cfg.Kind != Modern {
		le.PutUint32(c[cfgBAR+4*barLegacy:], 1)
	}
	if f.cfg.Kind != Legacy {
		le.PutUint32(c[cfgBAR+4*barModern:], 0xC) // 64-bit, prefetchable
	}
	if f.cfg.Layout.NoCaps {
		return
	}
	f.fillCaps()
}

// fillCaps writes the list of capabilities, MSI-X first.
func (f *Function) fillCaps() {
	le := binary.LittleEndian
	c := &f.config
	at, last := 0x40, cfgCaps
	link := func(size int) int {
		c[last] = byte(at)
		here := at
		last = here + 1
		at += (size + 3) &^ 3
		return here
	}
	if !f.cfg.NoMSIX {
		f.msix = link(12)
		c[f.msix] = capMSIX
		le.PutUint16(c[f.msix+2:], uint16(f.cfg.Vectors-1))
		le.PutUint32(c[f.msix+4:], barMSIX)
		le.PutUint32(c[f.msix+8:], barMSIX|msixSize/2)
	}
	if f.cfg.Kind != Legacy {
		for _, x := range f.structures() {
			size := spec.CapSize
			if x.kind == spec.CapNotify || x.kind == spec.CapPCIAccess {
				size = spec.CapNotifySize
			}
			o := link(size)
			c[o], c[o+spec.CapLen], c[o+spec.CapType], c[o+spec.CapBAR] = capVendor, byte(size), x.kind, x.bar
			le.PutUint32(c[o+spec.CapOffset:], x.off)
			le.PutUint32(c[o+spec.CapLength:], x.length)
			switch x.kind {
			case spec.CapNotify:
				le.PutUint32(c[o+spec.CapMultiplier:], uint32(f.cfg.Multiplier))
			case spec.CapPCIAccess:
				f.access = o
			}
		}
	}
	if f.cfg.Layout.Loop {
		c[last] = c[cfgCaps]
	}
}

// structures are the vendor-specific capabilities, in their order.
func (f *Function) structures() []capability {
	l := &f.cfg.Layout
	commonSize, deviceSize := uint32(spec.CommonSizeReset), uint32(spec.NetConfigSize)
	if l.CommonShort {
		commonSize = spec.CommonQueueDevice
	}
	if l.ShortDevice {
		deviceSize = 6
	}
	common := capability{spec.CapCommon, barModern, 0, commonSize}
	notify := capability{spec.CapNotify, barModern, notifyAt, f.notifySize()}
	if l.CommonBeyond {
		common.off = modernSize - 8
	}
	if l.NotifyBeyond {
		notify.off = 0xFFFF_FFF0
	}
	var list []capability
	if l.Decoys {
		list = append(list,
			capability{spec.CapCommon, 7, 0, spec.CommonSizeReset},
			capability{spec.CapCommon, barModern, modernSize, spec.CommonSizeReset},
			capability{spec.CapVendor, barModern, 0, 4},
		)
	}
	list = append(list, common, capability{spec.CapISR, barModern, isrAt, 1})
	if !l.NoDevice {
		list = append(list, capability{spec.CapDevice, barModern, deviceAt, deviceSize})
	}
	list = append(list, notify)
	if l.Decoys {
		list = append(list, capability{spec.CapCommon, barModern, isrAt, spec.CommonSizeReset}) // the second choice
		return list
	}
	return append(list, capability{spec.CapPCIAccess, 0, 0, 0})
}

// notifySize is the length of the notification addresses.
func (f *Function) notifySize() uint32 {
	return uint32(max(4, f.cfg.Multiplier*(len(f.setup)-1)+4))
}

// writable are the bits of a byte of configuration space that keep what is written.
func (f *Function) writable(off int) byte {
	switch {
	case off == cfgCommand:
		return cmdIO | cmdMemory | cmdBusMaster
	case off == cfgCommand+1:
		return cmdINTxOff >> 8
	case off == 0x3C:
		return 0xFF
	case off >= cfgBAR && off < cfgBAR+24:
		return f.barWritable(off - cfgBAR)
	case f.msix != 0 && off == f.msix+3:
		return 0xC0
	case f.access != 0 && off == f.access+spec.CapBAR, f.access != 0 && off >= f.access+spec.CapOffset && off < f.access+spec.CapNotifySize:
		return 0xFF
	}
	return 0
}

// barWritable are the address bits of a byte of a BAR: those above its size.
func (f *Function) barWritable(off int) byte {
	size := f.barSize(off / 4)
	if size == 0 {
		if f.cfg.Kind != Legacy && off/4 == barModern+1 {
			return 0xFF // the upper half
		}
		return 0
	}
	return byte(^uint32(size-1) >> (off % 4 * 8))
}

// barSize is the length of a BAR in bytes, 0 if there is none.
func (f *Function) barSize(n int) int {
	switch {
	case n == barLegacy && f.cfg.Kind != Modern:
		return legacySize
	case n == barMSIX && !f.cfg.NoMSIX:
		return msixSize
	case n == barModern && f.cfg.Kind != Legacy:
		return modernSize
	}
	return 0
}

// pciStatus is the status register.
func (f *Function) pciStatus() uint16 {
	var s uint16
	if f.config[cfgCaps] != 0 {
		s |= statusCaps
	}
	if f.isr != 0 && !f.msixOn() {
		s |= statusINTx
	}
	return s
}

// through is an access to a BAR by configuration space (§4.1.4.9).
func (f *Function) through(size int, write bool) {
	le := binary.LittleEndian
	o := f.access
	bar, off, n := int(f.config[o+spec.CapBAR]), le.Uint32(f.config[o+spec.CapOffset:]), int(le.Uint32(f.config[o+spec.CapLength:]))
	data := f.config[o+spec.CapPCIData:]
	if n != size || f.barSize(bar) == 0 || uint64(off)+uint64(n) > uint64(f.barSize(bar)) || off%uint32(n) != 0 {
		f.d.wrong(RegisterWidth, -1, "access by configuration space: BAR %d, offset %#x, length %d, with %d bytes", bar, off, n, size)
		return
	}
	if write {
		f.store(bar, off, n, le.Uint32(data))
		return
	}
	le.PutUint32(data, f.load(bar, off, n))
}
