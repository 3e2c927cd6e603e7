package nictest_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"bare.wire/nic"
)

// TestToeplitzVectors are the published ones: Microsoft, "Verifying the RSS Hash Calculation". RSS in this suite is checked
// against nic.Toeplitz, so that has to be right.
func TestToeplitzVectors(t *testing.T) {
	for _, v := range []struct {
		dst, src   string
		dport, spt uint16
		ip, tcp    uint32
	}{
		{"161.142.100.80", "66.9.149.187", 1766, 2794, 0x323e8fc2, 0x51ccc178},
		{"65.69.140.83", "199.92.111.2", 4739, 14230, 0xd718262a, 0xc626b0ea},
		{"12.22.207.184", "24.19.198.95", 38024, 12898, 0xd2d0a5de, 0x5c2b394a},
		{"209.142.163.6", "38.27.205.30", 2217, 48228, 0x82989176, 0xafc7327f},
		{"202.188.127.2", "153.39.163.191", 1303, 44251, 0x5d1809c5, 0x10e828a2},
		{"3ffe:2501:200:3::1", "3ffe:2501:200:1fff::7", 1766, 2794, 0x2cc18cd5, 0x40207d3d},
		{"ff02::1", "3ffe:501:8::260:97ff:fe40:efab", 4739, 14230, 0x0f0c461c, 0xdde51bbf},
		{"fe80::200:f8ff:fe21:67cf", "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 38024, 44251, 0x4b61e985, 0x02d1feef},
	} {
		in := append(netip.MustParseAddr(v.src).AsSlice(), netip.MustParseAddr(v.dst).AsSlice()...)
		if h := nic.Toeplitz(nic.DefaultRSSKey(), in); h != v.ip {
			t.Errorf("%s to %s: %#x, want %#x", v.src, v.dst, h, v.ip)
		}
		in = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(in, v.spt), v.dport)
		if h := nic.Toeplitz(nic.DefaultRSSKey(), in); h != v.tcp {
			t.Errorf("%s to %s with ports: %#x, want %#x", v.src, v.dst, h, v.tcp)
		}
	}
}
