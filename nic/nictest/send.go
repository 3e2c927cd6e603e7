package nictest

import (
	"bytes"
	"errors"

	"bare.wire/mbuf"
	"bare.wire/nic"
)

func testRingFull(r *run) {
	size := r.A.Info().MinDesc
	r.start(r.A, nic.Config{TxDesc: size})
	r.start(r.B, nic.Config{RxDesc: 512})
	r.up()
	pool := r.pool(mbuf.Config{Buffers: max(1536, 6*size)})
	frames := r.frames(r.B, 4*size, 200)
	bufs := r.buildAll(pool, frames)
	n := r.A.Tx(0).Send(bufs)
	if n < 1 || n >= len(bufs) {
		r.Fatalf("Send took %d of %d on a ring of %d", n, len(bufs), size)
	}
	if s := r.A.Stats(); s.TxFull == 0 || s.Queues[0].TxFull == 0 || s.TxErrors != 0 {
		r.Errorf("a full ring is not counted, or counted as an error: %s", brief(s))
	}
	// The rest is the caller's as it was.
	for i, b := range bufs[n:] {
		if b.Segs() != 1 || b.Refs() != 1 || !bytes.Equal(b.Bytes(), frames[n+i]) {
			r.Fatalf("frame %d, which Send did not take, has changed", n+i)
		}
	}
	r.relay(bufs[n:], frames)
	if n := r.out(pool); n != 0 {
		r.Errorf("%d buffers are not back", n)
	}
	r.counted(frames)
}

// relay sends bufs from A, receiving meanwhile what arrives at B, which is to be frames in the end: more than a ring holds.
func (r *run) relay(bufs []*mbuf.Buf, frames [][]byte) {
	r.Helper()
	into := make([]*mbuf.Buf, 32)
	for range patience {
		bufs = bufs[r.A.Tx(0).Send(bufs):]
		n := r.B.Rx(0).Recv(into[:min(len(into), len(frames))])
		r.check(into[:n], frames[:n])
		if frames = frames[n:]; len(bufs) == 0 && len(frames) == 0 {
			r.nothing(r.B.Rx(0))
			r.A.Tx(0).Reclaim()
			return
		}
		r.pass(moment)
	}
	r.Fatalf("%d frames are not sent, %d not received; %v", len(bufs), len(frames), errors.Join(r.A.Err(), r.B.Err()))
}

// testRingFullSegments fills a ring with frames of so many segments that they do not divide it.
func testRingFullSegments(r *run) {
	i := r.A.Info()
	segs := min(7, i.MaxSegs)
	r.start(r.A, nic.Config{TxDesc: i.MinDesc})
	r.start(r.B, nic.Config{})
	r.up()
	pool := r.pool(mbuf.Config{Buffers: 32 * max(128, i.MinDesc)})
	frames := r.frames(r.B, 5*i.MinDesc, 300)
	var bufs []*mbuf.Buf
	for k, f := range frames {
		bufs = append(bufs, r.build(pool, f, cut(len(f), 1+k%segs)...))
	}
	if n := r.A.Tx(0).Send(bufs); n < 1 || n >= len(bufs) {
		r.Fatalf("Send took %d of %d", n, len(bufs))
	} else {
		r.relay(bufs[n:], frames)
	}
	if n := r.out(pool); n != 0 {
		r.Errorf("%d buffers are not back", n)
	}
}

// cut divides n bytes into segs parts, none of them empty and not all alike.
func cut(n, segs int) []int {
	out := make([]int, 0, segs)
	for left := segs; left > 1; left-- {
		k := max(1, min(n-(left-1), n/left+left%3-1))
		out = append(out, k)
		n -= k
	}
	return append(out, n)
}

