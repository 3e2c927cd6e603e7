package nictest

import (
	"bytes"
	"errors"

	"bare.wire/mbuf"
	"bare.wire/nic"
)

// testManyQueues sends on every queue and finds everything again, on the queues that RSS reaches.
func testManyQueues(r *run) {
	i := r.A.Info()
	pool := r.pool(mbuf.Config{Buffers: 14000})
	for _, n := range []int{1, 2, 4, 16, 64} {
		if n > i.TxQueues || n > i.RxQueues {
			continue
		}
		r.start(r.A, nic.Config{Pool: pool, TxQueues: n, RxQueues: n, TxDesc: 64, RxDesc: 64})
		r.start(r.B, nic.Config{Pool: pool, TxQueues: n, RxQueues: n, TxDesc: 64, RxDesc: 64})
		r.up()
		want := make(map[string]int)
		for q := range n {
			for k := range 10 {
				f := r.packet(r.B, makeFlow(q*10+k, k%2 == 0, protoUDP), 30)
				want[string(f)]++
				r.sendFrames(r.A.Tx(q), pool, f)
			}
			r.pass(10 * moment)
		}
		r.Settle()
		queues := 0
		for q := range n {
			got := r.drainQueue(r.B.Rx(q))
			for _, b := range got {
				want[string(b.Bytes())]--
			}
			r.free(got...)
			if len(got) > 0 {
				queues++
			}
			if s := r.B.Stats().Queues[q]; s.RxPackets != uint64(len(got)) {
				r.Errorf("%d queues: queue %d handed out %d frames and counts %d", n, q, len(got), s.RxPackets)
			}
			if s := r.A.Stats().Queues[q]; s.TxPackets != 10 {
				r.Errorf("%d queues: queue %d was given 10 frames and counts %d", n, q, s.TxPackets)
			}
		}
		missing := 0
		for _, k := range want {
			if k != 0 {
				missing++
			}
		}
		if missing > 0 {
			r.Errorf("%d queues: %d of %d frames are missing or came twice: B %s", n, missing, len(want), brief(r.B.Stats()))
		}
		if i.RSSQueues == 0 {
			r.cannot("on which queues frames come: without RSS that is for the device to say")
		} else if reach := min(n, i.RSSQueues); queues > max(1, reach) || reach >= 4 && queues < reach/2 {
			r.Errorf("%d queues: frames came on %d of them, RSS reaches %d", n, queues, reach)
		}
		r.stop(r.A, r.B)
		if out := r.out(pool); out != 0 {
			r.Fatalf("%d queues: %d buffers are not back", n, out)
		}
	}
}

// testRSS checks hash, queue and order of many flows with the default key and table.
func testRSS(r *run) {
	r.rss(nic.RSSConfig{}, nic.DefaultRSSKey(), func(hash uint32, queues int) int { return int(hash&127) % queues }, nic.RSSAll)
}

func testRSSCustom(r *run) {
	key, table := make([]byte, nic.RSSKeySize), make([]uint8, 128)
	for i := range key {
		key[i] = byte(i*73 + 11)
	}
	queues := min(8, r.A.Info().RSSQueues)
	for i := range table {
		table[i] = uint8((i*i + 3) % max(1, queues))
	}
	r.rss(nic.RSSConfig{Key: key, Table: table}, key, func(hash uint32, _ int) int { return int(table[hash&127]) }, nic.RSSAll)
}

// testRSSTypes hashes addresses only where ports are not asked for, and nothing where nothing is.
func testRSSTypes(r *run) {
	for _, types := range []nic.RSSType{nic.RSSIPv4, nic.RSSIPv4 | nic.RSSTCP4, nic.RSSUDP6, nic.RSSIPv6 | nic.RSSUDP6 | nic.RSSUDP4} {
		r.rss(nic.RSSConfig{Types: types}, nic.DefaultRSSKey(), func(hash uint32, queues int) int { return int(hash&127) % queues }, types)
	}
}

