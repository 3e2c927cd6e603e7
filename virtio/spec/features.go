package spec

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Features is a set of feature bits (§2.2, §5.1.3, §6). Bits 0 … 31 are all that the legacy interface can tell.
type Features uint64

// Feature bits of network devices (§5.1.3) and of all devices (§6).
const (
	FeatureCSum              Features = 1 << 0  // the device completes the checksum of frames that it is given to send
	FeatureGuestCSum         Features = 1 << 1  // the driver takes frames whose checksum is not complete
	FeatureCtrlGuestOffloads Features = 1 << 2  // the driver can change its receive offloads while it runs
	FeatureMTU               Features = 1 << 3  // the device says the largest MTU
	FeatureMAC               Features = 1 << 5  // the device has a MAC address
	FeatureGSO               Features = 1 << 6  // legacy: TSO and checksum, all kinds
	FeatureGuestTSO4         Features = 1 << 7  // the driver takes TCP segments that are longer than a frame, IPv4
	FeatureGuestTSO6         Features = 1 << 8  // … IPv6
	FeatureGuestECN          Features = 1 << 9  // … with ECN
	FeatureGuestUFO          Features = 1 << 10 // … UDP to be fragmented
	FeatureHostTSO4          Features = 1 << 11 // the device cuts TCP segments, IPv4
	FeatureHostTSO6          Features = 1 << 12 // … IPv6
	FeatureHostECN           Features = 1 << 13 // … with ECN
	FeatureHostUFO           Features = 1 << 14 // … fragments UDP
	FeatureMrgRxBuf          Features = 1 << 15 // a received frame may span several buffers
	FeatureStatus            Features = 1 << 16 // the device says whether the link is up
	FeatureCtrlVQ            Features = 1 << 17 // there is a control queue
	FeatureCtrlRx            Features = 1 << 18 // receive modes by it
	FeatureCtrlVLAN          Features = 1 << 19 // the VLAN filter by it
	FeatureCtrlRxExtra       Features = 1 << 20 // more receive modes
	FeatureGuestAnnounce     Features = 1 << 21 // the device may ask for gratuitous packets
	FeatureMQ                Features = 1 << 22 // several queue pairs
	FeatureCtrlMACAddr       Features = 1 << 23 // the MAC address by the control queue
	FeatureNotifyOnEmpty     Features = 1 << 24 // legacy: an interrupt when the available ring runs empty
	FeatureAnyLayout         Features = 1 << 27 // legacy: header and data may share a descriptor
	FeatureIndirectDesc      Features = 1 << 28 // descriptor tables of their own (§2.7.5.3, §2.8.7)
	FeatureEventIdx          Features = 1 << 29 // notifications by ring position (§2.7.7, §2.7.10, §2.8.10)
	FeatureVersion1          Features = 1 << 32 // not legacy
	FeatureAccessPlatform    Features = 1 << 33 // the device's addresses are those of the platform's IOMMU
	FeatureRingPacked        Features = 1 << 34 // packed rings (§2.8)
	FeatureInOrder           Features = 1 << 35 // buffers are used in the order in which they were made available
	FeatureOrderPlatform     Features = 1 << 36 // memory is ordered as the platform orders device access, not as processors do
	FeatureSRIOV             Features = 1 << 37 // single root I/O virtualization
	FeatureNotificationData  Features = 1 << 38 // notifications carry the ring's position (§2.9)
	FeatureNotifConfigData   Features = 1 << 39 // … and what the device wants there in place of the queue's number
	FeatureRingReset         Features = 1 << 40 // queues can be reset by themselves (§2.6.1)
	FeatureHostUSO           Features = 1 << 56 // the device cuts UDP into datagrams
	FeatureHashReport        Features = 1 << 57 // received frames come with their hash
	FeatureGuestHdrLen       Features = 1 << 59 // hdr_len of sent frames is exact
	FeatureRSS               Features = 1 << 60 // receive-side scaling
	FeatureRSCExt            Features = 1 << 61 // the device says how many segments it joined
	FeatureStandby           Features = 1 << 62 // a stand-in for another device
	FeatureSpeedDuplex       Features = 1 << 63 // the device says speed and duplex
)

// feature is a row of the table of features.
type feature struct {
	bit  Features
	name string
	// needs is a feature that this one makes no sense without (§5.1.3.1); of several any one will do.
	needs Features
}

