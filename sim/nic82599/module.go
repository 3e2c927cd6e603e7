package nic82599

import "bare.wire/ixgbe/reg"

// module is the SFP+ in the cage, as drivers see it: two pages of 256 bytes (SFF-8472) behind the two-wire bus that they
// move bit by bit in I2CCTL, and a pin that says whether there is one.
type module struct {
	absent bool
	id     [256]byte // at address A0: what it is
	diag   [256]byte // at address A2: how it fares
	bus    i2c
}

// pinModule is the software-definable pin that is high while there is a module (82599's reference boards; drivers read
// ESDP.SDP2 and have it interrupt as EICR.GPI_SDP2).
const pinModule = 1 << 2

// init makes a short-range optical module of the card's own maker, which no driver refuses.
func (m *module) init(absent bool) {
	m.absent = absent
	id := &m.id
	id[reg.SFP_ID] = reg.SFP_ID_SFP
	id[1], id[2] = 0x04, 0x07 // identified by these pages alone; LC connector
	id[reg.SFP_10G] = reg.SFP_10G_SR
	id[reg.SFP_1G] = 0x01 // 1000BASE-SX
	id[11], id[12] = 0x06, 103
	id[16], id[17] = 8, 3 // metres/10 of 50 µm and 62.5 µm fibre
	text := func(at, n int, s string) {
		for i := range n {
			id[at+i] = ' '
		}
		copy(id[at:at+n], s)
	}
	text(20, 16, "Barewire")
	id[reg.SFP_OUI], id[reg.SFP_OUI+1], id[reg.SFP_OUI+2] = reg.SFP_OUI_INTEL>>16, reg.SFP_OUI_INTEL>>8&0xFF, reg.SFP_OUI_INTEL&0xFF
	text(40, 16, "SOFTWARE-SR")
	text(56, 4, "1")
	id[60], id[61] = 850>>8, 850&0xFF // nm
	id[63] = sumBytes(id[:63])
	text(68, 16, "0")
	text(84, 8, "260101")
	id[reg.SFP_SFF8472_SWAP] = 0x68 // diagnostics there, calibrated, average power
	id[reg.SFP_SFF8472_COMP] = 0x05 // of revision 11.0
	id[95] = sumBytes(id[64:95])

	d := &m.diag
	d[95] = sumBytes(d[:95])
	d[96] = 35                          // °C
	d[98], d[99] = 33000>>8, 33000&0xFF // supply, 100 µV
	d[100], d[101] = 0x0B, 0xB8         // bias, 2 µA
	d[102], d[103] = 0x13, 0x88         // light out, 0.1 µW
	d[104], d[105] = 0x13, 0x88         // light in
	m.bus = i2c{scl: true, sda: true}
}

func sumBytes(b []byte) (s byte) {
	for _, x := range b {
		s += x
	}
	return s
}

// page is the device at an address of the bus; nil: nobody answers.
func (m *module) page(addr byte) *[256]byte {
	switch {
	case m.absent:
		return nil
	case addr == reg.SFP_I2C_ADDR:
		return &m.id
	case addr == reg.SFP_I2C_DIAG_ADDR:
		return &m.diag
	}
	return nil
}

func (c *Card) writeI2CCTL(v uint32) {
	if c.val(reg.GSSR)&(reg.GSSR_PHY0_SM|reg.GSSR_PHY1_SM) == 0 && v != c.val(reg.I2CCTL) {
		c.wrong(SemaphoreMissing, -1, "I2CCTL = %08X without a PHY's bit in GSSR", v)
	}
	c.mod.id[reg.SFP_ID] = reg.SFP_ID_SFP
	if c.cfg.Faults.BadSFPByte {
		c.mod.id[reg.SFP_ID] = 0x55
	}
	c.mod.bus.drive(&c.mod, v&reg.I2CCTL_CLK_OUT != 0, v&reg.I2CCTL_DATA_OUT != 0)
}

