package pci

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

// attribute writes a routing attribute: length, type, value, padding.
func attribute(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func index(i uint32) []byte { return binary.NativeEndian.AppendUint32(nil, i) }

// route writes an RTM_NEWROUTE message.
func route(bits, table byte, attributes ...[]byte) []byte {
	body := []byte{syscall.AF_INET, bits, 0, 0, table, 0, 0, 0, 0, 0, 0, 0}
	for _, a := range attributes {
		body = append(body, a...)
	}
	b := binary.NativeEndian.AppendUint32(nil, uint32(syscall.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, syscall.RTM_NEWROUTE)
	return append(append(b, make([]byte, 10)...), body...)
}

// nextHop is a struct rtnexthop with a gateway behind it.
func nextHop(through uint32) []byte {
	b := append([]byte{16, 0, 0, 0}, index(through)...)
	return append(b, attribute(syscall.RTA_GATEWAY, 10, 0, 0, 1)...)
}

func TestRoutesOfAllTablesAndNextHops(t *testing.T) {
	var rib []byte
	for _, m := range [][]byte{
		route(0, syscall.RT_TABLE_MAIN, attribute(syscall.RTA_MULTIPATH, append(nextHop(3), nextHop(4)...)...)),
		route(24, 100, attribute(syscall.RTA_DST, 10, 1, 2, 0), attribute(syscall.RTA_OIF, index(7)...)),
		route(32, syscall.RT_TABLE_LOCAL, attribute(syscall.RTA_DST, 10, 1, 2, 3), attribute(syscall.RTA_OIF, index(7)...)),
	} {
		rib = append(rib, m...)
	}
	all := netip.MustParsePrefix("0.0.0.0/0")
	want := map[int][]netip.Prefix{3: {all}, 4: {all}, 7: {netip.MustParsePrefix("10.1.2.0/24")}}
	if got := parseRoutes(rib); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for n := range rib {
		parseRoutes(rib[:n]) // must end, whatever it says
	}
}

func TestNextHopsThatLieAboutTheirLength(t *testing.T) {
	for _, b := range [][]byte{nil, {0, 0, 0, 0, 1, 0, 0, 0}, {7, 0, 0, 0, 1, 0, 0, 0}, {9, 0, 0, 0, 1, 0, 0, 0}, {255, 255, 0, 0, 1, 0, 0, 0}} {
		if got := nextHops(b); got != nil {
			t.Errorf("% x: %v", b, got)
		}
	}
	if got := nextHops([]byte{9, 0, 0, 0, 1, 0, 0, 0, 0}); len(got) != 1 {
		t.Errorf("padding that is missing at the end: %v", got)
	}
}

func FuzzKernelTables(f *testing.F) {
	f.Add("eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0")
	f.Add("fd000000000000000000000000000000 40 0 00 0 00000100 00000001 00000000 00000001 eth0")
	f.Add("1: 020200C0:9BBE 507100CB:0050 01 0")
	f.Add("1: 000000FD000000000000000002000000:0016 000000FD000000000000000009000000:C350 01 0")
	f.Add("fe8000000000000000fc00fffe000001 04 40 20 80 eth0")
	f.Fuzz(func(t *testing.T, line string) {
		n := &network{addresses: map[string][]netip.Addr{}, routes: map[string][]netip.Prefix{}, captures: map[int]int{}, peers: map[netip.Addr][]string{}}
		for l := range strings.Lines(line) {
			fields := strings.Fields(l)
			if len(fields) == 0 {
				continue
			}
			for _, read := range []func([]string){n.route4, n.route6, n.address6, n.packet, n.tcp} {
				read(fields)
			}
		}
		for name := range n.routes {
			for _, reason := range n.uses(name) {
				if reason == "" {
					t.Fatal("an empty reason")
				}
			}
		}
		parseRoutes([]byte(line))
	})
}
