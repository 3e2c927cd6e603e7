package nic82599

import (
	"testing"

	"bare.wire/ixgbe/reg"
)

// twoWire drives the two-wire bus through I2CCTL as a driver does.
type twoWire struct {
	*mini
	v uint32
}

func (b *twoWire) set(clk, data bool) {
	b.v = 0
	if clk {
		b.v |= reg.I2CCTL_CLK_OUT
	}
	if data {
		b.v |= reg.I2CCTL_DATA_OUT
	}
	b.wr(reg.I2CCTL, b.v)
}

func (b *twoWire) data() bool { return b.rd(reg.I2CCTL)&reg.I2CCTL_DATA_IN != 0 }

func (b *twoWire) start() {
	b.set(b.v&reg.I2CCTL_CLK_OUT != 0, true)
	b.set(true, true)
	b.set(true, false)
	b.set(false, false)
}

func (b *twoWire) stop() {
	b.set(false, false)
	b.set(true, false)
	b.set(true, true)
}

// bit clocks one bit and returns what the wire showed.
func (b *twoWire) bit(out bool) bool {
	b.set(false, out)
	b.set(true, out)
	in := b.data()
	b.set(false, out)
	return in
}

// put sends a byte; it returns whether that was acknowledged.
func (b *twoWire) put(x byte) bool {
	for i := 7; i >= 0; i-- {
		b.bit(x>>i&1 != 0)
	}
	return !b.bit(true)
}

func (b *twoWire) get(ack bool) (x byte) {
	for range 8 {
		x <<= 1
		if b.bit(true) {
			x |= 1
		}
	}
	b.bit(!ack)
	return x
}

// read fetches n bytes of a page from off on; false: nobody answers.
func (b *twoWire) read(addr, off byte, n int) ([]byte, bool) {
	b.start()
	if !b.put(addr) || !b.put(off) {
		b.stop()
		return nil, false
	}
	b.start()
	if !b.put(addr | 1) {
		b.stop()
		return nil, false
	}
	out := make([]byte, n)
	for i := range out {
		out[i] = b.get(i < n-1)
	}
	b.stop()
	return out, true
}

func newTwoWire(t *testing.T) *twoWire {
	t.Helper()
	r := newRig(t, 3, miniOptions{}, nil)
	r.start()
	r.clean()
	r.a.takeGSSR(reg.GSSR_PHY0_SM)
	return &twoWire{mini: r.a}
}

// takeGSSR takes a resource in the order of the datasheet (§10.5.4).
func (d *mini) takeGSSR(bits uint32) {
	for d.rd(reg.SWSM)&reg.SWSM_SMBI != 0 {
		d.wr(reg.SWSM, 0)
	}
	for range 100 {
		d.or(reg.SWSM, reg.SWSM_SWESMBI)
		if d.rd(reg.SWSM)&reg.SWSM_SWESMBI != 0 {
			break
		}
	}
	d.or(reg.GSSR, bits)
	d.wr(reg.SWSM, 0)
}

func TestModuleTellsWhatItIs(t *testing.T) {
	b := newTwoWire(t)
	page, ok := b.read(reg.SFP_I2C_ADDR, 0, 256)
	if !ok {
		t.Fatal("no answer at A0")
	}
	if page[reg.SFP_ID] != reg.SFP_ID_SFP || page[reg.SFP_10G] != reg.SFP_10G_SR {
		t.Errorf("identified as % x", page[:16])
	}
	if oui := uint32(page[0x25])<<16 | uint32(page[0x26])<<8 | uint32(page[0x27]); oui != reg.SFP_OUI_INTEL {
		t.Errorf("maker %06X", oui)
	}
	// The check codes of SFF-8472 §8.
	if page[63] != sumBytes(page[:63]) || page[95] != sumBytes(page[64:95]) {
		t.Errorf("check codes %02X %02X", page[63], page[95])
	}
	one, ok := b.read(reg.SFP_I2C_ADDR, 20, 1)
	if !ok || one[0] != 'B' {
		t.Errorf("byte 20 is %q", one)
	}
	if diag, ok := b.read(reg.SFP_I2C_DIAG_ADDR, 96, 2); !ok || diag[0] != 35 {
		t.Errorf("temperature % x, %v", diag, ok)
	}
	for _, m := range b.card.Misuse() {
		t.Error(m)
	}
}

