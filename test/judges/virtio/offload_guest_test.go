//go:build guest

package virtio

import (
	"bytes"
	"fmt"
	"slices"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/test/judges/internal/frames"
	"bare.wire/virtio/spec"
)

// offloads is what all of the offload checks ask for, as far as the card has it.
const offloads = nic.TxL4Checksum | nic.TxTSO | nic.RxL4Checksum | nic.TxMultiSegment | nic.RxScatter

// kinds are the four kinds of datagram.
func (s *station) kinds(payload int) (all []frames.Datagram) {
	for i := range 4 {
		d := frames.Datagram{
			To: s.card.peerMAC(), From: s.port.Info().MAC, V6: i&1 != 0, TCP: i&2 != 0, Src: s.card.guestIP(), Dst: s.card.hostIP(),
			SrcPort: 1234, DstPort: 4321, Seq: 0xfffffff0, Ack: 77, Flags: frames.ACK | frames.PSH,
		}
		d.Dst[3] = 99 // not the host's own, which would answer
		for j := range payload {
			d.Payload = append(d.Payload, byte(j*11)+byte(j>>8))
		}
		all = append(all, d)
	}
	return all
}

// txFlags is what the driver is asked for so that partial() becomes whole().
func txFlags(d frames.Datagram) mbuf.TxFlags {
	f := mbuf.TxL4Sum
	if !d.TCP {
		f |= mbuf.TxUDP
	}
	if d.V6 {
		f |= mbuf.TxIPv6
	}
	return f
}

// sendPartial sends a datagram whose checksum, and cutting with an mss, is left to the card.
func (s *station) sendPartial(q int, d frames.Datagram, mss, most int) {
	s.Helper()
	f := d.Partial()
	if mss > 0 && !d.V6 { // the driver fills both in (package nic, Offloads)
		f[16], f[17], f[24], f[25] = 0xaa, 0xaa, 0xaa, 0xaa
	}
	b := s.load(f, most)
	b.L2Len, b.L3Len, b.L4Len = frames.EthernetLen, uint16(d.L3Len()), uint8(d.L4Len())
	flags := txFlags(d)
	if mss > 0 {
		b.MSS = uint16(mss)
		flags |= mbuf.TxTSO
		if !d.V6 {
			flags |= mbuf.TxIPSum
		}
	}
	b.SetTxFlags(flags)
	s.send(q, b)
}

// kept waits until the host has kept n frames.
func (s *station) kept(n int) (all [][]byte) {
	s.Helper()
	s.within(patience, fmt.Sprintf("%d frames reach the host", n), func() bool {
		s.reclaim()
		all = append(all, s.card.ask(s, question{Do: "kept"}).Kept...)
		return len(all) >= n
	})
	return all
}

// cuts says whether the device was agreed with to take, or give, long TCP frames of the datagram's IP version.
func (s *station) cuts(d frames.Datagram, v4, v6 spec.Features) bool {
	if d.V6 {
		return s.port.Negotiated().Has(v6)
	}
	return s.port.Negotiated().Has(v4)
}

// testTxOffloads has frames of every kind sent with checksums left to the device, of one buffer and of several, and long ones cut. The
// host's kernel says what is left to be done to each; done, it is the frame that was meant.
func (s *station) testTxOffloads() {
	s.Helper()
	if s.cfg.Offloads&nic.TxL4Checksum == 0 {
		return
	}
	s.card.ask(s, question{Do: "reset"})
	type sent struct {
		d   frames.Datagram
		mss int
	}
	var all []sent
	for _, payload := range []int{1, 18, 500, 1401} {
		for _, d := range s.kinds(payload) {
			all = append(all, sent{d, 0})
		}
	}
	for _, payload := range []int{2000, 20000} {
		for _, d := range s.kinds(payload) {
			if d.TCP && s.cuts(d, spec.FeatureHostTSO4, spec.FeatureHostTSO6) {
				all = append(all, sent{d, 1000})
			}
		}
	}
	for _, x := range all {
		most := 0
		if s.cfg.Offloads&nic.TxMultiSegment != 0 && len(x.d.Payload) == 500 {
			most = 120
		}
		s.sendPartial(0, x.d, x.mss, most)
	}
	for i, got := range s.kept(len(all)) {
		if i >= len(all) {
			s.Errorf("a frame more came to the host: %x", got[:min(len(got), 80)])
			continue
		}
		x := all[i]
		v, f := frames.ParseVnet(got), bytes.Clone(got[frames.VnetLen:])
		want := x.d.Header(x.mss)
		v.HdrLen, want.HdrLen = 0, 0 // a hint, and the kernel makes its own
		if v != want {
			s.Errorf("%s of %d bytes: the host's header is %+v, want %+v", x.d.Kind(), len(x.d.Payload), v, want)
			continue
		}
		at := int(v.CSumStart)
		sum := ^frames.Sum16(f[at:], 0)
		if sum == 0 && !x.d.TCP {
			sum = 0xffff
		}
		f[at+int(v.CSumOff)], f[at+int(v.CSumOff)+1] = byte(sum>>8), byte(sum)
		if whole := x.d.Whole(); !bytes.Equal(f, whole) {
			s.Errorf("%s of %d bytes: %s", x.d.Kind(), len(x.d.Payload), frames.Difference(f, whole))
		}
	}
}