func (r *run) rss(cfg nic.RSSConfig, key []byte, queueOf func(hash uint32, queues int) int, types nic.RSSType) {
	r.Helper()
	i := r.A.Info()
	queues := min(8, i.RSSQueues)
	if queues < 2 {
		r.cannot("several queues")
		return
	}
	pool := r.pool(mbuf.Config{Buffers: 4096})
	r.start(r.A, nic.Config{Pool: pool, RxDesc: 64})
	r.start(r.B, nic.Config{Pool: pool, RxQueues: queues, RxDesc: 256, RSS: cfg, Offloads: i.Offloads & nic.RxRSSHash})
	r.up()
	flows := make([]flow, 60)
	want := make([][]expected, queues)
	var frames [][]byte
	for k := range flows {
		flows[k] = makeFlow(k, k%2 == 1, [...]uint8{protoUDP, protoTCP}[k/2%2])
	}
	for k := range r.few(5) * len(flows) {
		f := flows[k*7%len(flows)]
		e := expected{frame: r.packet(r.B, f, k%40)}
		e.hash, e.hashed = f.hash(key, types)
		q := 0
		if e.hashed {
			q = queueOf(e.hash, queues)
		}
		want[q] = append(want[q], e)
		frames = append(frames, e.frame)
	}
	r.sendFrames(r.A.Tx(0), pool, frames...)
	for q := range queues {
		r.expectHashed(q, want[q])
	}
	r.stop(r.A, r.B)
}

// hash is what RSS makes of a packet of f when only these types are on.
func (f flow) hash(key []byte, types nic.RSSType) (uint32, bool) {
	l4 := map[bool]map[uint8]nic.RSSType{
		false: {protoTCP: nic.RSSTCP4, protoUDP: nic.RSSUDP4}, true: {protoTCP: nic.RSSTCP6, protoUDP: nic.RSSUDP6},
	}[f.v6][f.proto]
	l3 := nic.RSSIPv4
	if f.v6 {
		l3 = nic.RSSIPv6
	}
	switch {
	case types&l4 != 0:
		return nic.Toeplitz(key, f.input(true)), true
	case types&l3 != 0:
		return nic.Toeplitz(key, f.input(false)), true
	}
	return 0, false
}

type expected struct {
	frame  []byte
	hash   uint32
	hashed bool
}

// expectHashed receives these frames from queue q of B, in order, each with its hash.
func (r *run) expectHashed(q int, want []expected) {
	r.Helper()
	got := r.receive(r.B.Rx(q), len(want), 32)
	tell := r.B.Info().Offloads&nic.RxRSSHash != 0
	for k, b := range got {
		if why := r.differs(b, want[k].frame); why != "" {
			r.Fatalf("queue %d, frame %d: %s", q, k, why)
		}
		if tell && (b.Flags()&mbuf.RxHash != 0) != want[k].hashed {
			r.Fatalf("queue %d, frame %d: hash present %v, want %v", q, k, b.Flags()&mbuf.RxHash != 0, want[k].hashed)
		}
		if tell && want[k].hashed && b.Hash() != want[k].hash {
			r.Fatalf("queue %d, frame %d: hash %08x, want %08x", q, k, b.Hash(), want[k].hash)
		}
	}
	r.free(got...)
	r.nothing(r.B.Rx(q))
}

// twoQueues starts B with two queues, both rings of n descriptors, and returns a flow for each.
func (r *run) twoQueues(n int, block bool) (flows [2]flow, ok bool) {
	if r.A.Info().RSSQueues < 2 {
		return flows, false
	}
	r.start(r.A, nic.Config{Pool: r.pool(mbuf.Config{Buffers: 2048}), TxDesc: 512})
	r.start(r.B, nic.Config{RxQueues: 2, RxDesc: n, BlockWhenFull: block, Pool: r.pool(mbuf.Config{Buffers: 2048})})
	r.up()
	for i, found := 0, [2]bool{}; !found[0] || !found[1]; i++ {
		f := makeFlow(i, false, protoUDP)
		q := nic.Toeplitz(nic.DefaultRSSKey(), f.input(true)) & 127 % 2
		flows[q], found[q] = f, true
	}
	return flows, true
}

