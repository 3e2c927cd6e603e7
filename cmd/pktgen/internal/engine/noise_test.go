package engine

import (
	"context"
	"testing"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/link"
)

// noisy is a card on a busy network: whenever it is asked there are frames of others.
type noisy struct {
	*fakePort
	frame []byte
}

func (p noisy) Rx(int) nic.RxQueue { return p }

func (p noisy) Recv(into []*mbuf.Buf) int {
	p.clk.AdvanceTo(p.clk.Nanos() + 50_000)
	n := p.fakePort.Recv(into[:1])
	for ; n < len(into); n++ {
		into[n] = p.store(p.frame)
	}
	return n
}

// The drain waits for late frames, not for the network to fall silent.
func TestPortThatIsNeverSilentEndsTheRun(t *testing.T) {
	cfg, _, b, _, _ := setting(t, "10kpps", link.Config{Delay: time.Millisecond})
	cfg.Rx.Port = noisy{b, make([]byte, 60)}
	cfg.Duration, cfg.Drain = 20*time.Millisecond, 10*time.Millisecond
	r := run(t, cfg)
	s := r.Streams[0]
	if !r.Valid || s.Tx.Packets != 200 || s.Loss.Lost != 0 || s.Loss.Unsigned == 0 {
		t.Errorf("%+v %v", s.Loss, r.Reasons)
	}
	if over := r.ElapsedNS - int64(30*time.Millisecond); over < 0 || over > 1_000_000 {
		t.Errorf("the run took %d ns more than its time and drain", over)
	}
}

// Whoever interrupts a long drain wants the result now.
func TestInterruptEndsTheDrain(t *testing.T) {
	cfg, _, _, _, clk := setting(t, "10kpps", link.Config{})
	cfg.Count, cfg.Duration, cfg.Interval, cfg.Drain = 10, 0, 0, time.Hour
	ctx, cancel := context.WithCancel(context.Background())
	start := clk.Nanos()
	cfg.Rx.Port = &watched{fakePort: cfg.Rx.Port.(*fakePort), at: start + int64(time.Minute), f: cancel}
	r, err := Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	follows(t, r)
	if r.Complete || r.Streams[0].Loss.Lost != 0 || clk.Nanos()-start > int64(2*time.Minute) {
		t.Errorf("complete %v after %d ns: %+v", r.Complete, clk.Nanos()-start, r.Streams[0].Loss)
	}
}

// watched is a card whose housekeeping calls f when it is time.
type watched struct {
	*fakePort
	at int64
	f  func()
}

func (p *watched) Housekeep(time.Time) {
	if p.clk.Nanos() >= p.at {
		p.f()
	}
}
