// Package nullnic is an 82599 that says "done" and does nothing else: what is measured with it is the driver.
//
// Its registers are memory. A driver maps them as it maps a card's ([NIC.Mem] with pci.MapBAR) and its doorbells are the
// stores that they are on a card. What a card does to its registers by itself, during reset and set-up, is done by
// [NIC.Poll] whenever the driver waits: [NIC.Clock] wraps the clock given to the driver.
//
// Frames are not moved. [NIC.RxStep] writes back receive descriptors as if frames had arrived, without touching their
// buffers; [NIC.TxStep] marks as sent what the driver has queued. Both are a few instructions a descriptor, run in the
// driver's own goroutine, and serve queue 0. No rule of the datasheet is checked here: that is what package nic82599 is for.
//
// The registers are those of package reg; offsets, reset values and the layout of descriptors come from there (82599
// datasheet §7.1.6, §7.2.3, §8.2).
package nullnic

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"bare.wire/clock"
	"bare.wire/ixgbe/reg"
	"bare.wire/sim"
)

// Config describes a card. Name and Memory are required.
type Config struct {
	Name   string
	Memory sim.Memory // where the driver's rings are
	MAC    [6]byte    // zero: 02:00:00:00:00:01
	Length int        // of each received frame (with RxSegments: of each part), bytes without FCS; 0: 60
}

// NIC is one card. It may be used by one goroutine at a time; Interrupts, ReadConfig and the like too.
type NIC struct {
	cfg Config
	mem []byte
	pci configSpace

	rx, tx           []desc
	rxHead, txHead   uint32
	rxTail, txTail   *uint32 // RDT, TDT
	txHeadRegister   *uint32
	doneMid, doneEnd uint64 // what RxStep writes back for a part, and for the end, of a frame
}

// desc is a descriptor, as the card writes it back (§7.1.6.2, §7.2.3.2.4).
type desc struct{ lo, hi uint64 }

const (
	descSize   = 16
	eepromSize = 2 // EEC.SIZE: 256 words
)

// New makes a card, reset and with its link up.
func New(cfg Config) (*NIC, error) {
	if cfg.Memory == nil {
		return nil, fmt.Errorf("nullnic %q: Config.Memory is nil: give it the Space that the driver uses", cfg.Name)
	}
	if cfg.Length == 0 {
		cfg.Length = 60
	}
	if cfg.Length < 0 || cfg.Length > reg.MaxFrameFCS {
		return nil, fmt.Errorf("nullnic %q: frames of %d bytes: want 1 to %d", cfg.Name, cfg.Length, reg.MaxFrameFCS)
	}
	if cfg.MAC == [6]byte{} {
		cfg.MAC = [6]byte{0x02, 0, 0, 0, 0, 1}
	}
	words := make([]uint64, reg.BARSize/8) // uint64: aligned
	n := &NIC{
		cfg:     cfg,
		mem:     unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), reg.BARSize),
		doneMid: uint64(cfg.Length)<<reg.RXD_LEN_Shift | reg.RXD_DD,
		doneEnd: uint64(cfg.Length)<<reg.RXD_LEN_Shift | reg.RXD_DD | reg.RXD_EOP,
	}
	n.rxTail, n.txTail, n.txHeadRegister = n.at(reg.RDT(0)), n.at(reg.TDT(0)), n.at(reg.TDH(0))
	n.pci.reset()
	n.reset()
	return n, nil
}

// Mem is the register window, BAR 0.
func (n *NIC) Mem() []byte { return n.mem }

func (n *NIC) at(off uint32) *uint32 {
	return (*uint32)(unsafe.Pointer(&n.mem[off:][:4][0]))
}

func (n *NIC) read(off uint32) uint32     { return atomic.LoadUint32(n.at(off)) }
func (n *NIC) write(off uint32, v uint32) { atomic.StoreUint32(n.at(off), v) }

// reset puts every register to its default.
func (n *NIC) reset() {
	clear(n.mem)
	for _, r := range reg.All() {
		for i := range r.Count() {
			v, _ := r.ResetValue(i)
			if off, ok := r.Offset(i); ok && v != 0 {
				n.write(off, v)
			}
		}
	}
	mac := n.cfg.MAC
	n.write(reg.RAL(0), uint32(mac[0])|uint32(mac[1])<<8|uint32(mac[2])<<16|uint32(mac[3])<<24)
	n.write(reg.RAH(0), uint32(mac[4])|uint32(mac[5])<<8|reg.RAH_AV)
	n.rx, n.tx = nil, nil
	n.settle()
}

