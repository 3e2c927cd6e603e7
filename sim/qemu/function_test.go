package qemu

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"bare.wire/ixgbe/reg"
	"bare.wire/sim/qemu/qemutest"
)

func TestBARsSayTheirSizes(t *testing.T) {
	r := newRig(t)
	sizes, err := r.proxy.Probe(uint32(bar0))
	require.NoError(t, err)
	require.Equal(t, [7]uint32{
		0xFFFE0004, 0xFFFFFFFF, // 128 KiB of registers, 64-bit
		0xFFFFFFE1,             // 32 I/O ports
		0,                      // none
		0xFFFFC004, 0xFFFFFFFF, // 16 KiB of MSI-X, 64-bit
		0, // QEMU takes the CardBus pointer for a seventh
	}, sizes)
}

func TestConfigurationSpaceIsReadInAnySize(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		off  uint32
		size int
		want uint32
	}{
		{0, 4, 0x10FB8086}, {0, 2, 0x8086}, {2, 2, 0x10FB}, {0, 1, 0x86}, {3, 1, 0x10},
		{1, 2, 0xFB80}, // not aligned
		{0x100, 4, 0xFFFFFFFF}, {0xFE, 4, 0xFFFFFFFF}, {0xFFF, 1, 0xFF},
	} {
		got, err := r.proxy.ReadConfig(c.off, c.size)
		require.NoError(t, err)
		require.Equalf(t, c.want, got, "%d bytes at %#x", c.size, c.off)
	}
	require.NoError(t, r.proxy.WriteConfig(0x3C, 1, 11))
	require.NoError(t, r.proxy.WriteConfig(0x3B, 2, 0x0C00)) // not aligned: the byte at 0x3C
	v, err := r.proxy.ReadConfig(0x3C, 1)
	require.NoError(t, err)
	require.Equal(t, uint32(12), v)
	require.NoError(t, r.proxy.WriteConfig(0x104, 4, 1)) // nothing there, and no harm
}

func TestRegistersAreWords(t *testing.T) {
	r := newRig(t)
	r.write(t, ral, 0x44332211)
	require.Equal(t, uint64(0x44332211), r.read(t, ral, 4))
	require.Equal(t, uint64(0x2211), r.read(t, ral, 2))
	require.Equal(t, uint64(0x4433), r.read(t, ral+2, 2))
	require.Equal(t, uint64(0x33), r.read(t, ral+2, 1))
	require.NoError(t, r.proxy.Write(bar0+ral, 8, true, 0x80006655_AABBCCDD))
	require.Equal(t, uint64(0x80006655_AABBCCDD), r.read(t, ral, 8), "two words, the lower first")
	require.Zero(t, r.f.Counts().Odd)
	// What no driver for the card does: counted, and without effect.
	require.NoError(t, r.proxy.Write(bar0+ral, 2, true, 0))
	require.NoError(t, r.proxy.Write(bar0+ral+2, 4, true, 0))
	require.Equal(t, uint64(0xFFFFFFFF), r.read(t, ral+2, 4))
	require.Equal(t, uint64(0xAABBCCDD), r.read(t, ral, 4))
	require.Equal(t, uint64(0xFFFFFFFF), r.read(t, 0x30000, 4), "behind the BARs")
	require.Equal(t, ^uint64(0), r.read(t, 0x30000, 8))
	require.Equal(t, uint64(0xFF), r.read(t, 0x30000, 1))
	require.Equal(t, uint64(6), r.f.Counts().Odd)
}

