package virtio

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"bare.wire/clock"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
	"bare.wire/virtio/spec/vhost"
	"bare.wire/vtop"
)

var _ PairSetter = (*vhostTransport)(nil)

func TestVhostSaysThingsInTheOrderThatBackEndsWant(t *testing.T) {
	r := dialPeer(t, newVhostPeer(t), func(o *VhostOptions) { o.MTU = 9000 })
	assert.Equal(t, []string{"SET_OWNER", "GET_FEATURES", "GET_PROTOCOL_FEATURES", "SET_PROTOCOL_FEATURES 0x10019 <nil>", "GET_QUEUE_NUM"}, r.peer.heard())
	offered, err := r.port.Features()
	require.NoError(t, err)
	assert.Equal(t, "mtu,mrg_rxbuf,mq,version_1,ring_packed", offered.String(), "what needs a control queue, or an IOMMU, is not")
	n, err := r.port.Queues()
	require.NoError(t, err)
	assert.Equal(t, 8, n)

	m := r.region()
	n, err = r.port.Interrupts(9, func(int) {})
	require.NoError(t, err)
	require.Equal(t, 9, n)
	assert.Empty(t, r.peer.heard())
	r.ready(m, 4)
	assert.Equal(t, []string{
		"SET_STATUS 0x0 <nil>", "SET_STATUS 0x3 <nil>",
		"SET_FEATURES 0x540408008 <nil>", "NET_SET_MTU 0x2328 <nil>", "SET_STATUS 0xb <nil>",
		"SET_MEM_TABLE 1 <nil>",
		"SET_VRING_CALL 0 true <nil>", "SET_VRING_NUM 0 0x100 <nil>", "SET_VRING_BASE 0 0x0 <nil>", "SET_VRING_ADDR 0 <nil>",
		"SET_VRING_CALL 1 true <nil>", "SET_VRING_NUM 1 0x100 <nil>", "SET_VRING_BASE 1 0x0 <nil>", "SET_VRING_ADDR 1 <nil>",
		"SET_VRING_CALL 2 true <nil>", "SET_VRING_NUM 2 0x100 <nil>", "SET_VRING_BASE 2 0x0 <nil>", "SET_VRING_ADDR 2 <nil>",
		"SET_VRING_CALL 3 true <nil>", "SET_VRING_NUM 3 0x100 <nil>", "SET_VRING_BASE 3 0x0 <nil>", "SET_VRING_ADDR 3 <nil>",
		// Nothing may be used before DRIVER_OK, and the second pair not before it is asked for.
		"SET_VRING_KICK 0 true <nil>", "SET_VRING_ENABLE 0 0x1 <nil>", "SET_VRING_KICK 1 true <nil>", "SET_VRING_ENABLE 1 0x1 <nil>",
		"SET_VRING_KICK 2 true <nil>", "SET_VRING_KICK 3 true <nil>",
		"SET_STATUS 0xf <nil>",
	}, r.peer.heard())

	require.NoError(t, r.port.SetPairs(t.Context(), 2))
	assert.Equal(t, []string{"SET_VRING_ENABLE 2 0x1 <nil>", "SET_VRING_ENABLE 3 0x1 <nil>"}, r.peer.heard())
	require.NoError(t, r.port.SetPairs(t.Context(), 1))
	assert.Equal(t, []string{"SET_VRING_ENABLE 2 0x0 <nil>", "SET_VRING_ENABLE 3 0x0 <nil>"}, r.peer.heard())
	require.Error(t, r.port.SetPairs(t.Context(), 5))
	require.Error(t, r.port.SetPairs(t.Context(), 0))

	s, err := r.port.Status()
	require.NoError(t, err)
	assert.EqualValues(t, spec.StatusNeedsReset|spec.StatusFeaturesOK, s, "the back end's")
	r.peer.heard()
	require.NoError(t, r.port.Reset(t.Context()))
	assert.Equal(t, []string{
		"SET_VRING_ENABLE 0 0x0 <nil>", "GET_VRING_BASE 0 0x0 <nil>", "SET_VRING_ENABLE 1 0x0 <nil>", "GET_VRING_BASE 1 0x0 <nil>",
		"GET_VRING_BASE 2 0x0 <nil>", "GET_VRING_BASE 3 0x0 <nil>", "SET_STATUS 0x0 <nil>",
	}, r.peer.heard())
	require.NoError(t, r.port.Close())
	require.NoError(t, r.port.Close(), "again")
}

