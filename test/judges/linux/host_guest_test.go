//go:build guest

package linux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"bare.wire/test/guest"
	"bare.wire/test/judges/internal/calls"
	"bare.wire/test/judges/internal/netns"
	"bare.wire/test/judges/internal/streams"
)

const (
	tapName = "tap0"
	mtu     = 9000
)

// Addresses: of the host's kernel, of the guest's, and of those in the VLAN, where the host is played by a responder.
var (
	hostAddr  = netip.MustParseAddr("10.82.59.1")
	guestAddr = netip.MustParseAddr("10.82.59.2")
	vlanHost  = netip.MustParseAddr("10.82.60.1")
	vlanGuest = netip.MustParseAddr("10.82.60.2")
	hostMAC   = net.HardwareAddr{2, 0, 0, 0, 0, 0x59}
)

// Ports of the host's servers.
const (
	portStream = 5001
	portEcho   = 5002
)

// question is what the guest asks the host for; one of the fields is set.
type question struct {
	Control json.RawMessage `json:",omitempty"` // a line for nicsim's control socket
	Frames  [][]byte        `json:",omitempty"` // to be sent as they are
	Watch   bool            `json:",omitempty"` // look at the TCP segments from here on
	Seen    bool            `json:",omitempty"` // and say what they were
}

// answer is what the host says.
type answer struct {
	Control  json.RawMessage
	Segments segments
}

// hostHalf is the peer behind the card's wire.
type hostHalf struct {
	ns      *netns.Namespace
	packets *netns.Socket
	nicsim  calls.Nicsim

	mu       sync.Mutex
	segments segments
}

// newHost makes a network with a TAP interface and servers in it.
func newHost(t *testing.T) *hostHalf {
	t.Helper()
	ns, err := netns.New()
	require.NoError(t, err)
	t.Cleanup(ns.Close)
	require.NoError(t, ns.AddTAP(tapName, hostMAC, mtu))
	require.NoError(t, ns.SetAddress(tapName, netip.PrefixFrom(hostAddr, 24)))
	packets, err := ns.Packets(tapName)
	require.NoError(t, err)
	t.Cleanup(func() { _ = packets.Close() })
	h := &hostHalf{ns: ns, packets: packets, nicsim: calls.Nicsim{Socket: filepath.Join(t.TempDir(), "control")}}
	require.NoError(t, ns.Do(func() error {
		listener, err := net.Listen("tcp4", fmt.Sprintf(":%d", portStream))
		if err != nil {
			return err
		}
		echo, err := net.ListenPacket("udp4", fmt.Sprintf(":%d", portEcho))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = listener.Close(); _ = echo.Close() })
		go streams.Serve(listener)
		go serveEcho(echo)
		return nil
	}))
	go h.respond(t.Context())
	return h
}

// machine is the guest: Debian's generic kernel with ixgbe, and a card whose wire ends at the host's TAP interface. more are
// flags of nicsim's.
func machine(t *testing.T, m guest.Machine, more ...string) guest.Machine {
	t.Helper()
	m.Kernel, m.ShareRAM = guest.Generic, true
	m.Modules = append(m.Modules, "ixgbe", "8021q")
	if m.Timeout == 0 {
		m.Timeout = 8 * time.Minute
	}
	if guest.Inside() {
		return m
	}
	h := newHost(t)
	m.Answer = calls.Serve(h.serve)
	m.Wrap = append(h.ns.Enter(), guest.Nicsim(t), "qemu", "--wire", "tap:"+tapName, "--control", h.nicsim.Socket)
	m.Wrap = append(append(m.Wrap, more...), "--")
	return m
}

// serve answers the guest.
func (h *hostHalf) serve(q question) (a answer, err error) {
	switch {
	case q.Control != nil:
		a.Control, err = h.nicsim.Do(q.Control)
	case q.Frames != nil:
		for _, f := range q.Frames {
			if err = h.packets.Send(f); err != nil {
				break
			}
		}
	case q.Watch:
		h.mu.Lock()
		h.segments = segments{}
		h.mu.Unlock()
	case q.Seen:
		h.mu.Lock()
		a.Segments = h.segments
		h.mu.Unlock()
	default:
		err = fmt.Errorf("nothing is asked for: %+v", q)
	}
	return a, err
}

func serveEcho(c net.PacketConn) {
	b := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = c.WriteTo(b[:n], from)
		}
	}
}

// respond plays the host in the VLAN and looks at the segments of TCP streams.
func (h *hostHalf) respond(ctx context.Context) {
	for {
		f, err := h.packets.Receive(ctx)
		if err != nil {
			return
		}
		if r := vlanReply(f); r != nil {
			_ = h.packets.Send(r)
			continue
		}
		h.mu.Lock()
		h.segments.look(f)
		h.mu.Unlock()
	}
}
