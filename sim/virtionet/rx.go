package virtionet

import (
	"encoding/binary"

	"bare.wire/sim"
	"bare.wire/virtio/spec"
)

// arrival is a frame on its way to the driver.
type arrival struct {
	h      Header
	hash   uint32
	report uint16
	data   []byte
}

// maxArrivals bounds the frames that are taken from the Net in one step.
const maxArrivals = 1024

// prefetch is how many receive buffers a device that shuffles chooses from.
const prefetch = 8

// runReceive takes what has arrived, and returns when more does or there is something to report.
func (d *Device) runReceive() int64 {
	next := sim.Never
	limit := maxArrivals
	if d.cfg.MaxStep > 0 {
		limit = d.cfg.MaxStep
	}
	for n := 0; ; n++ {
		at, ok := d.net.Next()
		if !ok || d.cfg.Hold && d.waiting() {
			break
		}
		if at > d.now {
			next = at
			break
		}
		if n == limit {
			next = d.now + 1
			break
		}
		if h, f, ok := d.net.Receive(d.now); ok {
			d.arrive(h, f)
		}
		if !d.live() {
			return sim.Never
		}
	}
	for i := 0; i < 2*d.cfg.Pairs; i += 2 { // RSS may spread over more than there are for sending
		q := &d.queues[i]
		if q.pubAt <= d.now {
			q.publish()
		}
		next = min(next, q.pubAt)
	}
	return next
}

// waiting says whether frames wait for receive buffers. A notification comes with the buffers; not of a queue that is off.
func (d *Device) waiting() bool {
	for i := 0; i < 2*d.cfg.Pairs; i += 2 {
		if q := &d.queues[i]; q.on && q.wait.n > 0 {
			return true
		}
	}
	return false
}

// arrive is a frame from the Net.
func (d *Device) arrive(h Header, f []byte) {
	if len(f) < minFrame {
		d.count.RxRefused++
		return
	}
	if !d.filter.pass(f) {
		d.count.RxFiltered++
		return
	}
	if h.Flags|h.GSOType != 0 && !d.takes(h) {
		d.count.RxRefused++
		return
	}
	a := arrival{h: h, data: f}
	if d.cfg.Faults.any {
		d.bendArrival(&a)
	}
	q := d.route(&a)
	if !q.on || q.d.cfg.Faults.RxSilent {
		d.count.RxUnready++
		return
	}
	if q.wait.n == 0 && q.place(&a) {
		return
	}
	if d.broken {
		return
	}
	if !q.wait.push(&a, d.cfg.Backlog) {
		d.count.RxNoBuffer++
	}
}

// setGuest says what frames may ask of the driver from now on.
func (d *Device) setGuest(f spec.Features) {
	d.guest = f
	d.net.SetOffloads(f)
}

// takes says whether the driver takes frames with such a header, which may be older than its last word.
func (d *Device) takes(h Header) bool {
	if h.Flags != 0 && d.guest&spec.FeatureGuestCSum == 0 {
		return false
	}
	switch h.GSOType &^ spec.GSOECN {
	case spec.GSONone:
		return true
	case spec.GSOTCPv4:
		return d.guest&spec.FeatureGuestTSO4 != 0
	case spec.GSOTCPv6:
		return d.guest&spec.FeatureGuestTSO6 != 0
	}
	return false
}

// refilled is a notification that there are receive buffers.
func (d *Device) refilled(q *queue) {
	q.view()
	for q.wait.n > 0 && !d.broken {
		if !q.place(q.wait.front()) {
			break
		}
		q.wait.pop()
	}
	switch {
	case d.broken || q.wait.n > 0:
	case d.cfg.Watch: // it wants to see each buffer when it comes
		for q.prefetch() || !d.broken && !q.rest() {
		}
	default:
		q.hush()
	}
}

