package reg

import "slices"

// Const is a number that is no register and no field: an EEPROM word, an offset
// in PCI configuration space, a limit. It is generated as an untyped constant.
type Const struct {
	Group  string
	Name   string
	Value  uint64
	Doc    string
	Source string
}

// Consts returns all of them, in the order of docs/registers.md.
func Consts() []Const { return slices.Clone(consts) }

const (
	grpEEPROM = "EEPROM words"
	grpPCI    = "PCI configuration space"
	grpSFP    = "SFP+ module"
	grpLimits = "Limits and keys"
	grpMasks  = "Combined masks"
)

var consts = []Const{
	{grpEEPROM, "EEPROM_SUM", 0xBABA, "What words 00…3E, the sections that words 03…0E point to, and the checksum word add up to.", srcHdr},
	{grpEEPROM, "EE_SECTION_FIRST", 0x03, "First word that points to a section covered by the checksum; FFFF and 0 point nowhere. A section's first word is its length.", srcDPDK},
	{grpEEPROM, "EE_SECTION_LAST", 0x0E, "Last word that points to such a section.", srcDPDK},
	{grpEEPROM, "EE_FW_PTR", 0x0F, "Pointer to the firmware block, not covered by the checksum.", srcDPDK + "; " + srcProbe},
	{grpEEPROM, "EE_FW_LESM_PTR", 0x02, "In the firmware block: pointer to the link establishment state machine; FFFF: none.", srcDPDK + "; " + srcProbe},
	{grpEEPROM, "EE_FW_PATCH_PTR", 0x04, "In the firmware block: pointer to the patch block.", srcDPDK + "; " + srcProbe},
	{grpEEPROM, "EE_FW_PATCH_VERSION", 0x07, "In the patch block: version; Linux takes a card with 5 or less as pre-production.", srcDPDK + "; " + srcProbe},
	{grpEEPROM, "EE_SERIAL_MAC_PTR", 0x11, "Pointer to the serial number.", srcDPDK},
	{grpEEPROM, "EE_PBA0", 0x15, "Part number: PBA_PTR_GUARD here means that the next word points to a string.", srcDPDK},
	{grpEEPROM, "EE_PBA1", 0x16, "Part number, second word or pointer.", srcDPDK},
	{grpEEPROM, "EE_PBA_PTR_GUARD", 0xFAFA, "Value of EE_PBA0 when EE_PBA1 is a pointer.", srcDPDK},
	{grpEEPROM, "EE_THERMAL_PTR", 0x26, "Pointer to the thermal sensor configuration; FFFF: none.", srcDPDK},
	{grpEEPROM, "EE_ALT_SAN_MAC_PTR", 0x27, "Pointer to alternative SAN addresses; FFFF: none.", srcDPDK},
	{grpEEPROM, "EE_SAN_MAC_PTR", 0x28, "Pointer to the SAN addresses, port 0 at +0, port 1 at +3; FFFF: none.", srcDPDK},
	{grpEEPROM, "EE_PHY_INIT_PTR", 0x2B, "Pointer to the SFP+ setup lists: pairs of module kind and data pointer, ended by FFFF.", srcDPDK + "; " + srcProbe},
	{grpEEPROM, "EE_DEVICE_CAPS", 0x2C, "Capabilities.", srcDPDK},
	{grpEEPROM, "EE_CAPS_ANY_SFP", 1 << 0, "In EE_DEVICE_CAPS: modules of any maker are allowed.", srcDPDK},
	{grpEEPROM, "EE_CAPS_FCOE_OFF", 1 << 1, "In EE_DEVICE_CAPS: no FCoE offload.", srcDPDK + "; " + srcProbe},
	{grpEEPROM, "EE_CAPS_WOL", 3 << 2, "In EE_DEVICE_CAPS: wake on LAN.", srcDPDK},
	{grpEEPROM, "EE_CAPS_NO_CROSSTALK", 1 << 7, "In EE_DEVICE_CAPS: the crosstalk workaround is not needed.", srcDPDK},
	{grpEEPROM, "EE_CHECKSUM", 0x3F, "Checksum.", srcHdr},

	{grpPCI, "PCI_VENDOR_INTEL", 0x8086, "Vendor id.", srcHdr},
	{grpPCI, "PCI_MSIX_CONTROL", 0x72, "MSI-X message control.", srcDPDK + "; " + srcProbe},
	{grpPCI, "PCI_DEVICE_CONTROL", 0xA8, "PCIe device control; bit 15 resets the function.", srcProbe},
	{grpPCI, "PCI_DEVICE_CONTROL_FLR", 1 << 15, "In PCI_DEVICE_CONTROL: function-level reset.", srcProbe},
	{grpPCI, "PCI_DEVICE_STATUS", 0xAA, "PCIe device status.", srcHdr},
	{grpPCI, "PCI_DEVICE_STATUS_PENDING", 1 << 5, "In PCI_DEVICE_STATUS: transactions are pending.", srcHdr},
	{grpPCI, "PCI_LINK_STATUS", 0xB2, "PCIe link status: width in 9:4, speed in 3:0.", srcHdr},
	{grpPCI, "PCI_LINK_SPEED", 0x000F, "In PCI_LINK_STATUS: 1 is 2.5 GT/s, 2 is 5 GT/s.", srcDPDK},
	{grpPCI, "PCI_LINK_WIDTH", 0x03F0, "In PCI_LINK_STATUS: lanes.", srcDPDK},
	{grpPCI, "PCI_DEVICE_CONTROL2", 0xC8, "PCIe device control 2; completion timeout in 3:0 (specification update, clarification 2).", srcDPDK + "; " + srcUpdate},

	{grpSFP, "SFP_I2C_ADDR", 0xA0, "I2C address of the identification page.", srcProbe},
	{grpSFP, "SFP_I2C_DIAG_ADDR", 0xA2, "I2C address of the diagnostics page (SFF-8472).", srcDPDK},
	{grpSFP, "SFP_ID", 0x00, "Byte: kind of module; SFP_ID_SFP.", srcProbe},
	{grpSFP, "SFP_ID_SFP", 0x03, "SFP or SFP+.", srcProbe},
	{grpSFP, "SFP_10G", 0x03, "Byte: 10 Gb/s codes; 10 is SR, 20 is LR.", srcProbe},
	{grpSFP, "SFP_10G_SR", 0x10, "10GBASE-SR.", srcProbe},
	{grpSFP, "SFP_10G_LR", 0x20, "10GBASE-LR.", srcDPDK},
	{grpSFP, "SFP_1G", 0x06, "Byte: 1 Gb/s codes; 1 is SX, 2 is LX, 8 is T.", srcProbe},
	{grpSFP, "SFP_CABLE", 0x08, "Byte: cable; 4 is passive, 8 is active.", srcDPDK},
	{grpSFP, "SFP_CABLE_PASSIVE", 0x04, "Passive cable.", srcDPDK},
	{grpSFP, "SFP_CABLE_ACTIVE", 0x08, "Active cable.", srcDPDK},
	{grpSFP, "SFP_OUI", 0x25, "Byte: first of three of the maker's OUI.", srcProbe},
	{grpSFP, "SFP_OUI_INTEL", 0x001B21, "Intel's OUI.", srcProbe},
	{grpSFP, "SFP_CABLE_SPEC", 0x3C, "Byte: specification of an active cable.", srcDPDK},
	{grpSFP, "SFP_SFF8472_SWAP", 0x5C, "Byte: diagnostics type.", srcDPDK},
	{grpSFP, "SFP_SFF8472_COMP", 0x5E, "Byte: SFF-8472 revision; 0: none.", srcDPDK},

	{grpLimits, "RingAlign", 128, "Alignment of a ring's base, in bytes; ring lengths are multiples of it too.", srcDS},
	{grpLimits, "RingMaxDescs", 8192, "Descriptors a ring can have on paper; drivers stay at or below 4096.", srcDS},
	{grpLimits, "RSSQueues", 16, "Queues that RSS reaches: 4 bits of an entry count.", srcDS},
	{grpLimits, "TxMaxSegs", 40, "Segments of one sent packet, less WTHRESH.", srcDPDK},
	{grpLimits, "TxMinLen", 14, "Shortest packet that may be sent, in bytes.", srcDPDK},
	{grpLimits, "MaxFrameFCS", 9728, "Longest frame that drivers use, in bytes with FCS (on paper 15.5 KiB).", srcDPDK},
	{grpLimits, "MaxFrameStdFCS", 1518, "Longest frame without HLREG0.JUMBOEN, in bytes with FCS; 4 more with a VLAN tag.", srcDS},
	{grpLimits, "RxPacketBuffer", 512 << 10, "Receive packet buffer in bytes, all classes.", srcDS},
	{grpLimits, "TxPacketBuffer", 160 << 10, "Transmit packet buffer in bytes, all classes.", srcDS},
	{grpLimits, "RSSKeySize", 40, "Bytes of the RSS key.", srcHdr},
	{grpLimits, "RETASize", 128, "Entries of the RSS redirection table.", srcHdr},
	{grpLimits, "FDIR_HASH_KEY_BUCKET", 0x3DAD14E2, "Key for FDIRHKEY.", srcDPDK},
	{grpLimits, "FDIR_HASH_KEY_SIGNATURE", 0x174D3614, "Key for FDIRSKEY.", srcDPDK},
	{grpLimits, "EITRUnitNanos", 2048, "Unit of EITR.INTERVAL at 10 Gb/s, in nanoseconds.", srcDPDK},

	{grpMasks, "CTRL_RST_MASK", 1<<3 | 1<<26, "Both reset bits of CTRL.", srcHdr},
	{grpMasks, "IVAR_ALLOC_VAL", 0x80, "Valid bit within one byte of IVAR.", srcHdr},
}
