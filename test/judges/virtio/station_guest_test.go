//go:build guest

package virtio

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/test/guest"
	"bare.wire/test/judges/internal/frames"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// station is an opened card, and once it has been started a pool, with what it takes to send and receive; for one goroutine.
type station struct {
	testing.TB
	card   card
	addr   string
	space  *vtop.Space
	opener *pci.Opener
	port   *virtio.Port
	pool   *mbuf.Pool
	cache  *mbuf.Cache
	waiter *nic.Waiter
	number uint32 // of the last patterned frame
	back   int    // frames that Reclaim has counted
	late   bool   // frames of before a stop may come
	cfg    nic.Config
}

const (
	buffers  = 4096
	patience = 30 * time.Second // for what the other side must do; the machine has others to serve
)

// access is the way to the card.
func (c card) access() pci.Access {
	if c.sysfs {
		return pci.Sysfs
	}
	return pci.VFIO
}

// bind gives the card to who hands it out.
func (c card) bind(t testing.TB, addr string) {
	t.Helper()
	driver := "vfio-pci"
	if c.sysfs {
		driver = ""
	}
	if err := guest.Bind(addr, driver); err != nil {
		t.Fatal(err)
	}
}

// newSpace is an address space in which the card reaches memory. A legacy device goes past the IOMMU in QEMU, as on hardware that
// has none, and so needs physical addresses.
func (c card) newSpace(t testing.TB) *vtop.Space {
	t.Helper()
	if !c.sysfs && !c.legacy {
		return vtop.NewMapped()
	}
	s, err := vtop.NewPhysical()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// open opens a card by its transport.
func open(t testing.TB, c card, addr string, not spec.Restriction) *station {
	t.Helper()
	s, err := tryOpen(t, c, addr, not)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tryOpen is open where that may fail.
func tryOpen(t testing.TB, c card, addr string, not spec.Restriction) (*station, error) {
	t.Helper()
	return tryOpenWith(t, c, addr, virtio.Options{Features: not})
}

// tryOpenWith is tryOpen with some of the driver's options.
func tryOpenWith(t testing.TB, c card, addr string, opt virtio.Options) (*station, error) {
	t.Helper()
	s := &station{TB: t, card: c, addr: addr, space: c.newSpace(t)}
	s.opener = (&pci.Host{}).NewOpener(s.space, pci.OpenOptions{Access: c.access()})
	a, err := pci.ParseAddress(addr)
	if err != nil {
		return nil, err
	}
	f, err := s.opener.Open(context.Background(), a)
	if err != nil {
		return nil, errors.Join(err, s.opener.Close())
	}
	tr, err := virtio.NewPCI(context.Background(), f, virtio.TransportOptions{Clock: realTime})
	if err != nil {
		return nil, errors.Join(err, f.Close(), s.opener.Close())
	}
	opt.Space, opt.Clock, opt.Node = s.space, realTime, -1
	s.port, err = virtio.Open(context.Background(), tr, opt)
	if err != nil {
		return nil, errors.Join(err, tr.Close(), s.opener.Close())
	}
	if s.waiter, err = nic.NewWaiter(realTime); err != nil {
		return nil, errors.Join(err, s.port.Close(), s.opener.Close())
	}
	t.Cleanup(func() { _, _ = s.port.Close(), s.opener.Close() }) // of a test that failed
	return s, nil
}

// start starts the port with a pool of its own, which a second start uses again, and waits for the link.
func (s *station) start(cfg nic.Config) *station {
	s.Helper()
	if s.pool == nil {
		pool, err := mbuf.NewPool(mbuf.Config{Name: s.card.name, Space: s.space, Buffers: buffers})
		if err != nil {
			s.Fatal(err)
		}
		s.pool, s.cache = pool, pool.NewCache()
	}
	if cfg.Pool == nil {
		cfg.Pool = s.pool
	}
	cfg.RxQueues, cfg.TxQueues = max(1, cfg.RxQueues), max(1, cfg.TxQueues)
	if err := s.port.Start(context.Background(), cfg); err != nil {
		s.Fatal(err)
	}
	s.cfg = cfg
	s.within(patience, "the link comes up", func() bool {
		s.port.Housekeep(realTime.Now())
		return s.port.Link().Up
	})
	return s
}

// close closes everything; every buffer has to be back.
func (s *station) close() {
	s.Helper()
	if err := s.port.Close(); err != nil {
		s.Errorf("close: %v", err)
	}
	if s.pool != nil {
		s.cache.Close()
		if err := s.pool.Close(); err != nil {
			s.Errorf("buffers are missing: %v", err)
		}
		s.pool = nil
	}
	if err := errors.Join(s.waiter.Close(), s.opener.Close()); err != nil {
		s.Error(err)
	}
}

// within waits until ok, which is asked again and again.
func (s *station) within(limit time.Duration, what string, ok func() bool) {
	s.Helper()
	for end := realTime.Now().Add(limit); !ok(); runtime.Gosched() {
		if err := s.port.Err(); err != nil {
			s.Fatalf("%s: %v", what, err)
		}
		if realTime.Now().After(end) {
			s.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// alloc is an empty buffer.
func (s *station) alloc() *mbuf.Buf {
	s.Helper()
	var b *mbuf.Buf
	s.within(patience, "a buffer is free", func() bool {
		s.reclaim()
		b = s.cache.Alloc()
		return b != nil
	})
	return b
}

// reclaim takes back what has been sent.
func (s *station) reclaim() {
	for i := range s.cfg.TxQueues {
		s.back += s.port.Tx(i).Reclaim()
	}
}

// load makes a frame of bytes, in as many buffers as it takes, each with at most so many (0: as many as fit).
func (s *station) load(f []byte, most int) *mbuf.Buf {
	s.Helper()
	var head, last *mbuf.Buf
	for len(f) > 0 {
		b := s.alloc()
		n := min(len(f), s.pool.Size())
		if most > 0 {
			n = min(n, most)
		}
		room, err := b.Reserve(n)
		if err != nil {
			s.Fatal(err)
		}
		for i := range room {
			room[i] = f[i]
		}
		f = f[n:]
		b.SetNext(nil)
		b.SetTxFlags(0)
		if last == nil {
			head = b
		} else {
			last.SetNext(b)
		}
		last = b
	}
	return head
}

// send sends a frame on a queue, waiting for room.
func (s *station) send(q int, b *mbuf.Buf) {
	s.Helper()
	s.within(patience, "room in the ring", func() bool {
		if s.port.Tx(q).Send([]*mbuf.Buf{b}) == 1 {
			return true
		}
		s.reclaim()
		return false
	})
}

// patterned sends a patterned frame of n bytes.
func (s *station) patterned(q int, op byte, n int) {
	s.Helper()
	s.number++
	f := make([]byte, n)
	frames.PutPattern(f, s.card.peerMAC(), s.port.Info().MAC, s.number, op)
	s.send(q, s.load(f, 0))
}

// received is what came: the bytes of a frame, and what was noted of it.
type received struct {
	queue int
	bytes []byte
	flags mbuf.Flags
	hash  uint32
	mss   int
	segs  int
	vlan  uint16
}

// poll takes what is there.
func (s *station) poll() (all []received) {
	into := make([]*mbuf.Buf, 32)
	for q := range s.cfg.RxQueues {
		n := s.port.Rx(q).Recv(into)
		for _, b := range into[:n] {
			r := received{queue: q, flags: b.Flags(), hash: b.Hash(), mss: int(b.MSS), segs: b.Segs(), vlan: b.VLAN}
			for seg := b; seg != nil; seg = seg.Next() {
				r.bytes = append(r.bytes, seg.Bytes()...)
			}
			if len(r.bytes) != b.FrameLen() {
				s.Errorf("a frame of %d bytes has %d in its segments", b.FrameLen(), len(r.bytes))
			}
			all = append(all, r)
			b.Free()
		}
	}
	return all
}

// expect receives until frames that interest somebody are there, n of them, and returns those. Nothing but the host's own noise may
// come besides.
func (s *station) expect(n int, what string, interesting func(r received) bool) (got []received) {
	s.Helper()
	s.within(patience, fmt.Sprintf("%d %s", n, what), func() bool {
		for _, r := range s.poll() {
			if interesting(r) {
				got = append(got, r)
			}
		}
		return len(got) >= n
	})
	return got
}

// quiet receives for a while, and returns what interests.
func (s *station) quiet(d time.Duration, interesting func(r received) bool) (got []received) {
	for end := realTime.Now().Add(d); realTime.Now().Before(end); pause(time.Millisecond) {
		for _, r := range s.poll() {
			if interesting(r) {
				got = append(got, r)
			}
		}
	}
	return got
}

// isPatterned picks patterned frames.
func isPatterned(r received) bool {
	return len(r.bytes) > frames.PatternStart && binary.BigEndian.Uint16(r.bytes[12:]) == frames.Experimental
}

// window is how many frames are on their way at once: rings and queues on the way hold more.
const window = 32

// exchange sends patterned frames of lengths, each on the next queue, and has them come back: each once, as it was, those of one
// queue in order when there is only one.
func (s *station) exchange(lengths []int) {
	s.Helper()
	mac := s.port.Info().MAC
	out := map[uint32]int{} // length by number
	before, last := s.number, uint32(0)
	take := func() {
		for _, r := range s.poll() {
			if !isPatterned(r) {
				continue
			}
			number := binary.BigEndian.Uint32(r.bytes[frames.PatternNumber:])
			want, known := out[number]
			switch wrong := frames.WrongPattern(r.bytes); {
			case !known && s.late && number <= before:
				continue
			case !known:
				s.Fatalf("frame %d came, which is not expected (of %d bytes)", number, len(r.bytes))
			case len(r.bytes) != want:
				s.Fatalf("frame %d has %d bytes, want %d", number, len(r.bytes), want)
			case wrong != "":
				s.Fatal(wrong)
			case [6]byte(r.bytes[:6]) != mac || [6]byte(r.bytes[6:12]) != s.card.peerMAC():
				s.Fatalf("frame %d has addresses %x", number, r.bytes[:12])
			case s.cfg.TxQueues == 1 && s.cfg.RxQueues == 1 && number <= last:
				s.Fatalf("frame %d behind %d", number, last)
			}
			last = number
			delete(out, number)
		}
	}
	for i, n := range lengths {
		s.within(patience, "frames come back", func() bool {
			take()
			return len(out) < window
		})
		out[s.number+1] = n
		s.patterned(i%s.cfg.TxQueues, frames.Echo, n)
	}
	s.within(patience, "the last frames come back", func() bool {
		take()
		return len(out) == 0
	})
}

// everyLength is from the least to the most.
func everyLength(least, most, step int) (all []int) {
	for n := least; n <= most; n += step {
		all = append(all, n)
	}
	return append(all, most)
}

// sleep waits for a frame as an idle worker does.
func (s *station) sleep(idle *nic.Idle, what string, interesting func(r received) bool) received {
	s.Helper()
	for end := realTime.Nanos() + int64(patience); realTime.Nanos() < end; {
		all := s.poll()
		for _, r := range all {
			if interesting(r) {
				return r
			}
		}
		if _, err := idle.Round(len(all), min(end, math.MaxInt64)); err != nil {
			s.Fatal(err)
		}
	}
	s.Fatalf("%s: not within %v", what, patience)
	return received{}
}
