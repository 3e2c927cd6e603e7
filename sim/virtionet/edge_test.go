package virtionet

import (
	"bytes"
	"testing"
	"time"

	"bare.wire/sim/offload"
	"bare.wire/virtio/spec"
)

func TestAvailableIndexThatGoesBack(t *testing.T) {
	r := newRig(t, 1, func(c *Config) { c.Timing.Used = time.Second })
	r.a.start(0, 8)
	for i := range 2 {
		r.a.send(1, Header{}, frameTo(macB, 64, i), 1)
	}
	r.run(4 * time.Microsecond)
	le.PutUint16(r.a.ring[1].a[2:], 1)
	r.a.kick(1)
	r.run(4 * time.Microsecond)
	if list := r.a.d.Misuse(); len(list) != 1 || list[0].Kind != IndexJump {
		t.Errorf("%v", list)
	}
}

func TestAWholeLapAtOnceInterrupts(t *testing.T) {
	r := newRig(t, 1, func(c *Config) { c.Timing.Used = -1 })
	r.a.start(spec.FeatureRingPacked|spec.FeatureEventIdx, 4)
	ring := r.a.ring[1]
	le.PutUint16(ring.a, 2|spec.EventWrap)
	le.PutUint16(ring.a[2:], spec.EventDesc)
	for range 4 {
		bus, _ := r.a.mem.alloc(100, 16)
		r.a.put(1, piece{bus, 100, false})
	}
	r.a.kick(1)
	r.run(4 * time.Microsecond)
	if n := r.a.sent(1); n != 4 || r.a.calls[1] != 1 {
		t.Errorf("%d frames, %d interrupts", n, r.a.calls[1])
	}
}

func TestUsedDescriptorsSayWhetherTheyWereWritten(t *testing.T) {
	r := newRig(t, 1, nil)
	r.a.start(spec.FeatureRingPacked, 4)
	r.a.fill(0, 1, 512)
	r.arrive(frameTo(macA, 64, 1))
	r.a.send(1, Header{}, frameTo(macB, 64, 1), 1)
	r.run(4 * time.Microsecond)
	for q, want := range []uint16{spec.DescAvail | spec.DescUsed | spec.DescWrite, spec.DescAvail | spec.DescUsed} {
		if flags := le.Uint16(r.a.ring[q].d[14:]); flags != want {
			t.Errorf("queue %d: flags %#x, want %#x", q, flags, want)
		}
	}
}

func TestFramesThatWaitComeFirst(t *testing.T) {
	r := newRig(t, 3, nil)
	r.a.start(0, 16)
	for i := range 3 {
		r.arrive(frameTo(macA, 64, i))
	}
	for range 8 { // and nobody says so
		bus, _ := r.a.mem.alloc(512, 16)
		r.a.put(0, piece{bus, 512, true})
	}
	r.arrive(frameTo(macA, 64, 3))
	r.a.kick(0)
	r.run(4 * time.Microsecond)
	for i := range 4 {
		if _, raw, ok := r.a.recv(0); !ok || !bytes.Equal(raw[12:], frameTo(macA, 64, i)) {
			t.Errorf("frame %d is not the next", i)
		}
	}
}

func TestUDPChecksumIsNeverZero(t *testing.T) {
	f := udp4([4]byte{10, 0, 0, 1}, [4]byte{10, 0, 0, 2}, 1, 2, 30)
	f[40], f[41] = 0, 0
	f[70], f[71] = 0, 0
	s := offload.Sum(f[26:34], 17+38)
	rest := offload.Sum(f[34:], s)
	f[70], f[71] = byte(^uint16(rest)>>8), byte(^uint16(rest)) // now the whole comes to 0xFFFF
	f[40], f[41] = byte(s>>8), byte(s)
	r := newRig(t, 1, nil)
	r.a.start(allOffloads, 8)
	r.b.start(0, 8)
	r.b.fill(0, 1, 512)
	r.a.send(1, Header{Flags: spec.HdrNeedsCSum, CSumStart: 34, CSumOffset: 6}, f, 1)
	r.run(4 * time.Microsecond)
	if _, raw, ok := r.b.recv(0); !ok || be16(raw[12+40:]) != 0xFFFF {
		t.Errorf("checksum %#x", be16(raw[12+40:]))
	}
}

func TestMTUIsKept(t *testing.T) {
	r := newRig(t, 1, func(c *Config) { c.MTU = 1000 })
	r.a.start(spec.FeatureMTU, 8)
	r.a.send(1, Header{}, frameTo(macB, 1022, 1), 1)
	r.run(4 * time.Microsecond)
	r.a.clean()
	r.a.send(1, Header{}, frameTo(macB, 1023, 1), 1)
	r.run(4 * time.Microsecond)
	if list := r.a.d.Misuse(); len(list) != 1 || list[0].Kind != FrameLength {
		t.Errorf("%v", list)
	}
}

