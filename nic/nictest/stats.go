package nictest

import (
	"bare.wire/mbuf"
	"bare.wire/nic"
)

func testStats(r *run) {
	r.startBoth(nic.Config{AllMulticast: true})
	pool := r.pool(mbuf.Config{})
	want := nic.Stats{}
	var frames [][]byte
	for k := range 200 {
		n := 14 + (k*37)%1500
		var f []byte
		switch k % 5 {
		case 0:
			f = r.frame(broadcastMAC, n)
			want.RxBroadcast++
		case 1:
			f = r.frame([6]byte{1, 0, 0x5e, 0, 0, byte(k)}, n)
			want.RxMulticast++
		default:
			f = r.to(r.B, n)
		}
		frames = append(frames, f)
	}
	r.sendFrames(r.A.Tx(0), pool, frames...)
	r.expect(r.B.Rx(0), frames...)
	r.counted(frames)
	if s := r.B.Stats(); r.Lost == nil && (s.RxBroadcast != want.RxBroadcast || s.RxMulticast != want.RxMulticast) {
		r.Errorf("%d broadcast and %d multicast frames, want %d and %d", s.RxBroadcast, s.RxMulticast, want.RxBroadcast, want.RxMulticast)
	}
	// Frames that nobody wants are no losses.
	if r.filters("frames that nobody wants") {
		strangers := [][]byte{r.frame([6]byte{2, 7, 7, 7, 7, 7}, 60), r.frame([6]byte{2, 7, 7, 7, 7, 8}, 60)}
		r.sendFrames(r.A.Tx(0), pool, strangers...)
		r.nothing(r.B.Rx(0))
	}
	if s := r.B.Stats(); s.RxPackets != uint64(len(frames)) || s.RxMissed+s.RxNoDesc+s.RxErrors != 0 {
		r.Errorf("frames for others are counted: %s", brief(s))
	}
	// What is read twice is counted once.
	a, b := r.B.Stats(), r.B.Stats()
	r.housekeep()
	c := r.B.Stats()
	if a.RxPackets != b.RxPackets || b.RxBytes != c.RxBytes || c.RxPackets != a.RxPackets {
		r.Errorf("three readings differ: %s\n%s\n%s", brief(a), brief(b), brief(c))
	}
	r.stop(r.A, r.B)
	if s := r.B.Stats(); s.RxPackets != a.RxPackets || s.RxBytes != a.RxBytes || s.Queues[0].RxPackets != a.RxPackets {
		r.Errorf("the totals are gone with Stop: %s", brief(s))
	}
}

// testStatsMonotonic reads the totals all the time while frames go both ways.
func testStatsMonotonic(r *run) {
	r.startBoth(nic.Config{})
	pool := r.pool(mbuf.Config{})
	ports := []nic.Port{r.A, r.B}
	var last [2]nic.Stats
	var sent, got [2]uint64
	into := make([]*mbuf.Buf, 8)
	for k := range r.few(300) {
		from := k % 2
		other := ports[1-from]
		f := r.frames(other, 1+k%5, 60+k)
		r.send(ports[from].Tx(0), r.buildAll(pool, f)...)
		sent[from] += uint64(len(f))
		r.pass(moment)
		for i, p := range ports {
			n := p.Rx(0).Recv(into)
			r.free(into[:n]...)
			got[i] += uint64(n)
			s := p.Stats()
			if s.RxPackets < last[i].RxPackets || s.RxBytes < last[i].RxBytes || s.TxPackets < last[i].TxPackets || s.TxBytes < last[i].TxBytes {
				r.Fatalf("port %d: totals go back: %s, then %s", i, brief(last[i]), brief(s))
			}
			if s.RxPackets < got[i] || s.TxPackets > sent[i] {
				r.Fatalf("port %d: RxPackets %d with %d received, TxPackets %d with %d given", i, s.RxPackets, got[i], s.TxPackets, sent[i])
			}
			last[i] = s
		}
	}
	for i, p := range ports {
		rest := r.drainQueue(p.Rx(0))
		r.free(rest...)
		if s := p.Stats(); s.RxPackets != got[i]+uint64(len(rest)) || s.RxPackets != sent[1-i] || s.TxPackets != sent[i] {
			r.Errorf("port %d: %s; received %d, sent to it %d, from it %d", i, brief(s), got[i]+uint64(len(rest)), sent[1-i], sent[i])
		}
	}
}
