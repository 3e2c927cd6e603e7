package nictest

import (
	"errors"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
)

// testStopInFlight stops the sender, and then the receiver, with frames on the ring, on the wire and in buffers.
func testStopInFlight(r *run) {
	tx, rx := r.pool(mbuf.Config{}), r.pool(mbuf.Config{})
	for k := range r.few(30) {
		r.start(r.A, nic.Config{Pool: tx, TxDesc: 128})
		r.start(r.B, nic.Config{Pool: rx, RxDesc: 128})
		r.up()
		n := r.A.Tx(0).Send(r.buildFor(tx, 127))
		r.pass(moment * [...]time.Duration{0, 1, 3, 10, 100}[k%5])
		into := make([]*mbuf.Buf, 16)
		r.free(into[:r.B.Rx(0).Recv(into)]...)
		first, second := r.A, r.B
		if k%2 == 1 {
			first, second = r.B, r.A
		}
		r.stop(first, second)
		if out := r.out(tx) + r.out(rx); out != 0 {
			r.Fatalf("round %d: %d buffers are not back", k, out)
		}
		s := r.A.Stats()
		if s.TxPackets+s.TxDropped[nic.TxLost] != uint64(n) {
			r.Errorf("round %d: Send took %d, %d were sent and %d lost with the stop", k, n, s.TxPackets, s.TxDropped[nic.TxLost])
		}
	}
}

func (r *run) buildFor(pool *mbuf.Pool, n int) []*mbuf.Buf {
	return r.buildAll(pool, r.frames(r.B, n, 100))
}

func testStopLinkDown(r *run) {
	if r.SetLink == nil {
		r.cannot("a wire that is taken off")
		return
	}
	tx := r.pool(mbuf.Config{})
	r.start(r.A, nic.Config{Pool: tx, TxDesc: 128})
	r.start(r.B, nic.Config{})
	r.up()
	r.SetLink(false)
	r.Settle()
	r.housekeep()
	bufs := r.buildFor(tx, 100)
	n := r.A.Tx(0).Send(bufs)
	r.free(bufs[n:]...)
	r.Settle()
	r.stop(r.A)
	if out := r.out(tx); out != 0 {
		r.Errorf("%d of %d buffers are not back", out, n)
	}
	if s := r.A.Stats(); s.TxPackets+s.TxDropped[nic.TxLost] != uint64(n) {
		r.Errorf("Send took %d, %d were sent and %d lost with the stop", n, s.TxPackets, s.TxDropped[nic.TxLost])
	}
	r.SetLink(true)
}

func testStartStop(r *run) {
	tx, rx := r.pool(mbuf.Config{}), r.pool(mbuf.Config{})
	for k := range r.few(50) {
		r.start(r.A, nic.Config{Pool: tx, TxDesc: 64, RxDesc: 64})
		r.start(r.B, nic.Config{Pool: rx, TxDesc: 64, RxDesc: 64})
		if k%5 == 0 { // sometimes with traffic, mostly without so much as a link
			r.up()
			f := r.to(r.B, 60+k)
			r.sendFrames(r.A.Tx(0), tx, f)
			r.expect(r.B.Rx(0), f)
		}
		r.stop(r.B, r.A)
		r.stop(r.A) // once more does nothing
		if n := r.out(tx) + r.out(rx); n != 0 {
			r.Fatalf("round %d: %d buffers are not back", k, n)
		}
	}
}

