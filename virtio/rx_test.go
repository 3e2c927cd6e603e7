package virtio

import (
	"encoding/binary"
	"fmt"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
)

// A frame of several buffers comes as one, with its bytes where they were written, whatever the Recv calls see of it.
func TestFrameSpansMergedBuffers(t *testing.T) {
	mergeable(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f, maxFrame: 9000})
		want := testFrame(1, 9000)
		used, lens := r.fill(append(r.header(0, 0, 1), want...))
		if len(used) != 5 {
			t.Fatalf("%d buffers", len(used))
		}
		for i, c := range used[:4] {
			r.rxDev.use(c, lens[i])
			r.nothing()
		}
		r.rxDev.use(used[4], lens[4])
		b := r.recv(want)
		if b.Segs() != 5 || b.Headroom() != mbuf.DefaultHeadroom {
			t.Errorf("%d segments, the first with %d bytes of headroom", b.Segs(), b.Headroom())
		}
		if bus := b.Next().Bus(); bus != used[1].parts[0].bus {
			t.Errorf("the second segment is at %#x, written was %#x", bus, used[1].parts[0].bus)
		}
		r.cache.Free(b)
		for i := range 300 { // buffers of such frames are as good as others
			p := testFrame(i, 60+i*29)
			if !r.deliver(0, 0, p) {
				t.Fatal("no buffers")
			}
			r.cache.Free(r.recv(p))
		}
		if n, by := r.rx.packets.Load(), r.rx.bytes.Load(); n != 301 || by != uint64(9000+300*60+29*300*299/2) {
			t.Errorf("%d packets of %d bytes", n, by)
		}
		r.end()
	})
}

// The device writes to headroom − header: the frame begins where the pool says.
func TestFrameBeginsAtThePoolsHeadroom(t *testing.T) {
	for _, c := range []struct {
		features spec.Features
		legacy   bool
		headroom int
		want     int
	}{
		{version1, false, 192, 192},
		{version1, false, -1, 12}, // none: the header takes some of the room
		{version1, false, 8, 12},
		{spec.FeatureAnyLayout, true, 192, 192},
		{version1 | spec.FeatureHashReport, false, 64, 64},
		{version1 | spec.FeatureMrgRxBuf | spec.FeatureHashReport, false, 4, 20},
		{version1 | spec.FeatureRingPacked, false, 8, 12},
	} {
		t.Run(fmt.Sprint(c.features, "/", c.headroom), func(t *testing.T) {
			r := newQueueRig(t, ringConfig{features: c.features, legacy: c.legacy, pool: mbuf.Config{Headroom: c.headroom}})
			for i := range 200 {
				r.deliver(0, 0, testFrame(i, 1500))
				b := r.recv(testFrame(i, 1500))
				if b.Headroom() != c.want {
					t.Fatalf("%d bytes of headroom, want %d", b.Headroom(), c.want)
				}
				r.send(b) // with whatever room there is for the header
				r.sent(testFrame(i, 1500), true)
			}
			r.end()
		})
	}
}

// Without mergeable buffers a frame that is longer than a buffer lies in a chain of them.
func TestBigBuffersAreChains(t *testing.T) {
	gso := spec.FeatureGuestCSum | spec.FeatureGuestTSO4
	for _, f := range []spec.Features{version1 | gso, packedRing1 | gso, gso, gso | spec.FeatureAnyLayout, inOrder1 | gso} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			r := newQueueRig(t, ringConfig{features: f, legacy: f&version1 == 0, size: 128, offloads: nic.RxGSO, pool: mbuf.Config{Buffers: 600}})
			for i := range 40 {
				p := testFrame(i, 60)
				lo, field := uint64(0), uint16(0)
				if i%2 == 0 {
					p = testFrame(i, 60000)
					lo, field = spec.HdrNeedsCSum|spec.GSOTCPv4<<8|1448<<32|34<<48, tcpSumAt
				}
				if !r.deliver(lo, field, p) {
					t.Fatal("no buffer")
				}
				b := r.recv(p)
				if i%2 == 0 && (b.Flags()&mbuf.RxGSO == 0 || b.MSS != 1448) {
					t.Errorf("flags %#x, MSS %d", b.Flags(), b.MSS)
				}
				if want := (len(p) + 2047) / 2048; b.Segs() != want {
					t.Errorf("%d segments instead of %d", b.Segs(), want)
				}
				r.cache.Free(b)
			}
			r.consistent()
			r.end()
		})
	}
}

func TestRingThatIsTooSmallForBigBuffers(t *testing.T) {
	r := newQueueRig(t, ringConfig{features: version1, size: 16})
	r.env.features |= spec.FeatureGuestTSO4
	_, err := newRxQueue(r.env, 0, 0, 16, r.arena, r.pool)
	if err == nil || err.Error() != "receive queue 0: a frame takes 33 buffers of 2048 bytes, and the ring has 16 descriptors: take larger buffers, or no RxGSO" {
		t.Error(err)
	}
	r.end()
}

