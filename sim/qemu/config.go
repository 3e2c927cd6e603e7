package qemu

import "fmt"

// Configuration space (PCI Local Bus 3.0 §6).
const (
	configLen     = 256
	cfgCommand    = 0x04
	cfgStatus     = 0x06
	cfgBARs       = 0x10
	cfgBARsEnd    = 0x28
	cfgCapPointer = 0x34

	commandMaster = 1 << 2
	statusCaps    = 1 << 4

	capMSI  = 0x05
	capPCIe = 0x10
	capMSIX = 0x11

	deviceControl = 8 // in the PCI Express capability
	controlFLR    = 1 << 15
)

// capabilities are where the card has them; 0: it has none.
type capabilities struct{ msi, msix, pcie int }

// findCapabilities walks the list of a card.
func findCapabilities(c Card) (caps capabilities, err error) {
	status, err := c.ReadConfig(cfgStatus, 2)
	if err != nil || status&statusCaps == 0 {
		return caps, err
	}
	at, err := c.ReadConfig(cfgCapPointer, 1)
	for steps := 0; err == nil && at != 0; steps++ {
		if at&^3 < 0x40 || steps == configLen/4 {
			return caps, fmt.Errorf("configuration space: the capability list leads to %#x", at)
		}
		var head uint32
		if head, err = c.ReadConfig(int(at&^3), 2); err != nil {
			break
		}
		switch head & 0xFF {
		case capMSI:
			caps.msi = int(at &^ 3)
		case capPCIe:
			caps.pcie = int(at &^ 3)
		case capMSIX:
			caps.msix = int(at &^ 3)
		}
		at = head >> 8
	}
	return caps, err
}

// readConfig is the guest's read of size bytes at off. Beyond 256 bytes there is nothing: the function is conventional.
func (f *Function) readConfig(off, size int) uint32 {
	if off+size > configLen {
		return 1<<(8*size) - 1
	}
	if off%size != 0 {
		v := uint32(0)
		for i := range size {
			v |= f.readConfig(off+i, 1) << (8 * i)
		}
		return v
	}
	v, err := f.card.ReadConfig(off, size)
	if err != nil {
		f.log.Warn("configuration space", "error", err)
		return 1<<(8*size) - 1
	}
	if f.caps.msi != 0 {
		f.mu.Lock()
		v |= f.msi.pendingBits(off, size, f.caps.msi)
		f.mu.Unlock()
	}
	return v
}

// writeConfig is the guest's write.
func (f *Function) writeConfig(off, size int, v uint32) {
	if off+size > configLen {
		return
	}
	if off%size != 0 {
		for i := range size {
			f.writeConfig(off+i, 1, v>>(8*i)&0xFF)
		}
		return
	}
	if covers(off, size, cfgCommand, 1) && v>>(8*(cfgCommand-off))&commandMaster != 0 {
		// The card is let onto the bus, and from here on goes through the IOMMU. Its registers are read now, when nothing is
		// held: a driver enables the IOMMU long before.
		f.m.look()
	}
	if err := f.card.WriteConfig(off, size, v); err != nil {
		f.log.Warn("configuration space", "error", err)
		return
	}
	if p := f.caps.pcie + deviceControl; f.caps.pcie != 0 && covers(off, size, p, 2) && v>>(8*(p-off))&controlFLR != 0 {
		f.log.Info("function-level reset")
		f.mu.Lock()
		f.msix.reset()
		f.mu.Unlock()
	}
	f.follow()
	f.settle(true)
}

// covers says whether an access takes in the n bytes at reg.
func covers(off, size, reg, n int) bool { return off <= reg && reg+n <= off+size }

// follow takes from configuration space what the seam has to know: where the BARs are, and how interrupts go.
func (f *Function) follow() {
	get := func(off, size int) uint32 {
		v, err := f.card.ReadConfig(off, size)
		if err != nil {
			f.log.Warn("configuration space", "error", err)
		}
		return v
	}
	f.bars.follow(get)
	// Everything is read before the lock is taken: an access may make the card interrupt, and that takes the lock, too.
	var msixControl uint16
	var fresh msi
	if f.caps.msix != 0 {
		msixControl = uint16(get(f.caps.msix+2, 2))
	}
	if f.caps.msi != 0 {
		fresh = readMSI(f.caps.msi, get)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.msix.control(msixControl, f.m.irqs.message)
	f.msi.replace(fresh, f.m.irqs.message)
}

// msi is the one message of MSI, from the capability (§6.8.1).
type msi struct {
	on, masked, pending bool
	maskable            bool
	pendingOff          int // of the pending bits in the capability
	addr                uint64
	data                uint32
}

// readMSI reads the capability at p.
func readMSI(p int, get func(off, size int) uint32) (s msi) {
	control := get(p+2, 2)
	s.on, s.maskable = control&1 != 0, control&(1<<8) != 0
	s.addr = uint64(get(p+4, 4))
	data := p + 8
	if control&(1<<7) != 0 {
		s.addr |= uint64(get(p+8, 4)) << 32
		data = p + 12
	}
	s.data = get(data, 2)
	s.masked = s.maskable && get(data+4, 4)&1 != 0
	s.pendingOff = data + 8 - p
	return s
}

// replace takes what the capability says now; what waits goes on waiting, or is sent.
func (s *msi) replace(now msi, send func(addr uint64, data uint32)) {
	now.pending = s.pending && now.on
	*s = now
	s.flush(send)
}

// fire is an interrupt of the card; with MSI-X on it is not ours.
func (s *msi) fire(msix bool, send func(addr uint64, data uint32)) {
	if s.on && !msix {
		s.pending = true
		s.flush(send)
	}
}

func (s *msi) flush(send func(addr uint64, data uint32)) {
	if s.on && s.pending && !s.masked {
		s.pending = false
		send(s.addr, s.data)
	}
}

// pendingBits is what is to be added to a read of configuration space.
func (s *msi) pendingBits(off, size, p int) uint32 {
	if at := p + s.pendingOff; s.maskable && s.pending && covers(off, size, at, 1) {
		return 1 << (8 * (at - off))
	}
	return 0
}
