package nic82599

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"bare.wire/clock"
	"bare.wire/ixgbe/reg"
	"bare.wire/sim"
	"bare.wire/sim/link"
)

// arena is memory for a card under test: bus addresses start at base, and nothing else may be touched. Pages are handed
// out in pieces so that the card meets discontinuities.
type arena struct {
	base  uint64
	words []uint64
	used  int
	piece int // Bytes returns no more than up to the next multiple of this; 0: no limit
}

func newArena(size int) *arena {
	return &arena{base: 0x1_0000_0000, words: make([]uint64, size/8)}
}

func (a *arena) all() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&a.words[0])), len(a.words)*8)
}

func (a *arena) alloc(n, align int) (uint64, []byte) {
	a.used = (a.used + align - 1) / align * align
	if a.used+n > len(a.words)*8 {
		panic("arena is full")
	}
	b := a.all()[a.used : a.used+n : a.used+n]
	bus := a.base + uint64(a.used)
	a.used += n
	return bus, b
}

func (a *arena) Bytes(bus uint64, n int) ([]byte, error) {
	if bus < a.base || bus-a.base >= uint64(len(a.words)*8) || n <= 0 {
		return nil, fmt.Errorf("%d bytes at %#x are not mapped", n, bus)
	}
	off := int(bus - a.base)
	end := min(off+n, len(a.words)*8)
	if a.piece > 0 {
		end = min(end, (off/a.piece+1)*a.piece)
	}
	return a.all()[off:end:end], nil
}

// mini is a driver as small as can be, in the order of the datasheet (§4.6.3 to §4.6.8), for one card.
type mini struct {
	t    testing.TB
	card *Card
	w    *sim.World
	clk  *clock.Virtual
	real *clock.RealClock // instead of clk
	mem  *arena
	opt  miniOptions
	rx   []*miniRx
	tx   []*miniTx
}

type miniOptions struct {
	queues   int // default 1
	desc     int // default 64
	bufKiB   int // default 2
	drop     bool
	loopback bool
	wthresh  int
	headWB   bool
	jumbo    bool
	fcs      bool // leave the FCS on
	vme      bool
	promisc  bool
	key      []byte
}

type miniRx struct {
	ring []byte
	bus  []uint64
	buf  [][]byte
	next int
	tail int
	part []byte
}

type miniTx struct {
	ring  []byte
	bus   []uint64
	buf   [][]byte
	tail  int
	clean int
	busy  int
	head  []byte // where the head is written to
	last  []int  // descriptors with RS in flight
}

// txBuf is the size of transmit buffers.
func (o miniOptions) txBuf() int {
	if o.jumbo {
		return 16 << 10
	}
	return 2 << 10
}

// rig is two cards on one wire.
type rig struct {
	clk  *clock.Virtual
	w    *sim.World
	wire *link.Wire
	a, b *mini
}

