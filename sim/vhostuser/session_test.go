package vhostuser

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/virtio/spec"
	"bare.wire/virtio/spec/vhost"
)

// fakeDevice notes what it is told. Its step reads memory at look, if that is not 0.
type fakeDevice struct {
	features, taken spec.Features
	status          uint8
	config          [spec.NetConfigSize]byte
	queues          [6]fakeQueue
	mem             *Memory
	look            uint64
	refuse          error
	pairs           int
}

type fakeQueue struct {
	size                 int
	desc, driver, device uint64
	on                   bool
	base                 uint32
	call                 func()
	kicks                int
}

func (d *fakeDevice) Features() spec.Features { return d.features }
func (d *fakeDevice) SetFeatures(f spec.Features) error {
	d.taken = f
	return d.refuse
}
func (d *fakeDevice) Status() uint8 { return d.status }
func (d *fakeDevice) SetStatus(v uint8) {
	if d.status = v; v == 0 {
		d.taken = 0
	}
}
func (d *fakeDevice) ReadConfig(off int, p []byte)  { copy(p, d.config[off:]) }
func (d *fakeDevice) WriteConfig(off int, p []byte) { copy(d.config[off:], p) }
func (d *fakeDevice) Queues() int                   { return len(d.queues) }
func (d *fakeDevice) QueueMax(int) int              { return 256 }
func (d *fakeDevice) SetQueue(i, size int, desc, driver, device uint64) error {
	q := &d.queues[i]
	if q.on {
		return errors.New("the queue is enabled")
	}
	q.size, q.desc, q.driver, q.device = size, desc, driver, device
	return nil
}
func (d *fakeDevice) EnableQueue(i int, on bool)            { d.queues[i].on = on }
func (d *fakeDevice) QueueBase(i int) uint32                { return d.queues[i].base }
func (d *fakeDevice) SetQueueBase(i int, base uint32) error { d.queues[i].base = base; return nil }
func (d *fakeDevice) SetPairs(n int)                        { d.pairs = n }
func (d *fakeDevice) MemoryChanged()                        {}
func (d *fakeDevice) UseLegacy(bool)                        {}
func (d *fakeDevice) Poll(bool)                             {}
func (d *fakeDevice) OnConfigChange(func())                 {}
func (d *fakeDevice) OnCall(i int, f func())                { d.queues[i].call = f }
func (d *fakeDevice) Kick(i int)                            { d.queues[i].kicks++ }
func (d *fakeDevice) Step(now int64) int64 {
	if d.look != 0 {
		b, err := d.mem.Bytes(d.look, 1)
		if err == nil {
			b[0]++
		}
	}
	return sim.Never
}

// rig is a back end with a fake device, and a front end that the test is.
type rig struct {
	t     *testing.T
	dev   *fakeDevice
	back  *Backend
	world *sim.World
	path  string
	conn  *vhost.Conn
	ack   bool   // answers are asked for
	base  uint32 // of queues that are set up
}

func newRig(t *testing.T) *rig {
	mem := &Memory{}
	dev := &fakeDevice{features: spec.FeatureVersion1 | spec.FeatureMrgRxBuf | spec.FeatureMQ | spec.FeatureRingPacked, mem: mem}
	r := serve(t, sim.NewWorld(clock.NewVirtual(time.Unix(0, 0))), dev, mem)
	r.dev = dev
	return r
}

// serve has a device served, and connects to it.
func serve(t *testing.T, world *sim.World, dev Device, mem *Memory) *rig {
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "sock"), world: world, base: 7}
	var err error
	r.back, err = New(Config{Path: r.path, World: r.world, Device: dev, Memory: mem})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.back.Run(ctx) }()
	t.Cleanup(func() {
		if r.conn != nil {
			_ = r.conn.Close()
		}
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, r.back.Close())
		require.NoFileExists(t, r.path)
		require.Empty(t, mem.table)
	})
	r.connect()
	return r
}

func (r *rig) connect() {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.path, Net: "unix"})
	require.NoError(r.t, err)
	r.conn, r.ack = vhost.NewConn(c), false
}

// ask sends a request and returns the answer.
func (r *rig) ask(q vhost.Request, payload []byte, fds ...int) vhost.Message {
	r.t.Helper()
	require.NoError(r.t, r.conn.Send(r.t.Context(), vhost.NewMessage(q, payload), fds...))
	m, got, err := r.conn.Receive(r.t.Context())
	require.NoError(r.t, err, "%v", q)
	require.Empty(r.t, got)
	require.Equal(r.t, q, m.Request)
	return m
}

