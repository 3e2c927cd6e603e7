package vhost

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// pair is a socket with a Conn at one end.
func pair(t *testing.T) (*Conn, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	ends := make([]*net.UnixConn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		ends[i] = c.(*net.UnixConn)
	}
	c := NewConn(ends[0])
	t.Cleanup(func() { c.Close(); ends[1].Close() })
	return c, ends[1]
}

// openFDs counts the descriptors of this process.
func openFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

func eventfds(t *testing.T, n int) []int {
	t.Helper()
	var fds []int
	for range n {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		require.NoError(t, err)
		fds = append(fds, fd)
	}
	return fds
}

func TestDescriptorsTravelWithTheirMessage(t *testing.T) {
	a, raw := pair(t)
	b := NewConn(raw)
	fds := eventfds(t, MaxFDs)
	defer CloseFDs(fds)
	require.NoError(t, a.Send(t.Context(), NewMessage(SetOwner, nil)))
	require.NoError(t, a.Send(t.Context(), NewMessage(SetMemTable, make([]byte, MaxPayload)), fds...))
	require.NoError(t, a.Send(t.Context(), NewMessage(SetVringKick, AppendU64(nil, 5)), fds[0]))

	m, got, err := b.Receive(t.Context())
	require.NoError(t, err)
	assert.Empty(t, got)
	assert.Equal(t, SetOwner, m.Request)
	m, got, err = b.Receive(t.Context())
	require.NoError(t, err)
	assert.Len(t, got, MaxFDs)
	assert.Len(t, m.Payload, MaxPayload)
	for _, fd := range got {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		require.NoError(t, err)
		assert.NotZero(t, flags&unix.FD_CLOEXEC, "no child inherits it")
	}
	CloseFDs(got)
	m, got, err = b.Receive(t.Context())
	require.NoError(t, err)
	require.Len(t, got, 1)
	_, err = unix.Write(got[0], []byte{1, 7: 0})
	require.NoError(t, err)
	var count [8]byte
	_, err = unix.Read(fds[0], count[:])
	require.NoError(t, err)
	assert.EqualValues(t, 1, count[0], "it is the same eventfd")
	CloseFDs(got)
	require.NoError(t, a.Close())
	_, _, err = b.Receive(t.Context())
	require.Equal(t, io.EOF, err)
}

// TestMessageInPieces: a stream has no bounds of its own.
func TestMessageInPieces(t *testing.T) {
	c, raw := pair(t)
	go func() {
		for _, b := range NewMessage(SetVringNum, VringState{1, 2}.Append(nil)).Append(nil) {
			_, _ = raw.Write([]byte{b})
		}
	}()
	m, _, err := c.Receive(t.Context())
	require.NoError(t, err)
	s, err := m.VringState()
	require.NoError(t, err)
	assert.Equal(t, VringState{1, 2}, s)
}

// TestNoDescriptorStaysAfterAnError: whatever is wrong with a message, what came with it is closed.
func TestNoDescriptorStaysAfterAnError(t *testing.T) {
	header := func(size byte, version byte) []byte { return []byte{1, 0, 0, 0, version, 0, 0, 0, size, 0, 0, 0} }
	for _, c := range []struct {
		name string
		send func(*testing.T, *net.UnixConn, []int)
		want error
	}{
		{"ends within the header", func(t *testing.T, c *net.UnixConn, fds []int) {
			sendWith(t, c, header(0, 1)[:5], fds[:2])
		}, io.ErrUnexpectedEOF},
		{"ends within the payload", func(t *testing.T, c *net.UnixConn, fds []int) {
			sendWith(t, c, append(header(8, 1), 1, 2, 3), fds[:2])
		}, io.ErrUnexpectedEOF},
		{"ends before the payload", func(t *testing.T, c *net.UnixConn, fds []int) {
			sendWith(t, c, header(8, 1), fds[:2])
		}, io.ErrUnexpectedEOF},
		{"another version", func(t *testing.T, c *net.UnixConn, fds []int) { sendWith(t, c, header(0, 3), fds[:1]) }, ErrMessage},
		{"more than eight", func(t *testing.T, c *net.UnixConn, fds []int) { sendWith(t, c, header(0, 1), fds[:9]) }, ErrMessage},
		{"more than eight in two portions", func(t *testing.T, c *net.UnixConn, fds []int) {
			sendWith(t, c, header(8, 1), fds[:8])
			sendWith(t, c, make([]byte, 8), fds[8:])
		}, ErrMessage},
		{"with every byte one", func(t *testing.T, c *net.UnixConn, fds []int) {
			for i, b := range header(1, 1) {
				sendWith(t, c, []byte{b}, fds[i%9:i%9+1])
			}
		}, ErrMessage},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, raw := pair(t)
			fds := eventfds(t, 9)
			defer CloseFDs(fds)
			before := openFDs(t)
			c.send(t, raw, fds)
			require.NoError(t, raw.CloseWrite())
			_, got, err := conn.Receive(t.Context())
			require.ErrorIs(t, err, c.want)
			assert.Empty(t, got)
			assert.Equal(t, before, openFDs(t))
		})
	}
}

func sendWith(t *testing.T, c *net.UnixConn, b []byte, fds []int) {
	t.Helper()
	_, _, err := c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	require.NoError(t, err)
}

var errEnough = errors.New("enough")

func TestWaitsEndWithTheirContext(t *testing.T) {
	c, _ := pair(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() { _, _, err := c.Receive(ctx); done <- err }()
	cancel(errEnough)
	require.ErrorIs(t, <-done, errEnough)
	_, _, err := c.Receive(ctx)
	require.ErrorIs(t, err, errEnough)
	require.ErrorIs(t, c.Send(ctx, NewMessage(SetOwner, nil)), errEnough)

	// The other side does not read: at some time nothing more can be sent.
	ctx, cancel = context.WithCancelCause(t.Context())
	sent := make(chan struct{}, 1)
	go func() {
		for {
			err := c.Send(ctx, NewMessage(SetConfig, make([]byte, MaxPayload)))
			if err != nil {
				done <- err
				return
			}
			select {
			case sent <- struct{}{}:
			default:
			}
		}
	}()
	<-sent
	cancel(errEnough)
	require.ErrorIs(t, <-done, errEnough)
}

// TestContextThatEndsLateDoesNotEndTheNextWait: a context may end at the moment when the message comes.
func TestContextThatEndsLateDoesNotEndTheNextWait(t *testing.T) {
	a, raw := pair(t)
	b := NewConn(raw)
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		require.NoError(t, a.Send(t.Context(), NewMessage(SetOwner, nil)))
		if _, _, err := b.Receive(ctx); err != nil {
			require.ErrorIs(t, err, context.Canceled)
			_, _, err = b.Receive(t.Context())
			require.NoError(t, err)
		}
		cancel()
	}
}

func TestTooMuchToSend(t *testing.T) {
	c, _ := pair(t)
	require.Error(t, c.Send(t.Context(), NewMessage(SetConfig, make([]byte, MaxPayload+1))))
	require.Error(t, c.Send(t.Context(), NewMessage(SetConfig, nil), make([]int, 9)...))
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Send(t.Context(), NewMessage(SetOwner, nil)), net.ErrClosed)
	_, _, err := c.Receive(t.Context())
	require.ErrorIs(t, err, net.ErrClosed)
}