// testRxOffloads has the host send frames whose checksums and cutting are left to be done: the card hands them out so when it was
// asked to, and otherwise finished.
func (s *station) testRxOffloads() {
	s.Helper()
	partial := s.cfg.Offloads&nic.RxL4Checksum != 0
	var all []frames.Datagram
	var sent [][]byte
	for i, payload := range []int{18, 700, 1401} {
		for _, d := range s.kinds(payload) {
			d = d.Backwards()
			d.DstPort += uint16(i)
			all, sent = append(all, d), append(sent, append(d.Header(0).Bytes(), d.Partial()...))
		}
	}
	s.card.ask(s, question{Do: "send", Frames: sent})
	which := func(r received) int { return slices.IndexFunc(all, func(d frames.Datagram) bool { return mine(d)(r) }) }
	seen := map[int]bool{}
	for _, r := range s.expect(len(all), "frames", func(r received) bool { return which(r) >= 0 }) {
		i := which(r)
		d := all[i]
		if seen[i] {
			s.Errorf("%s of %d bytes came twice", d.Kind(), len(d.Payload))
		}
		seen[i] = true
		want := d.Whole()
		if partial {
			want = d.Partial()
		}
		if !bytes.Equal(r.bytes, want) {
			s.Errorf("%s of %d bytes: %s", d.Kind(), len(d.Payload), frames.Difference(r.bytes, want))
		}
		if left := r.flags&mbuf.RxL4Partial != 0; left != partial || partial && r.flags&mbuf.RxL4Good == 0 {
			s.Errorf("%s of %d bytes: flags %#x, want the checksum left %v", d.Kind(), len(d.Payload), r.flags, partial)
		}
	}
	const mss, long = 1000, 20500
	for _, d := range s.kinds(long) {
		if !d.TCP {
			continue
		}
		d = d.Backwards()
		s.card.ask(s, question{Do: "send", Frames: [][]byte{append(d.Header(mss).Bytes(), d.Partial()...)}})
		if s.cuts(d, spec.FeatureGuestTSO4, spec.FeatureGuestTSO6) {
			r := s.expect(1, "frames", mine(d))[0]
			if want := d.Partial(); !bytes.Equal(r.bytes, want) {
				s.Errorf("%s, joined: %s", d.Kind(), frames.Difference(r.bytes, want))
			}
			if r.flags&(mbuf.RxGSO|mbuf.RxL4Partial) != mbuf.RxGSO|mbuf.RxL4Partial || r.mss != mss {
				s.Errorf("%s, joined: flags %#x, MSS %d, want RxGSO and RxL4Partial, %d", d.Kind(), r.flags, r.mss, mss)
			}
			continue
		}
		s.cutByHost(d, mss, partial)
	}
}

// mine picks the frames of a flow.
func mine(d frames.Datagram) func(r received) bool {
	n, w := frames.EthernetLen+d.L3Len(), d.Partial()
	at := frames.EthernetLen + 9 // the protocol's number
	if d.V6 {
		at = frames.EthernetLen + 6
	}
	return func(r received) bool {
		return len(r.bytes) >= n+4 && bytes.Equal(r.bytes[12:14], w[12:14]) && r.bytes[at] == w[at] && bytes.Equal(r.bytes[n:n+4], w[n:n+4])
	}
}

// cutByHost receives the segments that the host's kernel has cut a long frame into, with or without their checksums.
func (s *station) cutByHost(d frames.Datagram, mss int, partial bool) {
	s.Helper()
	n := (len(d.Payload) + mss - 1) / mss
	for i, r := range s.expect(n, "segments", mine(d)) {
		end := min(len(d.Payload), (i+1)*mss)
		part := d
		part.Seq, part.Payload = d.Seq+uint32(i*mss), d.Payload[i*mss:end]
		if end < len(d.Payload) {
			part.Flags &^= frames.PSH
		}
		want := part.Whole()
		if r.flags&mbuf.RxL4Partial != 0 && partial {
			want = part.Partial()
		}
		got := bytes.Clone(r.bytes)
		if !d.V6 && len(got) > 26 { // the identification is the kernel's, and with it IPv4's checksum
			if frames.Sum16(got[14:34], 0) != 0xffff {
				s.Errorf("segment %d: IPv4's checksum is wrong", i)
			}
			copy(got[18:20], want[18:20])
			copy(got[24:26], want[24:26])
		}
		if !bytes.Equal(got, want) {
			s.Errorf("%s, segment %d of %d: %s", d.Kind(), i, n, frames.Difference(got, want))
		}
	}
}
