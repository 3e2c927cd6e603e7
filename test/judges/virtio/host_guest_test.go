//go:build guest

package virtio

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"bare.wire/test/guest"
	"bare.wire/test/judges/internal/calls"
	"bare.wire/test/judges/internal/frames"
	"bare.wire/test/judges/internal/netns"
	"bare.wire/test/judges/internal/streams"
)

// question is what the guest asks the host for, about one card's wire.
type question struct {
	Card   int
	Do     string   // send, burst, counts, kept, reset
	Frames [][]byte `json:",omitempty"` // send: with a vnet header in front of each
	Burst  burst    // burst
}

// burst is frames that the host makes itself: patterned ones.
type burst struct {
	To, From   [6]byte
	First      uint32 // number of the first
	Count      int
	Least, Max int    // lengths, which go up from one to the other and begin again; bytes without FCS
	Tag        uint16 // VLAN, if not 0
}

// answer is what the host says.
type answer struct {
	counts
	Kept [][]byte `json:",omitempty"`
}

// counts is what the host has seen on a wire since it was asked to begin anew.
type counts struct {
	Frames, Bytes uint64   // patterned frames, bytes without FCS
	Echoed        uint64   // and what was sent back
	Wrong         []string // what was wrong with them, the first few
}

// hostHalf is everything behind the cards.
type hostHalf struct {
	ns    *netns.Namespace
	wires map[int]*wireEnd
}

// wireEnd is the far end of one card's wire. It sends back what asks for it, and keeps frames that are not patterned.
type wireEnd struct {
	card    card
	packets *netns.Socket

	mu sync.Mutex
	counts
	kept [][]byte
}

// portEcho is the UDP port of datagrams that come back, portStream the TCP port of streams.
const (
	portEcho   = 7007
	portStream = 5001
)

const (
	mostKept  = 64
	mostWrong = 10
)

// newHost makes a network of TAP interfaces, one for each card.
func newHost(t *testing.T, cards []card) *hostHalf {
	t.Helper()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Close)
	h := &hostHalf{ns: ns, wires: map[int]*wireEnd{}}
	for _, c := range cards {
		if c.wire != nil {
			continue
		}
		w, err := h.addWire(c)
		if err != nil {
			t.Fatal(err)
		}
		h.wires[c.index] = w
		t.Cleanup(func() { _ = w.packets.Close() })
		go w.run(t.Context())
	}
	if err := h.serveTCP(t); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *hostHalf) addWire(c card) (*wireEnd, error) {
	add, mtu, mac := h.ns.AddTAP, c.mtu, c.peerMAC()
	if c.pairs > 1 {
		add = h.ns.AddMultiQueueTAP
	}
	if mtu == 0 {
		mtu = 1500
	}
	err := add(c.tap(), mac[:], mtu)
	if err == nil {
		err = h.ns.SetAddress(c.tap(), netip.PrefixFrom(netip.AddrFrom4(c.hostIP()), 24))
	}
	if err != nil {
		return nil, err
	}
	packets, err := h.ns.PacketsWithHeader(c.tap())
	if err != nil {
		return nil, err
	}
	return &wireEnd{card: c, packets: packets}, nil
}

// serveTCP serves streams on every wire.
func (h *hostHalf) serveTCP(t *testing.T) error {
	return h.ns.Do(func() error {
		l, err := net.Listen("tcp4", fmt.Sprintf(":%d", portStream))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		go streams.Serve(l)
		return nil
	})
}

// serve answers the guest.
func (h *hostHalf) serve(q question) (a answer, err error) {
	w := h.wires[q.Card]
	if w == nil {
		return a, fmt.Errorf("card %d has no wire here", q.Card)
	}
	switch q.Do {
	case "send":
		for _, f := range q.Frames {
			if err := w.packets.Send(f); err != nil {
				return a, err
			}
		}
	case "burst":
		return a, w.burst(q.Burst)
	case "counts", "kept":
		w.mu.Lock()
		defer w.mu.Unlock()
		a.counts = w.counts
		if q.Do == "kept" {
			a.Kept, w.kept = w.kept, nil
		}
	case "reset":
		w.mu.Lock()
		defer w.mu.Unlock()
		w.counts, w.kept = counts{}, nil
	default:
		return a, fmt.Errorf("nobody knows how to %q", q.Do)
	}
	return a, nil
}

