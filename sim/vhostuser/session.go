package vhostuser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"bare.wire/sim"
	"bare.wire/virtio/spec"
	"bare.wire/virtio/spec/vhost"
)

// Device is what a session needs of a *virtionet.Device. All calls are made with the world locked.
type Device interface {
	sim.Engine
	Features() spec.Features
	SetFeatures(spec.Features) error
	Status() uint8
	SetStatus(uint8)
	ReadConfig(off int, p []byte)
	WriteConfig(off int, p []byte)
	Queues() int
	QueueMax(i int) int
	SetQueue(i, size int, desc, driver, device uint64) error
	EnableQueue(i int, on bool)
	QueueBase(i int) uint32
	SetQueueBase(i int, base uint32) error
	SetPairs(n int)
	MemoryChanged()
	UseLegacy(bool)
	Poll(bool)
	OnConfigChange(func())
	OnCall(i int, f func())
	Kick(i int)
}

const (
	// answerTime is how long a front end may leave an answer unread.
	answerTime = 10 * time.Second
	// maxQueues is the most queues that messages can name.
	maxQueues = 256
)

// session is one front end's time with the device.
type session struct {
	conn  *vhost.Conn
	world *sim.World
	dev   Device
	mem   *Memory
	log   *slog.Logger
	fail  context.CancelCauseFunc // ends the session, from any goroutine

	offered      spec.Features // with bit 30
	owned        bool
	acked        spec.Features          // what SET_FEATURES said last; with bit 30
	agreed       bool                   // the device has taken that
	protocol     vhost.ProtocolFeatures // agreed on
	statusByHand bool                   // the front end says the status itself (SET_STATUS)
	polling      bool                   // the device looks at its rings unasked
	busy         int64                  // when the latest kick was, ns
	rings        []*ring
	messages     uint64
}

func newSession(conn *vhost.Conn, b *Backend, fail context.CancelCauseFunc) *session {
	s := &session{conn: conn, world: b.cfg.World, dev: b.dev, mem: b.mem, log: b.log, fail: fail, offered: offered(b.dev)}
	n := b.dev.Queues() &^ 1 // the control queue is the front end's own business
	for i := range min(n, maxQueues) {
		s.rings = append(s.rings, &ring{index: i})
	}
	b.dev.OnConfigChange(s.configChanged)
	return s
}

// errRings is how a session ends whose front end breaks a rule of the rings: it would have to read the status to notice.
var errRings = errors.New("the front end broke a rule of the rings, and the device needs a reset")

// configChanged is told by the device, with the world locked. A front end cannot be told but of the end.
func (s *session) configChanged() {
	if s.dev.Status()&spec.StatusNeedsReset != 0 && s.dev.Status() != 0xff {
		s.fail(errRings)
	}
}

// run answers the front end's messages until it closes its end, which is no error, or does what it must not, or ctx ends.
func (s *session) run(ctx context.Context) error {
	defer s.close()
	for {
		m, fds, err := s.conn.Receive(ctx)
		if err != nil {
			if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			return err
		}
		s.messages++
		err = s.handle(ctx, m, &descriptors{fds})
		if err != nil {
			return err
		}
	}
}

// descriptors came with a message; who takes one owns it.
type descriptors struct{ list []int }

func (d *descriptors) count() int { return len(d.list) }

// take is called only when count says that there is one.
func (d *descriptors) take() int {
	fd := d.list[0]
	d.list = d.list[1:]
	return fd
}

