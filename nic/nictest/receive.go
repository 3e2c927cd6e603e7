package nictest

import (
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
)

// testScatter receives frames that are longer than a buffer: of every length around the multiples of one.
func testScatter(r *run) {
	if !r.can(r.A, nic.RxScatter, "frames longer than a buffer") {
		return
	}
	r.start(r.A, nic.Config{})
	r.start(r.B, nic.Config{Pool: r.pool(mbuf.Config{Size: 1024})})
	r.up()
	pool := r.pool(mbuf.Config{})
	var frames [][]byte
	for _, n := range []int{60, 1000, 1022, 1023, 1024, 1025, 1026, 1027, 1028, 1400, 1514, 1518} {
		frames = append(frames, r.to(r.B, n), r.to(r.B, 64))
	}
	r.sendFrames(r.A.Tx(0), pool, frames...)
	r.expect(r.B.Rx(0), frames...)
	r.counted(frames)
}

// testJumbo receives the longest frames that there are, over many buffers and in one.
func testJumbo(r *run) {
	longest := r.A.Info().MaxFrame
	if r.A.Info().Offloads&nic.RxScatter == 0 || longest <= defaultMaxFrame {
		r.cannot("jumbo frames")
		return
	}
	pool, rx := r.pool(mbuf.Config{Size: longest, Buffers: 256}), r.pool(mbuf.Config{})
	for _, size := range []int{1024, 2048, 10 << 10} {
		r.start(r.A, nic.Config{MaxFrame: longest, Pool: rx})
		r.start(r.B, nic.Config{MaxFrame: longest, Pool: r.pool(mbuf.Config{Size: size})})
		r.up()
		var frames [][]byte
		for _, n := range []int{longest, 64, longest - 1, 9000, 9216, 1519, 2049, 60, longest} {
			frames = append(frames, r.to(r.B, min(n, longest)))
		}
		for range r.few(10) { // and around the ring
			r.sendFrames(r.A.Tx(0), pool, frames...)
			r.expect(r.B.Rx(0), frames...)
		}
		too := r.build(pool, r.to(r.B, longest), longest)
		more := r.build(pool, []byte{1}, 1)
		too.SetNext(more)
		r.send(r.A.Tx(0), too)
		r.nothing(r.B.Rx(0))
		if n := r.A.Stats().TxDropped[nic.TxTooLong]; n != 1 {
			r.Errorf("a frame of %d bytes: %d counted as too long, want 1", longest+1, n)
		}
		r.stop(r.A, r.B)
	}
}

// testLongBuffers receives into buffers that are longer than any frame, and longer than a device may count.
func testLongBuffers(r *run) {
	for _, size := range []int{4096, 16 << 10, 20000, 64 << 10, 256 << 10} {
		r.start(r.A, nic.Config{})
		r.start(r.B, nic.Config{RxDesc: 64, Pool: r.pool(mbuf.Config{Size: size, Buffers: 96})})
		r.up()
		pool := r.pool(mbuf.Config{Buffers: 128})
		frames := r.frames(r.B, 50, 1514)
		r.sendFrames(r.A.Tx(0), pool, frames...)
		r.expect(r.B.Rx(0), frames...)
		r.stop(r.A, r.B)
	}
}

// testHalfReceived stops the receiver at every moment around the arrival of a frame over many buffers.
func testHalfReceived(r *run) {
	longest := r.A.Info().MaxFrame
	if !r.can(r.A, nic.RxScatter, "frames longer than a buffer") {
		return
	}
	tx := r.pool(mbuf.Config{Size: longest, Buffers: 64})
	rx, other := r.pool(mbuf.Config{Size: 1024, Buffers: 256}), r.pool(mbuf.Config{})
	into := make([]*mbuf.Buf, 8)
	for k := range r.few(40) {
		r.start(r.A, nic.Config{MaxFrame: longest, Pool: other})
		r.start(r.B, nic.Config{MaxFrame: longest, Pool: rx, RxDesc: 64})
		r.up()
		f := r.to(r.B, longest)
		r.sendFrames(r.A.Tx(0), tx, f)
		end := r.Clock.Nanos() + 8000 + int64(k*40/r.few(40))*75 // a frame of 9728 bytes takes 7.8 µs at 10 Gb/s
		for r.Clock.Nanos() < end {
			n := r.B.Rx(0).Recv(into)
			r.check(into[:n], [][]byte{f})
			r.pass(25 * time.Nanosecond)
		}
		r.stop(r.B, r.A)
		if n := r.out(rx); n != 0 {
			r.Fatalf("round %d: %d buffers are not back", k, n)
		}
	}
}