func TestNobodyElseAnswersOnTheTwoWireBus(t *testing.T) {
	b := newTwoWire(t)
	for _, addr := range []byte{0x00, 0x50, 0xA4, 0xAE, 0xF8} {
		if _, ok := b.read(addr, 0, 1); ok {
			t.Errorf("somebody answers at %02X", addr)
		}
	}
	if _, ok := b.read(reg.SFP_I2C_ADDR, 0, 1); !ok {
		t.Error("the module does not answer after that")
	}
	// Nothing that is written stays.
	b.start()
	for _, x := range []byte{reg.SFP_I2C_ADDR, 0, 0xEE, 0xEE} {
		b.put(x)
	}
	b.stop()
	if page, ok := b.read(reg.SFP_I2C_ADDR, 0, 2); !ok || page[0] != reg.SFP_ID_SFP {
		t.Errorf("% x after a write", page)
	}
}

func TestModulePulledOut(t *testing.T) {
	b := newTwoWire(t)
	b.wr(reg.ESDP, 0)
	if b.rd(reg.ESDP)&pinModule == 0 {
		t.Error("ESDP does not show the module")
	}
	b.wr(reg.GPIE, b.rd(reg.GPIE)|reg.GPIE_SDP2)
	b.rd(reg.EICR)
	b.card.SetModule(false)
	if b.rd(reg.ESDP)&pinModule != 0 {
		t.Error("ESDP shows a module that is gone")
	}
	if v := b.rd(reg.EICR); v&reg.EICR_GPI_SDP2 == 0 || v&reg.EICR_LSC == 0 {
		t.Errorf("EICR %08X, want SDP2 and link change", v)
	}
	if _, ok := b.read(reg.SFP_I2C_ADDR, 0, 1); ok {
		t.Error("a module that is gone answers")
	}
	if b.rd(reg.LINKS)&reg.LINKS_UP != 0 {
		t.Error("link without a module")
	}
	b.card.SetModule(true)
	if _, ok := b.read(reg.SFP_I2C_ADDR, 0, 1); !ok {
		t.Error("no answer after the module is back")
	}
	b.wr(reg.ESDP, pinModule<<reg.ESDP_DIR_Shift)
	if b.rd(reg.ESDP)&pinModule != 0 {
		t.Error("a pin that is an output shows the module")
	}
}

func TestTwoWireBusWantsItsSemaphore(t *testing.T) {
	r := newRig(t, 3, miniOptions{}, nil)
	r.start()
	r.clean()
	r.a.wr(reg.I2CCTL, 0)
	if !r.a.has(SemaphoreMissing) {
		t.Error("the bus was driven without a semaphore, unnoticed")
	}
}

// TestReadingEICSClearsNothing is the way round an erratum that Linux's driver takes: read the causes there, clear them by
// writing EICR.
func TestReadingEICSClearsNothing(t *testing.T) {
	r := newRig(t, 3, miniOptions{}, nil)
	r.start()
	d := r.a
	d.rd(reg.EICR)
	d.wr(reg.EICS, reg.EICS_LSC|5)
	for range 2 {
		if v := d.rd(reg.EICS); v != reg.EICR_LSC|5 {
			t.Fatalf("EICS reads %08X", v)
		}
	}
	d.wr(reg.EICR, reg.EICR_LSC)
	if v := d.rd(reg.EICR); v != 5 {
		t.Errorf("EICR %08X after LSC was written to it, want 5", v)
	}
}

// TestHabitsOfDriversAreNoPromise compares a card as Linux's driver wants it with a bare one.
func TestHabitsOfDriversAreNoPromise(t *testing.T) {
	for _, c := range []struct {
		bare bool
		want uint32
	}{{false, reg.HLREG0_TXCRCEN | reg.HLREG0_RXCRCSTRP | reg.HLREG0_TXPADEN | reg.HLREG0_RXLNGTHERREN}, {true, 0}} {
		r := newRig(t, 3, miniOptions{}, func(cfg *Config) { cfg.BareReset = c.bare })
		if v := r.a.rd(reg.HLREG0); v != c.want {
			t.Errorf("bare %v: HLREG0 %08X, want %08X", c.bare, v, c.want)
		}
	}
}

// TestTailOfAQueueWithoutARingKeepsWhatIsWritten is what Linux's self-test does to RDT.
func TestTailOfAQueueWithoutARingKeepsWhatIsWritten(t *testing.T) {
	r := newRig(t, 3, miniOptions{}, nil)
	r.start()
	d := r.a
	d.wr(reg.RXDCTL(5), reg.RXDCTL_ENABLE)
	for _, v := range []uint32{0x5A5A5A5A, 0xA5A5A5A5, 0xFFFFFFFF, 0} {
		d.wr(reg.RDT(5), v)
		if got := d.rd(reg.RDT(5)); got != v&0xFFFF {
			t.Errorf("RDT reads %08X after %08X", got, v)
		}
	}
}
