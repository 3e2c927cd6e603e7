package virtionet

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/virtio/spec"
)

// through sends frames one after the other and checks that they arrive, and come back.
func (r *rig) through(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		f := frameTo(macB, 60+i%200, i)
		r.a.send(1, Header{}, f, 1+i%2)
		r.run(4 * time.Microsecond)
		if n := r.a.sent(1); n != 1 {
			t.Fatalf("frame %d: %d frames came back", i, n)
		}
		_, raw, ok := r.b.recv(0)
		if !ok || !bytes.Equal(raw[r.b.hdr:], f) {
			t.Fatalf("frame %d did not arrive as it was", i)
		}
		r.b.fill(0, 1, 512)
	}
}

func TestIndicesWrap(t *testing.T) {
	for _, size := range []int{2, 256} {
		r := newRig(t, 1, func(c *Config) { c.Size = 256 })
		r.a.start(spec.FeatureEventIdx, size)
		r.b.start(spec.FeatureEventIdx, size)
		for _, m := range []*mini{r.a, r.b} { // as if 65500 buffers had gone by
			m.w.Lock()
			for i := range 2 {
				m.d.EnableQueue(i, false)
				if err := m.d.SetQueueBase(i, 65500); err != nil {
					t.Fatal(err)
				}
				m.ring[i].avail, m.ring[i].used = 65500, 65500
				le.PutUint16(m.ring[i].a[2:], 65500)
				le.PutUint16(m.ring[i].u[2:], 65500)
				m.d.EnableQueue(i, true)
			}
			m.w.Unlock()
		}
		r.b.fill(0, 2, 512)
		r.through(t, 0, 100)
		r.a.clean()
		r.b.clean()
	}
}

func TestPackedRingsOfAnySize(t *testing.T) {
	for _, size := range []int{2, 3, 6, 255} {
		r := newRig(t, 1, func(c *Config) { c.Size = 255 })
		f := spec.FeatureRingPacked | spec.FeatureEventIdx
		r.a.start(f, size)
		r.b.start(f, size)
		r.b.fill(0, 2, 512)
		r.through(t, 0, min(3*size, 300))
		r.a.clean()
		r.b.clean()
	}
}

func TestTablesOfDescriptors(t *testing.T) {
	for _, f := range []spec.Features{0, spec.FeatureRingPacked} {
		f |= spec.FeatureIndirectDesc
		r := newRig(t, 1, nil)
		r.a.start(f, 8)
		r.b.start(f, 8)
		r.a.ring[1].indirect, r.b.ring[0].indirect = true, true
		for i := range 40 {
			bus, _ := r.b.mem.alloc(2000, 16)
			r.b.put(0, piece{bus, 10, true}, piece{bus + 10, 7, true}, piece{bus + 17, 1900, true})
			r.b.kick(0)
			f := frameTo(macB, 1200, i)
			r.a.send(1, Header{}, f, 1+i%7)
			r.run(4 * time.Microsecond)
			_, raw, ok := r.b.recv(0)
			if !ok || !bytes.Equal(raw[r.b.hdr:], f) || r.a.sent(1) != 1 {
				r.a.clean()
				r.b.clean()
				t.Fatalf("frame %d did not arrive as it was (%d bytes)", i, len(raw))
			}
		}
		r.a.clean()
		r.b.clean()
	}
}

// TestInOrderMayReportBatches lets the device report many frames by one entry.
func TestInOrderMayReportBatches(t *testing.T) {
	for _, f := range []spec.Features{0, spec.FeatureRingPacked} {
		r := newRig(t, 3, nil)
		r.a.start(f|spec.FeatureInOrder, 64)
		ring := r.a.ring[1]
		batches := 0
		for range 30 {
			var last uint16
			for range 5 {
				bus, _ := r.a.mem.alloc(100, 16)
				last = ring.add(piece{bus, 100, false})
			}
			r.a.kick(1)
			from := ring.used
			r.run(4 * time.Microsecond)
			if ring.packed {
				b := ring.d[16*int(from):]
				if le.Uint16(b[12:]) == last {
					batches++
				}
				ring.used = (from + 5) % 64
				ring.room = 64
			} else {
				if idx := load16(word16(ring.u[2:])); idx != from+5 {
					t.Fatalf("used index %d, want %d", idx, from+5)
				}
				if uint16(le.Uint32(ring.u[4+8*(int(from)%64):])) == last {
					batches++
				}
				ring.used = from + 5
			}
			for i := range 5 {
				ring.free = append(ring.free, (last-uint16(4-i))&63)
			}
		}
		if batches == 0 || batches == 30 {
			t.Errorf("%v: %d batches of 30", f, batches)
		}
		r.a.clean()
	}
}

