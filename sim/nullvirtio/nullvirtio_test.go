package nullvirtio_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"bare.wire/sim/nullvirtio"
	"bare.wire/virtio/spec"
)

// memory is one piece of memory at a bus address.
type memory struct {
	bus uint64
	mem []byte
}

func (m memory) Bytes(bus uint64, n int) ([]byte, error) {
	if bus < m.bus || bus-m.bus >= uint64(len(m.mem)) {
		return nil, errors.New("no memory there")
	}
	at := m.mem[bus-m.bus:]
	return at[:min(n, len(at))], nil
}

// Where things are: two rings, then buffers.
const (
	base    = 5 << 30
	rxRing  = base
	txRing  = base + 4096
	buffers = base + 8192
	bufSize = 256
)

// bench is a device and the memory of a driver that is written down here, descriptor by descriptor.
type bench struct {
	t    *testing.T
	dev  *nullvirtio.Device
	mem  memory
	size int
}

func newBench(t *testing.T, size int, agreed spec.Features) *bench {
	t.Helper()
	b := &bench{t: t, mem: memory{base, make([]byte, 64<<10)}, size: size}
	var err error
	if b.dev, err = nullvirtio.New(nullvirtio.Config{Name: "null:", Memory: b.mem}); err != nil {
		t.Fatal(err)
	}
	if err := b.dev.SetFeatures(agreed | spec.FeatureVersion1); err != nil {
		t.Fatal(err)
	}
	for queue, bus := range []uint64{rxRing, txRing} {
		if _, err := b.dev.EnableQueue(queue, b.area(bus, agreed)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *bench) area(bus uint64, agreed spec.Features) nullvirtio.Area {
	if agreed.Has(spec.FeatureRingPacked) {
		l, _ := spec.NewPackedLayout(b.size)
		return nullvirtio.Area{Size: b.size, Desc: bus, Driver: bus + uint64(l.DriverEvent), Device: bus + uint64(l.DeviceEvent)}
	}
	l, _ := spec.NewSplitLayout(b.size, 4)
	return nullvirtio.Area{Size: b.size, Desc: bus, Driver: bus + uint64(l.Avail), Device: bus + uint64(l.Used)}
}

func (b *bench) u16(bus uint64) uint16      { return binary.LittleEndian.Uint16(b.mem.mem[bus-base:]) }
func (b *bench) u32(bus uint64) uint32      { return binary.LittleEndian.Uint32(b.mem.mem[bus-base:]) }
func (b *bench) put16(bus uint64, v uint16) { binary.LittleEndian.PutUint16(b.mem.mem[bus-base:], v) }
func (b *bench) put32(bus uint64, v uint32) { binary.LittleEndian.PutUint32(b.mem.mem[bus-base:], v) }
func (b *bench) put64(bus uint64, v uint64) { binary.LittleEndian.PutUint64(b.mem.mem[bus-base:], v) }
func bufferAt(i int) uint64                 { return buffers + uint64(i)*bufSize }
func (b *bench) header(i int) (string, bool) {
	h := b.mem.mem[bufferAt(i)-base:][:12]
	return fmt.Sprintf("%x", h), h[10] != 0
}

func TestSplitBuffersComeBackInTheirOrder(t *testing.T) {
	b := newBench(t, 4, spec.FeatureMrgRxBuf|spec.FeatureGuestCSum)
	l, _ := spec.NewSplitLayout(4, 4)
	given := uint16(0)
	give := func(ring uint64, ids ...uint16) {
		for _, id := range ids {
			b.put64(ring+uint64(id)*16, bufferAt(int(id)))
			b.put32(ring+uint64(id)*16+spec.SplitDescLen, bufSize)
			b.put16(ring+uint64(l.AvailEntries)+uint64(given%4)*2, id)
			given++
		}
		b.put16(ring+uint64(l.Avail)+2, given)
	}
	if n := b.dev.RxStep(9); n != 0 {
		t.Fatalf("%d frames arrive without buffers", n)
	}
	at := uint16(0)
	for round, ids := range [][]uint16{{2, 0}, {3, 1, 2}, {0, 2, 1, 3}} {
		give(rxRing, ids...)
		clear(b.mem.mem[buffers-base:])
		if n := b.dev.RxStep(9); n != len(ids) {
			t.Fatalf("round %d: %d frames arrive, want %d", round, n, len(ids))
		}
		for _, id := range ids {
			e := rxRing + uint64(l.UsedEntries) + uint64(at%4)*8
			if got, size := b.u32(e), b.u32(e+4); got != uint32(id) || size != 72 {
				t.Errorf("round %d: used %d, %d bytes, want %d and 72", round, got, size, id)
			}
			if h, _ := b.header(int(id)); h != "020000000000000000000100" {
				t.Errorf("header %s", h)
			}
			at++
		}
		if got := b.u16(rxRing + uint64(l.Used) + 2); got != at {
			t.Errorf("used index %d, want %d", got, at)
		}
	}
	given = 0
	give(txRing, 3, 1)
	if n := b.dev.TxStep(); n != 2 || b.u16(txRing+uint64(l.Used)+2) != 2 || b.u32(txRing+uint64(l.UsedEntries)) != 3 {
		t.Errorf("%d sent, used index %d, first %d", n, b.u16(txRing+uint64(l.Used)+2), b.u32(txRing+uint64(l.UsedEntries)))
	}
	if b.u16(txRing+uint64(l.Used)) != spec.UsedNoNotify {
		t.Error("notifications are wanted")
	}
}

func TestSplitFramesInSeveralBuffers(t *testing.T) {
	b := newBench(t, 8, spec.FeatureMrgRxBuf)
	l, _ := spec.NewSplitLayout(8, 4)
	for id := range uint16(7) {
		b.put64(rxRing+uint64(id)*16, bufferAt(int(id)))
		b.put32(rxRing+uint64(id)*16+spec.SplitDescLen, bufSize)
		b.put16(rxRing+uint64(l.AvailEntries)+uint64(id)*2, id)
	}
	b.put16(rxRing+uint64(l.Avail)+2, 7)
	if n := b.dev.RxSegments(9, 3); n != 2 {
		t.Fatalf("%d frames arrive", n)
	}
	for i, want := range []uint32{72, 60, 60, 72, 60, 60} {
		if got := b.u32(rxRing + uint64(l.UsedEntries) + uint64(i)*8 + 4); got != want {
			t.Errorf("part %d: %d bytes, want %d", i, got, want)
		}
		if h, first := b.header(i); first != (want == 72) || first && h != "000000000000000000000300" {
			t.Errorf("part %d: header %s", i, h)
		}
	}
}

func TestPackedRingGoesRound(t *testing.T) {
	b := newBench(t, 5, spec.FeatureRingPacked|spec.FeatureMrgRxBuf)
	const avail, used = spec.DescAvail, spec.DescUsed
	at, fresh := 0, uint16(avail) // the driver's position, and what it marks descriptors with
	for round, k := range []int{3, 4, 5, 1, 2, 5} {
		from, mark := at, fresh
		for i := range k {
			d := rxRing + uint64(at)*16
			b.put64(d, bufferAt(i))
			b.put32(d+spec.SplitDescLen, bufSize)
			b.put16(d+spec.PackedDescID, uint16(100+i))
			b.put16(d+spec.PackedDescFlags, spec.DescWrite|fresh)
			if at++; at == b.size {
				at, fresh = 0, fresh^(avail|used)
			}
		}
		clear(b.mem.mem[buffers-base:])
		if n := b.dev.RxStep(9); n != k {
			t.Fatalf("round %d: %d frames arrive, want %d", round, n, k)
		}
		for i := range k {
			d := rxRing + uint64(from)*16
			want := uint16(spec.DescWrite) // used: both flags are the wrap counter
			if mark == avail {
				want |= avail | used
			}
			if id, size, flags := b.u16(d+spec.PackedDescID), b.u32(d+spec.SplitDescLen), b.u16(d+spec.PackedDescFlags); id != uint16(100+i) || size != 72 || flags != want {
				t.Errorf("round %d, %d: id %d, %d bytes, flags %#x, want %#x", round, i, id, size, flags, want)
			}
			if h, _ := b.header(i); h != "000000000000000000000100" {
				t.Errorf("header %s", h)
			}
			if from++; from == b.size {
				from, mark = 0, mark^(avail|used)
			}
		}
	}
}

func TestPackedChainsAreUsedByOneDescriptor(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		agreed := spec.FeatureRingPacked
		if inOrder {
			agreed |= spec.FeatureInOrder
		}
		b := newBench(t, 8, agreed)
		for i, more := range []bool{true, true, false, false, true, false} { // frames of 3, 1 and 2
			flags := uint16(spec.DescAvail)
			if more {
				flags |= spec.DescNext
			}
			b.put16(txRing+uint64(i)*16+spec.PackedDescID, uint16(10+i))
			b.put16(txRing+uint64(i)*16+spec.PackedDescFlags, flags)
		}
		if n := b.dev.TxStep(); n != 3 {
			t.Fatalf("in order %v: %d frames are sent", inOrder, n)
		}
		want := map[int]uint16{0: 12, 3: 13, 4: 15}
		if inOrder {
			want = map[int]uint16{0: 15}
		}
		for i := range 6 {
			isUsed := b.u16(txRing+uint64(i)*16+spec.PackedDescFlags) == spec.DescAvail|spec.DescUsed
			if id, ok := want[i]; isUsed != ok || ok && b.u16(txRing+uint64(i)*16+spec.PackedDescID) != id {
				t.Errorf("in order %v: descriptor %d: used %v, id %d", inOrder, i, isUsed, b.u16(txRing+uint64(i)*16+spec.PackedDescID))
			}
		}
	}
}

func TestNothingIsWrittenBesideTheMemory(t *testing.T) {
	l, _ := spec.NewSplitLayout(4, 4)
	for name, spoil := range map[string]func(b *bench){
		"address outside": func(b *bench) { b.put64(rxRing, base-4096) },
		"short buffer":    func(b *bench) { b.put32(rxRing+spec.SplitDescLen, 71) },
		"end of memory":   func(b *bench) { b.put64(rxRing, base+64<<10-11) },
		"no descriptor":   func(b *bench) { b.put16(rxRing+uint64(l.AvailEntries), 4) },
		"index jumps":     func(b *bench) { b.put16(rxRing+uint64(l.Avail)+2, 5) },
	} {
		b := newBench(t, 4, 0)
		b.put64(rxRing, bufferAt(0))
		b.put32(rxRing+spec.SplitDescLen, bufSize)
		b.put16(rxRing+uint64(l.Avail)+2, 1)
		spoil(b)
		if n := b.dev.RxStep(4); n != 0 || b.u16(rxRing+uint64(l.Used)+2) != 0 {
			t.Errorf("%s: %d frames arrive", name, n)
		}
	}
	b := newBench(t, 4, spec.FeatureRingPacked)
	b.put16(rxRing+spec.PackedDescFlags, spec.DescAvail)
	if n := b.dev.RxStep(4); n != 0 {
		t.Errorf("%d frames arrive in a buffer of no length", n)
	}
	for i := range 4 { // a chain without end
		b.put16(txRing+uint64(i)*16+spec.PackedDescFlags, spec.DescAvail|spec.DescNext)
	}
	if n := b.dev.TxStep(); n > 4 {
		t.Errorf("%d frames are sent", n)
	}
}

func TestQueuesThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		agreed spec.Features
		queue  int
		area   nullvirtio.Area
		want   string
	}{
		"good split":     {0, 0, nullvirtio.Area{Size: 4, Desc: base, Driver: base + 64, Device: base + 84}, ""},
		"good packed":    {spec.FeatureRingPacked, 1, nullvirtio.Area{Size: 5, Desc: base, Device: base + 80}, ""},
		"third queue":    {0, 2, nullvirtio.Area{Size: 4}, "there are queues 0 and 1"},
		"too large":      {0, 0, nullvirtio.Area{Size: 2048}, "at most 1024"},
		"split of five":  {0, 0, nullvirtio.Area{Size: 5, Desc: base}, "power of two"},
		"nowhere":        {0, 0, nullvirtio.Area{Size: 4}, "no memory there"},
		"beyond the end": {0, 0, nullvirtio.Area{Size: 4, Desc: base, Driver: base + 64, Device: base + 64<<10 - 4}, "in one piece"},
		"not aligned":    {spec.FeatureRingPacked, 0, nullvirtio.Area{Size: 4, Desc: base + 4, Device: base + 80}, "aligned to 8"},
	} {
		d, err := nullvirtio.New(nullvirtio.Config{Name: "null:", Memory: memory{base, make([]byte, 64<<10)}})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.SetFeatures(c.agreed | spec.FeatureVersion1); err != nil {
			t.Fatal(err)
		}
		bell, err := d.EnableQueue(c.queue, c.area)
		if (c.want == "") != (err == nil) || (bell == nil) != (err != nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if n, m := d.RxStep(1), d.TxStep(); n+m != 0 {
			t.Errorf("%s: %d arrive and %d are sent", name, n, m)
		}
	}
}

