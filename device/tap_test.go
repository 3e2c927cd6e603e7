package device_test

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"bare.wire/device"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/tap/taptest"
)

// tapHost is a host made of a TAP's port: what the kernel sends goes to a station, what the station sends to the kernel.
type tapHost struct {
	t       *testing.T
	set     *device.Set
	port    nic.Port
	queues  int
	pool    *mbuf.Pool
	cache   *mbuf.Cache
	waiter  *nic.Waiter
	station taptest.Station
	mu      sync.Mutex // of the station
	full    int        // sends that found the ring full
}

const tapOffloads = nic.RxL4Checksum | nic.RxGSO | nic.TxL4Checksum | nic.TxTSO | nic.TxMultiSegment | nic.RxScatter

func newTapHost(t *testing.T, uri string, offloads nic.Offload, queues int) *tapHost {
	t.Helper()
	set, err := device.OpenSet(t.Context(), device.Options{}, uri)
	if err != nil {
		t.Fatal(err)
	}
	h := &tapHost{t: t, set: set, port: set.Ports[0], queues: queues}
	if h.pool, err = mbuf.NewPool(mbuf.Config{Name: "tap", Space: set.Space, Buffers: 8192}); err != nil {
		t.Fatal(err)
	}
	h.cache = h.pool.NewCache()
	if h.waiter, err = nic.NewWaiter(set.Clock); err != nil {
		t.Fatal(err)
	}
	if err := h.port.Start(t.Context(), nic.Config{Pool: h.pool, RxQueues: queues, TxQueues: queues, Offloads: offloads & h.port.Info().Offloads}); err != nil {
		t.Fatal(err)
	}
	h.station = taptest.Station{MAC: h.port.Info().MAC, IP: [4]byte{10, 9, 0, 2}, Segment: 1460}
	h.station.Out = h.send
	taptest.Up(t, strings.TrimPrefix(set.URIs[0], "tap:"), [4]byte{10, 9, 0, 1})
	ctx, cancel := context.WithCancel(t.Context())
	var beside sync.WaitGroup
	beside.Go(func() { h.run(ctx) })
	t.Cleanup(func() {
		cancel()
		beside.Wait()
		if err := h.port.Stop(); err != nil && !errors.Is(err, nic.ErrGone) { // a port that is gone says so
			t.Error(err)
		}
		h.cache.Close()
		if err := set.Close(); err != nil {
			t.Error(err)
		}
		_ = h.waiter.Close()
		if err := h.pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// run moves frames until ctx ends; it sleeps while there are none.
func (h *tapHost) run(ctx context.Context) {
	var in [64]*mbuf.Buf
	for ctx.Err() == nil {
		got := 0
		for q := range h.queues {
			n := h.port.Rx(q).Recv(in[:])
			got += n
			for _, b := range in[:n] {
				h.mu.Lock()
				h.station.Take(taptest.Frame{Data: flat(b), Partial: b.Flags()&mbuf.RxL4Partial != 0, MSS: gso(b)})
				h.mu.Unlock()
				h.cache.Free(b)
			}
			h.port.Tx(q).Reclaim()
		}
		h.port.Housekeep(h.set.Clock.Now())
		if got > 0 {
			continue
		}
		sleep := true
		for q := range h.queues {
			sleep = h.port.Rx(q).Arm(h.waiter) && sleep
		}
		if sleep {
			_, _ = h.waiter.Wait(h.set.Clock.Nanos() + int64(20*time.Millisecond))
		}
	}
}

func flat(b *mbuf.Buf) (data []byte) {
	for ; b != nil; b = b.Next() {
		data = append(data, b.Bytes()...)
	}
	return data
}

func gso(b *mbuf.Buf) int {
	if b.Flags()&mbuf.RxGSO == 0 {
		return 0
	}
	return int(b.MSS)
}

// send sends a frame of the station's, in as many buffers as it takes.
func (h *tapHost) send(f taptest.Frame) {
	head := h.fill(f.Data)
	if f.Partial || f.MSS > 0 {
		head.L2Len, head.L3Len, head.L4Len = 14, 20, f.Data[46]>>4*4
		head.SetTxFlags(mbuf.TxL4Sum)
		if f.MSS > 0 {
			head.SetTxFlags(mbuf.TxTSO)
			head.MSS = uint16(f.MSS)
		}
	}
	for h.port.Tx(0).Send([]*mbuf.Buf{head}) == 0 {
		h.full++
		h.port.Tx(0).Reclaim()
		runtime.Gosched()
	}
}

func (h *tapHost) fill(data []byte) (head *mbuf.Buf) {
	for last := head; len(data) > 0; {
		b := h.cache.Alloc()
		if b == nil {
			h.t.Error("the pool is empty")
			return head
		}
		n := min(len(data), b.Tailroom())
		room, err := b.Reserve(n)
		if err != nil {
			h.t.Error(err)
		}
		copy(room, data)
		data = data[n:]
		if last == nil {
			head = b
		} else {
			last.SetNext(b)
		}
		last = b
	}
	return head
}

// TestTheKernelsStreamsThroughATAP has the host's kernel and a small TCP of the test's exchange streams through the driver, the
// software device and a TAP, with offloads and without; both check every byte.
func TestTheKernelsStreamsThroughATAP(t *testing.T) {
	if !taptest.OwnNetwork(t) {
		return
	}
	for _, c := range []struct {
		uri      string
		offloads nic.Offload
		segment  int
		partial  bool
		queues   int
	}{
		{"tap:pg0", 0, 1460, false, 1},
		{"tap:pg1?mode=threaded", tapOffloads, 60000, true, 1},
		{"tap:pg%d?queues=4", tapOffloads &^ nic.TxTSO, 1460, true, 4},
		{"tap:pg3?features=-ring_packed,-mrg_rxbuf", tapOffloads, 30000, true, 1},
		{"tap:pg4?features=-event_idx,-indirect_desc,-in_order", tapOffloads, 60000, true, 1},
	} {
		t.Run(c.uri, func(t *testing.T) {
			h := newTapHost(t, c.uri, c.offloads, c.queues)
			const n = 1_000_000
			h.mu.Lock()
			h.station.Send, h.station.Segment, h.station.Partial = n, c.segment, c.partial
			h.mu.Unlock()
			if err := taptest.Stream(h.station.IP, n, n); err != nil {
				t.Error(err)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			s := &h.station
			for _, f := range s.Faults {
				t.Error(f)
			}
			if s.Received != n {
				t.Errorf("the station received %d bytes of %d", s.Received, n)
			}
			if joined := s.Joined > 0; joined != (c.offloads&nic.RxGSO != 0) {
				t.Errorf("%d segments longer than a frame, with offloads %v", s.Joined, c.offloads)
			}
			if partial := s.Unsummed > 0; partial != (c.offloads&nic.RxL4Checksum != 0) {
				t.Errorf("%d frames with partial checksums", s.Unsummed)
			}
			st := h.port.Stats()
			t.Logf("joined %d, unsummed %d, full %d; %+v", s.Joined, s.Unsummed, h.full, st)
		})
	}
}

func TestBadTAPNamesAreRefused(t *testing.T) {
	for uri, want := range map[string]string{
		"tap:":                   "the name of the interface is missing",
		"tap:x?queues=0":         "want a number from 1 to 16",
		"tap:x?queues=many":      "want a number from 1 to 16",
		"tap:x?mtu=10":           "want a number from 68 to 65535",
		"tap:x?features=speed":   "unknown",
		"tap:x?colour=red":       "a TAP takes queues, features, mtu and mode",
		"tap:x?mode=warp":        "want inline or threaded",
		"tap:seventeen-letters-": "1 to 15 characters",
		"tap:a/b":                "none of them a space or a slash",
		"tap:a:b":                "a colon",
		"tap:..":                 "neither . nor ..",
	} {
		_, err := device.OpenSet(t.Context(), device.Options{}, uri)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", uri, err, want)
		}
	}
}

// TestAnInterfaceThatIsDeletedIsADeviceThatIsGone has somebody delete a TAP whose device is in use.
func TestAnInterfaceThatIsDeletedIsADeviceThatIsGone(t *testing.T) {
	if !taptest.OwnNetwork(t) {
		return
	}
	h := newTapHost(t, "tap:pg0", 0, 1)
	if out, err := exec.Command("ip", "link", "del", "pg0").CombinedOutput(); err != nil {
		t.Fatalf("ip link del: %v: %s", err, out)
	}
	for range 30_000 {
		if err := h.port.Err(); err != nil {
			if !errors.Is(err, nic.ErrGone) || !strings.Contains(err.Error(), "was deleted") {
				t.Errorf("the port says %q", err)
			}
			return
		}
		if err := h.set.Clock.Sleep(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("the port is still there")
}
