package nic82599

import (
	"context"
	"slices"
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
)

// TestRegistersObeyTheirTable writes to every register that has no life of its own and reads it back.
func TestRegistersObeyTheirTable(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	d := r.a
	d.reset()
	for i := range cells[1:] {
		c := &cells[1+i]
		if c.hook != plain && c.hook != hFilter && c.hook != hRSSKey || c.index > 20 {
			continue
		}
		name := reg.Name(c.off)
		switch c.mode {
		case reg.RW:
			for _, v := range []uint32{0xFFFFFFFF, 0x5A5A5A5A, 0} {
				old := d.rd(c.off)
				d.wr(c.off, v)
				if got, want := d.rd(c.off), old&^c.keep|v&c.keep; got != want && c.clear == 0 {
					t.Errorf("%s: %08X after %08X was written over %08X, want %08X", name, got, v, old, want)
				}
				if sc := c.name.Bits(reg.SC); d.rd(c.off)&sc != 0 {
					t.Errorf("%s: bits %08X clear themselves and have not", name, sc)
				}
			}
		case reg.RO:
			old := d.rd(c.off)
			d.wr(c.off, ^old)
			if got := d.rd(c.off); got != old {
				t.Errorf("%s is read-only but went from %08X to %08X", name, old, got)
			}
		case reg.RC:
			d.card.Preset(c.off, 0x12345678)
			if got := d.rd(c.off); got != 0x12345678 {
				t.Errorf("%s reads %08X, want 12345678", name, got)
			}
			if got := d.rd(c.off); got != 0 {
				t.Errorf("%s reads %08X the second time, want 0", name, got)
			}
		case reg.RC36Lo:
			d.card.Preset(c.off, 0xF_89ABCDEF)
			if lo, again := d.rd(c.off), d.rd(c.off); lo != 0x89ABCDEF || again != lo {
				t.Errorf("%s reads %08X, then %08X: the low half clears nothing", name, lo, again)
			}
			if hi, again := d.rd(c.off+4), d.rd(c.off+4); hi != 0xF || again != 0 {
				t.Errorf("high half of %s reads %X, then %X, want F, then 0", name, hi, again)
			}
			if lo := d.rd(c.off); lo != 0 {
				t.Errorf("%s reads %08X after its high half was read, want 0", name, lo)
			}
		}
	}
}

func TestCountsBetweenTheHalvesOfAReadAreKept(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	c := r.a.card
	c.Preset(reg.GORCL, 0xF_FFFFFFFF)
	lo := r.a.rd(reg.GORCL)
	c.add36(reg.GORCL, 100) // wraps
	hi := r.a.rd(reg.GORCH)
	if lo != 0xFFFFFFFF || hi != 0xF {
		t.Errorf("read %X %08X, want F FFFFFFFF", hi, lo)
	}
	if v := c.Peek(reg.GORCL); v != 100 {
		t.Errorf("%d is left, want 100", v)
	}
}

func TestAliasesAreTheSameRegister(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	r.a.reset()
	for _, p := range [][2]uint32{{0x2100, 0x1014}, {0x213C, 0x13D4}, {0x2204, 0x104C}, {0x5408, 0xA208}, {0x5818, 0xEC80}, {0x5C00, 0xEB00}} {
		r.a.wr(p[1], 1)
		if got := r.a.rd(p[0]); got != 1 {
			t.Errorf("%05X reads %08X after 1 was written to its alias %05X", p[0], got, p[1])
		}
	}
	r.clean()
}

