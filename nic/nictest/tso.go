package nictest

import (
	"bytes"
	"slices"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/wire"
)

// large is a TCP datagram of n bytes of payload.
func (r *run) large(n int, v6 bool) *datagram {
	return &datagram{dst: r.B.Info().MAC, v6: v6, id: 0xfffe, seq: 0xffff_fc00, flags: wire.TCPAck | wire.TCPPsh | wire.TCPFin | wire.TCPCwr, payload: r.data(n)}
}

// startTSO starts A with segmentation, and B so that it loses nothing; it returns false when A has none. B checks sums if
// it can.
func (r *run) startTSO(cfg nic.Config) bool {
	r.Helper()
	if !r.can(r.A, nic.TxTSO, "segmentation") {
		return false
	}
	cfg.Offloads |= nic.TxTSO | r.A.Info().Offloads&nic.TxVLANInsert
	r.start(r.A, cfg)
	r.start(r.B, nic.Config{BlockWhenFull: true, Offloads: r.B.Info().Offloads & (nic.RxIPChecksum | nic.RxL4Checksum)})
	r.up()
	return true
}

// sendingFrom is a configuration whose Pool is that of frames to be sent, as drivers like it best, and not that of reception.
func (r *run) sendingFrom(pool *mbuf.Pool, offloads nic.Offload) nic.Config {
	return nic.Config{Pool: pool, RxPools: []*mbuf.Pool{r.pool(mbuf.Config{})}, Offloads: offloads}
}

// segments receives what a datagram has to be cut into.
func (r *run) segments(frames [][]byte) {
	r.Helper()
	sums := r.B.Info().Offloads&nic.RxL4Checksum != 0
	got := r.receive(r.B.Rx(0), len(frames), 32)
	for i, b := range got {
		if sums && b.Flags()&mbuf.RxL4Good == 0 {
			r.Errorf("segment %d of %d: the receiver's flags are %#x", i, len(got), b.Flags())
		}
	}
	r.check(got, frames)
}

// testTSO compares with the oracle: every length around multiples of MSS, options, tags, and payload in any pieces.
func testTSO(r *run) {
	if !r.startTSO(nic.Config{}) {
		return
	}
	pool := r.pool(mbuf.Config{Buffers: 2048})
	mtu := defaultMaxFrame - 4
	for _, v6 := range []bool{false, true} {
		for k, mss := range []int{r.A.Info().MinMSS, 100, 536, 1001, mtu - 14 - 40 - 20 - 40} {
			for _, n := range []int{1, mss - 1, mss, mss + 1, 2 * mss, 3*mss + 7} {
				d := r.large(n, v6)
				d.options, d.tcpOption = k%3*8, k%2*12
				asks := mbuf.TxTSO
				if k%2 == 1 { // the sums, which are implied, asked for by name
					if asks |= mbuf.TxL4Sum; !v6 {
						asks |= mbuf.TxIPSum
					}
				}
				b := r.askLong(pool, d, asks, mss, 1+n%4)
				tci := uint16(0)
				if n%2 == 0 && r.A.Info().Offloads&nic.TxVLANInsert != 0 {
					tci = uint16(n) | 1
					b.VLAN = tci
					b.SetTxFlags(b.TxFlags() | mbuf.TxVLAN)
				}
				plain := r.to(r.B, 60)
				r.send(r.A.Tx(0), b, r.build(pool, plain))
				frames := d.cut(r, mss)
				for i, f := range frames {
					if tci != 0 {
						frames[i] = tag(f, tci)
					}
				}
				r.segments(frames)
				r.check(r.receive(r.B.Rx(0), 1, 1), [][]byte{plain})
			}
		}
	}
	r.A.Tx(0).Reclaim()
	if n := r.out(pool); n != 0 {
		r.Errorf("%d buffers are not back", n)
	}
	r.nothing(r.B.Rx(0))
}

