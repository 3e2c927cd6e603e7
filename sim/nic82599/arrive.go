package nic82599

import (
	"bare.wire/ixgbe/reg"
	"bare.wire/sim"
	"bare.wire/sim/link"
)

// arrive takes the next frame from the wire, or from the card's own transmitter in loopback, if it is due. It returns when
// the next one is: a time that is not in the future if there was one.
func (c *Card) arrive(master bool) int64 {
	e := &c.rx
	at, ok := c.nextArrival()
	if !ok {
		return sim.Never
	}
	due := at
	if master && e.buf.empty() {
		due += e.lag // else it goes into the packet buffer, which takes no time
	}
	if due > c.now {
		return due
	}
	if e.drawn++; e.drawn >= 8 {
		e.drawn, e.lag = 0, c.rng.Delay(c.cfg.Timing.DMA)
	}
	f, ok := c.takeArrival()
	if !ok {
		return sim.Never
	}
	if c.phy.up && c.hot.rxOn && c.accept(f.Data, f.BadFCS) {
		c.admit(f.Data, max(due, e.floor), f.BadFCS, master)
	}
	return due
}

func (c *Card) nextArrival() (int64, bool) {
	if c.hot.loopback {
		return c.rx.loop.next()
	}
	if c.end == nil {
		return 0, false
	}
	return c.end.Next()
}

func (c *Card) takeArrival() (link.Frame, bool) {
	if c.hot.loopback {
		return c.rx.loop.take(), true
	}
	return c.end.Receive(c.now)
}

// admit takes an accepted frame to its queue, or into the packet buffer when something has to wait; when that is full the
// frame is missed.
func (c *Card) admit(f []byte, t int64, bad, master bool) {
	e := &c.rx
	if e.buf.empty() && master && c.deliver(f, t, bad) {
		return
	}
	if !e.buf.push(f, t, bad, c.hot.rxBuf) {
		c.add(reg.MPC(0), 1)
		c.count.RxMissed++
		c.raise(0, reg.EICR_RX_MISS)
	}
}

// pauseAddress is the destination of pause frames, 01-80-C2-00-00-01, first byte lowest (IEEE 802.3 annex 31B).
const pauseAddress = 0x010000C28001

// forControl says whether a MAC control frame is this station's: by the address of pause frames or its own (annex 31B.1).
func (c *Card) forControl(d uint64) bool {
	return d == pauseAddress || d == uint64(c.val(reg.RAL(0)))|uint64(c.val(reg.RAH(0))&0xFFFF)<<32
}

// accept is the MAC: it counts a frame and says whether it goes on.
func (c *Card) accept(f []byte, bad bool) bool {
	n := len(f) + fcsLen
	c.add(reg.TPR, 1)
	c.add36(reg.TORL, n)
	limit := c.hot.maxRx
	if limit == 1518 && len(f) >= 14 && be16(f[12:]) == c.hot.vet {
		limit += 4
	}
	switch {
	case n < 12: // not even counted (specification update, clarification 18)
		return false
	case n < 64 && bad:
		c.add(reg.RFC, 1)
		return false
	case n < 64:
		c.add(reg.RUC, 1)
		return false
	case bad:
		c.add(reg.CRCERRS, 1)
		if n > limit {
			c.add(reg.RJC, 1)
		}
		return c.hot.sbp && n <= limit
	case n > limit:
		c.add(reg.ROC, 1)
		return false
	}
	if et := be16(f[12:]); et == etherMAC {
		if !c.control(f) {
			return false
		}
	} else if c.hot.countLenErr && et <= 1500 && int(et) > len(f)-14 {
		c.add(reg.RLEC, 1)
	}
	if !c.pass(f) {
		c.count.RxFiltered++
		return false
	}
	c.countRx(f)
	return true
}

