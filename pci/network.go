package pci

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// network is what the machine does with its cards, at one moment: addresses, routes, sockets, files that processes have open.
// A table that cannot be read is a reason of its own, for then nobody knows.
type network struct {
	addresses map[string][]netip.Addr   // by interface
	routes    map[string][]netip.Prefix // by interface
	captures  map[int]int               // packet sockets, by interface index
	peers     map[netip.Addr][]string   // far ends of open TCP connections, by local address
	open      []openFile
	unknown   []string // what could not be read
}

func (h *Host) readNetwork() *network {
	n := &network{
		addresses: map[string][]netip.Addr{}, routes: map[string][]netip.Prefix{}, captures: map[int]int{}, peers: map[netip.Addr][]string{},
	}
	n.open = h.openFiles()
	n.table(h, "route", n.route4)
	n.table(h, "ipv6_route", n.route6)
	n.table(h, "if_inet6", n.address6)
	n.table(h, "packet", n.packet)
	n.table(h, "tcp", n.tcp)
	n.table(h, "tcp6", n.tcp)
	if h.live() {
		n.kernelAddresses()
		n.kernelRoutes()
	} else {
		n.trie(h)
	}
	return n
}

// table reads a table of /proc/net line by line. A kernel without a protocol lacks its table; a line that is not understood
// (a header, a later kernel's) is passed over.
func (n *network) table(h *Host, name string, line func(fields []string)) {
	b, err := readFile(h.path("/proc/net", name), maxTable)
	if gone(err) {
		return
	}
	if err != nil {
		n.unknown = append(n.unknown, fmt.Sprintf("the kernel's table %s cannot be read (%v)", name, err))
		return
	}
	for l := range strings.Lines(string(b)) {
		if f := strings.Fields(l); len(f) > 0 {
			line(f)
		}
	}
}

// route4 is a line of /proc/net/route: interface, destination, gateway, flags, refcount, use, metric, mask.
func (n *network) route4(f []string) {
	if len(f) < 8 {
		return
	}
	dst, ok := addr4(f[1])
	mask, ok2 := addr4(f[7])
	if !ok || !ok2 {
		return
	}
	m := mask.As4()
	ones, _ := net.IPMask(m[:]).Size()
	n.addRoute(f[0], netip.PrefixFrom(dst, ones))
}

// route6 is a line of /proc/net/ipv6_route: destination, length, source, length, next hop, metric, refcount, use, flags,
// interface.
func (n *network) route6(f []string) {
	const local = 1 << 31 // RTF_LOCAL: the machine's own addresses, which are told as such
	if len(f) < 10 {
		return
	}
	dst, ok := addr6(f[0])
	length, err := strconv.ParseUint(f[1], 16, 8)
	flags, err2 := strconv.ParseUint(f[8], 16, 32)
	if !ok || err != nil || err2 != nil || length > 128 || flags&local != 0 {
		return
	}
	n.addRoute(f[9], netip.PrefixFrom(dst, int(length)))
}

// address6 is a line of /proc/net/if_inet6: address, index, prefix length, scope, flags, interface.
func (n *network) address6(f []string) {
	if len(f) < 6 {
		return
	}
	if a, ok := addr6(f[0]); ok {
		n.addAddress(f[5], a)
	}
}

// packet is a line of /proc/net/packet: socket, refcount, type, protocol, interface index. Index 0 listens on all.
func (n *network) packet(f []string) {
	if len(f) < 5 {
		return
	}
	if index, err := strconv.Atoi(f[4]); err == nil && index > 0 {
		n.captures[index]++
	}
}

// tcp is a line of /proc/net/tcp or tcp6: number, local address, remote address, state.
func (n *network) tcp(f []string) {
	const established = "01"
	if len(f) < 4 || f[3] != established {
		return
	}
	local, ok := endpoint(f[1])
	remote, ok2 := endpoint(f[2])
	if ok && ok2 && len(n.peers[local.Addr()]) < 1000 {
		n.peers[local.Addr()] = append(n.peers[local.Addr()], remote.String())
	}
}

// trie reads the IPv4 addresses of a tree that is not this machine: /proc/net/fib_trie knows which addresses are local but
// not whose, so each is given to the interfaces with a route to its network.
func (n *network) trie(h *Host) {
	var last netip.Addr
	n.table(h, "fib_trie", func(f []string) {
		switch {
		case len(f) == 2 && f[0] == "|--":
			last, _ = netip.ParseAddr(f[1])
		case len(f) == 3 && f[0] == "/32" && f[2] == "LOCAL" && last.IsValid():
			for name, routes := range n.routes {
				if slices.ContainsFunc(routes, func(p netip.Prefix) bool { return p.Bits() > 0 && p.Contains(last) }) {
					n.addAddress(name, last)
				}
			}
		}
	})
}

func (n *network) addAddress(name string, a netip.Addr) {
	a = a.Unmap().WithZone("")
	if !slices.Contains(n.addresses[name], a) {
		n.addresses[name] = append(n.addresses[name], a)
	}
}