func TestVhostSimpleBackEnd(t *testing.T) {
	t.Run("no protocol features: queues are enabled by their kick", func(t *testing.T) {
		r := dialPeer(t, newVhostPeer(t, func(p *vhostPeer) { p.features &^= vhost.FeatureProtocolFeatures }))
		r.ready(r.region(), 2)
		assert.Equal(t, []string{
			"SET_OWNER", "GET_FEATURES", "SET_FEATURES 0x500008000 <nil>", "GET_FEATURES", "SET_MEM_TABLE 1 <nil>", "GET_FEATURES",
			"SET_VRING_CALL 0 false <nil>", "SET_VRING_NUM 0 0x100 <nil>", "SET_VRING_BASE 0 0x0 <nil>", "SET_VRING_ADDR 0 <nil>",
			"SET_VRING_CALL 1 false <nil>", "SET_VRING_NUM 1 0x100 <nil>", "SET_VRING_BASE 1 0x0 <nil>", "SET_VRING_ADDR 1 <nil>",
			"SET_VRING_KICK 0 true <nil>", "SET_VRING_KICK 1 true <nil>",
		}, r.heardAfter(t))
		s, err := r.port.Status()
		require.NoError(t, err)
		assert.EqualValues(t, 15, s, "kept by the front end")
		n, err := r.port.Queues()
		require.NoError(t, err)
		assert.Equal(t, 2, n)
	})
	t.Run("packed rings begin with both wrap counters set", func(t *testing.T) {
		r := dialPeer(t, newVhostPeer(t))
		area := r.area(r.region(), -1)
		area.Packed = true
		_, err := r.port.EnableQueue(t.Context(), 1, area)
		require.NoError(t, err)
		assert.Contains(t, r.peer.heard(), "SET_VRING_BASE 1 0x80008000 <nil>")
	})
	t.Run("a queue that is disabled and enabled while the device runs", func(t *testing.T) {
		r := dialPeer(t, newVhostPeer(t))
		m := r.region()
		r.ready(m, 2)
		r.peer.heard()
		require.NoError(t, r.port.DisableQueue(t.Context(), 1))
		require.NoError(t, r.port.DisableQueue(t.Context(), 1))
		assert.Equal(t, []string{"SET_VRING_ENABLE 1 0x0 <nil>", "GET_VRING_BASE 1 0x0 <nil>"}, r.peer.heard())
		_, err := r.port.EnableQueue(t.Context(), 1, r.area(m, -1))
		require.NoError(t, err)
		said := r.peer.heard()
		assert.Equal(t, []string{"SET_VRING_KICK 1 true <nil>", "SET_VRING_ENABLE 1 0x1 <nil>"}, said[len(said)-2:])
		_, err = r.port.EnableQueue(t.Context(), 1, r.area(m, -1))
		require.ErrorContains(t, err, "enable queue 1: it is")
	})
}

// heardAfter lets the peer come to the end of what it was told without an answer.
func (r *vhostRig) heardAfter(t *testing.T) []string {
	t.Helper()
	require.NoError(t, r.port.settle(t.Context()))
	said := r.peer.heard()
	return said[:len(said)-1]
}

func TestVhostConfigurationIsWhatTheFrontEndKnows(t *testing.T) {
	r := dialPeer(t, newVhostPeer(t), func(o *VhostOptions) { o.MTU, o.Queues = 1500, 3 })
	var p [4]byte
	require.NoError(t, r.port.ReadConfig(spec.NetMaxPairs, p[:]))
	assert.Equal(t, [4]byte{3, 0, 0xdc, 0x05}, p)
	require.Error(t, r.port.ReadConfig(spec.NetMTU, p[:]), "beyond the end")
	require.Error(t, r.port.ReadConfig(-1, p[:]))
	require.ErrorIs(t, r.port.WriteConfig(0, p[:]), errors.ErrUnsupported)
	n, err := r.port.QueueSize(5)
	require.NoError(t, err)
	assert.Equal(t, vhostQueueSize, n)
	n, err = r.port.QueueSize(6)
	require.NoError(t, err)
	assert.Zero(t, n)
	assert.False(t, r.port.Legacy())
	assert.True(t, strings.HasPrefix(r.port.Name(), "vhost-user:/"))
}

