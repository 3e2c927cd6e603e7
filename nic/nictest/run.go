package nictest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
)

// run is one test on one bench.
type run struct {
	testing.TB
	*Bench
	ctx    context.Context
	pools  []*mbuf.Pool
	caches map[*mbuf.Pool]*mbuf.Cache
	seq    uint64
	ended  bool
}

func begin(t testing.TB, open Opener, seed uint64) *run {
	t.Helper()
	r := &run{TB: t, Bench: open(t, seed), ctx: context.Background(), caches: make(map[*mbuf.Pool]*mbuf.Cache)}
	t.Cleanup(func() {
		if !r.ended { // a test that failed early gives back what it can
			_ = r.A.Close()
			_ = r.B.Close()
			if r.Bench.Close != nil {
				_ = r.Bench.Close()
			}
		}
	})
	return r
}

// end closes everything and checks what holds after any situation.
func (r *run) end() {
	r.Helper()
	r.ended = true
	for _, p := range []nic.Port{r.A, r.B} {
		if err := p.Close(); err != nil {
			r.Errorf("close %s: %v", p.Info().Name, err)
		}
	}
	if r.Bench.Close != nil {
		if err := r.Bench.Close(); err != nil {
			r.Errorf("close the bench: %v", err)
		}
	}
	r.home()
	r.blameless()
}

// home checks that every buffer is back in its pool.
func (r *run) home() {
	r.Helper()
	for _, c := range r.caches {
		c.Close()
	}
	for _, p := range r.pools {
		if err := p.Close(); err != nil {
			r.Errorf("buffers are missing: %v", err)
		}
	}
}

func (r *run) blameless() {
	r.Helper()
	if r.Misuse == nil {
		return
	}
	for _, m := range r.Misuse() {
		r.Errorf("the device holds against the driver: %s", m)
	}
}

// explain says more about a test that has failed.
func (r *run) explain(format string, args ...any) {
	if r.Failed() {
		r.Logf(format, args...)
	}
}

// pool makes a pool that end looks after. Zero Buffers mean enough.
func (r *run) pool(cfg mbuf.Config) *mbuf.Pool {
	r.Helper()
	if cfg.Name == "" {
		cfg.Name = fmt.Sprintf("pool %d", len(r.pools))
	}
	if cfg.Buffers == 0 {
		cfg.Buffers = 1536
	}
	p, err := r.NewPool(cfg)
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.pools = append(r.pools, p)
	return p
}

// few is how often to do something: n times, or less often in builds that check every access, and on benches in real time,
// since these take long.
func (r *run) few(n int) int {
	if raceBuild || mbuf.Checking || r.Late > 0 {
		return max(2, n/5)
	}
	return n
}

// exactPool has n buffers, none of them reserved for anything.
func (r *run) exactPool(n, size int) *mbuf.Pool {
	r.Helper()
	return r.pool(mbuf.Config{Buffers: n, Size: size, ReserveReceive: -1, ReserveControl: -1})
}

func (r *run) cache(p *mbuf.Pool) *mbuf.Cache {
	c := r.caches[p]
	if c == nil {
		c = p.NewCache()
		r.caches[p] = c
	}
	return c
}

// out is how many buffers of p are neither in it nor in the test's cache.
func (r *run) out(p *mbuf.Pool) int {
	r.cache(p).Flush()
	return p.Stats().Out
}

// start starts a port, with a pool of its own if cfg names none. Rings are as large as the port can have them, and a port that cannot
// block loses nothing either as long as its rings hold what is under way.
func (r *run) start(p nic.Port, cfg nic.Config) {
	r.Helper()
	if cfg.Pool == nil {
		cfg.Pool = r.pool(mbuf.Config{Name: p.Info().Name})
	}
	for _, n := range []*int{&cfg.RxDesc, &cfg.TxDesc} {
		if *n > 0 {
			align := p.Info().DescAlign
			*n = min(max((*n+align-1)/align*align, p.Info().MinDesc), p.Info().MaxDesc)
		}
	}
	err := p.Start(r.ctx, cfg)
	if cfg.BlockWhenFull && errors.Is(err, errors.ErrUnsupported) {
		cfg.BlockWhenFull = false
		err = p.Start(r.ctx, cfg)
	}
	if err != nil {
		r.Fatalf("start: %v", err)
	}
}

