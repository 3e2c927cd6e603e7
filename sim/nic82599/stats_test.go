package nic82599

import (
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
	"bare.wire/sim/link"
)

// inject puts a frame onto b's wire as if a card there had sent it.
func (r *rig) inject(f []byte) {
	r.w.Lock()
	r.wire.A().Transmit(f, r.clk.Nanos())
	r.w.Unlock()
	r.run(3 * time.Microsecond)
}

// drain takes all frames out of queue 0 and returns how many there were.
func (d *mini) drain() (n int) {
	for {
		f, _, _ := d.recv(0)
		if f == nil {
			return n
		}
		n++
	}
}

func TestStatisticsAreExact(t *testing.T) {
	r := newRig(t, 6, miniOptions{promisc: true, drop: true}, nil)
	r.start()
	for _, d := range []*mini{r.a, r.b} { // §4.6.5: read them all once
		for i := range cells[1:] {
			if c := &cells[1+i]; c.mode == reg.RC || c.mode == reg.RC36Lo || c.mode == reg.RC36Hi {
				d.rd(c.off)
			}
		}
	}
	type sent struct {
		n     int
		first [6]byte
		count int
	}
	multicast, all := [6]byte{1, 0, 0x5E, 0, 0, 1}, [6]byte{255, 255, 255, 255, 255, 255}
	plan := []sent{{20, macB, 3}, {60, macB, 5}, {61, macB, 7}, {123, multicast, 2}, {124, macB, 1}, {251, all, 4}, {252, macB, 6},
		{508, macB, 1}, {507, macB, 1}, {1019, macB, 8}, {1020, macB, 9}, {1514, multicast, 11}}
	bytesFCS, frames, padding := uint64(0), uint64(0), uint64(0)
	for _, p := range plan {
		for i := range p.count {
			f := frameTo(p.first, p.n, byte(i))
			r.a.send(0, f, 0, true)
			r.b.expect(0, padded(f))
			frames++
			bytesFCS += uint64(max(p.n, 60) + 4)
			padding += uint64(max(60-p.n, 0))
		}
	}
	r.run(100 * time.Microsecond)
	sizes := []uint64{8, 7 + 2 + 0, 1 + 4, 6 + 1, 1 + 8, 9 + 11} // 64, 65-127, 128-255, 256-511, 512-1023, 1024-
	for i, want := range sizes {
		if got := r.b.card.Peek(rxSizes[i]); got != want {
			t.Errorf("receive size class %d: %d, want %d", i, got, want)
		}
		if got := r.a.card.Peek(txSizes[i]); got != want {
			t.Errorf("transmit size class %d: %d, want %d", i, got, want)
		}
	}
	for _, c := range []struct {
		d    *mini
		off  uint32
		want uint64
	}{
		{r.b, reg.GPRC, frames}, {r.b, reg.TPR, frames}, {r.b, reg.BPRC, 4}, {r.b, reg.MPRC, 13}, {r.b, reg.QPRC(0), frames},
		{r.b, reg.RXDGPC, frames}, {r.b, reg.GORCL, bytesFCS}, {r.b, reg.TORL, bytesFCS}, {r.b, reg.QBRC_L(0), bytesFCS - 4*frames},
		{r.a, reg.GPTC, frames}, {r.a, reg.TPT, frames}, {r.a, reg.BPTC, 4}, {r.a, reg.MPTC, 13}, {r.a, reg.QPTC(0), frames},
		{r.a, reg.TXDGPC, frames}, {r.a, reg.GOTCL, bytesFCS}, {r.a, reg.QBTC_L(0), bytesFCS - 4*frames - padding},
		{r.b, reg.MPC(0), 0}, {r.b, reg.QPRDC(0), 0}, {r.b, reg.CRCERRS, 0}, {r.b, reg.ROC, 0}, {r.b, reg.RUC, 0}, {r.b, reg.RLEC, 0},
	} {
		if got := c.d.card.Peek(c.off); got != c.want {
			t.Errorf("%s is %d, want %d", reg.Name(c.off), got, c.want)
		}
	}
	r.clean()
}

func TestQueuesCountWhereTheirMapsSay(t *testing.T) {
	r := newRig(t, 6, miniOptions{}, nil)
	r.start()
	r.a.wr(reg.TQSM(0), 0x0000000B)
	r.b.wr(reg.RQSMR(0), 0x0000000C)
	f := frameTo(macB, 60, 1)
	r.a.send(0, f, 0, true)
	r.b.expect(0, f)
	if a, b := r.a.rd(reg.QPTC(11)), r.b.rd(reg.QPRC(12)); a != 1 || b != 1 {
		t.Errorf("QPTC(11) %d, QPRC(12) %d, want 1, 1", a, b)
	}
	r.a.wr(reg.TQSM(31), 0x07000000)
	r.a.wr(reg.RQSMR(31), 0x00050000)
	r.a.card.countTx(127, f, len(f))
	r.a.card.countQueue(126, len(f))
	if a, b := r.a.rd(reg.QPTC(7)), r.a.rd(reg.QPRC(5)); a != 1 || b != 1 {
		t.Errorf("QPTC(7) %d, QPRC(5) %d, want 1, 1", a, b)
	}
	r.clean()
}