func TestResetTakesItsTimeAndRestoresDefaults(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	d := r.a
	d.reset()
	d.wr(reg.RAL(0), 0x11111111)
	d.wr(reg.FCTRL, 0x700)
	d.wr(reg.RXPBSIZE(0), 0x10000)
	d.wr(reg.EIMS, reg.EIMS_LSC)
	d.or(reg.CTRL, reg.CTRL_RST)
	if d.rd(reg.CTRL)&reg.CTRL_RST == 0 {
		t.Error("CTRL.RST reads clear at once")
	}
	if d.rd(reg.EEC)&reg.EEC_ARD != 0 || d.rd(reg.RDRXCTL)&reg.RDRXCTL_DMAIDONE != 0 {
		t.Error("ready at once after a reset")
	}
	d.poll(reg.CTRL, reg.CTRL_RST, 0)
	d.poll(reg.EEC, reg.EEC_ARD, reg.EEC_ARD)
	d.poll(reg.RDRXCTL, reg.RDRXCTL_DMAIDONE, reg.RDRXCTL_DMAIDONE)
	for off, want := range map[uint32]uint32{
		reg.RAL(0): 0x00000002, reg.RAH(0): 0x80000A00, reg.FCTRL: 0, reg.EIMS: 0, reg.RXPBSIZE(0): 0x80000, reg.TXPBSIZE(0): 0x28000,
	} {
		if got := d.rd(off); got != want {
			t.Errorf("%s is %08X after a reset, want %08X", reg.Name(off), got, want)
		}
	}
	r.clean()
}

func TestMasterDisableWaitsForWhatIsInFlight(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, func(c *Config) { c.Timing.WriteBack, c.Timing.Enable = 20*time.Microsecond, -1 })
	r.start()
	d := r.a
	for i := range 20 {
		d.send(0, frameTo(macB, 60, byte(i)), 0, i == 19)
	}
	step(r.clk, r.w, 1500)
	d.or(reg.CTRL, reg.CTRL_GIO_DIS)
	if d.rd(reg.STATUS)&reg.STATUS_GIO == 0 {
		t.Error("STATUS.GIO clears with write-backs outstanding")
	}
	if v, _ := d.card.ReadConfig(cfgDeviceStatus, 2); v&devStatusPending == 0 {
		t.Error("no transactions pending in device status")
	}
	d.poll(reg.STATUS, reg.STATUS_GIO, 0)
	d.card.EnableDMALog(0)
	d.send(0, frameTo(macB, 60, 1), 0, true)
	d.sleep(time.Millisecond)
	if l := d.card.DMALog(); len(l) > 0 {
		t.Errorf("DMA after master disable: %v", l)
	}
	if v, _ := d.card.ReadConfig(cfgDeviceStatus, 2); v&devStatusPending != 0 {
		t.Error("transactions pending though STATUS.GIO is clear")
	}
}

func TestBusMasterOffStopsDMAAndOnResumes(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	r.start()
	if err := r.b.card.WriteConfig(cfgCommand, 2, cmdMemory); err != nil {
		t.Fatal(err)
	}
	r.b.card.EnableDMALog(0)
	f := frameTo(macB, 60, 1)
	r.a.send(0, f, 0, true)
	r.run(time.Millisecond)
	if l := r.b.card.DMALog(); len(l) > 0 {
		t.Errorf("DMA without bus mastering: %v", l)
	}
	if err := r.b.card.WriteConfig(cfgCommand, 2, cmdMemory|cmdBusMaster); err != nil {
		t.Fatal(err)
	}
	r.b.expect(0, f)
	r.clean()
}

func TestEEPROMIsValid(t *testing.T) {
	for _, bad := range []bool{false, true} {
		r := newRig(t, 1, miniOptions{}, func(c *Config) { c.Faults.BadEEPROM = bad })
		d := r.a
		d.reset()
		read := func(a uint32) uint16 {
			d.wr(reg.EERD, a<<2|reg.EERD_START)
			d.poll(reg.EERD, reg.EERD_DONE, reg.EERD_DONE)
			return uint16(d.rd(reg.EERD) >> 16)
		}
		var total uint16
		for a := range uint32(0x40) {
			total += read(a)
		}
		for p := uint32(3); p < 0xF; p++ {
			if ptr := uint32(read(p)); ptr != 0 && ptr != 0xFFFF {
				for i := range uint32(read(ptr)) {
					total += read(ptr + 1 + i)
				}
			}
		}
		if (total == 0xBABA) == bad {
			t.Errorf("bad %v: the words add up to %04X", bad, total)
		}
		r.clean()
	}
}

