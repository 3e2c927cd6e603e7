package device_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/device"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/vhostuser"
	"bare.wire/sim/virtionet"
)

// startVhostPair starts two back ends, at the two ends of one wire: the first listens, the second connects.
func startVhostPair(t *testing.T, listening, connecting string) {
	t.Helper()
	wire, err := link.New(link.Config{})
	if err != nil {
		t.Fatal(err)
	}
	world := sim.NewWorld(clock.Real())
	world.Add(wire)
	ctx, cancel := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		beside.Wait()
	})
	beside.Go(func() { _ = world.Run(ctx) })
	for i, end := range []*link.End{wire.A(), wire.B()} {
		path := []string{listening, connecting}[i]
		mem := &vhostuser.Memory{}
		dev, err := virtionet.New(virtionet.Config{Name: path, Memory: mem, World: world, Net: virtionet.OnWire(end), Pairs: 2, Size: 1024})
		if err != nil {
			t.Fatal(err)
		}
		back, err := vhostuser.New(vhostuser.Config{Path: path, Client: i == 1, World: world, Device: dev, Memory: mem})
		if err != nil {
			t.Fatal(err)
		}
		beside.Go(func() { _ = back.Run(ctx) })
		t.Cleanup(func() {
			cancel()
			beside.Wait()
			if err := errors.Join(back.Close(), dev.Close(), back.LastError()); err != nil {
				t.Error(err)
			}
			for _, m := range dev.Misuse() {
				t.Errorf("%s: %v", path, m)
			}
		})
	}
}

// TestVhostUserDevicesAcrossAWire: two back ends of ours in this process, and the driver on both, one of which is connected to.
func TestVhostUserDevicesAcrossAWire(t *testing.T) {
	dir := t.TempDir()
	startVhostPair(t, filepath.Join(dir, "a"), filepath.Join(dir, "b"))
	set, err := device.OpenSet(t.Context(), device.Options{}, "vhost-user:"+filepath.Join(dir, "a")+"?mac=02:00:00:00:00:0a&queues=2&features=-ring_packed",
		"vhost-user:"+filepath.Join(dir, "b")+"?server&mac=02:00:00:00:00:0b&mtu=1400")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := mbuf.NewPool(mbuf.Config{Name: "frames", Space: set.Space, Buffers: 4096})
	if err != nil {
		t.Fatal(err)
	}
	a, b := set.Ports[0], set.Ports[1]
	for i, p := range set.Ports {
		if err := p.Start(t.Context(), nic.Config{Pool: pool, Promiscuous: false}); err != nil {
			t.Fatal(err)
		}
		info := p.Info()
		if info.MAC[5] != byte(10+i) || info.Driver != "virtio" || info.RxQueues != 2 || !info.Software || !strings.HasPrefix(set.URIs[i], "vhost-user:/") {
			t.Errorf("%s is %+v", set.URIs[i], info)
		}
	}
	if most := b.Info().MaxFrame; most != 1418 {
		t.Errorf("MaxFrame is %d with mtu=1400", most)
	}
	cache := pool.NewCache()
	waiter, err := nic.NewWaiter(set.Clock)
	if err != nil {
		t.Fatal(err)
	}
	frame := bytes.Repeat([]byte{2, 0, 0, 0, 0, 10, 2, 0, 0, 0, 0, 11, 0x88, 0xb5}, 20)
	for i := range 500 {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		out := cache.Alloc()
		room, err := out.Reserve(len(frame))
		if err != nil {
			t.Fatal(err)
		}
		frame[20] = byte(i)
		copy(room, frame)
		if from.Tx(0).Send([]*mbuf.Buf{out}) != 1 {
			t.Fatal("the ring is full")
		}
		in := awaitFrame(t, set.Clock, waiter, to)
		if got := flat(in); !bytes.Equal(got, frame) {
			t.Fatalf("frame %d: got % x", i, got)
		}
		cache.Free(in)
	}
	if err := errors.Join(a.Stop(), b.Stop()); err != nil {
		t.Error(err)
	}
	cache.Close()
	if err := errors.Join(set.Close(), waiter.Close(), pool.Close()); err != nil {
		t.Error(err)
	}
}

// awaitFrame sleeps until the port has a frame.
func awaitFrame(t *testing.T, clk clock.Clock, w *nic.Waiter, p nic.Port) *mbuf.Buf {
	t.Helper()
	var in [1]*mbuf.Buf
	for end := clk.Nanos() + int64(time.Minute); clk.Nanos() < end; {
		if p.Rx(0).Recv(in[:]) == 1 {
			return in[0]
		}
		if err := p.Err(); err != nil {
			t.Fatal(err)
		}
		if !p.Rx(0).Arm(w) {
			continue
		}
		if _, err := w.Wait(end); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("no frame comes: %+v", p.Stats())
	return nil
}

func TestBadVhostUserNamesAreRefused(t *testing.T) {
	for uri, want := range map[string]string{
		"vhost-user:":                           "the path of the socket is missing",
		"vhost-user:/x?server=yes":              "it has no value",
		"vhost-user:/x?queues=0":                "want a number from 1 to 128",
		"vhost-user:/x?mtu=10":                  "want a number from 68 to 65535",
		"vhost-user:/x?features=speed":          "unknown",
		"vhost-user:/x?mac=1":                   "want the address of one station",
		"vhost-user:/x?mac=01:00:00:00:00:01":   "want the address of one station",
		"vhost-user:/x?mac=00:00:00:00:00:00":   "want the address of one station",
		"vhost-user:/x?mac=02:00:00:00:00:01:2": "want the address of one station",
		"vhost-user:/x?colour=red":              "takes server, queues, features, mac and mtu",
	} {
		_, err := device.OpenSet(t.Context(), device.Options{}, uri)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", uri, err, want)
		}
		if host := new(device.HostError); errors.As(err, &host) {
			t.Errorf("%s: the name is wrong, not the machine: %v", uri, err)
		}
	}
	_, err := device.OpenSet(t.Context(), device.Options{}, "vhost-user:"+filepath.Join(t.TempDir(), "none"))
	if host := new(device.HostError); !errors.As(err, &host) || !strings.Contains(err.Error(), "no back end listens there") {
		t.Errorf("nobody there: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{file: "is no socket", filepath.Join(file, strings.Repeat("x", 108)): "at most 107 bytes"} {
		for _, end := range []string{"", "?server"} {
			if _, err := device.OpenSet(t.Context(), device.Options{}, "vhost-user:"+path+end); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s%s: %v, want %q", path, end, err, want)
			}
		}
	}
}