// settle writes what a card keeps at one value whatever the driver writes.
func (n *NIC) settle() {
	status := n.read(reg.STATUS) | reg.STATUS_GIO
	if n.read(reg.CTRL)&reg.CTRL_GIO_DIS != 0 {
		status &^= reg.STATUS_GIO
	}
	n.write(reg.STATUS, status)
	eec := n.read(reg.EEC)&reg.EEC_REQ | reg.EEC_PRES | reg.EEC_ARD | reg.Put(0, reg.EEC_SIZE, eepromSize)
	if eec&reg.EEC_REQ != 0 {
		eec |= reg.EEC_GNT
	}
	n.write(reg.EEC, eec)
	n.write(reg.RDRXCTL, n.read(reg.RDRXCTL)|reg.RDRXCTL_DMAIDONE)
	n.write(reg.SECRXSTAT, reg.SECRXSTAT_SECRX_RDY)
	n.write(reg.SECTXSTAT, reg.SECTXSTAT_SECTX_RDY)
	n.write(reg.LINKS, reg.LINKS_UP|reg.LINKS_SPEED_10G)
	for _, off := range []uint32{reg.EICR, reg.EICS, reg.EIMC} {
		n.write(off, 0)
	}
}

// Poll does what the card has to do by itself: it ends a reset, answers an EEPROM read, lets go of bits that clear
// themselves. A driver whose waits go through [NIC.Clock] has it called at each of them.
func (n *NIC) Poll() {
	if n.read(reg.CTRL)&(reg.CTRL_RST|reg.CTRL_LNK_RST) != 0 {
		n.reset()
	}
	if v := n.read(reg.EERD); v&reg.EERD_START != 0 {
		word := eepromWord(reg.Get(v, reg.EERD_ADDR))
		n.write(reg.EERD, v&reg.EERD_ADDR|reg.EERD_DONE|reg.Put(0, reg.EERD_DATA, uint32(word)))
	}
	for _, c := range []struct{ off, bits uint32 }{
		{reg.AUTOC, reg.AUTOC_AN_RESTART},
		{reg.MSCA, reg.MSCA_COMMAND},
		{reg.RXDCTL(0), reg.RXDCTL_SWFLSH},
		{reg.TXDCTL(0), reg.TXDCTL_SWFLSH},
	} {
		if v := n.read(c.off); v&c.bits != 0 {
			n.write(c.off, v&^c.bits)
		}
	}
	n.settle()
}

// eepromWord is an EEPROM of nothing but its checksum (§6.1.2.1).
func eepromWord(at uint32) uint16 {
	if at == reg.EE_CHECKSUM {
		return reg.EEPROM_SUM
	}
	return 0
}

// Attach notes where the rings of queue 0 are. Call it once the driver has enabled them, and again after each start; Detach
// ends it.
func (n *NIC) Attach() (err error) {
	n.rx, n.tx = nil, nil
	if n.rx, err = n.ring("receive", reg.RXDCTL(0), reg.RXDCTL_ENABLE, reg.RDBAL(0), reg.RDBAH(0), reg.RDLEN(0)); err != nil {
		return err
	}
	if n.tx, err = n.ring("transmit", reg.TXDCTL(0), reg.TXDCTL_ENABLE, reg.TDBAL(0), reg.TDBAH(0), reg.TDLEN(0)); err != nil {
		return err
	}
	n.rxHead, n.txHead = n.read(reg.RDH(0)), n.read(reg.TDH(0))
	if n.rxHead >= uint32(len(n.rx)) || n.txHead >= uint32(len(n.tx)) {
		return fmt.Errorf("%s: head beyond the ring: RDH is %d of %d, TDH %d of %d", n.cfg.Name, n.rxHead, len(n.rx), n.txHead, len(n.tx))
	}
	return nil
}

// Detach makes the card forget the rings: nothing moves until Attach. Call it before the driver stops, for it then gives the
// rings' memory back.
func (n *NIC) Detach() { n.rx, n.tx = nil, nil }

