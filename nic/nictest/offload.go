package nictest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/wire"
)

// shapes are datagrams of every kind that a card has to tell apart.
func (r *run) shapes(dst [6]byte) (out []*datagram) {
	for _, v6 := range []bool{false, true} {
		for _, udp := range []bool{false, true} {
			for _, options := range []int{0, 8, 40} {
				for _, n := range []int{0, 1, 2, 63, 700, 1201} {
					d := &datagram{dst: dst, v6: v6, udp: udp, options: options, id: uint16(n), seq: 0xfffffff0, flags: wire.TCPAck, payload: r.data(n)}
					if n == 63 {
						d.tci, d.tcpOption = 0x2007, 12
					}
					out = append(out, d)
				}
			}
		}
	}
	return out
}

// sumsToZero gives a datagram the payload with which its checksum is 0, which UDP sends as ffff (RFC 768).
func (d *datagram) sumsToZero(r *run) *datagram {
	d.payload = make([]byte, 2)
	copySum := binary.BigEndian.Uint16(d.bytes(r)[d.sumAt():])
	binary.BigEndian.PutUint16(d.payload, copySum)
	return d
}

func testTxChecksums(r *run) {
	sums, able := r.sums(r.A)
	if sums == 0 {
		r.cannot("checksums on sending")
		return
	}
	pool := r.pool(mbuf.Config{Buffers: 2048})
	r.start(r.A, r.sendingFrom(pool, sums))
	r.start(r.B, nic.Config{})
	r.up()
	shapes := append(r.shapes(r.B.Info().MAC),
		(&datagram{dst: r.B.Info().MAC, udp: true}).sumsToZero(r), (&datagram{dst: r.B.Info().MAC, udp: true, v6: true}).sumsToZero(r),
		(&datagram{dst: r.B.Info().MAC}).sumsToZero(r))
	for _, flags := range []mbuf.TxFlags{mbuf.TxIPSum | mbuf.TxL4Sum, mbuf.TxL4Sum, mbuf.TxIPSum} {
		if flags&^able != 0 {
			continue
		}
		for group := range slices.Chunk(shapes, 16) {
			var frames [][]byte
			var bufs []*mbuf.Buf
			for k, d := range group {
				f := flags
				if d.v6 {
					if f &^= mbuf.TxIPSum; f == 0 {
						continue
					}
				}
				lens := []int{d.headers() + len(d.payload)}
				if k%3 == 1 && len(d.payload) > 3 && r.A.Info().MaxSegs > 2 { // the payload apart, and an odd piece of it
					lens = []int{d.headers(), 3, len(d.payload) - 3}
				}
				frames = append(frames, d.bytes(r), r.to(r.B, 90))
				bufs = append(bufs, r.ask(pool, d, f, 0, lens...), r.build(pool, frames[len(frames)-1]))
			}
			r.send(r.A.Tx(0), bufs...)
			r.expect(r.B.Rx(0), frames...)
		}
	}
	r.stop(r.A)
	if n := r.out(pool); n != 0 {
		r.Errorf("%d buffers are not back", n)
	}
}

// tag returns a frame with an 802.1Q tag put in.
func tag(f []byte, tci uint16) []byte {
	return slices.Concat(f[:12], []byte{0x81, 0, byte(tci >> 8), byte(tci)}, f[12:])
}

