package virtio

import (
	"encoding/binary"
	"unsafe"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
)

// rxHeader is the header in front of a received frame (§5.1.6), read once: the device may still write to it.
type rxHeader struct {
	lo   uint64 // flags, gso_type, hdr_len, gso_size, csum_start
	hi   uint32 // csum_offset, num_buffers; the latter is none in a header of 10 bytes
	hash uint64 // hash_value, hash_report
}

// readHeader reads the header at h.
func (q *rxQueue) readHeader(h unsafe.Pointer) (x rxHeader) {
	mem := unsafe.Slice((*byte)(h), q.hdr)
	x.lo = binary.LittleEndian.Uint64(mem)
	x.hi = uint32(binary.LittleEndian.Uint16(mem[spec.HdrCSumOffset:]))
	if len(mem) > spec.HdrNumBuffers {
		x.hi |= uint32(binary.LittleEndian.Uint16(mem[spec.HdrNumBuffers:])) << 16
	}
	if q.hash {
		x.hash = binary.LittleEndian.Uint64(mem[spec.HdrHashValue:])
	}
	return x
}

func (h rxHeader) flags() uint32      { return uint32(h.lo) & 0xff }
func (h rxHeader) gsoType() uint32    { return uint32(h.lo>>8) & 0xff }
func (h rxHeader) gsoSize() uint16    { return uint16(h.lo >> 32) }
func (h rxHeader) csumStart() uint32  { return uint32(h.lo >> 48) }
func (h rxHeader) csumOffset() uint32 { return h.hi & 0xffff }
func (h rxHeader) buffers() uint32    { return h.hi >> 16 }

// rxNotes says what of a header there is to tell of a frame.
type rxNotes struct {
	care uint64         // of rxHeader.lo: flags and gso_type, as far as they were agreed on
	gso4 bool           // FeatureGuestTSO4
	gso6 bool           // FeatureGuestTSO6
	ecn  bool           // FeatureGuestECN
	good nic.Offload    // RxL4Checksum, if the user wants to know
	hash [16]mbuf.Flags // by hash_report, for RxHash
}

// reports are the RSS types that mbuf has for what a device says it has hashed.
var reports = [16]mbuf.Flags{
	spec.ReportIPv4: 2, spec.ReportTCPv4: 1, spec.ReportUDPv4: 7,
	spec.ReportIPv6: 5, spec.ReportTCPv6: 3, spec.ReportUDPv6: 8,
	spec.ReportIPv6Ex: 5, spec.ReportTCPv6Ex: 3, spec.ReportUDPv6Ex: 8,
}

func newRxNotes(env *queueEnv) rxNotes {
	n := rxNotes{
		gso4: env.features&spec.FeatureGuestTSO4 != 0,
		gso6: env.features&spec.FeatureGuestTSO6 != 0,
		ecn:  env.features&spec.FeatureGuestECN != 0,
		good: env.offloads & nic.RxL4Checksum,
	}
	if env.features&spec.FeatureGuestCSum != 0 {
		n.care = 0xffff
	}
	if env.features&spec.FeatureHashReport != 0 {
		n.hash = reports
	}
	return n
}

// note returns what the header says of a frame of length bytes, in the form of mbuf.Buf.Received; false when the frame can not
// be used: it is longer than it may be, or the header does not fit it.
func (q *rxQueue) note(b *mbuf.Buf, h rxHeader, length uint32) (info uint64, ok bool) {
	n := &q.notes
	gso := uint32(0)
	if n.care != 0 {
		gso = h.gsoType()
	}
	if gso == spec.GSONone && length > q.maxFrame {
		return 0, false
	}
	if q.hash {
		if kind := n.hash[h.hash>>32&15]; kind != 0 && h.hash>>36&0xfff == 0 {
			info = h.hash<<32 | uint64(kind)
		}
	}
	if n.care == 0 {
		return info, true
	}
	flags, ok := n.checksum(h, length)
	if !ok {
		return 0, false
	}
	if gso != spec.GSONone {
		if !n.allows(gso) || h.gsoSize() == 0 || length > maxGSO {
			return 0, false
		}
		b.MSS = h.gsoSize()
		flags |= mbuf.RxGSO
	}
	return info | uint64(flags), true
}

// checksum is what the flags of a header say of TCP's or UDP's checksum in a frame of length bytes.
func (n *rxNotes) checksum(h rxHeader, length uint32) (mbuf.Flags, bool) {
	switch {
	case h.flags()&spec.HdrNeedsCSum != 0:
		field := h.csumOffset()
		if field != tcpSumAt && field != udpSumAt || h.csumStart() < minFrame || h.csumStart()+field+2 > length {
			return 0, false
		}
		return mbuf.RxL4Good | mbuf.RxL4Partial, true
	case h.flags()&spec.HdrDataValid != 0 && n.good != 0:
		return mbuf.RxL4Good, true
	}
	return 0, true
}

// allows says whether the device may give the driver frames of this kind.
func (n *rxNotes) allows(gso uint32) bool {
	if gso&spec.GSOECN != 0 && !n.ecn {
		return false
	}
	switch gso &^ spec.GSOECN {
	case spec.GSOTCPv4:
		return n.gso4
	case spec.GSOTCPv6:
		return n.gso6
	}
	return false
}
