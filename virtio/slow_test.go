package virtio

import (
	"testing"

	"bare.wire/hugepage"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

func TestCommandsAndAnswers(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		space := vtop.NewMapped()
		arena, err := vtop.NewArena(space, vtop.ArenaConfig{Name: "rings", Node: hugepage.AnyNode, Size: ringBytes(f, false, 16)})
		if err != nil {
			t.Fatal(err)
		}
		env := &queueEnv{name: "dev", space: space, features: f, header: 12, fail: func(err error) { t.Error(err) }}
		q, err := newSlowQueue(env, 2, 16, arena)
		if err != nil {
			t.Fatal(err)
		}
		d := newRingDevice(t, space, q.area(), f)
		q.start(d)
		for i := range 50 {
			out, outPart := q.data(0, 20)
			_, inPart := q.data(64, 1)
			out[0] = byte(i)
			if !q.add([]part{outPart}, []part{inPart}, uint64(i)) {
				t.Fatal("no room")
			}
			if _, _, ok := q.take(); ok {
				t.Fatal("an answer before the question")
			}
			q.kick()
			c, ok := d.pop()
			if !ok || len(c.parts) != 2 || c.parts[0].write || !c.parts[1].write || d.mem(c.parts[0].bus, 20)[0] != byte(i) {
				t.Fatalf("the device sees %+v", c)
			}
			d.mem(c.parts[1].bus, 1)[0] = byte(i + 1)
			d.use(c, 1)
			token, n, ok := q.take()
			if !ok || token != uint64(i) || n != 1 || q.mem[64] != byte(i+1) {
				t.Fatalf("answer %d: %v %d %d", i, ok, token, n)
			}
		}
		_, p := q.data(0, 1)
		for range 8 {
			q.add([]part{p}, []part{p}, 0)
		}
		if q.add([]part{p}, []part{p}, 0) {
			t.Error("a full ring takes more")
		}
		q.kick()
		if n := q.drain(); n != 8 {
			t.Errorf("%d commands were under way", n)
		}
		if err := arena.Free(); err != nil {
			t.Error(err)
		}
	})
}

func TestRingSizesThatAreNone(t *testing.T) {
	r := newQueueRig(t, ringConfig{features: version1})
	for _, n := range []int{-1, 0, 1, 3, 32769, 65536} {
		if _, err := newSlowQueue(r.env, 2, n, r.arena); err == nil {
			t.Errorf("%d descriptors", n)
		}
	}
	r.end()
}
