//go:build interop

package backend

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"bare.wire/clock"
	"bare.wire/test/guest"
	"bare.wire/test/judges/internal/testpmd"
)

const rounds = 3

// TestInteropAFrontEndThatIsKilledIsFollowedByAnother kills testpmd in the middle of traffic. The next one is served from the
// beginning, and loses nothing.
func TestInteropAFrontEndThatIsKilledIsFollowedByAnother(t *testing.T) {
	for name, vdev := range map[string]string{"split": ",packed_vq=0", "packed": ",packed_vq=1"} {
		t.Run(name, func(t *testing.T) {
			src := &source{window: 200, length: mixed, flows: 16}
			b := newBackEnd(t, filepath.Join(t.TempDir(), "sock"), false, 1, src)
			for range rounds {
				s, cmd := startFrontEnd(t, b.path, vdev, 1, "--forward-mode=io")
				do(t, s, "start")
				b.run(1 << 30)
				b.await("traffic", func(s *source) bool { return s.back > 10_000 })
				require.NoError(t, cmd.Process.Kill())
				b.await("the session's end", func(*source) bool { return !b.back.Counts().Active })
				dropDead(t, s)

				s, _ = startFrontEnd(t, b.path, vdev, 1, "--forward-mode=io")
				do(t, s, "start")
				b.run(50_000)
				b.await("the frames to come back", func(s *source) bool { return s.back == 50_000 })
				quit(t, s)
				b.await("the session's end", func(*source) bool { return !b.back.Counts().Active })
			}
			b.clean(50_000)
			require.EqualValues(t, 2*rounds, b.back.Counts().Sessions)
		})
	}
}

// TestInteropABackEndThatGoesIsFollowedByAnother ends our side, without a word, while testpmd listens and waits for the next.
func TestInteropABackEndThatGoesIsFollowedByAnother(t *testing.T) {
	for name, vdev := range map[string]string{"split": ",packed_vq=0", "packed": ",packed_vq=1"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "sock")
			// testpmd does not come to its prompt before somebody has connected.
			b := newBackEnd(t, path, true, 1, &source{window: 200, length: mixed, flows: 16})
			s, _ := startFrontEnd(t, path, vdev+",server=1", 1, "--forward-mode=io")
			do(t, s, "start")
			for round := range rounds {
				b.run(50_000)
				b.await("the frames to come back", func(s *source) bool { return s.back == 50_000 })
				b.clean(50_000)
				b.run(1 << 30)
				b.await("traffic", func(s *source) bool { return s.back > 10_000 })
				b.stop()
				// What testpmd had when its back end went, it sends to the next one, when it gets to it.
				b = newBackEnd(t, path, true, 1, &source{window: 200, length: mixed, flows: 16, session: uint16(round + 1)})
				b.await("the session", func(s *source) bool { return s.up })
			}
			b.run(50_000)
			b.await("the frames to come back", func(s *source) bool { return s.back == 50_000 })
			quit(t, s)
		})
	}
}

// TestInteropNicsimIsKilled has testpmd make traffic of its own, and kills the process that sends it back.
func TestInteropNicsimIsKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	bin := guest.Build(t, "bare.wire/cmd/nicsim")
	start := func() *exec.Cmd {
		cmd := exec.Command(bin, "vhost-user", "--client", "--summary", "none", path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		require.NoError(t, cmd.Start())
		return cmd
	}
	nicsim := start()
	s, _ := startFrontEnd(t, path, ",server=1", 1, "--forward-mode=flowgen", "--no-flush-rx")
	do(t, s, "start")
	var before uint64
	clk := clock.Real()
	for round := range rounds + 1 {
		for end := clk.Nanos() + int64(patience); ; {
			// What testpmd says of the end of its back end may come in between, and is no answer.
			text, err := s.Do(t.Context(), "show port stats 0")
			if refused := (*testpmd.Refused)(nil); !errors.As(err, &refused) {
				require.NoError(t, err)
			}
			stats, err := testpmd.ParsePortStats(text)
			require.NoError(t, err)
			if stats.RxPackets > before+20_000 {
				before = stats.RxPackets
				break
			}
			require.Less(t, clk.Nanos(), end, "round %d: %+v", round, stats)
			_ = clk.Sleep(context.Background(), 20e6)
		}
		if round == rounds {
			break // with its back end there: a testpmd that quits without one may die of writing to it (SIGPIPE)
		}
		require.NoError(t, nicsim.Process.Kill())
		_ = nicsim.Wait()
		nicsim = start()
	}
	quit(t, s)
	require.NoError(t, nicsim.Process.Signal(syscall.SIGTERM))
	require.NoError(t, nicsim.Wait())
}
