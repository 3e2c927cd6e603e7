package nic82599

import (
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
)

// has says whether the card has recorded a misuse of kind k.
func (d *mini) has(k Kind) bool {
	for _, m := range d.card.Misuse() {
		if m.Kind == k {
			return true
		}
	}
	return false
}

// putTx writes a raw descriptor at the tail without ringing.
func (d *mini) putTx(addr, w1 uint64) {
	r := d.tx[0]
	store(r.ring[16*r.tail:], addr)
	store(r.ring[16*r.tail+8:], w1)
	r.tail = (r.tail + 1) % d.opt.desc
	r.busy++
}

func (d *mini) ring() { d.wr(reg.TDT(0), uint32(d.tx[0].tail)) }

// stopRx and stopTx disable queue 0.
func (d *mini) stopRx() {
	d.clear(reg.RXDCTL(0), reg.RXDCTL_ENABLE)
	d.poll(reg.RXDCTL(0), reg.RXDCTL_ENABLE, 0)
}

func (d *mini) stopTx() {
	d.clear(reg.TXDCTL(0), reg.TXDCTL_ENABLE)
	d.poll(reg.TXDCTL(0), reg.TXDCTL_ENABLE, 0)
}

// TestEachMisuseIsSeen does every wrong thing there is, one at a time, after a correct start, and expects the card to have
// seen that and, of what was wrong before, nothing.
func TestEachMisuseIsSeen(t *testing.T) {
	good := txWords(60, 60, true, true)
	for _, c := range []struct {
		kind Kind
		name string
		opt  miniOptions
		do   func(d *mini, r *rig)
	}{
		{kind: UndefinedRegister, name: "read", do: func(d *mini, r *rig) { d.rd(0x1FF00) }},
		{kind: UndefinedRegister, name: "write", do: func(d *mini, r *rig) { d.wr(0x1FF00, 1) }},
		{kind: UndefinedRegister, name: "unaligned", do: func(d *mini, r *rig) { d.rd(0x0002) }},
		{kind: UndefinedRegister, name: "beyond", do: func(d *mini, r *rig) { d.rd(reg.BARSize) }},
		{kind: ReadOnlyWrite, name: "STATUS", do: func(d *mini, r *rig) { d.wr(reg.STATUS, 0) }},
		{kind: ReadOnlyWrite, name: "counter", do: func(d *mini, r *rig) { d.wr(reg.GPRC, 0) }},
		{kind: AccessInReset, do: func(d *mini, r *rig) { d.or(reg.CTRL, reg.CTRL_RST); d.wr(reg.FCTRL, 0) }},
		{kind: ResetBusy, do: func(d *mini, r *rig) { d.or(reg.CTRL, reg.CTRL_RST) }},
		{kind: WriteBeforeReady, do: func(d *mini, r *rig) {
			d.or(reg.CTRL, reg.CTRL_RST)
			d.poll(reg.CTRL, reg.CTRL_RST, 0)
			d.wr(reg.FCTRL, 0)
		}},
		{kind: SemaphoreMissing, name: "GSSR", do: func(d *mini, r *rig) { d.wr(reg.GSSR, 1) }},
		{kind: SemaphoreMissing, name: "EEWR", do: func(d *mini, r *rig) { d.wr(reg.EEWR, 1) }},
		{kind: SemaphoreMissing, name: "SWESMBI", do: func(d *mini, r *rig) { d.wr(reg.SWSM, 0); d.wr(reg.SWSM, reg.SWSM_SWESMBI) }},
		{kind: SemaphoreMissing, name: "MSCA", do: func(d *mini, r *rig) { d.wr(reg.MSCA, reg.MSCA_COMMAND) }},
		{kind: Unsupported, name: "MRQE", do: func(d *mini, r *rig) { d.wr(reg.MRQC, 8) }},
		{kind: Unsupported, name: "header split", do: func(d *mini, r *rig) {
			d.stopRx()
			d.wr(reg.RDT(0), d.rd(reg.RDH(0)))
			d.wr(reg.SRRCTL(0), 2|2<<25)
			d.or(reg.RXDCTL(0), reg.RXDCTL_ENABLE)
		}},
		{kind: TxDescriptor, name: "TSE without context", do: func(d *mini, r *rig) { d.putTx(d.tx[0].bus[0], good|reg.TXD_TSE); d.ring() }},
		{kind: TxDescriptor, name: "TXSM with a context that does not fit", do: func(d *mini, r *rig) {
			d.putContext(14, 20, 20, 1000, l4TCP, true)
			d.putTx(d.tx[0].bus[0], txWords(50, 50, true, true)|reg.TXD_TXSM|reg.TXD_CC)
			d.ring()
		}},
		{kind: TxDescriptor, name: "MSS 0", do: func(d *mini, r *rig) {
			d.putContext(14, 20, 20, 0, l4TCP, true)
			d.putTx(d.tx[0].bus[0], txWords(1000, 946, true, true)|reg.TXD_TSE|reg.TXD_TXSM|reg.TXD_CC)
			d.ring()
		}},
		{kind: TxPayloadLength, name: "headers counted with TSE", do: func(d *mini, r *rig) {
			d.putContext(14, 20, 20, 500, l4TCP, true)
			d.putTx(d.tx[0].bus[0], txWords(1000, 1000, true, true)|reg.TXD_TSE|reg.TXD_TXSM|reg.TXD_CC)
			d.ring()
		}},
		{kind: Unsupported, name: "five-tuple filter", do: func(d *mini, r *rig) { d.wr(reg.FTQF(3), reg.FTQF_ENABLE) }},
		{kind: TxDescriptor, name: "no such L4", do: func(d *mini, r *rig) {
			d.putContext(14, 20, 12, 0, 3, true)
			d.putTx(d.tx[0].bus[0], good|reg.TXD_TXSM|reg.TXD_CC)
			d.ring()
		}},
		{kind: RingUnaligned, do: func(d *mini, r *rig) { d.stopRx(); d.wr(reg.RDBAL(0), 0x1040) }},
		{kind: RingLength, name: "odd", do: func(d *mini, r *rig) { d.stopTx(); d.wr(reg.TDLEN(0), 1000) }},
		{kind: RingLength, name: "zero", do: func(d *mini, r *rig) {
			d.stopTx()
			d.wr(reg.TDLEN(0), 0)
			d.or(reg.TXDCTL(0), reg.TXDCTL_ENABLE)
		}},
		{kind: RingChangedEnabled, name: "base", do: func(d *mini, r *rig) { d.wr(reg.RDBAH(0), 1) }},
		{kind: RingChangedEnabled, name: "length", do: func(d *mini, r *rig) { d.wr(reg.TDLEN(0), 2048) }},
		{kind: HeadWrittenEnabled, name: "TDH", do: func(d *mini, r *rig) { d.wr(reg.TDH(0), 0) }},
		{kind: HeadWrittenEnabled, name: "RDH", do: func(d *mini, r *rig) { d.wr(reg.RDH(0), 0) }},
		{kind: TailBeforeEnable, name: "RDT", do: func(d *mini, r *rig) {
			d.stopRx()
			d.wr(reg.RDT(0), d.rd(reg.RDH(0)))
			d.or(reg.RXDCTL(0), reg.RXDCTL_ENABLE)
			d.wr(reg.RDT(0), 9)
		}},
		{kind: TailBeforeEnable, name: "RDT, waited but not polled", do: func(d *mini, r *rig) {
			d.stopRx()
			d.wr(reg.RDT(0), d.rd(reg.RDH(0)))
			d.wr(reg.RXDCTL(0), reg.RXDCTL_ENABLE)
			d.sleep(time.Millisecond)
			d.wr(reg.RDT(0), 9)
		}},
		{kind: TailBeforeEnable, name: "TDT, queue off", do: func(d *mini, r *rig) { d.stopTx(); d.wr(reg.TDT(0), 9) }},
		{kind: TailBeyondRing, name: "TDT", do: func(d *mini, r *rig) { d.wr(reg.TDT(0), 64) }},
		{kind: TailBeyondRing, name: "RDT", do: func(d *mini, r *rig) { d.wr(reg.RDT(0), 0xFFFF) }},
		{kind: TailPassedHead, name: "RDT", do: func(d *mini, r *rig) { d.wr(reg.RDT(0), 5) }},
		{kind: TailPassedHead, name: "TDT", do: func(d *mini, r *rig) {
			r.b.card.SetCable(false)
			for range 40 {
				d.putTx(d.tx[0].bus[0], good)
			}
			d.ring()
			for range 40 {
				d.putTx(d.tx[0].bus[0], good)
			}
			d.ring()
		}},
		{kind: EnableNotEmpty, do: func(d *mini, r *rig) {
			d.stopRx()
			d.wr(reg.RDH(0), 0)
			d.wr(reg.RDT(0), 17)
			d.or(reg.RXDCTL(0), reg.RXDCTL_ENABLE)
		}},
		{kind: EnableTwice, do: func(d *mini, r *rig) {
			d.clear(reg.RXDCTL(0), reg.RXDCTL_ENABLE)
			d.wr(reg.RXDCTL(0), reg.RXDCTL_ENABLE)
		}},
		{kind: DisableBusy, do: func(d *mini, r *rig) {
			d.putTx(d.tx[0].bus[0], good)
			d.ring()
			d.wr(reg.TXDCTL(0), 0)
		}},
		{kind: BufferSizeZero, do: func(d *mini, r *rig) {
			d.stopRx()
			d.wr(reg.SRRCTL(0), 1<<25)
			d.or(reg.RXDCTL(0), reg.RXDCTL_ENABLE)
		}},
		{kind: RelaxedOrderLeft, do: func(d *mini, r *rig) {
			d.stopRx()
			d.or(reg.DCA_RXCTRL(0), reg.DCA_RXCTRL_MUST_CLEAR)
			d.or(reg.RXDCTL(0), reg.RXDCTL_ENABLE)
		}},
		{kind: TxEnableBeforeTE, do: func(d *mini, r *rig) {
			d.stopTx()
			d.clear(reg.DMATXCTL, reg.DMATXCTL_TE)
			d.or(reg.TXDCTL(0), reg.TXDCTL_ENABLE)
		}},
		{kind: HeadWriteBack, opt: miniOptions{wthresh: 2}, do: func(d *mini, r *rig) {
			d.stopTx()
			d.wr(reg.TDWBAL(0), 1)
			d.or(reg.TXDCTL(0), reg.TXDCTL_ENABLE)
		}},
		{kind: MTQCWithoutARBDIS, do: func(d *mini, r *rig) { d.wr(reg.MTQC, 0) }},
		{kind: RXENBeforeRings, do: func(d *mini, r *rig) {
			d.wr(reg.RXCTRL, 0)
			d.stopRx()
			d.wr(reg.RXCTRL, reg.RXCTRL_RXEN)
		}},
		{kind: RXENWithoutSECRX, do: func(d *mini, r *rig) { d.wr(reg.RXCTRL, 0); d.wr(reg.RXCTRL, reg.RXCTRL_RXEN) }},
		{kind: ChangedWithRXEN, name: "RXPBSIZE", do: func(d *mini, r *rig) { d.wr(reg.RXPBSIZE(0), 0x20000) }},
		{kind: ChangedWithRXEN, name: "CRC strip", do: func(d *mini, r *rig) { d.clear(reg.HLREG0, reg.HLREG0_RXCRCSTRP) }},
		{kind: CRCStripMismatch, do: func(d *mini, r *rig) {
			d.wr(reg.RXCTRL, 0)
			d.clear(reg.RDRXCTL, reg.RDRXCTL_CRCSTRIP)
			d.wr(reg.RXCTRL, reg.RXCTRL_RXEN)
		}},
		{kind: FixedBits, do: func(d *mini, r *rig) {
			d.wr(reg.RXCTRL, 0)
			d.clear(reg.RDRXCTL, reg.RDRXCTL_RSCACKC)
			d.wr(reg.RXCTRL, reg.RXCTRL_RXEN)
		}},
		{kind: FixedBits, name: "RSCFRSTSIZE", do: func(d *mini, r *rig) {
			d.wr(reg.RXCTRL, 0)
			d.or(reg.RDRXCTL, 8<<17)
			d.wr(reg.RXCTRL, reg.RXCTRL_RXEN)
		}},
		{kind: NoSnoopLeft, do: func(d *mini, r *rig) {
			d.wr(reg.RXCTRL, 0)
			d.wr(reg.CTRL_EXT, 0)
			d.wr(reg.RXCTRL, reg.RXCTRL_RXEN)
		}},
		{kind: PacketBufferSize, do: func(d *mini, r *rig) {
			d.wr(reg.RXCTRL, 0)
			d.wr(reg.RXPBSIZE(1), 1<<10)
			d.wr(reg.RXCTRL, reg.RXCTRL_RXEN)
		}},
		{kind: RxFrameLimit, do: func(d *mini, r *rig) {
			d.wr(reg.RXCTRL, 0)
			d.wr(reg.MAXFRS, 9729<<16)
			d.or(reg.HLREG0, reg.HLREG0_JUMBOEN)
			d.wr(reg.RXCTRL, reg.RXCTRL_RXEN)
		}},
		{kind: CounterOrder, do: func(d *mini, r *rig) { d.rd(reg.GOTCH) }},
		{kind: MaskWrittenZero, do: func(d *mini, r *rig) { d.wr(reg.EIMS, 0) }},
		{kind: RetaBeyondQueues, do: func(d *mini, r *rig) {
			for i := range 32 {
				d.wr(reg.RETA(i), 0x03030303)
			}
			d.wr(reg.MRQC, 1|reg.MRQC_RSS_IP4)
			f := make([]byte, 60)
			copy(f, []byte{2, 0, 0, 0, 0, 0xA, 2, 0, 0, 0, 0, 0xB, 8, 0, 0x45, 0, 0, 20})
			r.b.send(0, f, 0, true)
			r.run(20 * time.Microsecond)
		}},
		{kind: InterruptUnmapped, do: func(d *mini, r *rig) { d.wr(reg.EIMS, 1) }},
		{kind: RxStatusNotClear, do: func(d *mini, r *rig) {
			d.stopRx()
			d.wr(reg.RDH(0), 0)
			d.wr(reg.RDT(0), 0)
			store(d.rx[0].ring[8:], 1|60<<32)
			d.or(reg.RXDCTL(0), reg.RXDCTL_ENABLE)
			d.poll(reg.RXDCTL(0), reg.RXDCTL_ENABLE, reg.RXDCTL_ENABLE)
			d.wr(reg.RDT(0), 8)
		}},
		{kind: RxBufferTwice, do: func(d *mini, r *rig) {
			d.stopRx()
			d.wr(reg.RDH(0), 0)
			d.wr(reg.RDT(0), 0)
			store(d.rx[0].ring[16:], d.rx[0].bus[0])
			d.or(reg.RXDCTL(0), reg.RXDCTL_ENABLE)
			d.poll(reg.RXDCTL(0), reg.RXDCTL_ENABLE, reg.RXDCTL_ENABLE)
			d.wr(reg.RDT(0), 8)
		}},
		{kind: RxBufferTouched, do: func(d *mini, r *rig) {
			d.rx[0].buf[0][9] ^= 1
			r.b.send(0, frameTo([6]byte{2, 0, 0, 0, 0, 0xA}, 60, 0), 0, true)
		}},
		{kind: RxBufferTouched, name: "right after disable", do: func(d *mini, r *rig) {
			d.stopRx()
			d.rx[0].buf[50][0]++
		}},
		{kind: TxStale, do: func(d *mini, r *rig) { d.putTx(d.tx[0].bus[0], good|reg.TXD_DD); d.ring() }},
		{kind: TxLengthZero, do: func(d *mini, r *rig) { d.putTx(d.tx[0].bus[0], txWords(0, 0, true, true)); d.ring() }},
		{kind: TxFrameLength, name: "short", do: func(d *mini, r *rig) { d.putTx(d.tx[0].bus[0], txWords(13, 13, true, true)); d.ring() }},
		{kind: TxFrameLength, name: "long", opt: miniOptions{jumbo: true}, do: func(d *mini, r *rig) {
			d.putTx(d.tx[0].bus[0], txWords(9725, 9725, true, true))
			d.ring()
		}},
		{kind: TxNotTerminated, do: func(d *mini, r *rig) { d.putTx(d.tx[0].bus[0], txWords(60, 120, false, false)); d.ring() }},
		{kind: TxTooManySegments, do: func(d *mini, r *rig) {
			for i := range 41 {
				d.putTx(d.tx[0].bus[0], txWords(10, 410, i == 40, i == 40))
			}
			d.ring()
		}},
		{kind: TxTooManySegments, name: "WTHRESH counts", opt: miniOptions{wthresh: 4}, do: func(d *mini, r *rig) {
			for i := range 37 {
				d.putTx(d.tx[0].bus[0], txWords(10, 370, i == 36, i == 36))
			}
			d.ring()
		}},
		{kind: TxPayloadLength, do: func(d *mini, r *rig) { d.putTx(d.tx[0].bus[0], txWords(60, 61, true, true)); d.ring() }},
		{kind: TxNoFCS, do: func(d *mini, r *rig) { d.putTx(d.tx[0].bus[0], good&^reg.TXD_IFCS); d.ring() }},
		{kind: TxNoReport, do: func(d *mini, r *rig) {
			for range 63 {
				d.putTx(d.tx[0].bus[0], txWords(60, 60, true, false))
			}
			d.ring()
		}},
		{kind: TxDescriptor, name: "DEXT", do: func(d *mini, r *rig) { d.putTx(d.tx[0].bus[0], good&^reg.TXD_DEXT); d.ring() }},
		{kind: TxDescriptor, name: "DTYP", do: func(d *mini, r *rig) { d.putTx(d.tx[0].bus[0], good&^(1<<21)); d.ring() }},
		{kind: TxDescriptor, name: "RS inside a frame", do: func(d *mini, r *rig) {
			d.putTx(d.tx[0].bus[0], txWords(60, 120, false, true))
			d.putTx(d.tx[0].bus[1], txWords(60, 120, true, true))
			d.ring()
		}},
		{kind: TxDescriptor, name: "VLE without context", do: func(d *mini, r *rig) { d.putTx(d.tx[0].bus[0], good|reg.TXD_VLE); d.ring() }},
		{kind: TxBufferTouched, do: func(d *mini, r *rig) {
			d.send(0, frameTo(macB, 60, 1), 0, true)
			for range 40 {
				r.clk.Advance(20)
				r.w.Step()
				d.tx[0].buf[0][30]++
			}
		}},
		{kind: DMAFault, name: "transmit data", do: func(d *mini, r *rig) { d.putTx(0xDEAD_0000_0000, good); d.ring() }},
		{kind: DMAFault, name: "receive buffer", do: func(d *mini, r *rig) {
			d.stopRx()
			d.wr(reg.RDH(0), 0)
			d.wr(reg.RDT(0), 0)
			store(d.rx[0].ring, 0xFFFF_FFFF_FFFF_FFFF)
			d.or(reg.RXDCTL(0), reg.RXDCTL_ENABLE)
			d.poll(reg.RXDCTL(0), reg.RXDCTL_ENABLE, reg.RXDCTL_ENABLE)
			d.wr(reg.RDT(0), 8)
			r.b.send(0, frameTo([6]byte{2, 0, 0, 0, 0, 0xA}, 60, 0), 0, true)
		}},
		{kind: DMAFault, name: "ring", do: func(d *mini, r *rig) {
			d.stopTx()
			d.wr(reg.TDBAH(0), 0x77)
			d.wr(reg.TDT(0), d.rd(reg.TDH(0)))
			d.or(reg.TXDCTL(0), reg.TXDCTL_ENABLE)
			d.poll(reg.TXDCTL(0), reg.TXDCTL_ENABLE, reg.TXDCTL_ENABLE)
			d.wr(reg.TDT(0), 1)
		}},
	} {
		t.Run(c.kind.String()+" "+c.name, func(t *testing.T) {
			r := newRig(t, 11, c.opt, nil)
			r.start()
			r.clean()
			c.do(r.a, r)
			r.run(200 * time.Microsecond)
			if !r.a.has(c.kind) {
				t.Errorf("the card has not noticed; it has %v", r.a.card.Misuse())
			}
		})
	}
}

// TestEveryKindHasAName keeps the list of kinds complete.
func TestEveryKindHasAName(t *testing.T) {
	for k := range numKinds {
		if kinds[k].name == "" || kinds[k].text == "" {
			t.Errorf("kind %d has no name or text", k)
		}
	}
}
