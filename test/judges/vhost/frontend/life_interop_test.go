//go:build interop

package frontend

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"bare.wire/mbuf"
	"bare.wire/nic"
)

// TestInteropStopAndStart stops and starts the port on a session that lasts, with rings of other sizes each time.
func TestInteropStopAndStart(t *testing.T) {
	b := newBackEnd(t, filepath.Join(t.TempDir(), "s"), "", 2)
	f := newFrontEnd(t, b.path, setup{pairs: 2})
	b.do("set fwd io", "start")
	for i := range 25 {
		require.NoError(t, f.Stop())
		s := f.pool.Stats()
		require.Zero(t, s.Quarantined)
		f.cfg.RxDesc, f.cfg.TxDesc = 256<<(i%3), 300+i
		f.cfg.RxQueues, f.cfg.TxQueues = 1+i%2, 1+i%2
		require.NoError(t, f.Start(t.Context(), f.cfg))
		x := newExchange(f, 2000, true, false, some)
		require.NoError(t, x.run(), "round %d", i)
	}
	require.NoError(t, f.Stop())
	f.end()
	b.quit()
}

// TestInteropSleeperIsWoken sends one frame after the other, and sleeps until each comes back.
func TestInteropSleeperIsWoken(t *testing.T) {
	for name, features := range map[string]string{"split": "-ring_packed", "packed": "", "without event_idx": "-event_idx"} {
		t.Run(name, func(t *testing.T) {
			b := newBackEnd(t, filepath.Join(t.TempDir(), "s"), "", 1)
			f := newFrontEnd(t, b.path, setup{features: features, pairs: 1})
			b.do("set fwd io", "start")
			x := newExchange(f, 1<<32, true, false, some)
			fl, slept := x.flows[0], 0
			for i := range 2000 {
				out := []*mbuf.Buf{x.make(0, uint64(i))}
				require.Equal(t, 1, fl.tx.Send(out))
				for n := 0; n == 0; n = fl.rx.Recv(x.in[:1]) {
					if !fl.rx.Arm(f.wait) {
						continue
					}
					woken, err := f.wait.Wait(f.clock.Nanos() + int64(patience))
					require.NoError(t, err)
					require.True(t, woken, "frame %d: nobody wakes the sleeper", i)
					slept++
				}
				require.Empty(t, x.check(0, fl, x.in[0]))
				fl.got++
				f.cache.Free(x.in[0])
			}
			require.NotZero(t, slept)
			f.end()
			b.quit()
		})
	}
}

// counts are the descriptors and goroutines of this process.
func counts(t *testing.T) (files, goroutines int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list), runtime.NumGoroutine()
}

// TestInteropBackEndKilled kills testpmd in the middle of traffic, and starts it again: the port is gone with a reason, gives back all
// that it has, and another one goes on at the same path.
func TestInteropBackEndKilled(t *testing.T) {
	for name, server := range map[string]bool{"testpmd listens": false, "testpmd connects": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			vdev := ""
			if server {
				vdev = ",client=1"
			}
			var files, goroutines int
			for round := range 3 {
				b := newBackEnd(t, path, vdev, 2)
				f := newFrontEnd(t, path, setup{pairs: 2, server: server})
				b.do("set fwd io", "start")
				require.NoError(t, newExchange(f, 20_000, true, false, some).run())
				x := newExchange(f, 1<<40, true, false, some)
				end := make(chan error, 1)
				go func() { end <- x.run() }()
				for f.Stats().TxPackets < 60_000 {
					require.NoError(t, f.clock.Sleep(t.Context(), time.Millisecond))
				}
				require.NoError(t, b.cmd.Process.Signal(syscall.SIGKILL))
				err := <-end
				require.ErrorIs(t, err, nic.ErrGone)
				require.ErrorContains(t, err, "closed the socket, or was ended")
				require.ErrorIs(t, f.Err(), nic.ErrGone)
				var in [1]*mbuf.Buf
				require.Zero(t, f.Rx(0).Recv(in[:]))
				for _, fl := range x.flows {
					f.cache.FreeBulk(fl.pending)
				}
				// What the back end had is given back with Close at the latest.
				if err := f.Stop(); err != nil && !errors.Is(err, nic.ErrGone) {
					t.Log(err)
				}
				f.end()
				b.kill()
				if round == 0 {
					files, goroutines = counts(t)
					continue
				}
				n, g := counts(t)
				require.LessOrEqual(t, n, files, "open files")
				require.LessOrEqual(t, g, goroutines+1, "goroutines")
			}
		})
	}
}