func (r *rig) number(q vhost.Request) uint64 {
	r.t.Helper()
	v, err := r.ask(q, nil).U64()
	require.NoError(r.t, err)
	return v
}

// tell sends a request that is done when tell returns, and returns whether it was refused.
func (r *rig) tell(q vhost.Request, payload []byte, fds ...int) (refused bool) {
	r.t.Helper()
	m := vhost.NewMessage(q, payload)
	if r.ack {
		m.Flags |= vhost.FlagNeedReply
	}
	require.NoError(r.t, r.conn.Send(r.t.Context(), m, fds...))
	if !r.ack {
		r.number(vhost.GetFeatures)
		return false
	}
	a, _, err := r.conn.Receive(r.t.Context())
	require.NoError(r.t, err, "%v", q)
	v, err := a.U64()
	require.NoError(r.t, err)
	return v != 0
}

// ended waits for the session's end and returns why it ended.
func (r *rig) ended() error {
	r.t.Helper()
	for {
		_, _, err := r.conn.Receive(r.t.Context())
		if err != nil {
			break
		}
	}
	_ = r.conn.Close()
	for r.back.Counts().Active {
		runtime.Gosched() // the session's goroutine is about to end
	}
	return r.back.LastError()
}

// agree is what a front end begins with.
func (r *rig) agree(f spec.Features) {
	r.t.Helper()
	r.tell(vhost.SetOwner, nil)
	require.True(r.t, spec.Features(r.number(vhost.GetFeatures)).Has(vhost.FeatureProtocolFeatures))
	p := r.number(vhost.GetProtocolFeatures)
	r.tell(vhost.SetProtocolFeatures, vhost.AppendU64(nil, p))
	r.ack = true
	require.False(r.t, r.tell(vhost.SetFeatures, vhost.AppendU64(nil, uint64(f|vhost.FeatureProtocolFeatures))))
}

const (
	guestBase = 0x1_0000_0000
	userBase  = 0x7f00_0000_0000
)

// share gives the back end n bytes of memory at guestBase.
func (r *rig) share(n int64) (fd int) {
	r.t.Helper()
	fd = memfd(r.t, n)
	require.False(r.t, r.tell(vhost.SetMemTable, vhost.MemoryTable{{Addr: guestBase, Size: uint64(n), UserAddr: userBase}}.Append(nil), fd))
	return fd
}

func state(i, n uint32) []byte { return vhost.VringState{Index: i, Num: n}.Append(nil) }

// queue sets a ring of 16 descriptors up; it returns the other ends of kick and call.
func (r *rig) queue(i uint32) (kick, call int) {
	r.t.Helper()
	require.False(r.t, r.tell(vhost.SetVringNum, state(i, 16)))
	require.False(r.t, r.tell(vhost.SetVringBase, state(i, r.base)))
	at := uint64(userBase) + uint64(i)*4096
	require.False(r.t, r.tell(vhost.SetVringAddr, vhost.VringAddr{Index: i, Desc: at, Avail: at + 256, Used: at + 512}.Append(nil)))
	kick, call = eventfd(r.t), eventfd(r.t)
	r.t.Cleanup(func() { _, _ = unix.Close(kick), unix.Close(call) })
	require.False(r.t, r.tell(vhost.SetVringCall, vhost.VringFD{Index: uint8(i)}.Append(nil), call))
	require.False(r.t, r.tell(vhost.SetVringKick, vhost.VringFD{Index: uint8(i)}.Append(nil), kick))
	return kick, call
}

// look looks at the device, or changes it, while nothing moves.
func (r *rig) look(f func(d *fakeDevice)) {
	r.world.Lock()
	defer r.world.Unlock()
	f(r.dev)
}

func (r *rig) q(i int) fakeQueue {
	r.world.Lock()
	defer r.world.Unlock()
	return r.dev.queues[i]
}

