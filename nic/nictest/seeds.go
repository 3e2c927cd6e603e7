package nictest

import (
	"math/rand/v2"
	"slices"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
)

// lane is one direction of the wire in interleave.
type lane struct {
	from, to nic.Port
	pool     *mbuf.Pool
	sent     [][]byte // not received yet
	queue    []*mbuf.Buf
	count    int
}

// interleave does what a seed draws: sends on both ports, in bursts and segments of all sizes, receives, reclaims, sleeps
// and housekeeps in any order. Never are more frames under way than the rings hold, so none may be lost.
func (r *run) interleave(seed uint64) {
	r.Helper()
	rng := rand.New(rand.NewPCG(seed, 0x9E3779B97F4A7C15))
	i := r.A.Info()
	shortest := min(max(i.MinDesc, 64), i.MaxDesc)
	ring := func() int { return shortest + i.DescAlign*rng.IntN(8) }
	size := 1024 << rng.IntN(2)
	lanes := []*lane{{from: r.A, to: r.B}, {from: r.B, to: r.A}}
	for _, l := range lanes {
		pool := r.pool(mbuf.Config{Buffers: 256 + rng.IntN(256), Size: size})
		if l.pool = r.pool(mbuf.Config{Buffers: 1400, Size: 2048}); rng.IntN(2) == 0 {
			pool = l.pool // frames are sent from the pool that the port receives into
		}
		r.start(l.from, nic.Config{RxDesc: ring(), TxDesc: ring(), BlockWhenFull: rng.IntN(2) == 0, Pool: pool})
	}
	r.up()
	into := make([]*mbuf.Buf, 64)
	for range 150 {
		l := lanes[rng.IntN(2)]
		switch rng.IntN(10) {
		case 0, 1, 2:
			r.drawFrames(rng, l, i.MaxSegs)
		case 3:
			l.from.Tx(0).Reclaim()
		case 4, 5:
			r.pass(time.Duration(rng.IntN(5000)))
		case 6:
			r.pass(time.Duration(rng.IntN(50)))
		case 7:
			r.housekeep()
		default:
			r.take(l, into[:1+rng.IntN(len(into))])
		}
	}
	for _, l := range lanes {
		r.send(l.from.Tx(0), l.queue...)
		l.queue = nil
	}
	for _, l := range lanes {
		for range patience {
			if len(l.sent) == 0 {
				break
			}
			r.pass(moment)
			r.take(l, into)
		}
		if len(l.sent) != 0 {
			r.Fatalf("%d of %d frames did not come; from %s\nto %s", len(l.sent), l.count, brief(l.from.Stats()), brief(l.to.Stats()))
		}
		r.nothing(l.to.Rx(0))
		if s := l.to.Stats(); s.RxPackets != uint64(l.count) {
			r.Errorf("RxPackets is %d, want %d", s.RxPackets, l.count)
		}
	}
}

// drawFrames builds some frames and offers them, with what was left over the last time.
func (r *run) drawFrames(rng *rand.Rand, l *lane, maxSegs int) {
	for range 1 + rng.IntN(20) {
		if len(l.sent) >= 24 { // 24 frames take at most 48 of the shortest ring's descriptors
			break
		}
		n := minSend + rng.IntN(200)
		if rng.IntN(4) == 0 {
			n = minSend + rng.IntN(defaultMaxFrame-minSend+1)
		}
		f := r.to(l.to, n)
		lens := []int{n}
		if maxSegs > 1 && rng.IntN(3) == 0 {
			lens = cut(n, 1+rng.IntN(min(n, maxSegs)))
		}
		l.sent = append(l.sent, f)
		l.queue = append(l.queue, r.build(l.pool, f, lens...))
		l.count++
	}
	n := l.from.Tx(0).Send(l.queue)
	l.queue = slices.Delete(l.queue, 0, n)
}

// take receives what there is and compares it with what was sent first.
func (r *run) take(l *lane, into []*mbuf.Buf) {
	r.Helper()
	n := l.to.Rx(0).Recv(into)
	if n > len(l.sent) {
		r.Fatalf("%d frames received, %d are under way", n, len(l.sent))
	}
	r.check(into[:n], l.sent[:n])
	l.sent = l.sent[n:]
}