// TestInteropFrontEndAfterAnother: one session after the other on a testpmd that stays, whether it listens or connects.
func TestInteropFrontEndAfterAnother(t *testing.T) {
	for name, server := range map[string]bool{"testpmd listens": false, "testpmd connects": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			vdev := ""
			if server {
				vdev = ",client=1"
			}
			b := newBackEnd(t, path, vdev, 2)
			b.do("set fwd macswap", "start")
			for i := range 5 {
				f := newFrontEnd(t, path, setup{pairs: 1 + i%2, server: server, mtu: 1500 * (i % 3)})
				require.NoError(t, newExchange(f, 10_000, true, true, mixed).run())
				f.end()
			}
			b.quit()
		})
	}
}

// TestInteropFlood has testpmd send as fast as it can, more than is received: what it says it sent, has come.
func TestInteropFlood(t *testing.T) {
	b := newBackEnd(t, filepath.Join(t.TempDir(), "s"), "", 4)
	for name, s := range map[string]setup{
		"split":             {features: "-ring_packed", pairs: 1},
		"packed, 4 queues":  {pairs: 4},
		"split, scattered":  {features: "-ring_packed,-in_order", pairs: 4, smallRx: true},
		"packed, no pieces": {features: "-mrg_rxbuf", pairs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			f := newFrontEnd(t, b.path, s)
			b.do("clear port stats all", "set fwd txonly", "set txpkts 64,700", "start")
			got, bytes := f.flood(t, perCell/4, 764)
			forward, stats := b.stop()
			more, moreBytes := f.flood(t, 0, 764)
			got, bytes = got+more, bytes+moreBytes
			require.Equal(t, stats.TxPackets, got)
			require.Equal(t, stats.TxBytes, bytes)
			require.Equal(t, forward.TxPackets, got)
			ours := f.Stats()
			require.Equal(t, got, ours.RxPackets)
			require.Equal(t, bytes, ours.RxBytes)
			require.Zero(t, ours.RxErrors, "%+v", ours)
			f.end()
			t.Logf("%d frames came, %d had no room", got, forward.TxDropped)
		})
	}
	b.quit()
}

// floodHeaders is what testpmd writes into each frame, bytes: Ethernet, IPv4, UDP. What is behind it is what was there before.
const floodHeaders = 14 + 20 + 8

// flood receives at least n frames, and then what there is, and checks that all are alike.
func (f *frontEnd) flood(t *testing.T, n uint64, length int) (got, bytes uint64) {
	t.Helper()
	var in [burst]*mbuf.Buf
	var first []byte
	x := exchange{scratch: make([]byte, 0, 4096)}
	empty := 0
	for last := f.clock.Nanos(); got < n || empty < 100; {
		some := 0
		for i := range f.cfg.RxQueues {
			k := f.Rx(i).Recv(in[:])
			some += k
			for _, b := range in[:k] {
				whole := x.gather(b)
				if len(whole) != length {
					t.Fatalf("a frame of %d bytes, want %d", len(whole), length)
				}
				if first == nil {
					first = append([]byte(nil), whole[:floodHeaders]...)
				}
				if string(first) != string(whole[:floodHeaders]) {
					t.Fatalf("% x comes, want % x", whole[:floodHeaders], first)
				}
				bytes += uint64(len(whole))
			}
			f.cache.FreeBulk(in[:k])
		}
		got += uint64(some)
		if some > 0 {
			last, empty = f.clock.Nanos(), 0
			continue
		}
		empty++
		runtime.Gosched()
		require.Less(t, f.clock.Nanos()-last, int64(patience), "%d frames have come: %+v", got, f.Stats())
	}
	return got, bytes
}
