package engine

import (
	"context"
	"fmt"
	"time"

	"bare.wire/clock"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/link"
)

// fakePort is a card without registers: a ring, a MAC of a given rate, and an end of a simulated wire. It is driven by the
// one worker that uses it and by timers of its virtual clock.
type fakePort struct {
	clk  *clock.Virtual
	end  *link.End
	mac  byte
	rate uint64 // bit/s of the MAC
	ring int
	pool *mbuf.Pool
	rx   *mbuf.Cache

	busy  int64   // when the MAC has sent all it was given
	sent  []int64 // when each frame of the ring has been sent
	stats nic.Stats
	gone  error
	late  int64 // from when on the link is up

	// foreign frames are received before all others.
	foreign [][]byte
	// damage, when set, may change a received frame.
	damage func(n uint64, frame []byte) []byte
	after  func(n uint64) // called when frame n is given to Send
	stuck  bool           // takes frames and never says that time passes
}

func newPair(cfg link.Config) (a, b *fakePort, w *link.Wire, clk *clock.Virtual) {
	cfg.Record = true
	w, err := link.New(cfg)
	if err != nil {
		panic(err)
	}
	clk = clock.NewVirtual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	clk.AdvanceTo(123_456_789) // runs start at an odd time
	a = &fakePort{clk: clk, end: w.A(), mac: 1, rate: 10e9, ring: 512}
	b = &fakePort{clk: clk, end: w.B(), mac: 2, rate: 10e9, ring: 512}
	return a, b, w, clk
}

func (p *fakePort) Info() nic.Info {
	return nic.Info{Driver: "fake", Device: "fake", MAC: [6]byte{2, 0, 0, 0, 0, p.mac}, NUMANode: -1, RxQueues: 1, TxQueues: 1, Software: true}
}

func (p *fakePort) Start(_ context.Context, cfg nic.Config) error {
	p.pool, p.rx = cfg.Pool, cfg.Pool.NewCache()
	return nil
}

// Stop has a buffer quarantined when the card is gone, as a driver has.
func (p *fakePort) Stop() error {
	if p.rx == nil {
		return nil
	}
	var err error
	if p.gone != nil {
		p.pool.Quarantine("fake", p.rx.Alloc())
		err = fmt.Errorf("a buffer is in quarantine: %w", p.gone)
	}
	p.rx.Close()
	p.rx = nil
	return err
}

func (p *fakePort) Close() error {
	err := p.Stop()
	p.pool.ReleaseQuarantine("fake")
	return err
}

func (p *fakePort) Rx(int) nic.RxQueue { return p }

func (p *fakePort) ArmLink(*nic.Waiter, nic.Link) bool { return false }

func (p *fakePort) Tx(int) nic.TxQueue   { return fakeTx{p} }
func (p *fakePort) Stats() nic.Stats     { return p.stats }
func (p *fakePort) Err() error           { return p.gone }
func (p *fakePort) Housekeep(time.Time)  {}
func (p *fakePort) Filters() nic.Filters { return nil }
func (p *fakePort) Link() nic.Link       { return nic.Link{Up: p.clk.Nanos() >= p.late, Speed: p.rate} }
func (p *fakePort) String() string       { return fmt.Sprint("fake ", p.mac) }

func (p *fakePort) Recv(into []*mbuf.Buf) int {
	n := 0
	for n < len(into) && p.gone == nil {
		data, ok := p.arrived()
		if !ok {
			break
		}
		into[n] = p.store(data)
		p.stats.RxPackets++
		n++
	}
	return n
}

func (p *fakePort) arrived() ([]byte, bool) {
	if len(p.foreign) > 0 {
		data := p.foreign[0]
		p.foreign = p.foreign[1:]
		return data, true
	}
	f, ok := p.end.Receive(p.clk.Nanos())
	if ok && p.damage != nil {
		return p.damage(f.ID, f.Data), true
	}
	return f.Data, ok
}

// store makes a buffer of data, in segments of at most 2048 bytes.
func (p *fakePort) store(data []byte) *mbuf.Buf {
	var head, last *mbuf.Buf
	for head == nil || len(data) > 0 {
		b := p.rx.Alloc()
		room, err := b.Reserve(min(len(data), 2048))
		if err != nil {
			panic(err)
		}
		data = data[copy(room, data):]
		if head == nil {
			head = b
		} else {
			last.SetNext(b)
		}
		last = b
	}
	return head
}

func (p *fakePort) Arm(w *nic.Waiter) bool {
	at, ok := p.end.Next()
	if len(p.foreign) > 0 || ok && at <= p.clk.Nanos() {
		return false
	}
	if ok {
		p.clk.At(at, w.Wake)
	}
	return true
}

type fakeTx struct{ p *fakePort }

func (q fakeTx) Send(pkts []*mbuf.Buf) int {
	p := q.p
	q.Reclaim()
	for i, b := range pkts {
		if len(p.sent) >= p.ring || p.gone != nil {
			p.stats.TxFull++
			return i
		}
		if p.after != nil {
			p.after(p.stats.TxPackets)
		}
		bits := int64(b.FrameLen()+24) * 8
		p.busy = max(p.busy, p.clk.Nanos()) + bits*1e9/int64(p.rate)
		p.end.Transmit(b.Bytes(), p.busy)
		if !p.stuck {
			p.sent = append(p.sent, p.busy)
		}
		p.stats.TxPackets++
		b.Free()
	}
	return len(pkts)
}

func (q fakeTx) Reclaim() int {
	n, now := 0, q.p.clk.Nanos()
	for n < len(q.p.sent) && q.p.sent[n] <= now {
		n++
	}
	q.p.sent = append(q.p.sent[:0], q.p.sent[n:]...)
	return n
}

func (q fakeTx) Arm(w *nic.Waiter) bool {
	if len(q.p.sent) == 0 {
		return true
	}
	if q.p.sent[0] <= q.p.clk.Nanos() {
		return false
	}
	q.p.clk.At(q.p.sent[0], w.Wake)
	return true
}