func TestWithoutTheVLANFilterAllTagsPass(t *testing.T) {
	r := newRig(t, 5, nil)
	r.a.start(controlFeatures&^spec.FeatureCtrlVLAN, 16)
	r.a.fill(0, 4, 512)
	if got := r.control(r.a, 0, 0, 0); got != spec.CtrlOK {
		t.Fatalf("answer %d", got)
	}
	r.arrive(tagged(macA, 7))
	if _, _, ok := r.a.recv(0); !ok {
		t.Error("a frame with a tag did not pass")
	}
}

// TestWhatDoesNotGoOnIsNotJoined changes one thing in the second of two segments.
func TestWhatDoesNotGoOnIsNotJoined(t *testing.T) {
	segment := func(i int, bend func(f []byte)) []byte {
		f, h := tcpFrame(false, numbers(500))
		l4 := int(h.CSumStart)
		f[l4+13] = 0x10
		f[19] += byte(i)
		be := uint32(0x100 + 500*i)
		f[l4+6], f[l4+7] = byte(be>>8), byte(be)
		if bend != nil {
			bend(f)
		}
		f[24], f[25] = 0, 0
		complete(f[14:34], 10, 0)
		f[l4+16], f[l4+17] = 0, 0
		complete(f[l4:], 16, offload.Sum(f[26:34], uint64(protoTCP+len(f)-l4)))
		copy(f, macA[:])
		return f
	}
	flip := func(at int) func(f []byte) { return func(f []byte) { f[at] ^= 0x40 } }
	for _, x := range []struct {
		what string
		bend func(f []byte)
		want int
	}{
		{"nothing", nil, 1},
		{"PSH", func(f []byte) { f[47] |= tcpPSH }, 1},
		{"source MAC", flip(11), 2}, {"service", flip(15), 2}, {"id", flip(18), 2}, {"flags", flip(20), 2}, {"TTL", flip(22), 2},
		{"source address", flip(26), 2}, {"destination address", flip(33), 2}, {"port", flip(34), 2}, {"sequence", flip(40), 2},
		{"acknowledgement", flip(44), 2}, {"window", flip(48), 2}, {"option", flip(60), 2}, {"SYN", func(f []byte) { f[47] |= 2 }, 2},
		{"FIN", func(f []byte) { f[47] |= 1 }, 2},
	} {
		r := newRig(t, 1, nil)
		r.a.start(guestFeatures|spec.FeatureMrgRxBuf, 16)
		r.a.fill(0, 8, 2048)
		r.w.Lock()
		r.wire.B().SetUp(true)
		r.wire.B().Transmit(segment(0, nil), r.clk.Nanos())
		r.wire.B().Transmit(segment(1, x.bend), r.clk.Nanos())
		r.w.Unlock()
		r.run(4 * time.Microsecond)
		got := 0
		for {
			_, raw, ok := r.a.recv(0)
			if !ok {
				break
			}
			want := segment(0, nil)
			if got == 1 {
				want = segment(1, x.bend)
			}
			if x.want == 2 && !bytes.Equal(raw[12:], want) {
				t.Errorf("%s: frame %d is not as it was", x.what, got)
			}
			got++
		}
		if got != x.want {
			t.Errorf("%s: %d frames, want %d", x.what, got, x.want)
		}
	}
	// A segment longer than those before it would not come out again when the whole is cut.
	r := newRig(t, 1, nil)
	r.a.start(guestFeatures|spec.FeatureMrgRxBuf, 16)
	r.a.fill(0, 8, 2048)
	short := segment(0, nil)[:14+20+32+400]
	short[16], short[17] = byte(452>>8), byte(452&0xFF)
	short[24], short[25] = 0, 0
	complete(short[14:34], 10, 0)
	short[50], short[51] = 0, 0
	complete(short[34:], 16, offload.Sum(short[26:34], uint64(protoTCP+len(short)-34)))
	r.w.Lock()
	r.wire.B().SetUp(true)
	r.wire.B().Transmit(short, r.clk.Nanos())
	r.wire.B().Transmit(segment(0, func(f []byte) { f[19]++; f[40], f[41] = 0x02, 0x90 }), r.clk.Nanos())
	r.w.Unlock()
	r.run(4 * time.Microsecond)
	if _, _, ok := r.a.recv(0); !ok {
		t.Error("nothing arrived")
	}
	if _, _, ok := r.a.recv(0); !ok {
		t.Error("a longer segment was joined to a shorter one")
	}
}
