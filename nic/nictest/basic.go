package nictest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"bare.wire/mbuf"
	"bare.wire/nic"
)

func testInfo(r *run) {
	for _, p := range []nic.Port{r.A, r.B} {
		i := p.Info()
		for what, ok := range map[string]bool{
			"Driver and Name are set":        i.Driver != "" && i.Name != "",
			"MAC is a unicast address":       i.MAC != [6]byte{} && i.MAC[0]&1 == 0,
			"there are queues":               i.RxQueues >= 1 && i.TxQueues >= 1,
			"RSSQueues is at most RxQueues":  i.RSSQueues >= 0 && i.RSSQueues <= i.RxQueues,
			"ring sizes are a range":         i.MinDesc > 0 && i.MinDesc <= i.MaxDesc && i.DescAlign >= 1,
			"MinDesc is a legal size":        i.MinDesc%max(1, i.DescAlign) == 0,
			"MaxFrame is an Ethernet frame":  i.MaxFrame >= 1514,
			"MaxSegs is 1 or more":           i.MaxSegs >= 1,
			"NUMANode is a node or -1":       i.NUMANode >= -1,
			"Info before and after is alike": i == p.Info(),
		} {
			if !ok {
				r.Errorf("%s: not so that %s: %+v", i.Name, what, i)
			}
		}
		if err := p.Err(); err != nil {
			r.Errorf("%s: Err is %v before Start", i.Name, err)
		}
		if s := p.Stats(); s.RxPackets != 0 || s.TxPackets != 0 {
			r.Errorf("%s: counts before Start: %+v", i.Name, s)
		}
	}
	if r.A.Info().MAC == r.B.Info().MAC {
		r.Errorf("both ports have the address %x", r.A.Info().MAC)
	}
}

func testLengths(r *run) {
	r.startBoth(nic.Config{})
	pool := r.pool(mbuf.Config{})
	var frames [][]byte
	for n := minSend; n <= defaultMaxFrame; n++ {
		frames = append(frames, r.to(r.B, n))
	}
	for group := range slices.Chunk(frames, 100) {
		r.sendFrames(r.A.Tx(0), pool, group...)
		r.expect(r.B.Rx(0), group...)
	}
	r.counted(frames)
}

// counted checks the totals of frames that went from A to B on queue 0.
func (r *run) counted(frames [][]byte) {
	r.Helper()
	var bytes, padded uint64
	for _, f := range frames {
		bytes += uint64(len(f))
		padded += uint64(max(len(f), r.MinFrame))
	}
	n := uint64(len(frames))
	given := padded
	if r.Lost != nil { // what the device pads nobody counts
		given = bytes
	}
	a, b := r.A.Stats(), r.B.Stats()
	for _, c := range []struct {
		what      string
		got, want uint64
	}{
		{"A TxPackets", a.TxPackets, n}, {"A TxBytes", a.TxBytes, given}, {"A TxErrors", a.TxErrors, 0}, {"A RxPackets", a.RxPackets, 0},
		{"B RxPackets", b.RxPackets, n}, {"B RxBytes", b.RxBytes, padded}, {"B TxPackets", b.TxPackets, 0},
		{"B losses", b.RxMissed + b.RxNoDesc + b.RxErrors, 0},
		{"A queue 0 TxPackets", a.Queues[0].TxPackets, n}, {"A queue 0 TxBytes", a.Queues[0].TxBytes, bytes},
		{"B queue 0 RxPackets", b.Queues[0].RxPackets, n}, {"B queue 0 RxBytes", b.Queues[0].RxBytes, padded},
	} {
		if c.got != c.want {
			r.Errorf("%s is %d, want %d", c.what, c.got, c.want)
		}
	}
}

func testBursts(r *run) {
	pool := r.pool(mbuf.Config{Buffers: 4096})
	r.startBoth(nic.Config{Pool: pool}) // frames of the pool that the ports have too
	var all [][]byte
	for n := 1; n <= 257; n += 256 / r.few(256) {
		frames := r.frames(r.B, n, 60+n%50)
		r.send(r.A.Tx(0), r.buildAll(pool, frames)...)
		r.check(r.receive(r.B.Rx(0), n, n), frames)
		all = append(all, frames...)
	}
	r.nothing(r.B.Rx(0))
	r.counted(all)
}

func testRingSizes(r *run) {
	i := r.A.Info()
	sizes := []int{i.MinDesc, i.MinDesc + i.DescAlign, 512, 1000, i.MaxDesc}
	tx := r.pool(mbuf.Config{Buffers: 2*i.MaxDesc + 512})
	rx := r.pool(mbuf.Config{Buffers: 2*i.MaxDesc + 512})
	for k, size := range sizes {
		if size < i.MinDesc || size > i.MaxDesc || size%i.DescAlign != 0 {
			continue
		}
		other := sizes[(k+2)%len(sizes)] // rings of one port need not be alike
		r.start(r.A, nic.Config{TxDesc: size, RxDesc: other, Pool: tx})
		r.start(r.B, nic.Config{RxDesc: size, TxDesc: other, Pool: rx})
		r.up()
		// Round and round, in steps that divide nothing.
		for sent := 0; sent < r.few(12)*size/4; {
			n := min(37, size-1)
			frames := r.frames(r.B, n, 64)
			r.send(r.A.Tx(0), r.buildAll(tx, frames)...)
			r.check(r.receive(r.B.Rx(0), n, 32), frames)
			sent += n
		}
		r.stop(r.A, r.B)
	}
}

