package virtio

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/virtio/spec"
)

// echo sends and receives n frames, one at a time or in bursts, and compares them all.
func (r *queueRig) echo(n, burst int) {
	r.t.Helper()
	bufs := make([]*mbuf.Buf, burst)
	for i := 0; i < n; i += burst {
		for j := range burst {
			if !r.deliver(0, 0, testFrame(i+j, 60+(i+j)%1400)) {
				r.t.Fatalf("no buffer for frame %d", i+j)
			}
		}
		got := 0
		for got < burst {
			k := r.rx.Recv(bufs[got:])
			if k == 0 {
				r.works()
				r.t.Fatalf("%d of %d frames", got, burst)
			}
			got += k
		}
		for j, b := range bufs {
			if string(content(b)) != string(testFrame(i+j, 60+(i+j)%1400)) {
				r.t.Fatalf("frame %d is not what was sent", i+j)
			}
		}
		for sent := 0; sent < burst; {
			k := r.tx.Send(bufs[sent:])
			for range k {
				r.sent(testFrame(i+sent, 60+(i+sent)%1400), true)
				sent++
			}
			if k == 0 && r.tx.Reclaim() == 0 {
				r.t.Fatal("the ring stays full")
			}
		}
		for range burst { // nothing is left
			if c, ok := r.txDev.pop(); ok {
				r.t.Fatalf("more was sent: %+v", c)
			}
		}
	}
}

// moveTo has both queues and their devices be at an index, as if that many buffers had gone round. Nothing is under way but the
// buffers that the receive ring was filled with.
func (r *queueRig) moveTo(index int) {
	r.rx.drain(r.cache.Free)
	for _, v := range []*virtqueue{&r.rx.virtqueue, &r.tx.virtqueue} {
		v.clean, v.tail = uint32(index)%v.size, uint32(index)%v.size
		v.split.availIdx, v.split.usedIdx, v.split.added = uint16(index), uint16(index), 0
		v.pack.availFlags, v.pack.usedFlags, v.pack.holds = spec.DescAvail, bothWraps, false
		clear(v.desc)
		if !v.packed {
			*v.split.avail, *v.split.used = uint32(index)<<16, uint32(index)<<16
			for i := range v.desc {
				v.desc[i].hi = splitHi(r.rx.hdr+r.rx.room, spec.DescWrite, 0)
			}
		}
		v.disarm()
	}
	for _, d := range []*ringDevice{r.rxDev, r.txDev} {
		d.availIdx, d.usedIdx, d.availWrap, d.usedWrap = uint16(index), uint16(index), true, true
		if r.rx.packed {
			d.availIdx, d.usedIdx = uint16(index%int(r.rx.size)), uint16(index%int(r.rx.size))
		}
	}
	r.rx.refill()
}

func TestFramesGoRoundRingsOfAnySize(t *testing.T) {
	for _, size := range []int{2, 3, 4, 6, 255, 256, 1024, 2047, 32768} {
		for _, f := range []spec.Features{version1, version1 | spec.FeatureMrgRxBuf, version1 | spec.FeatureRingPacked, version1 | spec.FeatureRingPacked | spec.FeatureEventIdx} {
			if size&(size-1) != 0 && f&spec.FeatureRingPacked == 0 {
				continue
			}
			t.Run(fmt.Sprint(size, "/", f), func(t *testing.T) {
				// A ring may hold fewer buffers than it has descriptors.
				r := newQueueRig(t, ringConfig{features: f, size: size, pool: mbuf.Config{Buffers: min(2*size, 1024) + 512}})
				burst := min(size/2, 32)
				r.moveTo(max(0, size-fewer(700)/burst*burst))
				r.echo(min(5*size/2, fewer(1000))/burst*burst, burst)
				r.works()
				r.end()
			})
		}
	}
}

func TestIndexGoesRound(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f, size: 16})
		r.moveTo(65520)
		r.echo(200, 8)
		r.works()
		r.end()
	})
}

