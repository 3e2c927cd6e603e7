//go:build guest

package virtio

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"bare.wire/hugepage"
	"bare.wire/pci"
	"bare.wire/test/judges/internal/frames"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// raw is a card by its transport alone, with a receive and a transmit queue that the test itself fills: it can ask for what the driver
// never would.
type raw struct {
	testing.TB
	card   card
	t      virtio.Transport
	opener *pci.Opener
	space  *vtop.Space
	rings  *vtop.Arena
	queues [2]rawQueue
}

const rawSize = 16 // descriptors

// rawQueue is a split ring.
type rawQueue struct {
	mem    []byte
	bus    uint64
	layout spec.SplitLayout
	bell   virtio.Doorbell
	made   uint16 // made available so far
}

// openRaw brings a modern card up to DRIVER_OK.
func openRaw(t testing.TB, c card, addr string) *raw {
	t.Helper()
	r := &raw{TB: t, card: c, space: vtop.NewMapped()}
	r.opener = (&pci.Host{}).NewOpener(r.space, pci.OpenOptions{Access: pci.VFIO})
	a, err := pci.ParseAddress(addr)
	r.check(err)
	ctx := context.Background()
	f, err := r.opener.Open(ctx, a)
	r.check(err)
	r.t, err = virtio.NewModern(ctx, f, virtio.TransportOptions{Clock: realTime})
	r.check(err)
	r.check(r.t.Reset(ctx), r.t.AddStatus(ctx, spec.StatusAcknowledge), r.t.AddStatus(ctx, spec.StatusDriver))
	r.check(r.t.SetFeatures(spec.FeatureVersion1 | spec.FeatureAccessPlatform | spec.FeatureMAC | spec.FeatureRingReset))
	r.check(r.t.AddStatus(ctx, spec.StatusFeaturesOK))
	layout, err := spec.NewSplitLayout(rawSize, 64)
	r.check(err)
	r.rings, err = vtop.NewArena(r.space, vtop.ArenaConfig{Name: "raw rings", Node: hugepage.AnyNode, Size: 4 * (layout.Bytes + 4096)})
	r.check(err)
	for i := range r.queues {
		r.enable(i, layout)
	}
	r.check(r.t.AddStatus(ctx, spec.StatusDriverOK))
	return r
}

func (r *raw) check(errs ...error) {
	r.Helper()
	if err := errors.Join(errs...); err != nil {
		r.Fatal(err)
	}
}

// enable gives queue i a fresh ring.
func (r *raw) enable(i int, layout spec.SplitLayout) {
	r.Helper()
	p, bus, err := r.rings.Cut(layout.Bytes, 4096)
	r.check(err)
	q := rawQueue{mem: unsafe.Slice((*byte)(p), layout.Bytes), bus: bus, layout: layout}
	q.bell, err = r.t.EnableQueue(context.Background(), i, virtio.QueueArea{
		Size: rawSize, Desc: bus, Driver: bus + uint64(layout.Avail), Device: bus + uint64(layout.Used), Vector: -1,
	})
	r.check(err)
	r.queues[i] = q
}

// word is the aligned word of a ring's flags and index.
func (q *rawQueue) word(off int) *uint32 { return (*uint32)(unsafe.Pointer(&q.mem[off])) }

// offer makes one buffer available.
func (q *rawQueue) offer(bus uint64, length int, flags uint16) {
	le := binary.LittleEndian
	slot := int(q.made) % rawSize
	d := q.mem[slot*spec.DescSize:]
	le.PutUint64(d, bus)
	le.PutUint32(d[8:], uint32(length))
	le.PutUint16(d[12:], flags)
	le.PutUint16(q.mem[q.layout.AvailEntries+2*slot:], uint16(slot))
	q.made++
	atomic.StoreUint32(q.word(q.layout.Avail), uint32(q.made)<<16)
	q.bell.Ring(q.made)
}

// used is how many buffers came back.
func (q *rawQueue) used() uint16 { return uint16(atomic.LoadUint32(q.word(q.layout.Used)) >> 16) }