func TestSemaphoreIsTakenByReading(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	d := r.a
	d.reset()
	if d.rd(reg.SWSM)&reg.SWSM_SMBI != 0 || d.rd(reg.SWSM)&reg.SWSM_SMBI == 0 {
		t.Error("SMBI does not read 0 first and 1 then")
	}
	for i := 0; d.rd(reg.SWSM)&reg.SWSM_SWESMBI == 0; i++ {
		if i > 10 {
			t.Fatal("SWESMBI never sticks")
		}
		d.or(reg.SWSM, reg.SWSM_SWESMBI)
	}
	d.or(reg.GSSR, reg.GSSR_EEP_SM|0x20)
	if got := d.rd(reg.GSSR); got != reg.GSSR_EEP_SM {
		t.Errorf("GSSR is %X, want software's bit alone", got)
	}
	stubborn := 0
	for seed := range uint64(20) {
		d := newRig(t, seed, miniOptions{}, nil).a
		d.reset()
		d.rd(reg.SWSM)
		if d.or(reg.SWSM, reg.SWSM_SWESMBI); d.rd(reg.SWSM)&reg.SWSM_SWESMBI == 0 {
			stubborn++
		}
	}
	if stubborn == 0 || stubborn == 20 {
		t.Errorf("SWESMBI did not stick at once for %d of 20 seeds, want some", stubborn)
	}
	d.wr(reg.SWSM, 0)
	if d.rd(reg.SWSM)&reg.SWSM_SMBI != 0 {
		t.Error("SMBI is still taken after it was given back")
	}
	r.clean()
}

func TestLinkComesUpOnBothSidesAndIsLatchedLow(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	r.a.reset()
	if r.a.rd(reg.LINKS)&reg.LINKS_UP != 0 && r.b.rd(reg.LINKS)&reg.LINKS_UP == 0 {
		t.Error("a link with one side")
	}
	r.b.reset()
	r.run(10 * time.Millisecond)
	for _, d := range []*mini{r.a, r.b} {
		if first, second := d.rd(reg.LINKS), d.rd(reg.LINKS); first&reg.LINKS_UP != 0 || second&reg.LINKS_UP == 0 {
			t.Errorf("LINKS %08X, then %08X, want down, then up", first, second)
		}
		if v := d.rd(reg.LINKS); v&reg.LINKS_SPEED != 3<<28 {
			t.Errorf("LINKS %08X, want 10 Gb/s", v)
		}
	}
	r.b.card.SetCable(false)
	if r.a.rd(reg.LINKS)&reg.LINKS_UP != 0 {
		t.Error("link up without a cable")
	}
	r.b.card.SetCable(true)
	r.a.rd(reg.LINKS)
	if r.a.rd(reg.LINKS)&reg.LINKS_UP == 0 {
		t.Error("link does not come back with the cable")
	}
}