// TestIndexGoesRoundOnItsOwnFeet is the same without help.
func TestIndexGoesRoundOnItsOwnFeet(t *testing.T) {
	for _, f := range []spec.Features{version1 | spec.FeatureEventIdx, inOrder1, packedRing1} {
		r := newQueueRig(t, ringConfig{features: f, size: 64})
		bufs := make([]*mbuf.Buf, 32)
		for i := 0; i < fewer(70000); i += len(bufs) {
			r.rxDev.turn(len(bufs), 72)
			for got := 0; got < len(bufs); {
				got += r.rx.Recv(bufs[got:])
			}
			for sent := 0; sent < len(bufs); {
				sent += r.tx.Send(bufs[sent:])
				r.works()
			}
			r.txDev.turn(len(bufs), 0)
		}
		r.tx.Reclaim()
		r.works()
		r.consistent()
		r.end()
	}
}

// fewer is n, or less for the sanitizer, which takes ten times as long.
func fewer(n int) int {
	if mbuf.Checking {
		return n / 10
	}
	return n
}

// order is how a device returns what it has.
type order int

const (
	inOrder order = iota
	inBatches
	shuffled
)

// exchange has frames of all kinds go both ways for some rounds; the device returns buffers as it likes. Every byte is compared,
// and every buffer comes back.
func exchange(t *testing.T, c ringConfig, how order, seed uint64, rounds int) {
	t.Helper()
	r := newQueueRig(t, c)
	rng := rand.New(rand.NewPCG(seed, 1))
	if how == shuffled {
		r.pick = rng
	}
	longest := c.maxFrame
	if longest == 0 {
		longest = 1518
	}
	toCome, toLeave := [][]byte{}, [][]byte{} // frames under way
	var held []devChain                       // transmit buffers that the device has not returned
	next := 0
	for round := range fewer(rounds) {
		for range rng.IntN(8) {
			p := testFrame(next, 14+rng.IntN(longest-13))
			used, lens := r.fill(append(r.header(0, 0, 1), p...))
			if used == nil {
				break
			}
			next++
			toCome = append(toCome, p)
			if !(how == inBatches && len(used) > 1 && useBatch(r.rxDev, used, lens)) {
				for i, x := range used {
					r.rxDev.use(x, lens[i])
				}
			}
		}
		bufs := make([]*mbuf.Buf, 1+rng.IntN(12))
		n := r.rx.Recv(bufs)
		r.works()
		for _, b := range bufs[:n] {
			if string(content(b)) != string(toCome[0]) {
				t.Fatalf("seed %d, round %d: %d bytes come, want %d", seed, round, b.FrameLen(), len(toCome[0]))
			}
			toCome = toCome[1:]
		}
		if how == shuffled {
			n = mangle(r, rng, bufs[:n])
		}
		sent := 0
		for sent < n {
			p := content(bufs[sent])
			if r.tx.Send(bufs[sent:sent+1]) == 0 {
				break
			}
			toLeave = append(toLeave, p)
			sent++
		}
		for _, b := range bufs[sent:n] {
			r.cache.Free(b)
		}
		for {
			x, ok := r.txDev.pop()
			if !ok {
				break
			}
			if p := r.txDev.read(x); string(p[r.env.header:]) != string(toLeave[0]) {
				t.Fatalf("seed %d, round %d: %d bytes leave, want %d", seed, round, len(p), len(toLeave[0]))
			}
			toLeave = toLeave[1:]
			held = append(held, x)
		}
		if how == shuffled {
			rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		}
		k := rng.IntN(len(held) + 1)
		if k > 0 && how == inBatches {
			useBatch(r.txDev, held[:k], nil)
		} else {
			for _, x := range held[:k] {
				r.txDev.use(x, rng.IntN(3))
			}
		}
		held = held[k:]
		if rng.IntN(2) == 0 {
			r.tx.Reclaim()
		}
		for len(r.shared) > 20 {
			r.shared[0].Free()
			r.shared = r.shared[1:]
		}
		r.works()
	}
	r.consistent()
	for _, b := range r.shared {
		b.Free()
	}
	r.end()
}

