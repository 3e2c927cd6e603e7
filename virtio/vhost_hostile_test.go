package virtio

import (
	"context"
	"net"
	"path/filepath"
	"runtime"
	"sync"
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

// TestVhostBackEndThatLies: whatever it answers, the device is gone with a reason, and the socket is closed.
func TestVhostBackEndThatLies(t *testing.T) {
	answer := func(r vhost.Request, payload []byte) func(*vhostPeer, vhost.Message) {
		return func(p *vhostPeer, _ vhost.Message) { sendRaw(p, vhost.NewMessage(r, nil).Reply(payload).Append(nil)) }
	}
	for _, c := range []struct {
		name string
		lie  func(p *vhostPeer, m vhost.Message) // in place of the answer to GET_VRING_BASE
		want string
	}{
		{"another queue", answer(vhost.GetVringBase, vhost.VringState{Index: 7}.Append(nil)), "asked to stop queue 0 and answers for queue 7"},
		{"another request", answer(vhost.GetFeatures, make([]byte, 8)), "reply to GET_FEATURES (8 bytes) as the answer to GET_VRING_BASE"},
		{"too short", answer(vhost.GetVringBase, make([]byte, 7)), "reply to GET_VRING_BASE (7 bytes), want 8"},
		{"too long", answer(vhost.GetVringBase, make([]byte, vhost.MaxPayload)), "(4096 bytes), want 8"},
		{"much too long", func(p *vhostPeer, _ vhost.Message) {
			m := vhost.NewMessage(vhost.GetVringBase, nil).Reply(make([]byte, vhost.MaxPayload+1))
			sendRaw(p, m.Append(nil))
		}, "no message"},
		{"not a reply", func(p *vhostPeer, m vhost.Message) { sendRaw(p, m.Append(nil)) }, "as the answer to"},
		{"twice", func(p *vhostPeer, m vhost.Message) {
			b := m.Reply(m.Payload).Append(nil)
			sendRaw(p, append(b, b...))
		}, "sent reply to GET_VRING_BASE (8 bytes)"},
		{"another version", func(p *vhostPeer, m vhost.Message) {
			b := m.Reply(m.Payload).Append(nil)
			b[4] ^= 3
			sendRaw(p, b)
		}, "version 2"},
		{"with descriptors", func(p *vhostPeer, m vhost.Message) {
			_, _, _ = p.socket().WriteMsgUnix(m.Reply(m.Payload).Append(nil), unix.UnixRights(0), nil)
		}, "with 1 descriptors"},
		{"ends within the answer", func(p *vhostPeer, m vhost.Message) {
			sendRaw(p, m.Reply(m.Payload).Append(nil)[:15])
			p.socket().Close()
		}, "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := dialPeer(t, newVhostPeer(t))
			m := r.region()
			r.ready(m, 2)
			gone := make(chan error, 1)
			r.port.OnGone(func(err error) { gone <- err })
			r.peer.says(func(m vhost.Message) ([]byte, bool) {
				if m.Request == vhost.GetVringBase {
					c.lie(r.peer, m)
				}
				return nil, m.Request == vhost.GetVringBase
			})
			_ = r.port.Reset(t.Context()) // "twice" may be seen after it only
			err := <-gone
			require.ErrorIs(t, err, nic.ErrGone)
			assert.ErrorContains(t, err, c.want)
			<-r.peer.finished // the front end closed
			require.NoError(t, r.port.Close())
			require.NoError(t, r.space.Remove(t.Context(), m))
			require.NoError(t, m.Close())
		})
	}
}

// TestVhostBackEndThatGoesOnAfterItsEnd: one that was given up may use the memory until it closes the socket, whatever it sends.
func TestVhostBackEndThatGoesOnAfterItsEnd(t *testing.T) {
	r := dialPeer(t, newVhostPeer(t, func(p *vhostPeer) { p.linger = make(chan struct{}) }))
	leave := sync.OnceFunc(func() { close(r.peer.linger) })
	defer leave()
	m := r.region()
	r.ready(m, 2)
	gone := make(chan error, 1)
	r.port.OnGone(func(err error) { gone <- err })
	sendRaw(r.peer, make([]byte, 3000)) // no message, and more of it than is read for that
	require.ErrorIs(t, <-gone, nic.ErrGone)
	closed := make(chan error)
	go func() { closed <- r.port.Close() }()
	for stop := false; !stop; {
		select {
		case err := <-closed:
			require.ErrorIs(t, err, nic.ErrGone)
			require.ErrorContains(t, err, "has not closed the socket")
			require.ErrorContains(t, err, "may still use the memory")
			stop = true
		default:
			r.clock.AdvanceTo(r.clock.Nanos() + int64(vhostTimeout))
			runtime.Gosched()
		}
	}
	leave()
	require.NoError(t, r.port.Close())
	require.NoError(t, r.space.Remove(t.Context(), m))
	require.NoError(t, m.Close())
}

func sendRaw(p *vhostPeer, b []byte) { _, _ = p.socket().Write(b) }

