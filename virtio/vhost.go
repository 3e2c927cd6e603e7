package virtio

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"bare.wire/clock"
	"bare.wire/virtio/spec"
	"bare.wire/virtio/spec/vhost"
	"bare.wire/vtop"
)

const (
	// vhostTimeout bounds each request to a back end, which may be busy with a burst on a machine that has other things to do.
	vhostTimeout = 10 * time.Second
	// vhostQueueSize is the most descriptors that a queue is given: the front end chooses, and no back end needs more.
	vhostQueueSize = 4096
	// vhostMaxPairs is what SET_VRING_KICK can number, whose queue numbers have eight bits.
	vhostMaxPairs = 128
)

// VhostOptions are what DialVhost needs beside the path of the socket.
type VhostOptions struct {
	// Space holds the memory that the back end gets to see: all of it, regions that are added later too.
	Space *vtop.Space
	// Server says that the path is to be listened on, and the back end connects.
	Server bool
	// Queues is the number of queue pairs that there are to be; 0: as many as the back end has.
	Queues int
	// MTU is what the back end is told, if it wants to know; 0: nothing.
	MTU int
	// Clock measures every wait. Logger gets what people should know; nil: nothing is logged.
	Clock  clock.Clock
	Logger *slog.Logger
}

// vhostTransport is the front end of a vhost-user session: the device is in another process, which is told over a socket where
// the rings are, and which shares the memory of the Space with this one. After that both only use the rings, and eventfds.
//
// What a device on a bus has registers for, and a back end has not, is kept here: the device status, unless the back end wants to
// know it (ProtocolStatus), and the configuration. There is no control queue, and there are no filters: every frame is received.
//
// The back end can write to all memory in the Space until the session is over. What it writes into rings is checked by the driver;
// nothing can be done about a back end that writes where it has no business: run it with no more rights than the driver has.
//
// A session that is over stays so: a back end that is started again is reached by Close, and a new DialVhost.
type vhostTransport struct {
	*vhostSession
	space *vtop.Space
	mtu   int
	pairs int // that there are

	offered  spec.Features // what the driver may take
	backend  spec.Features // what the back end offered
	protocol vhost.ProtocolFeatures

	mu     sync.Mutex // one request at a time; guards what follows
	status uint8
	active int // pairs in use
	queues []vhostQueue
	memory vhostMemory
	closed bool

	calls vhostCalls
}

// vhostQueue is what the back end has been told about a queue.
type vhostQueue struct {
	kick    *vhostKick // kept from the first EnableQueue to Close
	up      bool       // it has the addresses
	started bool       // … and the kick descriptor, and may use the ring once enabled
	enabled bool
}

// About is "virtio-net (vhost-user)".
func (t *vhostTransport) About() string { return "virtio-net (vhost-user)" }

// Legacy is false: the back ends of today all have spec.FeatureVersion1, and DialVhost refuses others.
func (t *vhostTransport) Legacy() bool { return false }

// Reset stops all queues: GET_VRING_BASE is answered when the back end has let go of one.
func (t *vhostTransport) Reset(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.stopQueues(ctx); err != nil {
		return err
	}
	return t.setStatus(ctx, 0)
}

func (t *vhostTransport) stopQueues(ctx context.Context) error {
	for i := range t.queues {
		if err := t.stopQueue(ctx, i); err != nil {
			return err
		}
	}
	t.active = 1
	return nil
}

// Status is what the driver has set, or what the back end says.
func (t *vhostTransport) Status() (uint8, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.goneError(); err != nil {
		return 0, err
	}
	if !t.protocol.Has(vhost.ProtocolStatus) {
		return t.status, nil
	}
	v, err := t.askU64(context.Background(), vhost.GetStatus)
	if err == nil && v > 0xff {
		err = t.broke("its device status is %#x, which has more than eight bits", v)
	}
	return uint8(v), err
}

// AddStatus starts the queues when the driver is ready: without ProtocolStatus a back end would not wait for that.
func (t *vhostTransport) AddStatus(ctx context.Context, bits uint8) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := t.status | bits
	if next&spec.StatusDriverOK != 0 && t.status&spec.StatusDriverOK == 0 {
		for i := range t.queues {
			if err := t.startQueue(ctx, i); err != nil {
				return err
			}
		}
	}
	return t.setStatus(ctx, next)
}

func (t *vhostTransport) setStatus(ctx context.Context, status uint8) error {
	if err := t.goneError(); err != nil {
		return err
	}
	if t.protocol.Has(vhost.ProtocolStatus) {
		if err := t.tell(ctx, vhost.SetStatus, vhost.AppendU64(nil, uint64(status))); err != nil {
			return err
		}
	}
	t.status = status
	return nil
}

// Features are what the back end offers and what the front end does for it.
func (t *vhostTransport) Features() (spec.Features, error) { return t.offered, t.goneError() }