// askLong is ask with the payload in as many further buffers as it takes, at least pieces.
func (r *run) askLong(p *mbuf.Pool, d *datagram, flags mbuf.TxFlags, mss, pieces int) *mbuf.Buf {
	r.Helper()
	n, room := len(d.payload), p.Size()
	pieces = min(pieces, n)
	lens := cut(n, pieces)
	for slices.Max(lens) > room {
		pieces++
		lens = cut(n, pieces)
	}
	if pieces == 1 && d.headers()+n <= room {
		lens[0] += d.headers()
	} else {
		lens = append([]int{d.headers()}, lens...)
	}
	return r.ask(p, d, flags, mss, lens...)
}

// testTSOLongest cuts the longest frames that there are, from buffers of every size.
func testTSOLongest(r *run) {
	if !r.startTSO(nic.Config{}) {
		return
	}
	i := r.A.Info()
	for _, size := range []int{2048, 9000, 60000} {
		pool := r.pool(mbuf.Config{Buffers: 400000/size + 64, Size: size})
		for _, v6 := range []bool{false, true} {
			for _, n := range []int{65483, 65536, i.MaxTSO} {
				if n = min(n, i.MaxTSO, (i.MaxSegs-2)*size); size > 15000 {
					n = min(n, 10*15000) // a card may need several descriptors for a buffer
				}
				d := r.large(n, v6)
				r.send(r.A.Tx(0), r.askLong(pool, d, mbuf.TxTSO, 1400, 1))
				r.segments(d.cut(r, 1400))
				r.A.Tx(0).Reclaim()
			}
		}
		r.A.Tx(0).Reclaim()
		if n := r.out(pool); n != 0 {
			r.Errorf("buffers of %d bytes: %d are not back", size, n)
		}
	}
	if s := r.A.Stats(); s.TxErrors != 0 {
		r.Errorf("frames were dropped: %s", brief(s))
	}
}

// testTSORingFull fills a small ring with frames that are to be cut in ever other ways: what does not fit is left exactly as
// it was, headers too, and can be sent later.
func testTSORingFull(r *run) {
	if !r.startTSO(nic.Config{TxDesc: r.A.Info().MinDesc}) {
		return
	}
	pool := r.pool(mbuf.Config{Buffers: 16 * max(128, r.A.Info().MinDesc)})
	var bufs []*mbuf.Buf
	var frames, asked [][]byte
	for k := range max(r.few(3*r.A.Info().MinDesc-1), r.A.Info().MinDesc) + 1 { // a frame takes a descriptor or more
		d := r.large(150+k, k&1 != 0)
		mss := 100 + k%5
		b := r.askLong(pool, d, mbuf.TxTSO, mss, 1+k%3)
		bufs, asked = append(bufs, b), append(asked, slices.Clone(b.Bytes()))
		frames = append(frames, d.cut(r, mss)...)
	}
	into := make([]*mbuf.Buf, 32)
	for at, tries := 0, 0; at < len(bufs); tries++ {
		n := r.A.Tx(0).Send(bufs[at:])
		if tries == 0 && (n < 1 || n == len(bufs)) {
			r.Fatalf("Send took %d of %d", n, len(bufs))
		}
		for i := at + n; i < len(bufs); i++ {
			if !bytes.Equal(bufs[i].Bytes(), asked[i]) || bufs[i].TxFlags()&mbuf.TxTSO == 0 {
				r.Fatalf("frame %d was not taken, and is another than before", i)
			}
		}
		if at += n; tries > patience {
			r.Fatalf("the ring stays full: %d of %d frames are sent", at, len(bufs))
		}
		n = r.B.Rx(0).Recv(into)
		r.check(into[:n], frames[:n])
		frames = frames[n:]
		r.pass(10 * moment)
		r.A.Tx(0).Reclaim()
	}
	for some := range slices.Chunk(frames, 64) {
		r.segments(some)
	}
	r.Settle() // the last frame may be here before its sender is told
	r.A.Tx(0).Reclaim()
	if n := r.out(pool); n != 0 {
		r.Errorf("%d buffers are not back", n)
	}
}

