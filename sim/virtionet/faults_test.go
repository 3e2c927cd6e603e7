package virtionet

import (
	"slices"
	"testing"
	"time"

	"bare.wire/virtio/spec"
)

// scenes tell for each named fault whether it shows: true with the fault, false without it. Each has a rig that is new.
var scenes = map[string]func(r *rig) bool{
	"used-id": func(r *rig) bool {
		return anyUsed(r, 0, func(id uint32, n int) bool { return id >= 16 })
	},
	"used-twice": func(r *rig) bool {
		seen := map[uint32]bool{}
		return anyUsed(r, 0, func(id uint32, n int) bool {
			twice := seen[id]
			seen[id] = true
			return twice
		})
	},
	"used-length": func(r *rig) bool { return anyUsed(r, 0, func(_ uint32, n int) bool { return n > 1600 }) },
	"used-short":  func(r *rig) bool { return anyUsed(r, 0, func(_ uint32, n int) bool { return n < 12 }) },
	"index-jump": func(r *rig) (jump bool) {
		r.a.start(0, 16)
		r.a.fill(0, 16, 1600)
		for i := range 4 {
			r.arrive(frameTo(macA, 100, i))
			jump = jump || load16(word16(r.a.ring[0].u[2:])) > 16
		}
		return jump
	},
	"num-buffers-zero": func(r *rig) bool { return anyCount(r, func(k int) bool { return k == 0 }) },
	"num-buffers-more": func(r *rig) bool { return anyCount(r, func(k int) bool { return k == 2 }) },
	"num-buffers-many": func(r *rig) bool { return anyCount(r, func(k int) bool { return k > 1000 }) },
	"csum-beyond": func(r *rig) bool {
		return anyHeader(r, func(h Header) bool { return int(h.CSumStart)+int(h.CSumOffset)+2 > 100 })
	},
	"gso-lie": func(r *rig) bool {
		return anyHeader(r, func(h Header) bool { return h.GSOType != 0 && h.GSOSize == 0 })
	},
	"wrap-flip": func(r *rig) bool {
		r.a.start(spec.FeatureRingPacked, 16)
		for i := range 6 {
			r.a.send(1, Header{}, frameTo(macB, 100, i), 1)
			r.run(4 * time.Microsecond)
		}
		return r.a.sent(1) != 6
	},
	"tx-silent": func(r *rig) bool {
		r.a.start(0, 16)
		r.a.send(1, Header{}, frameTo(macB, 100, 1), 1)
		r.run(4 * time.Microsecond)
		return r.a.sent(1) == 0
	},
	"rx-silent": func(r *rig) bool {
		r.a.start(0, 16)
		r.a.fill(0, 16, 1600)
		r.arrive(frameTo(macA, 100, 1))
		_, _, ok := r.a.recv(0)
		return !ok
	},
	"no-interrupts": func(r *rig) bool {
		r.a.start(0, 16)
		r.a.send(1, Header{}, frameTo(macB, 100, 1), 1)
		r.run(4 * time.Microsecond)
		return r.a.calls[1] == 0
	},
	"event-lie": func(r *rig) bool {
		r.a.start(0, 16)
		quiet := false
		for i := range 10 {
			r.a.fill(0, 1, 1600)
			r.run(4 * time.Microsecond)
			r.arrive(frameTo(macA, 100, i))
			if _, _, ok := r.a.recv(0); !ok { // it wants to hear of buffers, and may say that it does not
				quiet = true
			}
			r.arrive(frameTo(macA, 100, i))
			quiet = quiet || load16(word16(r.a.ring[0].u)) == spec.UsedNoNotify
			r.a.fill(0, 1, 1600)
			r.run(4 * time.Microsecond)
			r.a.recv(0)
		}
		return quiet
	},
	"control-silent":  func(r *rig) bool { return answer(r) == -1 },
	"control-error":   func(r *rig) bool { return answer(r) == spec.CtrlErr },
	"control-garbage": func(r *rig) bool { return answer(r) == 0x77 },
	"needs-reset": func(r *rig) bool {
		anyUsed(r, 0, func(uint32, int) bool { return false })
		return r.a.d.Status()&spec.StatusNeedsReset != 0
	},
	"features-refused": func(r *rig) bool {
		set(r.a.d, 1, 3)
		_ = r.a.d.SetFeatures(spec.FeatureVersion1)
		set(r.a.d, 11)
		return r.a.d.Status()&spec.StatusFeaturesOK == 0
	},
	"reset-slow": func(r *rig) bool {
		set(r.a.d, 1, 0)
		busy := r.a.d.Status() != 0
		for range 5 {
			r.a.d.Status()
		}
		return busy && r.a.d.Status() == 0
	},
	"reset-stuck": func(r *rig) bool {
		set(r.a.d, 1, 0)
		for range 1000 {
			r.a.d.Status()
		}
		return r.a.d.Status() != 0
	},
	"vectors-refused": func(r *rig) bool {
		c := newCard(r.a, FunctionConfig{})
		c.bar.Write16(spec.CommonConfigVector, 0)
		return c.bar.Read16(spec.CommonConfigVector) == spec.NoVector
	},
	"no-tx-queue":     func(r *rig) bool { return r.a.d.QueueMax(0) != 0 && r.a.d.QueueMax(1) == 0 },
	"queue-size-odd":  func(r *rig) bool { n := r.a.d.QueueMax(0); return n&(n-1) != 0 },
	"queue-size-huge": func(r *rig) bool { return r.a.d.QueueMax(0) > spec.MaxQueueSize },
	"config-churn": func(r *rig) bool {
		g := r.a.d.Generation()
		for range 3 {
			r.a.d.ReadConfig(0, make([]byte, 4))
		}
		changed := g != r.a.d.Generation()
		g = r.a.d.Generation()
		var mac [6]byte
		r.a.d.ReadConfig(0, mac[:])
		return changed && g == r.a.d.Generation() && mac == macA
	},
	"config-unstable": func(r *rig) bool {
		for range 100 {
			g := r.a.d.Generation()
			if r.a.d.ReadConfig(0, make([]byte, 4)); g == r.a.d.Generation() {
				return false
			}
		}
		return true
	},
	"bad-mac":   func(r *rig) bool { return conf(r, spec.NetMAC)&1 != 0 },
	"bad-pairs": func(r *rig) bool { return conf(r, spec.NetMaxPairs) == 0 },
	"bad-mtu":   func(r *rig) bool { return conf(r, spec.NetMTU) == 10 },
	"removed": func(r *rig) bool {
		r.run(time.Microsecond)
		return r.a.d.Status() == 0xFF
	},
}