// burst sends frames that the host makes, a few at a time, so that the wire's queue does not overflow before the card takes them.
func (w *wireEnd) burst(b burst) error {
	length := b.Least
	for i := range b.Count {
		f := make([]byte, netns.VNetHeaderLen+length)
		frames.PutPattern(f[netns.VNetHeaderLen:], b.To, b.From, b.First+uint32(i), frames.Sink)
		if b.Tag != 0 {
			f = frames.TagAt(f, netns.VNetHeaderLen+12, b.Tag)
		}
		if err := w.packets.Send(f); err != nil {
			return fmt.Errorf("frame %d of %d bytes: %w", i, length, err)
		}
		if length++; length > b.Max {
			length = b.Least
		}
		if i%32 == 31 {
			pause(2 * time.Millisecond)
		}
	}
	return nil
}

// run looks at what comes, until the socket is closed.
func (w *wireEnd) run(ctx context.Context) {
	for {
		got, err := w.packets.Receive(ctx)
		if err != nil {
			return
		}
		if len(got) < netns.VNetHeaderLen+14 {
			continue
		}
		w.look(got, got[netns.VNetHeaderLen:])
	}
}

func (w *wireEnd) look(got, frame []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch back := w.echo(got); {
	case binary.BigEndian.Uint16(frame[12:]) == frames.Experimental:
		w.Frames++
		w.Bytes += uint64(len(frame))
		if wrong := frames.WrongPattern(frame); wrong != "" && len(w.Wrong) < mostWrong {
			w.Wrong = append(w.Wrong, wrong)
		}
		if frame[frames.PatternOp] != frames.Echo {
			return
		}
		fallthrough
	case back != nil:
		if back == nil {
			back = append([]byte{}, got...)
		}
		f := back[netns.VNetHeaderLen:]
		copy(f, frame[6:12])
		copy(f[6:], frame[:6])
		if err := w.packets.Send(back); err != nil && len(w.Wrong) < mostWrong {
			w.Wrong = append(w.Wrong, errors.Join(errors.New("sending back"), err).Error())
		}
		w.Echoed++
	case len(w.kept) < mostKept:
		w.kept = append(w.kept, got)
	}
}

// echo is a datagram to the echo port with its addresses and ports exchanged, which changes no sum; nil for everything else.
func (w *wireEnd) echo(got []byte) []byte {
	const ip = netns.VNetHeaderLen + 14
	if len(got) < ip+28 || binary.BigEndian.Uint16(got[ip-2:]) != 0x0800 || got[ip] != 0x45 || got[ip+9] != 17 || binary.BigEndian.Uint16(got[ip+22:]) != portEcho {
		return nil
	}
	back := append([]byte{}, got...)
	copy(back[ip+12:ip+16], got[ip+16:ip+20])
	copy(back[ip+16:ip+20], got[ip+12:ip+16])
	copy(back[ip+20:ip+22], got[ip+22:ip+24])
	copy(back[ip+22:ip+24], got[ip+20:ip+22])
	return back
}

// ask puts a question to the host, from the guest.
func (c card) ask(t testing.TB, q question) answer {
	t.Helper()
	q.Card = c.index
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	a, err := calls.Ask[answer](ctx, q)
	if err != nil {
		t.Fatalf("the host, on %q: %v", q.Do, err)
	}
	return a
}

// monitor has QEMU do something.
func monitor(t testing.TB, command string, arguments any) json.RawMessage {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got, err := guest.Monitor(ctx, command, arguments)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// cable pulls the card's cable, or plugs it in.
func (c card) cable(t testing.TB, in bool) {
	t.Helper()
	monitor(t, "set_link", map[string]any{"name": c.netdev(), "up": in})
}