// testTSOStop stops a port at every moment of a long frame's way, and starts it again: the card has forgotten whatever it was
// told before.
func testTSOStop(r *run) {
	for k := range r.few(30) {
		if !r.startTSO(nic.Config{}) {
			return
		}
		pool := r.pool(mbuf.Config{Buffers: 256})
		d := r.large(30000, false)
		first := r.large(100, false)
		r.send(r.A.Tx(0), r.askLong(pool, first, mbuf.TxTSO, 1000, 1))
		r.segments(first.cut(r, 1000))
		r.send(r.A.Tx(0), r.askLong(pool, d, mbuf.TxTSO, 1000, 1), r.askLong(pool, d, mbuf.TxTSO, 999, 1))
		r.pass(time.Duration(k*k) * 20 * time.Nanosecond)
		r.stop(r.A, r.B)
		if n := r.out(pool); n != 0 {
			r.Fatalf("stopped, and %d buffers are not back", n)
		}
	}
}

// spoiled is a request that no card can serve, and kin what it would have been: a driver that remembers what it was asked for
// has been asked for the same before.
type spoiled struct {
	what  string
	b     *mbuf.Buf
	why   nic.TxDropReason
	kin   *mbuf.Buf
	comes [][]byte // of kin
}

// testBadOffloads sends requests that make no sense among others that do, both those that they resemble and quite others.
func testBadOffloads(r *run) {
	sums, able := r.sums(r.A)
	pool := r.pool(mbuf.Config{Buffers: 2048})
	if !r.can(r.A, nic.TxTSO|nic.TxL4Checksum, "requests that make no sense") || !r.startTSO(r.sendingFrom(pool, sums)) {
		return
	}
	before := r.A.Stats()
	var want [nic.TxDropReasons]uint64
	var total uint64
	for _, c := range r.spoil(pool) {
		want[c.why]++
		total++
		good := &datagram{dst: r.B.Info().MAC, udp: true, payload: r.data(50)}
		bufs := []*mbuf.Buf{c.b, r.ask(pool, good, able, 0)}
		if c.kin != nil {
			bufs = slices.Insert(bufs, 0, c.kin)
		}
		r.send(r.A.Tx(0), bufs...)
		r.expect(r.B.Rx(0), append(c.comes, good.bytes(r))...)
		s := r.A.Stats()
		if got := s.TxDropped[c.why] - before.TxDropped[c.why]; got != want[c.why] || s.TxErrors-before.TxErrors != total {
			r.Errorf("%s: %d counted as %q, want %d; TxErrors %d, want %d", c.what, got, c.why, want[c.why], s.TxErrors-before.TxErrors, total)
		}
	}
	r.stop(r.A)
	if n := r.out(pool); n != 0 {
		r.Errorf("%d buffers are not back", n)
	}
}