func TestPositionsSurviveAPause(t *testing.T) {
	for i, f := range []spec.Features{0, spec.FeatureRingPacked, spec.FeatureRingPacked | spec.FeatureMrgRxBuf, 0, spec.FeatureRingPacked} {
		r := newRig(t, 3, func(c *Config) { c.Watch = i > 2 }) // then it has fetched all buffers there are
		r.a.start(f, 8)
		r.b.start(f, 8)
		r.b.fill(0, 4, 512)
		for round := range 5 {
			r.through(t, 10*round, 10*round+10)
			for _, m := range []*mini{r.a, r.b} { // as a front end that starts again does
				m.w.Lock()
				for i, ring := range m.ring {
					base := m.d.QueueBase(i)
					m.d.ResetQueue(i)
					if err := m.d.SetQueue(i, ring.size, ring.desc, ring.driver, ring.device); err != nil {
						t.Fatal(err)
					}
					if err := m.d.SetQueueBase(i, base); err != nil {
						t.Fatal(err)
					}
					m.d.EnableQueue(i, true)
				}
				m.w.Unlock()
			}
		}
		r.a.clean()
		r.b.clean()
	}
}

func TestRingFullKeepsFrames(t *testing.T) {
	r := newRig(t, 3, func(c *Config) { c.Backlog = 10 })
	r.a.start(0, 16)
	for i := range 15 {
		r.arrive(frameTo(macA, 64, i))
	}
	if c := r.a.d.Counts(); c.RxNoBuffer != 5 || c.RxFrames != 0 {
		t.Errorf("%+v", c)
	}
	r.a.fill(0, 16, 512)
	r.run(4 * time.Microsecond)
	for i := range 10 {
		_, raw, ok := r.a.recv(0)
		if !ok || !bytes.Equal(raw[12:], frameTo(macA, 64, i)) {
			t.Errorf("frame %d is not there", i)
		}
	}
	r.a.clean()
}

func TestFramesMayBeLeftWithTheNet(t *testing.T) {
	r := newRig(t, 3, func(c *Config) { c.Hold = true })
	r.a.start(0, 16)
	for i := range 15 {
		r.arrive(frameTo(macA, 64, i))
	}
	if n := r.wire.Counts(1).InFlight; n != 14 {
		t.Errorf("%d frames are still on the wire, want all but one", n)
	}
	r.a.fill(0, 16, 512)
	r.run(4 * time.Microsecond)
	for i := range 15 {
		if _, raw, ok := r.a.recv(0); !ok || !bytes.Equal(raw[12:], frameTo(macA, 64, i)) {
			t.Errorf("frame %d is not there", i)
		}
	}
}

// TestInterruptsAreSuppressed counts the calls with each way to say what is wanted.
func TestInterruptsAreSuppressed(t *testing.T) {
	packed := spec.FeatureRingPacked
	for _, x := range []struct {
		what string
		f    spec.Features
		say  func(r *vring)
		want int
	}{
		{"split, wanted", 0, func(r *vring) {}, 6},
		{"split, not wanted", 0, func(r *vring) { le.PutUint16(r.a, 1) }, 0},
		{"split, at the third", spec.FeatureEventIdx, func(r *vring) { le.PutUint16(r.a[4+2*r.size:], 2) }, 1},
		{"split, one that is long past", spec.FeatureEventIdx, func(r *vring) { le.PutUint16(r.a[4+2*r.size:], 0xFFFF) }, 0},
		{"packed, wanted", packed, func(r *vring) {}, 6},
		{"packed, not wanted", packed, func(r *vring) { le.PutUint16(r.a[2:], spec.EventDisable) }, 0},
		{"packed, at the third", packed | spec.FeatureEventIdx, func(r *vring) {
			le.PutUint16(r.a, 2|spec.EventWrap)
			le.PutUint16(r.a[2:], spec.EventDesc)
		}, 1},
		{"packed, in the next lap", packed | spec.FeatureEventIdx, func(r *vring) {
			le.PutUint16(r.a, 1)
			le.PutUint16(r.a[2:], spec.EventDesc)
		}, 1},
	} {
		r := newRig(t, 3, nil)
		r.a.start(x.f, 4)
		x.say(r.a.ring[1])
		for i := range 6 {
			r.a.send(1, Header{}, frameTo(macB, 64, i), 1)
			r.run(4 * time.Microsecond)
			r.a.sent(1)
		}
		if r.a.calls[1] != x.want {
			t.Errorf("%s: %d interrupts, want %d", x.what, r.a.calls[1], x.want)
		}
		r.a.clean()
	}
}