// addRoute notes a route; those that the kernel makes by itself for every interface that is up say nothing about its use.
func (n *network) addRoute(name string, p netip.Prefix) {
	if !p.IsValid() || p.Addr().Is6() && (p.Addr().IsMulticast() || p.Addr().IsLinkLocalUnicast()) {
		return
	}
	if !slices.Contains(n.routes[name], p) {
		n.routes[name] = append(n.routes[name], p)
	}
}

// kernelAddresses asks the kernel for the addresses of this machine's interfaces: /proc has no list of IPv4's.
func (n *network) kernelAddresses() {
	list, err := net.Interfaces()
	if err != nil {
		n.unknown = append(n.unknown, fmt.Sprintf("the network interfaces cannot be listed (%v)", err))
		return
	}
	for _, i := range list {
		addrs, err := i.Addrs()
		if err != nil {
			n.unknown = append(n.unknown, fmt.Sprintf("the addresses of %s cannot be listed (%v)", i.Name, err))
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				n.addAddress(i.Name, p.Addr())
			}
		}
	}
}

// kernelRoutes asks the kernel for the routes of all tables and all their next hops: /proc/net/route shows the main table
// only, and of each route the first next hop.
func (n *network) kernelRoutes() {
	list, err := net.Interfaces()
	if err != nil {
		return // told by kernelAddresses
	}
	names := map[int]string{}
	for _, i := range list {
		names[i.Index] = i.Name
	}
	rib, err := syscall.NetlinkRIB(syscall.RTM_GETROUTE, syscall.AF_INET)
	if err != nil {
		n.unknown = append(n.unknown, fmt.Sprintf("the routes cannot be listed (%v)", err))
		return
	}
	for index, p := range parseRoutes(rib) {
		for _, prefix := range p {
			if name := names[index]; name != "" {
				n.addRoute(name, prefix)
			}
		}
	}
}

// parseRoutes reads an answer to RTM_GETROUTE (rtnetlink(7)): routes by the index of the interface that they lead through.
// The table of local addresses is left out.
func parseRoutes(rib []byte) map[int][]netip.Prefix {
	messages, err := syscall.ParseNetlinkMessage(rib)
	if err != nil {
		return nil
	}
	out := map[int][]netip.Prefix{}
	for _, m := range messages {
		if m.Header.Type != syscall.RTM_NEWROUTE || len(m.Data) < syscall.SizeofRtMsg {
			continue
		}
		bits, table := int(m.Data[1]), m.Data[4]
		attributes, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil || table == syscall.RT_TABLE_LOCAL {
			continue
		}
		dst := netip.IPv4Unspecified()
		var through []int
		for _, a := range attributes {
			switch {
			case a.Attr.Type == syscall.RTA_DST && len(a.Value) == 4:
				dst = netip.AddrFrom4([4]byte(a.Value))
			case a.Attr.Type == syscall.RTA_OIF && len(a.Value) == 4:
				through = append(through, int(binary.NativeEndian.Uint32(a.Value)))
			case a.Attr.Type == syscall.RTA_MULTIPATH:
				through = append(through, nextHops(a.Value)...)
			}
		}
		for _, index := range through {
			out[index] = append(out[index], netip.PrefixFrom(dst, bits))
		}
	}
	return out
}

// nextHops reads the interface indices out of an RTA_MULTIPATH attribute: a list of struct rtnexthop, each with its length,
// padded to 4.
func nextHops(b []byte) (indices []int) {
	for len(b) >= syscall.SizeofRtNexthop {
		length := int(binary.NativeEndian.Uint16(b))
		if length < syscall.SizeofRtNexthop || length > len(b) {
			break
		}
		indices = append(indices, int(binary.NativeEndian.Uint32(b[4:])))
		b = b[min((length+3)&^3, len(b)):]
	}
	return indices
}

// addr4 reads an address as /proc/net/route and tcp write it: the word in the machine's byte order.
func addr4(s string) (netip.Addr, bool) {
	v, err := strconv.ParseUint(s, 16, 32)
	if err != nil || len(s) != 8 {
		return netip.Addr{}, false
	}
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], uint32(v))
	return netip.AddrFrom4(b), true
}

// addr6 reads an address as ipv6_route and if_inet6 write it: sixteen bytes in order.
func addr6(s string) (netip.Addr, bool) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 16 {
		return netip.Addr{}, false
	}
	return netip.AddrFrom16([16]byte(b)), true
}

// endpoint reads address:port as /proc/net/tcp and tcp6 write them; the latter's addresses are four words in the machine's
// byte order.
func endpoint(s string) (netip.AddrPort, bool) {
	address, port, _ := strings.Cut(s, ":")
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	var b [16]byte
	switch len(address) {
	case 8:
		a, ok := addr4(address)
		return netip.AddrPortFrom(a, uint16(p)), ok
	case 32:
		for i := range 4 {
			word, ok := addr4(address[8*i : 8*i+8])
			if !ok {
				return netip.AddrPort{}, false
			}
			*(*[4]byte)(b[4*i : 4*i+4]) = word.As4()
		}
		return netip.AddrPortFrom(netip.AddrFrom16(b).Unmap(), uint16(p)), true
	}
	return netip.AddrPort{}, false
}
