package virtionet

import (
	"errors"
	"testing"
	"time"

	"bare.wire/virtio/spec"
)

// TestBrokenRingsNeedAReset has the ways in which the drivers of other projects, or guests that mean harm, have broken rings.
// Each is found at once, is the end of the device's work until it is reset, and of nothing else.
func TestBrokenRingsNeedAReset(t *testing.T) {
	const indirect = spec.FeatureIndirectDesc
	split, packed := spec.Features(0), spec.FeatureRingPacked
	// set writes descriptor i of the transmit ring, of 8, whose buffer is at bus.
	set := func(r *vring, i int, bus uint64, n int, flags, next uint16) { putDesc(r.d[16*i:], bus, n, flags, next) }
	for _, x := range []struct {
		what string
		f    spec.Features
		kind Kind
		do   func(r *vring, bus uint64)
	}{
		{"available index that jumps", split, IndexJump, func(r *vring, bus uint64) { le.PutUint16(r.a[2:], 9) }},
		{"available index 65535", split, IndexJump, func(r *vring, bus uint64) { le.PutUint16(r.a[2:], 65535) }},
		{"head beyond the ring", split, HeadRange, func(r *vring, bus uint64) {
			le.PutUint16(r.a[4:], 8)
			le.PutUint16(r.a[2:], 1)
		}},
		{"next beyond the ring", split, NextRange, func(r *vring, bus uint64) {
			set(r, 0, bus, 20, spec.DescNext, 8)
			le.PutUint16(r.a[2:], 1)
		}},
		{"chain that is a loop", split, ChainLength, func(r *vring, bus uint64) {
			set(r, 0, bus, 20, spec.DescNext, 1)
			set(r, 1, bus, 20, spec.DescNext, 0)
			le.PutUint16(r.a[2:], 1)
		}},
		{"chain that is its own next", split, ChainLength, func(r *vring, bus uint64) {
			set(r, 0, bus, 20, spec.DescNext, 0)
			le.PutUint16(r.a[2:], 1)
		}},
		{"buffer of no bytes", split, ZeroLength, func(r *vring, bus uint64) {
			set(r, 0, bus, 0, 0, 0)
			le.PutUint16(r.a[2:], 1)
		}},
		{"length of 4 GiB less one", split, ChainLength, func(r *vring, bus uint64) {
			set(r, 0, bus, 0xFFFFFFFF, 0, 0)
			le.PutUint16(r.a[2:], 1)
		}},
		{"bytes to read behind those to write", split, ReadAfterWrite, func(r *vring, bus uint64) {
			set(r, 0, bus, 64, spec.DescWrite|spec.DescNext, 1)
			set(r, 1, bus, 64, 0, 0)
			le.PutUint16(r.a[2:], 1)
		}},
		{"the same head twice", split, BufferTwice, func(r *vring, bus uint64) {
			set(r, 0, bus, 64, 0, 0)
			le.PutUint16(r.a[2:], 2)
		}},
		{"address that is not the device's", split, DMAFault, func(r *vring, bus uint64) {
			set(r, 0, 0xFFFF_FFFF_FFFF_FFF0, 64, 0, 0)
			le.PutUint16(r.a[2:], 1)
		}},
		{"table without indirect_desc", split, IndirectForm, func(r *vring, bus uint64) {
			set(r, 0, bus, 16, spec.DescIndirect, 0)
			le.PutUint16(r.a[2:], 1)
		}},
		{"table and next", indirect, IndirectForm, func(r *vring, bus uint64) {
			set(r, 0, bus, 16, spec.DescIndirect|spec.DescNext, 1)
			le.PutUint16(r.a[2:], 1)
		}},
		{"table of 24 bytes", indirect, IndirectForm, func(r *vring, bus uint64) {
			set(r, 0, bus, 24, spec.DescIndirect, 0)
			le.PutUint16(r.a[2:], 1)
		}},
		{"table of no bytes", indirect, IndirectForm, func(r *vring, bus uint64) {
			set(r, 0, bus, 0, spec.DescIndirect, 0)
			le.PutUint16(r.a[2:], 1)
		}},
		{"table longer than the ring", indirect, IndirectForm, func(r *vring, bus uint64) {
			set(r, 0, bus, 16*9, spec.DescIndirect, 0)
			le.PutUint16(r.a[2:], 1)
		}},
		{"table in a table", indirect, IndirectForm, func(r *vring, bus uint64) {
			b, _ := r.mem.Bytes(bus, 16)
			putDesc(b, bus, 16, spec.DescIndirect, 0)
			set(r, 0, bus, 16, spec.DescIndirect, 0)
			le.PutUint16(r.a[2:], 1)
		}},
		{"table that is a loop", indirect, ChainLength, func(r *vring, bus uint64) {
			b, _ := r.mem.Bytes(bus, 32)
			putDesc(b, bus, 16, spec.DescNext, 1)
			putDesc(b[16:], bus, 16, spec.DescNext, 0)
			set(r, 0, bus, 32, spec.DescIndirect, 0)
			le.PutUint16(r.a[2:], 1)
		}},
		{"next beyond the table", indirect, NextRange, func(r *vring, bus uint64) {
			b, _ := r.mem.Bytes(bus, 16)
			putDesc(b, bus, 16, spec.DescNext, 1)
			set(r, 0, bus, 16, spec.DescIndirect, 0)
			le.PutUint16(r.a[2:], 1)
		}},
		{"table that is not the device's", indirect, DMAFault, func(r *vring, bus uint64) {
			set(r, 0, 0x10, 16, spec.DescIndirect, 0)
			le.PutUint16(r.a[2:], 1)
		}},
		// In a packed ring the id lies where a split one has its flags.
		{"packed: chain made available by halves", packed, ChainUnready, func(r *vring, bus uint64) {
			set(r, 0, bus, 64, 1, spec.DescAvail|spec.DescNext)
		}},
		{"packed: chain without an end", packed, ChainLength, func(r *vring, bus uint64) {
			for i := range 8 {
				set(r, i, bus, 64, 1, spec.DescAvail|spec.DescNext)
			}
			// The second lap begins: what is there is used for it.
		}},
		{"packed: the same id twice", packed, BufferTwice, func(r *vring, bus uint64) {
			set(r, 0, bus, 64, 1, spec.DescAvail)
			set(r, 1, bus, 64, 1, spec.DescAvail)
		}},
		{"packed: table inside a chain", packed | indirect, IndirectForm, func(r *vring, bus uint64) {
			set(r, 1, bus, 16, 1, spec.DescAvail|spec.DescIndirect)
			set(r, 0, bus, 64, 1, spec.DescAvail|spec.DescNext)
		}},
		{"packed: table in a table", packed | indirect, IndirectForm, func(r *vring, bus uint64) {
			b, _ := r.mem.Bytes(bus, 16)
			putDesc(b, bus, 16, 0, spec.DescIndirect)
			set(r, 0, bus, 16, 1, spec.DescAvail|spec.DescIndirect)
		}},
		{"packed: buffer of no bytes", packed, ZeroLength, func(r *vring, bus uint64) {
			set(r, 0, bus, 0, 1, spec.DescAvail)
		}},
		{"packed: bytes to read behind those to write", packed, ReadAfterWrite, func(r *vring, bus uint64) {
			set(r, 1, bus, 64, 1, spec.DescAvail)
			set(r, 0, bus, 64, 1, spec.DescAvail|spec.DescNext|spec.DescWrite)
		}},
	} {
		r := newRig(t, 1, nil)
		r.a.start(x.f, 8)
		bus, _ := r.a.mem.alloc(256, 16)
		x.do(r.a.ring[1], bus)
		r.a.kick(1)
		r.run(5 * time.Microsecond)
		list := r.a.d.Misuse()
		if len(list) != 1 || list[0].Kind != x.kind && !(x.kind == ChainLength && list[0].Kind == ChainUnready) || list[0].Queue != 1 {
			t.Errorf("%s: %v, want %v", x.what, list, x.kind)
		}
		if r.a.conf != 1 {
			t.Errorf("%s: the driver was told %d times", x.what, r.a.conf)
		}
		if s := r.a.d.Status(); s&spec.StatusNeedsReset == 0 {
			t.Errorf("%s: status %#x", x.what, s)
		}
		r.a.d.ForgetMisuse()
		r.a.start(0, 8)
		r.a.send(1, Header{}, frameTo(macB, 100, 1), 1)
		r.run(5 * time.Microsecond)
		if n := r.a.sent(1); n != 1 {
			t.Errorf("%s: %d frames sent after a reset", x.what, n)
		}
		r.a.clean()
	}
}

