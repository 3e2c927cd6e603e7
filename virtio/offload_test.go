package virtio

import (
	"encoding/binary"
	"fmt"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
)

// packetOf is an IP packet in an Ethernet frame, with so many bytes behind the L4 header; its lengths are not set.
func packetOf(v6, udp bool, payload int) (p []byte, l3 int) {
	l3, l4 := 20, 20
	if v6 {
		l3 = 40
	}
	if udp {
		l4 = 8
	}
	p = testFrame(1, 14+l3+l4+payload)
	if v6 {
		p[14] = 0x60
	} else {
		p[14] = 0x45
	}
	if !udp {
		p[14+l3+12], p[14+l3+13] = 5<<4, 0x10
	}
	return p, l3
}

func (r *queueRig) asking(p []byte, l3 int, flags mbuf.TxFlags, cuts ...int) *mbuf.Buf {
	b := r.packet(p, cuts...)
	b.L2Len, b.L3Len, b.L4Len, b.MSS = 14, uint16(l3), 20, 1000
	b.SetTxFlags(flags)
	return b
}

const sendOffloads = nic.TxL4Checksum | nic.TxTSO

// word0 and the offset are what a header says.
func said(h []byte) (lo uint64, field uint16) {
	return binary.LittleEndian.Uint64(h), binary.LittleEndian.Uint16(h[spec.HdrCSumOffset:])
}

func TestChecksumIsAskedFor(t *testing.T) {
	kinds(t, func(t *testing.T, f spec.Features) {
		for _, c := range []struct {
			v6, udp bool
			field   uint16
		}{{false, false, 16}, {false, true, 6}, {true, false, 16}, {true, true, 6}} {
			r := newQueueRig(t, ringConfig{features: f | spec.FeatureCSum, offloads: sendOffloads})
			p, l3 := packetOf(c.v6, c.udp, 200)
			flags := mbuf.TxL4Sum
			if c.v6 {
				flags |= mbuf.TxIPv6
			}
			if c.udp {
				flags |= mbuf.TxUDP
			}
			want := spec.HdrNeedsCSum | uint64(14+l3)<<48
			for i := range 3 { // the first makes a plan, the others have it
				r.send(r.asking(p, l3, flags))
				h, parts := r.sent(p, true)
				if lo, field := said(h); lo != want || field != c.field || len(parts.parts) != 1 {
					t.Fatalf("%+v, frame %d: header %#x, %d; want %#x, %d", c, i, lo, field, want, c.field)
				}
				r.send(r.packet(p)) // asks for nothing
				if lo, field := said(first(r.sent(p, true))); lo != 0 || field != 0 {
					t.Fatal("a header is left over")
				}
			}
			burst := []*mbuf.Buf{r.asking(p, l3, flags), r.asking(p, l3, flags), r.packet(p), r.asking(p, l3, flags)}
			if n := r.tx.Send(burst); n != 4 {
				t.Fatal(n)
			}
			for i := range burst {
				lo, _ := said(first(r.sent(p, true)))
				if (lo != 0) != (i != 2) {
					t.Errorf("frame %d of the burst: header %#x", i, lo)
				}
			}
			r.send(r.asking(p, l3, flags, 14+l3+20, 50))
			if lo, _ := said(first(r.sent(p, true))); lo != want {
				t.Errorf("segments: header %#x", lo)
			}
			r.tx.Reclaim()
			r.end()
		}
	})
}

// A frame of a burst that has to take another way keeps what it asks for, and so do those behind it.
func TestEachFrameOfABurstHasItsOwnHeader(t *testing.T) {
	for _, f := range []spec.Features{
		version1, packedRing1, version1 | spec.FeatureHashReport, 0, spec.FeatureIndirectDesc, spec.FeatureAnyLayout | spec.FeatureMrgRxBuf,
	} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			r := newQueueRig(t, ringConfig{features: f | spec.FeatureCSum, legacy: f&version1 == 0, offloads: sendOffloads})
			p, l3 := packetOf(false, false, 200)
			want := spec.HdrNeedsCSum | uint64(14+l3)<<48
			ask := func(cuts ...int) *mbuf.Buf { return r.asking(p, l3, mbuf.TxL4Sum, cuts...) }
			tight := r.cache.Alloc()
			if _, _, err := tight.Prepend(r.cache, tight.Headroom()-9); err != nil { // bytes that are left for the header
				t.Fatal(err)
			}
			if err := tight.SetLen(len(p)); err != nil {
				t.Fatal(err)
			}
			copy(tight.Bytes(), p)
			tight.L2Len, tight.L3Len = 14, uint16(l3)
			tight.SetTxFlags(mbuf.TxL4Sum)
			burst := []*mbuf.Buf{r.packet(p), ask(), ask(), ask(), tight, ask(), ask(), ask(100), ask()}
			if n := r.tx.Send(burst); n != len(burst) {
				t.Fatal(n)
			}
			for i := range burst {
				lo, field := said(first(r.sent(p, true)))
				if plain := i == 0; plain && lo != 0 || !plain && (lo != want || field != tcpSumAt) {
					t.Errorf("frame %d: header %#x, %d; want %#x", i, lo, field, want)
				}
			}
			r.tx.Reclaim()
			r.consistent()
			r.end()
		})
	}
}