func testTxVLAN(r *run) {
	if !r.can(r.A, nic.TxVLANInsert, "tags put into sent frames") {
		return
	}
	sums := r.A.Info().Offloads & (nic.TxIPChecksum | nic.TxL4Checksum)
	r.start(r.A, nic.Config{Offloads: nic.TxVLANInsert | sums})
	r.start(r.B, nic.Config{})
	r.up()
	pool := r.pool(mbuf.Config{})
	var frames [][]byte
	tagged := func(f []byte, b *mbuf.Buf, tci uint16) {
		b.VLAN = tci
		b.SetTxFlags(b.TxFlags() | mbuf.TxVLAN)
		frames = append(frames, tag(f, tci))
		r.send(r.A.Tx(0), b)
	}
	for k, tci := range []uint16{1, 0xE123, 4095, 0, 1, 1, 0x8100} {
		f := r.to(r.B, 60+200*k)
		tagged(f, r.build(pool, f), tci)
		plain := r.to(r.B, 60)
		frames = append(frames, plain)
		r.sendFrames(r.A.Tx(0), pool, plain)
		if sums == nic.TxIPChecksum|nic.TxL4Checksum {
			d := &datagram{dst: r.B.Info().MAC, tci: uint16(k) * 5, udp: k&1 != 0, payload: r.data(100 + k)} // a tag inside this one too, but for the first
			tagged(d.bytes(r), r.ask(pool, d, mbuf.TxIPSum|mbuf.TxL4Sum, 0), tci+1)
		}
	}
	// A frame whose buffer is shared: nothing of it is written.
	shared := r.to(r.B, 200)
	first := r.build(pool, shared)
	second := first.Clone(r.cache(pool))
	tagged(shared, first, 77)
	tagged(shared, second, 78)
	longest := r.to(r.B, defaultMaxFrame-4)
	tagged(longest, r.build(pool, longest), 5)
	r.expect(r.B.Rx(0), frames...)
	tooLong := r.build(pool, r.to(r.B, defaultMaxFrame-3))
	tooLong.SetTxFlags(mbuf.TxVLAN)
	r.send(r.A.Tx(0), tooLong)
	if n := r.A.Stats().TxDropped[nic.TxTooLong]; n != 1 {
		r.Errorf("a frame that its tag makes too long: %d counted, want 1", n)
	}
	r.A.Tx(0).Reclaim()
	if n := r.out(pool); n != 0 {
		r.Errorf("%d buffers are not back", n)
	}
}

// sumCase is a frame and what may be said of it.
type sumCase struct {
	what          string
	frame         []byte
	must, mustNot mbuf.Flags
}

// sumCases are frames with right and wrong checksums, and some with none.
func (r *run) sumCases() (out []sumCase) {
	const none = mbuf.RxIPGood | mbuf.RxIPBad | mbuf.RxL4Good | mbuf.RxL4Bad
	flip := func(f []byte, at int) []byte {
		f = slices.Clone(f)
		f[at] ^= 0x10
		return f
	}
	dst := r.B.Info().MAC
	for _, d := range r.shapes(dst) {
		f, l2, l4 := d.bytes(r), 0, d.sumAt()
		l2, _, _ = d.lens()
		what := map[bool]string{false: "IPv4 ", true: "IPv6 "}[d.v6] + d.proto().String()
		good, notIP := mbuf.RxL4Good, mbuf.RxIPGood|mbuf.RxIPBad
		if !d.v6 {
			good, notIP = good|mbuf.RxIPGood, mbuf.RxIPBad
		}
		out = append(out, sumCase{what, f, good, notIP | mbuf.RxL4Bad})
		bad := sumCase{what + ", L4 sum wrong", flip(f, l4), good &^ mbuf.RxL4Good, notIP | mbuf.RxL4Good}
		if !d.udp && !r.SilentOnBad { // bad UDP may be unknown: the 82599 calls UDP without a checksum bad
			bad.must |= mbuf.RxL4Bad
		}
		out = append(out, bad)
		if d.udp && !d.v6 {
			f := slices.Clone(f)
			f[l4], f[l4+1] = 0, 0
			out = append(out, sumCase{what + " without a sum", f, mbuf.RxIPGood, mbuf.RxIPBad | mbuf.RxL4Bad})
		}
		if !d.v6 {
			out = append(out, sumCase{what + ", IP sum wrong", flip(f, l2+10), mbuf.RxIPBad, mbuf.RxIPGood})
			// A fragment: its header is good or unknown, its sum cannot be checked.
			f := slices.Clone(f)
			f[l2+6] = 0x20
			wire.IPv4(f[l2 : l2+wire.IPv4MinLen+d.options]).FillChecksum()
			out = append(out, sumCase{what + ", fragment", f, 0, mbuf.RxIPBad | mbuf.RxL4Bad | mbuf.RxL4Good})
		}
	}
	return append(out, sumCase{"no IP", r.to(r.B, 300), 0, none})
}

