//go:build guest

package vfio

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/vtop"
)

// station is a started port with what it takes to send and receive on it; for one goroutine.
type station struct {
	testing.TB
	port  nic.Port
	pool  *mbuf.Pool
	cache *mbuf.Cache
	seq   uint32
}

// newStation starts a port with a pool of its own.
func newStation(port nic.Port, space *vtop.Space, cfg nic.Config) (*station, error) {
	pool, err := mbuf.NewPool(mbuf.Config{Name: port.Info().Name, Space: space, Buffers: 3072})
	if err != nil {
		return nil, err
	}
	cfg.Pool = pool
	if err := port.Start(context.Background(), cfg); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return &station{port: port, pool: pool, cache: pool.NewCache()}, nil
}

// startStation is newStation in a test.
func startStation(t testing.TB, port nic.Port, space *vtop.Space, cfg nic.Config) *station {
	t.Helper()
	s, err := newStation(port, space, cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.TB = t
	return s
}

// stations starts both ports of a pair alike and waits for the link.
func (p *pair) stations(t testing.TB, cfg nic.Config) (a, b *station) {
	t.Helper()
	a, b = startStation(t, p.ports[0], p.space, cfg), startStation(t, p.ports[1], p.space, cfg)
	a.up()
	b.up()
	return a, b
}

// up waits for the link.
func (s *station) up() {
	s.Helper()
	within(s, time.Minute, "link of "+s.port.Info().Name, func() bool {
		s.port.Housekeep(realTime.Now())
		return s.port.Link().Up
	})
}

// close closes the port and then its pool, where every buffer has to be.
func (s *station) close() {
	s.Helper()
	if err := s.port.Close(); err != nil {
		s.Errorf("close: %v", err)
	}
	s.home()
}

// home checks that every buffer is back.
func (s *station) home() {
	s.Helper()
	s.cache.Close()
	if err := s.pool.Close(); err != nil {
		s.Errorf("buffers are missing: %v", err)
	}
}

// frame builds a frame of n bytes whose every byte says which frame it is. It is nil when the pool is dry.
func (s *station) frame(to [6]byte, n int) *mbuf.Buf {
	b := s.cache.Alloc()
	if b == nil {
		return nil
	}
	room, err := b.Reserve(n)
	if err != nil {
		s.Fatal(err)
	}
	from := s.port.Info().MAC
	s.seq++
	for i := range room {
		switch {
		case i < 6:
			room[i] = to[i]
		case i < 12:
			room[i] = from[i-6]
		default:
			room[i] = pattern(s.seq, i)
		}
	}
	binary.BigEndian.PutUint16(room[12:], 0x88b5) // IEEE 802 local experimental
	binary.BigEndian.PutUint32(room[14:], s.seq)
	return b
}

func pattern(seq uint32, i int) byte { return byte(seq*31) + byte(i*7) + byte(i>>8) }

// checkFrame says what is wrong with a frame of frame's, "" if nothing, and which it is.
func checkFrame(b *mbuf.Buf) (seq uint32, wrong string) {
	f := b.Bytes()
	if len(f) < 18 || b.FrameLen() != len(f) {
		return 0, fmt.Sprintf("%d bytes in %d segments", b.FrameLen(), b.Segs())
	}
	seq = binary.BigEndian.Uint32(f[14:])
	for i := 18; i < len(f); i++ {
		if f[i] != pattern(seq, i) {
			return seq, fmt.Sprintf("byte %d of frame %d is %#02x, want %#02x", i, seq, f[i], pattern(seq, i))
		}
	}
	return seq, ""
}

// send sends n frames, waiting for room.
func (s *station) send(to [6]byte, n, length int) {
	s.Helper()
	for range n {
		var b *mbuf.Buf
		within(s, time.Minute, "a free buffer", func() bool {
			s.port.Tx(0).Reclaim()
			b = s.frame(to, length)
			return b != nil
		})
		within(s, time.Minute, "room in the ring", func() bool { return s.port.Tx(0).Send([]*mbuf.Buf{b}) == 1 })
	}
}

// receive takes n frames, and checks each and their order.
func (s *station) receive(n int) {
	s.Helper()
	into := make([]*mbuf.Buf, 32)
	last := uint32(0)
	got := 0
	within(s, time.Minute, fmt.Sprintf("%d frames", n), func() bool {
		for {
			k := s.port.Rx(0).Recv(into)
			for _, b := range into[:k] {
				seq, wrong := checkFrame(b)
				if wrong == "" && seq <= last {
					wrong = fmt.Sprintf("frame %d behind %d", seq, last)
				}
				if wrong != "" {
					s.Fatal(wrong)
				}
				last = seq
				b.Free()
			}
			if got += k; got >= n || k == 0 {
				return got >= n
			}
		}
	})
}

// blast sends to an address until the context ends.
func (s *station) blast(ctx context.Context, to [6]byte) {
	burst := make([]*mbuf.Buf, 0, 16)
	for ctx.Err() == nil && s.port.Err() == nil {
		for len(burst) < cap(burst) {
			b := s.frame(to, 200)
			if b == nil {
				break
			}
			burst = append(burst, b)
		}
		n := s.port.Tx(0).Send(burst)
		burst = burst[:copy(burst, burst[n:])]
		if s.port.Tx(0).Reclaim() == 0 {
			pause(time.Millisecond)
		}
	}
	for _, b := range burst {
		b.Free()
	}
}

// background blasts on a goroutine; what it returns ends that.
func (s *station) background(to [6]byte) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.blast(ctx, to)
	}()
	return func() {
		cancel()
		<-done
	}
}

// waiter makes a Waiter in real time.
func (p *pair) waiter(t testing.TB) *nic.Waiter {
	t.Helper()
	w, err := nic.NewWaiter(p.clk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// isGone fails unless an error is one of a port that has gone.
func isGone(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, nic.ErrGone) {
		t.Errorf("the error is %v, want one that is ErrGone", err)
	}
}