// readI2CCTL shows the wires, which are low if anybody pulls them low.
func (c *Card) readI2CCTL() uint32 {
	v := c.val(reg.I2CCTL) &^ (reg.I2CCTL_CLK_IN | reg.I2CCTL_DATA_IN)
	if v&reg.I2CCTL_CLK_OUT != 0 {
		v |= reg.I2CCTL_CLK_IN
	}
	if v&reg.I2CCTL_DATA_OUT != 0 && !c.mod.bus.low {
		v |= reg.I2CCTL_DATA_IN
	}
	return v
}

// readESDP shows the pins: those that are outputs as written, the module's as it is.
func (c *Card) readESDP() uint32 {
	v := c.val(reg.ESDP)
	if v&(pinModule<<reg.ESDP_DIR_Shift) != 0 {
		return v
	}
	v &^= pinModule
	if !c.mod.absent {
		v |= pinModule
	}
	return v
}

// SetModule pulls the SFP+ out of its cage, or puts it in. Without it there is no link.
func (c *Card) SetModule(in bool) {
	c.w.Lock()
	defer c.w.Unlock()
	c.touch()
	if c.gone || c.mod.absent == !in {
		return
	}
	c.mod.absent = !in
	c.mod.bus = i2c{scl: true, sda: true}
	if c.val(reg.GPIE)&reg.GPIE_SDP2 != 0 {
		c.raise(0, reg.EICR_GPI_SDP2)
	}
	c.runLink()
	c.kick()
}

// i2c is the module's side of the two-wire bus. A bit is taken when the clock rises; the module moves the data wire when
// it falls. Data moving while the clock is high is a start (down) or a stop (up).
type i2c struct {
	scl, sda bool // as the card drives them
	low      bool // the module pulls data low
	state    i2cState
	bits     int  // of the byte under way, the acknowledgement being the ninth
	shift    byte // what has come in, or is left to go out
	nack     bool // the card did not acknowledge
	page     *[256]byte
	at       byte // next byte of the page
}

type i2cState uint8

const (
	i2cIdle i2cState = iota
	i2cAddress
	i2cOffset
	i2cRead
	i2cWrite // taken and forgotten: the pages are read-only
)

func (b *i2c) drive(m *module, scl, sda bool) {
	switch {
	case b.scl && scl && b.sda && !sda:
		b.state, b.bits, b.low = i2cAddress, 0, false
	case b.scl && scl && !b.sda && sda:
		b.state, b.low = i2cIdle, false
	case !b.scl && scl && b.state != i2cIdle:
		b.rise(sda)
	case b.scl && !scl && b.state != i2cIdle:
		b.fall(m)
	}
	b.scl, b.sda = scl, sda
}

func (b *i2c) rise(sda bool) {
	b.bits++
	switch {
	case b.bits == 9:
		b.nack = sda
	case b.state != i2cRead:
		b.shift <<= 1
		if sda {
			b.shift |= 1
		}
	}
}

func (b *i2c) fall(m *module) {
	switch {
	case b.bits == 8 && b.state == i2cRead:
		b.low = false // the card's turn to acknowledge
	case b.bits == 8 && b.state == i2cAddress:
		if b.page = m.page(b.shift &^ 1); b.page == nil {
			b.state, b.low = i2cIdle, false
			return
		}
		b.low = true
	case b.bits == 8:
		b.low = true
	case b.bits >= 9:
		b.bits, b.low = 0, false
		b.next()
	case b.state == i2cRead:
		b.send()
	}
}

// next begins the byte after one that is done.
func (b *i2c) next() {
	switch {
	case b.state == i2cAddress && b.shift&1 == 0:
		b.state = i2cOffset
	case b.state == i2cOffset:
		b.at, b.state = b.shift, i2cWrite
	case b.state == i2cAddress, b.state == i2cRead && !b.nack:
		b.state, b.shift = i2cRead, b.page[b.at]
		b.at++
		b.send()
	case b.state == i2cRead:
		b.state = i2cIdle
	}
}

// send puts the next bit on the wire.
func (b *i2c) send() {
	b.low = b.shift&0x80 == 0
	b.shift <<= 1
}
