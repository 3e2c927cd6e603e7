//go:build guest

package vfio

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/test/guest"
	"bare.wire/wire"
)

var (
	kernelIP = [4]byte{10, 9, 0, 1}
	ourIP    = [4]byte{10, 9, 0, 2}
)

// TestGuestKernelPeer has the kernel's own ixgbe driver on one card, with the kernel's stack on it, and ours on the other. There are
// no messages for interrupts in this machine, so that both have to do with the pin (INTx).
func TestGuestKernelPeer(t *testing.T) {
	m := cardsMachine(t, guest.Machine{
		Kernel: guest.Generic, IOMMU: true, Modules: []string{"ixgbe", "vfio-pci", "vfio_iommu_type1"}, HugePages: 32, CPUs: 1,
		// Without IPv6 the kernel sends nothing that it was not asked for.
		Cmdline: []string{"pci=nomsi", "ipv6.disable=1"}, Timeout: 9 * time.Minute,
	})
	guest.Run(t, m, func(t *testing.T) {
		if err := guest.Bind(cards[1], "vfio-pci"); err != nil {
			t.Fatal(err)
		}
		iface := kernelInterface(t)
		p := testPair(t, pci.VFIO)
		port := p.mustOpen(t, 1)
		s := startStation(t, port, p.space, nic.Config{
			Offloads: nic.RxIPChecksum | nic.RxL4Checksum | nic.TxIPChecksum | nic.TxL4Checksum,
		})
		s.up()
		r := &responder{port: port, ip: ourIP}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- r.run(ctx, p.waiter(t), p.clk.Nanos) }()

		t.Run("pings", func(t *testing.T) { testPings(t, pick(50, 500)) })
		t.Run("datagrams", func(t *testing.T) { testDatagrams(t, iface, s, r, pick(5000, 100000)) })
		t.Run("sleeps in between", func(t *testing.T) { testSleepsBetween(t, r) })

		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		t.Log(r)
		s.close()
		for _, m := range misuseOf(1) { // the other card is another driver's
			t.Errorf("the card holds against the driver: %s", m)
		}
	})
}

