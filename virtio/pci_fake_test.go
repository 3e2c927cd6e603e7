package virtio_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/pci"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

// fakeDevice is the registers of a virtio device as a PCI function has them, and nothing behind them. It knows each field's
// width, and notes whoever accesses one with another.
type fakeDevice struct {
	t      testing.TB
	device uint16
	config [pci.ConfigSize]byte
	bars   map[int]*fakeBAR
	next   byte // where the next capability goes
	last   byte // where the last one is
	// accessWindow is where in configuration space a read is one of a register somewhere.
	accessWindow int

	mu         sync.Mutex
	wrong      []string
	gone       bool
	left       int              // how many accesses to registers there are until it is unplugged; 0: it is not
	fields     map[field]uint64 // values of registers that only hold what was written
	features   uint64
	refused    uint8 // status bits that do not stay
	resetReads int   // how many reads of the status it takes until it is 0 after a reset; −1: it never is
	resetting  int
	status     uint8
	generation uint8
	churn      int // how many reads of the configuration change it; −1: all
	netConfig  [spec.NetConfigSize]byte
	selected   int
	queues     map[int]*fakeQueue
	stuckSize  bool // the size of queues cannot be lowered
	stuckReset bool // queue_reset stays 1
	noVectors  map[uint16]bool
	configVec  uint16
	isr        uint8
	rung       []string // what was written to notification registers

	msix    int // vectors that the function has; 0: INTx
	handler func(int)
	closed  bool
	fnGone  func(error)
}

// field is a register of one of the structures.
type field struct {
	structure string
	off       int
}

type fakeQueue struct {
	most, size            int
	vector, enable        uint16
	notifyOff, notifyData uint16
	desc, driver, device  uint64
	pfn                   uint32
	resets                int
}

// Where the structures are in BAR 4.
const (
	fakeCommon = 0x0000
	fakeISR    = 0x1000
	fakeNet    = 0x2000
	fakeNotify = 0x3000
)

// newFake is a device of three queues of 256 with the modern interface; transitional has the legacy one too.
func newFake(t testing.TB, device uint16) *fakeDevice {
	d := &fakeDevice{
		t: t, device: device, fields: map[field]uint64{}, features: uint64(spec.FeatureVersion1 | spec.FeatureMAC),
		queues: map[int]*fakeQueue{}, noVectors: map[uint16]bool{}, configVec: spec.NoVector, msix: 4, next: 0x40, bars: map[int]*fakeBAR{},
	}
	for i := range 3 {
		d.queues[i] = &fakeQueue{most: 256, size: 256, vector: spec.NoVector, notifyOff: uint16(i)}
	}
	for i := range d.netConfig {
		d.netConfig[i] = byte(0x10 + i)
	}
	binary.LittleEndian.PutUint16(d.config[0:], spec.PCIVendor)
	binary.LittleEndian.PutUint16(d.config[2:], device)
	d.config[8] = 1
	d.config[6] = 0x10 // there are capabilities
	d.capability(pci.CapMSIX, []byte{3, 0, 1, 0, 0, 0, 1, 8, 0, 0})
	d.bars[4] = &fakeBAR{d, 4, 0x4000}
	d.structures(4)
	if device == spec.PCITransitionalNet {
		d.bars[0] = &fakeBAR{d, 0, 0x40}
	}
	t.Cleanup(func() {
		for _, w := range d.wrong {
			t.Error(w)
		}
	})
	return d
}

// capability appends one to the list.
func (d *fakeDevice) capability(id byte, body []byte) (at byte) {
	at = d.next
	d.config[at] = id
	copy(d.config[at+2:], body)
	if d.last == 0 {
		d.config[0x34] = at
	} else {
		d.config[d.last+1] = at
	}
	d.last, d.next = at, (at+byte(2+len(body))+3)&^3
	return at
}

// vendor appends a capability that points to a structure.
func (d *fakeDevice) vendor(kind, bar byte, off, size uint32, more ...byte) (at byte) {
	b := []byte{byte(16 + len(more)), kind, bar, 0, 0, 0}
	b = binary.LittleEndian.AppendUint32(b, off)
	b = binary.LittleEndian.AppendUint32(b, size)
	return d.capability(pci.CapVendor, append(b, more...))
}

// noCapabilities forgets all of them.
func (d *fakeDevice) noCapabilities() {
	clear(d.config[0x34:])
	d.next, d.last, d.accessWindow = 0x40, 0, 0
}