func TestAFrontEndSetsAQueueUpAndTakesItDown(t *testing.T) {
	r := newRig(t)
	r.agree(spec.FeatureVersion1 | spec.FeatureMrgRxBuf)
	r.look(func(d *fakeDevice) {
		require.Equal(t, spec.FeatureVersion1|spec.FeatureMrgRxBuf, d.taken, "the protocol's own bit is not the device's")
	})
	require.EqualValues(t, 3, r.number(vhost.GetQueueNum))
	r.share(1 << 20)
	kick, call := r.queue(1)
	require.False(t, r.q(1).on, "with protocol features a queue begins disabled")
	require.False(t, r.tell(vhost.SetVringEnable, state(1, 1)))
	q := r.q(1)
	require.True(t, q.on)
	require.Equal(t, []uint64{guestBase + 4096, guestBase + 4096 + 256, guestBase + 4096 + 512}, []uint64{q.desc, q.driver, q.device})
	require.EqualValues(t, 0, q.base, "as the used ring has it, whatever the base that is told")
	require.Equal(t, 1, q.kicks, "something may have been there before")
	r.look(func(d *fakeDevice) {
		require.EqualValues(t, spec.StatusAcknowledge|spec.StatusDriver|spec.StatusFeaturesOK|spec.StatusDriverOK, d.status, "nobody says it, so the session does")
	})

	_, err := unix.Write(kick, one)
	require.NoError(t, err)
	for r.q(1).kicks < 2 {
		runtime.Gosched()
	}
	q.call()
	raised(t, call)

	r.world.Lock()
	r.dev.queues[1].base = 99
	r.world.Unlock()
	v, err := r.ask(vhost.GetVringBase, state(1, 0)).VringState()
	require.NoError(t, err)
	require.Equal(t, vhost.VringState{Index: 1, Num: 99}, v)
	require.False(t, r.q(1).on)
	q.call() // one that was under way: it goes nowhere, and to nobody else's descriptor
}

func TestWithoutProtocolFeaturesAQueueRunsAtOnce(t *testing.T) {
	r := newRig(t)
	r.tell(vhost.SetFeatures, vhost.AppendU64(nil, uint64(spec.FeatureVersion1)))
	r.share(1 << 20)
	r.queue(0)
	require.True(t, r.q(0).on)
}

func TestMemoryChangesWhileAQueueRuns(t *testing.T) {
	r := newRig(t)
	r.agree(spec.FeatureVersion1)
	r.share(1 << 20)
	r.queue(0)
	require.False(t, r.tell(vhost.SetVringEnable, state(0, 1)))
	fd := memfd(t, 1<<20)
	_, err := unix.Pwrite(fd, []byte{5, 6}, 512+2)
	require.NoError(t, err)
	moved := vhost.Region{Addr: 0x8000_0000, Size: 1 << 20, UserAddr: userBase}
	require.False(t, r.tell(vhost.SetMemTable, vhost.MemoryTable{moved}.Append(nil), fd))
	q := r.q(0)
	require.True(t, q.on)
	require.EqualValues(t, 0x8000_0000, q.desc, "the same place in the process, another on the bus")
	require.EqualValues(t, 0x0605, q.base, "where the used ring is")
	more := vhost.SingleRegion{Region: vhost.Region{Addr: 0x9000_0000, Size: 4096, UserAddr: 0x1000}}
	require.False(t, r.tell(vhost.AddMemReg, more.Append(nil), fd))
	require.True(t, r.tell(vhost.AddMemReg, more.Append(nil), fd), "it is there already")
	require.False(t, r.tell(vhost.RemMemReg, more.Append(nil)))
	require.EqualValues(t, maxSlots, r.number(vhost.GetMaxMemSlots))
	require.True(t, r.q(0).on)

	m := vhost.NewMessage(vhost.RemMemReg, vhost.SingleRegion{Region: moved}.Append(nil))
	require.NoError(t, r.conn.Send(t.Context(), m), "the queue's own memory")
	require.ErrorContains(t, r.ended(), "after a change of memory")
}

// TestARingThatWasLeftBehindWantsKicksAgain is about what a back end that was killed has said last.
func TestARingThatWasLeftBehindWantsKicksAgain(t *testing.T) {
	for _, c := range []struct {
		features spec.Features
		off      int64
	}{{spec.FeatureVersion1, 512}, {spec.FeatureVersion1 | spec.FeatureRingPacked, 512 + 2}} {
		r := newRig(t)
		r.agree(c.features)
		fd := r.share(1 << 20)
		_, err := unix.Pwrite(fd, []byte{1, 0}, c.off)
		require.NoError(t, err)
		r.queue(0)
		require.False(t, r.tell(vhost.SetVringEnable, state(0, 1)))
		var b [2]byte
		_, err = unix.Pread(fd, b[:], c.off)
		require.NoError(t, err)
		require.Zero(t, b)
	}
}