// headerCase is what a device says of a frame of 100 bytes, and what the driver makes of it.
type headerCase struct {
	name     string
	features spec.Features
	lo       uint64
	field    uint16
	drop     bool
	flags    mbuf.Flags
	mss      uint16
}

const guest = spec.FeatureGuestCSum | spec.FeatureGuestTSO4 | spec.FeatureGuestTSO6

var headerCases = []headerCase{
	{"nothing", guest, 0, 0, false, 0, 0},
	{"looked at", guest, spec.HdrDataValid, 0, false, mbuf.RxL4Good, 0},
	{"looked at, not agreed on", 0, spec.HdrDataValid, 0, false, 0, 0},
	{"partial TCP", guest, spec.HdrNeedsCSum | 34<<48, 16, false, mbuf.RxL4Good | mbuf.RxL4Partial, 0},
	{"partial UDP", guest, spec.HdrNeedsCSum | 34<<48, 6, false, mbuf.RxL4Good | mbuf.RxL4Partial, 0},
	{"partial and looked at", guest, spec.HdrNeedsCSum | spec.HdrDataValid | 34<<48, 6, false, mbuf.RxL4Good | mbuf.RxL4Partial, 0},
	{"partial, not agreed on", 0, spec.HdrNeedsCSum | 34<<48, 16, false, 0, 0},
	{"partial, of something else", guest, spec.HdrNeedsCSum | 34<<48, 8, true, 0, 0},
	{"partial, in the Ethernet header", guest, spec.HdrNeedsCSum | 13<<48, 16, true, 0, 0},
	{"partial, last place", guest, spec.HdrNeedsCSum | 82<<48, 16, false, mbuf.RxL4Good | mbuf.RxL4Partial, 0},
	{"partial, behind the end", guest, spec.HdrNeedsCSum | 83<<48, 16, true, 0, 0},
	{"partial, far behind the end", guest, spec.HdrNeedsCSum | 0xffff<<48, 16, true, 0, 0},
	{"partial, at a place that overflows", guest, spec.HdrNeedsCSum | 0xffff<<48, 0xffff, true, 0, 0},
	{"joined", guest, spec.HdrNeedsCSum | spec.GSOTCPv4<<8 | 1460<<32 | 34<<48, 16, false, mbuf.RxL4Good | mbuf.RxL4Partial | mbuf.RxGSO, 1460},
	{"joined v6", guest, spec.HdrNeedsCSum | spec.GSOTCPv6<<8 | 1440<<32 | 54<<48, 16, false, mbuf.RxL4Good | mbuf.RxL4Partial | mbuf.RxGSO, 1440},
	{"joined, looked at", guest, spec.HdrDataValid | spec.GSOTCPv4<<8 | 1460<<32, 0, false, mbuf.RxL4Good | mbuf.RxGSO, 1460},
	{"joined, segments of nothing", guest, spec.HdrNeedsCSum | spec.GSOTCPv4<<8 | 34<<48, 16, true, 0, 0},
	{"joined, not agreed on", spec.FeatureGuestCSum, spec.HdrNeedsCSum | spec.GSOTCPv4<<8 | 1460<<32 | 34<<48, 16, true, 0, 0},
	{"joined v6, not agreed on", spec.FeatureGuestCSum | spec.FeatureGuestTSO4, spec.HdrNeedsCSum | spec.GSOTCPv6<<8 | 1440<<32 | 54<<48, 16, true, 0, 0},
	{"joined with ECN, not agreed on", guest, spec.HdrNeedsCSum | (spec.GSOTCPv4|spec.GSOECN)<<8 | 1460<<32 | 34<<48, 16, true, 0, 0},
	{"joined with ECN", guest | spec.FeatureGuestECN, spec.HdrNeedsCSum | (spec.GSOTCPv4|spec.GSOECN)<<8 | 1460<<32 | 34<<48, 16, false, mbuf.RxL4Good | mbuf.RxL4Partial | mbuf.RxGSO, 1460},
	{"fragments", guest, spec.GSOUDP<<8 | 1460<<32, 0, true, 0, 0},
	{"an unknown kind", guest, 77<<8 | 1460<<32, 0, true, 0, 0},
}

