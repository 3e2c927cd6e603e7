package nictest

import (
	"bytes"
	"encoding/binary"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/wire"
)

// testJoined lets segments of one stream come joined: whatever is joined with what, the bytes are those of the stream, in
// order, and each frame says how it may be cut again.
func testJoined(r *run) {
	if !r.can(r.B, nic.RxGSO, "segments that come joined") {
		return
	}
	joined := 0
	for _, size := range []int{2048, 512, 60000} {
		r.start(r.A, nic.Config{})
		r.start(r.B, nic.Config{Offloads: nic.RxGSO | r.B.Info().Offloads&nic.RxL4Checksum, Pool: r.pool(mbuf.Config{Size: size, Buffers: max(128, 3<<20/size)})})
		r.up()
		pool := r.pool(mbuf.Config{})
		for _, v6 := range []bool{false, true} {
			for _, mss := range []int{1400, 536} {
				d := &datagram{dst: r.B.Info().MAC, v6: v6, id: 7, seq: 0xffff_f000, flags: wire.TCPAck, payload: r.data(20000)}
				r.sendFrames(r.A.Tx(0), pool, d.cut(r, mss)...)
				r.Settle() // a device joins what it has
				joined += r.stream(d, mss)
			}
		}
		// What is no stream's comes as it was.
		f := r.to(r.B, 700)
		r.sendFrames(r.A.Tx(0), pool, f)
		r.expect(r.B.Rx(0), f)
		r.stop(r.A, r.B)
	}
	if joined == 0 {
		r.cannot("segments that come joined: none did")
	}
}

// stream receives the segments of d, joined or not, and returns how many frames were joined ones.
func (r *run) stream(d *datagram, mss int) (joined int) {
	r.Helper()
	l2, l3, _ := d.lens()
	for at := 0; at < len(d.payload); {
		b := r.receive(r.B.Rx(0), 1, 1)[0]
		var f []byte
		for s := b; s != nil; s = s.Next() {
			f = append(f, s.Bytes()...)
		}
		n := len(f) - d.headers()
		if n < 1 || at+n > len(d.payload) || !bytes.Equal(f[d.headers():], d.payload[at:at+n]) {
			r.Fatalf("at byte %d of the stream: a frame of %d bytes has others than were sent", at, len(f))
		}
		if seq := binary.BigEndian.Uint32(f[l2+l3+4:]); seq != d.seq+uint32(at) {
			r.Fatalf("at byte %d of the stream: sequence number %d more than the first", at, seq-d.seq)
		}
		length := int(binary.BigEndian.Uint16(f[l2+2:])) + l2
		if d.v6 {
			length = int(binary.BigEndian.Uint16(f[l2+4:])) + l2 + l3
		}
		if length != len(f) {
			r.Fatalf("at byte %d of the stream: the IP header speaks of %d bytes, the frame has %d", at, length, len(f))
		}
		switch is := b.Flags()&mbuf.RxGSO != 0; {
		case is != (n > mss):
			r.Fatalf("at byte %d of the stream: %d bytes of payload, segments of %d, flags %#x", at, n, mss, b.Flags())
		case is && int(b.MSS) != mss:
			r.Fatalf("at byte %d of the stream: MSS %d, want %d", at, b.MSS, mss)
		case is:
			joined++
		}
		at += n
		r.free(b)
	}
	r.nothing(r.B.Rx(0))
	return joined
}
