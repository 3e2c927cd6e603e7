package pci

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"bare.wire/vtop"
)

// FakeKernel is VFIO without hardware: containers, groups, devices, mappings and interrupts, as strict about their order as
// the kernel is. Devices, Viable and the rest are set before it is used, or under its lock.
type FakeKernel struct {
	t    testing.TB
	root string

	mu      sync.Mutex
	objects map[int]any
	next    int
	Devices map[string]*FakeDevice
	Groups  map[int]*FakeGroup
	Types   []uintptr        // IOMMU types that there are
	Refuse  map[string]error // by what is asked: "open /dev/vfio/7", "MAP_DMA"
	Info    []byte           // the answer to IOMMU_GET_INFO; nil: one made of Ranges
	Ranges  []vtop.Range
	Narrow  map[int][]vtop.Range // what ranges become when this group joins
	Lock    uint64               // RLIMIT_MEMLOCK; 0: none
	Short   uint64               // UNMAP_DMA unmaps so much less
	Maps    int                  // mappings that exist, in all containers
	Wrong   []string             // what a program must not do

	windows map[unsafe.Pointer]*FakeBAR
}

// FakeGroup is an IOMMU group.
type FakeGroup struct {
	Alone    bool // takes a container for itself only
	NoViable bool
	opened   bool
}

// FakeDevice is a PCI device behind VFIO.
type FakeDevice struct {
	Group    int
	Config   []byte
	BARs     map[int]*FakeBAR
	IRQs     [5]int
	Vectors  int // that can be had at once; 0: any number
	CanReset bool
	Resets   int
	Open     bool

	events [5][]int // copies of the eventfds of each kind
	masked bool     // INTx
}

// FakeBAR is a region that is a BAR.
type FakeBAR struct {
	Size    int
	Mmap    bool
	NoMmap  error  // what mmap says although the flags allow it
	Caps    []byte // the capabilities that follow the region's structure
	Mapped  []string
	Sizes   []string // of accesses by system call: "r2", "w4"
	file    *os.File
	removed bool
}

type fakeContainer struct {
	kind   uintptr
	groups []*fakeGroupFile
	maps   map[uint64]uint64
	ranges []vtop.Range
}

type fakeGroupFile struct {
	number    int
	container *fakeContainer
	devices   int
}

type fakeDeviceFile struct {
	*FakeDevice
	group *fakeGroupFile
}

// NewFakeKernel gives a kernel for a machine at root, with type 1 version 2 and the IOVA ranges of an Intel IOMMU.
func NewFakeKernel(t testing.TB, root string) *FakeKernel {
	k := &FakeKernel{
		t: t, root: root, objects: map[int]any{}, next: 1000, Devices: map[string]*FakeDevice{}, Groups: map[int]*FakeGroup{},
		Types: []uintptr{vfioType1, vfioType1v2}, Refuse: map[string]error{}, Narrow: map[int][]vtop.Range{}, windows: map[unsafe.Pointer]*FakeBAR{},
		Ranges: []vtop.Range{{First: 0, Last: 0xfedfffff}, {First: 0xfef00000, Last: 1<<39 - 1}},
	}
	t.Cleanup(func() {
		for _, w := range k.Wrong {
			t.Error(w)
		}
		if len(k.objects) > 0 || k.Maps > 0 {
			t.Errorf("left behind: %d mappings and %v", k.Maps, k.objects)
		}
	})
	return k
}

// OpenerWith is Host.NewOpener on a fake kernel.
func (k *FakeKernel) OpenerWith(h *Host, space *vtop.Space, opt OpenOptions) *Opener {
	return newOpener(h, space, opt, k)
}

// Add puts a device behind VFIO: 64 KiB of registers in BAR 0, three MSI-X vectors, everything there is.
func (k *FakeKernel) Add(address string, group int) *FakeDevice {
	d := &FakeDevice{
		Group: group, Config: make([]byte, 4096), CanReset: true, IRQs: [5]int{1, 1, 3, 1, 1},
		BARs: map[int]*FakeBAR{0: {Size: 64 << 10, Mmap: true, Caps: FakeCap(vfioCapMSIXMappable)}},
	}
	copy(d.Config, []byte{0x86, 0x80, 0xfb, 0x10, 0, 0, 0, 0})
	k.Devices[address] = d
	if k.Groups[group] == nil {
		k.Groups[group] = &FakeGroup{}
	}
	return d
}