// testPoolDry lets the receiver keep everything until nothing is left for the ring, and then give it all back.
func testPoolDry(r *run) {
	for _, buffers := range []int{64, 65, 100} {
		r.dry(buffers)
	}
}

func (r *run) dry(buffers int) {
	r.start(r.A, nic.Config{})
	rx := r.exactPool(buffers, 0)
	r.start(r.B, nic.Config{Pool: rx, RxDesc: 64})
	r.up()
	tx := r.pool(mbuf.Config{Buffers: 8 * buffers})
	before := r.B.Stats()
	var sent uint64
	lostBefore := r.lost(r.B)
	for round := range 3 {
		frames := r.frames(r.B, 3*buffers, 90)
		r.sendFrames(r.A.Tx(0), tx, frames...)
		sent += uint64(len(frames))
		held := r.drainQueue(r.B.Rx(0))
		if len(held) == 0 || len(held) > buffers {
			r.Fatalf("round %d: %d frames received with %d buffers", round, len(held), buffers)
		}
		for range 3 { // nothing is left, and asking for more does no harm
			if n := r.B.Rx(0).Recv(make([]*mbuf.Buf, 8)); n != 0 {
				r.Fatalf("round %d: %d frames out of an empty pool", round, n)
			}
		}
		r.inOrder(held, frames)
		r.refill(r.B.Rx(0))
	}
	s := r.B.Stats()
	got, lost := s.RxPackets-before.RxPackets, r.lost(r.B)-lostBefore
	if got+lost != sent {
		r.Errorf("%d sent, %d received, %d counted as lost", sent, got, lost)
	}
	if s.RxNoBuf == 0 {
		r.Errorf("the ring could not be refilled and RxNoBuf is 0")
	}
	// Recovered: as many as the ring holds, none lost.
	frames := r.frames(r.B, 30, 90)
	r.sendFrames(r.A.Tx(0), tx, frames...)
	r.expect(r.B.Rx(0), frames...)
	r.stop(r.A, r.B)
	if n := r.out(rx); n != 0 {
		r.Errorf("%d buffers are not back", n)
	}
}

// refill asks for frames where there are none, which gives a ring that ran dry its buffers back: a burst on its way arrives,
// in real time, before anybody else asks.
func (r *run) refill(q nic.RxQueue) {
	r.Helper()
	if n := q.Recv(make([]*mbuf.Buf, 1)); n != 0 {
		r.Fatalf("%d frames have come that were not sent", n)
	}
}

// inOrder checks that got is some of frames, in their order, and frees it.
func (r *run) inOrder(got []*mbuf.Buf, frames [][]byte) {
	r.Helper()
	at := 0
	for i, b := range got {
		for at < len(frames) && r.differs(b, frames[at]) != "" {
			at++
		}
		if at == len(frames) {
			r.Fatalf("frame %d of %d was not sent, or not in this order", i, len(got))
		}
		at++
	}
	r.free(got...)
}

// testFewBuffers gives a ring fewer buffers than it has descriptors: it works with those it has.
func testFewBuffers(r *run) {
	r.start(r.A, nic.Config{})
	size := min(512, r.B.Info().MaxDesc)
	r.start(r.B, nic.Config{RxDesc: size, Pool: r.exactPool(size/8, 0)})
	r.up()
	lost := r.lost(r.B)
	tx := r.pool(mbuf.Config{})
	for range 4 * 8 { // several times round the ring
		frames := r.frames(r.B, size/32, 100)
		r.sendFrames(r.A.Tx(0), tx, frames...)
		r.check(r.receive(r.B.Rx(0), len(frames), 7), frames)
	}
	if r.lost(r.B) != lost {
		r.Errorf("frames were lost: %s", brief(r.B.Stats()))
	}
}
