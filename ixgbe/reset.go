package ixgbe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"bare.wire/ixgbe/reg"
	"bare.wire/nic"
	"bare.wire/pci"
)

const (
	// transactionsPending is bit 5 of the PCIe device status (§9.3.10.6).
	transactionsPending = 1 << 5
	// eepromReach is how many words EERD.ADDR can name.
	eepromReach = 1 << 14
)

// reset brings the card to its defaults (§4.6.3): interrupts off, no request of its own under way, software reset, and
// then everything that the card does by itself afterwards.
func (p *Port) reset(ctx context.Context) error {
	p.maskInterrupts()
	drained, err := p.disableMaster(ctx)
	if err != nil {
		return err
	}
	times := 1
	if !drained {
		// Requests may still be pending: reset twice (§5.2.5.3.2, specification update clarification 9).
		p.flushTransmit(ctx)
		times = 2
	}
	for range times {
		if err := p.softwareReset(ctx); err != nil {
			return err
		}
	}
	p.maskInterrupts()
	if err := p.poll(ctx, "EEPROM auto-read (EEC.ARD)", reg.EEC, reg.EEC_ARD, reg.EEC_ARD, time.Millisecond, 500*time.Millisecond,
		"the EEPROM may be blank or broken"); err != nil {
		return err
	}
	if err := p.poll(ctx, "DMA initialisation (RDRXCTL.DMAIDONE)", reg.RDRXCTL, reg.RDRXCTL_DMAIDONE, reg.RDRXCTL_DMAIDONE,
		time.Millisecond, 500*time.Millisecond, "power-cycle the card"); err != nil {
		return err
	}
	p.autoc = p.read(reg.AUTOC)
	return nil
}

// maskInterrupts switches every interrupt off and drops stale causes (§4.6.3.1). Writing 0 to EIMS would do nothing.
func (p *Port) maskInterrupts() {
	p.write(reg.EIMC, allOnes&^(1<<31))
	for i := range reg.EIMC_EX_Count {
		p.write(reg.EIMC_EX(i), allOnes)
	}
	p.read(reg.EICR)
}

// disableMaster asks the card to issue no more requests and waits until none is pending, 80 ms at most (§5.2.5.3.2). It
// returns false when they do not end: then the reset has to be done twice.
func (p *Port) disableMaster(ctx context.Context) (bool, error) {
	p.set(reg.CTRL, reg.CTRL_GIO_DIS)
	err := p.poll(ctx, "end of bus requests (STATUS.GIO)", reg.STATUS, reg.STATUS_GIO, 0, 100*time.Microsecond, 80*time.Millisecond, "")
	if err == nil {
		return true, nil
	}
	if p.Err() != nil || ctx.Err() != nil {
		return false, err
	}
	status, cfgErr := p.fn.ReadConfig(reg.PCI_DEVICE_STATUS, 2)
	p.log.Warn("bus requests do not end, resetting twice", "err", err, "pending", cfgErr != nil || status&transactionsPending != 0)
	return false, nil
}

// flushTransmit empties the transmit path of a card that cannot send (link down, paused), so that its requests end:
// loopback on, receive off, buffers cleared for 20 µs (specification update, clarification 9).
func (p *Port) flushTransmit(ctx context.Context) {
	hlreg, ext := p.read(reg.HLREG0), p.read(reg.GCR_EXT)
	p.write(reg.HLREG0, hlreg|reg.HLREG0_LPBK)
	p.unset(reg.RXCTRL, reg.RXCTRL_RXEN)
	p.write(reg.GCR_EXT, ext|reg.GCR_EXT_BUFFERS_CLEAR)
	p.flush()
	_ = p.clk.Sleep(ctx, 20*time.Microsecond)
	p.write(reg.GCR_EXT, ext)
	p.write(reg.HLREG0, hlreg)
}

// softwareReset sets CTRL.RST, and CTRL.LNK_RST with it, waits until the card has cleared both, and then as long as the
// datasheet asks before any further access (§4.6.3.2: 10 ms).
func (p *Port) softwareReset(ctx context.Context) error {
	p.set(reg.CTRL, reg.CTRL_RST|reg.CTRL_LNK_RST)
	p.flush()
	if err := p.poll(ctx, "end of reset (CTRL.RST)", reg.CTRL, reg.CTRL_RST|reg.CTRL_LNK_RST, 0, time.Millisecond, 100*time.Millisecond,
		"power-cycle the card"); err != nil {
		if ctx.Err() == nil && p.Err() == nil {
			// No register may be touched in a reset, and this one does not end.
			p.fail(fmt.Errorf("%w: %w", err, nic.ErrGone))
		}
		return err
	}
	return p.sleep(ctx, 10*time.Millisecond)
}

// readMAC returns the address that the card has read from its EEPROM (§4.6.3.3, RAL/RAH 0).
func (p *Port) readMAC() (mac [6]byte, err error) {
	lo, hi := p.read(reg.RAL(0)), p.read(reg.RAH(0))
	for i := range 4 {
		mac[i] = byte(lo >> (8 * i))
	}
	mac[4], mac[5] = byte(hi), byte(hi>>8)
	if mac == ([6]byte{}) || mac[0]&1 != 0 || hi&reg.RAH_AV == 0 {
		return mac, fmt.Errorf("%s: the EEPROM's MAC address %x is not one (RAH %#08x): the card's EEPROM is blank or broken", p.fn.Name(), mac, hi)
	}
	return mac, nil
}