// FakeCap makes a capability, with a count and pairs when there are any.
func FakeCap(id uint16, pairs ...uint64) []byte {
	b := make([]byte, 8+8*len(pairs)+8*min(1, len(pairs)))
	*(*uint16)(unsafe.Pointer(&b[0])) = id
	if len(pairs) > 0 {
		*(*uint32)(unsafe.Pointer(&b[8])) = uint32(len(pairs) / 2)
		for i, v := range pairs {
			*(*uint64)(unsafe.Pointer(&b[16+8*i])) = v
		}
	}
	return b
}

func (k *FakeKernel) wrong(format string, args ...any) {
	k.Wrong = append(k.Wrong, fmt.Sprintf(format, args...))
}

func (k *FakeKernel) add(object any) int {
	k.next++
	k.objects[k.next] = object
	return k.next
}

func (k *FakeKernel) open(name string) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name = strings.TrimPrefix(name, k.root)
	if err := k.Refuse["open "+name]; err != nil {
		return -1, err
	}
	if name == "/dev/vfio/vfio" {
		return k.add(&fakeContainer{maps: map[uint64]uint64{}}), nil
	}
	n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimPrefix(name, "/dev/vfio/"), "noiommu-"))
	g := k.Groups[n]
	switch {
	case err != nil || g == nil:
		return -1, unix.ENOENT
	case g.opened:
		return -1, unix.EBUSY
	}
	g.opened = true
	return k.add(&fakeGroupFile{number: n}), nil
}

func (k *FakeKernel) close(fd int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch o := k.objects[fd].(type) {
	case nil:
		k.wrong("close of %d, which is not open", fd)
		return unix.EBADF
	case *fakeContainer:
		k.Maps -= len(o.maps)
		o.maps = nil
	case *fakeGroupFile:
		if o.devices > 0 {
			k.wrong("group %d is closed before its devices", o.number)
		}
		k.Groups[o.number].opened = false
	case *fakeDeviceFile:
		for i := range o.events {
			o.setEvents(i, nil)
		}
		for n, b := range o.BARs {
			if len(b.Mapped) > 0 {
				k.wrong("BAR %d is mapped when its device is closed: that keeps it open", n)
			}
			if b.file != nil {
				b.file.Close()
				b.file = nil
			}
		}
		o.Config[4] &^= CommandBusMaster
		o.Open = false
		o.group.devices--
	}
	delete(k.objects, fd)
	return k.Refuse["close"]
}

func (d *FakeDevice) setEvents(index int, fds []int32) {
	for _, fd := range d.events[index] {
		unix.Close(fd)
	}
	d.events[index] = nil
	for _, fd := range fds {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			own = -1
		}
		d.events[index] = append(d.events[index], own)
	}
}

// Raise makes a vector fire. It returns false when it is off or masked.
func (k *FakeKernel) Raise(d *FakeDevice, index, vector int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if vector >= len(d.events[index]) || index == vfioIRQINTx && d.masked {
		return false
	}
	if index == vfioIRQINTx {
		d.masked = true
	}
	_, err := unix.Write(d.events[index][vector], []byte{0: 1, 7: 0})
	return err == nil
}

// Remove takes away the registers of a device, as when it is unplugged.
func (k *FakeKernel) Remove(d *FakeDevice) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range d.Config {
		d.Config[i] = 0xff
	}
	for _, b := range d.BARs {
		b.removed = true
		if b.file != nil {
			if err := b.file.Truncate(0); err != nil {
				k.t.Error(err)
			}
		}
	}
}

func (k *FakeKernel) memlock() (uint64, bool) { return k.Lock, k.Lock == 0 }

