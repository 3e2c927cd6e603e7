package virtionet

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"bare.wire/sim/offload"
	"bare.wire/virtio/spec"
	"bare.wire/wire"
)

func pseudo(addr []byte) uint64 { return offload.Sum(addr, 0) }

// tcpFrame is a TCP segment with the flags FIN, PSH, ACK and CWR, and options; its checksum field holds the sum of the pseudo
// header.
func tcpFrame(v6 bool, payload []byte) (f []byte, h Header) {
	const l4 = 32
	f = make([]byte, 14, 14+60+len(payload)+l4)
	copy(f, macB[:])
	copy(f[6:], macA[:])
	start := 34
	kind := uint8(spec.GSOTCPv4)
	n := l4 + len(payload)
	if v6 {
		f[12], f[13] = 0x86, 0xDD
		start, kind = 54, spec.GSOTCPv6
		f = append(f, 0x60, 0, 0, 0, byte(n>>8), byte(n), 6, 64)
		for i := range 32 {
			f = append(f, byte(i))
		}
	} else {
		f[12], f[13] = 8, 0
		n := n + 20
		f = append(f, 0x45, 0, byte(n>>8), byte(n), 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
		complete(f[14:34], 10, 0)
	}
	f = append(f, 0x10, 0x00, 0x20, 0x00, 0, 0, 1, 0, 0, 0, 0, 9, 0x80, 0x99, 1, 0, 0, 0, 0, 0)
	f = append(f, 1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8)
	f = append(f, payload...)
	addr := f[26:34]
	if v6 {
		addr = f[22:54]
	}
	s := offload.Sum(addr, uint64(protoTCP+n))
	f[start+16], f[start+17] = byte(s>>8), byte(s)
	return f, Header{Flags: spec.HdrNeedsCSum, GSOType: kind, HdrLen: uint16(start + l4), CSumStart: uint16(start), CSumOffset: 16}
}

const allOffloads = sendFeatures | guestFeatures | spec.FeatureMrgRxBuf

func numbers(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8)
	}
	return b
}

// checked parses a TCP frame with package wire, which knows nothing of the device's own sums.
func checked(t *testing.T, f []byte) wire.TCP {
	t.Helper()
	l, err := wire.Parse(f)
	if err != nil {
		t.Fatalf("%v: % x", err, f)
	}
	_ = l
	var p packet
	if p.parse(f); !p.good {
		t.Errorf("bad checksum: % x", f[:60])
	}
	return wire.TCP(f[p.l4:p.data])
}

func TestChecksumIsCompleted(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		r := newRig(t, 1, nil)
		r.a.start(allOffloads, 16)
		r.b.start(spec.FeatureGuestCSum, 16)
		r.b.fill(0, 4, 1600)
		f, h := tcpFrame(v6, numbers(101))
		h.GSOType = spec.GSONone
		r.a.send(1, h, f, 2)
		r.run(5 * time.Microsecond)
		got, raw, ok := r.b.recv(0)
		if !ok {
			t.Fatal("nothing arrived")
		}
		checked(t, raw[12:])
		if got.Flags != spec.HdrDataValid {
			t.Errorf("flags %#x", got.Flags)
		}
		r.a.clean()
	}
}

func TestBadChecksumIsNotCalledValid(t *testing.T) {
	r := newRig(t, 1, nil)
	r.a.start(spec.FeatureGuestCSum, 16)
	r.a.fill(0, 4, 1600)
	f := udp4([4]byte{1, 2, 3, 4}, [4]byte{5, 6, 7, 8}, 1, 2, 30)
	for i, want := range []uint8{spec.HdrDataValid, 0} {
		f[60] ^= byte(i)
		r.arrive(f)
		if h, _, ok := r.a.recv(0); !ok || h.Flags != want {
			t.Errorf("flags %#x, %t; want %#x", h.Flags, ok, want)
		}
	}
}

// TestLargeFramesAreCut checks each segment: lengths, ids, sequence numbers, flags, checksums, payload.
func TestLargeFramesAreCut(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		r := newRig(t, 1, nil)
		r.a.start(allOffloads, 32)
		r.b.start(spec.FeatureMrgRxBuf, 64)
		r.b.fill(0, 60, 1600)
		payload := numbers(60001)
		f, h := tcpFrame(v6, payload)
		h.GSOSize = 1448
		r.a.send(1, h, f, 5)
		r.run(200 * time.Microsecond)
		var whole []byte
		first := true
		for i := 0; ; i++ {
			_, raw, ok := r.b.recv(0)
			if !ok {
				break
			}
			tcp := checked(t, raw[12:])
			last := len(whole)+1448 >= len(payload)
			want := byte(0x10)
			if first {
				want |= 0x80
			}
			if last {
				want |= 0x09
			}
			if tcp[13] != want {
				t.Errorf("segment %d has flags %#x, want %#x", i, tcp[13], want)
			}
			if seq := tcp.Seq(); seq != 0x100+uint32(len(whole)) {
				t.Errorf("segment %d has sequence number %d", i, seq)
			}
			if id := be16(raw[12+18:]); !v6 && id != 0x1234+uint16(i) {
				t.Errorf("segment %d has id %#x", i, id)
			}
			var p packet
			p.parse(raw[12:])
			whole = append(whole, raw[12+p.data:12+p.end]...)
			first = false
		}
		if !bytes.Equal(whole, payload) {
			t.Errorf("IPv6 %t: %d bytes of payload, of %d, or others", v6, len(whole), len(payload))
		}
		r.a.clean()
	}
}

