package virtionet

import (
	"bytes"
	"context"
	"testing"
	"time"

	"bare.wire/virtio/spec"
)

// card is a driver of a Function by its registers.
type card struct {
	t      testing.TB
	m      *mini
	f      *Function
	bar    *Window // modern
	io     *Window // legacy
	common uint32
	isr    uint32
	device uint32
	notify uint32
	mult   uint32
	fired  []int
}

func newCard(m *mini, cfg FunctionConfig) *card {
	m.t.Helper()
	c := &card{t: m.t, m: m, f: NewFunction(m.d, cfg), fired: make([]int, 64)}
	var err error
	if cfg.Kind != Modern {
		if c.io, err = c.f.BAR(0); err != nil {
			m.t.Fatal(err)
		}
	}
	if cfg.Kind != Legacy {
		if c.bar, err = c.f.BAR(4); err != nil {
			m.t.Fatal(err)
		}
		c.findCaps()
	}
	c.conf(cfgCommand, 2, c.get(cfgCommand, 2)|cmdBusMaster)
	return c
}

func (c *card) get(off, size int) uint32 {
	v, err := c.f.ReadConfig(off, size)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

func (c *card) conf(off, size int, v uint32) {
	if err := c.f.WriteConfig(off, size, v); err != nil {
		c.t.Fatal(err)
	}
}

// findCaps walks the capabilities; the first of a kind in BAR 4 that fits there is taken.
func (c *card) findCaps() {
	at := int(c.get(cfgCaps, 1))
	found := map[uint32]bool{}
	for n := 0; at != 0 && n < 48; n++ {
		id, next := c.get(at, 1), int(c.get(at+1, 1))
		if id == capVendor && c.get(at+spec.CapBAR, 1) == barModern {
			kind, off, length := c.get(at+spec.CapType, 1), c.get(at+spec.CapOffset, 4), c.get(at+spec.CapLength, 4)
			if uint64(off)+uint64(length) <= modernSize && !found[kind] {
				found[kind] = true
				switch kind {
				case spec.CapCommon:
					c.common = off
				case spec.CapISR:
					c.isr = off
				case spec.CapDevice:
					c.device = off
				case spec.CapNotify:
					c.notify, c.mult = off, c.get(at+spec.CapMultiplier, 4)
				}
			}
		}
		at = next
	}
}

// start brings the function up by the modern interface, with its queues from the mini driver, which then carries frames.
func (c *card) start(f spec.Features, size, vectors int) {
	c.t.Helper()
	b, o := c.bar, c.common
	f |= spec.FeatureVersion1
	b.Write8(o+spec.CommonStatus, 0)
	if s := b.Read8(o + spec.CommonStatus); s != 0 {
		c.t.Fatalf("status %#x after a reset", s)
	}
	b.Write8(o+spec.CommonStatus, 1)
	b.Write8(o+spec.CommonStatus, 3)
	for i := range uint32(2) {
		b.Write32(o+spec.CommonDriverFeatureSelect, i)
		b.Write32(o+spec.CommonDriverFeature, uint32(uint64(f)>>(32*i)))
	}
	b.Write8(o+spec.CommonStatus, 11)
	if b.Read8(o+spec.CommonStatus) != 11 {
		c.t.Fatalf("%v were refused", f)
	}
	if vectors > 0 {
		n, err := c.f.Interrupts(vectors, func(v int) { c.fired[v]++ })
		if err != nil {
			c.t.Fatal(err)
		}
		b.Write16(o+spec.CommonConfigVector, uint16(n-1))
	}
	c.prepare(f)
	for i := range c.m.d.Queues() {
		b.Write16(o+spec.CommonQueueSelect, uint16(i))
		if m := int(b.Read16(o + spec.CommonQueueSize)); m < size {
			c.t.Fatalf("queue %d: size %d", i, m)
		}
		b.Write16(o+spec.CommonQueueSize, uint16(size))
		if vectors > 0 {
			b.Write16(o+spec.CommonQueueVector, uint16(min(i, vectors-1)))
		}
		r := newVring(c.m.mem, size, f)
		c.m.ring[i] = r
		for _, x := range []struct {
			off uint32
			v   uint64
		}{{spec.CommonQueueDesc, r.desc}, {spec.CommonQueueDriver, r.driver}, {spec.CommonQueueDevice, r.device}} {
			b.Write32(o+x.off, uint32(x.v))
			b.Write32(o+x.off+4, uint32(x.v>>32))
		}
		b.Write16(o+spec.CommonQueueEnable, 1)
		if b.Read16(o+spec.CommonQueueEnable) != 1 {
			c.t.Fatalf("queue %d is not enabled", i)
		}
	}
	b.Write8(o+spec.CommonStatus, 15)
}

func (c *card) prepare(f spec.Features) {
	m := c.m
	m.f, m.hdr = f, spec.HeaderSize(f)
	m.ring, m.buf = make([]*vring, m.d.Queues()), nil
	for range m.ring {
		m.buf = append(m.buf, map[uint16][]piece{})
	}
}

// ring notifies queue i at its own address.
func (c *card) ring(i int) {
	c.bar.Write16(c.common+spec.CommonQueueSelect, uint16(i))
	off := uint32(c.bar.Read16(c.common+spec.CommonQueueNotifyOff)) * c.mult
	c.bar.Write16(c.notify+off, uint16(i))
}

func TestModernFunctionCarriesFrames(t *testing.T) {
	for _, cfg := range []FunctionConfig{{}, {Kind: Transitional}, {Multiplier: -1}, {Multiplier: 64}, {Layout: Layout{Decoys: true}}} {
		r := newRig(t, 3, nil)
		c := newCard(r.a, cfg)
		c.start(spec.FeatureMrgRxBuf|spec.FeatureStatus, 16, 4)
		r.b.start(0, 16)
		r.b.fill(0, 8, 1600)
		bus, b := r.a.mem.alloc(112, 16)
		copy(b[12:], frameTo(macB, 100, 1))
		r.a.put(1, piece{bus, 112, false})
		c.ring(1)
		r.run(10 * time.Microsecond)
		if _, raw, ok := r.b.recv(0); !ok || !bytes.Equal(raw[12:], frameTo(macB, 100, 1)) {
			t.Errorf("%+v: the frame did not arrive", cfg)
		}
		if c.fired[1] != 1 {
			t.Errorf("%+v: vector 1 fired %d times", cfg, c.fired[1])
		}
		if up := c.bar.Read8(c.device+spec.NetStatus) & 1; up != 1 {
			t.Errorf("%+v: the link is down", cfg)
		}
		r.b.d.SetLink(false)
		if up := c.bar.Read8(c.device+spec.NetStatus) & 1; up != 0 || c.fired[3] == 0 {
			t.Errorf("%+v: link status %d, configuration's vector fired %d times", cfg, up, c.fired[3])
		}
		r.a.clean()
		r.b.clean()
	}
}

func TestINTxWaitsForTheISRToBeRead(t *testing.T) {
	r := newRig(t, 3, nil)
	c := newCard(r.a, FunctionConfig{NoMSIX: true})
	c.start(0, 16, 0)
	if n, err := c.f.Interrupts(8, func(v int) { c.fired[v]++ }); n != 1 || err != nil {
		t.Fatalf("%d vectors, %v", n, err)
	}
	send := func() {
		bus, _ := r.a.mem.alloc(112, 16)
		r.a.put(1, piece{bus, 112, false})
		c.ring(1)
		r.run(10 * time.Microsecond)
	}
	send()
	send()
	if c.fired[0] != 1 {
		t.Errorf("%d interrupts before the ISR was read", c.fired[0])
	}
	if c.get(cfgStatus, 2)&statusINTx == 0 {
		t.Error("the PCI status does not show the interrupt")
	}
	if v := c.bar.Read8(c.isr); v != spec.ISRQueue {
		t.Errorf("ISR %#x", v)
	}
	if v := c.bar.Read8(c.isr); v != 0 {
		t.Errorf("ISR %#x once it was read", v)
	}
	send()
	if c.fired[0] != 2 {
		t.Errorf("%d interrupts", c.fired[0])
	}
	r.a.clean()
}

func TestLegacyInterfaceCarriesFrames(t *testing.T) {
	for _, kind := range []PCIKind{Transitional, Legacy} {
		for _, msix := range []bool{false, true} {
			r := newRig(t, 3, nil)
			c := newCard(r.a, FunctionConfig{Kind: kind})
			if msix {
				if _, err := c.f.Interrupts(3, func(v int) { c.fired[v]++ }); err != nil {
					t.Fatal(err)
				}
			}
			io := c.io
			io.Write8(spec.LegacyStatus, 0)
			io.Write8(spec.LegacyStatus, 1)
			io.Write8(spec.LegacyStatus, 3)
			io.Write32(spec.LegacyDriverFeatures, uint32(spec.FeatureMAC|spec.FeatureAnyLayout))
			c.prepare(0)
			r.a.hdr = spec.HdrSizeLegacy
			for i := range r.a.d.Queues() {
				io.Write16(spec.LegacyQueueSelect, uint16(i))
				size := int(io.Read16(spec.LegacyQueueSize))
				if size != 64 {
					t.Fatalf("queue %d: size %d", i, size)
				}
				ring := newVring(r.a.mem, size, 0)
				l, err := spec.NewSplitLayout(size, spec.LegacyAlign)
				if err != nil {
					t.Fatal(err)
				}
				bus, b := r.a.mem.alloc(l.Bytes, 4096)
				ring.d, ring.a, ring.u = b, b[l.Avail:], b[l.Used:]
				r.a.ring[i] = ring
				io.Write32(spec.LegacyQueuePFN, uint32(bus>>12))
				if msix {
					io.Write16(spec.LegacyQueueVector, uint16(i))
				}
			}
			io.Write8(spec.LegacyStatus, 7)
			at := uint32(spec.LegacyConfig)
			if msix {
				at = spec.LegacyConfigMSIX
			}
			if mac := io.Read8(at + 5); mac != macA[5] {
				t.Errorf("MSI-X %t: last byte of the MAC address %#x", msix, mac)
			}
			r.b.start(0, 16)
			r.b.fill(0, 8, 1600)
			bus, b := r.a.mem.alloc(110, 16)
			copy(b[10:], frameTo(macB, 100, 1))
			r.a.put(1, piece{bus, 110, false})
			io.Write16(spec.LegacyQueueNotify, 1)
			r.run(10 * time.Microsecond)
			if _, raw, ok := r.b.recv(0); !ok || !bytes.Equal(raw[12:], frameTo(macB, 100, 1)) {
				t.Error("the frame did not arrive")
			}
			if msix && c.fired[1] != 1 || !msix && io.Read8(spec.LegacyISR)&spec.ISRQueue == 0 {
				t.Errorf("MSI-X %t: vector 1 fired %d times", msix, c.fired[1])
			}
			io.Write8(at, 0x06)
			if mac := io.Read8(at); mac != 6 {
				t.Errorf("the MAC address begins with %#x after 6 was written", mac)
			}
			io.Write16(spec.LegacyQueueSelect, 1)
			io.Write32(spec.LegacyQueuePFN, 0)
			if r.a.d.QueueEnabled(1) || io.Read32(spec.LegacyQueuePFN) != 0 {
				t.Error("queue 1 is still there")
			}
			r.a.clean()
		}
	}
}

func TestWithoutBusMasteringThereIsNoDMA(t *testing.T) {
	r := newRig(t, 3, nil)
	c := newCard(r.a, FunctionConfig{})
	c.start(0, 16, 0)
	r.a.d.EnableDMALog(0)
	c.conf(cfgCommand, 2, cmdMemory)
	bus, _ := r.a.mem.alloc(112, 16)
	r.a.put(1, piece{bus, 112, false})
	c.ring(1)
	r.run(10 * time.Microsecond)
	if log := r.a.d.DMALog(); len(log) != 0 {
		t.Errorf("DMA: %v", log)
	}
	c.conf(cfgCommand, 2, cmdMemory|cmdBusMaster)
	r.run(10 * time.Microsecond)
	if n := r.a.sent(1); n != 1 {
		t.Errorf("%d frames sent once it was allowed", n)
	}
}

func TestResetQueueIsForgotten(t *testing.T) {
	r := newRig(t, 3, nil)
	c := newCard(r.a, FunctionConfig{})
	c.start(spec.FeatureRingReset, 16, 0)
	bus, _ := r.a.mem.alloc(112, 16)
	r.a.put(1, piece{bus, 112, false})
	b, o := c.bar, c.common
	b.Write16(o+spec.CommonQueueSelect, 1)
	b.Write16(o+spec.CommonQueueReset, 1)
	if b.Read16(o+spec.CommonQueueReset) != 1 || b.Read16(o+spec.CommonQueueReset) != 0 {
		t.Error("queue_reset does not read 1, then 0")
	}
	if b.Read16(o+spec.CommonQueueEnable) != 0 || b.Read16(o+spec.CommonQueueSize) != 64 {
		t.Error("the queue is not as it was at first")
	}
	r.a.d.EnableDMALog(0)
	r.run(10 * time.Microsecond)
	if log := r.a.d.DMALog(); len(log) != 0 {
		t.Errorf("DMA: %v", log)
	}
	r.a.clean()
}

func TestRegistersHaveTheirWidth(t *testing.T) {
	r := newRig(t, 3, nil)
	c := newCard(r.a, FunctionConfig{})
	b := c.bar
	for _, x := range []struct {
		what string
		kind Kind
		do   func()
	}{
		{"a byte of a feature word", RegisterWidth, func() { b.Read8(spec.CommonDeviceFeature) }},
		{"status with four bytes", RegisterWidth, func() { b.Write32(spec.CommonStatus, 1) }},
		{"the middle of a field", RegisterWidth, func() { b.Read16(spec.CommonDeviceFeature + 2) }},
		{"number of queues written", RegisterReadOnly, func() { b.Write16(spec.CommonNumQueues, 1) }},
		{"between the structures", RegisterUndefined, func() { b.Read32(0x800) }},
		{"notification with four bytes", RegisterWidth, func() { b.Write32(c.notify, 1) }},
		{"notification at another's address", NotifyAddress, func() { b.Write16(c.notify, 1) }},
		{"notification of a stopped device", NotifyEarly, func() { b.Write16(c.notify+4*uint32(c.f.notifyOff(1)), 1) }},
		{"a vector beyond the table", VectorRange, func() { b.Write16(spec.CommonConfigVector, 99) }},
		{"queue_enable before FEATURES_OK", StatusOrder, func() { b.Write16(spec.CommonQueueEnable, 1) }},
		{"0 to queue_enable", QueueDisabled, func() { b.Write16(spec.CommonQueueEnable, 0) }},
		{"beyond the device configuration", RegisterUndefined, func() { b.Read8(c.device + spec.NetConfigSize) }},
		{"the MAC address written", ConfigReadOnly, func() {
			r.a.w.Lock()
			r.a.d.agreed = spec.FeatureVersion1
			r.a.w.Unlock()
			b.Write8(c.device, 1)
		}},
	} {
		r.a.d.ForgetMisuse()
		x.do()
		if list := r.a.d.Misuse(); len(list) != 1 || list[0].Kind != x.kind {
			t.Errorf("%s: %v, want %v", x.what, list, x.kind)
		}
	}
}

func TestWithoutDecodingRegistersReadAllOnes(t *testing.T) {
	r := newRig(t, 3, nil)
	c := newCard(r.a, FunctionConfig{Kind: Transitional})
	c.bar.Write8(c.common+spec.CommonStatus, 1)
	c.conf(cfgCommand, 2, cmdIO)
	if v := c.bar.Read8(c.common + spec.CommonStatus); v != 0xFF {
		t.Errorf("without memory decoding: status %#x", v)
	}
	if v := c.io.Read8(spec.LegacyStatus); v != 1 {
		t.Errorf("with I/O decoding: status %#x", v)
	}
	c.conf(cfgCommand, 2, cmdMemory)
	c.bar.Write8(c.common+spec.CommonStatus, 3)
	if v := c.io.Read8(spec.LegacyStatus); v != 0xFF {
		t.Errorf("without I/O decoding: status %#x", v)
	}
}

// TestHardLayouts looks at what configuration space says; how drivers bear it is for their tests to say.
func TestHardLayouts(t *testing.T) {
	caps := func(l Layout) (found []capability, loop bool) {
		c := newCard(newRigOf(t, 1, 4096, nil).a, FunctionConfig{Layout: l})
		at := int(c.get(cfgCaps, 1))
		for n := 0; at != 0; n++ {
			if n == 48 {
				return found, true
			}
			if c.get(at, 1) == capVendor && len(found) < 16 {
				found = append(found, capability{
					uint8(c.get(at+spec.CapType, 1)), uint8(c.get(at+spec.CapBAR, 1)), c.get(at+spec.CapOffset, 4), c.get(at+spec.CapLength, 4),
				})
			}
			at = int(c.get(at+1, 1))
		}
		return found, false
	}
	fits := func(list []capability, kind uint8) (n int) {
		for _, x := range list {
			if x.kind == kind && x.bar == barModern && uint64(x.off)+uint64(x.length) <= modernSize {
				n++
			}
		}
		return n
	}
	for _, x := range []struct {
		what           string
		l              Layout
		common, notify int
		device, all    int
		loop           bool
	}{
		{"good", Layout{}, 1, 1, 1, 5, false},
		{"decoys", Layout{Decoys: true}, 2, 1, 1, 8, false},
		{"common beyond", Layout{CommonBeyond: true}, 0, 1, 1, 5, false},
		{"notify beyond", Layout{NotifyBeyond: true}, 1, 0, 1, 5, false},
		{"no device", Layout{NoDevice: true}, 1, 1, 0, 4, false},
		{"loop", Layout{Loop: true}, 3, 3, 3, 16, true},
		{"none", Layout{NoCaps: true}, 0, 0, 0, 0, false},
	} {
		list, loop := caps(x.l)
		if loop != x.loop || len(list) != x.all || !loop && (fits(list, spec.CapCommon) != x.common || fits(list, spec.CapNotify) != x.notify || fits(list, spec.CapDevice) != x.device) {
			t.Errorf("%s: loop %t, %+v", x.what, loop, list)
		}
	}
}

func TestRemovedFunctionReadsAllOnes(t *testing.T) {
	r := newRig(t, 3, nil)
	c := newCard(r.a, FunctionConfig{Kind: Transitional})
	var told error
	c.f.OnGone(func(err error) { told = err })
	c.f.Remove()
	if c.bar.Read8(c.common+spec.CommonStatus) != 0xFF || c.bar.Read16(c.common+spec.CommonNumQueues) != 0xFFFF ||
		c.io.Read32(0) != 0xFFFFFFFF || c.get(0, 4) != 0xFFFFFFFF {
		t.Error("something is left")
	}
	if told == nil {
		t.Error("nobody was told")
	}
	if c.f.Reset(context.Background()) == nil {
		t.Error("it was reset")
	}
}

func TestAccessByConfigurationSpace(t *testing.T) {
	r := newRig(t, 3, nil)
	c := newCard(r.a, FunctionConfig{})
	at := c.f.access
	c.conf(at+spec.CapBAR, 1, barModern)
	c.conf(at+spec.CapOffset, 4, spec.CommonNumQueues)
	c.conf(at+spec.CapLength, 4, 2)
	if n := c.get(at+spec.CapPCIData, 2); n != uint32(r.a.d.Queues()) {
		t.Errorf("%d queues", n)
	}
	c.conf(at+spec.CapOffset, 4, spec.CommonStatus)
	c.conf(at+spec.CapLength, 4, 1)
	c.conf(at+spec.CapPCIData, 1, 1)
	if s := c.bar.Read8(c.common + spec.CommonStatus); s != 1 {
		t.Errorf("status %#x", s)
	}
	r.a.clean()
}