func set(d *Device, status ...uint8) {
	d.w.Lock()
	defer d.w.Unlock()
	for _, s := range status {
		d.SetStatus(s)
	}
}

func conf(r *rig, off int) uint16 {
	var b [2]byte
	r.a.w.Lock()
	defer r.a.w.Unlock()
	r.a.d.ReadConfig(off, b[:])
	return le.Uint16(b[:])
}

func answer(r *rig) int {
	r.a.start(controlFeatures, 16)
	return r.control(r.a, 0, 0, 1)
}

// anyUsed receives frames and looks at each used entry as it lies in the ring.
func anyUsed(r *rig, f spec.Features, test func(id uint32, n int) bool) (any bool) {
	r.a.start(f|spec.FeatureMrgRxBuf, 16)
	r.a.fill(0, 16, 1600)
	for i := range 8 {
		r.arrive(frameTo(macA, 4000, i))
	}
	for i := range 16 {
		e := r.a.ring[0].u[4+8*i:]
		if i < int(load16(word16(r.a.ring[0].u[2:]))) || le.Uint32(e[4:]) != 0 {
			any = test(le.Uint32(e), int(le.Uint32(e[4:]))) || any
		}
	}
	return any
}

// anyCount looks at num_buffers of received frames.
func anyCount(r *rig, test func(k int) bool) (any bool) {
	r.a.start(spec.FeatureMrgRxBuf, 16)
	var bufs []uint64
	for range 8 {
		bus, _ := r.a.mem.alloc(1600, 16)
		r.a.put(0, piece{bus, 1600, true})
		bufs = append(bufs, bus)
	}
	r.a.kick(0)
	for i := range 8 {
		r.arrive(frameTo(macA, 100, i))
		b, err := r.a.mem.Bytes(bufs[i], 12)
		if err != nil {
			r.a.t.Fatal(err)
		}
		any = test(int(le.Uint16(b[spec.HdrNumBuffers:]))) || any
	}
	return any
}

func anyHeader(r *rig, test func(h Header) bool) (any bool) {
	r.a.start(spec.FeatureGuestCSum, 16)
	r.a.fill(0, 16, 1600)
	for i := range 8 {
		r.arrive(frameTo(macA, 100, i))
		h, _, ok := r.a.recv(0)
		any = ok && test(h) || any
	}
	return any
}

func TestEachFaultShows(t *testing.T) {
	var names []string
	for name := range scenes {
		names = append(names, name)
	}
	slices.Sort(names)
	if !slices.Equal(names, FaultNames()) {
		t.Fatalf("scenes for %v,\nfaults %v", names, FaultNames())
	}
	for _, name := range names {
		f, err := FaultByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if scenes[name](newRig(t, 1, nil)) {
			t.Errorf("%s shows on a good device", name)
		}
		if !scenes[name](newRig(t, 1, func(c *Config) { c.Faults = f })) {
			t.Errorf("%s does not show", name)
		}
	}
	if _, err := FaultByName("none such"); err == nil {
		t.Error("a fault that there is not was found")
	}
}
