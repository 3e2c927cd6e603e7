// Package nullvirtio is a virtio network device that says "done" and does nothing else: what is measured with it is the driver.
//
// It is spoken to by calls that stand for the registers of a device: status, features, configuration, queues; whoever joins it to
// a driver makes a virtio.Transport of them. It has one queue pair, split or packed as the driver takes it, and no control queue.
//
// Frames are not moved. [Device.RxStep] uses receive buffers as if frames had arrived, and writes nothing but the header in front
// of each, which the driver has to read; [Device.TxStep] uses what the driver has queued. Both are run in the driver's own
// goroutine, take a few instructions a descriptor, and want no notifications. What the rules of the specification are is not
// checked here, only what would make the device leave its memory: the other rules are package virtionet's to check. A receive buffer is one
// descriptor, long enough for what arrives.
//
// Specification: Virtual I/O Device (VIRTIO) Version 1.2, §2.7 (split rings), §2.8 (packed rings), §5.1.6 (headers).
package nullvirtio

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"bare.wire/sim"
	"bare.wire/virtio/spec"
)

// Offered are the features of a device whose Config names none: what a driver of one queue pair can make use of.
const Offered = spec.FeatureVersion1 | spec.FeatureAccessPlatform | spec.FeatureMAC | spec.FeatureStatus | spec.FeatureMrgRxBuf |
	spec.FeatureCSum | spec.FeatureGuestCSum | spec.FeatureHostTSO4 | spec.FeatureHostTSO6 | spec.FeatureRingPacked |
	spec.FeatureIndirectDesc | spec.FeatureEventIdx | spec.FeatureInOrder

// Config describes a device. Name and Memory are required.
type Config struct {
	Name     string
	Memory   sim.Memory    // where the driver's rings and buffers are
	MAC      [6]byte       // zero: 02:00:00:00:00:01
	Length   int           // of each received frame (with RxSegments: of each part), bytes without FCS; 0: 60
	Features spec.Features // offered; 0: Offered. FeatureVersion1 is always offered
	Size     int           // most descriptors of a queue; 0: 1024
}

// Device is one device. It may be used by one goroutine at a time.
type Device struct {
	cfg    Config
	status uint8
	agreed spec.Features
	config [spec.NetConfigSize]byte
	header header // in front of each received frame, with NumBuffers 1
	rx, tx ring
	bells  [2]uint32
	chunks [chunks]chunk
}

// The queues that there are.
const (
	rxQueue = 0
	txQueue = 1
	queues  = 2
)

// A header, as the device writes it (§5.1.6): bytes 0 … 7 and 8 … 11.
type header struct {
	lo uint64
	hi uint32
}

// ring is the device's side of a queue.
type ring interface {
	// available is how many descriptors can be used for sure, at most max.
	available(max int) int
	// receive uses n buffers, one a part: parts to a frame, of length bytes each behind the header of the first. It returns how
	// many it has used, fewer when a buffer is not the driver's to give.
	receive(d *Device, n, parts int) int
	// transmit uses everything that there is and returns how many buffers that was.
	transmit() int
}

// none is the ring of a queue that is not enabled.
type none struct{}

func (none) available(int) int             { return 0 }
func (none) receive(*Device, int, int) int { return 0 }
func (none) transmit() int                 { return 0 }

// New makes a device, reset, with its link up.
func New(cfg Config) (*Device, error) {
	if cfg.Memory == nil {
		return nil, fmt.Errorf("nullvirtio %q: Config.Memory is nil: give it the Space that the driver uses", cfg.Name)
	}
	if cfg.Length == 0 {
		cfg.Length = 60
	}
	if cfg.Length < 0 || cfg.Length > 65535 {
		return nil, fmt.Errorf("nullvirtio %q: frames of %d bytes: want 1 to 65535", cfg.Name, cfg.Length)
	}
	if cfg.MAC == [6]byte{} {
		cfg.MAC = [6]byte{0x02, 0, 0, 0, 0, 1}
	}
	if cfg.Features == 0 {
		cfg.Features = Offered
	}
	cfg.Features |= spec.FeatureVersion1
	if cfg.Size == 0 {
		cfg.Size = 1024
	}
	if cfg.Size < 1 || cfg.Size > spec.MaxQueueSize || cfg.Size&(cfg.Size-1) != 0 {
		return nil, fmt.Errorf("nullvirtio %q: queues of %d descriptors: want a power of two, at most %d", cfg.Name, cfg.Size, spec.MaxQueueSize)
	}
	d := &Device{cfg: cfg}
	copy(d.config[spec.NetMAC:], cfg.MAC[:])
	binary.LittleEndian.PutUint16(d.config[spec.NetStatus:], spec.NetStatusLinkUp)
	binary.LittleEndian.PutUint16(d.config[spec.NetMaxPairs:], 1)
	d.Reset()
	return d, nil
}

// Name is Config.Name.
func (d *Device) Name() string { return d.cfg.Name }

// Reset makes the device forget everything, its queues first of all: it touches no memory until a queue is enabled.
func (d *Device) Reset() {
	d.rx, d.tx = none{}, none{}
	d.status, d.agreed = 0, 0
	d.chunks = [chunks]chunk{}
}

// Status is the status byte (§2.1).
func (d *Device) Status() uint8 { return d.status }

// AddStatus sets bits of the status. The device takes every choice of features that SetFeatures took.
func (d *Device) AddStatus(bits uint8) { d.status |= bits }

// Features are those that are offered.
func (d *Device) Features() spec.Features { return d.cfg.Features }