// useBatch returns buffers with one element.
func useBatch(d *ringDevice, used []devChain, lens []int) bool {
	descs := 0
	for i, x := range used {
		descs += x.descs
		if i+1 == len(used) || lens == nil {
			continue
		}
		room := 0
		for _, p := range x.parts {
			room += int(p.len)
		}
		if lens[i] != room {
			return false // only those that are full need not be told of (§2.7.9)
		}
	}
	last, n := used[len(used)-1], 0
	if lens != nil {
		n = lens[len(used)-1]
	}
	d.useBatch(last, n, descs, len(used))
	return true
}

// mangle makes some frames such that they take another way: of several segments, shared, or without headroom.
func mangle(r *queueRig, rng *rand.Rand, bufs []*mbuf.Buf) int {
	for i, b := range bufs {
		p := content(b)
		switch rng.IntN(4) {
		case 0:
			if x := b.Clone(r.cache); x != nil {
				r.cache.Free(b)
				bufs[i] = x
			}
		case 1:
			if len(p) > 100 {
				r.cache.Free(b)
				bufs[i] = r.packet(p, 14, 40)
			}
		case 2:
			if x := b.Clone(r.cache); x != nil { // shared while it is under way
				r.shared = append(r.shared, x)
			}
		}
	}
	return len(bufs)
}

// consistent checks what both queues keep of their ids.
func (r *queueRig) consistent() {
	r.t.Helper()
	for _, v := range []*virtqueue{&r.rx.virtqueue, &r.tx.virtqueue} {
		for at, id := range v.order {
			if int(v.pos[id]) != at {
				r.t.Fatalf("%s: id %d is at %d, and noted at %d", v.what, id, at, v.pos[id])
			}
		}
		if (v.clean+v.out)%v.size != v.tail%v.size {
			r.t.Fatalf("%s: %d descriptors out between %d and %d", v.what, v.out, v.clean, v.tail)
		}
		heads, rest := uint32(0), uint32(0)
		for i := range v.out {
			if n := v.chain[v.order[(v.clean+i)%v.size]]; n > 0 {
				heads, rest = heads+1, rest+uint32(n)-1
			}
		}
		if rest != v.extra || heads+rest != v.out {
			r.t.Fatalf("%s: %d buffers and %d further descriptors, noted are %d of %d", v.what, heads, rest, v.extra, v.out)
		}
		odd := uint32(0)
		for at, is := range v.odd {
			if !is {
				continue
			}
			if odd++; (uint32(at)+v.size-v.clean)%v.size >= v.out {
				r.t.Fatalf("%s: the frame at %d is marked, and the device does not have it", v.what, at)
			}
		}
		if v == &r.tx.virtqueue && odd != r.tx.oddOut {
			r.t.Fatalf("%s: %d frames are marked, noted are %d", v.what, odd, r.tx.oddOut)
		}
	}
}

func TestBuffersComeBackInAnyOrder(t *testing.T) {
	for _, f := range []spec.Features{
		0, spec.FeatureRingPacked, spec.FeatureIndirectDesc, spec.FeatureIndirectDesc | spec.FeatureRingPacked,
		spec.FeatureMrgRxBuf, spec.FeatureMrgRxBuf | spec.FeatureRingPacked,
		spec.FeatureEventIdx | spec.FeatureMrgRxBuf, spec.FeatureEventIdx | spec.FeatureRingPacked,
	} {
		for _, size := range []int{8, 64, 33} {
			if f&spec.FeatureRingPacked == 0 && size == 33 {
				continue
			}
			c := ringConfig{features: version1 | f, size: size, maxFrame: 3000, pool: mbuf.Config{Size: 1024, Buffers: 600}}
			t.Run(fmt.Sprint(size, "/", f), func(t *testing.T) {
				exchange(t, c, shuffled, uint64(size), 400)
				exchange(t, c, inOrder, uint64(size), 200)
			})
		}
	}
}