func TestBadFramesAreCountedAndDropped(t *testing.T) {
	for _, c := range []struct {
		name  string
		n     int
		bad   bool
		jumbo bool
		off   uint32
	}{
		{"runt", 59, false, false, reg.RUC},
		{"fragment", 59, true, false, reg.RFC},
		{"bad FCS", 100, true, false, reg.CRCERRS},
		{"oversize", 1515, false, false, reg.ROC},
		{"jabber", 1515, true, false, reg.RJC},
		{"oversize jumbo", 9725, false, true, reg.ROC},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 8, miniOptions{jumbo: c.jumbo}, nil)
			if c.bad {
				w, err := link.New(link.Config{Corrupt: 1})
				if err != nil {
					t.Fatal(err)
				}
				r.wire = w
				r.a.card.end, r.b.card.end = w.A(), w.B()
				r.a.card.phy.hooked, r.b.card.phy.hooked = false, false
			}
			r.start()
			r.inject(frameTo(macB, c.n, 1))
			if n := r.b.drain(); n != 0 {
				t.Errorf("%d frames arrived", n)
			}
			if got := r.b.rd(c.off); got != 1 {
				t.Errorf("%s is %d, want 1", reg.Name(c.off), got)
			}
			if got := r.b.rd(reg.GPRC); got != 0 {
				t.Errorf("GPRC is %d, want 0", got)
			}
			r.clean()
		})
	}
}

func TestTaggedFramesMayBeFourBytesLonger(t *testing.T) {
	r := newRig(t, 8, miniOptions{}, nil)
	r.start()
	f := frameTo(macB, 1518, 1)
	f[12], f[13] = 0x81, 0
	r.inject(f)
	r.b.expect(0, f)
	r.clean()
}

func TestBadFrameIsStoredWithItsErrorWhenAsked(t *testing.T) {
	r := newRig(t, 8, miniOptions{promisc: true}, nil)
	r.start()
	r.b.or(reg.FCTRL, reg.FCTRL_SBP)
	r.b.card.accept(frameTo(macB, 60, 1), true)
	if !r.b.card.accept(frameTo(macB, 60, 1), true) {
		t.Error("a bad frame is dropped although FCTRL.SBP is set")
	}
	r.w.Lock()
	r.b.card.admit(frameTo(macB, 60, 1), r.clk.Nanos(), true, true)
	r.w.Unlock()
	r.run(10 * time.Microsecond)
	if _, w1 := r.b.expect(0, frameTo(macB, 60, 1)); w1&reg.RXD_CE == 0 {
		t.Errorf("descriptor %016X, want CE", w1)
	}
}

func TestPauseFramesAreCountedObeyedAndKept(t *testing.T) {
	r := newRig(t, 8, miniOptions{promisc: true}, nil)
	r.start()
	r.b.wr(reg.MFLCN, reg.MFLCN_RFCE)
	pause := make([]byte, 60)
	copy(pause, []byte{1, 0x80, 0xC2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 8, 0, 1, 0x03, 0xE8}) // 1000 quanta, 51.2 µs
	r.inject(pause)
	start := r.clk.Nanos()
	f := frameTo([6]byte{2, 0, 0, 0, 0, 0xA}, 60, 1)
	r.b.send(0, f, 0, true)
	r.a.expect(0, f)
	if waited := r.clk.Nanos() - start; waited < 45_000 || waited > 55_000 {
		t.Errorf("sent after %d ns, want about 51 200 less the 3 000 that had passed", waited)
	}
	pause[16], pause[17] = 0, 0
	r.inject(pause)
	if n := r.b.drain(); n != 0 {
		t.Errorf("%d pause frames reached the host", n)
	}
	if off, on := r.b.rd(reg.LXOFFRXCNT), r.b.rd(reg.LXONRXCNT); off != 1 || on != 1 {
		t.Errorf("XOFF %d, XON %d, want 1, 1", off, on)
	}
	r.b.wr(reg.MFLCN, reg.MFLCN_PMCF)
	r.inject(pause)
	r.b.expect(0, pause)
	r.clean()
}

