//go:build interop

package frontend

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"bare.wire/clock"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/test/judges/internal/testpmd"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// patience is how long anything may take on a busy machine.
const patience = 3 * time.Minute

// full is the choice of long runs.
var full = os.Getenv("BAREWIRE_FULL") == "1"

// backEnd is testpmd with a net_vhost.
type backEnd struct {
	*testpmd.Session
	t    *testing.T
	path string
	cmd  *exec.Cmd
}

// newBackEnd starts testpmd. vdev is what follows iface= in the arguments of its device.
func newBackEnd(t *testing.T, path, vdev string, queues int, args ...string) *backEnd {
	t.Helper()
	// net_vhost does not take away what one that was killed has left.
	_ = os.Remove(path)
	line := []string{
		"-l", "0,1", "--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "192", "--file-prefix", filepath.Base(t.TempDir()),
		fmt.Sprintf("--vdev=net_vhost0,iface=%s,queues=%d%s", path, queues, vdev),
		"--", "-i", "--port-topology=loop", "--nb-cores=1", "--total-num-mbufs=16384",
		fmt.Sprintf("--rxq=%d", queues), fmt.Sprintf("--txq=%d", queues),
	}
	b := &backEnd{t: t, path: path, cmd: exec.Command("dpdk-testpmd", append(line, args...)...)}
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	b.Session, err = testpmd.Start(ctx, b.cmd)
	require.NoError(t, err)
	t.Cleanup(b.kill)
	return b
}

// do gives testpmd commands, and returns the answer to the last.
func (b *backEnd) do(commands ...string) (text string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, c := range commands {
		var err error
		text, err = b.Do(ctx, c)
		require.NoError(b.t, err)
	}
	return text
}

// stop ends forwarding and returns testpmd's counts of it.
func (b *backEnd) stop() (testpmd.Forward, testpmd.PortStats) {
	b.t.Helper()
	counts, err := testpmd.ParseForward(b.do("stop"))
	require.NoError(b.t, err)
	stats, err := testpmd.ParsePortStats(b.do("show port stats 0"))
	require.NoError(b.t, err)
	return counts[0], stats
}

// kill ends testpmd as a crash would.
func (b *backEnd) kill() {
	_ = b.cmd.Process.Kill()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = b.Close(ctx) // it has been killed
}

// quit ends testpmd well.
func (b *backEnd) quit() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(b.t, b.Close(ctx))
}

// frontEnd is our side.
type frontEnd struct {
	*virtio.Port
	t     *testing.T
	space *vtop.Space
	clock clock.Clock
	pool  *mbuf.Pool
	small *mbuf.Pool
	cache *mbuf.Cache
	wait  *nic.Waiter
	cfg   nic.Config
}

// setup is how the front end is to be.
type setup struct {
	features string // as in a URI
	pairs    int
	server   bool
	smallRx  bool // receive buffers that a long frame does not fit into
	desc     int
	maxFrame int
	mtu      int // what the back end is told
	offloads nic.Offload
}

// newFrontEnd opens and starts a port.
func newFrontEnd(t *testing.T, path string, s setup) *frontEnd {
	t.Helper()
	f := &frontEnd{t: t, space: vtop.NewMapped(), clock: clock.Real()}
	f.pool = f.newPool("frames", 8192, 2048)
	f.cache = f.pool.NewCache()
	f.small = f.newPool("small", 8192, 512)
	var err error
	f.wait, err = nic.NewWaiter(f.clock)
	require.NoError(t, err)
	if s.desc == 0 {
		s.desc = 512
	}
	f.cfg = nic.Config{
		RxQueues: s.pairs, TxQueues: s.pairs, RxDesc: s.desc, TxDesc: s.desc, Pool: f.pool, MaxFrame: s.maxFrame,
		Offloads: nic.RxScatter | nic.TxMultiSegment | s.offloads,
	}
	if s.smallRx {
		for range s.pairs {
			f.cfg.RxPools = append(f.cfg.RxPools, f.small)
		}
	}
	f.open(path, s)
	return f
}

func (f *frontEnd) newPool(name string, buffers, size int) *mbuf.Pool {
	f.t.Helper()
	p, err := mbuf.NewPool(mbuf.Config{Name: name, Space: f.space, Buffers: buffers, Size: size, Workers: 2, Views: 64})
	require.NoError(f.t, err)
	return p
}

func (f *frontEnd) open(path string, s setup) {
	f.t.Helper()
	restriction, err := spec.ParseRestriction(s.features)
	require.NoError(f.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tr, err := virtio.DialVhost(ctx, path, virtio.VhostOptions{Space: f.space, Clock: f.clock, Server: s.server, Queues: s.pairs, MTU: s.mtu})
	require.NoError(f.t, err)
	f.Port, err = virtio.Open(ctx, tr, virtio.Options{Space: f.space, Clock: f.clock, Node: -1, Software: true, Features: restriction, MAC: station})
	require.NoError(f.t, err)
	require.NoError(f.t, f.Start(ctx, f.cfg))
}

// end closes the port, and says whether all buffers are back.
func (f *frontEnd) end() {
	f.t.Helper()
	require.NoError(f.t, f.Close())
	require.NoError(f.t, f.wait.Close())
	f.cache.Close()
	for _, p := range []*mbuf.Pool{f.pool, f.small} {
		s := p.Stats()
		require.Zero(f.t, s.Out+s.Quarantined, "%s: %+v", p.Name(), s)
		require.NoError(f.t, p.Close())
	}
	require.Empty(f.t, f.space.Regions())
}

// received waits until testpmd has received n frames since its counts were cleared.
func (b *backEnd) received(n uint64) error {
	clk := clock.Real()
	for end := clk.Nanos() + int64(patience); ; {
		stats, err := testpmd.ParsePortStats(b.do("show port stats 0"))
		if err != nil || stats.RxPackets >= n {
			return err
		}
		if clk.Nanos() > end {
			return fmt.Errorf("testpmd has received %d frames of %d", stats.RxPackets, n)
		}
	}
}