func TestReceiveBuffersAreChecked(t *testing.T) {
	for _, x := range []struct {
		what   string
		kind   Kind
		pieces func(bus uint64) []piece
	}{
		{"bytes to be read", ChainDirection, func(bus uint64) []piece { return []piece{{bus, 64, false}, {bus, 1600, true}} }},
		{"too small for a header", BufferSize, func(bus uint64) []piece { return []piece{{bus, 11, true}} }},
		{"not the device's", DMAFault, func(bus uint64) []piece { return []piece{{bus, 64, true}, {16, 1600, true}} }},
	} {
		r := newRig(t, 1, nil)
		r.a.start(spec.FeatureMrgRxBuf, 8)
		bus, _ := r.a.mem.alloc(2000, 16)
		r.a.put(0, x.pieces(bus)...)
		r.a.kick(0)
		r.arrive(frameTo(macA, 100, 1))
		if list := r.a.d.Misuse(); len(list) != 1 || list[0].Kind != x.kind {
			t.Errorf("%s: %v, want %v", x.what, list, x.kind)
		}
	}
}

func TestFramesThatCannotBeAreNotSent(t *testing.T) {
	for _, x := range []struct {
		what string
		n    int
		kind Kind
	}{{"13 bytes", 13, FrameLength}, {"a header alone", 0, FrameLength}, {"70 000 bytes", 70000, FrameLength}} {
		r := newRig(t, 1, nil)
		r.a.start(0, 8)
		r.a.send(1, Header{}, make([]byte, x.n), 1)
		r.run(5 * time.Microsecond)
		if list := r.a.d.Misuse(); len(list) != 1 || list[0].Kind != x.kind {
			t.Errorf("%s: %v", x.what, list)
		}
		if n := r.a.sent(1); n != 1 {
			t.Errorf("%s: %d frames came back", x.what, n)
		}
	}
}

