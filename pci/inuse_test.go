package pci_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"bare.wire/pci"
	"bare.wire/pci/pcitest"
)

// The kernel's tables. Words are in the byte order of the machine: little endian, as every machine that this runs on is.
const (
	routeHeader = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
	routeNet    = "ens1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
	routeAll    = "ens1\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
	routeOther  = "wlan0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
	noHop       = " 00000000000000000000000000000000 "
	route6      = "fd000000000000000000000000000000 40" + noHop + "00" + noHop + "00000100 00000001 00000000 00000001     ens1\n"
	route6All   = "00000000000000000000000000000000 00" + noHop + "00" + noHop + "00000400 00000003 00000000 00000003     ens1\n"
	route6Link  = "fe800000000000000000000000000000 40" + noHop + "00" + noHop + "00000100 00000002 00000000 00000001     ens1\n"
	route6Many  = "ff000000000000000000000000000000 08" + noHop + "00" + noHop + "00000100 00000002 00000000 00000001     ens1\n"
	route6Mine  = "fd000000000000000000000000000002 80" + noHop + "00" + noHop + "00000000 00000003 00000000 80200001     ens1\n"
	address6    = "fd000000000000000000000000000002 04 40 00 82     ens1\n"
	address6LL  = "fe8000000000000000fc00fffe000001 04 40 20 80     ens1\n"
	trie        = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.5\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n"
	tcpLine     = "   1: 0500000A:0016 0900000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 1060\n"
	tcpListen   = "   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1060\n"
	tcp6Line    = "   1: 000000FD000000000000000002000000:0016 000000FD000000000000000009000000:C350 01 00000000:00000000 00:00000000 00000000 0 0 1\n"
)

func TestEveryUseOfACardIsAReason(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(m *pcitest.Machine)
		want  []string
	}{
		"nobody": {func(m *pcitest.Machine) {}, nil},
		"only what the kernel gives to every interface, and others' routes": {func(m *pcitest.Machine) {
			m.Put("proc/net/route", routeHeader+routeOther)
			m.Put("proc/net/ipv6_route", route6Link+route6Many+route6Mine)
			m.Put("proc/net/tcp", tcpListen+tcpLine)
		}, nil},
		"an IPv4 address and its route": {func(m *pcitest.Machine) {
			m.Put("proc/net/route", routeHeader+routeNet)
			m.Put("proc/net/fib_trie", trie)
		}, []string{"ens1 has address 10.0.0.5", "route to 10.0.0.0/24 through ens1"}},
		"a default route": {func(m *pcitest.Machine) { m.Put("proc/net/route", routeHeader+routeAll) }, []string{"default route through ens1"}},
		"an IPv6 address": {func(m *pcitest.Machine) { m.Put("proc/net/if_inet6", address6LL+address6) },
			[]string{"ens1 has address fd00::2", "ens1 has address fe80::fc:ff:fe00:1"}},
		"IPv6 routes": {func(m *pcitest.Machine) { m.Put("proc/net/ipv6_route", route6+route6All) },
			[]string{"IPv6 default route through ens1", "route to fd00::/64 through ens1"}},
		"a bond": {func(m *pcitest.Machine) {
			m.Link(m.InterfaceDir(port0)+"/master", "../../../../../virtual/net/bond0")
			m.Link(m.InterfaceDir(port0)+"/upper_bond0", "../../../../../virtual/net/bond0")
		}, []string{"ens1 is enslaved to bond0"}},
		"VLANs by their name": {func(m *pcitest.Machine) {
			m.Link(m.InterfaceDir(port0)+"/upper_ens1.5", "../../../../../virtual/net/ens1.5")
		}, []string{"VLAN ens1.5 on ens1"}},
		"VLANs called otherwise": {func(m *pcitest.Machine) {
			m.Put("proc/net/vlan/storage", "storage  VID: 5\n")
			m.Link(m.InterfaceDir(port0)+"/upper_storage", "../../../../../virtual/net/storage")
		}, []string{"VLAN storage on ens1"}},
		"a macvlan": {func(m *pcitest.Machine) {
			m.Link(m.InterfaceDir(port0)+"/upper_mac0", "../../../../../virtual/net/mac0")
		}, []string{"interface mac0 on ens1"}},
		"a DHCP client": {func(m *pcitest.Machine) {
			m.Put("proc/net/packet", "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n0000000000000000 3      3    0003   7     1 0      0      1\n0000000000000000 3      3    0003   0     1 0      0      1\n")
		}, []string{"packet sockets on ens1 (a DHCP client or a capture): 1"}},
		"a remote session": {func(m *pcitest.Machine) {
			m.Put("proc/net/route", routeHeader+routeNet)
			m.Put("proc/net/fib_trie", trie)
			m.Put("proc/net/tcp", tcpListen+tcpLine)
		}, []string{"ens1 has address 10.0.0.5", "route to 10.0.0.0/24 through ens1", "open TCP connections over ens1: 1, one with 10.0.0.9:50000"}},
		"a remote session over IPv6": {func(m *pcitest.Machine) {
			m.Put("proc/net/if_inet6", address6)
			m.Put("proc/net/tcp6", tcp6Line)
		}, []string{"ens1 has address fd00::2", "open TCP connections over ens1: 1, one with [fd00::9]:50000"}},
		"virtual functions": {func(m *pcitest.Machine) { m.Put("sys/bus/pci/devices/"+port0+"/sriov_numvfs", "4\n") }, []string{"it has virtual functions: 4"}},
		"another network namespace": {func(m *pcitest.Machine) { m.Remove("sys/bus/pci/devices/" + port0 + "/net") },
			[]string{"driver ixgbe has it but shows no interface here: it may be in another network namespace"}},
		"a process with its registers": {func(m *pcitest.Machine) {
			m.Put("proc/812/comm", "pktgen\x1b[2J\n")
			m.Link("proc/812/fd/3", "/sys/devices/pci0000:00/"+port0+"/resource0")
			m.Link("proc/812/fd/4", "/sys/devices/pci0000:00/"+port0+"/config")
			m.Link("proc/812/fd/5", "/sys/devices/pci0000:00/"+port1+"/resource0")
		}, []string{"process 812 (pktgen[2J) has /sys/devices/pci0000:00/" + port0 + "/resource0 open"}},
		"a table that cannot be read": {func(m *pcitest.Machine) { m.Put("proc/net/route/x", "") }, []string{"table route cannot be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(t)
			c.spoil(m)
			got := m.Host().InUse(device(t, m, port0))
			same := len(got) == len(c.want)
			for i := range got {
				same = same && strings.Contains(got[i], c.want[i])
			}
			if !same {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if other := m.Host().InUse(device(t, m, port1)); strings.Contains(strings.Join(other, ";"), "ens1") {
				t.Errorf("the other port is blamed: %q", other)
			}
		})
	}
}

