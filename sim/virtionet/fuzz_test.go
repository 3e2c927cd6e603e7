package virtionet

import (
	"encoding/binary"
	"testing"
	"time"

	"bare.wire/virtio/spec"
)

// FuzzAnyDriver lets an arbitrary sequence of register accesses, ring contents, notifications and frames loose on a device
// that has been started, and one that has not: whatever a driver does, the device stays in one piece, touches nothing but the
// memory that it may, and comes to an end.
//
// A record is 8 bytes: operation, place, value.
func FuzzAnyDriver(f *testing.F) {
	rec := func(op byte, place uint16, v uint32) []byte {
		b := []byte{op, 0, byte(place), byte(place >> 8)}
		return binary.LittleEndian.AppendUint32(b, v)
	}
	join := func(list ...[]byte) (b []byte) {
		for _, x := range list {
			b = append(b, x...)
		}
		return b
	}
	f.Add(uint64(1), []byte{})
	f.Add(uint64(2), join(rec(2, 3, 0x00010001), rec(4, 1, 0), rec(5, 0, 20000)))
	f.Add(uint64(3), join(rec(2, 3, 0xFFFF0001), rec(4, 1, 0), rec(5, 0, 20000), rec(1, spec.CommonStatus, 0)))
	f.Add(uint64(4), join(rec(6, 0, 60), rec(6, 1, 6000), rec(4, 0, 0), rec(5, 0, 20000)))
	f.Add(uint64(5), join(rec(3, 8, 0x80008000), rec(4, 1, 0), rec(5, 0, 5000)))
	f.Add(uint64(21), join(rec(7, 1, 0x01000000), rec(7, 2, 0x00040000), rec(5, 0, 20000)))
	f.Fuzz(func(t *testing.T, seed uint64, ops []byte) {
		r := newRigOf(t, seed, 64<<10, func(c *Config) {
			c.Pairs = 1 + int(seed%2)
			c.MaxStep = int(seed % 3)
			if seed%5 == 0 {
				c.Order = Shuffled
			}
			c.Faults.UsedTwice = seed%7 == 0
		})
		if seed%4 < 2 {
			r.a.mem.piece = 256
		}
		features := controlFeatures | spec.FeatureMrgRxBuf | spec.FeatureIndirectDesc
		for i, f := range []spec.Features{spec.FeatureRingPacked, spec.FeatureEventIdx, spec.FeatureInOrder, guestFeatures, sendFeatures, spec.FeatureRingReset} {
			if seed>>(8+i)&1 != 0 {
				features |= f
			}
		}
		c := newCard(r.a, FunctionConfig{Kind: Transitional})
		c.start(features, 8, 0)
		if seed%2 == 0 {
			r.a.fill(0, 4, 1600)
		}
		for n := 0; len(ops) >= 8 && n < 100; n++ {
			place, v := binary.LittleEndian.Uint16(ops[2:]), binary.LittleEndian.Uint32(ops[4:])
			q := int(ops[1]) % len(r.a.ring)
			r8 := r.a.ring[q]
			switch ops[0] % 10 {
			case 0:
				c.bar.Read32(uint32(place) &^ 3)
				c.bar.Read16(uint32(place) &^ 1)
				c.bar.Read8(uint32(place))
			case 1:
				switch ops[1] % 3 {
				case 0:
					c.bar.Write8(uint32(place)%0x80, uint8(v))
				case 1:
					c.bar.Write16(uint32(place)%0x80&^1, uint16(v))
				case 2:
					c.bar.Write32(uint32(place)%0x80&^3, v)
				}
			case 2: // available ring, or driver event suppression
				binary.LittleEndian.PutUint32(r8.a[int(place)%len(r8.a)&^3%(len(r8.a)-3):], v)
			case 3: // descriptors
				binary.LittleEndian.PutUint32(r8.d[int(place)%(len(r8.d)/4)*4:], v)
			case 4:
				r.a.kick(int(place) % (len(r.a.ring) + 1))
			case 5:
				r.clk.Advance(time.Duration(v % 20000))
				r.w.Step()
			case 6:
				r.arrive(frameTo(macA, 14+int(v%9000), int(place)))
			case 7: // a command, or a frame, of these bytes
				bus, b := r.a.mem.alloc(64, 16)
				for i := range b {
					b[i] = byte(v>>(8*(i%4))) ^ byte(i/4*int(place))
				}
				if len(r8.free) > 2 && r8.room > 2 {
					r.a.put(q, piece{bus, 2 + int(place%60), false}, piece{bus + 62, 2, true})
					r.a.kick(q)
				}
			case 8:
				c.io.Write32(uint32(place)%32&^3, v)
				c.io.Write16(uint32(place)%32&^1, uint16(v))
				c.io.Write8(uint32(place)%32, uint8(v))
			case 9:
				_ = c.f.WriteConfig(int(place)%256&^3, 4, v)
				_, _ = c.f.ReadConfig(int(place)%300, int(v%6))
			}
			ops = ops[8:]
		}
		r.run(20 * time.Microsecond)
		r.a.d.Misuse()
	})
}