func testRingSizesRefused(r *run) {
	i := r.A.Info()
	pool := r.pool(mbuf.Config{})
	bad := []int{-1, 1, i.MinDesc - 1, i.MaxDesc + i.DescAlign, 1 << 40}
	if i.DescAlign > 1 {
		bad = append(bad, i.MinDesc+1, i.MaxDesc-1)
	}
	for _, n := range bad {
		r.refused(nic.Config{Pool: pool, RxDesc: n}, fmt.Sprint(n), "RxDesc")
		r.refused(nic.Config{Pool: pool, TxDesc: n}, fmt.Sprint(n), "TxDesc")
	}
	r.startBoth(nic.Config{}) // and nothing was left behind
	p := r.pool(mbuf.Config{})
	f := r.to(r.B, 100)
	r.sendFrames(r.A.Tx(0), p, f)
	r.expect(r.B.Rx(0), f)
}

// refused checks that A does not start, and that the error says these words.
func (r *run) refused(cfg nic.Config, words ...string) {
	r.Helper()
	err := r.A.Start(r.ctx, cfg)
	if err == nil {
		r.Errorf("started with %+v", cfg)
		r.stop(r.A)
		return
	}
	for _, w := range append(words, r.A.Info().Name) {
		if !strings.Contains(err.Error(), w) {
			r.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func testConfigsRefused(r *run) {
	i := r.A.Info()
	pool := r.pool(mbuf.Config{})
	r.refused(nic.Config{}, "Pool")
	r.refused(nic.Config{Pool: pool, RxQueues: -1}, "RxQueues")
	r.refused(nic.Config{Pool: pool, RxQueues: i.RxQueues + 1}, "RxQueues")
	r.refused(nic.Config{Pool: pool, TxQueues: i.TxQueues + 1}, "TxQueues")
	r.refused(nic.Config{Pool: pool, MaxFrame: i.MaxFrame + 1}, "MaxFrame")
	r.refused(nic.Config{Pool: pool, MaxFrame: 13}, "MaxFrame")
	r.refused(nic.Config{Pool: pool, RxPools: []*mbuf.Pool{pool, pool}}, "RxPools")
	r.refused(nic.Config{Pool: pool, RxPools: []*mbuf.Pool{nil}}, "RxPools")
	if i.RSSQueues > 1 {
		r.refused(nic.Config{Pool: pool, RxQueues: 2, RSS: nic.RSSConfig{Key: make([]byte, 39)}}, "key", "39")
		r.refused(nic.Config{Pool: pool, RxQueues: 2, RSS: nic.RSSConfig{Table: make([]uint8, 127)}}, "table", "127")
		table := make([]uint8, 128)
		table[77] = 2
		r.refused(nic.Config{Pool: pool, RxQueues: 2, RSS: nic.RSSConfig{Table: table}}, "77", "queue 2")
	}
	if r.ForeignPool != nil {
		foreign, err := r.ForeignPool(mbuf.Config{Name: "elsewhere", Buffers: 64})
		if err != nil {
			r.Fatalf("%v", err)
		}
		r.pools = append(r.pools, foreign)
		r.refused(nic.Config{Pool: foreign}, "elsewhere")
		r.refused(nic.Config{Pool: pool, RxPools: []*mbuf.Pool{foreign}}, "elsewhere")
	}
	if no := ^i.Offloads; no != 0 {
		err := r.A.Start(r.ctx, nic.Config{Pool: pool, Offloads: no})
		if !errors.Is(err, errors.ErrUnsupported) {
			r.Errorf("offloads %#x: %v, want an error that is ErrUnsupported", no, err)
		}
	}
}

func testOneThenIdle(r *run) {
	r.startBoth(nic.Config{})
	own := r.exactPool(1, 0)
	for range 3 {
		f := r.to(r.B, 77)
		r.sendFrames(r.A.Tx(0), own, f)
		if n := r.out(own); n != 1 {
			r.Fatalf("%d buffers are out right after Send, want 1", n)
		}
		r.Settle()
		if n := r.A.Tx(0).Reclaim(); n != 1 {
			r.Fatalf("Reclaim found %d frames, want 1", n)
		}
		if n := r.out(own); n != 0 {
			r.Fatalf("the frame has been sent, nothing else happens, and its buffer is not back")
		}
		if n := r.A.Tx(0).Reclaim(); n != 0 {
			r.Fatalf("Reclaim found %d frames twice", n)
		}
		r.expect(r.B.Rx(0), f)
	}
}