func TestDatagramsAreCut(t *testing.T) {
	f := udp4([4]byte{10, 0, 0, 1}, [4]byte{10, 0, 0, 2}, 7, 9, 2500)
	p := offload.Sum(f[26:34], 17+8+2500)
	f[40], f[41] = byte(p>>8), byte(p)
	r := newRig(t, 1, nil)
	r.a.start(allOffloads, 16)
	r.b.start(spec.FeatureGuestCSum, 16)
	r.b.fill(0, 8, 1600)
	r.a.send(1, Header{Flags: spec.HdrNeedsCSum, GSOType: spec.GSOUDPL4, GSOSize: 1000, HdrLen: 42, CSumStart: 34, CSumOffset: 6}, f, 2)
	r.run(20 * time.Microsecond)
	var whole []byte
	for _, want := range []int{1000, 1000, 500} {
		h, raw, ok := r.b.recv(0)
		if !ok || h.Flags != spec.HdrDataValid {
			t.Fatalf("arrived: %t, flags %#x", ok, h.Flags)
		}
		if n := int(be16(raw[12+38:])); n != 8+want || len(raw) != 12+42+want {
			t.Errorf("a datagram of %d bytes, want %d", n, 8+want)
		}
		whole = append(whole, raw[12+42:]...)
	}
	if !bytes.Equal(whole, f[42:]) {
		t.Error("another payload")
	}
	r.a.clean()
}

// TestSegmentsAreJoined sends a large frame through a wire where it is cut, and has it joined behind the wire.
func TestSegmentsAreJoined(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, f := range []spec.Features{spec.FeatureMrgRxBuf, 0} {
			r := newRig(t, 1, nil)
			r.a.start(allOffloads, 32)
			r.b.start(f|guestFeatures, 32)
			if f == 0 {
				r.b.fill(0, 8, spec.MinRxBufferGSO)
			} else {
				r.b.fill(0, 32, 2048)
			}
			payload := numbers(20000)
			b, h := tcpFrame(v6, payload)
			b[int(h.CSumStart)+13] = 0x18
			h.GSOSize = 1000
			r.a.send(1, h, b, 1)
			r.run(200 * time.Microsecond)
			var whole []byte
			joined := 0
			for {
				got, raw, ok := r.b.recv(0)
				if !ok {
					break
				}
				var p packet
				p.parse(raw[12:])
				if got.GSOType != spec.GSONone {
					joined++
					if got.GSOType != h.GSOType || got.GSOSize != 1000 || got.Flags != spec.HdrNeedsCSum || got.CSumOffset != 16 || int(got.CSumStart) != p.l4 || int(got.HdrLen) != p.data {
						t.Errorf("header %+v", got)
					}
					complete(raw[12+p.l4:], 16, 0)
					checked(t, raw[12:])
				}
				whole = append(whole, raw[12+p.data:12+p.end]...)
			}
			if !bytes.Equal(whole, payload) || joined == 0 {
				t.Errorf("IPv6 %t: %d bytes of payload of %d, %d frames joined", v6, len(whole), len(payload), joined)
			}
			r.b.clean()
		}
	}
}

func TestWhatWasNotAgreedOnIsNotSent(t *testing.T) {
	base, h := tcpFrame(false, numbers(3000))
	h.GSOSize = 1000
	for _, x := range []struct {
		what string
		f    spec.Features
		bend func(h *Header)
	}{
		{"a checksum", 0, func(h *Header) { h.GSOType = 0 }},
		{"segments", spec.FeatureCSum, func(*Header) {}},
		{"segments with ECN", spec.FeatureCSum | spec.FeatureHostTSO4, func(h *Header) { h.GSOType |= spec.GSOECN }},
		{"segments without a checksum", allOffloads, func(h *Header) { h.Flags = 0 }},
		{"segments of nothing", allOffloads, func(h *Header) { h.GSOSize = 0 }},
		{"UFO", allOffloads, func(h *Header) { h.GSOType = spec.GSOUDP }},
		{"a checksum beyond the frame", allOffloads, func(h *Header) { h.CSumStart = uint16(len(base)) - 17 }},
	} {
		r := newRig(t, 1, nil)
		r.a.start(x.f, 16)
		h := h
		x.bend(&h)
		r.a.send(1, h, base, 1)
		r.run(20 * time.Microsecond)
		if n := r.a.sent(1); n != 1 {
			t.Errorf("%s: %d frames came back", x.what, n)
		}
		if c := r.a.d.Counts(); c.TxFrames != 0 || c.TxRefused != 1 {
			t.Errorf("%s: %+v", x.what, c)
		}
		if list := r.a.d.Misuse(); len(list) != 1 || list[0].Kind != HeaderForm {
			t.Errorf("%s: %v", x.what, list)
		}
	}
}

func TestSpeedOfTheWireIsKept(t *testing.T) {
	r := newRig(t, 1, func(c *Config) { c.Speed = 1e9 })
	r.a.start(0, 64)
	r.b.start(0, 64)
	r.b.fill(0, 64, 1600)
	for i := range 50 {
		r.a.send(1, Header{}, frameTo(macB, 1514, i), 1)
	}
	start := r.clk.Nanos()
	for n := 0; n < 50; {
		r.run(10 * time.Microsecond)
		for {
			if _, _, ok := r.b.recv(0); !ok {
				break
			}
			n++
		}
		if r.clk.Nanos()-start > 1e9 {
			t.Fatal("the frames do not arrive")
		}
	}
	want := int64(50 * (1514 + 24) * 8)
	if took := r.clk.Nanos() - start; took < want || took > want+20000 {
		t.Errorf("50 frames took %d ns, want %d", took, want)
	}
}

func ExampleOnWire() {
	fmt.Println(OnWire(nil).Offloads())
	// Output: csum,guest_csum,guest_tso4,guest_tso6,guest_ecn,host_tso4,host_tso6,host_ecn,host_uso
}