func newRig(t testing.TB, seed uint64, opt miniOptions, adjust func(cfg *Config)) *rig {
	t.Helper()
	clk := clock.NewVirtual(time.Unix(0, 0))
	w := sim.NewWorld(clk)
	wire, err := link.New(link.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{clk: clk, w: w, wire: wire}
	mk := func(name string, end *link.End, mac [6]byte, seed uint64) *mini {
		mem := newArena(6 << 20)
		cfg := Config{Name: name, Memory: mem, World: w, End: end, MAC: mac, Seed: seed, Watch: true}
		if adjust != nil {
			adjust(&cfg)
		}
		return &mini{t: t, card: New(cfg), w: w, clk: clk, mem: mem, opt: opt}
	}
	r.a = mk("a", wire.A(), [6]byte{2, 0, 0, 0, 0, 0xA}, seed)
	r.b = mk("b", wire.B(), [6]byte{2, 0, 0, 0, 0, 0xB}, seed+1000)
	return r
}

// start brings both cards up.
func (r *rig) start() {
	r.a.init()
	r.b.init()
	r.a.waitLink()
	r.b.waitLink()
}

// run lets d pass in small steps.
func (r *rig) run(d time.Duration) { step(r.clk, r.w, d) }

func step(clk *clock.Virtual, w *sim.World, d time.Duration) {
	for end := clk.Nanos() + int64(d); clk.Nanos() < end; {
		clk.Advance(200)
		w.Step()
	}
}

// clean fails the test if a card found misuse.
func (r *rig) clean() {
	r.a.t.Helper()
	for _, m := range append(r.a.card.Misuse(), r.b.card.Misuse()...) {
		r.a.t.Error(m)
	}
}

func (d *mini) rd(off uint32) uint32 { return d.card.Read32(off) }
func (d *mini) wr(off, v uint32)     { d.card.Write32(off, v) }
func (d *mini) or(off, v uint32)     { d.wr(off, d.rd(off)|v) }
func (d *mini) clear(off, v uint32)  { d.wr(off, d.rd(off)&^v) }

// sleep lets t pass and then the world step.
func (d *mini) sleep(t time.Duration) {
	if d.real != nil {
		_ = d.real.Sleep(context.Background(), t)
		return
	}
	_ = d.clk.Sleep(context.Background(), t)
	d.w.Step()
}

func (d *mini) poll(off, mask, want uint32) {
	d.t.Helper()
	for range 20000 {
		if d.rd(off)&mask == want {
			return
		}
		d.sleep(10 * time.Microsecond)
	}
	d.t.Fatalf("%s never became %08X under %08X", reg.Name(off), want, mask)
}

func (d *mini) reset() {
	if err := d.card.WriteConfig(cfgCommand, 2, cmdMemory|cmdBusMaster); err != nil {
		d.t.Fatal(err)
	}
	d.wr(reg.EIMC, 0xFFFFFFFF)
	d.rd(reg.EICR)
	d.or(reg.CTRL, reg.CTRL_GIO_DIS)
	d.poll(reg.STATUS, reg.STATUS_GIO, 0)
	d.or(reg.CTRL, reg.CTRL_RST)
	d.poll(reg.CTRL, reg.CTRL_RST, 0)
	d.sleep(10 * time.Millisecond)
	d.wr(reg.EIMC, 0xFFFFFFFF)
	d.poll(reg.EEC, reg.EEC_ARD, reg.EEC_ARD)
	d.poll(reg.RDRXCTL, reg.RDRXCTL_DMAIDONE, reg.RDRXCTL_DMAIDONE)
}

func (d *mini) init() {
	d.t.Helper()
	if d.opt.queues == 0 {
		d.opt.queues = 1
	}
	if d.opt.desc == 0 {
		d.opt.desc = 64
	}
	if d.opt.bufKiB == 0 {
		d.opt.bufKiB = 2
	}
	d.reset()
	d.or(reg.AUTOC, reg.AUTOC_AN_RESTART)
	d.initRx()
	d.initTx()
	d.startRx()
	d.or(reg.CTRL_EXT, reg.CTRL_EXT_DRV_LOAD)
}

func (d *mini) waitLink() {
	d.t.Helper()
	d.poll(reg.LINKS, reg.LINKS_UP, reg.LINKS_UP)
}

func (d *mini) initRx() {
	d.clear(reg.RXCTRL, reg.RXCTRL_RXEN)
	hl := uint32(reg.HLREG0_TXCRCEN | reg.HLREG0_TXPADEN)
	dr := uint32(reg.RDRXCTL_RSCACKC | reg.RDRXCTL_FCOE_WRFIX)
	if !d.opt.fcs {
		hl |= reg.HLREG0_RXCRCSTRP
		dr |= reg.RDRXCTL_CRCSTRIP
	}
	if d.opt.jumbo {
		hl |= reg.HLREG0_JUMBOEN
		d.wr(reg.MAXFRS, 9728<<16)
	}
	if d.opt.loopback {
		hl |= reg.HLREG0_LPBK
	}
	d.wr(reg.HLREG0, hl)
	d.wr(reg.RDRXCTL, dr)
	d.or(reg.CTRL_EXT, reg.CTRL_EXT_NS_DIS)
	fc := uint32(reg.FCTRL_BAM)
	if d.opt.promisc {
		fc |= reg.FCTRL_UPE | reg.FCTRL_MPE
	}
	d.wr(reg.FCTRL, fc)
	d.wr(reg.RXCSUM, reg.RXCSUM_PCSD)
	if d.opt.queues > 1 {
		for i := range 10 {
			d.wr(reg.RSSRK(i), binary.LittleEndian.Uint32(d.opt.key[4*i:]))
		}
		for i := range 32 {
			var v uint32
			for k := range 4 {
				v |= uint32((4*i+k)%d.opt.queues|0x30) << (8 * k) // four bits count
			}
			d.wr(reg.RETA(i), v)
		}
		d.wr(reg.MRQC, 1|reg.MRQC_RSS_IP4|reg.MRQC_RSS_TCP4|reg.MRQC_RSS_IP6|reg.MRQC_RSS_TCP6|reg.MRQC_RSS_UDP4|reg.MRQC_RSS_UDP6)
	}
	for q := range d.opt.queues {
		d.initRxQueue(q)
	}
}

func (d *mini) initRxQueue(q int) {
	r := &miniRx{bus: make([]uint64, d.opt.desc), buf: make([][]byte, d.opt.desc)}
	bus, ring := d.mem.alloc(d.opt.desc*16, 128)
	r.ring = ring
	for i := range d.opt.desc {
		r.bus[i], r.buf[i] = d.mem.alloc(d.opt.bufKiB<<10, 64)
		store(ring[16*i:], r.bus[i])
		store(ring[16*i+8:], 0)
	}
	d.rx = append(d.rx, r)
	d.wr(reg.RDBAL(q), uint32(bus))
	d.wr(reg.RDBAH(q), uint32(bus>>32))
	d.wr(reg.RDLEN(q), uint32(len(ring)))
	d.wr(reg.RDH(q), 0)
	d.wr(reg.RDT(q), 0)
	s := uint32(d.opt.bufKiB) | 1<<25
	if d.opt.drop {
		s |= reg.SRRCTL_DROP_EN
	}
	d.wr(reg.SRRCTL(q), s)
	d.clear(reg.DCA_RXCTRL(q), reg.DCA_RXCTRL_MUST_CLEAR)
	d.wr(reg.RQSMR(q/4), d.rd(reg.RQSMR(q/4))|uint32(q%16)<<(q%4*8))
}

// startRx enables the receive queues, then the receiver.
func (d *mini) startRx() {
	for q, r := range d.rx {
		v := uint32(reg.RXDCTL_ENABLE)
		if d.opt.vme {
			v |= reg.RXDCTL_VME
		}
		d.wr(reg.RXDCTL(q), v)
		d.poll(reg.RXDCTL(q), reg.RXDCTL_ENABLE, reg.RXDCTL_ENABLE)
		r.tail = d.opt.desc - 1
		d.wr(reg.RDT(q), uint32(r.tail))
	}
	d.or(reg.SECRXCTRL, reg.SECRXCTRL_RX_DIS)
	d.poll(reg.SECRXSTAT, reg.SECRXSTAT_SECRX_RDY, reg.SECRXSTAT_SECRX_RDY)
	d.or(reg.RXCTRL, reg.RXCTRL_RXEN)
	d.clear(reg.SECRXCTRL, reg.SECRXCTRL_RX_DIS)
}

func (d *mini) initTx() {
	d.or(reg.RTTDCS, reg.RTTDCS_ARBDIS)
	d.wr(reg.MTQC, 0)
	d.wr(reg.DTXMXSZRQ, 0xFFF)
	d.clear(reg.RTTDCS, reg.RTTDCS_ARBDIS)
	d.or(reg.DMATXCTL, reg.DMATXCTL_TE)
	for q := range d.opt.queues {
		r := &miniTx{bus: make([]uint64, d.opt.desc), buf: make([][]byte, d.opt.desc)}
		bus, ring := d.mem.alloc(d.opt.desc*16, 128)
		r.ring = ring
		for i := range d.opt.desc {
			r.bus[i], r.buf[i] = d.mem.alloc(d.opt.txBuf(), 64)
		}
		d.tx = append(d.tx, r)
		d.wr(reg.TDBAL(q), uint32(bus))
		d.wr(reg.TDBAH(q), uint32(bus>>32))
		d.wr(reg.TDLEN(q), uint32(len(ring)))
		d.wr(reg.TDH(q), 0)
		d.wr(reg.TDT(q), 0)
		if d.opt.headWB {
			hb, head := d.mem.alloc(8, 8)
			r.head = head
			d.wr(reg.TDWBAH(q), uint32(hb>>32))
			d.wr(reg.TDWBAL(q), uint32(hb)|1)
		}
		d.wr(reg.TQSM(q/4), d.rd(reg.TQSM(q/4))|uint32(q%16)<<(q%4*8))
		d.wr(reg.TXDCTL(q), reg.TXDCTL_ENABLE|uint32(d.opt.wthresh)<<16)
		d.poll(reg.TXDCTL(q), reg.TXDCTL_ENABLE, reg.TXDCTL_ENABLE)
	}
}

// txWords is the second word of a data descriptor.
func txWords(n, total int, eop, rs bool) uint64 {
	w := uint64(n) | 3<<20 | reg.TXD_DEXT | reg.TXD_IFCS | uint64(total)<<46
	if eop {
		w |= reg.TXD_EOP
	}
	if rs {
		w |= reg.TXD_RS
	}
	return w
}

// send puts a frame, cut into segments of at most seg bytes (0: one), into the ring of q, and rings if ring is set. It
// returns false when there is no room.
func (d *mini) send(q int, frame []byte, seg int, ring bool) bool {
	r := d.tx[q]
	if seg == 0 {
		seg = len(frame)
	}
	need := (len(frame) + seg - 1) / seg
	d.reclaim(q)
	if r.busy+need > d.opt.desc-1 {
		return false
	}
	for rest := frame; len(rest) > 0; {
		n := min(seg, len(rest))
		i := r.tail
		copy(r.buf[i], rest[:n])
		rest = rest[n:]
		eop := len(rest) == 0
		store(r.ring[16*i:], r.bus[i])
		store(r.ring[16*i+8:], txWords(n, len(frame), eop, eop))
		if eop {
			r.last = append(r.last, i)
		}
		r.tail = (r.tail + 1) % d.opt.desc
		r.busy++
	}
	if ring {
		d.wr(reg.TDT(q), uint32(r.tail))
	}
	return true
}

func (d *mini) reclaim(q int) {
	r := d.tx[q]
	for len(r.last) > 0 {
		i := r.last[0]
		if r.head != nil {
			h := int(load(r.head) & 0xFFFF)
			if (h-r.clean+d.opt.desc)%d.opt.desc < (i+1-r.clean+d.opt.desc)%d.opt.desc {
				return
			}
		} else if load(r.ring[16*i+8:])&reg.TXD_DD == 0 {
			return
		}
		r.last = r.last[1:]
		n := (i + 1 - r.clean + d.opt.desc) % d.opt.desc
		for k := range n {
			for j := range r.buf[(r.clean+k)%d.opt.desc][:64] { // what is given back may be used again
				r.buf[(r.clean+k)%d.opt.desc][j] = 0xEE
			}
		}
		r.busy -= n
		r.clean = (i + 1) % d.opt.desc
	}
}

// recv returns the next frame of q, or nil; w0 and w1 are those of its last descriptor.
func (d *mini) recv(q int) (frame []byte, w0, w1 uint64) {
	r := d.rx[q]
	for {
		i := r.next
		w1 = load(r.ring[16*i+8:])
		if w1&reg.RXD_DD == 0 {
			return nil, 0, 0
		}
		w0 = load(r.ring[16*i:])
		r.part = append(r.part, r.buf[i][:w1>>32&0xFFFF]...)
		clear(r.buf[i])
		store(r.ring[16*i:], r.bus[i])
		store(r.ring[16*i+8:], 0)
		r.next = (i + 1) % d.opt.desc
		if w1&reg.RXD_EOP != 0 {
			frame = r.part
			r.part = nil
			d.wr(reg.RDT(q), uint32(i))
			return frame, w0, w1
		}
	}
}

// expect waits for a frame on q and compares it.
func (d *mini) expect(q int, want []byte) (w0, w1 uint64) {
	d.t.Helper()
	for range 4000 {
		got, w0, w1 := d.recv(q)
		if got == nil {
			d.sleep(500)
			continue
		}
		if !bytes.Equal(got, want) {
			d.t.Fatalf("received %d bytes % x…, want %d bytes % x…", len(got), got[:min(32, len(got))], len(want), want[:min(32, len(want))])
		}
		return w0, w1
	}
	d.t.Fatalf("a frame of %d bytes did not arrive; misuse %v", len(want), d.card.Misuse())
	return 0, 0
}

// frameTo is a frame of n bytes for mac with contents that depend on id.
func frameTo(mac [6]byte, n int, id byte) []byte {
	f := make([]byte, n)
	for i := range f {
		f[i] = byte(i)*31 + id
	}
	copy(f, mac[:])
	copy(f[6:], []byte{2, 0, 0, 0, 0, 0xEE})
	f[12], f[13] = 0x88, 0xB5 // local experimental ethertype
	return f
}

var macB = [6]byte{2, 0, 0, 0, 0, 0xB}

func padded(f []byte) []byte {
	for len(f) < 60 {
		f = append(f, 0)
	}
	return f
}