// testDropWhenFull lets nobody serve queue 0: it loses its own frames, counted, and queue 1 loses none.
func testDropWhenFull(r *run) {
	const ring, n = 64, 300
	flows, ok := r.twoQueues(ring, false)
	if !ok {
		return
	}
	if r.Lost != nil {
		r.dropUncounted(flows)
		return
	}
	tx := r.pool(mbuf.Config{Buffers: 4096})
	var kept, others [][]byte
	for k := range n {
		a, b := r.packet(r.B, flows[0], 20+k%9), r.packet(r.B, flows[1], 20+k%7)
		kept, others = append(kept, a), append(others, b)
		r.sendFrames(r.A.Tx(0), tx, a, b)
		if k%20 == 19 {
			r.check(r.receive(r.B.Rx(1), 20, 32), others[k-19:])
		}
	}
	r.Settle()
	s := r.B.Stats()
	if s.Queues[0].RxNoDesc != n-(ring-1) || s.Queues[1].RxNoDesc != 0 || s.RxNoDesc != n-(ring-1) || s.RxMissed != 0 {
		r.Errorf("queue 0 dropped %d, queue 1 %d, all %d; want %d, 0, %[4]d; missed %d", s.Queues[0].RxNoDesc, s.Queues[1].RxNoDesc, s.RxNoDesc, n-(ring-1), s.RxMissed)
	}
	if s.RxPackets != 2*n-s.RxNoDesc {
		r.Errorf("RxPackets is %d, of %d sent %d were dropped", s.RxPackets, 2*n, s.RxNoDesc)
	}
	r.check(r.receive(r.B.Rx(0), ring-1, 8), kept[:ring-1])
	r.nothing(r.B.Rx(0))
	// The other way round: drops of a queue that is not the first are counted too.
	for range n {
		r.sendFrames(r.A.Tx(0), tx, r.packet(r.B, flows[1], 9))
	}
	r.Settle()
	got := r.drainQueue(r.B.Rx(1))
	r.free(got...)
	lost := uint64(n - len(got))
	if s := r.B.Stats(); lost == 0 || s.Queues[1].RxNoDesc != lost || s.RxNoDesc != lost+n-(ring-1) {
		r.Errorf("queue 1 dropped %d, all %d; want %d, %d", s.Queues[1].RxNoDesc, s.RxNoDesc, lost, lost+n-(ring-1))
	}
}

// dropUncounted is testDropWhenFull of a device that does not say how much it keeps for a queue, nor how much it has dropped of what.
func (r *run) dropUncounted(flows [2]flow) {
	tx := r.pool(mbuf.Config{Buffers: 4096})
	var kept [][]byte
	before := r.lost(r.B)
	for k := range 1500 {
		a, b := r.packet(r.B, flows[0], 20+k%9), r.packet(r.B, flows[1], 20+k%7)
		kept = append(kept, a)
		r.sendFrames(r.A.Tx(0), tx, a, b)
		r.check(r.receive(r.B.Rx(1), 1, 1), [][]byte{b})
	}
	r.Settle()
	got := r.drainQueue(r.B.Rx(0))
	n, lost := len(got), r.lost(r.B)-before
	if n == 0 || lost == 0 || n+int(lost) != len(kept) {
		r.Errorf("nobody served queue 0: of %d frames it has handed out %d, and %d were dropped", len(kept), n, lost)
	}
	r.check(got, kept[:n])
}