// TestNotificationsAreSuppressed looks at what the device says of notifications.
func TestNotificationsAreSuppressed(t *testing.T) {
	r := newRig(t, 3, nil)
	r.a.start(0, 4)
	r.a.fill(0, 4, 512)
	r.run(4 * time.Microsecond)
	quiet := func() bool { return load16(word16(r.a.ring[0].u)) == spec.UsedNoNotify }
	if !quiet() {
		t.Error("buffers are asked for that nobody needs")
	}
	for i := range 5 {
		r.arrive(frameTo(macA, 64, i))
	}
	if quiet() {
		t.Error("a frame waits, and buffers are not asked for")
	}

	r = newRig(t, 3, nil)
	r.a.start(spec.FeatureRingPacked, 4)
	r.w.Lock()
	r.a.d.Poll(true)
	r.w.Unlock()
	r.run(4 * time.Microsecond)
	if flags := load16(word16(r.a.ring[1].u[2:])); flags != spec.EventDisable {
		t.Errorf("a device that polls wants notifications: %d", flags)
	}
	bus, _ := r.a.mem.alloc(100, 16)
	r.a.put(1, piece{bus, 100, false}) // and nobody says so
	r.run(4 * time.Microsecond)
	if n := r.a.sent(1); n != 1 {
		t.Errorf("%d frames sent without a notification", n)
	}
}

func TestLinkIsUpWhenBothEndsAre(t *testing.T) {
	r := newRig(t, 3, nil)
	status := func() uint16 { return conf(r, spec.NetStatus) }
	r.a.start(spec.FeatureStatus, 4)
	if status() != 0 {
		t.Error("the link is up, and nobody is at the other end")
	}
	r.b.start(spec.FeatureStatus, 4)
	if status() != spec.NetStatusLinkUp || r.a.conf != 1 {
		t.Errorf("status %#x, %d changes", status(), r.a.conf)
	}
	r.a.d.SetLink(false)
	if status() != 0 || r.a.conf != 2 || r.b.conf != 2 {
		t.Errorf("status %#x, %d and %d changes", status(), r.a.conf, r.b.conf)
	}
}

// TestThreadedModeUnderRace has each driver and the world on goroutines of their own, on the real clock.
func TestThreadedModeUnderRace(t *testing.T) {
	for _, f := range []spec.Features{spec.FeatureEventIdx, spec.FeatureRingPacked} {
		clk := clock.Real()
		w := sim.NewWorld(clk)
		wire, err := link.New(link.Config{})
		if err != nil {
			t.Fatal(err)
		}
		mk := func(name string, end *link.End, mac [6]byte) *mini {
			mem := newArena(4 << 20)
			d, err := New(Config{Name: name, Memory: mem, World: w, Net: OnWire(end), MAC: mac})
			if err != nil {
				t.Fatal(err)
			}
			return &mini{t: t, d: d, w: w, mem: mem}
		}
		a, b := mk("a", wire.A(), macA), mk("b", wire.B(), macB)
		a.start(f, 64)
		b.start(f, 64)
		b.fill(0, 64, 512)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // so that a frame that is lost is a failure, not a hang
		var world, drivers sync.WaitGroup
		world.Go(func() { _ = w.Run(ctx) })
		const frames = 1000
		inFlight := make(chan struct{}, 40)
		drivers.Go(func() {
			for i := range frames {
				select {
				case inFlight <- struct{}{}:
				case <-ctx.Done():
					return
				}
				for len(a.ring[1].free) == 0 && ctx.Err() == nil {
					a.sent(1)
				}
				a.send(1, Header{}, frameTo(macB, 60+i%100, i), 1)
			}
		})
		drivers.Go(func() {
			for got := 0; got < frames; {
				_, raw, ok := b.recv(0)
				if !ok {
					if clk.Sleep(ctx, time.Microsecond) != nil {
						t.Errorf("%d frames of %d arrived", got, frames)
						return
					}
					continue
				}
				if !bytes.Equal(raw[12:], frameTo(macB, 60+got%100, got)) {
					t.Errorf("frame %d is not what was sent", got)
				}
				got++
				<-inFlight
				b.fill(0, 1, 512)
			}
		})
		drivers.Wait()
		cancel()
		world.Wait()
		a.clean()
		b.clean()
	}
}

// ExampleNew joins a device to a wire; a driver would go on from here by a PCI function.
func ExampleNew() {
	world := sim.NewWorld(clock.NewVirtual(time.Unix(0, 0)))
	wire, err := link.New(link.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := New(Config{
		Name: "virtio:a", Memory: newArena(4096), World: world, Net: OnWire(wire.A()), MAC: [6]byte{2, 0, 0, 0, 0, 1},
		Features: spec.FeatureVersion1 | spec.FeatureMAC | spec.FeatureStatus,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	f := NewFunction(d, FunctionConfig{})
	vendor, device := f.ID()
	fmt.Printf("%s is %04x:%04x and offers ", f.Name(), vendor, device)
	d.w.Lock()
	fmt.Println(d.Features())
	d.w.Unlock()
	// Output: virtio:a is 1af4:1041 and offers mac,status,version_1
}