// TestVhostStatusOfMoreThanAByte: the same for numbers that cannot be.
func TestVhostStatusOfMoreThanAByte(t *testing.T) {
	r := dialPeer(t, newVhostPeer(t))
	r.peer.says(func(m vhost.Message) ([]byte, bool) { return vhost.AppendU64(nil, 0x100), m.Request == vhost.GetStatus })
	_, err := r.port.Status()
	require.ErrorIs(t, err, nic.ErrGone)
	require.ErrorContains(t, err, "0x100")
}

// TestVhostBackEndThatRefusesToEnd is closed all the same, as long as it lets go of the queues.
func TestVhostBackEndThatRefusesToEnd(t *testing.T) {
	r := dialPeer(t, newVhostPeer(t))
	m := r.region()
	r.ready(m, 2)
	r.peer.says(func(m vhost.Message) ([]byte, bool) { return vhost.AppendU64(nil, 1), m.NeedReply() })
	require.ErrorContains(t, r.port.Reset(t.Context()), "refuses SET_STATUS")
	require.NoError(t, r.port.Close())
	require.NoError(t, r.space.Remove(t.Context(), m))
	require.NoError(t, m.Close())
}

// TestVhostUnaskedMessages: there is nothing that a back end says by itself.
func TestVhostUnaskedMessages(t *testing.T) {
	r := dialPeer(t, newVhostPeer(t))
	gone := make(chan error, 1)
	r.port.OnGone(func(err error) { gone <- err })
	sendRaw(r.peer, vhost.NewMessage(vhost.SetMemTable, nil).Append(nil))
	require.ErrorContains(t, <-gone, "sent SET_MEM_TABLE (0 bytes), and nobody had asked")
	require.NoError(t, r.port.Close())
}

// TestVhostBackEndThatLetsEventsBlock: eventfds are shared, their flags too. A back end that makes them block, and fills the counter
// of a kick, stops nobody.
func TestVhostBackEndThatLetsEventsBlock(t *testing.T) {
	r := dialPeer(t, newVhostPeer(t))
	fired := make(chan int, 10)
	_, err := r.port.Interrupts(3, func(v int) { fired <- v })
	require.NoError(t, err)
	bells := r.ready(r.region(), 2)
	kick, call := r.peer.fd(r.peer.kick, 0), r.peer.fd(r.peer.call, 0)
	require.NoError(t, unix.SetNonblock(kick, false))
	require.NoError(t, unix.SetNonblock(call, false))
	full := []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	_, err = unix.Write(kick, full)
	require.NoError(t, err)
	bells[0].Ring(0)
	for range 3 {
		_, err = unix.Write(call, []byte{1, 7: 0})
		require.NoError(t, err)
		assert.Zero(t, <-fired)
	}
	_, err = r.port.Interrupts(1, nil)
	require.NoError(t, err)
	require.NoError(t, r.port.Close())
}

// FuzzVhostAnswers lets a back end answer with anything, from the first message to the last, and then close the socket. There has
// to be an end with an error, or a transport that can be used and closed.
func FuzzVhostAnswers(f *testing.F) {
	u64 := func(r vhost.Request, v uint64) []byte {
		return vhost.NewMessage(r, nil).Reply(vhost.AppendU64(nil, v)).Append(nil)
	}
	greeting := append(u64(vhost.GetFeatures, uint64(vhostTestFeatures)), u64(vhost.GetProtocolFeatures, uint64(vhost.ProtocolMQ|vhost.ProtocolStatus))...)
	greeting = append(greeting, u64(vhost.GetQueueNum, 2)...)
	f.Add(greeting)
	f.Add(append(greeting, u64(vhost.GetStatus, 8)...))
	f.Add(u64(vhost.GetFeatures, uint64(spec.FeatureVersion1)))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(dir, "s")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		require.NoError(t, err)
		defer l.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			answerWith(c, b)
			c.Close()
		}()
		space := vtop.NewMapped()
		tr, err := DialVhost(t.Context(), path, VhostOptions{Space: space, Clock: clock.NewVirtual(time.Unix(0, 0))})
		if err == nil {
			_ = tr.Reset(t.Context())
			_, _ = tr.Status()
			require.NoError(t, tr.Close())
		}
		<-done
		require.Empty(t, space.Regions())
	})
}

// answerWith sends the messages of b one by one, each when something has been asked for, and in the end what is left of b.
func answerWith(c *net.UnixConn, b []byte) {
	conn := vhost.NewConn(c)
	for len(b) > 0 {
		m, fds, err := conn.Receive(context.Background())
		if err != nil {
			return
		}
		vhost.CloseFDs(fds)
		if !m.Request.Answered() && !m.NeedReply() {
			continue
		}
		_, rest, err := vhost.ParseMessage(b)
		if err != nil {
			rest = nil
		}
		if _, err := c.Write(b[:len(b)-len(rest)]); err != nil {
			return
		}
		b = rest
	}
}