func (r *raw) usedWithin(i int, n uint16, limit time.Duration) bool {
	for end := realTime.Now().Add(limit); realTime.Now().Before(end); pause(time.Millisecond) {
		if r.queues[i].used() == n {
			return true
		}
	}
	return false
}

// memory is a region of its own, mapped for the device.
func (r *raw) memory() (*hugepage.Region, uint64) {
	r.Helper()
	region, err := hugepage.Alloc(hugepage.Config{Size: hugepage.Page2M, Name: "raw memory", Node: hugepage.AnyNode})
	r.check(err, r.space.Add(region))
	bus, err := r.space.Bus(region.Base(), region.Size())
	r.check(err)
	return region, bus
}

// send has the host send one patterned frame.
func (r *raw) send(number uint32) {
	r.Helper()
	r.card.ask(r, question{Do: "burst", Burst: burst{To: r.card.mac(), From: r.card.peerMAC(), First: number, Count: 1, Least: 200, Max: 200}})
}

func (r *raw) close() {
	r.Helper()
	r.check(r.t.Reset(context.Background()), r.t.Close(), r.rings.Free(), r.opener.Close())
}

// testUnmapped gives the device a buffer, takes the buffer's memory out of the address space, and has a frame come: the IOMMU keeps the
// device from it. The same for a frame to be sent: it is not.
func testUnmapped(t *testing.T, c card, addr string) {
	c.bind(t, addr)
	r := openRaw(t, c, addr)
	region, bus := r.memory()
	r.queues[0].offer(bus, 2048, spec.DescWrite)
	r.send(1)
	if !r.usedWithin(0, 1, patience) {
		t.Fatal("a buffer that is mapped is not written")
	}
	if wrong := frames.WrongPattern(region.Bytes()[spec.HdrSize:][:200]); wrong != "" {
		t.Fatal(wrong)
	}
	r.queues[0].offer(bus+4096, 2048, spec.DescWrite)
	r.check(r.space.Remove(t.Context(), region))
	before := crc32.ChecksumIEEE(region.Bytes())
	r.card.ask(t, question{Do: "reset"})
	r.send(2)
	// QEMU gives the buffer back as if it had been written.
	t.Logf("the device gives the buffer back: %v", r.usedWithin(0, 2, 2*time.Second))
	if crc32.ChecksumIEEE(region.Bytes()) != before {
		t.Error("memory that is not mapped any more was written")
	}
	frames.PutPattern(region.Bytes()[spec.HdrSize:][:200], c.peerMAC(), c.mac(), 3, frames.Sink)
	r.queues[1].offer(bus, spec.HdrSize+200, 0)
	pause(200 * time.Millisecond)
	if n := r.card.ask(t, question{Do: "counts"}).Frames; n != 0 {
		t.Errorf("%d frames were sent from memory that is not mapped", n)
	}
	r.close()
	r.check(region.Close())
}

// testQueueReset takes the receive queue away while the device works (FeatureRingReset): its buffers are not written any more, and it comes
// back with another ring.
func testQueueReset(t *testing.T, c card, addr string) {
	c.bind(t, addr)
	r := openRaw(t, c, addr)
	region, bus := r.memory()
	for range rawSize {
		r.queues[0].offer(bus, 2048, spec.DescWrite)
	}
	r.send(1)
	if !r.usedWithin(0, 1, patience) {
		t.Fatal("nothing is received")
	}
	r.check(r.t.DisableQueue(t.Context(), 0))
	before := crc32.ChecksumIEEE(region.Bytes())
	r.send(2)
	pause(200 * time.Millisecond)
	if crc32.ChecksumIEEE(region.Bytes()) != before || r.queues[0].used() != 1 {
		t.Error("a queue that was reset is written")
	}
	r.enable(0, r.queues[0].layout)
	r.queues[0].offer(bus+4096, 2048, spec.DescWrite)
	r.send(3)
	if !r.usedWithin(0, 1, patience) {
		t.Error("nothing is received on a queue that was enabled again")
	}
	r.close()
	r.check(r.space.Remove(t.Context(), region), region.Close())
}
