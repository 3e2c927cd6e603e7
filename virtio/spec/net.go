package spec

// Configuration of a network device (§5.1.4), offsets in bytes. A field is there only with the feature named.
const (
	NetMAC              = 0  // 6 bytes
	NetStatus           = 6  // 2, FeatureStatus
	NetMaxPairs         = 8  // 2, FeatureMQ or FeatureRSS
	NetMTU              = 10 // 2, FeatureMTU
	NetSpeed            = 12 // 4, FeatureSpeedDuplex: Mb/s, SpeedUnknown
	NetDuplex           = 16 // 1, FeatureSpeedDuplex: 0 half, 1 full, 0xff unknown
	NetRSSMaxKey        = 17 // 1, FeatureRSS or FeatureHashReport
	NetRSSMaxTable      = 18 // 2, FeatureRSS
	NetHashTypes        = 20 // 4, FeatureRSS or FeatureHashReport
	NetConfigSize       = 24
	NetStatusLinkUp     = 1
	NetStatusAnnounce   = 2
	SpeedUnknown        = 0xffffffff
	MinPairs, MaxPairs  = 1, 0x8000
	RSSMinKey, RSSTable = 40, 128 // what a device with FeatureRSS has at least (§5.1.4.1)
)

// ReceiveQueue is the number of a pair's receive virtqueue (§5.1.2).
func ReceiveQueue(pair int) int { return 2 * pair }

// TransmitQueue is the number of a pair's transmit queue.
func TransmitQueue(pair int) int { return 2*pair + 1 }

// ControlQueue is the number of the control queue of a device that has up to maxPairs pairs, once these features are agreed on:
// it comes after all pairs there can be, of which there is one unless more can be chosen.
func ControlQueue(agreed Features, maxPairs int) int {
	if agreed&(FeatureMQ|FeatureRSS) == 0 {
		return 2
	}
	return 2 * maxPairs
}

// The header in front of each frame (§5.1.6), offsets in bytes.
const (
	HdrFlags      = 0  // 1
	HdrGSOType    = 1  // 1
	HdrLen        = 2  // 2: hdr_len, bytes of headers up to the payload
	HdrGSOSize    = 4  // 2: payload of each segment, bytes
	HdrCSumStart  = 6  // 2
	HdrCSumOffset = 8  // 2, from HdrCSumStart
	HdrNumBuffers = 10 // 2
	HdrHashValue  = 12 // 4, FeatureHashReport
	HdrHashReport = 16 // 2, FeatureHashReport

	HdrSizeLegacy = 10 // neither FeatureVersion1 nor FeatureMrgRxBuf
	HdrSize       = 12
	HdrSizeHash   = 20 // FeatureHashReport
)

// HdrFlags.
const (
	HdrNeedsCSum = 1 // to be sent: complete the checksum; received: it is not complete
	HdrDataValid = 2 // received: the checksum has been looked at and is right
	HdrRSCInfo   = 4 // received: segments have been joined, csum_start and csum_offset say how many
)

// HdrGSOType.
const (
	GSONone  = 0
	GSOTCPv4 = 1
	GSOUDP   = 3 // fragments
	GSOTCPv6 = 4
	GSOUDPL4 = 5 // datagrams
	GSOECN   = 0x80
)

// HeaderSize is the length of the header with these features.
func HeaderSize(agreed Features) int {
	switch {
	case agreed&FeatureHashReport != 0:
		return HdrSizeHash
	case agreed&(FeatureVersion1|FeatureMrgRxBuf) != 0:
		return HdrSize
	}
	return HdrSizeLegacy
}

// Without FeatureMrgRxBuf each receive buffer has to hold header and frame: 1526 bytes, or with FeatureGuestTSO4, 6 or UFO
// 65562 (§5.1.6.3.1).
const (
	MinRxBuffer    = HdrSize + 1514
	MinRxBufferGSO = 65562
)

// Control commands (§5.1.6.5): a class, a command, data, and one byte that the device answers with.
const (
	CtrlOK  = 0
	CtrlErr = 1

	CtrlRx         = 0 // FeatureCtrlRx, FeatureCtrlRxExtra
	CtrlRxPromisc  = 0 // data of all of these: 1 byte, 0 or 1
	CtrlRxAllMulti = 1
	CtrlRxAllUni   = 2
	CtrlRxNoMulti  = 3
	CtrlRxNoUni    = 4
	CtrlRxNoBcast  = 5

	CtrlMAC         = 1 // FeatureCtrlRx; CtrlMACAddrSet needs FeatureCtrlMACAddr
	CtrlMACTableSet = 0 // count u32 and so many addresses of 6 bytes, unicast; then the same for multicast
	CtrlMACAddrSet  = 1 // 6 bytes

	CtrlVLAN    = 2 // FeatureCtrlVLAN
	CtrlVLANAdd = 0 // u16
	CtrlVLANDel = 1 // u16

	CtrlAnnounce    = 3 // FeatureGuestAnnounce
	CtrlAnnounceAck = 0 // no data

	CtrlMQ           = 4 // FeatureMQ, FeatureRSS, FeatureHashReport
	CtrlMQPairsSet   = 0 // u16
	CtrlMQRSSConfig  = 1
	CtrlMQHashConfig = 2

	CtrlGuestOffloads    = 5 // FeatureCtrlGuestOffloads
	CtrlGuestOffloadsSet = 0 // u64: FeatureGuestCSum, FeatureGuestTSO4 …
)

// Hash types (§5.1.6.4.3.1).
const (
	HashIPv4    = 1 << 0
	HashTCPv4   = 1 << 1
	HashUDPv4   = 1 << 2
	HashIPv6    = 1 << 3
	HashTCPv6   = 1 << 4
	HashUDPv6   = 1 << 5
	HashIPv6Ex  = 1 << 6
	HashTCPv6Ex = 1 << 7
	HashUDPv6Ex = 1 << 8
)

// HdrHashReport (§5.1.6.4.3.4).
const (
	ReportNone    = 0
	ReportIPv4    = 1
	ReportTCPv4   = 2
	ReportUDPv4   = 3
	ReportIPv6    = 4
	ReportTCPv6   = 5
	ReportUDPv6   = 6
	ReportIPv6Ex  = 7
	ReportTCPv6Ex = 8
	ReportUDPv6Ex = 9
)
