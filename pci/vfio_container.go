package pci

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"bare.wire/vtop"
)

// container is an IOMMU address space: groups whose devices see the same memory at the same addresses. It is the Mapper by
// which a Space reaches them.
type container struct {
	sys     kernel
	fd      int
	name    string
	groups  []int // of those in it
	info    iommuInfo
	noIOMMU bool // nothing is mapped: devices see physical memory, all of it
}

// newContainer opens a container and puts the first group into it, which decides what kind of IOMMU it has.
func (o *Opener) newContainer(g *group) (_ *container, err error) {
	const node = "/dev/vfio/vfio"
	fd, err := o.sys.open(o.host.path(node))
	if err != nil {
		return nil, explainOpen(node, err, "load the module with \"modprobe vfio-pci\"")
	}
	c := &container{sys: o.sys, fd: fd, noIOMMU: o.opt.Access == VFIONoIOMMU}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if v, err := o.sys.ioctl(fd, vfioGetAPIVersion, nil); err != nil || v != vfioAPIVersion {
		return nil, errors.Join(err, fmt.Errorf("VFIO has API version %d, version %d is understood here: %w", v, vfioAPIVersion, errors.ErrUnsupported))
	}
	kind, err := c.kind()
	if err != nil {
		return nil, err
	}
	if err := g.join(c); err != nil {
		return nil, err
	}
	// Only with a group in it does a container take its kind, and only with a kind does it map (MAP_DMA is EINVAL before).
	if _, err := o.sys.ioctlValue(fd, vfioSetIOMMU, kind); err != nil {
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: interrupts cannot be isolated on this machine (no interrupt remapping): \"echo 1 > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts\" accepts that a device may forge any interrupt", err)
		}
		return nil, errors.Join(fmt.Errorf("set the container's IOMMU type %d: %w", kind, err), g.leave(c))
	}
	if c.info, err = c.getInfo(); err != nil { // nothing is mapped yet: all that is available is all there is
		return nil, errors.Join(err, g.leave(c))
	}
	o.warnMemlock()
	if c.noIOMMU {
		return c, nil
	}
	if err := o.space.Attach(c); err != nil {
		return nil, errors.Join(err, g.leave(c))
	}
	return c, nil
}

// kind chooses the IOMMU type.
func (c *container) kind() (uintptr, error) {
	wanted := []uintptr{vfioType1v2, vfioType1}
	if c.noIOMMU {
		wanted = []uintptr{vfioNoIOMMU}
	}
	for _, k := range wanted {
		if n, err := c.sys.ioctlValue(c.fd, vfioCheckExtension, k); err == nil && n > 0 {
			return k, nil
		}
	}
	if c.noIOMMU {
		return 0, fmt.Errorf("the kernel has no no-IOMMU mode: it needs CONFIG_VFIO_NOIOMMU and \"echo 1 > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode\": %w", errors.ErrUnsupported)
	}
	return 0, fmt.Errorf("VFIO has no IOMMU driver: \"modprobe vfio_iommu_type1\": %w", errors.ErrUnsupported)
}

// getInfo asks what the IOMMU can do. The kernel says how long its answer would be; no-IOMMU has none.
func (c *container) getInfo() (iommuInfo, error) {
	if c.noIOMMU {
		return iommuInfo{available: -1}, nil
	}
	answer, err := infoOf[vfioIOMMUInfo](c.sys, c.fd, vfioIOMMUGetInfo, nil)
	if err != nil {
		return iommuInfo{}, fmt.Errorf("ask what the IOMMU can do: %w", err)
	}
	return parseIOMMUInfo(answer)
}

// infoOf makes a request whose answer may be longer than its structure T, which fill prepares.
func infoOf[T any](sys kernel, fd int, request uint, fill func(*T)) ([]byte, error) {
	var head T
	size := unsafe.Sizeof(head)
	for range 4 { // the answer may grow meanwhile
		// Words, so that the structure at their beginning is aligned.
		words := make([]uint64, (size+7)/8)
		p := (*T)(unsafe.Pointer(&words[0]))
		if fill != nil {
			fill(p)
		}
		*(*uint32)(unsafe.Pointer(p)) = uint32(size) // argsz is first everywhere
		if _, err := sys.ioctl(fd, request, unsafe.Pointer(p)); err != nil {
			return nil, err
		}
		want := uintptr(*(*uint32)(unsafe.Pointer(p)))
		if want < unsafe.Sizeof(head) || want > maxInfo {
			return nil, fmt.Errorf("an answer of %d bytes, want %d to %d: the kernel's answer makes no sense", want, unsafe.Sizeof(head), maxInfo)
		}
		if want <= size {
			return unsafe.Slice((*byte)(unsafe.Pointer(p)), want), nil
		}
		size = want
	}
	return nil, errors.New("the answer never fits: its length changes each time")
}