func TestRegistersAreReachedThroughPorts(t *testing.T) {
	r := newRig(t)
	r.write(t, ral, 0x44332211)
	require.NoError(t, r.proxy.Write(0xC000, 4, false, uint64(ral)))
	v, err := r.proxy.Read(0xC004, 4, false)
	require.NoError(t, err)
	require.Equal(t, uint64(0x44332211), v)
	require.NoError(t, r.proxy.Write(0xC004, 4, false, 5))
	require.Equal(t, uint64(5), r.read(t, ral, 4))
	v, err = r.proxy.Read(0xC000, 4, false)
	require.NoError(t, err)
	require.Equal(t, uint64(ral), v)
	v, err = r.proxy.Read(0xC000, 4, true) // memory, not ports
	require.NoError(t, err)
	require.Equal(t, uint64(0xFFFFFFFF), v)
}

const lsc = uint32(reg.EICR_LSC)

// ral is the offset of a register that keeps what is written: RAL(3).
const ral = 0x5418

func TestThePinRisesAndHasFallenBeforeTheAccessThatClearsItIsAnswered(t *testing.T) {
	r := newRig(t)
	r.write(t, reg.EIMS, lsc)
	r.write(t, reg.EICS, lsc)
	require.Equal(t, []string{"set_irq_in ioapic unnamed-gpio-in 20 1"}, r.waitIRQ(t, 1))
	status, err := r.proxy.ReadConfig(6, 2)
	require.NoError(t, err)
	require.NotZero(t, status&8, "interrupt status")
	require.NotZero(t, r.read(t, reg.EICR, 4)&uint64(lsc))
	require.Equal(t, []string{"set_irq_in ioapic unnamed-gpio-in 20 1", "set_irq_in ioapic unnamed-gpio-in 20 0"}, r.test.Interrupts())
}

func TestThePinFollowsTheCommandRegister(t *testing.T) {
	r := newRig(t)
	r.write(t, reg.EIMS, lsc)
	r.write(t, reg.EICS, lsc)
	r.waitIRQ(t, 1)
	require.NoError(t, r.proxy.WriteConfig(4, 2, 3|1<<10))
	require.Len(t, r.test.Interrupts(), 2, "INTx disabled")
	require.NoError(t, r.proxy.WriteConfig(4, 2, 3))
	r.waitIRQ(t, 3)
	r.write(t, reg.EIMC, lsc)
	require.Equal(t, "set_irq_in ioapic unnamed-gpio-in 20 0", r.test.Interrupts()[3])
}

func TestAResetOfTheMachineDoesNotWaitForIt(t *testing.T) {
	r := newRig(t)
	r.write(t, reg.EIMS, lsc)
	r.write(t, reg.EICS, lsc)
	r.waitIRQ(t, 1)
	r.write(t, ral, 1)
	goOn := r.test.Stall() // QEMU's main loop is in the reset
	defer goOn()
	require.NoError(t, r.proxy.Reset())
	goOn()
	require.Equal(t, "set_irq_in ioapic unnamed-gpio-in 20 0", r.waitIRQ(t, 2)[1])
	v, err := r.proxy.ReadConfig(0x10, 4)
	require.NoError(t, err)
	require.Equal(t, uint32(4), v, "configuration space is reset, too")
	require.Equal(t, uint64(0xFFFFFFFF), r.read(t, ral, 4), "nothing answers there any more")
	_, err = r.proxy.Probe(uint32(bar0))
	require.NoError(t, err)
	require.Zero(t, r.read(t, ral, 4))
}

func TestMSIGoesToItsAddressUnlessItIsMasked(t *testing.T) {
	r := newRig(t)
	cfg := func(off uint32, size int, v uint32) {
		t.Helper()
		require.NoError(t, r.proxy.WriteConfig(off, size, v))
	}
	cfg(0x54, 4, 0xFEE01000)
	cfg(0x58, 4, 0)
	cfg(0x5C, 2, 0x4041)
	cfg(0x52, 2, 1)
	r.write(t, reg.EIMS, lsc)
	r.write(t, reg.EICS, lsc)
	require.Equal(t, []string{"writel 0xfee01000 0x4041"}, r.waitIRQ(t, 1))
	r.read(t, reg.EICR, 4)
	cfg(0x60, 4, 1)
	r.write(t, reg.EICS, lsc)
	v, err := r.proxy.ReadConfig(0x64, 4)
	require.NoError(t, err)
	require.Equal(t, uint32(1), v, "pending")
	require.Len(t, r.test.Interrupts(), 1)
	cfg(0x60, 4, 0)
	r.waitIRQ(t, 2)
	v, err = r.proxy.ReadConfig(0x64, 4)
	require.NoError(t, err)
	require.Zero(t, v)
}

