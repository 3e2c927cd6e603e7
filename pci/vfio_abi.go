package pci

import "unsafe"

// What VFIO's system calls look like (Linux include/uapi/linux/vfio.h, Documentation/driver-api/vfio.rst). Every structure
// begins with its own length, so that a kernel which knows more can be told apart from one that knows less.

// Requests: _IO(';', 100+n), without a size in the number.
const (
	vfioBase = ';'<<8 + 100

	vfioGetAPIVersion  = vfioBase + 0
	vfioCheckExtension = vfioBase + 1
	vfioSetIOMMU       = vfioBase + 2

	vfioGroupGetStatus      = vfioBase + 3
	vfioGroupSetContainer   = vfioBase + 4
	vfioGroupUnsetContainer = vfioBase + 5
	vfioGroupGetDeviceFD    = vfioBase + 6

	vfioDeviceGetInfo       = vfioBase + 7
	vfioDeviceGetRegionInfo = vfioBase + 8
	vfioDeviceGetIRQInfo    = vfioBase + 9
	vfioDeviceSetIRQs       = vfioBase + 10
	vfioDeviceReset         = vfioBase + 11

	vfioIOMMUGetInfo  = vfioBase + 12
	vfioIOMMUMapDMA   = vfioBase + 13
	vfioIOMMUUnmapDMA = vfioBase + 14
)

// vfioAPIVersion is the only one there has ever been.
const vfioAPIVersion = 0

// IOMMU types, for vfioCheckExtension and vfioSetIOMMU. Version 2 of type 1 is the one that never takes back more, or less,
// than was mapped.
const (
	vfioType1   = 1
	vfioType1v2 = 3
	vfioNoIOMMU = 8
)

// vfioGroupStatus.flags.
const (
	vfioGroupViable       = 1 << 0
	vfioGroupContainerSet = 1 << 1
)

type vfioGroupStatus struct{ argsz, flags uint32 }

// vfioDeviceInfo.flags.
const (
	vfioDeviceCanReset = 1 << 0
	vfioDevicePCI      = 1 << 1
)

type vfioDeviceInfo struct {
	argsz, flags uint32
	regions      uint32
	irqs         uint32
	capOffset    uint32
	_            uint32
}

// Regions of a PCI device: BARs 0 to 5, and configuration space.
const vfioRegionConfig = 7

// vfioRegionInfo.flags.
const (
	vfioRegionRead  = 1 << 0
	vfioRegionWrite = 1 << 1
	vfioRegionMmap  = 1 << 2
	vfioRegionCaps  = 1 << 3
)

type vfioRegionInfo struct {
	argsz, flags uint32
	index        uint32
	capOffset    uint32
	size         uint64 // bytes
	offset       uint64 // of the region in the device's file
}

// Capabilities of a region.
const (
	vfioCapSparseMmap   = 1 // only these areas can be mapped
	vfioCapMSIXMappable = 3 // the MSI-X table may be mapped with the rest
)

// Interrupt indices of a PCI device.
const (
	vfioIRQINTx = 0
	vfioIRQMSI  = 1
	vfioIRQMSIX = 2
	vfioIRQErr  = 3 // an uncorrectable error was reported (AER)
	vfioIRQReq  = 4 // the kernel wants the device back
)

type vfioIRQInfo struct{ argsz, flags, index, count uint32 }

// vfioIRQSet.flags: what the data is, and what is done.
const (
	vfioIRQDataNone      = 1 << 0
	vfioIRQDataEventFD   = 1 << 2
	vfioIRQActionUnmask  = 1 << 4
	vfioIRQActionTrigger = 1 << 5
)

// vfioIRQSet is followed by its data: for vfioIRQDataEventFD a 32-bit descriptor for each of count vectors from start on.
type vfioIRQSet struct{ argsz, flags, index, start, count uint32 }

// vfioIOMMUInfo.flags.
const (
	vfioIOMMUPageSizes = 1 << 0
	vfioIOMMUCaps      = 1 << 1
)

type vfioIOMMUInfo struct {
	argsz, flags uint32
	pageSizes    uint64 // a bit for each
	capOffset    uint32
	_            uint32
}

// Capabilities of an IOMMU.
const (
	vfioCapIOVARange = 1
	vfioCapDMAAvail  = 3
)

// vfioDMAMap.flags.
const (
	vfioDMARead  = 1 << 0 // by the device
	vfioDMAWrite = 1 << 1
)

type vfioDMAMap struct {
	argsz, flags uint32
	vaddr        uint64
	iova         uint64
	size         uint64
}

// vfioDMAUnmap comes back with the size that was unmapped.
type vfioDMAUnmap struct {
	argsz, flags uint32
	iova         uint64
	size         uint64
}

// sizeOf is a structure's length for its field argsz.
func sizeOf[T any](*T) uint32 { return uint32(unsafe.Sizeof(*new(T))) }
