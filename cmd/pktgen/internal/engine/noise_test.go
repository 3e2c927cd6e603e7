package engine

import (
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
