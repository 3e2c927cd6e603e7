package pci

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrNotIsolated is wrapped when a function shares its IOMMU group with functions that other drivers use, so that it cannot
// be given to a process.
var ErrNotIsolated = errors.New("the IOMMU group is not viable")

// group is an IOMMU group: what can only be given to a process together. The kernel lets it be opened once, so all functions
// of one group share the descriptor.
type group struct {
	sys       kernel
	number    int
	fd        int
	container *container
	users     int // functions that are open
}

// takeGroup returns the group of d, in a container, for one more function.
func (o *Opener) takeGroup(d *Device) (_ *group, err error) {
	if g := o.groups[d.Group]; g != nil {
		g.users++
		return g, nil
	}
	node := fmt.Sprintf("/dev/vfio/%d", d.Group)
	if o.opt.Access == VFIONoIOMMU {
		node = fmt.Sprintf("/dev/vfio/noiommu-%d", d.Group)
	}
	fd, err := o.sys.open(o.host.path(node))
	if err != nil {
		return nil, explainOpen(node, err, fmt.Sprintf("no function of the group is bound to vfio-pci: \"pktgen devices bind %s\"", d.Address))
	}
	g := &group{sys: o.sys, number: d.Group, fd: fd, users: 1}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.sys.close(fd))
		}
	}()
	status := vfioGroupStatus{}
	status.argsz = sizeOf(&status)
	if _, err := o.sys.ioctl(fd, vfioGroupGetStatus, unsafe.Pointer(&status)); err != nil {
		return nil, fmt.Errorf("ask for the state of %s: %w", node, err)
	}
	if status.flags&vfioGroupViable == 0 {
		return nil, o.notViable(d)
	}
	if err := o.place(g); err != nil {
		return nil, err
	}
	o.groups[g.number] = g
	return g, nil
}

// place puts a group into a container that takes it without narrowing what the Space was told, or into one of its own.
func (o *Opener) place(g *group) error {
	for _, c := range o.containers {
		if g.join(c) != nil {
			continue // its IOMMU is of another kind, or cannot have what is mapped
		}
		info, err := c.getInfo()
		if err == nil && slices.Equal(info.ranges, c.info.ranges) && info.pageSizes == c.info.pageSizes {
			return nil
		}
		if err := errors.Join(err, g.leave(c)); err != nil {
			return err
		}
	}
	c, err := o.newContainer(g)
	if err != nil {
		return err
	}
	o.containers = append(o.containers, c)
	return nil
}

// join puts the group into a container.
func (g *group) join(c *container) error {
	fd := int32(c.fd)
	if _, err := g.sys.ioctl(g.fd, vfioGroupSetContainer, unsafe.Pointer(&fd)); err != nil {
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: a no-IOMMU group needs CAP_SYS_RAWIO: run as root", err)
		}
		return fmt.Errorf("put group %d into a container: %w", g.number, err)
	}
	g.container = c
	c.groups = append(c.groups, g.number)
	c.rename()
	return nil
}

// leave takes the group out of its container, none of its functions being open.
func (g *group) leave(c *container) error {
	if _, err := g.sys.ioctl(g.fd, vfioGroupUnsetContainer, nil); err != nil {
		return fmt.Errorf("take group %d out of its container: %w", g.number, err)
	}
	g.container = nil
	c.groups = slices.DeleteFunc(c.groups, func(n int) bool { return n == g.number })
	c.rename()
	return nil
}

// dropGroup is the end of one function's use of g. With the last one the group is closed, and with the last group the
// container, so that nothing stays mapped.
func (o *Opener) dropGroup(g *group) error {
	if g.users--; g.users > 0 {
		return nil
	}
	delete(o.groups, g.number)
	c := g.container
	c.groups = slices.DeleteFunc(c.groups, func(n int) bool { return n == g.number })
	var errs []error
	var kept error // memory that the IOMMU did not give back
	if len(c.groups) == 0 {
		// While the group is still in it: a container without a group has no IOMMU to unmap from.
		kept = o.detach(c)
		errs = append(errs, c.close())
	} else {
		c.rename()
	}
	if err := g.sys.close(g.fd); err != nil {
		errs = append(errs, fmt.Errorf("close group %d: %w", g.number, err))
	} else if kept != nil {
		kept = o.space.Detach(c) // with the group the kernel has unmapped whatever was left
	}
	return errors.Join(append(errs, kept)...)
}

// harmless are the drivers beside vfio-pci that a function of a viable group may have.
var harmless = []string{"", "vfio-pci", "pci-stub", "pcieport"}

// notViable names those that keep d's group from being given away.
func (o *Opener) notViable(d *Device) error {
	var culprits []string
	members, err := o.host.GroupDevices(d.Group)
	if err != nil {
		return fmt.Errorf("%w; its members are unknown: %w", ErrNotIsolated, err)
	}
	for _, a := range members {
		m, err := o.host.Device(a)
		if err != nil || slices.Contains(harmless, m.Driver) {
			continue
		}
		culprits = append(culprits, fmt.Sprintf("%s (driver %s)", a, m.Driver))
	}
	if len(culprits) == 0 {
		return fmt.Errorf("%w: the kernel does not give group %d away, and every function in it looks free: try again", ErrNotIsolated, d.Group)
	}
	return fmt.Errorf("%w: group %d also holds %s: bind them to vfio-pci as well, or leave them without a driver (\"pktgen devices bind\"), or put the card into another slot",
		ErrNotIsolated, d.Group, strings.Join(culprits, ", "))
}