func first[A, B any](a A, _ B) A { return a }

// sum16 is the Internet checksum of b: 0 over a header with its checksum in place.
func sum16(b []byte) uint16 {
	s := uint32(0)
	for i := 0; i < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

func TestSegmentationIsAskedFor(t *testing.T) {
	for _, f := range []spec.Features{version1, packedRing1 | spec.FeatureIndirectDesc, version1 | spec.FeatureHostECN} {
		for _, v6 := range []bool{false, true} {
			for _, ce := range []bool{false, true} {
				t.Run(fmt.Sprint(f, v6, ce), func(t *testing.T) {
					r := newQueueRig(t, ringConfig{features: f | spec.FeatureCSum, offloads: sendOffloads})
					p, l3 := packetOf(v6, false, 5100)
					flags, kind := mbuf.TxTSO, uint64(spec.GSOTCPv4)
					if v6 {
						flags, kind = flags|mbuf.TxIPv6, spec.GSOTCPv6
					}
					if ce {
						p[14+l3+13] |= cwr
						if f&spec.FeatureHostECN != 0 {
							kind |= spec.GSOECN
						}
					}
					r.send(r.asking(p, l3, flags, 14+l3+20, 2000))
					c, ok := r.txDev.pop()
					if !ok {
						t.Fatal("nothing was sent")
					}
					all := r.txDev.read(c)
					h, got := all[:12], all[12:]
					headers := 14 + l3 + 20
					want := spec.HdrNeedsCSum | kind<<8 | uint64(headers)<<16 | 1000<<32 | uint64(14+l3)<<48
					if lo, field := said(h); lo != want || field != 16 {
						t.Errorf("header %#x, %d; want %#x", lo, field, want)
					}
					n := len(p) - 14
					if v6 {
						if l := int(binary.BigEndian.Uint16(got[18:])); l != n-40 {
							t.Errorf("payload length %d, want %d", l, n-40)
						}
					} else if l := int(binary.BigEndian.Uint16(got[16:])); l != n || sum16(got[14:34]) != 0 {
						t.Errorf("total length %d, want %d; header sum %#x", l, n, sum16(got[14:34]))
					}
					if string(got[headers:]) != string(p[headers:]) || string(got[14+l3:headers]) != string(p[14+l3:headers]) {
						t.Error("more of the frame was changed")
					}
					if more, by := r.tx.cutPackets.Load(), r.tx.cutBytes.Load(); more != 5 || by != uint64(5*headers) {
						t.Errorf("%d further segments with %d bytes of headers", more, by)
					}
					r.txDev.use(c, 0)
					r.tx.Reclaim()
					r.end()
				})
			}
		}
	}
}

func TestOffloadsThatDoNotFitTogether(t *testing.T) {
	r := newQueueRig(t, ringConfig{features: version1 | spec.FeatureCSum, offloads: sendOffloads, size: 256})
	tcp, _ := packetOf(false, false, 500)
	six, _ := packetOf(true, false, 500)
	long, _ := packetOf(false, false, 66000)
	bad := 0
	for name, change := range map[string]func() *mbuf.Buf{
		"L2Len too short":      func() *mbuf.Buf { b := r.asking(tcp, 20, mbuf.TxL4Sum); b.L2Len = 13; return b },
		"L3Len too short":      func() *mbuf.Buf { return r.asking(tcp, 16, mbuf.TxL4Sum) },
		"L3Len not IHL":        func() *mbuf.Buf { return r.asking(tcp, 24, mbuf.TxL4Sum) },
		"not IPv6":             func() *mbuf.Buf { return r.asking(tcp, 40, mbuf.TxL4Sum|mbuf.TxIPv6) },
		"headers in segments":  func() *mbuf.Buf { return r.asking(tcp, 20, mbuf.TxL4Sum, 50) },
		"L4Len not data off":   func() *mbuf.Buf { b := r.asking(tcp, 20, mbuf.TxTSO); b.L4Len = 24; return b },
		"L4Len too short":      func() *mbuf.Buf { b := r.asking(tcp, 20, mbuf.TxTSO); b.L4Len = 16; return b },
		"MSS too small":        func() *mbuf.Buf { b := r.asking(tcp, 20, mbuf.TxTSO); b.MSS = minMSS - 1; return b },
		"MSS too large":        func() *mbuf.Buf { b := r.asking(tcp, 20, mbuf.TxTSO); b.MSS = 1465; return b },
		"UDP to be cut":        func() *mbuf.Buf { return r.asking(tcp, 20, mbuf.TxTSO|mbuf.TxUDP) },
		"longer than a packet": func() *mbuf.Buf { return r.asking(long, 20, mbuf.TxTSO) },
		"nothing to cut":       func() *mbuf.Buf { return r.asking(tcp[:54], 20, mbuf.TxTSO) },
		"IPv4 sum of IPv6":     func() *mbuf.Buf { return r.asking(six, 40, mbuf.TxTSO|mbuf.TxIPv6|mbuf.TxIPSum) },
	} {
		bad++
		r.send(change())
		if n := r.tx.dropped[nic.TxBadOffload].Load(); n != uint64(bad) {
			t.Errorf("%s: taken for good", name)
			bad = int(n)
		}
		if _, ok := r.txDev.pop(); ok {
			t.Errorf("%s: sent", name)
		}
	}
	b := r.asking(tcp, 20, mbuf.TxL4Sum) // shared: its headers are not the driver's to edit
	view := b.Clone(r.cache)
	r.send(b)
	view.Free()
	if n := r.tx.dropped[nic.TxBadOffload].Load(); n != uint64(bad)+1 {
		t.Error("shared: taken for good")
	}
	r.end()
}

// What TxTSO implies may be asked for too (see nic), whatever else the port has been started with.
func TestWhatSegmentationImpliesMayBeAskedFor(t *testing.T) {
	r := newQueueRig(t, ringConfig{features: version1 | spec.FeatureCSum, offloads: nic.TxTSO})
	for _, flags := range []mbuf.TxFlags{0, mbuf.TxL4Sum, mbuf.TxIPSum, mbuf.TxL4Sum | mbuf.TxIPSum} {
		p, l3 := packetOf(false, false, 500)
		r.send(r.asking(p, l3, mbuf.TxTSO|flags))
		c, ok := r.txDev.pop()
		if !ok {
			t.Fatalf("not sent with %#x", flags)
		}
		r.txDev.use(c, 0)
		p, l3 = packetOf(true, false, 500)
		r.send(r.asking(p, l3, mbuf.TxTSO|mbuf.TxIPv6|flags&^mbuf.TxIPSum))
		if c, ok = r.txDev.pop(); !ok {
			t.Fatalf("IPv6: not sent with %#x", flags)
		}
		r.txDev.use(c, 0)
	}
	p, l3 := packetOf(false, false, 500)
	r.send(r.asking(p, l3, mbuf.TxL4Sum)) // which is another thing
	if _, ok := r.txDev.pop(); ok || r.tx.dropped[nic.TxBadOffload].Load() != 1 {
		t.Error("a checksum that the port was not started with")
	}
	r.end()
}

// A plan is for what it was made for: a frame that only says the same is looked at again.
func TestPlanIsNotUsedForAnotherFrame(t *testing.T) {
	r := newQueueRig(t, ringConfig{features: version1 | spec.FeatureCSum, offloads: sendOffloads})
	p, _ := packetOf(false, false, 200)
	r.send(r.asking(p, 20, mbuf.TxL4Sum))
	r.sent(p, true)
	short := p[:50]
	other := append([]byte(nil), p...)
	other[14] = 0x46
	for _, q := range [][]byte{short, other} {
		r.send(r.asking(q, 20, mbuf.TxL4Sum))
		if _, ok := r.txDev.pop(); ok {
			t.Error("sent")
		}
	}
	if n := r.tx.dropped[nic.TxBadOffload].Load(); n != 2 {
		t.Errorf("%d refused", n)
	}
	long := testFrame(1, 1519)
	long[14] = 0x45
	r.send(r.asking(long, 20, mbuf.TxL4Sum))
	if r.tx.dropped[nic.TxTooLong].Load() != 1 {
		t.Error("a frame that is too long is sent with a plan")
	}
	r.end()
}