// TestABaseOfAPackedRing is one position, whether a front end tells both or the first.
func TestABaseOfAPackedRing(t *testing.T) {
	r := newRig(t)
	r.agree(spec.FeatureVersion1 | spec.FeatureRingPacked)
	r.share(1 << 20)
	r.queue(0)
	require.False(t, r.tell(vhost.SetVringBase, state(0, 0x8003)))
	require.False(t, r.tell(vhost.SetVringEnable, state(0, 1)))
	require.EqualValues(t, 0x8003_8003, r.q(0).base)
}

func TestStatusConfigurationAndReset(t *testing.T) {
	r := newRig(t)
	r.tell(vhost.SetProtocolFeatures, vhost.AppendU64(nil, r.number(vhost.GetProtocolFeatures)))
	r.ack = true
	require.False(t, r.tell(vhost.SetStatus, vhost.AppendU64(nil, spec.StatusAcknowledge|spec.StatusDriver)))
	require.False(t, r.tell(vhost.SetFeatures, vhost.AppendU64(nil, uint64(spec.FeatureVersion1|vhost.FeatureProtocolFeatures))))
	require.EqualValues(t, 3, r.number(vhost.GetStatus), "the session adds nothing of its own")
	r.share(1 << 20)
	r.queue(0)
	require.False(t, r.tell(vhost.SetVringEnable, state(0, 1)))
	require.EqualValues(t, 3, r.number(vhost.GetStatus))
	require.False(t, r.tell(vhost.SetStatus, vhost.AppendU64(nil, 15)))
	require.EqualValues(t, 15, r.number(vhost.GetStatus))

	r.look(func(d *fakeDevice) { d.config = [spec.NetConfigSize]byte{1, 2, 3, 4, 5, 6, 7} })
	c, err := r.ask(vhost.GetConfig, vhost.Config{Offset: 2, Data: make([]byte, 100)}.Append(nil)).Config()
	require.NoError(t, err)
	require.Len(t, c.Data, 100)
	require.Equal(t, []byte{3, 4, 5, 6, 7, 0}, c.Data[:6])
	require.False(t, r.tell(vhost.SetConfig, vhost.Config{Offset: 5, Data: []byte{9}}.Append(nil)))
	r.look(func(d *fakeDevice) { require.EqualValues(t, 9, d.config[5]) })
	require.True(t, r.tell(vhost.SetConfig, vhost.Config{Offset: 24, Data: []byte{9}}.Append(nil)))
	require.False(t, r.tell(vhost.NetSetMTU, vhost.AppendU64(nil, 1500)))
	require.True(t, r.tell(vhost.NetSetMTU, vhost.AppendU64(nil, 67)))

	require.False(t, r.tell(vhost.ResetDevice, nil))
	require.EqualValues(t, 0, r.number(vhost.GetStatus))
	require.False(t, r.q(0).on)
}

// TestFeaturesMayChangeWhileNoQueueRuns is what DPDK does when its port is configured once more: it says its status, and never that
// the device is to be reset.
func TestFeaturesMayChangeWhileNoQueueRuns(t *testing.T) {
	r := newRig(t)
	r.agree(spec.FeatureVersion1)
	r.share(1 << 20)
	r.queue(0)
	require.False(t, r.tell(vhost.SetVringEnable, state(0, 1)))
	require.False(t, r.tell(vhost.SetStatus, vhost.AppendU64(nil, 15)))
	features := vhost.AppendU64(nil, uint64(spec.FeatureVersion1|spec.FeatureMrgRxBuf|vhost.FeatureProtocolFeatures))
	require.True(t, r.tell(vhost.SetFeatures, features), "a queue runs")
	require.False(t, r.tell(vhost.SetVringEnable, state(0, 0)))
	_, err := r.ask(vhost.GetVringBase, state(0, 0)).VringState()
	require.NoError(t, err)
	require.False(t, r.tell(vhost.SetFeatures, features))
	require.EqualValues(t, 11, r.number(vhost.GetStatus), "as far as it is without queues")
	r.look(func(d *fakeDevice) { require.Equal(t, spec.FeatureVersion1|spec.FeatureMrgRxBuf, d.taken) })
}