// testRxChecksums: every frame is delivered, whatever its checksums, and what is said of them is true.
func testRxChecksums(r *run) {
	able := r.B.Info().Offloads & (nic.RxIPChecksum | nic.RxL4Checksum)
	if able == 0 {
		r.cannot("checksums on reception")
		return
	}
	cases := r.sumCases()
	pool := r.pool(mbuf.Config{Buffers: 2048})
	for _, cfg := range []nic.Config{
		{Offloads: nic.RxIPChecksum | nic.RxL4Checksum},
		{Offloads: nic.RxIPChecksum | nic.RxL4Checksum, Pool: r.pool(mbuf.Config{Size: 1024})}, // longer frames in several buffers
		{Offloads: nic.RxIPChecksum},
		{Offloads: nic.RxL4Checksum},
		{},
	} {
		cfg.Offloads &= able
		var told mbuf.Flags
		if cfg.Offloads&nic.RxIPChecksum != 0 {
			told |= mbuf.RxIPGood | mbuf.RxIPBad
		}
		if cfg.Offloads&nic.RxL4Checksum != 0 {
			told |= mbuf.RxL4Good | mbuf.RxL4Bad
		}
		r.start(r.A, nic.Config{})
		r.start(r.B, cfg)
		r.up()
		for group := range slices.Chunk(cases, 32) {
			var bufs []*mbuf.Buf
			for _, c := range group {
				bufs = append(bufs, r.build(pool, c.frame))
			}
			r.send(r.A.Tx(0), bufs...)
			for i, b := range r.receive(r.B.Rx(0), len(group), 7) {
				r.judge(b, group[i], told)
				r.check([]*mbuf.Buf{b}, [][]byte{group[i].frame})
			}
		}
		r.stop(r.A, r.B)
	}
}

// judge compares the flags of a received frame with what may be told of it.
func (r *run) judge(b *mbuf.Buf, c sumCase, told mbuf.Flags) {
	r.Helper()
	const sums = mbuf.RxIPGood | mbuf.RxIPBad | mbuf.RxL4Good | mbuf.RxL4Bad
	f := b.Flags()
	if must := c.must & told; f&must != must || f&(c.mustNot|sums&^told) != 0 {
		r.Errorf("%s: flags %#x, want %#x and none of %#x; %.64x", c.what, f, must, c.mustNot|sums&^told, c.frame)
	}
	l, err := wire.Parse(c.frame)
	if err != nil {
		return // the card may see it otherwise
	}
	for flag, is := range map[mbuf.Flags]bool{
		mbuf.RxIPv4: l.IsIPv4(), mbuf.RxIPv6: l.IsIPv6(),
		mbuf.RxTCP: l.TCP(c.frame) != nil, mbuf.RxUDP: l.UDP(c.frame) != nil,
	} {
		if f&flag != 0 && !is {
			r.Errorf("%s: flags %#x say of what kind it is, and it is not: %.64x", c.what, f, c.frame)
		}
	}
}

// testRxAllNotes has tags and checksums told at once: of tagged and untagged frames in turn.
func testRxAllNotes(r *run) {
	if !r.can(r.B, nic.RxIPChecksum|nic.RxL4Checksum|nic.RxVLANStrip, "checksums of frames whose tag is taken out") {
		return
	}
	r.start(r.A, nic.Config{})
	r.start(r.B, nic.Config{Offloads: nic.RxIPChecksum | nic.RxL4Checksum | nic.RxVLANStrip})
	r.up()
	pool := r.pool(mbuf.Config{})
	for k := range r.few(200) {
		d := &datagram{dst: r.B.Info().MAC, tci: uint16(k%3) * 0x1001, v6: k&1 != 0, payload: r.data(10 + k)}
		f := d.bytes(r)
		r.sendFrames(r.A.Tx(0), pool, f)
		b := r.receive(r.B.Rx(0), 1, 1)[0]
		if tagged := b.Flags()&mbuf.RxVLAN != 0; tagged != (d.tci != 0) || tagged && b.VLAN != d.tci {
			r.Fatalf("tag %#x: flags %#x, VLAN %#x", d.tci, b.Flags(), b.VLAN)
		}
		if b.Flags()&mbuf.RxL4Good == 0 || b.Flags()&mbuf.RxIPGood == 0 && !d.v6 {
			r.Fatalf("tag %#x: flags %#x, and both sums are right", d.tci, b.Flags())
		}
		want := f
		if d.tci != 0 {
			want = slices.Concat(f[:12], f[16:])
		}
		if want = r.padded(want); !bytes.HasPrefix(b.Bytes(), want) {
			r.Fatalf("tag %#x: %x, want %x", d.tci, b.Bytes(), want)
		}
		r.free(b)
	}
}