// acquire takes the semaphores for the resources in want (GSSR bits), for software against firmware and against other
// drivers (§10.5.4). release gives them back.
func (p *Port) acquire(ctx context.Context, want uint32) (release func(), err error) {
	const tries, pause = 200, 5 * time.Millisecond
	for range tries {
		if err := p.lockSWSM(ctx); err != nil {
			return nil, err
		}
		held := p.read(reg.GSSR)
		if held&(want|want<<reg.GSSR_FW_Shift) == 0 {
			p.write(reg.GSSR, held|want)
			p.unlockSWSM()
			return func() {
				if p.lockSWSM(context.WithoutCancel(ctx)) == nil {
					p.unset(reg.GSSR, want)
					p.unlockSWSM()
				}
			}, nil
		}
		p.unlockSWSM()
		if err := p.sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: firmware or another driver holds the semaphore %#x (GSSR %#x) for more than %v: unload other drivers of this card",
		p.fn.Name(), want, p.read(reg.GSSR), tries*pause)
}

// lockSWSM takes SMBI, by reading 0, and then SWESMBI, by writing it until it sticks. A driver that died may have left
// SMBI set: it is freed by force, once.
func (p *Port) lockSWSM(ctx context.Context) error {
	const step, limit = 50 * time.Microsecond, 100 * time.Millisecond
	err := p.poll(ctx, "semaphore SWSM.SMBI", reg.SWSM, reg.SWSM_SMBI, 0, step, limit, "")
	if err != nil && p.Err() == nil && ctx.Err() == nil {
		p.log.Warn("semaphore SMBI was left set, freeing it by force")
		p.unset(reg.SWSM, reg.SWSM_SMBI)
		err = p.poll(ctx, "semaphore SWSM.SMBI", reg.SWSM, reg.SWSM_SMBI, 0, step, limit, "another driver is at this card: unload it")
	}
	if err != nil {
		return err
	}
	for waited := time.Duration(0); ; waited += step {
		p.set(reg.SWSM, reg.SWSM_SWESMBI)
		if p.read(reg.SWSM)&reg.SWSM_SWESMBI != 0 {
			return nil
		}
		if waited >= limit {
			break
		}
		if err := p.sleep(ctx, step); err != nil {
			p.unlockSWSM()
			return err
		}
	}
	p.unlockSWSM()
	return fmt.Errorf("%s: the firmware does not give SWSM.SWESMBI within %v: power-cycle the card", p.fn.Name(), limit)
}

func (p *Port) unlockSWSM() {
	p.unset(reg.SWSM, reg.SWSM_SWESMBI|reg.SWSM_SMBI)
	p.flush()
}

// readEEPROM reads one word (§8.2.3.2.2).
func (p *Port) readEEPROM(ctx context.Context, word int) (uint16, error) {
	p.write(reg.EERD, reg.Put(0, reg.EERD_ADDR, uint32(word))|reg.EERD_START)
	if err := p.poll(ctx, "EEPROM read (EERD.DONE)", reg.EERD, reg.EERD_DONE, reg.EERD_DONE, 5*time.Microsecond, 50*time.Millisecond,
		"the EEPROM may be broken"); err != nil {
		return 0, err
	}
	return uint16(reg.Get(p.read(reg.EERD), reg.EERD_DATA)), nil
}

// checkEEPROM adds up what the checksum covers (§6.1.2.1): words 0…3F and the sections that words 3…E point to.
func (p *Port) checkEEPROM(ctx context.Context) error {
	release, err := p.acquire(ctx, reg.GSSR_EEP_SM)
	if err != nil {
		return err
	}
	defer release()
	size := min(64<<reg.Get(p.read(reg.EEC), reg.EEC_SIZE), eepromReach)
	var sum uint16
	var pointers []int
	for w := range reg.EE_CHECKSUM + 1 {
		v, err := p.readEEPROM(ctx, w)
		if err != nil {
			return err
		}
		sum += v
		if w >= reg.EE_SECTION_FIRST && w <= reg.EE_SECTION_LAST && v != 0 && v != 0xffff {
			pointers = append(pointers, int(v))
		}
	}
	for _, at := range pointers {
		part, err := p.sumSection(ctx, at, size)
		if err != nil {
			return err
		}
		sum += part
	}
	if sum != reg.EEPROM_SUM {
		return fmt.Errorf("%s: EEPROM checksum is %#04x, want %#04x: the EEPROM is damaged", p.fn.Name(), sum, reg.EEPROM_SUM)
	}
	return nil
}

// sumSection adds the words of the section at word at; its first word is its length. A pointer or a length that leads out
// of the EEPROM's size words ends it: the total will then not fit.
func (p *Port) sumSection(ctx context.Context, at, size int) (sum uint16, err error) {
	if at >= size {
		return 0, nil
	}
	length, err := p.readEEPROM(ctx, at)
	if err != nil || length == 0 || length == 0xffff || at+int(length) >= size {
		return 0, err
	}
	for w := at + 1; w <= at+int(length); w++ {
		v, err := p.readEEPROM(ctx, w)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

// stopBusMaster forbids DMA through configuration space, which answers even when the registers do not.
func (p *Port) stopBusMaster() error {
	if err := pci.SetBusMaster(p.fn, false); err != nil {
		return err
	}
	if ok, err := p.answers(); !ok {
		return errors.Join(err, fmt.Errorf("%s: configuration space does not answer: nobody knows whether DMA has ended", p.fn.Name()))
	}
	p.enabled = false
	return nil
}