func (d *fakeDevice) structures(bar byte) {
	d.vendor(spec.CapCommon, bar, fakeCommon, spec.CommonSizeReset)
	d.vendor(spec.CapISR, bar, fakeISR, 1)
	d.vendor(spec.CapDevice, bar, fakeNet, spec.NetConfigSize)
	d.vendor(spec.CapNotify, bar, fakeNotify, 0x1000, 4, 0, 0, 0)
	d.accessWindow = int(d.vendor(spec.CapPCIAccess, 0, 0, 0, 0, 0, 0, 0)) + spec.CapPCIData
}

func (d *fakeDevice) misuse(format string, args ...any) {
	d.wrong = append(d.wrong, fmt.Sprintf(format, args...))
}

// Name, ID, ReadConfig … implement pci.Function.
func (d *fakeDevice) Name() string                 { return "0000:00:03.0" }
func (d *fakeDevice) ID() (vendor, device uint16)  { return spec.PCIVendor, d.device }
func (d *fakeDevice) Reset(context.Context) error  { return errors.ErrUnsupported }
func (d *fakeDevice) Close() error                 { d.closed = true; return nil }
func (d *fakeDevice) OnGone(f func(error))         { d.fnGone = f }
func (d *fakeDevice) busMaster() bool              { return d.config[4]&pci.CommandBusMaster != 0 }
func (d *fakeDevice) field(s string, o int) uint64 { return d.fields[field{s, o}] }

func (d *fakeDevice) BAR(n int) (pci.BAR, error) {
	if b := d.bars[n]; b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("BAR %d is missing", n)
}

func (d *fakeDevice) ReadConfig(off, size int) (uint32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return 1<<(8*size) - 1, nil
	}
	if d.accessWindow != 0 && off/4 == d.accessWindow/4 {
		d.misuse("the window at %#x of configuration space is read", off)
	}
	var b [4]byte
	copy(b[:], d.config[off:off+size])
	return binary.LittleEndian.Uint32(b[:]), nil
}

func (d *fakeDevice) WriteConfig(off, size int, v uint32) error {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	copy(d.config[off:], b[:size])
	return nil
}

func (d *fakeDevice) Interrupts(n int, f func(int)) (int, error) {
	d.handler = f
	c := d.msixCap()
	if c == nil {
		return min(1, n), nil
	}
	if f == nil || d.msix == 0 {
		c[3] &^= 0x80
		return min(1, n), nil
	}
	c[3] |= 0x80
	return min(n, d.msix), nil
}

func (d *fakeDevice) msixCap() []byte {
	at := d.config[0x34] &^ 3
	for range len(d.config) / 4 { // a list may have no end
		if at == 0 {
			break
		}
		if d.config[at] == pci.CapMSIX {
			return d.config[at:]
		}
		at = d.config[at+1] &^ 3
	}
	return nil
}

func (d *fakeDevice) msixOn() bool { c := d.msixCap(); return c != nil && c[3]&0x80 != 0 }

// unplug has everything read as ones.
func (d *fakeDevice) unplug() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = true
}

// fakeBAR is one of its BARs.
type fakeBAR struct {
	d    *fakeDevice
	n    int
	size int
}

func (b *fakeBAR) Size() int                    { return b.size }
func (b *fakeBAR) Read8(off uint32) uint8       { return uint8(b.access(off, 1, nil)) }
func (b *fakeBAR) Read16(off uint32) uint16     { return uint16(b.access(off, 2, nil)) }
func (b *fakeBAR) Read32(off uint32) uint32     { return b.access(off, 4, nil) }
func (b *fakeBAR) Write8(off uint32, v uint8)   { w := uint32(v); b.access(off, 1, &w) }
func (b *fakeBAR) Write32(off uint32, v uint32) { b.access(off, 4, &v) }
func (b *fakeBAR) Write16(off uint32, v uint16) {
	w := uint32(v)
	b.access(off, 2, &w)
}

func (b *fakeBAR) access(off uint32, size int, write *uint32) uint32 {
	d := b.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if off%uint32(size) != 0 || int(off)+size > b.size {
		d.misuse("BAR %d: %d bytes at %#x of %#x", b.n, size, off, b.size)
		return 0
	}
	if d.gone {
		return 1<<(8*size) - 1
	}
	if d.left > 0 {
		d.left--
		d.gone = d.left == 0
	}
	if b.n == 0 {
		return d.legacy(int(off), size, write)
	}
	switch at := int(off % 0x1000); off &^ 0xfff {
	case fakeCommon:
		return d.common(at, size, write)
	case fakeISR:
		v := d.isr
		d.isr = 0
		return uint32(v)
	case fakeNet:
		return d.net(at, size, write)
	case fakeNotify:
		if write == nil {
			d.misuse("notification register at %#x is read", at)
			return 0
		}
		d.rung = append(d.rung, fmt.Sprintf("%#x<%d:%#x", at, size, *write))
	}
	return 0
}