// SetFeatures tells the back end; bits that only the front end has to do with are left out.
func (t *vhostTransport) SetFeatures(f spec.Features) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if extra := f &^ t.offered; extra != 0 {
		return fmt.Errorf("%s: the features %v are not offered", t.Name(), extra)
	}
	ctx := context.Background()
	told := f&t.backend | t.backend&vhost.FeatureProtocolFeatures
	if err := t.tell(ctx, vhost.SetFeatures, vhost.AppendU64(nil, uint64(told))); err != nil {
		return err
	}
	if f.Has(spec.FeatureMTU) && t.protocol.Has(vhost.ProtocolNetMTU) {
		if err := t.tell(ctx, vhost.NetSetMTU, vhost.AppendU64(nil, uint64(t.mtu))); err != nil {
			return err
		}
	}
	return t.settle(ctx)
}

// ReadConfig reads from the configuration that the front end makes up: the number of pairs and the MTU.
func (t *vhostTransport) ReadConfig(off int, p []byte) error {
	var c [spec.NetMTU + 2]byte
	binary.LittleEndian.PutUint16(c[spec.NetMaxPairs:], uint16(t.pairs))
	binary.LittleEndian.PutUint16(c[spec.NetMTU:], uint16(t.mtu))
	if off < 0 || off > len(c) || len(p) > len(c)-off {
		return fmt.Errorf("%s: %d bytes from %d on of a configuration of %d: a vhost-user back end has no more", t.Name(), len(p), off, len(c))
	}
	for i := range p {
		p[i] = c[off+i]
	}
	return t.goneError()
}

// WriteConfig has nothing to write to.
func (t *vhostTransport) WriteConfig(int, []byte) error {
	return fmt.Errorf("%s: write to the configuration: a vhost-user back end has none: %w", t.Name(), errors.ErrUnsupported)
}

// Queues are those of all pairs.
func (t *vhostTransport) Queues() (int, error) { return len(t.queues), t.goneError() }

// QueueSize is the same for all: the front end chooses.
func (t *vhostTransport) QueueSize(queue int) (int, error) {
	if queue < 0 || queue >= len(t.queues) {
		return 0, t.goneError()
	}
	return vhostQueueSize, t.goneError()
}

// EnableQueue tells the back end where a queue lies. It starts with spec.StatusDriverOK, or at once if that is set. The call
// descriptor comes first, for back ends make a queue of it, and the kick descriptor last, for they take it as the start.
func (t *vhostTransport) EnableQueue(ctx context.Context, queue int, at QueueArea) (Doorbell, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if queue < 0 || queue >= len(t.queues) {
		return nil, fmt.Errorf("%s: enable queue %d: there are %d", t.Name(), queue, len(t.queues))
	}
	q := &t.queues[queue]
	if q.up {
		return nil, fmt.Errorf("%s: enable queue %d: it is", t.Name(), queue)
	}
	if err := t.memory.reaches(queue, at); err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name(), err)
	}
	if err := t.showMemory(ctx); err != nil {
		return nil, err
	}
	if err := t.describeQueue(ctx, queue, at); err != nil {
		return nil, err
	}
	if q.kick == nil {
		kick, err := newVhostKick()
		if err != nil {
			return nil, fmt.Errorf("%s: queue %d: %w", t.Name(), queue, err)
		}
		q.kick = kick
	}
	if t.status&spec.StatusDriverOK != 0 {
		if err := t.startQueue(ctx, queue); err != nil {
			return nil, err
		}
	}
	return q.kick, nil
}

// describeQueue tells all of a queue but its kick descriptor. Whatever was told, the queue is taken back by stopQueue.
func (t *vhostTransport) describeQueue(ctx context.Context, queue int, at QueueArea) error {
	index := uint32(queue)
	base := uint32(0)
	if at.Packed {
		base = vhost.BaseWrap | vhost.BaseWrap<<16
	}
	t.queues[queue].up = true
	if err := t.setCall(ctx, queue, at.Vector); err != nil {
		return err
	}
	for _, m := range []vhost.Message{
		vhost.NewMessage(vhost.SetVringNum, vhost.VringState{Index: index, Num: uint32(at.Size)}.Append(nil)),
		vhost.NewMessage(vhost.SetVringBase, vhost.VringState{Index: index, Num: base}.Append(nil)),
		// Addresses of the process are the bus addresses: see vhostMemory.
		vhost.NewMessage(vhost.SetVringAddr, vhost.VringAddr{Index: index, Desc: at.Desc, Used: at.Device, Avail: at.Driver}.Append(nil)),
	} {
		if err := t.tell(ctx, m.Request, m.Payload); err != nil {
			return fmt.Errorf("queue %d: %w", queue, err)
		}
	}
	return nil
}