func (k *FakeKernel) ioctlValue(fd int, request uint, v uintptr) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.objects[fd].(*fakeContainer)
	if !ok {
		return 0, unix.ENOTTY
	}
	switch request {
	case vfioCheckExtension:
		if slices.Contains(k.Types, v) {
			return 1, nil
		}
		return 0, nil
	case vfioSetIOMMU:
		if err := k.Refuse["SET_IOMMU"]; err != nil {
			return 0, err
		}
		if len(c.groups) == 0 || c.kind != 0 || !slices.Contains(k.Types, v) {
			return 0, unix.EINVAL
		}
		c.kind, c.ranges = v, k.Ranges
		return 0, nil
	}
	return 0, unix.ENOTTY
}

func (k *FakeKernel) ioctl(fd int, request uint, arg unsafe.Pointer) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch o := k.objects[fd].(type) {
	case *fakeContainer:
		return k.containerIoctl(o, request, arg)
	case *fakeGroupFile:
		return k.groupIoctl(o, request, arg)
	case *fakeDeviceFile:
		return k.deviceIoctl(o, request, arg)
	}
	return 0, unix.EBADF
}

func (k *FakeKernel) containerIoctl(c *fakeContainer, request uint, arg unsafe.Pointer) (int, error) {
	switch request {
	case vfioGetAPIVersion:
		return vfioAPIVersion, k.Refuse["API"]
	case vfioIOMMUGetInfo:
		answer := k.Info
		if answer == nil {
			answer = make([]byte, unsafe.Sizeof(vfioIOMMUInfo{}))
			h := (*vfioIOMMUInfo)(unsafe.Pointer(&answer[0]))
			*h = vfioIOMMUInfo{flags: vfioIOMMUPageSizes | vfioIOMMUCaps, pageSizes: 0x40201000, capOffset: uint32(len(answer))}
			var pairs []uint64
			for _, r := range c.ranges {
				pairs = append(pairs, r.First, r.Last)
			}
			answer = append(append(answer, FakeCap(vfioCapDMAAvail)...), 0xff, 0xff, 0, 0, 0, 0, 0, 0) // 65535 mappings
			*(*uint32)(unsafe.Pointer(&answer[h.capOffset+4])) = uint32(len(answer))
			answer = append(answer, FakeCap(vfioCapIOVARange, pairs...)...)
			*(*uint32)(unsafe.Pointer(&answer[0])) = uint32(len(answer))
		}
		k.answer(arg, answer)
		return 0, k.Refuse["IOMMU_GET_INFO"]
	case vfioIOMMUMapDMA:
		return 0, k.mapDMA(c, (*vfioDMAMap)(arg))
	case vfioIOMMUUnmapDMA:
		u := (*vfioDMAUnmap)(arg)
		if c.maps[u.iova] != u.size {
			k.wrong("unmap of %#x at %#x, mapped are %#x", u.size, u.iova, c.maps[u.iova])
			u.size = 0
			return 0, nil
		}
		if k.Short > 0 {
			u.size -= k.Short
			return 0, nil
		}
		delete(c.maps, u.iova)
		k.Maps--
		return 0, nil
	}
	return 0, unix.ENOTTY
}

func (k *FakeKernel) mapDMA(c *fakeContainer, m *vfioDMAMap) error {
	if err := k.Refuse["MAP_DMA"]; err != nil {
		return err
	}
	r := vtop.Range{First: m.iova, Last: m.iova + m.size - 1}
	inside := slices.ContainsFunc(c.ranges, func(u vtop.Range) bool { return u.First <= r.First && r.Last <= u.Last })
	if c.kind == 0 || m.size == 0 || m.flags != vfioDMARead|vfioDMAWrite || (m.iova|m.vaddr|m.size)%4096 != 0 || !inside {
		return unix.EINVAL
	}
	for iova, size := range c.maps {
		if iova < m.iova+m.size && m.iova < iova+size {
			return unix.EEXIST
		}
	}
	c.maps[m.iova] = m.size
	k.Maps++
	return nil
}

