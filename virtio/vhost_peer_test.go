package virtio

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"bare.wire/clock"
	"bare.wire/hugepage"
	"bare.wire/virtio/spec"
	"bare.wire/virtio/spec/vhost"
	"bare.wire/vtop"
)

// vhostPeer is a back end that only talks: it answers what it is asked and notes what it is told.
type vhostPeer struct {
	t        *testing.T
	path     string
	features spec.Features
	protocol vhost.ProtocolFeatures
	queues   uint64
	// answer may do something else: send what it returns, or nothing if that is nil. ok false: as usual.
	answer func(m vhost.Message) (reply []byte, ok bool)
	linger chan struct{} // closed before the peer closes, where there is one

	mu       sync.Mutex
	said     []string
	table    vhost.MemoryTable
	memory   []int // descriptors of table
	kick     map[uint8]int
	call     map[uint8]int
	conn     *net.UnixConn
	finished chan struct{}
}

const vhostTestFeatures = spec.FeatureVersion1 | spec.FeatureMrgRxBuf | spec.FeatureRingPacked | spec.FeatureMQ | spec.FeatureCtrlVQ | spec.FeatureCtrlRx |
	spec.FeatureMAC | spec.FeatureMTU | spec.FeatureAccessPlatform | vhost.FeatureProtocolFeatures

const vhostTestProtocol = vhostProtocol | vhost.ProtocolConfig | vhost.ProtocolResetDevice | vhost.ProtocolRARP

// newVhostPeer listens for one front end.
func newVhostPeer(t *testing.T, change ...func(*vhostPeer)) *vhostPeer {
	t.Helper()
	p := &vhostPeer{t: t, path: filepath.Join(t.TempDir(), "s"), features: vhostTestFeatures, protocol: vhostTestProtocol, queues: 4}
	for _, f := range change {
		f(p)
	}
	p.listen()
	return p
}

func (p *vhostPeer) listen() {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.path, Net: "unix"})
	require.NoError(p.t, err)
	p.start(func() (*net.UnixConn, error) { defer l.Close(); return l.AcceptUnix() })
	p.t.Cleanup(func() { l.Close(); p.end() })
}

// start serves the connection that open gives.
func (p *vhostPeer) start(open func() (*net.UnixConn, error)) {
	p.kick, p.call, p.said, p.finished = map[uint8]int{}, map[uint8]int{}, nil, make(chan struct{})
	go func() {
		defer close(p.finished)
		c, err := open()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.conn = c
		p.mu.Unlock()
		p.serve(vhost.NewConn(c))
		if p.linger != nil {
			<-p.linger
		}
		c.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		vhost.CloseFDs(p.memory)
		p.memory = nil
		for _, list := range []map[uint8]int{p.kick, p.call} {
			for _, fd := range list {
				vhost.CloseFDs([]int{fd})
			}
		}
	}()
}

// end is what a kill does: the socket closes.
func (p *vhostPeer) end() {
	p.mu.Lock()
	if p.conn != nil {
		p.conn.Close()
	}
	p.mu.Unlock()
	<-p.finished
}

func (p *vhostPeer) serve(c *vhost.Conn) {
	for {
		m, fds, err := c.Receive(context.Background())
		if err != nil {
			return
		}
		p.note(m, fds)
		reply, answered := p.reply(m)
		if !answered {
			continue
		}
		if err := c.Send(context.Background(), m.Reply(reply)); err != nil {
			return
		}
	}
}

// note writes down what was said, in the words of the protocol.
func (p *vhostPeer) note(m vhost.Message, fds []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := m.Request.String()
	switch m.Request {
	case vhost.SetVringNum, vhost.SetVringBase, vhost.SetVringEnable, vhost.GetVringBase:
		s, err := m.VringState()
		line = fmt.Sprintf("%s %d %#x %v", line, s.Index, s.Num, err)
	case vhost.SetVringKick, vhost.SetVringCall:
		v, err := m.VringFD(len(fds))
		line = fmt.Sprintf("%s %d %v %v", line, v.Index, !v.NoFD, err)
		list := p.kick
		if m.Request == vhost.SetVringCall {
			list = p.call
		}
		if old, ok := list[v.Index]; ok {
			vhost.CloseFDs([]int{old})
			delete(list, v.Index)
		}
		if len(fds) == 1 {
			list[v.Index] = fds[0]
		}
	case vhost.SetMemTable:
		table, err := m.MemoryTable(len(fds))
		line = fmt.Sprintf("%s %d %v", line, len(table), err)
		vhost.CloseFDs(p.memory)
		p.table, p.memory = table, fds
	case vhost.SetVringAddr:
		a, err := m.VringAddr()
		line = fmt.Sprintf("%s %d %v", line, a.Index, err)
	case vhost.SetStatus, vhost.SetFeatures, vhost.SetProtocolFeatures, vhost.NetSetMTU:
		v, err := m.U64()
		line = fmt.Sprintf("%s %#x %v", line, v, err)
	}
	p.said = append(p.said, line)
}

