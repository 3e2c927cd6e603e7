package tap

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/tap/taptest"
)

// rig is a TAP on a wire whose other end is the test's.
type rig struct {
	clk   *clock.RealClock
	world *sim.World
	wire  *link.Wire
	tap   *Tap
}

func newRig(t *testing.T, cfg Config, wire link.Config) *rig {
	t.Helper()
	r := &rig{clk: clock.Real()}
	r.world = sim.NewWorld(r.clk)
	var err error
	r.wire, err = link.New(wire)
	require.NoError(t, err)
	cfg.World, cfg.End = r.world, r.wire.B()
	if cfg.Name == "" {
		cfg.Name = "tap0"
	}
	r.tap, err = Open(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	beside.Go(func() { _ = r.world.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		beside.Wait()
		require.NoError(t, r.tap.Close())
	})
	return r
}

// await waits until ok returns true.
func (r *rig) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 30_000 {
		if ok() {
			return
		}
		require.NoError(t, r.clk.Sleep(t.Context(), time.Millisecond))
	}
	t.Fatalf("waited for %s", what)
}

// send puts a frame onto the wire, as a card would.
func (r *rig) send(frame []byte) {
	r.world.Lock()
	defer r.world.Unlock()
	r.wire.A().Transmit(frame, r.clk.Nanos())
}

// receive takes the next frame off the wire, as a card would.
func (r *rig) receive(t *testing.T) (frame []byte) {
	t.Helper()
	r.await(t, "a frame on the wire", func() bool {
		r.world.Lock()
		defer r.world.Unlock()
		f, ok := r.wire.A().Receive(r.clk.Nanos())
		frame = bytes.Clone(f.Data)
		return ok
	})
	return frame
}

func (r *rig) linkUp() bool {
	r.world.Lock()
	defer r.world.Unlock()
	return r.wire.A().Up()
}

func (r *rig) up(t *testing.T) {
	t.Helper()
	taptest.Flags(t, r.tap.Name(), func(f uint16) uint16 { return f | unix.IFF_UP })
	r.await(t, "a link", r.linkUp)
	r.await(t, "a carrier", func() bool { return taptest.Flags(t, r.tap.Name(), nil)&unix.IFF_RUNNING != 0 })
}

// packets is a socket that sends and receives whole frames on the interface.
func packets(t *testing.T, name string) int {
	t.Helper()
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xFF<<8
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(s)) })
	ctl, err := unix.NewIfreq(name)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlIfreq(s, unix.SIOCGIFINDEX, ctl))
	require.NoError(t, unix.Bind(s, &unix.SockaddrLinklayer{Protocol: all, Ifindex: int(ctl.Uint32())}))
	require.NoError(t, unix.SetsockoptInt(s, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1))
	require.NoError(t, unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30}))
	return s
}

// frame is n bytes of an EtherType that nobody uses, different for each seed.
func frame(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + seed)
	}
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5})
	return b
}

func TestFramesOfTheKernelGoOntoTheWire(t *testing.T) {
	if !taptest.OwnNetwork(t) {
		return
	}
	r := newRig(t, Config{}, link.Config{})
	r.up(t)
	s := packets(t, r.tap.Name())
	for i, n := range []int{60, 61, 512, 1514, 14, 42} {
		f := frame(n, i)
		_, err := unix.Write(s, f)
		require.NoError(t, err)
		got := r.receive(t)
		want := append(bytes.Clone(f), make([]byte, max(0, minFrame-n))...)
		require.Equal(t, want, got, "%d bytes: short ones are padded with zeros", n)
	}
	require.Equal(t, uint64(6), r.tap.Counts().FromKernel)
}

func TestFramesOfTheWireGoToTheKernel(t *testing.T) {
	if !taptest.OwnNetwork(t) {
		return
	}
	r := newRig(t, Config{}, link.Config{})
	r.up(t)
	s := packets(t, r.tap.Name())
	buf := make([]byte, 1<<16)
	for i, n := range []int{60, 1514, 9014, 64} {
		f := frame(n, i)
		r.send(f)
		k, err := unix.Read(s, buf)
		require.NoError(t, err)
		require.Equal(t, f, buf[:k])
	}
	r.await(t, "four frames counted", func() bool { return r.tap.Counts() == Counts{ToKernel: 4} })
}

func TestManyFramesKeepTheirOrder(t *testing.T) {
	if !taptest.OwnNetwork(t) {
		return
	}
	const n = 400 // fewer than the queue holds
	r := newRig(t, Config{Queue: 2 * n}, link.Config{Delay: 100 * time.Microsecond})
	r.up(t)
	s := packets(t, r.tap.Name())
	require.NoError(t, unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20))
	for i := range n {
		r.send(frame(60+i, i))
	}
	buf := make([]byte, 1<<16)
	for i := range n {
		k, err := unix.Read(s, buf)
		require.NoError(t, err)
		require.Equal(t, frame(60+i, i), buf[:k], "frame %d", i)
	}
}

