package virtio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"bare.wire/clock"
	"bare.wire/nic"
	"bare.wire/virtio/spec/vhost"
)

// vhostSession is a connection to a back end: requests, their answers in the same order, and its end.
//
// One goroutine reads, for as long as the session lasts, so that the end of it is noticed at once. A request whose caller gave up
// waiting stays in the list until its answer comes, which nobody then wants.
type vhostSession struct {
	name     string
	conn     *vhost.Conn
	clk      clock.Clock
	replyAck bool // agreed on: every request can be answered

	lock    sync.Mutex // guards what follows; never held while something is waited for
	waiting []*vhostCall
	onGone  func(error)
	gone    error         // why; wraps nic.ErrGone
	done    chan struct{} // closed with gone
	parted  chan struct{} // closed when the back end has closed its end of the socket
	closing bool
	reader  sync.WaitGroup
}

// vhostCall is a request that is to be answered.
type vhostCall struct {
	request vhost.Request
	answer  chan vhost.Message // has room for it
}

// maxVhostWaiting is how many requests may be without an answer: whoever gives up that often will not get one.
const maxVhostWaiting = 64

var errVhostSilent = errors.New("no answer")

func newVhostSession(name string, c *net.UnixConn, clk clock.Clock) *vhostSession {
	s := &vhostSession{name: name, conn: vhost.NewConn(c), clk: clk, done: make(chan struct{}), parted: make(chan struct{})}
	s.reader.Go(s.read)
	return s
}

// Name is the device's URI: "vhost-user:/run/pg0".
func (s *vhostSession) Name() string { return s.name }

// read gives answers to those who wait for them until the session ends, and then waits for the back end to see that.
func (s *vhostSession) read() {
	for s.goneError() == nil {
		m, fds, err := s.conn.Receive(context.Background())
		if err != nil {
			s.over(err)
			break
		}
		vhost.CloseFDs(fds) // nothing that is asked for has any
		if err := s.deliver(m, len(fds)); err != nil {
			s.fail(err)
		}
	}
	if s.conn.Discard() == nil {
		close(s.parted)
	}
}

// part waits until the back end of a session that is over has closed its end too: until then it may not know, and use the memory.
func (s *vhostSession) part(ctx context.Context) error {
	ctx, stop := s.bounded(ctx)
	defer stop()
	select {
	case <-s.parted:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the back end has not closed the socket for %v: %w", time.Duration(vhostTimeout), s.goneError())
	}
}

// deliver finds the request that m answers.
func (s *vhostSession) deliver(m vhost.Message, fds int) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	switch {
	case len(s.waiting) == 0:
		return fmt.Errorf("the back end sent %v, and nobody had asked", m)
	case m.Flags&vhost.FlagReply == 0 || m.Request != s.waiting[0].request:
		return fmt.Errorf("the back end sent %v as the answer to %v", m, s.waiting[0].request)
	case fds > 0:
		return fmt.Errorf("the back end sent %v with %d descriptors, want none", m, fds)
	}
	s.waiting[0].answer <- m
	s.waiting = s.waiting[1:]
	return nil
}

// over is the end of the connection by itself.
func (s *vhostSession) over(err error) {
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET):
		err = errors.New("the back end closed the socket, or was ended: start it again, and open the device again")
	case errors.Is(err, vhost.ErrMessage):
		err = fmt.Errorf("the back end sent what is no message: %w", err)
	}
	s.fail(err)
}

// fail ends the session for a reason, of which the first counts.
func (s *vhostSession) fail(reason error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.gone != nil {
		return
	}
	s.gone = fmt.Errorf("%s: %w: %w", s.name, reason, nic.ErrGone)
	close(s.done)
	_ = s.conn.CloseWrite() // so that the back end knows, and closes its end: see part
	if f := s.onGone; f != nil && !s.closing {
		go f(s.gone)
	}
}

// broke says that the back end broke the rules, ends the session, and returns the error.
func (s *vhostSession) broke(format string, args ...any) error {
	s.fail(fmt.Errorf("the back end broke the rules: "+format, args...))
	return s.goneError()
}

// goneError is why the back end is gone, nil while it is there.
func (s *vhostSession) goneError() error {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.gone
}

// OnGone implements Transport.
func (s *vhostSession) OnGone(f func(error)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.onGone = f
	if s.gone != nil && f != nil {
		go f(s.gone)
	}
}