func TestMSIXGoesByItsTable(t *testing.T) {
	r := newRig(t)
	table := func(vector, word int, v uint32) {
		t.Helper()
		require.NoError(t, r.proxy.Write(bar4+uint64(16*vector+4*word), 4, true, uint64(v)))
	}
	v, err := r.proxy.Read(bar4+16*3+12, 4, true)
	require.NoError(t, err)
	require.Equal(t, uint64(1), v, "vectors are masked at first")
	table(3, 0, 0xFEE02003)
	table(3, 2, 0x31)
	require.NoError(t, r.proxy.WriteConfig(0x72, 2, 1<<15))
	r.write(t, reg.GPIE, uint32(reg.GPIE_MSIX_MODE))
	r.write(t, reg.IVAR_MISC, 0x80<<8|3<<8)
	r.write(t, reg.EIMS, lsc)
	r.write(t, reg.EICS, lsc)
	v, err = r.proxy.Read(bar4+0x2000, 8, true)
	require.NoError(t, err)
	require.Equal(t, uint64(1<<3), v, "pending")
	require.Empty(t, r.test.Interrupts())
	table(3, 3, 0)
	require.Equal(t, []string{"writel 0xfee02000 0x31"}, r.waitIRQ(t, 1))
	v, err = r.proxy.Read(bar4+0x2000, 4, true)
	require.NoError(t, err)
	require.Zero(t, v)
	require.NoError(t, r.proxy.Write(bar4+0x2000, 4, true, 0xFFFFFFFF)) // read-only
	require.NoError(t, r.proxy.Write(bar4+0x3000, 4, true, 1))          // nothing there
	// A reset of the function masks them again.
	require.NoError(t, r.proxy.WriteConfig(0xA8, 2, 1<<15))
	_, err = r.proxy.Probe(uint32(bar0))
	require.NoError(t, err)
	v, err = r.proxy.Read(bar4+16*3, 8, true)
	require.NoError(t, err)
	require.Zero(t, v)
	v, err = r.proxy.Read(bar4+16*3+12, 4, true)
	require.NoError(t, err)
	require.Equal(t, uint64(1), v)
}

func TestTheIOMMUIsLookedAtBeforeTheCardGetsTheBus(t *testing.T) {
	r := newRig(t)
	require.False(t, r.m.unit.now().on)
	r.test.SetRegister(vtdGSTS, gstsTES)
	r.test.SetRegister(vtdRTADDR, 0x1000)
	require.NoError(t, r.proxy.WriteConfig(4, 2, 3))
	require.False(t, r.m.unit.now().on, "not bus master yet")
	require.NoError(t, r.proxy.WriteConfig(4, 2, 7))
	require.Equal(t, vtdState{on: true, root: 0x1000}, *r.m.unit.now())
	_, err := r.f.Memory().Bytes(0x2000, 16)
	require.ErrorContains(t, err, "no root entry for bus 0")
}

func TestMemoryThatCannotBeMappedIsLeftOut(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.proxy.Memory(
		qemutest.Section{FD: r.ramFD, GPA: 1 << 20, Size: 1 << 20},
		qemutest.Section{FD: r.ramFD, GPA: 8 << 20, Size: ramSize, Off: 4096},
	))
	require.NotZero(t, r.read(t, reg.STATUS, 4), "it goes on")
	_, err := r.f.Memory().Bytes(1<<20, 16)
	require.NoError(t, err)
	_, err = r.f.Memory().Bytes(8<<20, 16)
	require.ErrorContains(t, err, "no RAM there")
	_, err = r.f.Memory().Bytes(0, 16)
	require.ErrorContains(t, err, "no RAM there")
}