// testBlockWhenFull lets nobody serve queue 0: what comes for it waits in the card, and everything behind it too; when it
// is served nothing was lost.
func testBlockWhenFull(r *run) {
	const ring = 64
	if err := r.A.Start(r.ctx, nic.Config{Pool: r.pool(mbuf.Config{}), BlockWhenFull: true}); errors.Is(err, errors.ErrUnsupported) {
		r.cannot("a full queue that blocks")
		return
	} else if err != nil {
		r.Fatal(err)
	}
	r.stop(r.A)
	flows, ok := r.twoQueues(ring, true)
	if !ok {
		return
	}
	tx := r.pool(mbuf.Config{Buffers: 4096})
	var first, second [][]byte
	for k := range 200 {
		first = append(first, r.packet(r.B, flows[0], 20+k%9))
	}
	for k := range 50 {
		second = append(second, r.packet(r.B, flows[1], 20+k%9))
	}
	r.sendFrames(r.A.Tx(0), tx, first...)
	r.sendFrames(r.A.Tx(0), tx, second...)
	r.nothing(r.B.Rx(1))
	r.expect(r.B.Rx(0), first...)
	r.expect(r.B.Rx(1), second...)
	if s := r.B.Stats(); s.RxNoDesc+s.RxMissed != 0 {
		r.Errorf("frames were lost: %s", brief(s))
	}
	// Until the card is full: then frames are missed, and all is accounted for.
	var sent, got uint64
	for range 20 {
		frames := r.frames(r.B, 200, 1500) // no IP: queue 0
		r.sendFrames(r.A.Tx(0), tx, frames...)
		sent += 200
	}
	r.Settle()
	for _, b := range r.drainQueue(r.B.Rx(0)) {
		got++
		b.Free()
	}
	if s := r.B.Stats(); got+s.RxMissed+s.RxNoDesc != sent || s.RxMissed == 0 {
		r.Errorf("%d sent, %d received, %d missed", sent, got, s.RxMissed)
	}
}

// testVLANStrip takes the tag out of the frame where that is asked for, and only there.
func testVLANStrip(r *run) {
	for _, strip := range []nic.Offload{r.B.Info().Offloads & nic.RxVLANStrip, 0} {
		r.start(r.A, nic.Config{})
		r.start(r.B, nic.Config{Offloads: strip})
		r.up()
		pool := r.pool(mbuf.Config{})
		for k, tci := range []uint16{1, 0xE123, 4095, 0} {
			f := r.tagged(r.B.Info().MAC, tci, 64+300*k)
			plain := r.to(r.B, 64)
			r.sendFrames(r.A.Tx(0), pool, f, plain)
			got := r.receive(r.B.Rx(0), 2, 2)
			want := f
			if strip != 0 {
				want = bytes.Join([][]byte{f[:12], f[16:]}, nil)
				if got[0].Flags()&mbuf.RxVLAN == 0 || got[0].VLAN != tci {
					r.Errorf("tag %#x: flags %#x, VLAN %#x", tci, got[0].Flags(), got[0].VLAN)
				}
			} else if got[0].Flags()&mbuf.RxVLAN != 0 {
				r.Errorf("nothing is stripped, and the buffer says that a tag was")
			}
			if got[1].Flags()&mbuf.RxVLAN != 0 {
				r.Errorf("a frame without a tag has one: %#x", got[1].VLAN)
			}
			if !bytes.Equal(got[0].Bytes(), want) {
				r.Fatalf("tag %#x, strip %v: %x, want %x", tci, strip != 0, got[0].Bytes(), want)
			}
			r.free(got...)
		}
		r.stop(r.A, r.B)
	}
}

// testLoopback hands every frame back without a wire.
func testLoopback(r *run) {
	if err := r.A.Start(r.ctx, nic.Config{Pool: r.pool(mbuf.Config{}), Loopback: true}); errors.Is(err, errors.ErrUnsupported) {
		r.cannot("loopback")
		return
	} else if err != nil {
		r.Fatal(err)
	}
	if r.SetLink != nil {
		r.SetLink(false)
	}
	r.Settle()
	r.A.Housekeep(r.Clock.Now())
	if !r.A.Link().Up {
		r.Errorf("in loopback the link is %v", r.A.Link())
	}
	pool := r.pool(mbuf.Config{})
	frames := r.frames(r.A, 200, 100)
	r.sendFrames(r.A.Tx(0), pool, frames...)
	r.expect(r.A.Rx(0), frames...)
	r.stop(r.A)
	if r.SetLink != nil {
		r.SetLink(true)
	}
	// The next start is without it.
	r.startBoth(nic.Config{})
	f := r.to(r.A, 60)
	r.sendFrames(r.A.Tx(0), pool, f)
	r.nothing(r.A.Rx(0))
}