func TestVhostMemoryIsTheSpaces(t *testing.T) {
	r := dialPeer(t, newVhostPeer(t))
	first := r.region()
	bus, err := r.space.Bus(first.Base(), 16)
	require.NoError(t, err)
	r.ready(first, 2)
	first.Bytes()[5] = 77
	assert.EqualValues(t, 77, r.peer.look(bus, 16)[5], "it is the same memory")
	r.peer.heard()

	second := r.region()
	assert.Equal(t, []string{"SET_MEM_TABLE 2 <nil>"}, r.peer.heard(), "a region that comes later is shown at once")
	bus2, err := r.space.Bus(second.Base(), 16)
	require.NoError(t, err)
	second.Bytes()[6] = 78
	assert.EqualValues(t, 78, r.peer.look(bus2, 16)[6])

	require.NoError(t, r.space.Remove(t.Context(), second))
	assert.Equal(t, []string{"SET_MEM_TABLE 1 <nil>"}, r.peer.heard(), "taken away before the memory goes")
	require.NoError(t, second.Close())

	// A back end that does not let go keeps the memory.
	third := r.region()
	r.peer.says(func(m vhost.Message) ([]byte, bool) { return vhost.AppendU64(nil, 1), m.Request == vhost.SetMemTable })
	require.ErrorContains(t, r.space.Remove(t.Context(), third), "the back end refuses SET_MEM_TABLE")
	require.Error(t, third.Close())
	require.NoError(t, r.port.goneError())
	r.peer.says(nil)
	require.NoError(t, r.space.Remove(t.Context(), third))
	require.NoError(t, third.Close())

	// One that takes no more, and then does not say what it has, is of no use any more.
	fourth := newVhostRegion(t)
	r.peer.says(func(m vhost.Message) ([]byte, bool) { return vhost.AppendU64(nil, 1), m.Request == vhost.SetMemTable })
	require.ErrorContains(t, r.space.Add(fourth), "the back end refuses SET_MEM_TABLE")
	require.ErrorIs(t, r.port.goneError(), nic.ErrGone)
	require.NoError(t, r.space.Add(fourth), "and does not keep others from theirs")
	require.NoError(t, r.port.Close())
	require.NoError(t, r.space.Remove(t.Context(), fourth))
	require.NoError(t, fourth.Close())
}

func TestVhostQueueOutsideTheMemory(t *testing.T) {
	r := dialPeer(t, newVhostPeer(t))
	good := r.area(r.region(), -1)
	for name, change := range map[string]func(*QueueArea){
		"descriptors": func(a *QueueArea) { a.Desc -= 16 },
		"driver area": func(a *QueueArea) { a.Driver += 1 << 20 },
		"device area": func(a *QueueArea) { a.Device = a.Desc + 64<<10 - 2053 }, // one byte short
	} {
		bad := good
		change(&bad)
		_, err := r.port.EnableQueue(t.Context(), 0, bad)
		assert.ErrorContains(t, err, name)
	}
	_, err := r.port.EnableQueue(t.Context(), 8, good)
	require.ErrorContains(t, err, "there are 8")
	require.Error(t, r.port.DisableQueue(t.Context(), -1))
}

func TestVhostNinthRegionIsRefused(t *testing.T) {
	r := dialPeer(t, newVhostPeer(t))
	for range vhost.MaxRegions {
		r.region()
	}
	ninth := newVhostRegion(t)
	require.ErrorContains(t, r.space.Add(ninth), "CONFIGURE_MEM_SLOTS")
	require.NoError(t, ninth.Close())

	space := vtop.NewMapped()
	for range vhost.MaxRegions + 1 {
		require.NoError(t, space.Add(newVhostRegion(t)))
	}
	p := newVhostPeer(t)
	_, err := DialVhost(t.Context(), p.path, VhostOptions{Space: space, Clock: r.clock})
	require.ErrorContains(t, err, "CONFIGURE_MEM_SLOTS")
	<-p.finished // the socket has been closed
}

func TestVhostKicksAndCalls(t *testing.T) {
	r := dialPeer(t, newVhostPeer(t))
	fired := make(chan int, 10)
	n, err := r.port.Interrupts(3, func(v int) { fired <- v })
	require.NoError(t, err)
	require.Equal(t, 3, n)
	bells := r.ready(r.region(), 2)
	bells[1].Ring(0)
	bells[1].Ring(0)
	var count [8]byte
	_, err = unix.Read(r.peer.fd(r.peer.kick, 1), count[:])
	require.NoError(t, err)
	assert.EqualValues(t, 2, count[0])
	_, err = unix.Read(r.peer.fd(r.peer.kick, 0), count[:])
	require.ErrorIs(t, err, unix.EAGAIN, "the other queue was not kicked")

	for _, v := range []uint8{1, 0, 1} {
		_, err = unix.Write(r.peer.fd(r.peer.call, v), []byte{1, 7: 0})
		require.NoError(t, err)
		assert.EqualValues(t, v, <-fired)
	}
	_, err = r.port.Interrupts(1, nil)
	require.NoError(t, err)
	_, err = unix.Write(r.peer.fd(r.peer.call, 0), []byte{1, 7: 0})
	require.NoError(t, err, "the back end does not know")
	require.Empty(t, fired)
	_, ok := r.port.calls.fd(0)
	require.False(t, ok)
}

