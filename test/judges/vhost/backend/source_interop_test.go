//go:build interop

package backend

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"bare.wire/sim/virtionet"
	"bare.wire/test/judges/internal/frames"
	"bare.wire/virtio/spec"
)

// headLen is what a frame has before its pattern: Ethernet, IPv4 and UDP headers, bytes.
const headLen = 14 + 20 + 8

var (
	station = [6]byte{2, 0, 0, 0, 0x22, 1} // where frames are from
	target  = [6]byte{2, 0, 0, 0, 0x22, 2} // virtio_user's address
)

// source is a virtionet.Net that sends numbered frames and checks those that come back. At most window are under way, so that
// nobody is overloaded. It is used under the world's lock.
type source struct {
	total   int                            // frames to send
	window  int                            // that may be under way
	length  func(number int) int           // of a frame, bytes without FCS, at most 2048
	flows   int                            // UDP ports in use, so that all queues are
	swapped bool                           // testpmd exchanges the addresses
	offload spec.Features                  // what there is
	judge   func(virtionet.Header, []byte) // looks at what comes back in place of check
	tcp     bool                           // frames are TCP segments, not datagrams
	swallow bool                           // frames do not come back: they are sent as fast as the device takes them
	session uint16                         // in every frame; beyond 0, those of other sessions may come, which the front end still had

	sent, back int
	old        int // frames of other sessions
	seen       []uint64
	bad        []string
	up         bool
	buf, want  [2048]byte
	arrival    func(int64)
	change     func(bool)
}

func (s *source) fault(format string, args ...any) {
	if len(s.bad) < 10 {
		s.bad = append(s.bad, fmt.Sprintf(format, args...))
	}
}

// put writes frame number into b, all of it. Its IPv4 and UDP headers are right but for UDP's checksum, which is not there.
func (s *source) put(b []byte, number int) {
	copy(b, target[:])
	copy(b[6:], station[:])
	ip := b[14:34]
	clear(b[12:headLen])
	b[12], b[13] = 8, 0
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[4:], s.session)
	binary.BigEndian.PutUint16(ip[2:], uint16(len(b)-14))
	copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	binary.BigEndian.PutUint16(ip[10:], ^frames.Sum16(ip, 0))
	if s.tcp {
		ip[9] = 6
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^frames.Sum16(ip, 0))
		tcp := b[34:54]
		clear(tcp)
		binary.BigEndian.PutUint16(tcp, 1000)
		binary.BigEndian.PutUint16(tcp[2:], 7)
		tcp[12], tcp[13] = 5<<4, frames.ACK
		s.pattern(b[54:], number)
		return
	}
	udp := b[34:42]
	binary.BigEndian.PutUint16(udp, uint16(1000+number%max(s.flows, 1)))
	binary.BigEndian.PutUint16(udp[2:], 7)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(b)-34))
	s.pattern(b[headLen:], number)
}

// noise is what payloads are pieces of: bytes of a linear congruential generator (Knuth's MMIX).
var noise = func() []byte {
	b, x := make([]byte, 1<<16+2048), uint64(1)
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	return b
}()

// pattern is the payload of a frame: its number, and noise from a place that follows from it, so that what belongs to another frame,
// even in part, shows. A million frames cost a second so, which they did not when each byte was computed.
func (s *source) pattern(b []byte, number int) {
	binary.BigEndian.PutUint32(b, uint32(number))
	copy(b[4:], noise[uint32(number)*0x9e3779b1>>16:])
}

func (s *source) Next() (int64, bool) {
	return 0, s.sent < s.total && (s.swallow || s.sent-s.back < s.window)
}

func (s *source) Receive(int64) (virtionet.Header, []byte, bool) {
	if _, ok := s.Next(); !ok {
		return virtionet.Header{}, nil, false
	}
	f := s.buf[:s.length(s.sent)]
	s.put(f, s.sent)
	s.sent++
	return virtionet.Header{}, f, true
}

func (s *source) Send(h virtionet.Header, f []byte, now int64) {
	if s.judge != nil {
		s.judge(h, f)
		return
	}
	s.check(f)
	if _, more := s.Next(); more && s.arrival != nil {
		s.arrival(now)
	}
}

// check holds a frame that came back against the one that was sent.
func (s *source) check(f []byte) {
	if len(f) < headLen+4 {
		s.fault("a frame of %d bytes", len(f))
		return
	}
	if s.session > 0 && binary.BigEndian.Uint16(f[18:]) != s.session {
		s.old++
		return
	}
	number := int(binary.BigEndian.Uint32(f[headLen:]))
	if number >= s.sent {
		s.fault("frame %d, of which there are %d", number, s.sent)
		return
	}
	if s.seen == nil {
		s.seen = make([]uint64, (s.total+63)/64)
	}
	if s.seen[number/64]>>(number%64)&1 != 0 {
		s.fault("frame %d came twice", number)
	}
	s.seen[number/64] |= 1 << (number % 64)
	s.back++
	want := s.want[:s.length(number)]
	s.put(want, number)
	if s.swapped {
		copy(want, station[:])
		copy(want[6:], target[:])
	}
	if !bytes.Equal(f, want) {
		s.fault("frame %d: %s", number, frames.Difference(f, want))
	}
}

func (s *source) Offloads() spec.Features   { return s.offload }
func (s *source) SetOffloads(spec.Features) {}
func (s *source) Up() bool                  { return true }
func (s *source) SetUp(up bool)             { s.up = up }
func (s *source) OnArrival(f func(int64))   { s.arrival = f }
func (s *source) OnChange(f func(up bool))  { s.change = f }