func TestInterrupts(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	d := r.b
	var fired []int
	d.card.OnInterrupt(func(v int) { fired = append(fired, v) })
	r.start()
	hear := func(want ...int) {
		t.Helper()
		if !slices.Equal(fired, want) {
			t.Errorf("vectors %v, want %v", fired, want)
		}
		fired = nil
	}
	hear() // nothing is enabled
	d.rd(reg.EICR)
	d.wr(reg.GPIE, reg.GPIE_MSIX_MODE|reg.GPIE_EIAME|reg.GPIE_OCD)
	d.wr(reg.IVAR(0), 0x80|3|(0x80|4)<<8)
	d.wr(reg.IVAR_MISC, (0x80|5)<<8)
	d.wr(reg.EIAC, 0xFFFF)
	d.wr(reg.EIMS, 1<<3|1<<4|reg.EIMS_LSC)
	d.wr(reg.EICS, 1<<3)
	hear(3)
	f := frameTo(macB, 60, 1)
	r.a.send(0, f, 0, true)
	d.expect(0, f)
	hear(3)
	d.send(0, f, 0, true)
	r.run(100 * time.Microsecond)
	hear(4)
	d.wr(reg.EIMC, 1<<3)
	r.a.send(0, f, 0, true)
	d.expect(0, f)
	hear() // masked
	d.wr(reg.EIMS, 1<<3)
	hear(3) // and delivered once it is enabled
	r.a.card.SetCable(false)
	r.w.Step()
	hear(5)
	if v := d.rd(reg.EICR); v&reg.EICR_LSC == 0 {
		t.Errorf("EICR is %08X, want LSC", v)
	}
	if v := d.rd(reg.EICR); v != 0 {
		t.Errorf("EICR is %08X after it was read, want 0", v)
	}
	d.wr(reg.EIAC, 0xFFFF|reg.EIAC_LSC)
	r.a.card.SetCable(true)
	r.w.Step()
	hear(5)
	if v := d.rd(reg.EICR); v != 0 {
		t.Errorf("EICR is %08X, want 0: EIAC names LSC too", v)
	}
	d.wr(reg.EIAC, 0)
	d.wr(reg.EICS, 1<<3)
	hear(3)
	if v, w := d.rd(reg.EICR), d.rd(reg.EICR); v != 1<<3 || w != 1<<3 {
		t.Errorf("EICR is %X, then %X, want 8, 8: with OCD a read leaves the queues' causes", v, w)
	}
	d.wr(reg.EICR, 1<<3)
	if v := d.rd(reg.EICR); v != 0 {
		t.Errorf("EICR is %X after 1 was written to the cause", v)
	}
	d.wr(reg.EIAC, 0xFFFF)
	d.wr(reg.EIMS, 1<<3)
	// Throttled: one now, one when the interval is over.
	d.wr(reg.EITR(3), 0x28) // 5 times 2.048 µs
	r.run(11 * time.Microsecond)
	d.wr(reg.EICS, 1<<3)
	d.wr(reg.EICS, 1<<3)
	d.wr(reg.EICS, 1<<3)
	hear(3)
	r.run(9 * time.Microsecond)
	hear()
	r.run(3 * time.Microsecond)
	hear(3)
	d.card.OnInterrupt(nil)
	d.wr(reg.EICS, 1<<4)
	hear()
	r.clean()
}

func TestLegacyInterruptReadsAndMasks(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	d := r.a
	d.reset()
	n := 0
	d.card.OnInterrupt(func(v int) { n++ })
	d.rd(reg.EICR)
	d.wr(reg.IVAR(0), 0x80)
	d.wr(reg.EIAM, 0xFFFFFFFF)
	d.wr(reg.EIMS, 1)
	d.wr(reg.EICS, 1)
	if v := d.rd(reg.EICR); v != 1 || n != 1 {
		t.Errorf("EICR %X, %d interrupts, want 1, 1", v, n)
	}
	if v := d.rd(reg.EIMS); v != 0 {
		t.Errorf("EIMS is %X after EICR was read, want 0: EIAM", v)
	}
	// What is no cause is masked too; and a write that clears causes does the same.
	d.wr(reg.EIMS, 1)
	if v := d.rd(reg.EICR); v != 0 {
		t.Errorf("EICR %X, want 0", v)
	}
	if v := d.rd(reg.EIMS); v != 0 {
		t.Errorf("EIMS is %X after an EICR of 0 was read, want 0", v)
	}
	d.wr(reg.EIMS, 1)
	d.wr(reg.EICR, 1)
	if v := d.rd(reg.EIMS); v != 0 {
		t.Errorf("EIMS is %X after EICR was written, want 0", v)
	}
	r.clean()
}

func TestRemovedCardReadsAllOnes(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, func(c *Config) {
		if c.Name == "b" {
			c.Faults.RemoveAt = int64(100 * time.Millisecond)
		}
	})
	r.start()
	d := r.b
	d.card.EnableDMALog(0)
	d.sleep(100 * time.Millisecond)
	if v := d.rd(reg.STATUS); v != 0xFFFFFFFF {
		t.Errorf("STATUS is %08X", v)
	}
	if v, err := d.card.ReadConfig(0, 2); err != nil || v != 0xFFFF {
		t.Errorf("vendor id %X, %v", v, err)
	}
	d.wr(reg.FCTRL, 0)
	r.a.send(0, frameTo(macB, 60, 1), 0, true)
	r.run(time.Millisecond)
	if l := d.card.DMALog(); len(l) > 0 {
		t.Errorf("a removed card does DMA: %v", l)
	}
	if err := d.card.Reset(context.Background()); err == nil {
		t.Error("a removed card can be reset")
	}
	r.a.rd(reg.LINKS)
	if r.a.rd(reg.LINKS)&reg.LINKS_UP != 0 {
		t.Error("the other side still has a link")
	}
	r.clean()
}