// SetFeatures is what the driver takes of them.
func (d *Device) SetFeatures(f spec.Features) error {
	if extra := f &^ d.cfg.Features; extra != 0 {
		return fmt.Errorf("%s: features %v were not offered", d.cfg.Name, extra)
	}
	if !f.Has(spec.FeatureVersion1) {
		return fmt.Errorf("%s: features %v lack version_1: this device has no legacy interface", d.cfg.Name, f)
	}
	d.agreed = f
	d.header = header{hi: 1 << 16}
	if f.Has(spec.FeatureGuestCSum) {
		d.header.lo = spec.HdrDataValid
	}
	return nil
}

// ReadConfig reads the device configuration (§5.1.4) from off on.
func (d *Device) ReadConfig(off int, p []byte) error {
	if off < 0 || off > len(d.config) || len(p) > len(d.config)-off {
		return fmt.Errorf("%s: %d bytes of configuration at %d: there are %d", d.cfg.Name, len(p), off, len(d.config))
	}
	copy(p, d.config[off:])
	return nil
}

// Queues is the number of queues: one receives, one transmits.
func (d *Device) Queues() int { return queues }

// QueueSize is the most descriptors of a queue, 0 for one that does not exist.
func (d *Device) QueueSize(queue int) int {
	if queue < 0 || queue >= queues {
		return 0
	}
	return d.cfg.Size
}

// Area is where a queue lies, by bus addresses.
type Area struct {
	Size                 int // descriptors
	Desc, Driver, Device uint64
}

// EnableQueue tells the device where a queue lies. What it returns is the doorbell: a word that may be written and is never read.
func (d *Device) EnableQueue(queue int, at Area) (bell *uint32, err error) {
	if at.Size < 1 || at.Size > d.QueueSize(queue) {
		return nil, fmt.Errorf("%s: queue %d of %d descriptors: there are queues 0 and 1, of at most %d", d.cfg.Name, queue, at.Size, d.cfg.Size)
	}
	var r ring
	if d.agreed.Has(spec.FeatureRingPacked) {
		r, err = d.newPacked(at)
	} else {
		r, err = d.newSplit(at)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: queue %d: %w", d.cfg.Name, queue, err)
	}
	d.chunks = [chunks]chunk{}
	if queue == rxQueue {
		d.rx = r
	} else {
		d.tx = r
	}
	return &d.bells[queue], nil
}

// piece finds a part of a ring: n values of type T at a bus address.
func piece[T any](d *Device, what string, bus uint64, n int) ([]T, error) {
	var one T
	size := n * int(unsafe.Sizeof(one))
	mem, err := d.cfg.Memory.Bytes(bus, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if len(mem) < size || uintptr(unsafe.Pointer(&mem[0]))%unsafe.Alignof(one) != 0 {
		return nil, fmt.Errorf("%s at %#x: %d of its %d bytes are in one piece, aligned to %d", what, bus, len(mem), size, unsafe.Alignof(one))
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&mem[0])), n), nil
}

// RxStep lets up to k frames of Config.Length bytes arrive, as many as the driver has given buffers, and returns how many that
// is.
func (d *Device) RxStep(k int) int { return d.rx.receive(d, d.rx.available(k), 1) }

// RxSegments lets up to k frames arrive that fill segs buffers each, of Config.Length bytes of frame. It wants FeatureMrgRxBuf.
func (d *Device) RxSegments(k, segs int) int {
	segs = max(segs, 1)
	if segs > 1 && !d.agreed.Has(spec.FeatureMrgRxBuf) {
		return 0
	}
	return d.rx.receive(d, d.rx.available(k*segs)/segs*segs, segs) / segs
}

// TxStep sends everything that the driver has queued and returns how many frames that is.
func (d *Device) TxStep() int { return d.tx.transmit() }

// Memory is found again by a small table: a step that asked Memory for each header would cost more than what it measures. Most
// headers lie near the one before; the steps look there first.
const (
	chunkShift = 21
	chunks     = 64
)

// chunk is a piece of memory, in which headers may begin at bus addresses from … from+last.
type chunk struct {
	base       unsafe.Pointer // nil: there is none
	from, last uint64
	_          uint64
}

func (c *chunk) has(bus uint64) bool { return bus-c.from <= c.last && c.base != nil }

func (c *chunk) at(bus uint64) unsafe.Pointer { return unsafe.Add(c.base, bus-c.from) }

// chunk is the piece in which a header at a bus address lies; an empty one where there is no memory for one.
func (d *Device) chunk(bus uint64) chunk {
	c := &d.chunks[bus>>chunkShift%chunks]
	if c.has(bus) {
		return *c
	}
	first := bus &^ (1<<chunkShift - 1)
	if mem, err := d.cfg.Memory.Bytes(first, 1<<chunkShift); err == nil && len(mem) >= spec.HdrSize {
		if found := (chunk{base: unsafe.Pointer(&mem[0]), from: first, last: uint64(len(mem) - spec.HdrSize)}); found.has(bus) {
			*c = found
			return found
		}
	}
	mem, err := d.cfg.Memory.Bytes(bus, spec.HdrSize) // no whole chunk is there: a small region
	if err != nil || len(mem) < spec.HdrSize {
		return chunk{}
	}
	return chunk{base: unsafe.Pointer(&mem[0]), from: bus}
}

// write writes the header; it need not be aligned.
func (h header) write(to unsafe.Pointer) {
	*(*uint64)(to) = h.lo
	*(*uint32)(unsafe.Add(to, 8)) = h.hi
}

// of is the header of a frame of parts buffers.
func (h header) of(parts int) header {
	h.hi = uint32(parts) << 16
	return h
}