func TestAnAccessDoesNotWaitForEverForTheIOMMU(t *testing.T) {
	r := newRig(t)
	goOn := r.test.Stall() // QEMU's main loop stops the guest, and waits for this access
	require.NoError(t, r.proxy.WriteConfig(4, 2, 7))
	goOn()
}

func TestACardThatIsUnpluggedLetsGoOfTheBusAndOfItsPin(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.proxy.WriteConfig(4, 2, 7))
	r.write(t, reg.EIMS, lsc)
	r.write(t, reg.EICS, lsc)
	r.waitIRQ(t, 1)
	require.NoError(t, r.proxy.Close())
	require.Equal(t, "set_irq_in ioapic unnamed-gpio-in 20 0", r.waitIRQ(t, 2)[1])
	v, err := r.card.ReadConfig(4, 2)
	require.NoError(t, err)
	require.Zero(t, v, "not bus master")
	r.card.Write32(reg.EIMC, lsc)
	r.card.Write32(reg.EIMS, lsc)
	require.Len(t, r.test.Interrupts(), 2)
}

func TestACardMayInterruptDuringAnAccessToItsConfiguration(t *testing.T) {
	// What is due is done at the next access, whichever that is, and the interrupt that comes of it is carried by the goroutine
	// that made the access.
	r := newRig(t, func(f *Function, c Card) Card { return &eagerCard{c, f} })
	require.NoError(t, r.proxy.WriteConfig(4, 2, 3))
	require.NotZero(t, r.f.Counts().Interrupts)
}

// eagerCard interrupts whenever its configuration space is looked at.
type eagerCard struct {
	Card
	f *Function
}

func (c *eagerCard) ReadConfig(off, size int) (uint32, error) {
	if c.f.card != nil { // attached
		c.f.interrupt(0)
	}
	return c.Card.ReadConfig(off, size)
}

// fakeCard has a configuration space, and nothing else.
type fakeCard struct {
	Card
	cfg [256]byte
}

func (c *fakeCard) Name() string { return "fake" }

func (c *fakeCard) ReadConfig(off, size int) (uint32, error) {
	if off < 0 || off+size > len(c.cfg) {
		return 0, errors.New("outside")
	}
	v := uint32(0)
	for i := range size {
		v |= uint32(c.cfg[off+i]) << (8 * i)
	}
	return v, nil
}

// FuzzCapabilities walks lists that no card has.
func FuzzCapabilities(f *testing.F) {
	good := make([]byte, 256)
	good[cfgStatus], good[cfgCapPointer], good[0x40], good[0x41], good[0x50] = statusCaps, 0x40, capMSI, 0x50, capMSIX
	loop := make([]byte, 256)
	loop[cfgStatus], loop[cfgCapPointer], loop[0x41] = statusCaps, 0x40, 0x40
	f.Add(good)
	f.Add(loop)
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &fakeCard{}
		copy(c.cfg[:], b)
		caps, err := findCapabilities(c)
		for _, p := range []int{caps.msi, caps.msix, caps.pcie} {
			if p != 0 && (p < 0x40 || p > 0xFC) && err == nil {
				t.Fatalf("a capability at %#x", p)
			}
		}
	})
}

func TestACapabilityListThatGoesRoundIsRefused(t *testing.T) {
	c := &fakeCard{}
	c.cfg[cfgStatus], c.cfg[cfgCapPointer], c.cfg[0x41] = statusCaps, 0x40, 0x40
	_, err := findCapabilities(c)
	require.ErrorContains(t, err, "capability list")
	c.cfg[0x41] = 0x20
	_, err = findCapabilities(c)
	require.ErrorContains(t, err, "leads to 0x20")
}