// place writes a frame into receive buffers; false: there are not enough of them. A frame that no buffer holds is dropped.
func (q *queue) place(a *arrival) bool {
	d := q.d
	q.view()
	need := d.header + len(a.data)
	merge := d.agreed&spec.FeatureMrgRxBuf != 0
	k := 0
	for room := 0; room < need; k++ {
		if k == q.have && !q.more() {
			if !d.broken && 4*q.have >= 3*q.size { // nearly all there are, and not enough
				d.count.RxTooLong++
				return true
			}
			return false
		}
		if d.cfg.Order == Shuffled && d.agreed&spec.FeatureInOrder == 0 {
			j := k + d.rng.Below(q.have-k)
			q.window[k], q.window[j] = q.window[j], q.window[k]
		}
		if room += q.window[k].write; room < need && !merge {
			d.count.RxTooLong++
			return true
		}
	}
	d.count.RxFrames++
	d.count.RxBytes += uint64(len(a.data))
	q.write(a, k)
	q.drop(k)
	return true
}

// more fetches further receive buffers into the window, and asks for some if there are none; false: there are none.
func (q *queue) more() bool {
	if !q.prefetch() && (q.d.broken || q.rest() || !q.prefetch()) {
		return false
	}
	if q.d.cfg.Order == Shuffled {
		for range prefetch {
			if !q.prefetch() {
				break
			}
		}
	}
	return !q.d.broken
}

// prefetch fetches one receive buffer into the window.
func (q *queue) prefetch() bool {
	if q.have == len(q.window) {
		q.window = append(q.window, chain{})
	}
	c := &q.window[q.have]
	if !q.fetch(c) {
		return false
	}
	if c.reads > 0 {
		q.breaks(ChainDirection, "%d bytes to be read in a receive buffer", c.read)
		return false
	}
	if c.write < q.d.header {
		q.breaks(BufferSize, "a receive buffer of %d bytes, with headers of %d", c.write, q.d.header)
		return false
	}
	if q.d.cfg.Watch {
		q.lend(c, watched)
	}
	q.have++
	return true
}

// write fills the first k buffers of the window.
func (q *queue) write(a *arrival, k int) {
	d := q.d
	var room [spec.HdrSizeHash]byte
	head := room[:d.header]
	a.h.Put(head)
	if len(head) > spec.HdrNumBuffers {
		binary.LittleEndian.PutUint16(head[spec.HdrNumBuffers:], d.numBuffers(k))
	}
	if len(head) > spec.HdrHashReport {
		binary.LittleEndian.PutUint32(head[spec.HdrHashValue:], a.hash)
		binary.LittleEndian.PutUint16(head[spec.HdrHashReport:], a.report)
	}
	body := a.data
	for i := range k {
		c := &q.window[i]
		if d.cfg.Watch {
			q.inspect(c.id, RxBufferTouched)
		}
		n := len(head) + len(body)
		var ok bool
		if len(c.segs) == 1 && n <= c.segs[0].n && q.writeWhole(c.segs[0].bus, head, body) {
			head, body = nil, nil
		} else if head, body, ok = q.scatter(c, head, body); !ok {
			return
		}
		q.complete(c, n-len(head)-len(body))
	}
}

// writeWhole writes header and body to bus if they lie together there.
func (q *queue) writeWhole(bus uint64, head, body []byte) bool {
	n := len(head) + len(body)
	b, err := q.d.out.Bytes(bus, n)
	if err != nil || len(b) < n {
		return false
	}
	copy(b[copy(b, head):], body)
	if q.d.dma.On {
		q.d.logDMA(WriteData, q.i, bus, n)
	}
	return true
}

// drop takes the first k chains out of the window.
func (q *queue) drop(k int) {
	for i := k; i < q.have; i++ {
		q.window[i-k], q.window[i] = q.window[i], q.window[i-k]
	}
	q.have -= k
}

// backlog holds frames that wait for buffers, first come first served.
type backlog struct {
	list    []arrival
	head, n int
}

func (b *backlog) reset() { b.head, b.n = 0, 0 }

// push adds a frame, a copy of it; false: there are limit frames.
func (b *backlog) push(a *arrival, limit int) bool {
	if b.n >= limit {
		return false
	}
	if b.list == nil {
		b.list = make([]arrival, limit)
	}
	e := &b.list[(b.head+b.n)%len(b.list)]
	data := append(e.data[:0], a.data...)
	*e = *a
	e.data = data
	b.n++
	return true
}

func (b *backlog) front() *arrival { return &b.list[b.head] }

func (b *backlog) pop() {
	b.head = (b.head + 1) % len(b.list)
	b.n--
}