// answer copies what fits into the caller's structure, whose first word says how long it is, and says how long all would be.
func (k *FakeKernel) answer(arg unsafe.Pointer, answer []byte) {
	room := int(*(*uint32)(arg))
	to := unsafe.Slice((*byte)(arg), room)
	copy(to, answer)
}

func (k *FakeKernel) groupIoctl(g *fakeGroupFile, request uint, arg unsafe.Pointer) (int, error) {
	switch request {
	case vfioGroupGetStatus:
		s := (*vfioGroupStatus)(arg)
		s.flags = vfioGroupViable
		if k.Groups[g.number].NoViable {
			s.flags = 0
		}
		return 0, nil
	case vfioGroupSetContainer:
		c, ok := k.objects[int(*(*int32)(arg))].(*fakeContainer)
		if !ok || g.container != nil {
			return 0, unix.EINVAL
		}
		if len(c.groups) > 0 && k.Groups[g.number].Alone {
			return 0, unix.EINVAL
		}
		g.container = c
		c.groups = append(c.groups, g)
		if r := k.Narrow[g.number]; r != nil {
			c.ranges = r
		}
		return 0, k.Refuse["SET_CONTAINER"]
	case vfioGroupUnsetContainer:
		c := g.container
		c.groups = slices.DeleteFunc(c.groups, func(x *fakeGroupFile) bool { return x == g })
		g.container, c.ranges = nil, k.Ranges
		return 0, nil
	case vfioGroupGetDeviceFD:
		name := unix.BytePtrToString((*byte)(arg))
		d := k.Devices[name]
		if err := k.Refuse["GET_DEVICE_FD"]; err != nil {
			return 0, err
		}
		if d == nil || d.Group != g.number || g.container == nil || g.container.kind == 0 {
			return 0, unix.EINVAL
		}
		d.Open = true
		g.devices++
		return k.add(&fakeDeviceFile{d, g}), nil
	}
	return 0, unix.ENOTTY
}

func (k *FakeKernel) deviceIoctl(f *fakeDeviceFile, request uint, arg unsafe.Pointer) (int, error) {
	d := f.FakeDevice
	switch request {
	case vfioDeviceGetInfo:
		i := (*vfioDeviceInfo)(arg)
		i.flags, i.regions, i.irqs = vfioDevicePCI, 9, 5
		if d.CanReset {
			i.flags |= vfioDeviceCanReset
		}
		return 0, nil
	case vfioDeviceGetRegionInfo:
		k.answer(arg, d.regionInfo((*vfioRegionInfo)(arg).index))
		return 0, nil
	case vfioDeviceGetIRQInfo:
		i := (*vfioIRQInfo)(arg)
		i.flags, i.count = 1, uint32(d.IRQs[i.index])
		return 0, nil
	case vfioDeviceSetIRQs:
		return k.setIRQs(d, (*vfioIRQSet)(arg))
	case vfioDeviceReset:
		if !d.CanReset {
			return 0, unix.ENOTTY
		}
		d.Resets++
		return 0, nil
	}
	return 0, unix.ENOTTY
}

func (d *FakeDevice) regionInfo(index uint32) []byte {
	h := vfioRegionInfo{argsz: uint32(unsafe.Sizeof(vfioRegionInfo{})), index: index, offset: uint64(index) << 40}
	var caps []byte
	if b := d.BARs[int(index)]; b != nil {
		h.size, h.flags, caps = uint64(b.Size), vfioRegionRead|vfioRegionWrite, b.Caps
		if b.Mmap {
			h.flags |= vfioRegionMmap
		}
		if caps != nil {
			h.flags, h.capOffset = h.flags|vfioRegionCaps, h.argsz
			h.argsz += uint32(len(caps))
		}
	} else if index == vfioRegionConfig {
		h.size, h.flags = uint64(len(d.Config)), vfioRegionRead|vfioRegionWrite
	}
	return append(slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h))), caps...)
}