func TestFilters(t *testing.T) {
	multicast, other := [6]byte{1, 0, 0x5E, 0x12, 0x34, 0x56}, [6]byte{2, 9, 9, 9, 9, 9}
	all := [6]byte{255, 255, 255, 255, 255, 255}
	hash := func(mo uint) uint {
		return (uint(multicast[5])<<8 | uint(multicast[4])) >> [4]uint{4, 3, 2, 0}[mo] & 0xFFF
	}
	mta := func(mo uint) func(d *mini) {
		return func(d *mini) {
			d.wr(reg.MTA(int(hash(mo)>>5)), 1<<(hash(mo)&31))
			d.wr(reg.MCSTCTRL, uint32(mo)|reg.MCSTCTRL_MFE)
		}
	}
	tag := func(f []byte, tci uint16) []byte {
		f[12], f[13], f[14], f[15] = 0x81, 0, byte(tci>>8), byte(tci)
		return f
	}
	for _, c := range []struct {
		name  string
		frame []byte
		set   func(d *mini)
		in    bool
	}{
		{"own address", frameTo(macB, 60, 1), nil, true},
		{"other address", frameTo(other, 60, 1), nil, false},
		{"other address, promiscuous", frameTo(other, 60, 1), func(d *mini) { d.or(reg.FCTRL, reg.FCTRL_UPE) }, true},
		{"second address", frameTo(other, 60, 1), func(d *mini) {
			d.wr(reg.RAL(77), 0x09090902)
			d.wr(reg.RAH(77), 0x0909|reg.RAH_AV)
		}, true},
		{"second address, not valid", frameTo(other, 60, 1), func(d *mini) { d.wr(reg.RAL(77), 0x09090902); d.wr(reg.RAH(77), 0x0909) }, false},
		{"broadcast", frameTo(all, 60, 1), nil, true},
		{"broadcast, BAM off", frameTo(all, 60, 1), func(d *mini) { d.clear(reg.FCTRL, reg.FCTRL_BAM) }, false},
		{"multicast", frameTo(multicast, 60, 1), nil, false},
		{"multicast, MPE", frameTo(multicast, 60, 1), func(d *mini) { d.or(reg.FCTRL, reg.FCTRL_MPE) }, true},
		{"multicast, UPE is for unicast", frameTo(multicast, 60, 1), func(d *mini) { d.or(reg.FCTRL, reg.FCTRL_UPE) }, false},
		{"multicast, table 0", frameTo(multicast, 60, 1), mta(0), true},
		{"multicast, table 1", frameTo(multicast, 60, 1), mta(1), true},
		{"multicast, table 2", frameTo(multicast, 60, 1), mta(2), true},
		{"multicast, table 3", frameTo(multicast, 60, 1), mta(3), true},
		{"multicast, table not on", frameTo(multicast, 60, 1), func(d *mini) { mta(0)(d); d.wr(reg.MCSTCTRL, 0) }, false},
		{"VLAN in the table", tag(frameTo(macB, 60, 1), 0x2923), func(d *mini) {
			d.or(reg.VLNCTRL, reg.VLNCTRL_VFE)
			d.wr(reg.VFTA(0x923>>5), 1<<(0x923&31))
		}, true},
		{"VLAN not in the table", tag(frameTo(macB, 60, 1), 0x2924), func(d *mini) {
			d.or(reg.VLNCTRL, reg.VLNCTRL_VFE)
			d.wr(reg.VFTA(0x923>>5), 1<<(0x923&31))
		}, false},
		{"VLAN, filter off", tag(frameTo(macB, 60, 1), 0x2924), nil, true},
		{"no VLAN, filter on", frameTo(macB, 60, 1), func(d *mini) { d.or(reg.VLNCTRL, reg.VLNCTRL_VFE) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 8, miniOptions{}, nil)
			r.start()
			if c.set != nil {
				c.set(r.b)
			}
			r.inject(c.frame)
			if n := r.b.drain(); (n == 1) != c.in {
				t.Errorf("%d frames arrived, want it in: %v", n, c.in)
			}
			if got := r.b.rd(reg.GPRC); (got == 1) != c.in {
				t.Errorf("GPRC is %d", got)
			}
			if got := r.b.rd(reg.TPR); got != 1 {
				t.Errorf("TPR is %d, want 1: it counts what is filtered too", got)
			}
			r.clean()
		})
	}
}

// TestPauseToTheStationItselfIsObeyed: IEEE 802.3 annex 31B.1 has either address; to somebody else it is none.
func TestPauseToTheStationItselfIsObeyed(t *testing.T) {
	r := newRig(t, 8, miniOptions{promisc: true}, nil)
	r.start()
	r.b.wr(reg.MFLCN, reg.MFLCN_RFCE)
	for i, to := range [][6]byte{{2, 0, 0, 0, 0, 0x77}, macB} {
		f := frameTo(to, 60, 0)
		copy(f[12:], []byte{0x88, 8, 0, 1, 0, 1})
		r.inject(f)
		if n := r.b.card.Counts().PauseSeen; n != uint64(i) {
			t.Errorf("%d pause frames seen after one to %x, want %d", n, to, i)
		}
	}
}
