package virtionet

import (
	"encoding/binary"

	"bare.wire/virtio/spec"
)

// Net is what lies behind a device: a wire, a TAP, a test. Its methods are called with the world locked.
type Net interface {
	// Send sends a frame, which is valid during the call. h asks for no more than Offloads.
	Send(h Header, frame []byte, now int64)
	// Next tells when the next frame arrives; ok is false when none is under way.
	Next() (at int64, ok bool)
	// Receive takes the next frame that has arrived by now. It is valid until the next Receive. Its header asks for no more
	// of the driver than SetOffloads allows.
	Receive(now int64) (Header, []byte, bool)
	// Offloads are those of FeatureCSum, FeatureHostTSO4, 6, ECN, USO (what Send can do) and of FeatureGuestCSum, GuestTSO4, 6,
	// ECN (what Receive may come with) that there are. The device offers no others.
	Offloads() spec.Features
	// SetOffloads says which of the FeatureGuest… kind the driver takes from now on.
	SetOffloads(spec.Features)
	// Up reports whether there is a link. SetUp says whether the device is ready: its driver runs, and its link is not off.
	Up() bool
	SetUp(up bool)
	// OnArrival names what is called with the time of a frame that will arrive earlier than was known, OnChange what is called
	// when the link comes up or goes down; both with the world locked. nil: nothing is.
	OnArrival(func(at int64))
	OnChange(func(up bool))
}

// Pacer is a Net that does not take frames as fast as they come.
type Pacer interface {
	// Ready returns the time, now or later, at which Send may be called next.
	Ready(now int64) int64
	// SetSpeed says how fast the device is, bit/s.
	SetSpeed(bps uint64)
}

// Header is what goes with a frame, in either direction (§5.1.6): the fields of the header that are not the ring's own. It is
// the vnet header of a TAP, too.
type Header struct {
	Flags      uint8  // spec.HdrNeedsCSum, HdrDataValid
	GSOType    uint8  // spec.GSONone, GSOTCPv4 …
	HdrLen     uint16 // bytes of headers up to the payload: a hint
	GSOSize    uint16 // payload of each segment, bytes
	CSumStart  uint16 // where the checksum begins to count
	CSumOffset uint16 // where it goes, from CSumStart
}

// ParseHeader reads the first spec.HdrSizeLegacy bytes of b, which has as many.
func ParseHeader(b []byte) Header {
	le := binary.LittleEndian
	b = b[:spec.HdrSizeLegacy]
	return Header{
		Flags: b[spec.HdrFlags], GSOType: b[spec.HdrGSOType],
		HdrLen: le.Uint16(b[spec.HdrLen:]), GSOSize: le.Uint16(b[spec.HdrGSOSize:]),
		CSumStart: le.Uint16(b[spec.HdrCSumStart:]), CSumOffset: le.Uint16(b[spec.HdrCSumOffset:]),
	}
}

// Put writes h to the first spec.HdrSizeLegacy bytes of b.
func (h Header) Put(b []byte) {
	le := binary.LittleEndian
	b = b[:spec.HdrSizeLegacy]
	b[spec.HdrFlags], b[spec.HdrGSOType] = h.Flags, h.GSOType
	le.PutUint16(b[spec.HdrLen:], h.HdrLen)
	le.PutUint16(b[spec.HdrGSOSize:], h.GSOSize)
	le.PutUint16(b[spec.HdrCSumStart:], h.CSumStart)
	le.PutUint16(b[spec.HdrCSumOffset:], h.CSumOffset)
}