// TestVhostInterruptsAreOffWhenNoneRuns: whoever switches them off may take away what they use.
func TestVhostInterruptsAreOffWhenNoneRuns(t *testing.T) {
	r := dialPeer(t, newVhostPeer(t))
	var running atomic.Bool
	begun, release := make(chan struct{}), make(chan struct{})
	_, err := r.port.Interrupts(1, func(int) {
		running.Store(true)
		close(begun)
		<-release
		for range 1000 {
			runtime.Gosched()
		}
		running.Store(false)
	})
	require.NoError(t, err)
	area := r.area(r.region(), 0)
	_, err = r.port.EnableQueue(t.Context(), 0, area)
	require.NoError(t, err)
	_, err = unix.Write(r.peer.fd(r.peer.call, 0), []byte{1, 7: 0})
	require.NoError(t, err)
	<-begun
	go close(release)
	_, err = r.port.Interrupts(1, nil)
	require.NoError(t, err)
	require.False(t, running.Load())
}

// counts are the descriptors and goroutines of this process.
func counts(t *testing.T) (files, goroutines int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list), runtime.NumGoroutine()
}

func TestVhostBackEndKilledAndStartedAgain(t *testing.T) {
	p := newVhostPeer(t)
	r := dialPeer(t, p)
	m := r.region()
	var files, goroutines int
	for round := range 4 {
		gone := make(chan error, 2)
		r.port.OnGone(func(err error) { gone <- err })
		_, err := r.port.Interrupts(3, func(int) {})
		require.NoError(t, err)
		bells := r.ready(m, 2)
		p.end()
		err = <-gone
		require.ErrorIs(t, err, nic.ErrGone)
		require.ErrorContains(t, err, "closed the socket")
		late := make(chan error, 1)
		r.port.OnGone(func(err error) { late <- err })
		require.ErrorIs(t, <-late, nic.ErrGone, "who asks late is told too")

		ctx := t.Context()
		bells[0].Ring(0)
		require.ErrorIs(t, r.port.Reset(ctx), nic.ErrGone)
		_, err = r.port.Status()
		require.ErrorIs(t, err, nic.ErrGone)
		require.ErrorIs(t, r.port.AddStatus(ctx, 1), nic.ErrGone)
		require.ErrorIs(t, r.port.SetFeatures(0), nic.ErrGone)
		_, err = r.port.Features()
		require.ErrorIs(t, err, nic.ErrGone)
		require.ErrorIs(t, r.port.DisableQueue(ctx, 0), nic.ErrGone)
		require.NoError(t, r.port.Close())
		require.Empty(t, gone, "told once")

		if round == 0 {
			files, goroutines = counts(t)
		} else {
			f, g := counts(t)
			require.Equal(t, files, f, "open files")
			require.LessOrEqual(t, g, goroutines+1, "goroutines")
		}
		p.listen()
		r.dial()
	}
}

func TestVhostBackEndThatDoesNotAnswer(t *testing.T) {
	p := newVhostPeer(t)
	r := dialPeer(t, p)
	m := r.region()
	r.ready(m, 2)
	silent := make(chan struct{})
	var held []byte
	p.says(func(q vhost.Message) ([]byte, bool) {
		if q.Request != vhost.GetVringBase {
			return nil, false
		}
		held = q.Payload
		close(silent)
		return nil, true
	})
	closed := make(chan error)
	go func() { closed <- r.port.Close() }()
	<-silent
	r.clock.AdvanceTo(r.clock.Nanos() + int64(vhostTimeout))
	err := <-closed
	require.ErrorContains(t, err, "GET_VRING_BASE: no answer from the back end within 10s")
	require.ErrorContains(t, err, "may still use the memory")
	require.Error(t, m.Close(), "it is still mapped")

	// The answer comes at last, to a request that nobody waits for; the next one works.
	p.says(nil)
	c := vhost.NewConn(p.socket())
	require.NoError(t, c.Send(t.Context(), vhost.NewMessage(vhost.GetVringBase, nil).Reply(held)))
	require.NoError(t, r.port.Close())
	require.NoError(t, r.space.Remove(t.Context(), m))
	require.NoError(t, m.Close())
}