func TestAProcessThatDrivesTheCardThroughVFIOIsNamed(t *testing.T) {
	m := machine(t)
	bind(t, m, port0)
	m.Put("proc/812/comm", "pktgen\n")
	m.Link("proc/812/fd/9", "/dev/vfio/17")
	m.Link("proc/812/fd/10", "/dev/vfio/17")
	m.Link("proc/813/fd/9", "/dev/vfio/18")
	m.Link("proc/814/fd/9", "/dev/vfio/vfio")
	if use := m.Host().InUse(device(t, m, port0)); !slices.Equal(use, []string{"process 812 (pktgen) has /dev/vfio/17 open"}) {
		t.Errorf("in use: %q", use)
	}
	m.Put("sys/bus/pci/devices/"+port0+"/vfio-dev/vfio0/dev", "510:0\n")
	m.Link("proc/815/fd/3", "/dev/vfio/devices/vfio0")
	m.Put("proc/815/comm", "dpdk\n")
	if use := m.Host().InUse(device(t, m, port0)); len(use) != 2 || use[1] != "process 815 (dpdk) has /dev/vfio/devices/vfio0 open" {
		t.Errorf("in use: %q", use)
	}
}

// Names of files are chosen by whoever makes them; below /sys that is the kernel, or the owner of a container.
func TestFileThatIsOnlyCalledLikeACardIsNoUse(t *testing.T) {
	m := machine(t)
	m.Link("proc/812/fd/9", "/tmp/"+port0+"/resource0")
	if use := m.Host().InUse(device(t, m, port0)); len(use) != 0 {
		t.Errorf("in use: %q", use)
	}
	m.Link("proc/812/fd/10", "/sys/\x1b[2J/"+port0+"/resource0")
	if use := m.Host().InUse(device(t, m, port0)); len(use) != 1 || strings.Contains(use[0], "\x1b") {
		t.Errorf("in use: %q", use)
	}
}

func TestManyDevicesAreAskedAtOnce(t *testing.T) {
	m := machine(t)
	m.Put("proc/net/route", routeHeader+routeAll)
	list, err := m.Host().List()
	if err != nil {
		t.Fatal(err)
	}
	if use := m.Host().InUseAll(list); len(use) != 2 || len(use[0]) != 1 || len(use[1]) != 0 {
		t.Errorf("in use: %q", use)
	}
}

// A group can be given away when every other member is with nobody who does DMA.
func TestTheGroupDecides(t *testing.T) {
	for driver, viable := range map[string]bool{"": true, "vfio-pci": true, "pcieport": true, "pci-stub": true, "ahci": false, "uio_pci_generic": false} {
		m := machine(t)
		if driver != "" {
			m.Driver(driver)
		}
		m.Add(pcitest.Card{Address: "0000:03:00.2", ID: "8086:1521", Class: 0x010601, Driver: driver, Group: 17})
		err := m.Host().Viable(device(t, m, port0))
		if viable != (err == nil) || !viable && !errors.Is(err, pci.ErrNotViable) {
			t.Errorf("beside one with driver %q: %v", driver, err)
		}
		if !viable && !strings.Contains(err.Error(), "0000:03:00.2 is with driver "+driver) {
			t.Errorf("the error does not name the other: %v", err)
		}
	}
	m := machine(t)
	if members, err := m.Host().GroupDevices(17); err != nil || len(members) != 1 || members[0] != addr(t, port0) {
		t.Errorf("group 17: %v, %v", members, err)
	}
	if members, err := m.Host().GroupDevices(5); err == nil {
		t.Errorf("group 5: %v", members)
	}
}
