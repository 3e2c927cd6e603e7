//go:build guest

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
	"bare.wire/test/guest"
)

// QEMU's virtio cards on one hub: two that go through the IOMMU, and one that does not and has both interfaces.
const guardedA, guardedB, unguarded = "0000:00:04.0", "0000:00:05.0", "0000:00:06.0"

// TestGuestVirtioCardsTogether has cards that go through the IOMMU beside one that reaches memory past it: one address space has to
// be right for all of them.
func TestGuestVirtioCardsTogether(t *testing.T) {
	var qemu []string
	for i, more := range []string{"disable-legacy=on,iommu_platform=on,ats=on", "disable-legacy=on,iommu_platform=on,ats=on,packed=on", "disable-legacy=off"} {
		qemu = append(qemu, "-netdev", fmt.Sprintf("hubport,id=h%d,hubid=0", i),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=h%d,addr=%d,mac=52:54:00:00:00:0%d,romfile=,%s", i, 4+i, 1+i, more))
	}
	guest.Run(t, guest.Machine{
		IOMMU: true, HugePages: 64, Modules: []string{"vfio-pci", "vfio_iommu_type1"}, QEMU: qemu,
	}, func(t *testing.T) {
		for _, a := range []string{guardedA, guardedB, unguarded} {
			if err := guest.BindVFIO(a); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			uris     []string
			physical bool
			devices  string
		}{
			{[]string{guardedA, guardedB}, false, "virtio-net (modern), virtio-net (modern)"},
			{[]string{guardedB, unguarded}, true, "virtio-net (modern), virtio-net (transitional, modern interface)"},
			{[]string{guardedA, unguarded + "?features=-version_1"}, true, "virtio-net (modern), virtio-net (legacy)"},
			{[]string{guardedB + "?features=-ring_packed,-event_idx,-indirect_desc", guardedA + "?features=-mrg_rxbuf"}, false, "virtio-net (modern), virtio-net (modern)"},
		} {
			t.Run(strings.Join(c.uris, " "), func(t *testing.T) { exchangeInGuest(t, c.uris, c.physical, c.devices) })
		}
	})
}

func exchangeInGuest(t *testing.T, uris []string, physical bool, devices string) {
	ctx := context.Background()
	s, err := device.OpenSet(ctx, device.Options{}, uris...)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Ports[0].Info().Device + ", " + s.Ports[1].Info().Device; s.Space.Physical() != physical || got != devices {
		t.Errorf("opened %s, physical addresses: %v", got, s.Space.Physical())
	}
	pool, err := mbuf.NewPool(mbuf.Config{Name: "guest", Space: s.Space, Buffers: 4096})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Ports {
		if err := p.Start(ctx, nic.Config{Pool: pool, RxDesc: 256, TxDesc: 256}); err != nil {
			t.Fatal(err)
		}
	}
	for i, from := range s.Ports {
		sendInGuest(t, s, pool, from, s.Ports[1-i], 300)
	}
	for _, p := range s.Ports {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
}

// sendInGuest sends frames one after the other, and sleeps until each has come.
func sendInGuest(t *testing.T, s *device.Set, pool *mbuf.Pool, from, to nic.Port, frames int) {
	t.Helper()
	cache := pool.NewCache()
	defer cache.Close()
	w, err := nic.NewWaiter(s.Clock)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	macs := [2][6]byte{to.Info().MAC, from.Info().MAC}
	var in [8]*mbuf.Buf
	for i := range frames {
		b := cache.Alloc()
		room, err := b.Reserve(60 + i)
		if err != nil {
			t.Fatal(err)
		}
		for j := range room {
			room[j] = byte(i + j)
		}
		for j := range macs[0] {
			room[j], room[6+j] = macs[0][j], macs[1][j]
		}
		room[12], room[13] = 0x88, 0xb5
		if from.Tx(0).Send([]*mbuf.Buf{b}) != 1 {
			t.Fatal("the ring is full")
		}
		got := receiveInGuest(t, s, to, w, in[:])
		if got == nil {
			t.Fatalf("frame %d does not come: %v, %v", i, from.Err(), to.Err())
		}
		p := got.Bytes()
		if len(p) != 60+i {
			t.Fatalf("frame %d has %d bytes", i, len(p))
		}
		for j := 14; j < len(p); j++ {
			if p[j] != byte(i+j) {
				t.Fatalf("frame %d differs at byte %d", i, j)
			}
		}
		got.Free()
		from.Tx(0).Reclaim()
	}
}

// receiveInGuest waits for one frame.
func receiveInGuest(t *testing.T, s *device.Set, p nic.Port, w *nic.Waiter, in []*mbuf.Buf) *mbuf.Buf {
	t.Helper()
	for range 20 {
		if p.Rx(0).Recv(in[:1]) == 1 {
			return in[0]
		}
		if p.Rx(0).Arm(w) {
			if _, err := w.Wait(s.Clock.Nanos() + int64(time.Second)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return nil
}