// ring finds the memory of one ring.
func (n *NIC) ring(what string, ctl, enable, lo, hi, length uint32) ([]desc, error) {
	if n.read(ctl)&enable == 0 {
		return nil, fmt.Errorf("%s: the %s queue is not enabled: start the port first", n.cfg.Name, what)
	}
	bus, size := uint64(n.read(hi))<<32|uint64(n.read(lo)), int(n.read(length))
	if size == 0 || size%reg.RingAlign != 0 || size > reg.RingMaxDescs*descSize || bus%reg.RingAlign != 0 {
		return nil, fmt.Errorf("%s: %s ring of %d bytes at %#x: want a multiple of %d bytes, and of addresses", n.cfg.Name, what, size, bus, reg.RingAlign)
	}
	mem, err := n.cfg.Memory.Bytes(bus, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %s ring: %w", n.cfg.Name, what, err)
	}
	if len(mem) < size || uintptr(unsafe.Pointer(&mem[0]))%descSize != 0 {
		return nil, fmt.Errorf("%s: %s ring at %#x: %d of its %d bytes are in one piece, aligned to %d", n.cfg.Name, what, bus, len(mem), size, descSize)
	}
	return unsafe.Slice((*desc)(unsafe.Pointer(&mem[0])), size/descSize), nil
}

// RxStep lets up to k frames of Config.Length bytes arrive, as many as the driver has given buffers, and returns how many
// that is. It does nothing before Attach.
func (n *NIC) RxStep(k int) int {
	k = min(k, n.rxRoom())
	done := n.doneEnd
	for left := k; left > 0; {
		run := n.rx[n.rxHead:] // to the end of the ring at most
		run = run[:min(left, len(run))]
		for i := range run {
			run[i].lo = 0
			run[i].hi = done
		}
		left -= len(run)
		n.rxHead = advance(n.rxHead, len(run), len(n.rx))
	}
	return k
}

// advance moves a head on by n descriptors, which do not go beyond the ring's end.
func advance(head uint32, n, size int) uint32 {
	if head += uint32(n); head == uint32(size) {
		return 0
	}
	return head
}

// RxSegments lets up to k frames arrive that fill segs buffers each.
func (n *NIC) RxSegments(k, segs int) int {
	segs = max(segs, 1)
	k = max(min(k, n.rxRoom()/segs), 0)
	for i := range k * segs {
		d := &n.rx[n.rxHead]
		d.lo, d.hi = 0, n.doneMid
		if (i+1)%segs == 0 {
			d.hi = n.doneEnd
		}
		n.rxHead = advance(n.rxHead, 1, len(n.rx))
	}
	return k
}

// rxRoom is how many descriptors the driver has handed over and RxStep has not used. A tail that is no descriptor gives 0.
func (n *NIC) rxRoom() int {
	size := uint32(len(n.rx))
	tail := atomic.LoadUint32(n.rxTail)
	if tail >= size {
		return 0
	}
	room := int(tail) - int(n.rxHead)
	if room < 0 {
		room += int(size)
	}
	return room
}

// TxStep sends everything that the driver has queued, reports those descriptors as done for which it asked (RS), and
// returns how many descriptors there were. It does nothing before Attach.
func (n *NIC) TxStep() int {
	tail := atomic.LoadUint32(n.txTail)
	if tail >= uint32(len(n.tx)) {
		return 0
	}
	sent := 0
	for n.txHead != tail {
		run := n.tx[n.txHead:]
		if tail > n.txHead {
			run = n.tx[n.txHead:tail]
		}
		for i := range run {
			if run[i].hi&reg.TXD_RS != 0 {
				run[i].hi |= reg.TXD_DD
			}
		}
		sent += len(run)
		n.txHead = advance(n.txHead, len(run), len(n.tx))
	}
	*n.txHeadRegister = n.txHead
	return sent
}

// Clock wraps the clock that is given to the driver: each Sleep polls the card.
func (n *NIC) Clock(inner clock.Clock) clock.Clock { return pollingClock{inner, n} }

type pollingClock struct {
	clock.Clock
	nic *NIC
}

func (c pollingClock) Sleep(ctx context.Context, d time.Duration) error {
	c.nic.Poll()
	return c.Clock.Sleep(ctx, d)
}

func (c pollingClock) SleepUntil(ctx context.Context, t int64) error {
	c.nic.Poll()
	return c.Clock.SleepUntil(ctx, t)
}

var errConfigAccess = errors.New("want 1, 2 or 4 bytes, aligned, below 256")