// handle does what a message asks for and answers it. What could not be done is told to a front end that asks for an answer, and
// the session goes on as it was; one that does not ask would go on in error, so its session ends.
func (s *session) handle(ctx context.Context, m vhost.Message, fds *descriptors) error {
	defer func() { vhost.CloseFDs(fds.list) }()
	reply, err := s.do(m, fds)
	s.log.Debug("vhost-user message", "message", m.String(), "err", err)
	acked := m.NeedReply() && s.protocol.Has(vhost.ProtocolReplyAck)
	switch {
	case err != nil && (errors.Is(err, vhost.ErrMessage) || errors.Is(err, errGone) || !acked || m.Request.Answered()):
		return fmt.Errorf("%v: %w", m.Request, err)
	case err != nil:
		s.log.Warn("vhost-user: refused", "message", m.String(), "err", err)
		reply = vhost.AppendU64(nil, 1)
	case reply == nil && acked:
		reply = vhost.AppendU64(nil, 0)
	case reply == nil:
		return nil
	}
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	clk := s.world.Clock()
	late := fmt.Errorf("the front end does not read its answers for %v", answerTime)
	t := clk.At(clk.Nanos()+int64(answerTime), func() { cancel(late) })
	defer t.Stop()
	return s.conn.Send(wait, m.Reply(reply))
}

// do finds the handler of a message.
func (s *session) do(m vhost.Message, fds *descriptors) ([]byte, error) {
	h, ok := handlers[m.Request]
	switch {
	case !ok:
		return nil, fmt.Errorf("this back end does not know %v, and has not offered it", m.Request)
	case !s.protocol.Has(h.needs):
		return nil, fmt.Errorf("the protocol feature %v, which it needs, was not agreed on", h.needs)
	case !h.fds && fds.count() > 0:
		return nil, fmt.Errorf("%w: %d descriptors came with it, which it has no use for", vhost.ErrMessage, fds.count())
	}
	return h.do(s, m, fds)
}

// errGone is wrapped by errors after which the session cannot go on: the front end's memory is not what it said.
var errGone = errors.New("the session is over")

// locked runs f with the world locked and the front end's memory guarded.
func (s *session) locked(f func() error) error {
	s.world.Lock()
	defer s.world.Unlock()
	return s.guarded(f)
}

// guarded is locked for who has the lock.
func (s *session) guarded(f func() error) error {
	var ferr error
	if err := guard(s.mem, func() error { ferr = f(); return nil }); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return ferr
}

// close takes everything away from the device and gives back what the front end had sent. Where the memory is gone, the device
// finds that out once more for each ring, and stops all the same.
func (s *session) close() {
	for _, r := range s.rings {
		_ = s.locked(func() error { s.halt(r); return nil })
	}
	_ = s.locked(func() error { s.dev.OnConfigChange(nil); s.dev.Poll(false); s.dev.SetStatus(0); return nil })
	for _, r := range s.rings {
		r.stopKick()
		r.closeCall()
	}
	s.world.Lock()
	defer s.world.Unlock()
	if err := s.mem.clear(); err != nil {
		s.log.Warn("vhost-user: end of a session", "err", err)
	}
}

// step is the device's step, with the memory guarded; it is called with the world locked.
func (s *session) step(now int64) (next int64) {
	next = sim.Never
	err := s.guarded(func() error {
		for _, r := range s.rings {
			if r.running && r.polled && s.live() { // the front end does not tell: look
				s.dev.Kick(r.index)
				next = now + lookEvery
			}
		}
		if s.polling && now-s.busy > idleAfter {
			s.polling = false
			s.dev.Poll(false)
		}
		next = min(next, s.dev.Step(now))
		return nil
	})
	if err != nil {
		s.fail(err)
		return sim.Never
	}
	return next
}

const (
	// lookEvery is how often a ring is looked at whose front end does not kick, ns.
	lookEvery = 20_000
	// idleAfter is how long after the last kick rings are looked at unasked, ns.
	idleAfter = 200_000
)

// live says whether the device takes kicks.
func (s *session) live() bool { return s.dev.Status()&spec.StatusDriverOK != 0 }

// pairs tells the device how many pairs have both their queues.
func (s *session) pairs() {
	n := 0
	for 2*n+1 < len(s.rings) && s.rings[2*n].running && s.rings[2*n+1].running {
		n++
	}
	s.dev.SetPairs(n)
}
