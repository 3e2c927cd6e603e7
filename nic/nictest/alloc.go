package nictest

import (
	"testing"

	"bare.wire/mbuf"
	"bare.wire/nic"
)

// testAllocs counts the allocations of a burst that is sent, received, freed and reclaimed.
func testAllocs(r *run) {
	if raceBuild || mbuf.Checking {
		return // these allocate by themselves
	}
	r.startBoth(nic.Config{})
	pool := r.pool(mbuf.Config{})
	f := r.to(r.B, 60)
	for _, burst := range []int{1, 32, 256} {
		bufs, into := make([]*mbuf.Buf, burst), make([]*mbuf.Buf, burst)
		cache := r.cache(pool)
		round := func() {
			for i := range bufs {
				b := cache.Alloc()
				if room, err := b.Reserve(len(f)); err == nil {
					mbuf.Copy(pool, buildSite, room, f)
				}
				bufs[i] = b
			}
			for left := bufs; len(left) > 0; {
				left = left[r.A.Tx(0).Send(left):]
				r.pass(moment)
			}
			for n := 0; n < burst; {
				k := r.B.Rx(0).Recv(into)
				for _, b := range into[:k] {
					b.Free()
				}
				n += k
				r.pass(moment)
			}
			r.A.Tx(0).Reclaim()
		}
		for range 50 { // whatever grows has grown
			round()
		}
		if n := testing.AllocsPerRun(50, round); n != 0 {
			r.Errorf("a burst of %d costs %v allocations", burst, n)
		}
	}
}