func TestWhatTheDeviceSaysOfItself(t *testing.T) {
	b := newBench(t, 4, 0)
	var mac [6]byte
	if err := b.dev.ReadConfig(spec.NetMAC, mac[:]); err != nil || mac != [6]byte{2, 0, 0, 0, 0, 1} {
		t.Errorf("MAC address %x, %v", mac, err)
	}
	for _, off := range []int{-1, spec.NetConfigSize - 5, spec.NetConfigSize + 1} {
		if b.dev.ReadConfig(off, mac[:]) == nil {
			t.Errorf("configuration at %d is read", off)
		}
	}
	if b.dev.SetFeatures(spec.FeatureVersion1|spec.FeatureMQ) == nil || b.dev.SetFeatures(spec.FeatureMAC) == nil {
		t.Error("features that are not there, or no version_1, are taken")
	}
	b.dev.AddStatus(spec.StatusDriver)
	b.dev.AddStatus(spec.StatusDriverOK)
	if b.dev.Status() != spec.StatusDriver|spec.StatusDriverOK {
		t.Errorf("status %#x", b.dev.Status())
	}
	b.put64(rxRing, bufferAt(0))
	b.put32(rxRing+spec.SplitDescLen, bufSize)
	l, _ := spec.NewSplitLayout(4, 4)
	b.put16(rxRing+uint64(l.Avail)+2, 1)
	b.dev.Reset()
	if n := b.dev.RxStep(1); n != 0 || b.dev.Status() != 0 {
		t.Errorf("after a reset %d frames arrive, status %#x", n, b.dev.Status())
	}
	for _, cfg := range []nullvirtio.Config{{}, {Memory: memory{}, Length: -1}, {Memory: memory{}, Size: 3}} {
		if _, err := nullvirtio.New(cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
}

// A device that a driver of two buffers is written for by hand.
func Example() {
	mem := memory{base, make([]byte, 8192)}
	d, err := nullvirtio.New(nullvirtio.Config{Name: "null:", Memory: mem})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = d.SetFeatures(spec.FeatureVersion1 | spec.FeatureRingPacked)
	_, _ = d.EnableQueue(0, nullvirtio.Area{Size: 2, Desc: base, Driver: base + 32, Device: base + 36})
	for i := range 2 {
		binary.LittleEndian.PutUint64(mem.mem[i*16:], base+4096)
		binary.LittleEndian.PutUint32(mem.mem[i*16+8:], 1536)
		binary.LittleEndian.PutUint16(mem.mem[i*16+14:], spec.DescWrite|spec.DescAvail)
	}
	fmt.Println(d.RxStep(32), "frames,", binary.LittleEndian.Uint32(mem.mem[8:]), "bytes with the header")
	// Output: 2 frames, 72 bytes with the header
}

func TestMemoryInSmallPieces(t *testing.T) {
	const odd = base + 4096 // nothing before it: what is around an address is not memory as a whole
	mem := memory{odd, make([]byte, 8192)}
	d, err := nullvirtio.New(nullvirtio.Config{Name: "null:", Memory: mem})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetFeatures(spec.FeatureVersion1 | spec.FeatureRingPacked); err != nil {
		t.Fatal(err)
	}
	if _, err := d.EnableQueue(0, nullvirtio.Area{Size: 4, Desc: odd, Device: odd + 64}); err != nil {
		t.Fatal(err)
	}
	for i, at := range []uint64{odd + 4096, odd + 5000, odd + 8192 - 12, odd + 8192 - 11} {
		binary.LittleEndian.PutUint64(mem.mem[i*16:], at)
		binary.LittleEndian.PutUint32(mem.mem[i*16+8:], 1536)
		binary.LittleEndian.PutUint16(mem.mem[i*16+14:], spec.DescWrite|spec.DescAvail)
	}
	if n := d.RxStep(9); n != 3 {
		t.Fatalf("%d frames arrive in three buffers and one that ends too early", n)
	}
	for _, at := range []int{4096, 5000, 8192 - 12} {
		if mem.mem[at+10] != 1 {
			t.Errorf("no header at %d", at)
		}
	}
}
