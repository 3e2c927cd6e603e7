//go:build interop

package backend

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/sim/vhostuser"
	"bare.wire/sim/virtionet"
	"bare.wire/test/judges/internal/testpmd"
)

// patience is how long anything may take on a busy machine.
const patience = 3 * time.Minute

// backEnd is our side.
type backEnd struct {
	t      *testing.T
	path   string
	world  *sim.World
	dev    *virtionet.Device
	back   *vhostuser.Backend
	source *source
	stop   func()
}

// newBackEnd listens, or with client connects, at path.
func newBackEnd(t *testing.T, path string, client bool, pairs int, src *source) *backEnd {
	t.Helper()
	b := &backEnd{t: t, path: path, world: sim.NewWorld(clock.Real()), source: src}
	mem := &vhostuser.Memory{}
	var err error
	b.dev, err = virtionet.New(virtionet.Config{
		Name: "device", Memory: mem, World: b.world, Net: src, MAC: target, Pairs: pairs, Size: 1024, Hold: src.swallow,
		Timing: virtionet.Timing{Fetch: -1, Used: -1},
	})
	require.NoError(t, err)
	b.back, err = vhostuser.New(vhostuser.Config{Path: path, Client: client, World: b.world, Device: b.dev, Memory: mem})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	beside.Go(func() { _ = b.world.Run(ctx) })
	beside.Go(func() { _ = b.back.Run(ctx) })
	b.stop = sync.OnceFunc(func() {
		cancel()
		beside.Wait()
		require.NoError(t, b.back.Close())
		require.NoError(t, b.dev.Close())
	})
	t.Cleanup(b.stop)
	return b
}

// with looks at the source while nothing moves.
func (b *backEnd) with(f func(*source)) {
	b.world.Lock()
	defer b.world.Unlock()
	f(b.source)
}

// run lets the source send.
func (b *backEnd) run(total int) {
	b.with(func(s *source) {
		s.total, s.sent, s.back, s.seen, s.bad = total, 0, 0, nil, nil
		if s.arrival != nil {
			s.arrival(b.world.Clock().Nanos())
		}
	})
}

// await waits until ok says so.
func (b *backEnd) await(what string, ok func(*source) bool) {
	b.t.Helper()
	clk := b.world.Clock()
	for end := clk.Nanos() + int64(patience); ; {
		var done bool
		var sent, back int
		var bad []string
		b.with(func(s *source) { done, sent, back, bad = ok(s), s.sent, s.back, s.bad })
		if done {
			return
		}
		if len(bad) > 0 || clk.Nanos() > end {
			b.t.Fatalf("waited for %s: %d sent, %d back; %v; device %+v; back end %+v %v; misuse %v",
				what, sent, back, bad, b.dev.Counts(), b.back.Counts(), b.back.LastError(), b.dev.Misuse())
		}
		_ = clk.Sleep(context.Background(), time.Millisecond)
	}
}

// fetched asks testpmd for its counts, which takes a while: the world goes on meanwhile.
func (b *backEnd) fetched(s *testpmd.Session, to *testpmd.PortStats) bool {
	b.world.Unlock()
	defer b.world.Lock()
	var err error
	*to, err = testpmd.ParsePortStats(do(b.t, s, "show port stats 0"))
	require.NoError(b.t, err)
	return true
}

// clean says that nothing was wrong on either side, and that each of n frames came back.
func (b *backEnd) clean(n int) {
	b.t.Helper()
	b.with(func(s *source) {
		require.Empty(b.t, s.bad)
		require.Equal(b.t, n, s.sent)
		require.Equal(b.t, n, s.back)
	})
	for _, m := range b.dev.Misuse() {
		// DPDK leaves num_buffers in the header of a frame that it has received and sends on, which no device looks at.
		if m.Kind != virtionet.HeaderForm || m.Detail != "num_buffers 1" {
			b.t.Errorf("misuse: %v", m)
		}
	}
	c := b.dev.Counts()
	require.Zero(b.t, c.RxNoBuffer+c.RxTooLong+c.RxRefused+c.TxRefused+c.DMAFaults, "%+v", c)
	require.NoError(b.t, b.back.LastError())
}

// frontEnd starts testpmd with a virtio_user on our socket. vdev is what follows path= in its arguments.
func frontEnd(t *testing.T, path, vdev string, queues int, args ...string) *testpmd.Session {
	t.Helper()
	s, _ := startFrontEnd(t, path, vdev, queues, args...)
	return s
}

func startFrontEnd(t *testing.T, path, vdev string, queues int, args ...string) (*testpmd.Session, *exec.Cmd) {
	t.Helper()
	line := []string{
		"-l", "0,1", "--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "128", "--file-prefix", filepath.Base(t.TempDir()),
		fmt.Sprintf("--vdev=net_virtio_user0,path=%s,queues=%d,mac=%02x:%02x:%02x:%02x:%02x:%02x%s", path, queues,
			target[0], target[1], target[2], target[3], target[4], target[5], vdev),
		"--", "-i", "--port-topology=loop", "--nb-cores=1", "--total-num-mbufs=8192",
		fmt.Sprintf("--rxq=%d", queues), fmt.Sprintf("--txq=%d", queues),
	}
	cmd := exec.Command("dpdk-testpmd", append(line, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := testpmd.Start(ctx, cmd)
	require.NoError(t, err)
	return s, cmd
}

// dropDead is quit for a testpmd that was killed.
func dropDead(t *testing.T, s *testpmd.Session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.ErrorContains(t, s.Close(ctx), "killed")
}

// do gives testpmd a command.
func do(t *testing.T, s *testpmd.Session, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	text, err := s.Do(ctx, command)
	require.NoError(t, err)
	return text
}

// quit ends testpmd.
func quit(t *testing.T, s *testpmd.Session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, s.Close(ctx))
}
