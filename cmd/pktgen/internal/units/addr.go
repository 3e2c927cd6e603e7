package units

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Size reads a frame size in bytes with FCS.
func Size(s string) (int, error) {
	const help = "give one size in bytes with FCS, 64 to 9728, as in 64 or 1518"
	switch {
	case strings.HasPrefix(s, "imix"), strings.HasPrefix(s, "genome:"), strings.HasPrefix(s, "rand:"),
		strings.ContainsAny(s, ",-"):
		if !strings.HasPrefix(s, "-") {
			return 0, fmt.Errorf("size %q: mixes of sizes are not supported yet; %s", s, help)
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("size %q: is not a whole number; %s", s, help)
	}
	if n == 60 {
		return 0, fmt.Errorf("size 60: sizes count the 4 bytes of FCS; did you mean 64? %s", help)
	}
	if n < MinSize || n > MaxSize {
		return 0, fmt.Errorf("size %d: out of range; %s", n, help)
	}
	return n, nil
}

// MaxDuration keeps every schedule inside 63 bits of nanoseconds with room for the drain: about 100 years.
const MaxDuration = 100 * 365 * 24 * time.Hour

// Duration reads a duration with its unit: "10s", "1m30s", "500ms". A bare "0" is zero.
func Duration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		if _, bad := strconv.ParseFloat(s, 64); bad == nil {
			return 0, fmt.Errorf("duration %q: the unit is missing; did you mean %ss?", s, s)
		}
		return 0, fmt.Errorf("duration %q: is not understood; write 10s, 1m30s or 500ms", s)
	}
	if d < 0 {
		return 0, fmt.Errorf("duration %q: is negative", s)
	}
	if d > MaxDuration {
		return 0, fmt.Errorf("duration %q: is longer than 100 years; write 0 to run until interrupted", s)
	}
	return d, nil
}

// IP reads one IPv4 or IPv6 address.
func IP(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err == nil && a.Zone() != "":
		return netip.Addr{}, fmt.Errorf("address %q: a zone has no meaning on the wire; leave out %%%s", s, a.Zone())
	case err == nil:
		return a.Unmap(), nil
	case strings.ContainsAny(s, "/,") || strings.HasPrefix(s, "rand:") || strings.Count(s, "-") == 1:
		return netip.Addr{}, fmt.Errorf("address %q: ranges are not supported yet; give one address, and --flows to vary the source", s)
	}
	return netip.Addr{}, fmt.Errorf("address %q: is no IP address; write 198.18.0.1 or 2001:2::1", s)
}

// Port reads a UDP or TCP port, 0 to 65535.
func Port(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("port %q: is no port; write a number from 0 to 65535", s)
	}
	return uint16(n), nil
}

// MAC reads a 48-bit Ethernet address.
func MAC(s string) (mac [6]byte, err error) {
	hw, err := net.ParseMAC(s)
	if err != nil || len(hw) != 6 {
		return mac, fmt.Errorf("MAC address %q: is not understood; write six bytes such as 02:00:00:00:00:01", s)
	}
	return [6]byte(hw), nil
}

// A VLAN is one 802.1Q tag.
type VLAN struct {
	ID  uint16 // 0 to 4094; 0 is a priority tag
	PCP uint8  // priority, 0 to 7
}

// ParseVLAN reads "100" or "100:5" (VLAN 100, priority 5).
func ParseVLAN(s string) (VLAN, error) {
	const help = "write an id from 0 to 4094 and, if wanted, a priority from 0 to 7, as in 100 or 100:5"
	id, pcp, hasPCP := strings.Cut(s, ":")
	n, err := strconv.ParseUint(id, 10, 16)
	if err != nil || n > 4094 {
		return VLAN{}, fmt.Errorf("VLAN %q: %s", s, help)
	}
	v := VLAN{ID: uint16(n)}
	if hasPCP {
		p, err := strconv.ParseUint(pcp, 10, 8)
		if err != nil || p > 7 {
			return VLAN{}, fmt.Errorf("VLAN %q: the priority %q is out of range; %s", s, pcp, help)
		}
		v.PCP = uint8(p)
	}
	return v, nil
}

// String writes the tag as ParseVLAN reads it.
func (v VLAN) String() string {
	if v.PCP == 0 {
		return strconv.Itoa(int(v.ID))
	}
	return fmt.Sprintf("%d:%d", v.ID, v.PCP)
}