func TestOrderOfStatusIsKept(t *testing.T) {
	locked := func(d *Device, f func()) { d.w.Lock(); f(); d.w.Unlock() }
	for _, x := range []struct {
		what string
		kind Kind
		do   func(d *Device)
	}{
		{"DRIVER_OK alone", StatusOrder, func(d *Device) { d.agreed = spec.FeatureVersion1; d.SetStatus(1); d.SetStatus(5) }},
		{"DRIVER alone", StatusOrder, func(d *Device) { d.SetStatus(2) }},
		{"a bit cleared", StatusCleared, func(d *Device) { d.SetStatus(1); d.SetStatus(2) }},
		{"features after FEATURES_OK", FeaturesLate, func(d *Device) {
			_ = d.SetFeatures(spec.FeatureVersion1)
			d.SetStatus(1)
			d.SetStatus(3)
			d.SetStatus(11)
			_ = d.SetFeatures(0)
		}},
		{"a feature that was not offered", FeatureNotOffered, func(d *Device) { _ = d.SetFeatures(spec.FeatureStandby) }},
		{"TSO without checksums", FeatureNeeds, func(d *Device) {
			_ = d.SetFeatures(spec.FeatureVersion1 | spec.FeatureHostTSO4)
			d.SetStatus(1)
			d.SetStatus(3)
			d.SetStatus(11)
		}},
		{"no version_1", FeatureRefused, func(d *Device) {
			_ = d.SetFeatures(spec.FeatureMAC)
			d.SetStatus(1)
			d.SetStatus(3)
			d.SetStatus(11)
		}},
		{"a notification before DRIVER_OK", NotifyEarly, func(d *Device) { d.Kick(0) }},
		{"a queue that there is not", QueueNumber, func(d *Device) { _ = d.SetQueue(77, 8, 0, 0, 0) }},
		{"6 descriptors", QueueSize, func(d *Device) { _ = d.SetQueue(0, 6, 0x1000, 0x2000, 0x3000) }},
		{"more descriptors than there may be", QueueSize, func(d *Device) { _ = d.SetQueue(0, 128, 0x1000, 0x2000, 0x3000) }},
		{"descriptors at 8", QueueUnaligned, func(d *Device) { _ = d.SetQueue(0, 8, 0x1008, 0x2000, 0x3000) }},
		{"used ring at 2", QueueUnaligned, func(d *Device) { _ = d.SetQueue(0, 8, 0x1000, 0x2000, 0x3002) }},
		{"a queue that is not set up", QueueChanged, func(d *Device) { d.EnableQueue(0, true) }},
		{"the configuration beyond its end", ConfigBeyond, func(d *Device) { d.ReadConfig(22, make([]byte, 4)) }},
	} {
		r := newRig(t, 1, nil)
		d := r.a.d
		locked(d, func() { x.do(d) })
		if list := d.Misuse(); len(list) != 1 || list[0].Kind != x.kind {
			t.Errorf("%s: %v, want %v", x.what, list, x.kind)
		}
		if d.agreed != spec.FeatureVersion1 && d.status&spec.StatusFeaturesOK != 0 {
			t.Errorf("%s: FEATURES_OK sticks", x.what)
		}
	}
}