func TestVhostWaitsEndWithTheirContext(t *testing.T) {
	enough := errors.New("enough")
	p := newVhostPeer(t)
	r := dialPeer(t, p)
	r.ready(r.region(), 2)
	ctx, cancel := context.WithCancelCause(t.Context())
	p.says(func(q vhost.Message) ([]byte, bool) {
		if q.Request != vhost.GetVringBase {
			return nil, false
		}
		cancel(enough)
		return nil, true
	})
	require.ErrorIs(t, r.port.Reset(ctx), enough)
	require.NoError(t, r.port.goneError(), "which is no reason to give up the device")
	p.end()
}

func TestVhostRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		peer func(*vhostPeer)
		opt  func(*VhostOptions)
		want string
	}{
		{"too old", func(p *vhostPeer) { p.features = spec.FeatureMrgRxBuf }, nil, "does not offer version_1"},
		{"too few queues", nil, func(o *VhostOptions) { o.Queues = 5 }, "has 4 queue pairs, 5 were asked for"},
		{"only one without mq", func(p *vhostPeer) { p.protocol &^= vhost.ProtocolMQ }, func(o *VhostOptions) { o.Queues = 2 }, "has 1 queue pairs"},
		{"no queues", func(p *vhostPeer) { p.queues = 0 }, nil, "no queues"},
		{"no clock", nil, func(o *VhostOptions) { o.Clock = nil }, "required"},
		{"queues beyond all numbers", nil, func(o *VhostOptions) { o.Queues = 129 }, "129 queue pairs"},
		{"an MTU that IPv4 cannot use", nil, func(o *VhostOptions) { o.MTU = 67 }, "MTU of 67"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.peer == nil {
				c.peer = func(*vhostPeer) {}
			}
			p := newVhostPeer(t, c.peer)
			opt := VhostOptions{Space: vtop.NewMapped(), Clock: clock.NewVirtual(time.Unix(0, 0))}
			if c.opt != nil {
				c.opt(&opt)
			}
			_, err := DialVhost(t.Context(), p.path, opt)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := DialVhost(t.Context(), filepath.Join(t.TempDir(), "s"), VhostOptions{Space: vtop.NewMapped(), Clock: clock.NewVirtual(time.Unix(0, 0))})
	require.ErrorContains(t, err, "no back end listens there")

	r := dialPeer(t, newVhostPeer(t))
	r.peer.says(func(m vhost.Message) ([]byte, bool) { return vhost.AppendU64(nil, 5), m.NeedReply() })
	require.ErrorContains(t, r.port.SetFeatures(spec.FeatureVersion1), "refuses SET_FEATURES (it answers 5)")
	require.ErrorContains(t, r.port.SetFeatures(spec.FeatureCSum), "csum are not offered")
	require.NoError(t, r.port.goneError())
}

func TestVhostListens(t *testing.T) {
	server := func(o *VhostOptions) { o.Server = true }
	connect := func(p *vhostPeer) {
		p.start(func() (*net.UnixConn, error) {
			for {
				c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: p.path, Net: "unix"})
				if err == nil {
					return c, nil
				}
				runtime.Gosched()
			}
		})
	}
	p := &vhostPeer{t: t, path: filepath.Join(t.TempDir(), "s"), features: vhostTestFeatures, protocol: vhostTestProtocol, queues: 1}
	// What a process that was killed leaves behind.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	opt := VhostOptions{Space: vtop.NewMapped(), Clock: clock.NewVirtual(time.Unix(0, 0)), Server: true}
	_, err = DialVhost(t.Context(), p.path, opt)
	require.ErrorContains(t, err, "another process listens there")
	require.NoError(t, l.Close())

	for range 2 {
		connect(p)
		r := dialPeer(t, p, server)
		r.ready(r.region(), 2)
		_, err = os.Lstat(p.path)
		require.ErrorIs(t, err, os.ErrNotExist, "there can be only one")
		require.NoError(t, r.port.Close())
		<-p.finished
	}

	require.NoError(t, os.WriteFile(p.path, nil, 0o600))
	_, err = DialVhost(t.Context(), p.path, opt)
	require.ErrorContains(t, err, "something that is no socket")
	require.NoError(t, os.Remove(p.path))
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for {
			if _, err := os.Lstat(p.path); err == nil {
				cancel(enough)
				return
			}
			runtime.Gosched()
		}
	}()
	_, err = DialVhost(ctx, p.path, opt)
	require.ErrorIs(t, err, enough)
}