func TestFaults(t *testing.T) {
	never := func(f Faults, off, mask, want uint32, prepare func(d *mini)) func(*testing.T) {
		return func(t *testing.T) {
			r := newRig(t, 1, miniOptions{}, nil)
			r.start()
			r.a.card.SetFaults(f)
			prepare(r.a)
			r.run(2 * time.Millisecond)
			for range 100 {
				r.a.sleep(time.Millisecond)
				if r.a.rd(off)&mask == want {
					t.Fatalf("%s reached %08X", reg.Name(off), want)
				}
			}
		}
	}
	rst := func(d *mini) { d.or(reg.CTRL, reg.CTRL_RST) }
	t.Run("StickyGIO", never(Faults{StickyGIO: true}, reg.STATUS, reg.STATUS_GIO, 0, func(d *mini) { d.or(reg.CTRL, reg.CTRL_GIO_DIS) }))
	t.Run("StuckReset", never(Faults{StuckReset: true}, reg.CTRL, reg.CTRL_RST, 0, rst))
	t.Run("ARDNever", never(Faults{ARDNever: true}, reg.EEC, reg.EEC_ARD, reg.EEC_ARD, rst))
	t.Run("DMAIDoneNever", never(Faults{DMAIDoneNever: true}, reg.RDRXCTL, reg.RDRXCTL_DMAIDONE, reg.RDRXCTL_DMAIDONE, rst))
	t.Run("LinkNever", never(Faults{LinkNever: true}, reg.LINKS, reg.LINKS_UP, reg.LINKS_UP, rst))
	t.Run("SMBIAlways", never(Faults{SMBIAlways: true}, reg.SWSM, reg.SWSM_SMBI, 0, func(*mini) {}))
	t.Run("FirmwareHeld", never(Faults{FirmwareHeld: 0x20}, reg.GSSR, 0x20, 0, func(*mini) {}))
	t.Run("SECRXNever", never(Faults{SECRXNever: true}, reg.SECRXSTAT, reg.SECRXSTAT_SECRX_RDY, reg.SECRXSTAT_SECRX_RDY, func(d *mini) { d.wr(reg.SECRXCTRL, reg.SECRXCTRL_RX_DIS) }))
	t.Run("DisableNever", never(Faults{DisableNever: 1}, reg.RXDCTL(0), reg.RXDCTL_ENABLE, 0, func(d *mini) { d.wr(reg.RXDCTL(0), 0) }))
	t.Run("EnableNever", never(Faults{EnableNever: 1}, reg.TXDCTL(0), reg.TXDCTL_ENABLE, reg.TXDCTL_ENABLE, func(d *mini) {
		d.stopTx()
		d.wr(reg.TXDCTL(0), reg.TXDCTL_ENABLE)
	}))
	t.Run("SMBIHeld", func(t *testing.T) {
		r := newRig(t, 1, miniOptions{}, func(c *Config) { c.Faults.SMBIHeld = true })
		if r.a.rd(reg.SWSM)&reg.SWSM_SMBI == 0 {
			t.Error("SMBI is free")
		}
	})
	for name, f := range map[string]Faults{"NoWriteBack": {NoWriteBack: true}, "DMAStops": {DMAStops: 1}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, miniOptions{}, nil)
			r.start()
			r.a.card.SetFaults(f)
			r.a.send(0, frameTo(macB, 60, 1), 0, true)
			r.run(10 * time.Millisecond)
			if r.a.reclaim(0); r.a.tx[0].busy != 1 {
				t.Error("the descriptor came back")
			}
		})
	}
	t.Run("RxErrors", func(t *testing.T) {
		r := newRig(t, 1, miniOptions{}, func(c *Config) { c.Faults.RxErrors = 3 })
		r.start()
		bad := 0
		for i := range 9 {
			f := frameTo(macB, 60, byte(i))
			r.a.send(0, f, 0, true)
			if _, w1 := r.b.expect(0, f); w1&reg.RXD_RXE != 0 {
				bad++
			}
		}
		if bad != 3 {
			t.Errorf("%d of 9 frames with an error, want 3", bad)
		}
	})
}