func TestTheLinkFollowsTheInterfaceAndTheCarrierFollowsTheLink(t *testing.T) {
	if !taptest.OwnNetwork(t) {
		return
	}
	r := newRig(t, Config{}, link.Config{})
	require.False(t, r.linkUp(), "an interface is down at first")
	r.up(t)
	taptest.Flags(t, r.tap.Name(), func(f uint16) uint16 { return f &^ unix.IFF_UP })
	r.await(t, "no link", func() bool { return !r.linkUp() })
	r.up(t)
	r.world.Lock()
	r.wire.A().SetUp(false) // the card goes
	r.world.Unlock()
	r.await(t, "no carrier", func() bool { return taptest.Flags(t, r.tap.Name(), nil)&unix.IFF_RUNNING == 0 })
	r.world.Lock()
	r.wire.A().SetUp(true)
	r.world.Unlock()
	r.await(t, "a carrier", func() bool { return taptest.Flags(t, r.tap.Name(), nil)&unix.IFF_RUNNING != 0 })
}

func TestDamagedFramesDoNotReachTheKernel(t *testing.T) {
	if !taptest.OwnNetwork(t) {
		return
	}
	r := newRig(t, Config{}, link.Config{Corrupt: 1})
	r.up(t)
	for i := range 5 {
		r.send(frame(100, i))
	}
	r.await(t, "five damaged frames", func() bool { return r.tap.Counts().BadFCS == 5 })
	require.Zero(t, r.tap.Counts().ToKernel)
}

func TestWhatTheKernelDoesNotTakeIsCounted(t *testing.T) {
	if !taptest.OwnNetwork(t) {
		return
	}
	r := newRig(t, Config{}, link.Config{})
	r.up(t)
	r.send(frame(13, 0)) // not even a header
	r.await(t, "a frame refused", func() bool { return r.tap.Counts().Refused == 1 })
}

func TestAFullQueueLosesAndCounts(t *testing.T) {
	// Without a writer, and without a kernel: what is behind the queue is somebody else's.
	w := sim.NewWorld(clock.NewVirtual(time.Unix(0, 0)))
	wire, err := link.New(link.Config{})
	require.NoError(t, err)
	tap := &Tap{cfg: Config{World: w, End: wire.B()}, name: "none", ctl: -1, out: make(chan []byte, 3), free: make(chan []byte, 4)}
	for i := range 5 {
		wire.A().Transmit(frame(60, i), 0)
	}
	require.Equal(t, lookEvery, tap.Step(0), "nothing more but a look at the interface")
	require.Equal(t, Counts{QueueFull: 2}, tap.Counts())
	for i := range 3 {
		require.Equal(t, frame(60, i), <-tap.out)
	}
	wire.A().Transmit(frame(60, 9), 5)
	require.Equal(t, int64(5), tap.Step(1), "a frame under way is waited for")
	buf := make([]byte, 2048)
	tap.free <- buf
	tap.Step(5)
	got := <-tap.out
	require.Equal(t, frame(60, 9), got)
	require.Same(t, &buf[0], &got[0], "buffers are used again")
}

func TestWhatIsWrongWithANameIsTold(t *testing.T) {
	for _, name := range []string{"", "a/b", "a b", strings.Repeat("x", 16)} {
		_, err := Open(Config{Name: name})
		require.ErrorContains(t, err, "1 to 15 characters")
	}
}

func TestAnInterfaceThatCannotBeHadIsTold(t *testing.T) {
	if !taptest.OwnNetwork(t) {
		return
	}
	r := newRig(t, Config{Name: "mine%d"}, link.Config{})
	require.Equal(t, "mine0", r.tap.Name())
	wire, err := link.New(link.Config{})
	require.NoError(t, err)
	_, err = Open(Config{Name: "mine0", World: r.world, End: wire.B()})
	require.ErrorIs(t, err, unix.EBUSY)
	require.ErrorContains(t, err, "another process has it")
	_, err = Open(Config{Name: "lo", World: r.world, End: wire.B()})
	require.ErrorContains(t, err, "take another name")
	require.NoError(t, r.tap.Close())
	require.NoError(t, r.tap.Close(), "twice is once")
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(s)
	ifr, err := unix.NewIfreq("mine0")
	require.NoError(t, err)
	require.ErrorIs(t, unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, ifr), unix.ENODEV, "the interface goes with us")
}

func TestEveryErrorHasItsRemedy(t *testing.T) {
	for err, want := range map[error]string{
		unix.EPERM:                       "sudo ip tuntap add dev tap0 mode tap user $USER",
		unix.EBUSY:                       "another process",
		unix.EINVAL:                      "take another name",
		fmt.Errorf("x: %w", unix.ENOMEM): "ip tuntap add",
	} {
		require.Contains(t, remedy("tap0", err), want)
	}
}