// warnMemlock says how much memory may be locked, before that is too little.
func (o *Opener) warnMemlock() {
	if limit, unlimited := o.sys.memlock(); !unlimited && o.opt.Access == VFIO {
		o.log.Warn("memory that devices reach counts against the limit of locked memory: buffers beyond it will be refused",
			"limit", limit, "remedy", memlockRemedy)
	}
}

const memlockRemedy = "raise it with \"ulimit -l unlimited\", LimitMEMLOCK=infinity in a systemd unit, or the capability CAP_IPC_LOCK"

// Name implements vtop.Mapper.
func (c *container) Name() string {
	if c.name == "" {
		return "VFIO container"
	}
	return c.name
}

// Ranges implements vtop.Mapper.
func (c *container) Ranges() []vtop.Range { return c.info.ranges }

// Map implements vtop.Mapper.
func (c *container) Map(va unsafe.Pointer, bus uint64, size int) error {
	if err := c.aligned(bus, size); err != nil {
		return err
	}
	m := vfioDMAMap{flags: vfioDMARead | vfioDMAWrite, vaddr: uint64(uintptr(va)), iova: bus, size: uint64(size)}
	m.argsz = sizeOf(&m)
	_, err := c.sys.ioctl(c.fd, vfioIOMMUMapDMA, unsafe.Pointer(&m))
	switch {
	case errors.Is(err, unix.ENOMEM):
		if limit, unlimited := c.sys.memlock(); !unlimited {
			return fmt.Errorf("%w: this process may lock %d bytes in memory, and this would be %d more: %s", err, limit, size, memlockRemedy)
		}
		return fmt.Errorf("%w: the kernel has no memory for the IOMMU's tables", err)
	case errors.Is(err, unix.ENOSPC):
		most := ""
		if c.info.available >= 0 {
			most = fmt.Sprintf(" than %d", c.info.available)
		}
		return fmt.Errorf("%w: the container takes no more mappings%s: use fewer and larger regions, or raise /sys/module/vfio_iommu_type1/parameters/dma_entry_limit", err, most)
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%w: something is mapped there already", err)
	}
	return err
}

// Unmap implements vtop.Mapper. The kernel says how much it has unmapped, which is looked at: version 1 of the interface may
// take away more, and a mapping that it does not know is 0 bytes and no error.
func (c *container) Unmap(bus uint64, size int) error {
	if c.fd < 0 {
		return nil
	}
	u := vfioDMAUnmap{iova: bus, size: uint64(size)}
	u.argsz = sizeOf(&u)
	if _, err := c.sys.ioctl(c.fd, vfioIOMMUUnmapDMA, unsafe.Pointer(&u)); err != nil {
		return err
	}
	if u.size != uint64(size) {
		return fmt.Errorf("the kernel has unmapped %d bytes of %d", u.size, size)
	}
	return nil
}

// aligned checks that a mapping is made of the IOMMU's pages: the kernel's own error for that is EINVAL, which says nothing.
func (c *container) aligned(bus uint64, size int) error {
	if c.info.pageSizes == 0 {
		return nil
	}
	least := uint64(1) << bits.TrailingZeros64(c.info.pageSizes)
	if bus%least != 0 || size <= 0 || uint64(size)%least != 0 {
		return fmt.Errorf("%d bytes at bus address %#x: the IOMMU maps multiples of %d bytes: round the region's size up", size, bus, least)
	}
	return nil
}

// rename names the container after its groups, for errors.
func (c *container) rename() {
	words := make([]string, len(c.groups))
	for i, g := range c.groups {
		words[i] = fmt.Sprint(g)
	}
	c.name = "VFIO group " + strings.Join(words, "+")
}

// detach takes the Space's memory out of a container that is about to be closed.
func (o *Opener) detach(c *container) error {
	o.containers = slices.DeleteFunc(o.containers, func(x *container) bool { return x == c })
	if c.noIOMMU {
		return nil
	}
	return o.space.Detach(c)
}

func (c *container) close() error {
	if err := c.sys.close(c.fd); err != nil {
		return fmt.Errorf("close %s: %w", c.Name(), err)
	}
	c.fd = -1
	return nil
}

// explainOpen says what the errors of opening VFIO's nodes mean.
func explainOpen(node string, err error, missing string) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%s: %w: %s", node, err, missing)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s: %w: run as root, or give the node to your user: \"pktgen devices bind --user NAME ADDRESS\"", node, err)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%s: %w: another process has it open (\"fuser -v %s\" names it)", node, err, node)
	}
	return fmt.Errorf("%s: %w", node, err)
}
