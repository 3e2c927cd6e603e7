package device_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"bare.wire/device"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/link"
)

func TestBadNamesAreRefusedWithWhatToDo(t *testing.T) {
	for _, c := range []struct {
		uris []string
		want string // in the error
	}{
		{nil, "no device named"},
		{[]string{"sin:"}, "unknown kind"},
		{[]string{"sin:"}, "sim:"},
		{[]string{""}, "unknown kind"},
		{[]string{"sim"}, "did you mean sim:?"},
		{[]string{strings.Repeat("x", 5000)}, "xxx…"},
		{[]string{"0000:zz:00.0"}, "unknown kind"},
		{[]string{"0000:03:20.0"}, "the device \"20\" is more than 1f"},
		{[]string{"03:00.8"}, "more than 7"},
		{[]string{"03:00.0?access=magic"}, "want vfio, sysfs or noiommu"},
		{[]string{"03:00.0?clock=virtual"}, "access=vfio"},
		{[]string{"03:00.0", "0000:03:00.0"}, "named twice"},
		{[]string{"03:00.0", "03:00.1?access=sysfs"}, "say the same for each"},
		{[]string{"ffff:ff:1f.7"}, "pktgen devices"},
		{[]string{"03:00.0", "sim:"}, "different kinds"},
		{[]string{"sim:c"}, "sim:a and sim:b"},
		{[]string{"sim:a", "sim:a"}, "opened once"},
		{[]string{"sim:", "sim:b"}, "opened once"},
		{[]string{"sim:a?rate=1G", "sim:b?rate=2G"}, "there is one wire"},
		{[]string{"sim:?clock=sundial"}, "clock=sundial: want real or virtual"},
		{[]string{"sim:?mode=warp"}, "mode=warp: want inline or threaded"},
		{[]string{"sim:?loss=2"}, "loss"},
		{[]string{"sim:?lost=0.1"}, "loss"},
		{[]string{"sim:?clok=virtual"}, "sim: itself takes clock and mode"},
		{[]string{"sim:?%zz"}, "key=value"},
		{[]string{"sim:?clock=virtual&clock=real"}, "given 2 times"},
		{[]string{"null:?rx=60&rx=70"}, "given 2 times"},
		{[]string{"null:x"}, "one null: device"},
		{[]string{"null:", "null:"}, "one null: device"},
		{[]string{"null:?rx=none"}, "bytes of each received frame"},
		{[]string{"null:?rx=100000"}, "want 1 to"},
		{[]string{"null:?tx=60"}, "null: takes rx=BYTES"},
		{[]string{"null:?driver=e1000"}, "want 82599 or virtio"},
		{[]string{"null:?ring=packed"}, "driver=virtio ring="},
		{[]string{"null:?driver=virtio&ring=round"}, "want packed or split"},
		{[]string{"null:?driver=virtio&features=-nothing"}, "unknown; known are"},
		{[]string{"null:?driver=virtio&features=-version_1"}, "version_1"},
		{[]string{"null:?driver=virtio&rx=100000"}, "want 1 to"},
		{[]string{"sim:", "null:"}, "different kinds"},
	} {
		s, err := device.OpenSet(context.Background(), device.Options{}, c.uris...)
		if err == nil {
			_ = s.Close()
			t.Errorf("%q opened", c.uris)
			continue
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %q does not say %q", c.uris, err, c.want)
		}
	}
}