// lost is how many frames the device of a port has dropped for want of buffers.
func (r *run) lost(p nic.Port) uint64 {
	if r.Lost != nil {
		return r.Lost(p)
	}
	s := p.Stats()
	return s.RxNoDesc + s.RxMissed
}

// filters says whether B keeps out what is not for it. It changes nothing.
func (r *run) filters(what string) bool {
	if err := r.B.Filters().RemoveMAC([6]byte{2, 0xfe}); errors.Is(err, errors.ErrUnsupported) {
		r.cannot(what)
		return false
	}
	return true
}

// startBoth starts both ports alike, each with a pool of its own unless cfg names one, and waits for the link.
func (r *run) startBoth(cfg nic.Config) {
	r.Helper()
	r.start(r.A, cfg)
	r.start(r.B, cfg)
	r.up()
}

// up waits until both ports see the link.
func (r *run) up() {
	r.Helper()
	for range 20 {
		r.Settle()
		r.housekeep()
		if r.A.Link().Up && r.B.Link().Up {
			return
		}
	}
	r.Fatalf("no link: A %v, B %v", r.A.Link(), r.B.Link())
}

func (r *run) housekeep() {
	r.A.Housekeep(r.Clock.Now())
	r.B.Housekeep(r.Clock.Now())
}

func (r *run) stop(ports ...nic.Port) {
	r.Helper()
	for _, p := range ports {
		if err := p.Stop(); err != nil {
			r.Errorf("stop %s: %v", p.Info().Name, err)
		}
	}
}

// pass lets time go by.
func (r *run) pass(d time.Duration) {
	r.Helper()
	if err := r.Clock.Sleep(r.ctx, d); err != nil {
		r.Fatalf("sleep: %v", err)
	}
}

// build puts a frame into buffers of p: one, or as many as lens has, of those lengths.
func (r *run) build(p *mbuf.Pool, frame []byte, lens ...int) *mbuf.Buf {
	r.Helper()
	if lens == nil {
		lens = []int{len(frame)}
	}
	var head, last *mbuf.Buf
	for _, n := range lens {
		b := r.cache(p).Alloc()
		if b == nil {
			r.Fatalf("pool %q is dry: %+v", p.Name(), p.Stats())
		}
		room, err := b.Reserve(n)
		if err != nil {
			r.Fatalf("%v", err)
		}
		mbuf.Copy(p, buildSite, room, frame[:n])
		frame = frame[n:]
		if head == nil {
			head = b
		} else {
			last.SetNext(b)
		}
		last = b
	}
	return head
}

var buildSite = &mbuf.Site{Name: "nictest: build a frame"}

// buildAll builds each frame in one buffer.
func (r *run) buildAll(p *mbuf.Pool, frames [][]byte) []*mbuf.Buf {
	r.Helper()
	out := make([]*mbuf.Buf, len(frames))
	for i, f := range frames {
		out[i] = r.build(p, f)
	}
	return out
}

// send gives all of bufs to q, waiting while its ring is full.
func (r *run) send(q nic.TxQueue, bufs ...*mbuf.Buf) {
	r.Helper()
	for range patience {
		n := q.Send(bufs)
		if n < 0 || n > len(bufs) {
			r.Fatalf("Send took %d of %d", n, len(bufs))
		}
		if bufs = bufs[n:]; len(bufs) == 0 {
			return
		}
		r.pass(moment)
		q.Reclaim()
	}
	r.Fatalf("the ring stays full: %d frames left; %v", len(bufs), errors.Join(r.A.Err(), r.B.Err()))
}