func TestInOrderDeviceReturnsBatches(t *testing.T) {
	for _, f := range []spec.Features{
		0, spec.FeatureRingPacked, spec.FeatureMrgRxBuf, spec.FeatureMrgRxBuf | spec.FeatureRingPacked,
		spec.FeatureIndirectDesc | spec.FeatureMrgRxBuf, spec.FeatureIndirectDesc | spec.FeatureRingPacked | spec.FeatureMrgRxBuf,
	} {
		c := ringConfig{features: version1 | spec.FeatureInOrder | f, size: 32, maxFrame: 3000, pool: mbuf.Config{Size: 1024, Buffers: 600}}
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			exchange(t, c, inBatches, 1, 400)
			exchange(t, c, inOrder, 2, 200)
		})
	}
}

func TestLegacyDeviceGetsHeadersApart(t *testing.T) {
	for _, f := range []spec.Features{0, spec.FeatureMrgRxBuf, spec.FeatureAnyLayout, spec.FeatureIndirectDesc, spec.FeatureMrgRxBuf | spec.FeatureAnyLayout} {
		c := ringConfig{features: f, legacy: true, size: 64, maxFrame: 3000, pool: mbuf.Config{Size: 1024, Buffers: 600}}
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			exchange(t, c, shuffled, 1, 400)
			r := newQueueRig(t, c)
			r.send(r.packet(testFrame(1, 100)))
			_, x := r.sent(testFrame(1, 100), true)
			apart := f&spec.FeatureAnyLayout == 0
			if got := int(x.parts[0].len) == r.env.header; got != apart {
				t.Errorf("the header is by itself: %v, want %v (%+v)", got, apart, x)
			}
			y, _ := r.rxDev.pop()
			if got := int(y.parts[0].len) == r.env.header; got != apart {
				t.Errorf("the received header is by itself: %v, want %v (%+v)", got, apart, y)
			}
			if a := r.rx.area(); a.Desc%4096 != 0 || a.Device != a.Desc+(uint64(18*64+6)+4095)&^4095 {
				t.Errorf("a legacy ring lies at %+v", a)
			}
			r.end()
		})
	}
}

// TestPackedDescriptorsAreSeenAllAtOnce: until the first of a burst is published the device finds nothing (§2.8.6).
func TestPackedDescriptorsAreSeenAllAtOnce(t *testing.T) {
	r := newQueueRig(t, ringConfig{features: packedRing1, size: 16})
	for lap := range 5 {
		b := []*mbuf.Buf{r.packet(testFrame(1, 60)), r.packet(testFrame(2, 60)), r.packet(testFrame(3, 60))}
		n, _ := r.tx.fill(b, 0, 0) // all of Send but publish
		if n == 1 && lap > 0 {
			more, _ := r.tx.fill(b[1:], 0, 0)
			n += more
		}
		if c, ok := r.txDev.pop(); ok || n == 0 {
			t.Fatalf("lap %d: the device sees %+v before it is published", lap, c)
		}
		r.tx.publish()
		for i := range n {
			r.sent(testFrame(i+1, 60), true)
		}
		r.tx.Reclaim()
		r.cache.FreeBulk(b[n:])
	}
	b := r.packet(testFrame(1, 90), 30, 30) // and a chain
	if n, _ := r.tx.sendSlow(b, nil); n != 1 {
		t.Fatal("not taken")
	}
	if _, ok := r.txDev.pop(); ok {
		t.Fatal("the device sees a chain before it is published")
	}
	r.tx.publish()
	r.sent(testFrame(1, 90), true)
	r.end()
}