// spoil makes requests that are each wrong in one way.
func (r *run) spoil(pool *mbuf.Pool) (out []spoiled) {
	i := r.A.Info()
	add := func(what string, why nic.TxDropReason, d *datagram, flags mbuf.TxFlags, mss int, do func(b *mbuf.Buf)) {
		s := spoiled{what: what, b: r.askLong(pool, d, flags, mss, 1), why: why}
		if do != nil {
			do(s.b)
			s.kin, s.comes = r.askLong(pool, d, flags, mss, 1), [][]byte{d.bytes(r)}
			if flags&mbuf.TxTSO != 0 {
				s.comes = d.cut(r, mss)
			}
		}
		out = append(out, s)
	}
	small := func() *datagram { return &datagram{dst: r.B.Info().MAC, payload: r.data(300)} }
	six := func() *datagram { d := small(); d.v6 = true; return d }
	_, both := r.sums(r.A)
	for what, do := range map[string]func(b *mbuf.Buf){
		"L2Len 0":                  func(b *mbuf.Buf) { b.L2Len = 0 },
		"L2Len 13":                 func(b *mbuf.Buf) { b.L2Len = 13 },
		"L2Len 255":                func(b *mbuf.Buf) { b.L2Len = 255 },
		"L2Len beyond the frame":   func(b *mbuf.Buf) { b.L2Len = 126; _ = b.TrimBack(b.Len() - 100) },
		"L3Len 0":                  func(b *mbuf.Buf) { b.L3Len = 0 },
		"L3Len 64":                 func(b *mbuf.Buf) { b.L3Len = 64; b.Bytes()[14] = 0x50 },
		"L3Len of another header":  func(b *mbuf.Buf) { b.L3Len = 24 },
		"no IP version":            func(b *mbuf.Buf) { b.Bytes()[14] = 0x65 },
		"L2Len of the whole frame": func(b *mbuf.Buf) { b.L2Len, b.L3Len = 100, 0; _ = b.TrimBack(b.Len() - 100) },
		"L3Len 65535":              func(b *mbuf.Buf) { b.L3Len = 65535 },
		"headers beyond the frame": func(b *mbuf.Buf) { _ = b.TrimBack(b.Len() - 14 - 20 - 19) },
		"IPv4 called IPv6":         func(b *mbuf.Buf) { b.SetTxFlags(mbuf.TxL4Sum | mbuf.TxIPv6); b.L3Len = 40 },
	} {
		add(what, nic.TxBadOffload, small(), both, 0, do)
	}
	long := small()
	long.payload = r.data(defaultMaxFrame - 54 + 1)
	short := small()
	out = append(out, spoiled{"too long", r.ask(pool, long, both, 0), nic.TxTooLong, r.ask(pool, short, both, 0), [][]byte{short.bytes(r)}})
	add("IPv6 called IPv4", nic.TxBadOffload, six(), mbuf.TxL4Sum, 0, func(b *mbuf.Buf) { b.SetTxFlags(mbuf.TxL4Sum) })
	add("an IPv4 checksum of IPv6", nic.TxBadOffload, six(), mbuf.TxIPSum|mbuf.TxL4Sum, 0, nil)
	add("IPv6 shorter than its header", nic.TxBadOffload, six(), mbuf.TxL4Sum, 0, func(b *mbuf.Buf) { b.L3Len = 39 })
	for what, do := range map[string]func(b *mbuf.Buf){
		"MSS 0":             func(b *mbuf.Buf) { b.MSS = 0 },
		"MSS too small":     func(b *mbuf.Buf) { b.MSS = uint16(i.MinMSS - 1) },
		"segments too long": func(b *mbuf.Buf) { b.MSS = uint16(defaultMaxFrame - 54 + 1) },
		"MSS 65535":         func(b *mbuf.Buf) { b.MSS = 65535 },
		"L4Len 0":           func(b *mbuf.Buf) { b.L4Len = 0 },
		"L4Len 19":          func(b *mbuf.Buf) { b.L4Len = 19 },
		"L4Len of more":     func(b *mbuf.Buf) { b.L4Len = 24 },
		"L4Len 255":         func(b *mbuf.Buf) { b.L4Len = 255 },
		"UDP segmentation":  func(b *mbuf.Buf) { b.SetTxFlags(mbuf.TxTSO | mbuf.TxUDP) },
		"nothing to cut":    func(b *mbuf.Buf) { _ = b.TrimBack(b.Len() - 54) },
	} {
		add(what, nic.TxBadOffload, small(), mbuf.TxTSO, 100, do)
	}
	divided := r.ask(pool, small(), mbuf.TxTSO, 100, 54-8, 8, 300)
	many := r.large(2000, true)
	segments := r.ask(pool, many, mbuf.TxTSO, 100, append([]int{many.headers()}, cut(2000, i.MaxSegs)...)...)
	hollow := r.ask(pool, small(), mbuf.TxTSO, 100, 54, 300)
	gap := r.build(pool, nil, 0)
	gap.SetNext(hollow.Next())
	hollow.SetNext(gap)
	whole := small()
	out = append(out, spoiled{"headers in two segments, for their sums", r.ask(pool, small(), both, 0, 54-8, 8, 300), nic.TxBadOffload,
		r.ask(pool, whole, both, 0, 54, 300), [][]byte{whole.bytes(r)}})
	return append(out, spoiled{what: "headers in two segments", b: divided, why: nic.TxBadOffload},
		spoiled{what: "too many segments", b: segments, why: nic.TxTooManySeg}, spoiled{what: "a segment of nothing", b: hollow, why: nic.TxTooShort})
}