// testRestart starts with one configuration after another; nothing of the last one is left.
func testRestart(r *run) {
	i := r.A.Info()
	pool := r.pool(mbuf.Config{Buffers: 8192})
	for k, cfg := range []nic.Config{
		{MaxFrame: i.MaxFrame, Promiscuous: true},
		{},
		{RxQueues: min(4, i.RxQueues), TxQueues: min(3, i.TxQueues), Offloads: i.Offloads & nic.RxRSSHash},
		{RxDesc: i.MaxDesc, TxDesc: i.MinDesc},
		{AllMulticast: true, BlockWhenFull: true},
		{RxDesc: i.MinDesc, TxDesc: i.MaxDesc},
	} {
		r.start(r.A, nic.Config{Pool: pool, MaxFrame: i.MaxFrame})
		cfg.Pool = pool
		r.start(r.B, cfg)
		r.up()
		good := r.to(r.B, 80)
		long := r.to(r.B, 1900)
		foreign := r.frame([6]byte{2, 9, 9, 9, 9, 9}, 80)
		multicast := r.frame([6]byte{1, 0, 0x5e, 1, 1, 1}, 80)
		want := [][]byte{good}
		open := !r.filters("what is not for the port")
		if cfg.MaxFrame >= 1900 {
			want = append(want, long)
		}
		if cfg.Promiscuous || open {
			want = append(want, foreign)
		}
		if cfg.Promiscuous || cfg.AllMulticast || open {
			want = append(want, multicast)
		}
		r.sendFrames(r.A.Tx(0), pool, good, long, foreign, multicast)
		r.Settle()
		got := r.drainQueue(r.B.Rx(0))
		if len(got) != len(want) {
			r.Fatalf("configuration %d: %d frames received, want %d", k, len(got), len(want))
		}
		r.check(got, want)
		if s := r.B.Stats(); s.RxPackets != uint64(len(want)) {
			r.Errorf("configuration %d: statistics do not begin at the start: %d, want %d", k, s.RxPackets, len(want))
		}
		r.stop(r.A, r.B)
	}
}

func testWrongState(r *run) {
	pool := r.pool(mbuf.Config{})
	if err := r.A.Stop(); err != nil {
		r.Errorf("stop of a port that was never started: %v", err)
	}
	r.A.Housekeep(r.Clock.Now())
	if err := r.A.Filters().SetPromiscuous(true); !errors.Is(err, nic.ErrNotStarted) && !errors.Is(err, errors.ErrUnsupported) {
		r.Errorf("a filter before Start: %v, want ErrNotStarted", err)
	}
	r.start(r.A, nic.Config{Pool: pool})
	if err := r.A.Start(r.ctx, nic.Config{Pool: pool}); err == nil {
		r.Error("started twice")
	}
	rx, tx := r.A.Rx(0), r.A.Tx(0)
	r.stop(r.A)
	bufs := r.buildFor(pool, 2)
	if n := rx.Recv(make([]*mbuf.Buf, 4)); n != 0 {
		r.Errorf("Recv on a stopped port: %d", n)
	}
	if n := tx.Send(bufs); n != 0 {
		r.Errorf("Send on a stopped port took %d", n)
	}
	if n := tx.Reclaim(); n != 0 {
		r.Errorf("Reclaim on a stopped port: %d", n)
	}
	r.free(bufs...)
	w := r.waiter()
	if rx.Arm(w) || tx.Arm(w) {
		r.Error("Arm on a stopped port says that one may sleep: nobody would wake")
	}
	if l := r.A.Link(); l.Up {
		r.Errorf("the link of a stopped port is %v", l)
	}
	if err := r.A.Close(); err != nil {
		r.Errorf("close: %v", err)
	}
	if err := r.A.Close(); err != nil {
		r.Errorf("close again: %v", err)
	}
	if err := r.A.Start(r.ctx, nic.Config{Pool: pool}); err == nil {
		r.Error("started after Close")
	}
	if err := r.A.Stop(); err != nil {
		r.Errorf("stop after Close: %v", err)
	}
}

func testLink(r *run) {
	if r.SetLink == nil {
		r.cannot("a wire that is taken off")
		return
	}
	r.startBoth(nic.Config{})
	pool := r.pool(mbuf.Config{})
	for range 3 {
		f := r.to(r.B, 64)
		r.sendFrames(r.A.Tx(0), pool, f)
		r.expect(r.B.Rx(0), f)
		r.A.Tx(0).Reclaim()

		r.SetLink(false)
		r.Settle()
		r.housekeep()
		if r.A.Link().Up || r.B.Link().Up {
			r.Fatalf("the wire is off; A says %v, B %v", r.A.Link(), r.B.Link())
		}
		bufs := r.buildFor(pool, 600) // more than the ring has room for
		n := r.A.Tx(0).Send(bufs)
		r.free(bufs[n:]...)
		if n == len(bufs) {
			r.Fatalf("Send took %d frames on a ring of 512 with the link down", n)
		}
		r.Settle()
		r.housekeep()
		r.SetLink(true)
		r.up()
		got := r.drainQueue(r.B.Rx(0)) // what was sent while the link was down may be lost, or come now
		r.free(got...)
		r.A.Tx(0).Reclaim()
		if out := r.out(pool); out != 0 {
			r.Fatalf("%d buffers have not come back after the link did", out)
		}
	}
	if err := errors.Join(r.A.Err(), r.B.Err()); err != nil {
		r.Errorf("the link was down for a while: %v", err)
	}
}

