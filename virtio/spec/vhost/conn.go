package vhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Conn sends and receives messages over a unix socket. One goroutine may send while another receives.
type Conn struct {
	c *net.UnixConn

	send, receive sync.Mutex
	oob           []byte // what descriptors are received into
}

// NewConn makes a Conn of a stream socket, which belongs to it from then on.
func NewConn(c *net.UnixConn) *Conn {
	return &Conn{c: c, oob: make([]byte, unix.CmsgSpace(4*MaxFDs))}
}

// Close closes the socket; what waits on it ends with net.ErrClosed.
func (c *Conn) Close() error { return c.c.Close() }

// CloseWrite tells the other side that nothing more will be said. What it still says can be received.
func (c *Conn) CloseWrite() error { return c.c.CloseWrite() }

// Discard reads and forgets what the other side still sends, and returns nil once it has closed its end.
func (c *Conn) Discard() error {
	c.receive.Lock()
	defer c.receive.Unlock()
	var b [1024]byte
	for {
		fds, err := c.fill(b[:], nil)
		CloseFDs(fds)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET):
			return nil
		case err != nil && !errors.Is(err, ErrMessage):
			return fmt.Errorf("wait for the other side to close: %w", err)
		}
	}
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// until lets ctx end the reads or writes whose deadline set sets. The function that it returns is to be called after them, and gives
// the reason of ctx for an error if that ended them.
func until(ctx context.Context, set func(time.Time) error) (done func(error) error) {
	// Set before the function can run, so that it is not undone.
	_ = set(time.Time{}) // an error says that the socket is closed, as the read or write will
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = set(past)
	})
	return func(err error) error {
		if !stop() {
			<-ended // or it would end the next one
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
}

// Send sends a message, with descriptors beside it, which remain the caller's. It waits while the other side does not read, until
// ctx ends; after an error a part of the message may have been sent, and the connection is of no more use.
func (c *Conn) Send(ctx context.Context, m Message, fds ...int) error {
	if len(m.Payload) > MaxPayload || len(fds) > MaxFDs {
		return fmt.Errorf("send %v with %d descriptors: at most %d bytes and %d descriptors", m, len(fds), MaxPayload, MaxFDs)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("send %v: %w", m, context.Cause(ctx))
	}
	c.send.Lock()
	defer c.send.Unlock()
	done := until(ctx, c.c.SetWriteDeadline)
	if err := done(c.write(m.Append(nil), fds)); err != nil {
		return fmt.Errorf("send %v: %w", m, err)
	}
	return nil
}

func (c *Conn) write(b []byte, fds []int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, _, err := c.c.WriteMsgUnix(b, oob, nil)
	if err != nil || n == len(b) {
		return err
	}
	_, err = c.c.Write(b[n:]) // the descriptors went with the first bytes
	return err
}

// Receive waits for a message until ctx ends. The descriptors that came with it belong to the caller; after an error there are none.
// io.EOF says that the other side closed between two messages. After any other error, that of ctx included, the connection is of no
// more use, for it may have ended within a message.
func (c *Conn) Receive(ctx context.Context) (Message, []int, error) {
	if ctx.Err() != nil {
		return Message{}, nil, fmt.Errorf("receive a message: %w", context.Cause(ctx))
	}
	c.receive.Lock()
	defer c.receive.Unlock()
	done := until(ctx, c.c.SetReadDeadline)
	m, fds, err := c.read()
	if err = done(err); err == nil {
		return m, fds, nil
	}
	CloseFDs(fds)
	if err == io.EOF {
		return Message{}, nil, err
	}
	return Message{}, nil, fmt.Errorf("receive a message: %w", err)
}

// read reads a message. The descriptors are returned with an error too.
func (c *Conn) read() (m Message, fds []int, err error) {
	var head [HeaderSize]byte
	if fds, err = c.fill(head[:], nil); err != nil {
		return m, fds, err
	}
	m, size, err := ParseHeader(head[:])
	if err != nil {
		return m, fds, err
	}
	m.Payload = make([]byte, size)
	fds, err = c.fill(m.Payload, fds)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return m, fds, err
}

// fill reads all of b, and appends the descriptors that come with it to fds. They are looked for behind the first byte too: the
// kernel would give them to this process all the same.
func (c *Conn) fill(b []byte, fds []int) ([]int, error) {
	for got := 0; got < len(b); {
		n, oobn, flags, _, err := c.c.ReadMsgUnix(b[got:], c.oob)
		more, bad := rights(c.oob[:oobn])
		fds = append(fds, more...)
		switch {
		case errors.Is(err, io.EOF) && got > 0:
			return fds, io.ErrUnexpectedEOF
		case errors.Is(err, io.EOF):
			return fds, io.EOF
		case err != nil:
			return fds, err
		case bad != nil:
			return fds, bad
		case flags&unix.MSG_CTRUNC != 0 || len(fds) > MaxFDs:
			return fds, fmt.Errorf("%w: more than %d descriptors", ErrMessage, MaxFDs)
		}
		got += n
	}
	return fds, nil
}

// rights takes the descriptors out of a control message.
func rights(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control message: %w", ErrMessage, err)
	}
	for i := range messages {
		if messages[i].Header.Level != unix.SOL_SOCKET || messages[i].Header.Type != unix.SCM_RIGHTS {
			continue
		}
		more, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fds, fmt.Errorf("%w: descriptors: %w", ErrMessage, err)
		}
		fds = append(fds, more...)
	}
	return fds, nil
}

// CloseFDs closes descriptors that came with a message.
func CloseFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // of a descriptor that is ours alone; nothing could be done about an error
	}
}