// kernelInterface gives the kernel's interface an address, and waits for its link.
func kernelInterface(t testing.TB) string {
	t.Helper()
	var name string
	within(t, time.Minute, "the kernel's interface", func() bool {
		if names := guest.Interfaces(cards[0]); len(names) == 1 {
			name = names[0]
		}
		return name != ""
	})
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	set := func(request uint, address []byte) {
		if err := ifr.SetInet4Addr(address); err != nil {
			t.Fatal(err)
		}
		if err := unix.IoctlIfreq(fd, request, ifr); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	set(unix.SIOCSIFADDR, kernelIP[:])
	set(unix.SIOCSIFNETMASK, []byte{255, 255, 255, 0})
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return name
}

// testPings sends echo requests by the kernel, one at a time, and compares what comes back.
func testPings(t *testing.T, n int) {
	c, err := net.Dial("ip4:icmp", net.IP(ourIP[:]).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answer := make([]byte, 2048)
	for k := range n {
		m := make([]byte, wire.ICMPLen+(k*31)%1400)
		for i := range m {
			m[i] = pattern(uint32(k), i)
		}
		h, err := wire.PutICMP(m, wire.ICMPFields{Type: wire.ICMPEcho, Rest: wire.EchoRest(99, uint16(k))})
		if err != nil {
			t.Fatal(err)
		}
		h.FillChecksum(wire.SumOf(m[wire.ICMPLen:]))
		if err := c.SetDeadline(realTime.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(m); err != nil {
			t.Fatal(err)
		}
		got, err := c.Read(answer)
		if err != nil {
			t.Fatalf("ping %d: %v", k, err)
		}
		_, packet, err := wire.ParseIPv4(answer[:got])
		if err != nil {
			t.Fatalf("ping %d: %v", k, err)
		}
		h, data, err := wire.ParseICMP(packet)
		if err != nil || h.Type() != wire.ICMPEchoReply || h.Seq() != uint16(k) || !h.ChecksumOK(wire.SumOf(data)) || !bytes.Equal(data, m[wire.ICMPLen:]) {
			t.Fatalf("ping %d of %d bytes: the answer has %d bytes, type %v, number %d", k, len(m), got, h.Type(), h.Seq())
		}
	}
}

// testDatagrams exchanges n datagrams of every length by the kernel's socket, some in flight at a time, and compares every byte
// and all counts.
func testDatagrams(t *testing.T, iface string, s *station, r *responder, n int) {
	const window, longest = 16, 1472
	c, err := net.DialUDP("udp4", &net.UDPAddr{IP: kernelIP[:]}, &net.UDPAddr{IP: ourIP[:], Port: echoPort})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ours, theirs, seen := s.port.Stats(), kernelCounts(t, iface), r.datagrams.Load()
	out, in := make([]byte, longest), make([]byte, longest+1)
	length := func(k int) int { return 4 + (k*37)%(longest-3) }
	for k := 0; k < n; k += window {
		if err := c.SetDeadline(realTime.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for i := k; i < min(k+window, n); i++ {
			if _, err := c.Write(payload(out[:length(i)], i)); err != nil {
				t.Fatal(err)
			}
		}
		for i := k; i < min(k+window, n); i++ {
			got, err := c.Read(in)
			if err != nil {
				t.Fatalf("datagram %d: %v; %s; ours %+v", i, err, r, s.port.Stats())
			}
			if want := payload(out[:length(i)], i); !bytes.Equal(in[:got], want) {
				t.Fatalf("datagram %d: %d bytes came back, or others than the %d that were sent", i, got, len(want))
			}
		}
	}
	if got := r.datagrams.Load() - seen; got != uint64(n) {
		t.Errorf("%d datagrams were sent, and the responder has seen %d", n, got)
	}
	if bad := r.unchecked.Load(); bad != 0 {
		t.Errorf("of %d datagrams the card does not say that their checksums are right", bad)
	}
	type pair struct {
		what      string
		got, want uint64
	}
	var kernel map[string]uint64
	counts := func() []pair {
		after := s.port.Stats()
		kernel = kernelCounts(t, iface)
		return []pair{
			{"frames that we received and the kernel sent", after.RxPackets - ours.RxPackets, kernel["tx_packets"] - theirs["tx_packets"]},
			{"frames that the kernel received and we sent", kernel["rx_packets"] - theirs["rx_packets"], after.TxPackets - ours.TxPackets},
		}
	}
	differs := func(v pair) bool { return v.got != v.want || v.got < uint64(n) }
	all := counts()
	for range 50 { // the kernel asks for our address now and then, and such a frame may be under way
		if !slices.ContainsFunc(all, differs) {
			break
		}
		pause(100 * time.Millisecond)
		all = counts()
	}
	for _, v := range all {
		if differs(v) {
			t.Errorf("%s: %d and %d, at least %d", v.what, v.got, v.want, n)
		}
	}
	for _, what := range []string{"rx_errors", "rx_crc_errors", "rx_dropped", "tx_errors"} {
		if kernel[what] != 0 {
			t.Errorf("the kernel's %s: %d", what, kernel[what])
		}
	}
}

// payload fills a datagram, and says which it is.
func payload(b []byte, k int) []byte {
	for i := range b {
		b[i] = pattern(uint32(k), i)
	}
	binary.BigEndian.PutUint32(b, uint32(k))
	return b
}

// kernelCounts are the kernel's statistics of an interface. The kernel's driver brings them up to date every second or two.
func kernelCounts(t testing.TB, iface string) map[string]uint64 {
	t.Helper()
	pause(2500 * time.Millisecond)
	counts := map[string]uint64{}
	for _, name := range []string{"tx_packets", "rx_packets", "rx_errors", "rx_crc_errors", "rx_dropped", "tx_errors"} {
		b, err := os.ReadFile(fmt.Sprintf("/sys/class/net/%s/statistics/%s", iface, name))
		if err != nil {
			t.Fatal(err)
		}
		if counts[name], err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return counts
}

// testSleepsBetween leaves the responder in peace, and then wakes it, by the pin.
func testSleepsBetween(t *testing.T, r *responder) {
	for range 5 {
		before := r.sleeps.Load()
		pause(100 * time.Millisecond)
		testPings(t, 1)
		within(t, wakeTime, "the responder has slept", func() bool { return r.sleeps.Load() > before })
	}
}
