package engine

import (
	"errors"
	"fmt"
	"time"

	"bare.wire/cmd/pktgen/internal/account"
	"bare.wire/cmd/pktgen/internal/sig"
	"bare.wire/cmd/pktgen/internal/units"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/wire"
)

// receive takes a burst of frames, accounts for them and frees them. All of the burst have arrived at one time as far as the
// clock can tell: when Recv returned.
func (w *worker) receive() (int, error) {
	n := w.rx.Recv(w.recv)
	if n == 0 {
		return 0, nil
	}
	now := w.clk.Nanos()
	frames := w.recv[:n]
	err := w.captureReceived(frames, now)
	for _, b := range frames {
		w.classify(b, now)
	}
	w.rxCache.FreeBulk(frames)
	return n, err
}

// classify decides whose frame b is and what became of it on the way.
func (w *worker) classify(b *mbuf.Buf, now int64) {
	mark, ok := w.mark(b)
	switch {
	case !ok:
		w.unsigned++
		return
	case mark.Run != w.cfg.Frame.Run || mark.Stream != streamID:
		w.foreign++
		return
	}
	w.rxFrames++
	w.rxBytes += uint64(b.FrameLen() + units.FCS)
	// A network may take tags off or put headers on; anything else that makes a frame shorter has lost a part of it.
	short := b.FrameLen()+wire.VLANLen*len(w.cfg.Frame.VLANs) < w.build.Len()
	if short || damaged(b) || mark.Sent < w.start || mark.Sent > now {
		w.stream.BadFrame()
		return
	}
	verdict := w.stream.Receive(mark.Seq, w.sent)
	if verdict != account.InOrder && verdict != account.Reordered {
		return
	}
	w.latest = max(w.latest, now-mark.Sent)
	if w.cfg.Latency {
		w.current.Record(now - mark.Sent)
		w.stream.Time(mark.Sent, now)
	}
}

// mark reads the last bytes of the frame, which may lie in two segments or more.
func (w *worker) mark(b *mbuf.Buf) (sig.Signature, bool) {
	if b.Next() == nil {
		return sig.Parse(b.Bytes())
	}
	skip := b.FrameLen() - sig.Size
	if skip < 0 {
		return sig.Signature{}, false
	}
	var end [sig.Size]byte
	n := 0
	for ; b != nil; b = b.Next() {
		for _, c := range b.Bytes()[min(skip, b.Len()):] {
			end[n] = c
			n++
		}
		skip -= min(skip, b.Len())
	}
	return sig.Parse(end[:])
}

// damaged verifies the checksums: they cover the mark, so a flipped bit anywhere behind the Ethernet header is seen. A
// network that rewrites addresses rewrites them too, and is none the worse for it.
func damaged(b *mbuf.Buf) bool {
	l, err := wire.ParseChain(b)
	if err != nil {
		return true
	}
	return l.CheckL3(b.Bytes()) == wire.Bad || l.CheckL4Chain(b) == wire.Bad
}

// captureReceived writes what has arrived, ours and others', as it came.
func (w *worker) captureReceived(frames []*mbuf.Buf, now int64) error {
	if w.cfg.RxCapture == nil {
		return nil
	}
	at := w.wallAt(now)
	for _, b := range frames {
		if err := w.cfg.RxCapture.Frame(b, at); err != nil {
			return err
		}
	}
	return nil
}

// linger is for how long a worker on a real clock polls for a frame that does not come.
const linger = int64(100 * time.Millisecond)

// idle passes the time until something can happen.
func (w *worker) idle(now, drainEnd int64) error {
	next, blocked := w.deadline(now, drainEnd)
	onTheWay := w.sent > w.stream.Counts().Unique && now-w.busyAt < linger
	if !w.virtual && (blocked || onTheWay || next-now < pollAhead) {
		return nil // poll on: a sleep would last too long, or what is on its way would be seen late
	}
	w.tx.Reclaim()
	if !w.rx.Arm(w.waiter) || blocked && !w.tx.Arm(w.waiter) {
		return nil
	}
	_, err := w.waiter.Wait(next)
	if errors.Is(err, nic.ErrGone) {
		return fmt.Errorf("%w: %w", ErrDevice, err)
	}
	return err
}

// deadline is when the worker must be awake again at the latest. It is blocked when frames are due, but the ring is full or
// the pool is empty; then only an event of the device helps.
func (w *worker) deadline(now, drainEnd int64) (next int64, blocked bool) {
	if w.stopped {
		return min(drainEnd, w.nextHouse), false
	}
	next = min(w.ticks.next, w.nextHouse, w.stallAt)
	due := w.pacer.Next()
	if due <= now {
		return next, true
	}
	return min(next, due), false
}