func TestPackedPositionsAndDataOfNotificationsAreChecked(t *testing.T) {
	r := newRig(t, 1, nil)
	c := newCard(r.a, FunctionConfig{})
	c.start(spec.FeatureRingPacked|spec.FeatureNotificationData|spec.FeatureNotifConfigData, 8, 0)
	bus, _ := r.a.mem.alloc(100, 16)
	r.a.put(1, piece{bus, 100, false})
	at := c.notify + uint32(c.f.notifyOff(1))*c.mult
	c.bar.Write32(at, uint32(c.f.notifyData(1))|(1|1<<15)<<16)
	r.run(5 * time.Microsecond)
	if n := r.a.sent(1); n != 1 {
		t.Errorf("%d frames sent", n)
	}
	r.a.clean()
	c.bar.Write32(at, uint32(c.f.notifyData(1))|8<<16)
	if list := r.a.d.Misuse(); len(list) != 1 || list[0].Kind != NotifyData {
		t.Errorf("%v", list)
	}
}

func TestBuffersThatAreLentAreLeftAlone(t *testing.T) {
	for _, f := range []spec.Features{0, spec.FeatureRingPacked} {
		for q, want := range []Kind{RxBufferTouched, TxBufferTouched} {
			for _, touch := range []bool{false, true} {
				r := newRig(t, 1, func(c *Config) { c.Watch = true; c.Timing.Used = 2 * time.Microsecond })
				r.a.start(f, 8)
				bus, b := r.a.mem.alloc(200, 16)
				r.a.put(q, piece{bus, 200, q == 0})
				r.a.kick(q)
				r.clk.Advance(300)
				r.w.Step()
				if touch {
					b[90]++
				}
				r.arrive(frameTo(macA, 100, 1))
				r.run(4 * time.Microsecond)
				if list := r.a.d.Misuse(); touch && (len(list) != 1 || list[0].Kind != want) || !touch && len(list) != 0 {
					t.Errorf("queue %d, touched %t: %v", q, touch, list)
				}
				if _, _, ok := r.a.ring[q].take(); !ok {
					t.Errorf("queue %d: nothing comes back", q)
				}
			}
		}
	}
}

func TestRefusalsNameTheDevice(t *testing.T) {
	r := newRig(t, 1, nil)
	r.w.Lock()
	defer r.w.Unlock()
	if err := r.a.d.SetQueue(9, 8, 0, 0, 0); err == nil || err.Error() != "a: there is no queue 9" {
		t.Error(err)
	}
	if _, err := New(Config{}); err == nil || errors.Is(err, errRemoved) {
		t.Error(err)
	}
}