// control is a MAC control frame; true: it goes to the host. Pause frames do only if MFLCN says so.
func (c *Card) control(f []byte) bool {
	if be16(f[14:]) == 1 && c.forControl(destination(f)) {
		quanta := int64(be16(f[16:])) // of 512 bit times
		if quanta == 0 {
			c.add(reg.LXONRXCNT, 1)
		} else {
			c.add(reg.LXOFFRXCNT, 1)
		}
		c.count.PauseSeen++
		if c.hot.honourPause && !c.cfg.Faults.NoPause {
			c.tx.mac.hold = c.now + quanta*64*c.hot.psPerByte/1000
		}
		if c.hot.dropPause {
			return false
		}
	}
	return c.hot.passMC
}

// packetBuffer holds frames that have arrived and wait for descriptors, first come first served.
type packetBuffer struct {
	mem  []byte
	recs []bufferedFrame
	head int // oldest record
	n    int
	w    int // where the next frame goes in mem
	used int // bytes as the card counts them
}

type bufferedFrame struct {
	off, len int
	at       int64
	bad      bool
}

// slack is room beside what the card counts, so that no frame lies across the end.
const slack = 32 << 10

func (b *packetBuffer) reset()      { b.head, b.n, b.w, b.used = 0, 0, 0, 0 }
func (b *packetBuffer) empty() bool { return b.n == 0 }

// push adds a frame; false: there is no room in limit bytes.
func (b *packetBuffer) push(f []byte, at int64, bad bool, limit int) bool {
	size := max(len(f)+fcsLen, 64)
	if b.used+size > limit {
		return false
	}
	if b.n == 0 {
		b.w = 0
	}
	if want := limit + slack; len(b.mem) < want && b.n == 0 {
		b.mem, b.recs = make([]byte, want), make([]bufferedFrame, want/64)
		b.head = 0
	}
	if b.w+len(f) > len(b.mem) {
		b.w = 0
	}
	if b.n > 0 {
		if oldest := b.recs[b.head].off; oldest >= b.w && oldest < b.w+len(f) || b.n == len(b.recs) {
			return false
		}
	}
	copy(b.mem[b.w:], f)
	b.recs[(b.head+b.n)%len(b.recs)] = bufferedFrame{off: b.w, len: len(f), at: at, bad: bad}
	b.n++
	b.w += len(f)
	b.used += size
	return true
}

// front is the oldest frame.
func (b *packetBuffer) front() (f []byte, at int64, bad, ok bool) {
	if b.n == 0 {
		return nil, 0, false, false
	}
	r := &b.recs[b.head]
	return b.mem[r.off : r.off+r.len], r.at, r.bad, true
}

func (b *packetBuffer) pop() {
	b.used -= max(b.recs[b.head].len+fcsLen, 64)
	b.head = (b.head + 1) % len(b.recs)
	b.n--
}

// loopback is the short wire from the card's transmitter to its receiver.
type loopback struct {
	frames []loopFrame
	head   int
	n      int
}

type loopFrame struct {
	data []byte
	at   int64
}

func (l *loopback) reset() { l.head, l.n = 0, 0 }

func (l *loopback) push(f []byte, at int64) {
	if l.n == len(l.frames) {
		grown := make([]loopFrame, max(64, 2*len(l.frames)))
		for i := range l.n {
			grown[i] = l.frames[(l.head+i)%len(l.frames)]
		}
		l.frames, l.head = grown, 0
	}
	e := &l.frames[(l.head+l.n)%len(l.frames)]
	e.data, e.at = append(e.data[:0], f...), at
	l.n++
}

func (l *loopback) next() (int64, bool) {
	if l.n == 0 {
		return 0, false
	}
	return l.frames[l.head].at, true
}

// take removes the oldest frame; its data is valid until as many frames as there is room for have been pushed.
func (l *loopback) take() link.Frame {
	e := &l.frames[l.head]
	l.head = (l.head + 1) % len(l.frames)
	l.n--
	return link.Frame{Data: e.data, At: e.at}
}