// commonWidths are the fields of the common configuration structure, those of 8 bytes as halves.
var commonWidths = map[int]int{
	0: 4, 4: 4, 8: 4, 0xc: 4, 0x10: 2, 0x12: 2, 0x14: 1, 0x15: 1, 0x16: 2, 0x18: 2, 0x1a: 2, 0x1c: 2, 0x1e: 2,
	0x20: 4, 0x24: 4, 0x28: 4, 0x2c: 4, 0x30: 4, 0x34: 4, 0x38: 2, 0x3a: 2,
}

func (d *fakeDevice) common(at, size int, write *uint32) uint32 {
	if commonWidths[at] != size {
		d.misuse("common configuration: %d bytes at %#x, the field has %d", size, at, commonWidths[at])
	}
	key := field{"common", at}
	q := d.queues[d.selected]
	if q == nil {
		q = &fakeQueue{}
	}
	half := func(v *uint64) uint32 {
		shift := 8 * uint(at&4)
		if write != nil {
			*v = *v&^(0xffffffff<<shift) | uint64(*write)<<shift
		}
		return uint32(*v >> shift)
	}
	word := func(v *uint16) uint32 {
		if write != nil {
			*v = uint16(*write)
		}
		return uint32(*v)
	}
	switch at {
	case spec.CommonDeviceFeature:
		return uint32(d.features >> (32 * d.fields[field{"common", spec.CommonDeviceFeatureSelect}]))
	case spec.CommonDriverFeature:
		if write != nil {
			key.off += 0x100 * int(d.fields[field{"common", spec.CommonDriverFeatureSelect}])
		}
	case spec.CommonNumQueues:
		return uint32(len(d.queues))
	case spec.CommonStatus:
		return d.statusRegister(write)
	case spec.CommonGeneration:
		return uint32(d.generation)
	case spec.CommonQueueSelect:
		if write != nil {
			d.selected = int(*write)
		}
		return uint32(d.selected)
	case spec.CommonQueueSize:
		if write != nil && !d.stuckSize {
			q.size = int(*write)
		}
		return uint32(q.size)
	case spec.CommonQueueVector:
		return d.vector(&q.vector, write)
	case spec.CommonConfigVector:
		return d.vector(&d.configVec, write)
	case spec.CommonQueueEnable:
		if write != nil && *write != 1 {
			d.misuse("%d written to queue_enable", *write)
		}
		return word(&q.enable)
	case spec.CommonQueueNotifyOff:
		return uint32(q.notifyOff)
	case spec.CommonQueueNotifyData:
		return uint32(q.notifyData)
	case spec.CommonQueueReset:
		if write != nil {
			q.resets, q.enable, q.size, q.vector = q.resets+1, 0, q.most, spec.NoVector
		}
		if d.stuckReset {
			return 1
		}
		return 0
	case spec.CommonQueueDesc, spec.CommonQueueDesc + 4:
		return half(&q.desc)
	case spec.CommonQueueDriver, spec.CommonQueueDriver + 4:
		return half(&q.driver)
	case spec.CommonQueueDevice, spec.CommonQueueDevice + 4:
		return half(&q.device)
	}
	if write != nil {
		d.fields[key] = uint64(*write)
	}
	return uint32(d.fields[key])
}

func (d *fakeDevice) vector(v *uint16, write *uint32) uint32 {
	if write != nil {
		if *v = uint16(*write); d.noVectors[*v] {
			*v = spec.NoVector
		}
	}
	return uint32(*v)
}

func (d *fakeDevice) statusRegister(write *uint32) uint32 {
	if write != nil {
		d.status = uint8(*write) &^ d.refused
		d.resetting = 0
		if *write == 0 {
			d.resetting = d.resetReads
		}
		return 0
	}
	if d.resetting != 0 {
		d.resetting--
		return spec.StatusDriverOK
	}
	return uint32(d.status)
}

// netWidths are the fields of the device configuration.
var netWidths = map[int]int{6: 2, 8: 2, 10: 2, 12: 4, 18: 2, 20: 4}