var features = []feature{
	{FeatureCSum, "csum", 0},
	{FeatureGuestCSum, "guest_csum", 0},
	{FeatureCtrlGuestOffloads, "ctrl_guest_offloads", FeatureCtrlVQ},
	{FeatureMTU, "mtu", 0},
	{FeatureMAC, "mac", 0},
	{FeatureGSO, "gso", 0},
	{FeatureGuestTSO4, "guest_tso4", FeatureGuestCSum},
	{FeatureGuestTSO6, "guest_tso6", FeatureGuestCSum},
	{FeatureGuestECN, "guest_ecn", FeatureGuestTSO4 | FeatureGuestTSO6},
	{FeatureGuestUFO, "guest_ufo", FeatureGuestCSum},
	{FeatureHostTSO4, "host_tso4", FeatureCSum},
	{FeatureHostTSO6, "host_tso6", FeatureCSum},
	{FeatureHostECN, "host_ecn", FeatureHostTSO4 | FeatureHostTSO6},
	{FeatureHostUFO, "host_ufo", FeatureCSum},
	{FeatureMrgRxBuf, "mrg_rxbuf", 0},
	{FeatureStatus, "status", 0},
	{FeatureCtrlVQ, "ctrl_vq", 0},
	{FeatureCtrlRx, "ctrl_rx", FeatureCtrlVQ},
	{FeatureCtrlVLAN, "ctrl_vlan", FeatureCtrlVQ},
	{FeatureCtrlRxExtra, "ctrl_rx_extra", FeatureCtrlVQ},
	{FeatureGuestAnnounce, "guest_announce", FeatureCtrlVQ},
	{FeatureMQ, "mq", FeatureCtrlVQ},
	{FeatureCtrlMACAddr, "ctrl_mac_addr", FeatureCtrlVQ},
	{FeatureNotifyOnEmpty, "notify_on_empty", 0},
	{FeatureAnyLayout, "any_layout", 0},
	{FeatureIndirectDesc, "indirect_desc", 0},
	{FeatureEventIdx, "event_idx", 0},
	{FeatureVersion1, "version_1", 0},
	{FeatureAccessPlatform, "access_platform", 0},
	{FeatureRingPacked, "ring_packed", 0},
	{FeatureInOrder, "in_order", 0},
	{FeatureOrderPlatform, "order_platform", 0},
	{FeatureSRIOV, "sr_iov", 0},
	{FeatureNotificationData, "notification_data", 0},
	{FeatureNotifConfigData, "notif_config_data", 0},
	{FeatureRingReset, "ring_reset", 0},
	{FeatureHostUSO, "host_uso", FeatureCSum},
	{FeatureHashReport, "hash_report", FeatureCtrlVQ},
	{FeatureGuestHdrLen, "guest_hdrlen", 0},
	{FeatureRSS, "rss", FeatureCtrlVQ},
	{FeatureRSCExt, "rsc_ext", FeatureHostTSO4 | FeatureHostTSO6},
	{FeatureStandby, "standby", 0},
	{FeatureSpeedDuplex, "speed_duplex", 0},
}

// Has says whether all of g are in f.
func (f Features) Has(g Features) bool { return f&g == g }

// String lists the names of the bits that are set, in their order, "bit_41" for one without a name; "none" for none.
func (f Features) String() string {
	if f == 0 {
		return "none"
	}
	var names []string
	for left := f; left != 0; {
		bit := Features(1) << bits.TrailingZeros64(uint64(left))
		left &^= bit
		name := fmt.Sprintf("bit_%d", bits.TrailingZeros64(uint64(bit)))
		if i := slices.IndexFunc(features, func(r feature) bool { return r.bit == bit }); i >= 0 {
			name = features[i].name
		}
		names = append(names, name)
	}
	return strings.Join(names, ",")
}

// FeatureNames are the names that [Restriction] and [Features.String] use, in the order of the bits.
func FeatureNames() []string {
	var names []string
	for _, r := range features {
		names = append(names, r.name)
	}
	return names
}

// FeatureByName returns the feature called name: "mrg_rxbuf".
func FeatureByName(name string) (Features, error) {
	for _, r := range features {
		if r.name == name {
			return r.bit, nil
		}
	}
	return 0, fmt.Errorf("virtio feature %q: unknown; known are %s", name, strings.Join(FeatureNames(), " "))
}

// Consistent returns f without the features that need another which is not there (§5.1.3.1), and those that were taken out.
func (f Features) Consistent() (kept, dropped Features) {
	kept = f
	for {
		before := kept
		for _, r := range features {
			if r.needs != 0 && kept&r.bit != 0 && kept&r.needs == 0 {
				kept &^= r.bit
			}
		}
		if kept == before {
			return kept, f &^ kept
		}
	}
}

// Restriction says which features a driver may take of those that a device offers. The zero value allows all.
type Restriction struct {
	Only Features // 0: no such limit
	Not  Features
}

// ParseRestriction reads a list like "-event_idx,-mrg_rxbuf", which takes features out, or "mac,csum", which leaves no others.
// What a driver cannot do without (version_1 on a modern device, access_platform and order_platform where they are offered) is
// not restricted by a list of the second kind, only when it is taken out by name.
func ParseRestriction(s string) (Restriction, error) {
	var r Restriction
	if s == "" {
		return r, nil
	}
	for _, word := range strings.Split(s, ",") {
		name, not := strings.CutPrefix(strings.TrimSpace(word), "-")
		bit, err := FeatureByName(name)
		if err != nil {
			return Restriction{}, err
		}
		if not {
			r.Not |= bit
		} else {
			r.Only |= bit
		}
	}
	return r, nil
}

// Apply returns what of f is allowed.
func (r Restriction) Apply(f Features) Features {
	if r.Only != 0 {
		f &= r.Only | FeatureVersion1 | FeatureAccessPlatform | FeatureOrderPlatform
	}
	return f &^ r.Not
}