func (p *vhostPeer) reply(m vhost.Message) ([]byte, bool) {
	p.mu.Lock()
	answer := p.answer
	p.mu.Unlock()
	if answer != nil {
		if reply, ok := answer(m); ok {
			return reply, reply != nil
		}
	}
	u64 := func(v uint64) ([]byte, bool) { return vhost.AppendU64(nil, v), true }
	switch m.Request {
	case vhost.GetFeatures:
		return u64(uint64(p.features))
	case vhost.GetProtocolFeatures:
		return u64(uint64(p.protocol))
	case vhost.GetQueueNum:
		return u64(p.queues)
	case vhost.GetStatus:
		return u64(spec.StatusNeedsReset | spec.StatusFeaturesOK)
	case vhost.GetVringBase:
		return m.Payload, true
	}
	if m.NeedReply() {
		return u64(0)
	}
	return nil, false
}

// says changes what the peer answers from now on.
func (p *vhostPeer) says(answer func(m vhost.Message) ([]byte, bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func (p *vhostPeer) socket() *net.UnixConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn
}

// fd is the descriptor of a queue in one of the lists.
func (p *vhostPeer) fd(list map[uint8]int, queue uint8) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return list[queue]
}

// heard is what was said since the last call.
func (p *vhostPeer) heard() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	said := p.said
	p.said = nil
	return said
}

// look gives the bytes of the memory at a bus address, as the back end sees them.
func (p *vhostPeer) look(addr uint64, n int) []byte {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range p.table {
		if !r.Contains(addr, uint64(n)) {
			continue
		}
		mem, err := unix.Mmap(p.memory[i], int64(r.Offset), int(r.Size), unix.PROT_READ, unix.MAP_SHARED)
		require.NoError(p.t, err)
		defer func() { require.NoError(p.t, unix.Munmap(mem)) }()
		return append([]byte(nil), mem[addr-r.Addr:][:n]...)
	}
	require.Fail(p.t, "not in the table", "%#x in %+v", addr, p.table)
	return nil
}

// vhostRig is a front end and the space that it is attached to.
type vhostRig struct {
	t     *testing.T
	peer  *vhostPeer
	space *vtop.Space
	clock *clock.Virtual
	port  *vhostTransport
}

func dialPeer(t *testing.T, p *vhostPeer, change ...func(*VhostOptions)) *vhostRig {
	t.Helper()
	r := &vhostRig{t: t, peer: p, space: vtop.NewMapped(), clock: clock.NewVirtual(time.Unix(0, 0))}
	r.dial(change...)
	t.Cleanup(func() { r.port.Close() })
	return r
}

func (r *vhostRig) dial(change ...func(*VhostOptions)) {
	r.t.Helper()
	opt := VhostOptions{Space: r.space, Clock: r.clock}
	for _, f := range change {
		f(&opt)
	}
	tr, err := DialVhost(r.t.Context(), r.peer.path, opt)
	require.NoError(r.t, err)
	r.port = tr.(*vhostTransport)
}

// region adds memory to the space.
func (r *vhostRig) region() *hugepage.Region {
	r.t.Helper()
	m := newVhostRegion(r.t)
	require.NoError(r.t, r.space.Add(m))
	return m
}

func newVhostRegion(t *testing.T) *hugepage.Region {
	t.Helper()
	m, err := hugepage.Alloc(hugepage.Config{Size: 64 << 10, PageSize: os.Getpagesize(), Node: hugepage.AnyNode})
	require.NoError(t, err)
	return m
}

// area is a queue at the beginning of a region.
func (r *vhostRig) area(m *hugepage.Region, vector int) QueueArea {
	r.t.Helper()
	bus, err := r.space.Bus(m.Base(), m.Size())
	require.NoError(r.t, err)
	l, err := spec.NewSplitLayout(256, 4)
	require.NoError(r.t, err)
	return QueueArea{Size: 256, Desc: bus, Driver: bus + uint64(l.Avail), Device: bus + uint64(l.Used), Vector: vector}
}

// ready takes the device through its states as a driver does, with queues enabled.
func (r *vhostRig) ready(m *hugepage.Region, queues int) []Doorbell {
	r.t.Helper()
	ctx := r.t.Context()
	require.NoError(r.t, r.port.Reset(ctx))
	require.NoError(r.t, r.port.AddStatus(ctx, spec.StatusAcknowledge|spec.StatusDriver))
	f, err := r.port.Features()
	require.NoError(r.t, err)
	require.NoError(r.t, r.port.SetFeatures(f))
	require.NoError(r.t, r.port.AddStatus(ctx, spec.StatusFeaturesOK))
	var bells []Doorbell
	for i := range queues {
		bell, err := r.port.EnableQueue(ctx, i, r.area(m, i))
		require.NoError(r.t, err)
		bells = append(bells, bell)
	}
	require.NoError(r.t, r.port.AddStatus(ctx, spec.StatusDriverOK))
	return bells
}