func (t *vhostTransport) setCall(ctx context.Context, queue, vector int) error {
	fd, ok := t.calls.fd(vector)
	call := vhost.VringFD{Index: uint8(queue), NoFD: !ok}.Append(nil)
	if !ok {
		return t.tell(ctx, vhost.SetVringCall, call)
	}
	return t.tell(ctx, vhost.SetVringCall, call, fd)
}

// startQueue lets the back end use a queue that it has been told about.
func (t *vhostTransport) startQueue(ctx context.Context, queue int) error {
	q := &t.queues[queue]
	if !q.up || q.started {
		return nil
	}
	kick := vhost.VringFD{Index: uint8(queue)}.Append(nil)
	q.started = true
	if err := t.tell(ctx, vhost.SetVringKick, kick, q.kick.fd); err != nil {
		return fmt.Errorf("queue %d: %w", queue, err)
	}
	return t.enableQueue(ctx, queue, queue < 2*t.active)
}

// enableQueue switches a queue that has been started. Without protocol features queues are always on.
func (t *vhostTransport) enableQueue(ctx context.Context, queue int, on bool) error {
	q := &t.queues[queue]
	if q.enabled == on || t.backend&vhost.FeatureProtocolFeatures == 0 {
		return nil
	}
	state := vhost.VringState{Index: uint32(queue)}
	if on {
		state.Num = 1
	}
	if err := t.tell(ctx, vhost.SetVringEnable, state.Append(nil)); err != nil {
		return fmt.Errorf("queue %d: %w", queue, err)
	}
	q.enabled = on
	return nil
}

// DisableQueue stops a queue; it can be enabled again, and then begins anew.
func (t *vhostTransport) DisableQueue(ctx context.Context, queue int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if queue < 0 || queue >= len(t.queues) {
		return fmt.Errorf("%s: disable queue %d: there are %d", t.Name(), queue, len(t.queues))
	}
	return t.stopQueue(ctx, queue)
}

// stopQueue returns when the back end no longer uses the queue, which GET_VRING_BASE is for; that the queue is disabled first is
// politeness, and a refusal no reason to leave it.
func (t *vhostTransport) stopQueue(ctx context.Context, queue int) error {
	q := &t.queues[queue]
	if !q.up {
		return nil
	}
	_ = t.enableQueue(ctx, queue, false)
	reply, err := t.ask(ctx, vhost.NewMessage(vhost.GetVringBase, vhost.VringState{Index: uint32(queue)}.Append(nil)))
	if err != nil {
		return fmt.Errorf("queue %d: %w", queue, err)
	}
	state, err := reply.VringState()
	if err != nil {
		return t.broke("%w", err)
	}
	if state.Index != uint32(queue) {
		return t.broke("it was asked to stop queue %d and answers for queue %d", queue, state.Index)
	}
	*q = vhostQueue{kick: q.kick}
	return nil
}

// SetPairs implements PairSetter.
func (t *vhostTransport) SetPairs(ctx context.Context, pairs int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if pairs < 1 || pairs > t.pairs {
		return fmt.Errorf("%s: use %d queue pairs: there are %d", t.Name(), pairs, t.pairs)
	}
	t.active = pairs
	for i := range t.queues {
		if !t.queues[i].started {
			continue
		}
		if err := t.enableQueue(ctx, i, i < 2*pairs); err != nil {
			return err
		}
	}
	return nil
}

// Interrupts makes a call descriptor for each vector. Queues that are enabled already keep theirs.
func (t *vhostTransport) Interrupts(n int, f func(vector int)) (int, error) {
	n = min(max(n, 1), len(t.queues)+1)
	if f == nil {
		t.calls.stop()
		return n, nil
	}
	if err := t.calls.start(n, f); err != nil {
		return 0, fmt.Errorf("%s: %w", t.Name(), err)
	}
	return n, nil
}

// Close stops the queues and ends the session. A back end that does not answer, or that was given up and has not closed the socket, may
// still write to memory: the error says so, the session stays open, and Close may be called again, when it answers or is gone.
func (t *vhostTransport) Close() error {
	last, err := t.stop()
	if err != nil {
		return fmt.Errorf("%w (the back end may still use the memory; end it and close again)", err)
	}
	if !last {
		return nil
	}
	t.calls.stop()
	return errors.Join(t.end(), t.space.Detach(t))
}

// stop stops the queues of a back end that is still there, and says whether the session is to be ended now.
func (t *vhostTransport) stop() (last bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false, nil
	}
	if err := t.stopQueues(context.Background()); err != nil && t.goneError() == nil {
		return false, err
	}
	if t.memory.shown && t.goneError() != nil {
		if err := t.part(context.Background()); err != nil {
			return false, err
		}
	}
	_ = t.setStatus(context.Background(), 0) // it is only told that this is the end
	t.closed = true
	for i := range t.queues {
		t.queues[i].kick.close()
		t.queues[i].kick = nil
	}
	return true, nil
}