func TestEndsCanBeOpenedOneByOne(t *testing.T) {
	for _, c := range []struct {
		uris []string
		want string
	}{
		{[]string{"sim:"}, "[sim:a sim:b]"},
		{[]string{"sim:b?clock=virtual"}, "[sim:b]"},
		{[]string{"sim:b", "sim:a?clock=virtual"}, "[sim:b sim:a]"},
		{[]string{"null:"}, "[null:]"},
	} {
		s, err := device.OpenSet(context.Background(), device.Options{}, c.uris...)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(s.URIs); got != c.want || len(s.Ports) != len(s.URIs) {
			t.Errorf("%q opened %s", c.uris, got)
		}
		for i, p := range s.Ports {
			if info := p.Info(); info.Name != s.URIs[i] || !info.Software || info.MAC[0] != 2 {
				t.Errorf("%s: %+v", s.URIs[i], info)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	}
}

// exchange sends n frames from the first port to the second and returns when each arrived.
func exchange(t *testing.T, uri string, n int) (arrivals []int64, drops []link.Drop) {
	t.Helper()
	s, pool, cache := pair(t, uri, nic.Config{Promiscuous: true})
	waitLink(t, s)
	w, err := nic.NewWaiter(s.Clock)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var in [32]*mbuf.Buf
	rx, tx := s.Ports[1].Rx(0), s.Ports[0].Tx(0)
	for sent, idle := 0, 0; idle < 3; {
		if sent < n {
			b := cache.Alloc()
			if _, err := b.Reserve(60 + sent%1000); err != nil {
				t.Fatal(err)
			}
			if tx.Send([]*mbuf.Buf{b}) == 0 {
				cache.Free(b)
				if err := s.Clock.Sleep(context.Background(), 10*time.Microsecond); err != nil {
					t.Fatal(err)
				}
			} else {
				sent++
			}
		}
		k := rx.Recv(in[:])
		for _, b := range in[:k] {
			arrivals = append(arrivals, s.Clock.Nanos())
			cache.Free(b)
		}
		if k > 0 || sent < n {
			continue
		}
		if rx.Arm(w) {
			woken, err := w.Wait(s.Clock.Nanos() + int64(5*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			if !woken {
				idle++
			}
		}
		tx.Reclaim()
	}
	s.WithWire(func(w *link.Wire) { drops = w.Drops(link.AToB) })
	if st := pool.Stats(); len(st.Copied) != 0 {
		t.Errorf("payload was copied: %v", st.Copied)
	}
	return arrivals, drops
}

func waitLink(t *testing.T, s *device.Set) {
	t.Helper()
	for range 100 {
		up := true
		for _, p := range s.Ports {
			p.Housekeep(s.Clock.Now())
			up = up && p.Link().Up
		}
		if up {
			return
		}
		if err := s.Clock.Sleep(context.Background(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("no link")
}

func TestAVirtualRunIsTheSameEveryTime(t *testing.T) {
	const uri = "sim:?clock=virtual&delay=5us&loss=0.05&seed=7"
	a, dropsA := exchange(t, uri, 2000)
	b, dropsB := exchange(t, uri, 2000)
	if fmt.Sprint(a) != fmt.Sprint(b) || fmt.Sprint(dropsA) != fmt.Sprint(dropsB) {
		t.Error("two runs with one seed differ")
	}
	if len(a)+len(dropsA) != 2000 || len(dropsA) == 0 {
		t.Errorf("%d arrived and %d were lost of 2000", len(a), len(dropsA))
	}
	c, _ := exchange(t, strings.Replace(uri, "seed=7", "seed=8", 1), 2000)
	if fmt.Sprint(a) == fmt.Sprint(c) {
		t.Error("another seed gave the same run")
	}
}

func TestNothingIsLostInAnyMode(t *testing.T) {
	for _, uri := range []string{"sim:?clock=virtual", "sim:", "sim:?mode=threaded", "sim:?clock=virtual&mode=threaded"} {
		t.Run(uri, func(t *testing.T) {
			if got, drops := exchange(t, uri, 500); len(got) != 500 || len(drops) != 0 {
				t.Errorf("%d of 500 arrived, %d dropped by the wire", len(got), len(drops))
			}
		})
	}
}

func TestTheNullCardReceivesWhatIsAskedFor(t *testing.T) {
	for _, uri := range []string{
		"null:?rx=200", "null:?rx=200&driver=virtio", "null:?rx=200&driver=virtio&ring=split",
		"null:?rx=200&driver=virtio&features=-in_order,-event_idx", "null:?rx=200&driver=virtio&ring=split&features=-in_order,-mrg_rxbuf",
	} {
		t.Run(uri, func(t *testing.T) { nullReceives(t, uri) })
	}
}

func nullReceives(t *testing.T, uri string) {
	s, err := device.OpenSet(context.Background(), device.Options{}, uri)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := mbuf.NewPool(mbuf.Config{Space: s.Space, Buffers: 2000})
	if err != nil {
		t.Fatal(err)
	}
	p := s.Ports[0]
	if err := p.Start(context.Background(), nic.Config{Pool: pool, RxQueues: 2}); err == nil {
		t.Fatal("two queues were accepted")
	}
	bufs := make([]*mbuf.Buf, 64)
	for range 3 { // stopped and started again
		if err := p.Start(context.Background(), nic.Config{Pool: pool}); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			n := p.Rx(0).Recv(bufs)
			if n != len(bufs) || bufs[0].Len() != 200 {
				t.Fatalf("%d frames, the first of %d bytes; %v", n, bufs[0].Len(), p.Err())
			}
			if sent := p.Tx(0).Send(bufs); sent != n {
				t.Fatalf("sent %d of %d", sent, n)
			}
		}
		// The 82599 counts what is sent and received, and the null one counts nothing; of virtio the driver does.
		if st := p.Stats(); strings.Contains(uri, "virtio") && (st.RxPackets < 6400 || st.RxPackets != st.TxPackets) {
			t.Errorf("%d frames received and %d sent", st.RxPackets, st.TxPackets)
		}
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
}

func ExampleOpen() {
	ports, closer, err := device.Open(context.Background(), "sim:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closer.Close()
	for _, p := range ports {
		fmt.Println(p.Info().Name, p.Info().Driver, p.Info().Device)
	}
	// Output:
	// sim:a ixgbe 82599 SFP+
	// sim:b ixgbe 82599 SFP+
}
