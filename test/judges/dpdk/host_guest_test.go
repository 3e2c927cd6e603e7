//go:build guest

package dpdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"bare.wire/test/judges/internal/calls"
	"bare.wire/test/judges/internal/netns"
)

// question is what the guest asks the host for; one of the fields is set.
type question struct {
	Exchange *exchange
	Settle   *exchange // one frame; what comes before it is forgotten
	Ping     *ping
	Control  json.RawMessage // a line for nicsim's control socket
	Patience time.Duration   // how long to wait for what must come back
}

// ping asks the host's kernel to send echo requests to an address behind the card.
type ping struct {
	Host, Peer netip.Addr
	Lengths    []int // of the messages' data
}

// answer is what the host says.
type answer struct {
	Sent    int             // frames
	Control json.RawMessage // nicsim's answer
}

// hostHalf sends and receives what the guest asks for.
type hostHalf struct {
	ns      *netns.Namespace
	packets *netns.Socket
	nicsim  calls.Nicsim
}

const tapName = "tap0"

// newHost makes a network with a TAP interface in it.
func newHost(t *testing.T) *hostHalf {
	t.Helper()
	ns, err := netns.New()
	require.NoError(t, err)
	t.Cleanup(ns.Close)
	require.NoError(t, ns.AddTAP(tapName, sender, 9018))
	packets, err := ns.Packets(tapName)
	require.NoError(t, err)
	t.Cleanup(func() { _ = packets.Close() })
	return &hostHalf{ns: ns, packets: packets, nicsim: calls.Nicsim{Socket: filepath.Join(t.TempDir(), "control")}}
}

// serve answers the guest.
func (h *hostHalf) serve(q question) (a answer, err error) {
	ctx := context.Background()
	switch {
	case q.Exchange != nil:
		a.Sent, err = h.exchange(ctx, *q.Exchange, q.Patience)
	case q.Settle != nil:
		err = h.settle(ctx, *q.Settle, q.Patience)
	case q.Ping != nil:
		a.Sent, err = h.ping(ctx, *q.Ping, q.Patience)
	case q.Control != nil:
		a.Control, err = h.nicsim.Do(q.Control)
	default:
		err = fmt.Errorf("nothing is asked for: %+v", q)
	}
	return a, err
}

// exchange sends the frames of an exchange and compares what comes back, byte by byte and in order.
func (h *hostHalf) exchange(ctx context.Context, x exchange, patience time.Duration) (sent int, err error) {
	steps, err := x.steps()
	if err != nil {
		return 0, err
	}
	if stray := h.packets.Drain(); len(stray) > 0 {
		return 0, fmt.Errorf("%d frames have come that nobody sent, or late; the first: %x", len(stray), stray[0])
	}
	for i, s := range steps {
		for _, f := range s.send {
			if err := h.packets.Send(f); err != nil {
				return sent, fmt.Errorf("sending frame %d (%d bytes): %w", sent, len(f), err)
			}
			sent++
		}
		if err := h.expect(ctx, s.want, patience); err != nil {
			return sent, fmt.Errorf("%s, step %d: %w", x.Traffic, i, err)
		}
	}
	return sent, nil
}

// settle sends a frame until it comes back, and forgets what came before: what an exchange that failed has left.
func (h *hostHalf) settle(ctx context.Context, x exchange, patience time.Duration) error {
	steps, err := x.steps()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	frame := steps[0].send[0]
	if err := h.packets.Send(frame); err != nil {
		return err
	}
	for {
		got, err := h.packets.Receive(ctx)
		if err != nil {
			return fmt.Errorf("a frame sent after everything else has not come back: %w", err)
		}
		if bytes.Equal(got, frame) {
			return nil
		}
	}
}

// expect receives the wanted frames.
func (h *hostHalf) expect(ctx context.Context, want [][]byte, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for i, w := range want {
		got, err := h.packets.Receive(ctx)
		if err != nil {
			return fmt.Errorf("frame %d of %d has not come back in %v: %w", i, len(want), patience, err)
		}
		if !bytes.Equal(got, w) {
			return fmt.Errorf("frame %d of %d: %s", i, len(want), difference(got, w))
		}
	}
	return nil
}

// difference says where two frames differ.
func difference(got, want []byte) string {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	from, show := max(0, at-4), 24
	return fmt.Sprintf("%d bytes, want %d; at byte %d there is %x, want %x",
		len(got), len(want), at, got[from:min(len(got), from+show)], want[from:min(len(want), from+show)])
}

// ping has the kernel's own ARP and ICMP talk to whatever is behind the card.
func (h *hostHalf) ping(ctx context.Context, p ping, patience time.Duration) (sent int, err error) {
	if err := h.ns.SetAddress(tapName, netip.PrefixFrom(p.Host, 24)); err != nil {
		return 0, err
	}
	s, err := h.ns.Echoes(p.Peer)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for i, n := range p.Lengths {
		m := echo(uint16(i), n)
		if err := s.Send(m); err != nil {
			return sent, fmt.Errorf("echo request %d: %w", i, err)
		}
		sent++
		if err := reply(ctx, s, m, patience); err != nil {
			return sent, fmt.Errorf("echo request %d of %d bytes: %w", i, n, err)
		}
	}
	return sent, h.quiet(ctx, p.Lengths, patience)
}

// quiet takes the frames of a ping out of the way, up to the last reply.
func (h *hostHalf) quiet(ctx context.Context, lengths []int, patience time.Duration) error {
	last := echo(uint16(len(lengths)-1), lengths[len(lengths)-1])[4:]
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		f, err := h.packets.Receive(ctx)
		if err != nil {
			return fmt.Errorf("the last reply is not among the frames: %w", err)
		}
		if bytes.HasSuffix(bytes.TrimRight(f, "\x00"), bytes.TrimRight(last, "\x00")) {
			return nil
		}
	}
}

// reply waits for the answer to an echo request: the same with type 0 and its checksum.
func reply(ctx context.Context, s *netns.Socket, request []byte, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		got, err := s.Receive(ctx)
		if err != nil {
			return fmt.Errorf("no reply in %v: %w", patience, err)
		}
		if len(got) == len(request) && got[0] == 0 && bytes.Equal(got[4:], request[4:]) {
			return nil
		}
	}
}

// echo is an ICMP echo request (RFC 792).
func echo(number uint16, n int) []byte {
	b := []byte{8, 0, 0, 0, 0x82, 0x59, byte(number >> 8), byte(number)}
	for i := range n {
		b = append(b, byte(i*7))
	}
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i]) << 8
		if i+1 < len(b) {
			sum += uint32(b[i+1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	b[2], b[3] = ^byte(sum>>8), ^byte(sum)
	return b
}