// testRemoval pulls B's card out with frames everywhere.
func testRemoval(r *run) {
	if r.Remove == nil {
		r.cannot("a card that is pulled out")
		return
	}
	tx, rx := r.pool(mbuf.Config{}), r.pool(mbuf.Config{})
	r.start(r.A, nic.Config{Pool: tx})
	r.start(r.B, nic.Config{Pool: rx})
	r.up()
	r.send(r.A.Tx(0), r.buildFor(tx, 100)...)
	n := r.B.Tx(0).Send(r.buildFor(tx, 100))
	r.pass(20 * moment)
	before := r.B.Stats()
	r.Remove(r.B)
	r.housekeep()
	if err := r.B.Err(); !errors.Is(err, nic.ErrGone) {
		r.Fatalf("Err is %v, want one that is ErrGone", err)
	}
	into := make([]*mbuf.Buf, 32)
	more := r.buildFor(tx, 2)
	if a, b, c := r.B.Rx(0).Recv(into), r.B.Tx(0).Send(more), r.B.Tx(0).Reclaim(); a+b+c != 0 {
		r.Errorf("after the removal Recv returns %d, Send %d, Reclaim %d", a, b, c)
	}
	r.free(more...)
	if l := r.B.Link(); l.Up {
		r.Errorf("the link of a port that is gone is %v", l)
	}
	if s := r.B.Stats(); s.RxPackets < before.RxPackets || s.RxPackets > before.RxPackets+1e6 || s.TxPackets > uint64(n) {
		r.Errorf("statistics after the removal: %s", brief(s))
	}
	for what, err := range map[string]error{
		"Filters": r.B.Filters().SetPromiscuous(true),
		"Start":   r.B.Start(r.ctx, nic.Config{Pool: rx}),
	} {
		if err == nil {
			r.Errorf("%s works on a port that is gone", what)
		}
	}
	_ = r.B.Stop() // may say what is in quarantine
	if err := r.B.Close(); err != nil && !errors.Is(err, nic.ErrGone) {
		r.Errorf("close: %v, want nil or one that is ErrGone", err)
	}
	if n := r.out(rx); n != 0 {
		r.Errorf("%d receive buffers are not back after Close", n)
	}
	r.A.Housekeep(r.Clock.Now())
	if err := r.A.Err(); err != nil {
		r.Errorf("the other port: %v", err)
	}
}

// testRemovalWakes has somebody asleep on both queues of a card that is pulled out.
func testRemovalWakes(r *run) {
	if r.Remove == nil {
		r.cannot("a card that is pulled out")
		return
	}
	r.startBoth(nic.Config{})
	w := r.waiter()
	if !r.B.Rx(0).Arm(w) {
		r.Fatal("Arm says that something has come")
	}
	r.Clock.At(r.Clock.Nanos()+1000, func() {
		r.Remove(r.B)
		r.B.Housekeep(r.Clock.Now())
	})
	woken, err := w.Wait(r.Clock.Nanos() + 1e9)
	if !woken || !errors.Is(err, nic.ErrGone) {
		r.Errorf("Wait: %v, %v: whoever sleeps on a card that is pulled out has to wake, and be told", woken, err)
	}
	if r.B.Rx(0).Arm(w) || r.B.Tx(0).Arm(w) {
		r.Error("Arm says that one may sleep on a port that is gone: nobody would wake")
	}
}
