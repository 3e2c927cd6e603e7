package engine

import (
	"context"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/link"
)

// echo is a card that gives back the very buffers it was sent.
type echo struct {
	*fakePort
	bufs []*mbuf.Buf
}

func (e *echo) Rx(int) nic.RxQueue { return e }
func (e *echo) Tx(int) nic.TxQueue { return echoTx{fakeTx{e.fakePort}, e} }
func (e *echo) Recv(into []*mbuf.Buf) int {
	n := copy(into, e.bufs)
	e.bufs = e.bufs[:copy(e.bufs, e.bufs[n:])]
	return n
}

type echoTx struct {
	fakeTx
	e *echo
}

func (q echoTx) Send(pkts []*mbuf.Buf) int {
	q.e.bufs = append(q.e.bufs, pkts...)
	return len(pkts)
}

// rounds gives a worker whose every round sends and receives 32 frames.
func rounds(t testing.TB) (round func()) {
	cfg, a, _, _, clk := setting(t, "32Mpps", link.Config{})
	e := &echo{fakePort: a, bufs: make([]*mbuf.Buf, 0, 256)}
	cfg.Tx, cfg.Rx, cfg.Duration, cfg.Frame.Flows = Port{e, "echo"}, Port{e, "echo"}, 0, 1000
	tx, rx, err := pools(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(context.Background(), nic.Config{Pool: rx}); err != nil {
		t.Fatal(err)
	}
	w, err := newWorker(cfg, []Port{cfg.Tx}, tx, rx)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.begin(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, b := range e.bufs {
			b.Free()
		}
		w.cache.Close()
		w.rxCache.Close()
		for _, err := range []error{e.Stop(), w.waiter.Close(), tx.Close(), rx.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return func() {
		clk.AdvanceTo(clk.Nanos() + 1000)
		n, err := w.send(clk.Nanos())
		if err != nil || n == 0 {
			t.Fatalf("sent %d: %v", n, err)
		}
		if _, err := w.receive(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	round := rounds(t)
	for range 100 {
		round()
	}
	n := testing.AllocsPerRun(100, round)
	if slower == 1 && n != 0 { // where every buffer is watched, watching allocates
		t.Errorf("%v allocations a round of 32 frames", n)
	}
}

// BenchmarkRound is the generator's own cost: build, stamp, send, receive, verify, account, time; ns a frame.
func BenchmarkRound(b *testing.B) {
	round := rounds(b)
	for b.Loop() {
		round()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/32, "ns/frame")
}
