//go:build interop

package frontend

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"bare.wire/mbuf"
	"bare.wire/test/judges/internal/frames"
)

// TestInteropMemoryComesAndGoes gives frames from memory that was not there when the session began, and takes it away again, while the
// traffic of the rest goes on: DPDK maps all memory anew each time.
func TestInteropMemoryComesAndGoes(t *testing.T) {
	for _, features := range []string{"-ring_packed", ""} {
		t.Run("features "+features, func(t *testing.T) {
			b := newBackEnd(t, filepath.Join(t.TempDir(), "s"), "", 2)
			f := newFrontEnd(t, b.path, setup{features: features, pairs: 2})
			b.do("set fwd io", "start")
			x := newExchange(f, 1<<40, true, false, some)
			x.flows = x.flows[:1] // the second queue is for the memory
			end := make(chan error, 1)
			stop := make(chan struct{})
			go func() {
				for {
					select {
					case <-stop:
						x.flows[0].total = x.flows[0].made
						end <- x.run()
						return
					default:
						x.flows[0].total = x.flows[0].made + 1000
						if err := x.run(); err != nil {
							end <- err
							return
						}
					}
				}
			}()
			for i := range 20 {
				pool := f.newPool("guest", 64, 2048)
				cache := pool.NewCache()
				frame := make([]byte, 500)
				frames.PutPattern(frame, other, station, uint32(i), frames.Echo)
				out := cache.Alloc()
				room, err := out.Reserve(len(frame))
				require.NoError(t, err)
				copy(room, frame)
				require.Equal(t, 1, f.Tx(1).Send([]*mbuf.Buf{out}))
				var in [1]*mbuf.Buf
				for deadline := f.clock.Nanos() + int64(patience); f.Rx(1).Recv(in[:]) == 0; {
					require.Less(t, f.clock.Nanos(), deadline, "frame %d does not come back", i)
					require.NoError(t, f.clock.Sleep(t.Context(), time.Millisecond))
				}
				require.Empty(t, frames.WrongPattern(in[0].Bytes()))
				in[0].Free()
				for pool.Stats().Out > 0 {
					f.Tx(1).Reclaim()
					cache.Flush()
				}
				cache.Close()
				require.NoError(t, pool.Close(), "it is taken from the back end, and can be unmapped")
			}
			close(stop)
			require.NoError(t, <-end)
			require.NotZero(t, x.flows[0].got)
			f.end()
			b.quit()
		})
	}
}