// testUnsendable sends frames that can never be sent among others that can.
func testUnsendable(r *run) {
	i := r.A.Info()
	pool := r.pool(mbuf.Config{Buffers: 2048})
	r.startBoth(nic.Config{Pool: pool})
	tooManySegs := cut(1000, i.MaxSegs+1)
	hollow := r.build(pool, r.to(r.B, 100), 50, 50)
	gap := r.build(pool, nil, 0)
	tail := hollow.Next()
	hollow.SetNext(gap)
	gap.SetNext(tail)
	offload := r.build(pool, r.to(r.B, 100))
	offload.SetTxFlags(mbuf.TxTSO)
	cases := []struct {
		what string
		b    *mbuf.Buf
		why  nic.TxDropReason
	}{
		{"an empty frame", r.build(pool, nil, 0), nic.TxTooShort},
		{"13 bytes", r.build(pool, r.to(r.B, 13)), nic.TxTooShort},
		{"13 bytes in two segments", r.build(pool, r.to(r.B, 13), 6, 7), nic.TxTooShort},
		{"an empty segment", hollow, nic.TxTooShort},
		{"a byte too long", r.build(pool, r.to(r.B, defaultMaxFrame+1)), nic.TxTooLong},
		{"a byte too long in two segments", r.build(pool, r.to(r.B, defaultMaxFrame+1), 1000, defaultMaxFrame+1-1000), nic.TxTooLong},
		{"too many segments", r.build(pool, r.to(r.B, 1000), tooManySegs...), nic.TxTooManySeg},
		{"an offload that is off", offload, nic.TxBadOffload},
	}
	var bufs []*mbuf.Buf
	var frames [][]byte
	var want nic.Stats
	good := func() {
		frames = append(frames, r.to(r.B, 120))
		bufs = append(bufs, r.build(pool, frames[len(frames)-1]))
	}
	for _, c := range cases {
		good()
		bufs = append(bufs, c.b)
		want.TxDropped[c.why]++
	}
	good()
	if r.ForeignPool != nil {
		foreign, err := r.ForeignPool(mbuf.Config{Name: "elsewhere", Buffers: 64})
		if err != nil {
			r.Fatalf("%v", err)
		}
		r.pools = append(r.pools, foreign)
		for _, lens := range [][]int{{80}, {40, 40}} {
			bufs = append(bufs, r.build(foreign, r.to(r.B, 80), lens...))
			want.TxDropped[nic.TxNoAddress]++
		}
		mixed := r.build(pool, r.to(r.B, 60))
		mixed.SetNext(r.build(foreign, make([]byte, 60)))
		bufs = append(bufs, mixed)
		want.TxDropped[nic.TxNoAddress]++
		good()
	}
	r.send(r.A.Tx(0), bufs...)
	r.expect(r.B.Rx(0), frames...)
	r.A.Tx(0).Reclaim()
	s := r.A.Stats()
	total := uint64(0)
	for why, n := range want.TxDropped {
		total += n
		if s.TxDropped[why] != n {
			r.Errorf("%d frames counted as %q, want %d", s.TxDropped[why], nic.TxDropReason(why), n)
		}
	}
	if s.TxErrors != total || s.TxPackets != uint64(len(frames)) || s.Queues[0].TxPackets != uint64(len(frames)) {
		r.Errorf("TxErrors %d, want %d; TxPackets %d, of the queue %d, want %d", s.TxErrors, total, s.TxPackets, s.Queues[0].TxPackets, len(frames))
	}
}

func testGather(r *run) {
	r.startBoth(nic.Config{})
	i := r.A.Info()
	pool := r.pool(mbuf.Config{Buffers: max(1536, 2*i.MaxSegs*i.MaxSegs+1024)})
	var frames [][]byte
	for segs := 2; segs <= i.MaxSegs; segs++ {
		for _, n := range []int{max(minSend, segs), 61 + segs, 1400} {
			f := r.to(r.B, n)
			frames = append(frames, f)
			r.send(r.A.Tx(0), r.build(pool, f, cut(n, segs)...))
		}
		// Bytes of one: the shortest first and last segments there are.
		f := r.to(r.B, 100+segs)
		frames = append(frames, f)
		lens := append([]int{1}, cut(98+segs, max(1, segs-2))...)
		if lens = append(lens, 1); len(lens) > i.MaxSegs {
			lens = []int{1, 99 + segs}
		}
		r.send(r.A.Tx(0), r.build(pool, f, lens...))
	}
	r.expect(r.B.Rx(0), frames...)
	r.A.Tx(0).Reclaim()
	if n := r.out(pool); n != 0 {
		r.Errorf("%d buffers are not back", n)
	}
	r.counted(frames)
}

// testShared sends one payload many times, each time behind a header of its own, while the sender keeps a reference.
func testShared(r *run) {
	if r.A.Info().MaxSegs < 2 {
		r.cannot("frames of several segments")
		return
	}
	r.startBoth(nic.Config{})
	pool := r.pool(mbuf.Config{})
	whole := r.to(r.B, 700)
	payload := r.build(pool, whole[minSend:])
	var frames [][]byte
	for range 100 {
		head := r.build(pool, whole[:minSend])
		view := payload.Clone(r.cache(pool))
		if view == nil {
			r.Fatal("no view left")
		}
		head.SetNext(view)
		frames = append(frames, whole)
		r.send(r.A.Tx(0), head)
	}
	r.expect(r.B.Rx(0), frames...)
	r.A.Tx(0).Reclaim()
	if n := payload.Refs(); n != 1 {
		r.Errorf("the payload has %d references, want the sender's alone", n)
	}
	payload.Free()
	if n := r.out(pool); n != 0 {
		r.Errorf("%d buffers are not back", n)
	}
}
