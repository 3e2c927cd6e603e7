package virtionet

import (
	"encoding/binary"

	"bare.wire/virtio/spec"
)

const (
	minFrame = 14    // shortest frame that is sent, bytes without FCS
	maxFrame = 65550 // longest: 64 KiB behind an Ethernet header
	tagRoom  = 8     // two tags, beyond what the MTU allows
)

// budget is how many frames of one queue are handled at a time.
func (d *Device) budget(q *queue) int {
	if d.cfg.MaxStep > 0 {
		return d.cfg.MaxStep
	}
	return q.size
}

// runTransmit sends what the driver has made available.
func (d *Device) runTransmit(q *queue) {
	q.view()
	if d.cfg.Faults.TxSilent {
		return
	}
	for range d.budget(q) {
		if d.pacer != nil {
			if at := d.pacer.Ready(d.now); at > d.now {
				q.due = at
				return
			}
		}
		if !q.fetch(&d.chain) {
			if d.broken || q.rest() {
				return
			}
			continue
		}
		if d.cfg.Watch {
			q.lend(&d.chain, maxChain)
		}
		d.transmit(q, &d.chain)
		if d.broken {
			return
		}
		q.complete(&d.chain, 0)
	}
	q.due = d.now + 1
}

// transmit sends one frame.
func (d *Device) transmit(q *queue, c *chain) {
	n := c.read - d.header
	if c.write > 0 {
		d.wrong(ChainDirection, q.i, "%d bytes to be written in the chain of %d", c.write, c.id)
	}
	if n < minFrame || n > maxFrame {
		d.wrong(FrameLength, q.i, "%d bytes behind a header of %d", n, d.header)
		d.count.TxRefused++
		return
	}
	if d.legacy && d.agreed&spec.FeatureAnyLayout == 0 && c.segs[0].n != d.header {
		d.wrong(HeaderLayout, q.i, "a first descriptor of %d bytes", c.segs[0].n)
	}
	b, ok := q.collect(c)
	if !ok {
		return
	}
	h, frame := ParseHeader(b), b[d.header:]
	if !d.checkHeader(q, &h, b, len(frame)) {
		d.count.TxRefused++
		return
	}
	d.count.TxFrames++
	d.count.TxBytes += uint64(len(frame))
	if d.pairs > 1 {
		d.steer.learn(frame, q.i/2)
	}
	d.net.Send(h, frame, d.now)
}

// collect returns header and frame: in place when they lie together, else gathered.
func (q *queue) collect(c *chain) ([]byte, bool) {
	if c.reads == 1 {
		s := &c.segs[0]
		if b, err := q.d.mem.Bytes(s.bus, s.n); err == nil && len(b) >= s.n {
			if q.d.dma.On {
				q.d.logDMA(ReadData, q.i, s.bus, s.n)
			}
			return b[:s.n], true
		}
	}
	b, ok := q.gather(q.d.buf[:0], c, 0, c.read)
	q.d.buf = b[:0]
	return b, ok
}

// checkHeader holds the header of a frame of n bytes against the features agreed on (§5.1.6.2); false: the frame is not sent.
func (d *Device) checkHeader(q *queue, h *Header, b []byte, n int) bool {
	say := func(format string, args ...any) { d.wrong(HeaderForm, q.i, format, args...) }
	ok := true
	if h.Flags&^spec.HdrNeedsCSum != 0 {
		say("flags %#02x", h.Flags)
		h.Flags &= spec.HdrNeedsCSum
	}
	if d.header > spec.HdrSizeLegacy {
		if v := binary.LittleEndian.Uint16(b[spec.HdrNumBuffers:]); v != 0 {
			say("num_buffers %d", v)
		}
	}
	if h.GSOType == spec.GSONone && d.agreed&spec.FeatureMTU != 0 && n > d.cfg.MTU+minFrame+tagRoom { // §5.1.4.2
		d.wrong(FrameLength, q.i, "%d bytes with an MTU of %d", n, d.cfg.MTU)
		return false
	}
	if h.Flags == 0 && h.GSOType == spec.GSONone {
		return true
	}
	if h.Flags != 0 && d.agreed&spec.FeatureCSum == 0 {
		say("NEEDS_CSUM without csum being agreed on")
		ok = false
	}
	if h.Flags != 0 && int(h.CSumStart)+int(h.CSumOffset)+2 > n {
		say("csum_start %d, csum_offset %d in a frame of %d bytes", h.CSumStart, h.CSumOffset, n)
		ok = false
	}
	if h.GSOType == spec.GSONone {
		return ok
	}
	switch need := sendGSO(h.GSOType); {
	case need == 0 || d.agreed&need == 0:
		say("gso_type %#02x, which is not agreed on", h.GSOType)
		return false
	case h.GSOType&spec.GSOECN != 0 && d.agreed&spec.FeatureHostECN == 0:
		say("gso_type %#02x without host_ecn being agreed on", h.GSOType)
		ok = false
	case h.Flags == 0:
		say("gso_type %#02x without NEEDS_CSUM", h.GSOType)
		ok = false
	case h.GSOSize == 0:
		say("gso_size 0")
		ok = false
	}
	if d.agreed&spec.FeatureGuestHdrLen != 0 && int(h.HdrLen) > n {
		say("hdr_len %d in a frame of %d bytes", h.HdrLen, n)
	}
	return ok
}

// sendGSO is the feature that a gso_type of a frame to be sent needs, 0 for one that there is not.
func sendGSO(kind uint8) spec.Features {
	switch kind &^ spec.GSOECN {
	case spec.GSOTCPv4:
		return spec.FeatureHostTSO4
	case spec.GSOTCPv6:
		return spec.FeatureHostTSO6
	case spec.GSOUDPL4:
		return spec.FeatureHostUSO
	}
	return 0
}
