//go:build guest

package virtio

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/test/judges/internal/frames"
	"bare.wire/test/judges/internal/streams"
)

// stream is a TCP connection to the host's kernel, as little of one as carries a stream over a wire that loses nothing: one piece is
// out at a time, and what comes out of order is not kept (RFC 9293).
type stream struct {
	*station
	port                    uint16
	sent, acked, next, room uint32 // snd_nxt, snd_una, rcv_nxt, snd_wnd
	state                   byte   // flags that were seen
	in                      bytes.Buffer
	largest                 int // payload of one received frame
}

// pieceLen is what is sent at once: as much as a window without a scale has.
const pieceLen = 48 << 10

const (
	streamMSS = 1460
	retryTime = 500 * time.Millisecond
)

// testStream sends n bytes to the host's kernel, and receives n, each with its SHA-256 at the end.
func (s *station) testStream(local uint16, n uint64) {
	s.Helper()
	c := &stream{station: s, port: local, sent: 0xffff0000, acked: 0xffff0000}
	c.connect()
	c.write(streams.Header(streams.TowardsServer, n))
	all, err := io.ReadAll(streams.Bytes(n))
	if err != nil {
		s.Fatal(err)
	}
	for at := 0; at < len(all); at += pieceLen {
		c.write(all[at:min(len(all), at+pieceLen)])
	}
	sum := sha256.Sum256(all)
	if got := c.read(sha256.Size); !bytes.Equal(got, sum[:]) {
		s.Error("the SHA-256 of what was sent differs")
	}
	c.hangUp()

	c = &stream{station: s, port: local + 1, sent: 7, acked: 7}
	c.connect()
	c.write(streams.Header(streams.TowardsClient, n))
	if got := c.read(int(n)); !bytes.Equal(got, all) {
		s.Errorf("what was received differs: %s", frames.Difference(got, all))
	}
	if got := c.read(sha256.Size); !bytes.Equal(got, sum[:]) {
		s.Error("the SHA-256 of what was received differs")
	}
	c.hangUp()
	if joined := s.cfg.Offloads&nic.RxGSO != 0; joined != (c.largest > streamMSS) {
		s.Errorf("the longest frame had %d bytes of payload, with joined segments %v", c.largest, joined)
	}
}

// segment sends one, cut by the card when it is long; by hand where the card cannot.
func (c *stream) segment(flags byte, options, payload []byte) {
	c.Helper()
	d := frames.Datagram{
		To: c.card.peerMAC(), From: c.station.port.Info().MAC, TCP: true, Src: c.card.guestIP(), Dst: c.card.hostIP(), SrcPort: c.port, DstPort: portStream,
		Seq: c.sent, Ack: c.next, Flags: flags, Options: options, Payload: payload,
	}
	q := int(c.port) % c.cfg.TxQueues
	switch {
	case len(payload) > streamMSS && c.cfg.Offloads&nic.TxTSO != 0:
		c.sendPartial(q, d, streamMSS, 0)
	case len(payload) > streamMSS:
		for at := 0; at < len(payload); at += streamMSS {
			part := d
			part.Seq, part.Payload = d.Seq+uint32(at), payload[at:min(len(payload), at+streamMSS)]
			c.send(q, c.load(part.Whole(), 0))
		}
	case c.cfg.Offloads&nic.TxL4Checksum != 0:
		c.sendPartial(q, d, 0, 0)
	default:
		c.send(q, c.load(d.Whole(), 0))
	}
}

func (c *stream) connect() {
	c.Helper()
	mss := []byte{2, 4, streamMSS >> 8, streamMSS & 0xff}
	c.try("the host's kernel accepts", func() { c.segment(frames.SYN, mss, nil) }, func() bool { return c.state&frames.SYN != 0 })
	c.sent++
	c.segment(frames.ACK, nil, nil)
}

// write sends one piece, and waits until all of it has been acknowledged.
func (c *stream) write(piece []byte) {
	c.Helper()
	from := c.sent
	c.try("room in the window", func() {}, func() bool { return int(c.room) >= len(piece) })
	c.try("the host's kernel acknowledges", func() {
		c.sent = c.acked
		c.segment(frames.ACK|frames.PSH, nil, piece[c.acked-from:])
		c.sent = from + uint32(len(piece))
	}, func() bool { return c.acked == from+uint32(len(piece)) })
}

// read takes n bytes.
func (c *stream) read(n int) []byte {
	c.Helper()
	c.try("bytes come", func() {}, func() bool { return c.in.Len() >= n })
	return c.in.Next(n)
}

// hangUp ends the connection at once, so that nothing of it disturbs what follows.
func (c *stream) hangUp() {
	c.Helper()
	c.segment(frames.RST|frames.ACK, nil, nil)
	c.quiet(5*time.Millisecond, func(received) bool { return false })
}

// try does something, again after a time, until it has had its effect.
func (c *stream) try(what string, do func(), done func() bool) {
	c.Helper()
	next := realTime.Now()
	c.within(patience, what, func() bool {
		if now := realTime.Now(); !now.Before(next) {
			do()
			next = now.Add(retryTime)
		}
		c.take()
		return done()
	})
}

// take takes what has come, and acknowledges.
func (c *stream) take() {
	c.Helper()
	acknowledge := false
	for _, r := range c.poll() {
		if c.answerARP(r.bytes) {
			continue
		}
		d, wrong := frames.ParseTCP(r.bytes, r.flags&mbuf.RxL4Partial == 0)
		if wrong != "" && len(r.bytes) > 23 && r.bytes[23] == frames.ProtoTCP {
			c.Fatal(wrong)
		}
		if wrong != "" || d.DstPort != c.port || d.SrcPort != portStream {
			continue
		}
		if d.Flags&frames.RST != 0 {
			c.Fatal("the host's kernel resets the connection")
		}
		c.state |= d.Flags
		c.largest = max(c.largest, len(d.Payload))
		if d.Flags&frames.ACK != 0 && int32(d.Ack-c.acked) >= 0 {
			c.acked = d.Ack
		}
		c.room = uint32(binary.BigEndian.Uint16(r.bytes[frames.EthernetLen+34:]))
		switch {
		case d.Flags&frames.SYN != 0:
			c.next = d.Seq + 1
		case len(d.Payload) == 0:
		case d.Seq == c.next:
			c.in.Write(d.Payload)
			c.next += uint32(len(d.Payload))
			fallthrough
		default:
			acknowledge = true
		}
	}
	if acknowledge {
		c.segment(frames.ACK, nil, nil)
	}
}

// answerARP answers a request for the card's address.
func (s *station) answerARP(f []byte) bool {
	if len(f) < 42 || binary.BigEndian.Uint16(f[12:]) != 0x0806 {
		return false
	}
	if f[21] != 1 || [4]byte(f[38:42]) != s.card.guestIP() {
		return true
	}
	mac := s.port.Info().MAC
	r := bytes.Clone(f[:42])
	copy(r, f[6:12])
	copy(r[6:], mac[:])
	r[21] = 2
	copy(r[22:28], mac[:])
	copy(r[28:32], f[38:42])
	copy(r[32:42], f[22:32])
	s.send(0, s.load(append(r, make([]byte, frames.MinLen-len(r))...), 0))
	return true
}