// TestAFrontEndMayTakeNoFeaturesAtAll is a legacy one; and what was refused is not what was agreed on before.
func TestAFrontEndMayTakeNoFeaturesAtAll(t *testing.T) {
	ready := func(d *fakeDevice) {
		require.EqualValues(t, spec.StatusAcknowledge|spec.StatusDriver|spec.StatusFeaturesOK, d.status)
	}
	r := newRig(t)
	r.tell(vhost.SetFeatures, vhost.AppendU64(nil, 0))
	r.look(ready)

	r.agree(spec.FeatureVersion1)
	r.look(func(d *fakeDevice) { d.refuse = errors.New("not those") })
	mergeable := vhost.AppendU64(nil, uint64(spec.FeatureVersion1|spec.FeatureMrgRxBuf|vhost.FeatureProtocolFeatures))
	require.True(t, r.tell(vhost.SetFeatures, mergeable))
	r.look(func(d *fakeDevice) { d.refuse = nil })
	require.False(t, r.tell(vhost.SetFeatures, vhost.AppendU64(nil, uint64(spec.FeatureVersion1|vhost.FeatureProtocolFeatures))))
	r.look(func(d *fakeDevice) {
		ready(d)
		require.Equal(t, spec.FeatureVersion1, d.taken)
	})
}

// TestAnOwnerMayBeginAnew is what front ends do that are older than RESET_DEVICE.
func TestAnOwnerMayBeginAnew(t *testing.T) {
	r := newRig(t)
	for range 2 {
		r.agree(spec.FeatureVersion1)
		r.share(1 << 20)
		r.queue(0)
		require.False(t, r.tell(vhost.SetVringEnable, state(0, 1)))
		require.False(t, r.tell(vhost.ResetOwner, nil))
		require.False(t, r.q(0).on)
	}
}

func TestAFrontEndThatGoesIsFollowedByAnother(t *testing.T) {
	r := newRig(t)
	for i := range 3 {
		if i > 0 {
			r.connect()
		}
		r.agree(spec.FeatureVersion1)
		r.share(1 << 20)
		r.queue(0)
		require.False(t, r.tell(vhost.SetVringEnable, state(0, 1)))
		require.NoError(t, r.conn.Close())
		for r.back.Counts().Active {
			runtime.Gosched()
		}
		require.False(t, r.q(0).on)
		r.look(func(d *fakeDevice) {
			require.Zero(t, d.status)
			require.Empty(t, d.mem.table)
		})
	}
	n := r.back.Counts()
	require.EqualValues(t, 3, n.Sessions)
	require.Zero(t, n.Failed)
	require.NoError(t, r.back.LastError())
}

// TestMemoryThatIsTakenAwayEndsTheSessionOnly is about SIGBUS in a step of the world.
func TestMemoryThatIsTakenAwayEndsTheSessionOnly(t *testing.T) {
	r := newRig(t)
	r.agree(spec.FeatureVersion1)
	fd := r.share(1 << 20)
	r.look(func(d *fakeDevice) {
		d.look = guestBase + 4096
		r.world.Poke()
	})
	r.world.Step()
	require.NoError(t, unix.Ftruncate(fd, 0))
	r.world.Lock()
	r.world.Poke()
	r.world.Unlock()
	r.world.Step()
	require.ErrorContains(t, r.ended(), "made shorter")
	r.connect()
	require.NotZero(t, r.number(vhost.GetFeatures), "the next is served")
}