func TestFunctionLevelResetStopsDMAAndForgetsConfiguration(t *testing.T) {
	for _, how := range []string{"Reset", "device control"} {
		r := newRig(t, 1, miniOptions{}, nil)
		r.start()
		r.a.send(0, frameTo(macB, 60, 1), 0, true)
		if how == "Reset" {
			if err := r.a.card.Reset(context.Background()); err != nil {
				t.Fatal(err)
			}
		} else if err := r.a.card.WriteConfig(cfgDeviceCtl, 2, devCtlFLR); err != nil {
			t.Fatal(err)
		}
		r.a.card.EnableDMALog(0)
		r.run(time.Millisecond)
		if l := r.a.card.DMALog(); len(l) > 0 {
			t.Errorf("%s: DMA afterwards: %v", how, l)
		}
		if v, _ := r.a.card.ReadConfig(cfgCommand, 2); v != 0 {
			t.Errorf("%s: command register is %04X, want 0", how, v)
		}
	}
}

func TestCardStartsAgainAfterAReset(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	for round := range 3 {
		r.start()
		for i := range 70 + round {
			f := frameTo(macB, 60+i, byte(i))
			r.a.send(0, f, 0, true)
			r.b.expect(0, f)
		}
		r.a.rx, r.a.tx, r.b.rx, r.b.tx = nil, nil, nil, nil // the next start has other rings
	}
	r.clean()
}

func TestResetForgetsAHalfReadCounter(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	r.a.reset()
	r.a.card.Preset(reg.GORCL, 0x5_00000000)
	r.a.rd(reg.GORCL)
	r.a.reset()
	if hi := r.a.rd(reg.GORCH); hi != 0 || !r.a.has(CounterOrder) {
		t.Errorf("high half %X after a reset, want 0, and a misuse: %v", hi, r.a.card.Misuse())
	}
}

func TestVectorMasksItselfWhenAsked(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	d := r.a
	d.reset()
	d.wr(reg.GPIE, reg.GPIE_MSIX_MODE|reg.GPIE_EIAME)
	d.wr(reg.IVAR(0), 0x80|2)
	d.wr(reg.IVAR(9), 0x80|40)
	d.wr(reg.EIAM, 1<<2)
	d.wr(reg.EIAM_EX(1), 1<<8)
	d.wr(reg.EIMS, 1<<2)
	d.wr(reg.EIMS_EX(1), 1<<8)
	d.wr(reg.EICS, 1<<2)
	d.wr(reg.EICS_EX(1), 1<<8)
	if a, b := d.rd(reg.EIMS), d.rd(reg.EIMS_EX(1)); a != 0 || b != 0 {
		t.Errorf("EIMS %X, EIMS_EX(1) %X after both vectors fired, want 0, 0", a, b)
	}
	r.clean()
}

// TestPollingWithoutAClockEndsToo has a driver that spins on a register while no time passes.
func TestPollingWithoutAClockEndsToo(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	r.start()
	d := r.a
	spin := func(off, mask, want uint32) {
		t.Helper()
		for n := range 20 {
			if d.rd(off)&mask == want {
				if n == 0 {
					t.Errorf("%s shows at once", reg.Name(off))
				}
				return
			}
		}
		t.Errorf("%s never shows", reg.Name(off))
	}
	d.wr(reg.RXDCTL(0), 0)
	spin(reg.RXDCTL(0), reg.RXDCTL_ENABLE, 0)
	d.wr(reg.TXDCTL(0), 0)
	spin(reg.TXDCTL(0), reg.TXDCTL_ENABLE, 0)
	d.wr(reg.EERD, reg.EERD_START)
	spin(reg.EERD, reg.EERD_DONE, reg.EERD_DONE)
	d.or(reg.CTRL, reg.CTRL_GIO_DIS)
	spin(reg.STATUS, reg.STATUS_GIO, 0)
	d.or(reg.CTRL, reg.CTRL_RST)
	spin(reg.CTRL, reg.CTRL_RST, 0)
	r.clean()
}