// end closes the socket and waits for the reader.
func (s *vhostSession) end() error {
	s.lock.Lock()
	again := s.closing
	s.closing = true
	s.lock.Unlock()
	if again {
		return nil
	}
	err := s.conn.Close()
	s.reader.Wait()
	if errors.Is(err, net.ErrClosed) { // by fail
		return nil
	}
	return err
}

// bounded is a context that ends at the latest vhostTimeout from now.
func (s *vhostSession) bounded(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := s.clk.At(s.clk.Nanos()+int64(vhostTimeout), func() { cancel(errVhostSilent) })
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// ask sends a request that is answered, and returns the answer. One goroutine asks at a time.
func (s *vhostSession) ask(ctx context.Context, m vhost.Message, fds ...int) (vhost.Message, error) {
	if ctx.Err() != nil { // nothing is sent yet, so the session can go on
		return vhost.Message{}, s.unanswered(ctx, m.Request)
	}
	ctx, stop := s.bounded(ctx)
	defer stop()
	call := &vhostCall{request: m.Request, answer: make(chan vhost.Message, 1)}
	if err := s.enqueue(call); err != nil {
		return vhost.Message{}, err
	}
	if err := s.send(ctx, m, fds); err != nil {
		return vhost.Message{}, err
	}
	select {
	case reply := <-call.answer:
		return reply, nil
	case <-s.done:
		return vhost.Message{}, s.goneError()
	case <-ctx.Done():
		return vhost.Message{}, s.unanswered(ctx, m.Request)
	}
}

func (s *vhostSession) enqueue(call *vhostCall) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.gone != nil {
		return s.gone
	}
	if len(s.waiting) >= maxVhostWaiting {
		return fmt.Errorf("%s: %v: the back end has not answered %d requests before it", s.name, call.request, len(s.waiting))
	}
	s.waiting = append(s.waiting, call)
	return nil
}

// send sends a message. One that was sent in part, or not at all, leaves nothing to go on with.
func (s *vhostSession) send(ctx context.Context, m vhost.Message, fds []int) error {
	err := s.conn.Send(ctx, m, fds...)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), errVhostSilent):
		s.fail(fmt.Errorf("send %v: %w", m.Request, context.Cause(ctx)))
	case ctx.Err() != nil:
		s.fail(fmt.Errorf("the back end does not read what it is sent: %w", err))
	default:
		s.over(err)
	}
	return s.goneError()
}

// unanswered is the error for a request whose answer was not waited for any longer.
func (s *vhostSession) unanswered(ctx context.Context, r vhost.Request) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errVhostSilent) {
		return fmt.Errorf("%s: %v: %w from the back end within %v: is it stopped, not polled, or busy with another front end?", s.name, r, errVhostSilent, time.Duration(vhostTimeout))
	}
	return fmt.Errorf("%s: %v: wait for the back end's answer: %w", s.name, r, cause)
}

// askU64 asks for a number.
func (s *vhostSession) askU64(ctx context.Context, r vhost.Request) (uint64, error) {
	reply, err := s.ask(ctx, vhost.NewMessage(r, nil))
	if err != nil {
		return 0, err
	}
	v, err := reply.U64()
	if err != nil {
		return 0, s.broke("%w", err)
	}
	return v, nil
}

// tell sends a request that has no answer of its own, and makes sure that it was not refused where the back end can say so.
func (s *vhostSession) tell(ctx context.Context, r vhost.Request, payload []byte, fds ...int) error {
	m := vhost.NewMessage(r, payload)
	if !s.replyAck {
		if err := s.goneError(); err != nil {
			return err
		}
		ctx, stop := s.bounded(ctx)
		defer stop()
		return s.send(ctx, m, fds)
	}
	m.Flags |= vhost.FlagNeedReply
	reply, err := s.ask(ctx, m, fds...)
	if err != nil {
		return err
	}
	v, err := reply.U64()
	switch {
	case err != nil:
		return s.broke("%w", err)
	case v != 0:
		return fmt.Errorf("%s: the back end refuses %v (it answers %d): its log says why", s.name, r, v)
	}
	return nil
}

// settle returns when the back end has done all that it has been told.
func (s *vhostSession) settle(ctx context.Context) error {
	if s.replyAck {
		return nil
	}
	_, err := s.askU64(ctx, vhost.GetFeatures) // requests are done in their order
	return err
}
