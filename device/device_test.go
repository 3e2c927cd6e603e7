package device_test

import (
	"context"
	"testing"

	"bare.wire/device"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

// pair is an open sim: pair, started, with a pool and a cache.
func pair(t testing.TB, uri string, cfg nic.Config) (*device.Set, *mbuf.Pool, *mbuf.Cache) {
	t.Helper()
	s, err := device.OpenSet(context.Background(), device.Options{Record: true}, uri)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := mbuf.NewPool(mbuf.Config{Name: t.Name(), Space: s.Space, Buffers: 4096})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Pool = pool
	for _, p := range s.Ports {
		if err := p.Start(context.Background(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	cache := pool.NewCache()
	t.Cleanup(func() {
		cache.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, pool, cache
}

func TestFirstLight(t *testing.T) {
	s, _, cache := pair(t, "sim:?clock=virtual", nic.Config{Promiscuous: true})
	s.Clock.Sleep(context.Background(), 20e6)
	for _, p := range s.Ports {
		p.Housekeep(s.Clock.Now())
		if !p.Link().Up {
			t.Fatalf("%s: no link", p.Info().Name)
		}
	}
	b := cache.Alloc()
	room, err := b.Reserve(60)
	if err != nil {
		t.Fatal(err)
	}
	for i := range room {
		room[i] = byte(i)
	}
	if n := s.Ports[0].Tx(0).Send([]*mbuf.Buf{b}); n != 1 {
		t.Fatalf("Send took %d", n)
	}
	var in [4]*mbuf.Buf
	n := 0
	for range 100 {
		s.Clock.Sleep(context.Background(), 1000)
		if n = s.Ports[1].Rx(0).Recv(in[:]); n > 0 {
			break
		}
	}
	if n != 1 {
		t.Fatalf("nothing received: a %+v, b %+v", s.Ports[0].Stats(), s.Ports[1].Stats())
	}
	got := in[0].Bytes()
	for i := range 60 {
		if got[i] != byte(i) {
			t.Fatalf("byte %d is %d", i, got[i])
		}
	}
	in[0].Free()
}