func TestLyingFrontEndsEndTheirSession(t *testing.T) {
	u64 := func(v uint64) []byte { return vhost.AppendU64(nil, v) }
	addr := func(a vhost.VringAddr) []byte { return a.Append(nil) }
	started := func(r *rig) {
		r.agree(spec.FeatureVersion1)
		r.share(1 << 20)
		r.queue(0)
	}
	for _, c := range []struct {
		name    string
		before  func(*rig)
		q       vhost.Request
		payload []byte
		fds     int
		want    string
	}{
		{"unknown request", nil, 77, nil, 0, "does not know"},
		{"request that was not offered", nil, vhost.SetLogBase, make([]byte, 16), 1, "does not know"},
		{"protocol feature not agreed on", nil, vhost.GetStatus, nil, 0, "STATUS"},
		{"descriptors where none belong", nil, vhost.SetOwner, nil, 2, "2 descriptors"},
		{"two owners", func(r *rig) { r.tell(vhost.SetOwner, nil) }, vhost.SetOwner, nil, 0, "an owner"},
		{"features not offered", nil, vhost.SetFeatures, u64(1 << 26), 0, "not offered"},
		{"protocol features not offered", nil, vhost.SetProtocolFeatures, u64(1 << 5), 0, "not offered"},
		{"features while a queue runs", func(r *rig) { started(r); r.tell(vhost.SetVringEnable, state(0, 1)) }, vhost.SetFeatures, u64(1 << 32), 0, "while queue 0 runs"},
		{"short payload", nil, vhost.SetFeatures, []byte{1}, 0, "malformed"},
		{"no such queue", nil, vhost.SetVringNum, state(6, 16), 0, "there are 6"},
		{"no such queue far away", nil, vhost.SetVringBase, state(1<<31, 16), 0, "there are 6"},
		{"empty queue", nil, vhost.SetVringNum, state(0, 0), 0, "want 1 to 256"},
		{"huge queue", nil, vhost.SetVringNum, state(0, 1<<31), 0, "want 1 to 256"},
		{"enable 2", nil, vhost.SetVringEnable, state(0, 2), 0, "want 0 or 1"},
		{"ring outside of memory", started, vhost.SetVringAddr, addr(vhost.VringAddr{Desc: 4096, Avail: userBase, Used: userBase}), 0, ""},
		{"log", nil, vhost.SetVringAddr, addr(vhost.VringAddr{Flags: 1}), 0, "log"},
		{"kick without its descriptor", nil, vhost.SetVringKick, u64(0), 0, "0 descriptors"},
		{"kick that is a memfd", nil, vhost.SetVringKick, u64(0), 1, "want an eventfd"},
		{"call that is a memfd", nil, vhost.SetVringCall, u64(0), 1, "want an eventfd"},
		{"call of no queue", nil, vhost.SetVringCall, u64(200), 1, "there are 6"},
		{"table without descriptors", nil, vhost.SetMemTable, vhost.MemoryTable{{Addr: 1, Size: 1}}.Append(nil), 0, "descriptors"},
		{"table longer than its file", nil, vhost.SetMemTable, vhost.MemoryTable{{Addr: 1, Size: 1 << 30}}.Append(nil), 1, "its file has"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			if c.before != nil {
				c.before(r)
			}
			var fds []int
			for range c.fds {
				fds = append(fds, memfd(t, 4096))
			}
			require.NoError(t, r.conn.Send(t.Context(), vhost.NewMessage(c.q, c.payload), fds...))
			if c.want == "" { // it shows when the queue is started
				require.NoError(t, r.conn.Send(t.Context(), vhost.NewMessage(vhost.SetVringEnable, state(0, 1))))
				c.want = "user address 0x1000"
			}
			require.ErrorContains(t, r.ended(), c.want)
			require.EqualValues(t, 1, r.back.Counts().Failed)
			r.connect()
			require.NotZero(t, r.number(vhost.GetFeatures), "the next is served")
		})
	}
}

// TestDescriptorsThatNobodyWantsAreClosed has a front end send some that are not kept.
func TestDescriptorsThatNobodyWantsAreClosed(t *testing.T) {
	r := newRig(t)
	r.agree(spec.FeatureVersion1)
	fd := eventfd(t)
	defer unix.Close(fd)
	before := openDescriptors(t)
	for range 5 {
		require.False(t, r.tell(vhost.SetVringErr, vhost.VringFD{}.Append(nil), fd))
	}
	// What came with a message is closed once it has been answered: that has happened when the next one is.
	require.NotZero(t, r.number(vhost.GetFeatures))
	require.Equal(t, before, openDescriptors(t))
}

// TestGarbageEndsTheSession is about bytes that are no message at all.
func TestGarbageEndsTheSession(t *testing.T) {
	for _, b := range [][]byte{make([]byte, 12), {1, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f}, {1, 0}} {
		r := newRig(t)
		_ = r.conn.Close()
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.path, Net: "unix"})
		require.NoError(t, err)
		_, err = c.Write(b)
		require.NoError(t, err)
		require.NoError(t, c.CloseWrite())
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err)
		require.NoError(t, c.Close())
		require.Error(t, r.back.LastError())
	}
}

// TestARingThatIsPolled has a front end that sends no kick descriptor.
func TestARingThatIsPolled(t *testing.T) {
	r := newRig(t)
	r.agree(spec.FeatureVersion1)
	r.share(1 << 20)
	r.queue(0)
	require.False(t, r.tell(vhost.SetVringEnable, state(0, 1)))
	require.False(t, r.tell(vhost.SetVringKick, vhost.VringFD{Index: 0, NoFD: true}.Append(nil)))
	before := r.q(0).kicks
	clk := r.world.Clock().(*clock.Virtual)
	for range 10 {
		clk.Advance(time.Millisecond)
		r.world.Step()
	}
	require.Equal(t, before+10, r.q(0).kicks)
}