func TestHeaderOfAReceivedFrame(t *testing.T) {
	for _, ring := range []spec.Features{spec.FeatureMrgRxBuf, spec.FeatureMrgRxBuf | spec.FeatureRingPacked, 0} {
		for _, c := range headerCases {
			t.Run(fmt.Sprint(c.name, "/", ring), func(t *testing.T) {
				r := newQueueRig(t, ringConfig{features: version1 | ring | c.features, offloads: nic.RxL4Checksum | nic.RxGSO})
				r.deliver(c.lo, c.field, testFrame(1, 100))
				if c.drop {
					r.nothing()
					if r.rx.errors.Load() != 1 {
						t.Error("not counted")
					}
				} else {
					b := r.recv(testFrame(1, 100))
					if b.Flags() != c.flags || c.mss != 0 && b.MSS != c.mss {
						t.Errorf("flags %#x, MSS %d; want %#x, %d", b.Flags(), b.MSS, c.flags, c.mss)
					}
					r.cache.Free(b)
				}
				r.works()
				r.deliver(0, 0, testFrame(2, 80))
				b := r.recv(testFrame(2, 80))
				if b.Flags() != 0 {
					t.Error("flags are left over")
				}
				r.cache.Free(b)
				r.end()
			})
		}
	}
}

func TestHashOfAReceivedFrame(t *testing.T) {
	f := version1 | spec.FeatureHashReport
	for _, f := range []spec.Features{f, f | spec.FeatureRingPacked, f | spec.FeatureMrgRxBuf} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			r := newQueueRig(t, ringConfig{features: f})
			for report, want := range map[uint16]mbuf.Flags{0: 0, spec.ReportIPv4: 2, spec.ReportTCPv4: 1, spec.ReportUDPv6: 8, 10: 0, 0x12: 0, 0xffff: 0} {
				used, lens := r.fill(append(r.header(0, 0, 1), testFrame(1, 100)...))
				h := r.rxDev.mem(used[0].parts[0].bus, 20)
				binary.LittleEndian.PutUint32(h[spec.HdrHashValue:], 0xdecade01)
				binary.LittleEndian.PutUint16(h[spec.HdrHashReport:], report)
				r.rxDev.use(used[0], lens[0])
				b := r.recv(testFrame(1, 100))
				if b.Flags() != want || want != 0 && b.Hash() != 0xdecade01 {
					t.Errorf("report %d: flags %#x, hash %#x", report, b.Flags(), b.Hash())
				}
				r.cache.Free(b)
			}
			r.end()
		})
	}
}

func TestFrameLongerThanConfiguredIsDropped(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f, maxFrame: 1000})
		r.deliver(0, 0, testFrame(1, 1000))
		r.cache.Free(r.recv(testFrame(1, 1000)))
		r.deliver(0, 0, testFrame(2, 1001))
		r.deliver(0, 0, testFrame(3, 13))
		r.deliver(0, 0, testFrame(4, 14))
		r.cache.Free(r.recv(testFrame(4, 14)))
		if n := r.rx.errors.Load(); n != 2 {
			t.Errorf("%d errors", n)
		}
		r.works()
		r.end()
	})
}

// TestPoolThatRunsDry: reception goes on as soon as there are buffers.
func TestPoolThatRunsDry(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		r := newQueueRig(t, ringConfig{features: f, size: 32, pool: mbuf.Config{Buffers: 40, ReserveReceive: -1, ReserveControl: -1}})
		var bufs [16]*mbuf.Buf
		for range 20 {
			var kept []*mbuf.Buf
			for r.deliver(0, 0, testFrame(1, 60)) {
				kept = append(kept, bufs[:r.rx.Recv(bufs[:])]...)
			}
			kept = append(kept, bufs[:r.rx.Recv(bufs[:])]...)
			if len(kept) < 20 {
				t.Fatalf("only %d frames", len(kept))
			}
			r.cache.FreeBulk(kept)
			r.cache.Flush()
			r.rx.Recv(nil)
		}
		r.works()
		r.end()
	})
}

// TestPoolThatHasHalfAChain: a chain of buffers is lent whole or not at all, and what there was of it is not lost.
func TestPoolThatHasHalfAChain(t *testing.T) {
	for _, f := range []spec.Features{version1, packedRing1, 0} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			pool := mbuf.Config{Size: 1024, Buffers: 64, ReserveReceive: -1, ReserveControl: -1}
			r := newQueueRig(t, ringConfig{features: f, legacy: f&version1 == 0, size: 128, maxFrame: 5000, pool: pool})
			if r.rx.segs != 5 || r.rx.buffers() != 12 || r.rx.noBuf.Load() == 0 {
				t.Fatalf("%d buffers of %d segments, pool dry %d times", r.rx.buffers(), r.rx.segs, r.rx.noBuf.Load())
			}
			for i := range 100 {
				p := testFrame(i, 60+49*i)
				if !r.deliver(0, 0, p) {
					t.Fatalf("no buffer for frame %d", i)
				}
				r.cache.Free(r.recv(p))
				r.cache.Flush()
				r.rx.refill()
			}
			r.works()
			r.consistent()
			r.end() // finds every buffer
		})
	}
}