// testSharedHeaders asks for headers to be finished that somebody else has a view of: they may not be written, also not among
// others that ask for the same and may.
func testSharedHeaders(r *run) {
	sums, able := r.sums(r.A)
	if !r.can(r.A, nic.TxL4Checksum, "checksums of shared headers") {
		return
	}
	pool := r.pool(mbuf.Config{})
	r.start(r.A, r.sendingFrom(pool, sums))
	r.start(r.B, nic.Config{})
	r.up()
	d := &datagram{dst: r.B.Info().MAC, payload: r.data(100)}
	want := uint64(0)
	for _, lens := range [][]int{nil, {d.headers(), 100}} {
		ask := func() *mbuf.Buf { return r.ask(pool, d, able, 0, lens...) }
		for _, kin := range []int{0, 2} {
			own := ask() // the view that is the block's own, and another
			other := own.Clone(r.cache(pool))
			before := slices.Clone(own.Bytes())
			refused := func(b, keep *mbuf.Buf) {
				var bufs []*mbuf.Buf
				for range kin {
					bufs = append(bufs, ask())
				}
				r.send(r.A.Tx(0), append(bufs, b)...)
				r.expect(r.B.Rx(0), slices.Repeat([][]byte{d.bytes(r)}, kin)...)
				r.nothing(r.B.Rx(0))
				want++
				if n := r.A.Stats().TxDropped[nic.TxBadOffload]; n != want {
					r.Errorf("behind %d others: %d counted as bad offloads, want %d", kin, n, want)
				}
				if !bytes.Equal(keep.Bytes(), before) {
					r.Errorf("shared headers were written: %x, were %x", keep.Bytes(), before)
				}
			}
			refused(other, own)
			third := own.Clone(r.cache(pool))
			refused(own, third)
			r.send(r.A.Tx(0), third) // the last view, though not the block's own
			r.expect(r.B.Rx(0), d.bytes(r))
		}
	}
}

// testOffloadsOff asks for what a port could do and was not started with.
func testOffloadsOff(r *run) {
	r.startBoth(nic.Config{})
	pool := r.pool(mbuf.Config{})
	d := &datagram{dst: r.B.Info().MAC, payload: r.data(300)}
	all := []mbuf.TxFlags{mbuf.TxIPSum, mbuf.TxL4Sum, mbuf.TxIPSum | mbuf.TxL4Sum, mbuf.TxTSO, mbuf.TxVLAN}
	for _, flags := range all {
		r.send(r.A.Tx(0), r.ask(pool, d, flags, 100))
	}
	r.nothing(r.B.Rx(0))
	if n := r.A.Stats().TxDropped[nic.TxBadOffload]; n != uint64(len(all)) {
		r.Errorf("%d counted as bad offloads, want %d", n, len(all))
	}
}

// testTSOTooLong asks for more than a card can cut at once.
func testTSOTooLong(r *run) {
	i := r.A.Info()
	if i.MaxTSO > (i.MaxSegs-1)*9000 {
		r.cannot("a frame too long to be cut: no chain of buffers is")
		return
	}
	if !r.startTSO(nic.Config{}) {
		return
	}
	pool := r.pool(mbuf.Config{Buffers: 128, Size: 9000})
	good, bad := r.large(i.MaxTSO, true), r.large(max(i.MaxTSO, 1<<16)+1, true) // the length of an IP packet has 16 bits
	r.send(r.A.Tx(0), r.askLong(pool, bad, mbuf.TxTSO, 1400, 1), r.askLong(pool, good, mbuf.TxTSO, 1400, 1))
	r.segments(good.cut(r, 1400))
	if n := r.A.Stats().TxDropped[nic.TxBadOffload]; n != 1 {
		r.Errorf("%d counted as bad offloads, want 1", n)
	}
}