func (k *FakeKernel) setIRQs(d *FakeDevice, s *vfioIRQSet) (int, error) {
	n := int(s.count)
	switch {
	case s.flags == vfioIRQDataNone|vfioIRQActionUnmask && s.index == vfioIRQINTx:
		if len(d.events[vfioIRQINTx]) == 0 {
			return 0, unix.EINVAL
		}
		d.masked = false
		return 0, nil
	case s.flags == vfioIRQDataNone|vfioIRQActionTrigger && n == 0:
		d.setEvents(int(s.index), nil)
		return 0, nil
	case s.flags != vfioIRQDataEventFD|vfioIRQActionTrigger || n == 0 || n > d.IRQs[s.index] || s.start != 0:
		return 0, unix.EINVAL
	case s.index <= vfioIRQMSIX && len(d.events[s.index]) > 0:
		k.wrong("vectors are set while others are on: free them first")
		return 0, unix.EINVAL
	}
	if err := k.Refuse["SET_IRQS "+strconv.Itoa(int(s.index))]; err != nil {
		return 0, err
	}
	if d.Vectors > 0 && n > d.Vectors {
		return d.Vectors, nil
	}
	if s.index == vfioIRQMSI && bits.OnesCount(uint(n)) != 1 {
		return 0, unix.EINVAL
	}
	d.masked = false
	d.setEvents(int(s.index), unsafe.Slice((*int32)(unsafe.Add(unsafe.Pointer(s), unsafe.Sizeof(*s))), n))
	return 0, nil
}

var errNoFile = errors.New("no such region")

// backing is the memory behind a BAR.
func (k *FakeKernel) backing(fd int, off int64) (*FakeBAR, error) {
	f, ok := k.objects[fd].(*fakeDeviceFile)
	if !ok || f.BARs[int(off>>40)] == nil {
		return nil, errNoFile
	}
	b := f.BARs[int(off>>40)]
	if b.file == nil {
		mem, err := unix.MemfdCreate("bar", unix.MFD_CLOEXEC)
		if err != nil {
			return nil, err
		}
		b.file = os.NewFile(uintptr(mem), "bar")
		if err := b.file.Truncate(int64(b.Size)); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (k *FakeKernel) pread(fd int, p []byte, off int64) (int, error) {
	return k.access(fd, p, off, false)
}

func (k *FakeKernel) pwrite(fd int, p []byte, off int64) (int, error) {
	return k.access(fd, p, off, true)
}

func (k *FakeKernel) access(fd int, p []byte, off int64, write bool) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f, ok := k.objects[fd].(*fakeDeviceFile); ok && off>>40 == vfioRegionConfig {
		config := f.Config[off&(1<<40-1):]
		if err := k.Refuse["config"]; err != nil {
			return 0, err
		}
		if write {
			return copy(config, p), nil
		}
		return copy(p, config), nil
	}
	b, err := k.backing(fd, off)
	if err != nil {
		return 0, err
	}
	b.Sizes = append(b.Sizes, map[bool]string{false: "r", true: "w"}[write]+strconv.Itoa(len(p)))
	switch {
	case b.removed:
		return 0, unix.EIO
	case write:
		return b.file.WriteAt(p, off&(1<<40-1))
	}
	return b.file.ReadAt(p, off&(1<<40-1))
}

func (k *FakeKernel) mmap(fd int, off int64, size int, areas []area) (unsafe.Pointer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b, err := k.backing(fd, off)
	if err != nil {
		return nil, err
	}
	if b.NoMmap != nil {
		return nil, b.NoMmap
	}
	p, err := linux{}.mmap(int(b.file.Fd()), 0, size, areas)
	if err == nil {
		k.windows[p] = b
		for _, a := range areas {
			b.Mapped = append(b.Mapped, fmt.Sprintf("%#x+%#x", a.off, a.size))
		}
	}
	return p, err
}

func (k *FakeKernel) munmap(at unsafe.Pointer, size int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.Refuse["munmap"]; err != nil {
		return err
	}
	b := k.windows[at]
	if b == nil {
		k.wrong("munmap of what is not mapped")
		return unix.EINVAL
	}
	b.Mapped = nil
	delete(k.windows, at)
	return linux{}.munmap(at, size)
}
