//go:build interop

package frontend

import (
	"encoding/binary"
	"fmt"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/test/judges/internal/frames"
)

var (
	station = [6]byte{2, 0, 0, 0, 0, 1}
	other   = [6]byte{2, 0, 0, 0, 0, 2}
)

const burst = 32

// window is how many frames of a queue may be under way: no ring is ever full, and no frame may be lost.
const window = 192

// flow is the traffic of one queue pair.
type flow struct {
	tx      nic.TxQueue
	rx      nic.RxQueue
	total   uint64 // frames to be sent
	made    uint64
	sent    uint64
	got     uint64
	bytes   uint64 // of the frames that were sent
	pending []*mbuf.Buf
}

// exchange is traffic to a back end that sends all back, or keeps it.
type exchange struct {
	f       *frontEnd
	flows   []*flow
	length  func(i uint64) int
	swapped bool // it swaps the addresses
	echo    bool // it sends frames back
	scratch []byte
	in      [burst]*mbuf.Buf
}

// newExchange is of total frames, over all queues in equal parts.
func newExchange(f *frontEnd, total uint64, echo, swapped bool, length func(uint64) int) *exchange {
	x := &exchange{f: f, length: length, swapped: swapped, echo: echo, scratch: make([]byte, 0, 1<<14)}
	for i := range f.cfg.TxQueues {
		x.flows = append(x.flows, &flow{tx: f.Tx(i), rx: f.Rx(i), total: total / uint64(f.cfg.TxQueues)})
	}
	return x
}

// run goes on until all frames have been sent, and have come back where that is wanted.
func (x *exchange) run() error {
	var armed []nic.Armer
	for _, fl := range x.flows {
		armed = append(armed, fl.rx, fl.tx)
	}
	idle := nic.NewIdle(x.f.wait, 64, armed...)
	quiet, last := x.f.clock.Nanos(), uint64(0)
	for !x.done() {
		work, progress := 0, uint64(0)
		for i, fl := range x.flows {
			n, err := x.step(i, fl)
			if err != nil {
				return err
			}
			work += n
			progress += fl.sent + fl.got
		}
		now := x.f.clock.Nanos()
		if progress != last {
			quiet, last = now, progress
		}
		if now-quiet > int64(patience) {
			return fmt.Errorf("nothing moves any more: %s; port %v, %+v", x, x.f.Err(), x.f.Stats())
		}
		if _, err := idle.Round(work, now+int64(50*time.Millisecond)); err != nil {
			return err
		}
		if err := x.f.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (x *exchange) String() (s string) {
	for i, fl := range x.flows {
		s += fmt.Sprintf("queue %d: %d of %d sent, %d back; ", i, fl.sent, fl.total, fl.got)
	}
	return s
}

func (x *exchange) done() bool {
	for _, fl := range x.flows {
		if fl.sent < fl.total || x.echo && fl.got < fl.total {
			return false
		}
	}
	return true
}

// step receives and sends a burst.
func (x *exchange) step(queue int, fl *flow) (work int, err error) {
	n := fl.rx.Recv(x.in[:])
	for _, b := range x.in[:n] {
		if wrong := x.check(queue, fl, b); wrong != "" {
			return 0, fmt.Errorf("queue %d, frame %d that comes back: %s", queue, fl.got, wrong)
		}
		fl.got++
		x.f.cache.Free(b)
	}
	under := fl.made - fl.got
	if !x.echo {
		under = 0
	}
	for len(fl.pending) < burst && fl.made < fl.total && under < window {
		b := x.make(queue, fl.made)
		if b == nil {
			break
		}
		fl.pending = append(fl.pending, b)
		fl.bytes += uint64(b.FrameLen())
		fl.made++
		under++
	}
	sent := fl.tx.Send(fl.pending)
	fl.pending = fl.pending[:copy(fl.pending, fl.pending[sent:])]
	fl.sent += uint64(sent)
	return n + sent + fl.tx.Reclaim(), nil
}

// number is what a frame says of itself: its place and its queue.
func number(queue int, i uint64) uint32 { return uint32(i*8) + uint32(queue) }

// make makes frame i of a queue; some in two segments.
func (x *exchange) make(queue int, i uint64) *mbuf.Buf {
	n := x.length(i)
	whole := x.scratch[:n]
	frames.PutPattern(whole, other, station, number(queue, i), frames.Echo)
	first := n
	if i%7 == 3 && n > 64 {
		first = 64
	}
	head := x.segment(whole[:first])
	if head == nil || first == n {
		return head
	}
	second := x.segment(whole[first:])
	if second == nil {
		x.f.cache.Free(head)
		return nil
	}
	head.SetNext(second)
	return head
}

// segment is a buffer with these bytes, nil when there is none.
func (x *exchange) segment(bytes []byte) *mbuf.Buf {
	b := x.f.cache.Alloc()
	if b == nil {
		return nil
	}
	room, err := b.Reserve(len(bytes))
	if err != nil {
		panic(err) // impossible: the buffers are made for it
	}
	copy(room, bytes)
	return b
}

// check says what is wrong with a frame that comes back, "" if nothing: it has to be the next of its queue.
func (x *exchange) check(queue int, fl *flow, b *mbuf.Buf) string {
	if !x.echo {
		return "nothing was to come back"
	}
	f := x.gather(b)
	want := x.length(fl.got)
	switch {
	case len(f) != want:
		return fmt.Sprintf("%d bytes, want %d", len(f), want)
	case binary.BigEndian.Uint32(f[frames.PatternNumber:]) != number(queue, fl.got):
		return fmt.Sprintf("it is %#x, want %#x", binary.BigEndian.Uint32(f[frames.PatternNumber:]), number(queue, fl.got))
	}
	to, from := other, station
	if x.swapped {
		to, from = station, other
	}
	if [6]byte(f) != to || [6]byte(f[6:]) != from {
		return fmt.Sprintf("addresses % x", f[:12])
	}
	return frames.WrongPattern(f)
}

// gather puts the segments of a frame together.
func (x *exchange) gather(b *mbuf.Buf) []byte {
	if b.Next() == nil {
		return b.Bytes()
	}
	f := x.scratch[:0]
	for ; b != nil; b = b.Next() {
		f = append(f, b.Bytes()...)
	}
	return f
}

// totals are the frames and bytes of all queues.
func (x *exchange) totals() (sent, got, bytes uint64) {
	for _, fl := range x.flows {
		sent, got, bytes = sent+fl.sent, got+fl.got, bytes+fl.bytes
	}
	return sent, got, bytes
}

// drain waits until all that was sent has been sent, and frees what comes.
func (x *exchange) drain() error {
	for end := x.f.clock.Nanos() + int64(patience); ; {
		free := x.f.pool.Stats().Free
		for _, fl := range x.flows {
			fl.tx.Reclaim()
		}
		x.f.cache.Flush()
		if now := x.f.pool.Stats(); now.Free == free {
			return nil
		}
		if x.f.clock.Nanos() > end {
			return fmt.Errorf("buffers keep coming back after %v", patience)
		}
	}
}

// Lengths of frames, bytes: all there are between the least and the most in mixed, but short ones mostly, for each byte is looked at.
func small(uint64) int { return 60 }
func some(i uint64) int {
	return [...]int{60, 61, 64, 65, 128, 129, 577, 1514}[i*5%8]
}
func mixed(i uint64) int {
	if i%8 == 0 {
		return 60 + int(i*37%1455)
	}
	return 60 + int(i*11%97)
}
func largest(i uint64) int {
	if i%8 == 0 {
		return 1514
	}
	return 60
}