// sendFrames builds frames in buffers of p and sends them.
func (r *run) sendFrames(q nic.TxQueue, p *mbuf.Pool, frames ...[]byte) {
	r.Helper()
	for group := range slices.Chunk(frames, 64) {
		r.send(q, r.buildAll(p, group)...)
	}
}

// receive takes n frames from q, in bursts of at most burst, waiting for them. The caller owns them.
func (r *run) receive(q nic.RxQueue, n, burst int) []*mbuf.Buf {
	r.Helper()
	var got []*mbuf.Buf
	into := make([]*mbuf.Buf, burst)
	for range patience {
		k := q.Recv(into[:min(burst, n-len(got))])
		if got = append(got, into[:k]...); len(got) == n {
			return got
		}
		if k == 0 {
			r.pass(moment)
		}
	}
	r.Fatalf("received %d frames, want %d; A %+v\nB %+v\n%v", len(got), n, brief(r.A.Stats()), brief(r.B.Stats()), errors.Join(r.A.Err(), r.B.Err()))
	return nil
}

// drainQueue takes all that q has after things have settled.
func (r *run) drainQueue(q nic.RxQueue) []*mbuf.Buf {
	var got []*mbuf.Buf
	into := make([]*mbuf.Buf, 64)
	for idle := 0; idle < 2; {
		k := q.Recv(into)
		got = append(got, into[:k]...)
		if idle++; k > 0 {
			idle = 0
			continue
		}
		r.Settle()
	}
	return got
}

// expect receives exactly these frames, in this order, and frees them.
func (r *run) expect(q nic.RxQueue, frames ...[]byte) {
	r.Helper()
	r.check(r.receive(q, len(frames), 32), frames)
	r.nothing(q)
}

// nothing checks that no frame comes.
func (r *run) nothing(q nic.RxQueue) {
	r.Helper()
	r.Settle()
	var into [4]*mbuf.Buf
	if n := q.Recv(into[:]); n != 0 {
		r.Fatalf("%d frames more than were sent; the first has %d bytes: %.32x", n, into[0].FrameLen(), into[0].Bytes())
	}
}

// check compares what was received with what was sent, and frees it.
func (r *run) check(got []*mbuf.Buf, frames [][]byte) {
	r.Helper()
	for i, b := range got {
		if why := r.differs(b, frames[i]); why != "" {
			r.Fatalf("frame %d of %d: %s", i, len(got), why)
		}
	}
	r.free(got...)
}

// differs says how a received frame differs from what was sent, padded as the device pads; "" if it does not.
func (r *run) differs(b *mbuf.Buf, frame []byte) string {
	want := r.padded(frame)
	if b.FrameLen() != len(want) {
		return fmt.Sprintf("%d bytes, want %d", b.FrameLen(), len(want))
	}
	at, segs := 0, 0
	for s := b; s != nil; s = s.Next() {
		part := want[at : at+s.Len()]
		if !bytes.Equal(s.Bytes(), part) {
			k := 0
			for s.Bytes()[k] == part[k] {
				k++
			}
			return fmt.Sprintf("byte %d is %#02x, want %#02x", at+k, s.Bytes()[k], part[k])
		}
		at += s.Len()
		segs++
	}
	if segs != b.Segs() {
		return fmt.Sprintf("Segs says %d, there are %d", b.Segs(), segs)
	}
	return ""
}

func (r *run) padded(frame []byte) []byte {
	if n := r.MinFrame - len(frame); n > 0 {
		return slices.Concat(frame, make([]byte, n))
	}
	return frame
}

func (r *run) free(bufs ...*mbuf.Buf) {
	for _, b := range bufs {
		b.Free()
	}
}

// brief leaves out what is zero.
func brief(s nic.Stats) string {
	s.Queues = slices.DeleteFunc(slices.Clone(s.Queues), func(q nic.QueueStats) bool { return q == nic.QueueStats{} })
	return fmt.Sprintf("%+v", s)
}
