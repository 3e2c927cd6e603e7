package nic82599

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
)

// TestNearlyFullBufferAsksForSilence lets frames arrive for which there are no descriptors: XOFF at the high mark, again
// until the low mark, then XON; and the partner, which obeys, loses nothing.
func TestNearlyFullBufferAsksForSilence(t *testing.T) {
	r := newRig(t, 9, miniOptions{desc: 64}, nil)
	r.start()
	a, b := r.a, r.b
	a.or(reg.MFLCN, reg.MFLCN_RFCE|reg.MFLCN_DPF)
	b.wr(reg.FCTTV(0), 0x100)
	b.wr(reg.FCRTV, 0x80)
	b.wr(reg.FCRTH(0), 64<<10|reg.FCRTH_FCEN)
	b.wr(reg.FCRTL(0), 32<<10|reg.FCRTL_XONE)
	b.wr(reg.FCCFG, reg.FCCFG_TFCE_802_3X)
	sent := 0
	for range 4000 {
		if sent < 800 && a.send(0, frameTo(macB, 1000, byte(sent)), 0, true) {
			sent++
		}
		r.run(time.Microsecond)
	}
	xoff := b.rd(reg.LXOFFTXC)
	if xoff < 2 || b.rd(reg.LXONTXC) != 0 {
		t.Fatalf("%d XOFF, %d frames sent", xoff, sent)
	}
	if got := a.rd(reg.LXOFFRXCNT); got != xoff {
		t.Errorf("%d XOFF arrived of %d", got, xoff)
	}
	if sent == 800 {
		t.Error("the partner was not stopped")
	}
	got := 0
	for range 100_000 {
		if sent < 800 && a.send(0, frameTo(macB, 1000, byte(sent)), 0, true) {
			sent++
		}
		for {
			f, _, _ := b.recv(0)
			if f == nil {
				break
			}
			if !bytes.Equal(f, frameTo(macB, 1000, byte(got))) {
				t.Fatalf("frame %d is another", got)
			}
			got++
		}
		if got == 800 {
			break
		}
		r.run(time.Microsecond)
	}
	if got != 800 || b.rd(reg.MPC(0)) != 0 {
		t.Errorf("%d frames of 800 arrived, %d missed", got, b.rd(reg.MPC(0)))
	}
	if b.rd(reg.LXONTXC) == 0 || a.rd(reg.LXONRXCNT) == 0 {
		t.Error("no XON")
	}
	if n := b.card.Counts().PauseSent; n < uint64(xoff)+1 {
		t.Errorf("%d pause frames counted", n)
	}
	r.clean()
}

// TestPauseFramesAreAmongTheFramesSent is what drivers rely on when they take them off the totals.
func TestPauseFramesAreAmongTheFramesSent(t *testing.T) {
	r := newRig(t, 9, miniOptions{}, nil)
	r.start()
	r.b.w.Lock()
	r.b.card.sendPause(5)
	r.b.w.Unlock()
	for _, c := range []uint32{reg.GPTC, reg.TPT, reg.MPTC, reg.PTC64, reg.LXOFFTXC} {
		if n := r.b.rd(c); n != 1 {
			t.Errorf("%s is %d", reg.Name(c), n)
		}
	}
	if n := r.b.rd(reg.GOTCL); n != 64 {
		t.Errorf("GOTCL is %d", n)
	}
}

// serial speaks to the EEPROM over EEC.
type serial struct {
	*mini
	v uint32
}

func (s *serial) set(v uint32) { s.v = v; s.wr(reg.EEC, v) }

func (s *serial) selected(f func()) {
	s.set(reg.EEC_REQ)
	f()
	s.set(reg.EEC_REQ | reg.EEC_CS)
}

func (s *serial) out(v uint32, n int) {
	for i := n - 1; i >= 0; i-- {
		b := uint32(reg.EEC_REQ)
		if v>>i&1 != 0 {
			b |= reg.EEC_DI
		}
		s.set(b)
		s.set(b | reg.EEC_SK)
		s.set(b)
	}
}

func (s *serial) in(n int) (v uint32) {
	for range n {
		s.set(reg.EEC_REQ | reg.EEC_SK)
		v <<= 1
		if s.rd(reg.EEC)&reg.EEC_DO != 0 {
			v |= 1
		}
		s.set(reg.EEC_REQ)
	}
	return v
}