func (d *fakeDevice) net(at, size int, write *uint32) uint32 {
	if want := max(netWidths[at], 1); want != size {
		d.misuse("device configuration: %d bytes at %d, the field has %d", size, at, want)
	}
	if at+size > len(d.netConfig) {
		d.misuse("device configuration: read beyond its end, at %d", at)
		return 0
	}
	if d.churn != 0 { // it changes between two fields
		d.churn--
		d.generation++
		for i := range d.netConfig {
			d.netConfig[i]++
		}
	}
	var b [4]byte
	if write != nil {
		binary.LittleEndian.PutUint32(b[:], *write)
		copy(d.netConfig[at:], b[:size])
	}
	copy(b[:], d.netConfig[at:at+size])
	return binary.LittleEndian.Uint32(b[:])
}

// legacyWidths are the legacy registers.
var legacyWidths = map[int]int{0: 4, 4: 4, 8: 4, 0xc: 2, 0xe: 2, 0x10: 2, 0x12: 1, 0x13: 1, 0x14: 2, 0x16: 2}

func (d *fakeDevice) legacy(at, size int, write *uint32) uint32 {
	config := spec.LegacyConfig
	if d.msixOn() {
		config = spec.LegacyConfigMSIX
	}
	if at >= config {
		return d.net(at-config, size, write)
	}
	if legacyWidths[at] != size {
		d.misuse("legacy registers: %d bytes at %#x, the field has %d", size, at, legacyWidths[at])
	}
	q := d.queues[d.selected]
	if q == nil {
		q = &fakeQueue{}
	}
	switch at {
	case spec.LegacyDeviceFeatures:
		return uint32(d.features)
	case spec.LegacyQueuePFN:
		if write != nil {
			q.pfn = *write
			if *write == 0 && d.stuckReset { // as QEMU does
				d.status = 0
			}
		}
		return q.pfn
	case spec.LegacyQueueSize:
		if write != nil {
			d.misuse("the legacy queue size is written")
		}
		return uint32(q.size)
	case spec.LegacyQueueSelect:
		if write != nil {
			d.selected = int(*write)
		}
	case spec.LegacyQueueNotify:
		if write == nil {
			d.misuse("the legacy notification register is read")
			return 0
		}
		d.rung = append(d.rung, fmt.Sprintf("%#x<%d:%#x", at, size, *write))
	case spec.LegacyStatus:
		return d.statusRegister(write)
	case spec.LegacyISR:
		v := d.isr
		d.isr = 0
		return uint32(v)
	case spec.LegacyConfigVector:
		return d.vector(&d.configVec, write)
	case spec.LegacyQueueVector:
		return d.vector(&q.vector, write)
	default:
		if write != nil {
			d.fields[field{"legacy", at}] = uint64(*write)
		}
	}
	return 0
}

// transportRig is a transport over a fake device, and its log.
type transportRig struct {
	*testing.T
	d   *fakeDevice
	log strings.Builder
	clk *clock.Virtual
}

func newTransportRig(t *testing.T, device uint16) *transportRig {
	return &transportRig{T: t, d: newFake(t, device), clk: clock.NewVirtual(time.Unix(0, 0))}
}

func (r *transportRig) options() virtio.TransportOptions {
	return virtio.TransportOptions{Clock: r.clk, Logger: slog.New(slog.NewTextHandler(io.Writer(&r.log), nil))}
}

func (r *transportRig) open(f func(context.Context, pci.Function, virtio.TransportOptions) (virtio.Transport, error)) virtio.Transport {
	r.Helper()
	t, err := f(context.Background(), r.d, r.options())
	if err != nil {
		r.Fatal(err)
	}
	return t
}

// fuzzOptions are for a rig that was made without a clock.
func (r *transportRig) fuzzOptions() virtio.TransportOptions {
	return virtio.TransportOptions{Clock: clock.NewVirtual(time.Unix(0, 0))}
}

// fails checks that an error says what it has to, and names the device.
func (r *transportRig) fails(err error, words ...string) {
	r.Helper()
	if err == nil {
		r.Errorf("no error, want one that says %q", words)
		return
	}
	for _, w := range append(words, r.d.Name()) {
		if !strings.Contains(err.Error(), w) {
			r.Errorf("error is %q, want %q in it", err, w)
		}
	}
}

// must is for what has to work.
func must[T any](r *transportRig) func(T, error) T {
	return func(v T, err error) T {
		r.Helper()
		if err != nil {
			r.Fatal(err)
		}
		return v
	}
}

// area is a ring of n descriptors somewhere, as the modern interface takes it.
func area(n, vector int) virtio.QueueArea {
	return virtio.QueueArea{Size: n, Desc: 0x1_2345_6000, Driver: 0x2_0000_1000, Device: 0x3_0000_2000, Vector: vector}
}

func (d *fakeDevice) heard() []string { return slices.Clone(d.rung) }
