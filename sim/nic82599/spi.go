package nic82599

import "bare.wire/ixgbe/reg"

// spi is the EEPROM behind the bits of EEC: a serial memory as there are many (25xxx), which takes a bit when the clock
// rises and puts one out when it falls. Chip select is low while it is spoken to.
type spi struct {
	cs, sk bool
	out    bool
	bits   int // taken since it was selected
	in     uint32
	op     byte
	addr   int // next byte
	enable bool
	wrote  bool
}

// The commands of the memory.
const (
	spiWrite   = 0x02
	spiRead    = 0x03
	spiDisable = 0x04
	spiStatus  = 0x05
	spiEnable  = 0x06
)

// spiPage is the longest run of bytes that one command writes; past its end writing goes on at its start.
const spiPage = 64

func (c *Card) writeEEC(v uint32) {
	if v&reg.EEC_REQ == 0 {
		c.spi = spi{cs: true, enable: c.spi.enable}
		return
	}
	if c.val(reg.GSSR)&reg.GSSR_EEP_SM == 0 {
		c.wrong(SemaphoreMissing, -1, "EEC = %08X without GSSR.EEP_SM", v)
	}
	c.spi.drive(c.nvm, v&reg.EEC_CS != 0, v&reg.EEC_SK != 0, v&reg.EEC_DI != 0)
}

func (s *spi) drive(mem []uint16, cs, sk, di bool) {
	switch {
	case cs && !s.cs:
		s.enable = s.enable && !s.wrote
		s.bits, s.in, s.op, s.wrote, s.out = 0, 0, 0, false, true
	case !cs && sk && !s.sk:
		s.take(mem, di)
	case !cs && !sk && s.sk:
		s.give(mem)
	}
	s.cs, s.sk = cs, sk
}

// take is a rising clock.
func (s *spi) take(mem []uint16, di bool) {
	s.in <<= 1
	if di {
		s.in |= 1
	}
	s.bits++
	switch {
	case s.bits == 8:
		s.op = byte(s.in)
		if s.op == spiEnable || s.op == spiDisable {
			s.enable = s.op == spiEnable
		}
	case s.bits == 24:
		s.addr = int(s.in & 0xFFFF)
	case s.bits > 24 && s.bits%8 == 0 && s.op == spiWrite && s.enable:
		s.store(mem, byte(s.in))
		s.wrote = true
		s.addr = s.addr&^(spiPage-1) | (s.addr+1)&(spiPage-1)
	}
}

// give is a falling clock: the next bit of what is read.
func (s *spi) give(mem []uint16) {
	switch {
	case s.op == spiStatus && s.bits >= 8:
		s.out = s.bits%8 == 6 && s.enable // write enable latch; it is never busy
	case s.op == spiRead && s.bits >= 24:
		n := s.addr + (s.bits-24)/8
		s.out = s.load(mem, n)>>(7-s.bits%8)&1 != 0
	}
}

func (s *spi) load(mem []uint16, n int) byte {
	n %= 2 * len(mem)
	return byte(mem[n/2] >> (8 * (n % 2)))
}

func (s *spi) store(mem []uint16, x byte) {
	n := s.addr % (2 * len(mem))
	shift := 8 * (n % 2)
	mem[n/2] = mem[n/2]&^(0xFF<<shift) | uint16(x)<<shift
}
