package spec

// Identifiers of PCI functions (§4.1.2).
const (
	PCIVendor          = 0x1af4
	PCITransitionalNet = 0x1000 // serves the legacy interface beside the modern one
	PCIModernNet       = 0x1041 // 0x1040 + DeviceNet
	DeviceNet          = 1      // device type (§5)
)

// Status bits (§2.1). A driver sets one after the other and clears them all by writing 0 only.
const (
	StatusAcknowledge = 1
	StatusDriver      = 2
	StatusDriverOK    = 4
	StatusFeaturesOK  = 8
	StatusNeedsReset  = 0x40
	StatusFailed      = 0x80
)

// Vendor-specific PCI capability (§4.1.4): where a structure lies. Offsets from the capability's own, bytes.
const (
	CapLen        = 2  // 1 byte: length of the capability
	CapType       = 3  // 1 byte: CapCommon …
	CapBAR        = 4  // 1 byte: 0 … 5; others are reserved, and the capability is to be ignored
	CapID         = 5  // 1 byte
	CapOffset     = 8  // 4 bytes: in the BAR
	CapLength     = 12 // 4 bytes
	CapSize       = 16
	CapMultiplier = 16 // 4 bytes, CapNotify only: notify_off_multiplier, 0 or an even power of two
	CapNotifySize = 20
	CapPCIData    = 16 // 4 bytes, CapPCIAccess only: the window
)

// Structures that a capability may point to.
const (
	CapCommon    = 1
	CapNotify    = 2
	CapISR       = 3
	CapDevice    = 4
	CapPCIAccess = 5
	CapShared    = 8
	CapVendor    = 9
)

// Common configuration structure (§4.1.4.3). A field is accessed with its own width, those of 8 bytes as two of 4.
const (
	CommonDeviceFeatureSelect = 0x00 // 4
	CommonDeviceFeature       = 0x04 // 4, read-only
	CommonDriverFeatureSelect = 0x08 // 4
	CommonDriverFeature       = 0x0c // 4
	CommonConfigVector        = 0x10 // 2
	CommonNumQueues           = 0x12 // 2, read-only
	CommonStatus              = 0x14 // 1
	CommonGeneration          = 0x15 // 1, read-only
	CommonQueueSelect         = 0x16 // 2
	CommonQueueSize           = 0x18 // 2: the most at first; the driver may lower it
	CommonQueueVector         = 0x1a // 2
	CommonQueueEnable         = 0x1c // 2: 1; never written 0
	CommonQueueNotifyOff      = 0x1e // 2, read-only, of each queue
	CommonQueueDesc           = 0x20 // 8: descriptor table, or the packed ring
	CommonQueueDriver         = 0x28 // 8: available ring, or driver event suppression
	CommonQueueDevice         = 0x30 // 8: used ring, or device event suppression
	CommonQueueNotifyData     = 0x38 // 2, read-only, FeatureNotifConfigData
	CommonQueueReset          = 0x3a // 2, FeatureRingReset
	CommonSize                = 0x38 // what every device has
	CommonSizeReset           = 0x3c // with the two fields of version 1.2
)

// NoVector in a vector field means no interrupt (§4.1.5.1.2); read back it says that the device has no room for one.
const NoVector = 0xffff

// ISR status (§4.1.4.5), cleared by reading.
const (
	ISRQueue  = 1
	ISRConfig = 2
)

// Legacy interface (§4.1.4.10), in BAR 0.
const (
	LegacyDeviceFeatures = 0x00 // 4, read-only
	LegacyDriverFeatures = 0x04 // 4
	LegacyQueuePFN       = 0x08 // 4: physical address of the ring / 4096; 0 takes it away
	LegacyQueueSize      = 0x0c // 2, read-only: the size is the device's
	LegacyQueueSelect    = 0x0e // 2
	LegacyQueueNotify    = 0x10 // 2
	LegacyStatus         = 0x12 // 1
	LegacyISR            = 0x13 // 1
	LegacyConfigVector   = 0x14 // 2, while MSI-X is enabled only
	LegacyQueueVector    = 0x16 // 2, while MSI-X is enabled only
	LegacyConfig         = 0x14 // the device configuration while MSI-X is off
	LegacyConfigMSIX     = 0x18 // … and while it is enabled

	LegacyPageShift = 12   // of LegacyQueuePFN
	LegacyAlign     = 4096 // of the used ring within the ring's memory (§2.7.2)
)