// testOffloadsMixed sends bursts of frames that ask for anything in any order, in all kinds of buffers.
func testOffloadsMixed(r *run) {
	sums, _ := r.sums(r.A)
	pool := r.pool(mbuf.Config{Buffers: 2048})
	cfg := r.sendingFrom(pool, sums)
	cfg.TxDesc = r.A.Info().MinDesc
	if !r.can(r.A, nic.TxL4Checksum, "requests of all kinds in one burst") || !r.startTSO(cfg) {
		return
	}
	rng := rand.New(rand.NewPCG(11, 11))
	for range r.few(150) {
		var bufs []*mbuf.Buf
		var frames [][]byte
		for range 1 + rng.IntN(12) {
			kind := rng.IntN(requests)
			for range 1 + rng.IntN(3) { // often the same again
				b, f := r.request(pool, kind)
				bufs, frames = append(bufs, b), append(frames, f...)
			}
		}
		for tries := 0; len(bufs) > 0; tries++ {
			if tries > patience {
				r.Fatalf("the ring stays full: %d frames are not taken", len(bufs))
			}
			bufs = bufs[r.A.Tx(0).Send(bufs):]
			r.pass(moment * time.Duration(rng.IntN(40)))
			r.A.Tx(0).Reclaim()
		}
		r.segments(frames)
	}
	r.Settle()
	r.A.Tx(0).Reclaim()
	var few []*mbuf.Buf
	for kind := range requests {
		b, _ := r.request(pool, kind)
		few = append(few, b)
	}
	r.send(r.A.Tx(0), few...)
	r.Settle()
	if n := r.A.Tx(0).Reclaim(); n != requests {
		r.Errorf("%d frames have been sent, Reclaim says %d", requests, n)
	}
	s := r.A.Stats()
	r.stop(r.A)
	if n := r.out(pool); n != 0 {
		r.Errorf("%d buffers are not back", n)
	}
	if s.TxErrors != 0 {
		r.Errorf("frames were dropped: %s", brief(s))
	}
}

// requests is the number of kinds that request knows.
const requests = 8

// request makes a frame of one kind, and what comes out of it.
func (r *run) request(pool *mbuf.Pool, kind int) (*mbuf.Buf, [][]byte) {
	_, both := r.sums(r.A)
	d := &datagram{dst: r.B.Info().MAC, payload: r.data(300)}
	comes := [][]byte{d.bytes(r)}
	switch kind {
	case 0: // nothing to do
		return r.build(pool, comes[0]), comes
	case 1:
		return r.ask(pool, d, both, 0), comes
	case 2: // the payload apart, and kept by somebody for a while: what a TCP sends
		b := r.ask(pool, d, both, 0, d.headers(), 300)
		payload := b.Next()
		b.SetNext(payload.Clone(r.cache(pool)))
		payload.Free()
		return b, comes
	case 3: // a view that is not the block's own, but the last
		b := r.ask(pool, d, both, 0)
		last := b.Clone(r.cache(pool))
		b.Free()
		return last, comes
	case 4:
		d.v6, d.udp = true, true
		return r.ask(pool, d, mbuf.TxL4Sum, 0), [][]byte{d.bytes(r)}
	case 5:
		b := r.ask(pool, d, both, 0, d.headers(), 100, 200)
		if r.A.Info().Offloads&nic.TxVLANInsert == 0 {
			return b, comes
		}
		b.VLAN = 0x2123
		b.SetTxFlags(b.TxFlags() | mbuf.TxVLAN)
		return b, [][]byte{tag(comes[0], b.VLAN)}
	case 6: // a tag in the frame that looks like the beginning of an IP header
		d.tci = 0x4500
		return r.ask(pool, d, both, 0), [][]byte{d.bytes(r)}
	default:
		return r.ask(pool, d, mbuf.TxTSO, 128, d.headers(), 300), d.cut(r, 128)
	}
}