func TestEEPROMBitByBit(t *testing.T) {
	r := newRig(t, 9, miniOptions{}, nil)
	r.start()
	d := r.a
	d.takeGSSR(reg.GSSR_EEP_SM)
	s := &serial{mini: d}
	s.set(reg.EEC_REQ | reg.EEC_CS)
	if d.rd(reg.EEC)&reg.EEC_GNT == 0 {
		t.Fatal("not granted")
	}
	word := func(w uint32) (v uint32) {
		s.selected(func() {
			s.out(spiRead, 8)
			s.out(2*w, 16)
			v = s.in(16)
		})
		return v>>8 | v<<8&0xFF00
	}
	byEERD := func(w uint32) uint32 {
		d.wr(reg.EERD, w<<2|reg.EERD_START)
		d.poll(reg.EERD, reg.EERD_DONE, reg.EERD_DONE)
		return d.rd(reg.EERD) >> 16
	}
	for _, w := range []uint32{0, 0x15, reg.EE_DEVICE_CAPS, reg.EE_CHECKSUM} {
		if a, b := word(w), byEERD(w); a != b {
			t.Errorf("word %02X is %04X bit by bit, %04X by EERD", w, a, b)
		}
	}
	write := func(w, v uint32) {
		s.selected(func() {
			s.out(spiWrite, 8)
			s.out(2*w, 16)
			s.out(v<<8&0xFF00|v>>8, 16)
		})
	}
	write(0x900, 0x1234)
	if v := word(0x900); v == 0x1234 {
		t.Error("written without being enabled")
	}
	s.selected(func() { s.out(spiEnable, 8) })
	var status uint32
	s.selected(func() { s.out(spiStatus, 8); status = s.in(8) })
	if status != 2 {
		t.Errorf("status %02X after write enable", status)
	}
	write(0x900, 0x1234)
	write(0x901, 0x5678) // the first write has used the permission up
	if a, b := word(0x900), word(0x901); a != 0x1234 || b == 0x5678 {
		t.Errorf("words %04X %04X after one permitted write", a, b)
	}
	d.wr(reg.EEC, 0)
	for _, m := range d.card.Misuse() {
		t.Error(m)
	}
}

// TestSCTPChecksums has one put in, and one found bad.
func TestSCTPChecksums(t *testing.T) {
	r := newRig(t, 9, miniOptions{}, nil)
	r.start()
	f := ipFrame(tcpPair[0], tcpPair[1], protoTCP, 100)
	f[23] = protoSCTP
	f[24], f[25] = 0, 0
	clear(f[42:46])
	want := bytes.Clone(f)
	binary.LittleEndian.PutUint32(want[42:], crc32.Checksum(f[34:], crc32.MakeTable(crc32.Castagnoli)))
	s := ^slowSum(want[14:34])
	want[24], want[25] = byte(s>>8), byte(s)
	r.a.putContext(14, 20, 12, 0, l4SCTP, true)
	r.a.putFrame(f, len(f), reg.TXD_IXSM|reg.TXD_TXSM)
	w0, w1 := r.b.expect(0, want)
	if w0&reg.RXD_PT_SCTP == 0 || w1&reg.RXD_L4CS == 0 || w1&reg.RXD_L4E != 0 {
		t.Errorf("descriptor %016X %016X", w0, w1)
	}
	want[80]++
	r.a.send(0, want, 0, true)
	if _, w1 = r.b.expect(0, want); w1&reg.RXD_L4E == 0 {
		t.Error("a bad checksum was called good")
	}
	r.clean()
}

// TestForcedLinkNeedsNoTraining is how a driver tests its loopback.
func TestForcedLinkNeedsNoTraining(t *testing.T) {
	r := newRig(t, 9, miniOptions{}, nil)
	r.start()
	r.a.or(reg.AUTOC, reg.AUTOC_AN_RESTART|reg.AUTOC_FLU)
	r.a.rd(reg.LINKS)
	if r.a.rd(reg.LINKS)&reg.LINKS_UP == 0 {
		t.Error("no link")
	}
}
