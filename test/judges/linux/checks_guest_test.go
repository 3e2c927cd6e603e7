//go:build guest

package linux

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"bare.wire/sim/nic82599"
	"bare.wire/test/judges/internal/frames"
	"bare.wire/test/judges/internal/streams"
)

// check is one way of judging the card.
type check struct {
	name string
	run  func(b *bench) error
}

// checks need an interface that is up and leave it so.
var checks = []check{
	{"self-test", (*bench).checkSelfTest},
	{"streams", (*bench).checkStreams},
	{"jumbo", (*bench).checkJumbo},
	{"VLAN", (*bench).checkVLAN},
	{"placement", (*bench).checkPlacement},
	{"filters", (*bench).checkFilters},
	{"bad checksum", (*bench).checkBadChecksum},
	{"statistics", (*bench).checkStatistics},
	{"link", (*bench).checkLink},
	{"module", (*bench).checkModule},
	{"EEPROM", (*bench).checkEEPROM},
	{"switches", (*bench).checkSwitches},
	{"UDP segments", (*bench).checkUDPSegments},
}

// checkSelfTest is the driver's own. Its interrupt test gives an interrupt 10 ms to come, and takes one that comes later for
// another: on a host with more to do than this it has three tries.
func (b *bench) checkSelfTest() error {
	for tries := 1; ; tries++ {
		parts, err := b.selfTest()
		if err == nil {
			return b.waitLink(true, b.patience)
		}
		delete(parts, "Interrupt test (offline)")
		for _, v := range parts {
			if v != 0 {
				return err
			}
		}
		if tries == 3 {
			return err
		}
	}
}

// checkStreams sends a stream each way, and looks at what the offloads have made of it.
func (b *bench) checkStreams() error {
	before, err := b.counts()
	if err != nil {
		return err
	}
	if _, err := b.ask(question{Watch: true}); err != nil {
		return err
	}
	if err := b.streamOut(b.stream); err != nil {
		return fmt.Errorf("guest to host: %w", err)
	}
	if err := b.streamIn(b.stream); err != nil {
		return fmt.Errorf("host to guest: %w", err)
	}
	a, err := b.ask(question{Seen: true})
	if err != nil {
		return err
	}
	after, err := b.counts()
	if err != nil {
		return err
	}
	switch s := a.Segments; {
	case after.TxSegmented == before.TxSegmented || after.TxL4Checksums == before.TxL4Checksums || after.RxL4Good == before.RxL4Good:
		return fmt.Errorf("no offload has been used: %+v", after)
	case s.Largest != 1448 || 2*s.Full < s.Data:
		return fmt.Errorf("segments are not of the size that was asked for: %+v", s)
	case s.SameID > 0:
		return fmt.Errorf("neighbouring segments have one IP id: %+v", s)
	case 2*s.PushFull > s.Full:
		return fmt.Errorf("every segment pushes: %+v", s)
	}
	return nil
}

func (b *bench) dial(direction byte, n uint64) (net.Conn, error) {
	c, err := net.DialTimeout("tcp4", netip.AddrPortFrom(hostAddr, portStream).String(), b.patience)
	if err != nil {
		return nil, err
	}
	// A stream that stands still is found out sooner than at its end.
	_ = c.SetDeadline(deadline(b.patience + time.Duration(n>>20)*2*time.Second))
	head := streams.Header(direction, n)
	if _, err := c.Write(head); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// streamOut sends n bytes and has the host say their SHA-256.
func (b *bench) streamOut(n uint64) error {
	c, err := b.dial(streams.TowardsServer, n)
	if err != nil {
		return err
	}
	defer c.Close()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(c, sum), streams.Bytes(n)); err != nil {
		return err
	}
	return sameSum(c, sum.Sum(nil))
}

// streamIn receives n bytes and their SHA-256.
func (b *bench) streamIn(n uint64) error {
	c, err := b.dial(streams.TowardsClient, n)
	if err != nil {
		return err
	}
	defer c.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(c, int64(n))); err != nil {
		return err
	}
	return sameSum(c, sum.Sum(nil))
}

func sameSum(c net.Conn, sum []byte) error {
	var theirs [sha256.Size]byte
	if _, err := io.ReadFull(c, theirs[:]); err != nil {
		return fmt.Errorf("waiting for the SHA-256: %w", err)
	}
	if !bytes.Equal(theirs[:], sum) {
		return errors.New("the SHA-256 differs")
	}
	return nil
}

// risen waits until a figure of the driver's has risen by want, and gives it time to rise further.
func (b *bench) risen(figure func(map[string]uint64) uint64, before, want uint64) error {
	var last uint64
	err := b.eventually(b.patience, func() error {
		s, err := b.statistics()
		if last = figure(s) - before; err == nil && last < want {
			err = fmt.Errorf("%d of %d frames have arrived", last, want)
		}
		return err
	})
	if err != nil {
		return err
	}
	pause(100 * time.Millisecond)
	s, err := b.statistics()
	if last = figure(s) - before; err == nil && last != want {
		err = fmt.Errorf("%d frames have arrived, want %d", last, want)
	}
	return err
}

func queuePackets(s map[string]uint64) (n uint64) {
	for q := range 16 {
		n += s[fmt.Sprintf("rx_queue_%d_packets", q)]
	}
	return n
}

// checkPlacement compares the queues that packets of many addresses come to with those that RSS should choose.
func (b *bench) checkPlacement() error {
	queues, err := b.channels()
	if err != nil {
		return err
	}
	if queues < 2 {
		return fmt.Errorf("%d queues", queues)
	}
	table, key, err := b.indirection()
	if err != nil {
		return err
	}
	return b.retry(func() error {
		// Queue q gets 10·(q+1) packets, so that two that were exchanged would show.
		want, packets := make([]uint64, queues), [][]byte(nil)
		for i := 0; i < 4096; i++ {
			from, to := netip.AddrFrom4([4]byte{10, 99, byte(i >> 4), byte(i * 37)}), netip.AddrFrom4([4]byte{10, 82, 59, 77})
			x, y := from.As4(), to.As4()
			h := frames.Toeplitz(key, append(x[:], y[:]...))
			if q := table[h%uint32(len(table))]; want[q] < 10*(uint64(q)+1) {
				want[q]++
				packets = append(packets, ipv4(b.mac, [6]byte(hostMAC), from, to, 253, make([]byte, 20)))
			}
		}
		before, err := b.statistics()
		if err != nil {
			return err
		}
		if err := b.send(packets...); err != nil {
			return err
		}
		if err := b.risen(queuePackets, queuePackets(before), uint64(len(packets))); err != nil {
			return err
		}
		after, err := b.statistics()
		got := make([]uint64, queues)
		for q := range got {
			name := fmt.Sprintf("rx_queue_%d_packets", q)
			got[q] = after[name] - before[name]
		}
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("packets came to queues %v, want %v", got, want)
		}
		return err
	})
}

// retry gives a check that somebody else's frame can disturb three tries.
func (b *bench) retry(f func() error) (err error) {
	for range 3 {
		if err = f(); err == nil {
			return nil
		}
	}
	return err
}

// checkFilters has a group that is joined let in, and kept out what is for others: another group, another station, another
// VLAN.
func (b *bench) checkFilters() error {
	group := netip.MustParseAddr("239.1.2.3")
	device, err := net.InterfaceByName(string(b.nic))
	if err != nil {
		return err
	}
	c, err := net.ListenMulticastUDP("udp4", device, net.UDPAddrFromAddrPort(netip.AddrPortFrom(group, 6000)))
	if err != nil {
		return err
	}
	defer c.Close()
	pause(50 * time.Millisecond) // the membership reports
	from := netip.AddrPortFrom(hostAddr, 6000)
	joined := ipv4([6]byte{1, 0, 0x5e, 1, 2, 3}, [6]byte(hostMAC), hostAddr, group, 17, udp(from, netip.AddrPortFrom(group, 6000), []byte("joined"), 0))
	if err := b.send(joined); err != nil {
		return err
	}
	_ = c.SetReadDeadline(deadline(b.patience))
	got := make([]byte, 100)
	n, err := c.Read(got)
	if err != nil {
		return fmt.Errorf("the group that was joined: %w", err)
	}
	if err := equal(got[:n], []byte("joined")); err != nil {
		return err
	}
	return b.retry(func() error {
		neighbour := b.mac
		neighbour[5] ^= 1
		tagged := ipv4(b.mac, [6]byte(hostMAC), hostAddr, guestAddr, 253, nil)
		tagged = append(append(append([]byte{}, tagged[:12]...), 0x81, 0, 0x01, 0x24), tagged[12:]...)
		before, err := b.statistics()
		if err != nil {
			return err
		}
		err = b.send(
			ipv4([6]byte{1, 0, 0x5e, 9, 9, 9}, [6]byte(hostMAC), hostAddr, netip.MustParseAddr("239.9.9.9"), 253, nil),
			ipv4(neighbour, [6]byte(hostMAC), hostAddr, guestAddr, 253, nil), tagged)
		if err != nil {
			return err
		}
		if err := b.risen(queuePackets, queuePackets(before), 0); err != nil {
			return fmt.Errorf("three frames for others were sent: %w", err)
		}
		return nil
	})
}

// checkBadChecksum sends a datagram with a wrong checksum and then a good one, of which the kernel may only give the good
// one; and a TCP segment with a wrong checksum, which the driver has to count. (It does not believe the card where it calls
// a UDP checksum bad, for an erratum's sake.)
func (b *bench) checkBadChecksum() error {
	const port = 6001
	c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
	if err != nil {
		return err
	}
	defer c.Close()
	before, err := b.statistics()
	if err != nil {
		return err
	}
	from, to := netip.AddrPortFrom(hostAddr, port), netip.AddrPortFrom(guestAddr, port)
	mac := [6]byte(hostMAC)
	segment := make([]byte, 20) // its checksum field is 0
	binary.BigEndian.PutUint16(segment[2:], port)
	segment[12], segment[13] = 0x50, 0x02
	if err := b.send(
		ipv4(b.mac, mac, hostAddr, guestAddr, 6, segment),
		ipv4(b.mac, mac, hostAddr, guestAddr, 17, udp(from, to, []byte("bad"), 1)),
		ipv4(b.mac, mac, hostAddr, guestAddr, 17, udp(from, to, []byte("good"), 0))); err != nil {
		return err
	}
	_ = c.SetReadDeadline(deadline(b.patience))
	got := make([]byte, 100)
	n, err := c.Read(got)
	if err != nil {
		return err
	}
	if err := equal(got[:n], []byte("good")); err != nil {
		return fmt.Errorf("received %q: %w", got[:n], err)
	}
	after, err := b.statistics()
	if n := after["rx_csum_offload_errors"] - before["rx_csum_offload_errors"]; err == nil && n != 1 {
		err = fmt.Errorf("the driver has counted %d bad checksums, want 1", n)
	}
	return err
}

// checkStatistics compares what the driver says of the MAC's counters with what the card has done.
func (b *bench) checkStatistics() error {
	return b.retry(func() error {
		s0, err := b.statistics()
		if err != nil {
			return err
		}
		c0, err := b.counts()
		if err != nil {
			return err
		}
		mac := [6]byte(hostMAC)
		for _, quanta := range []uint16{5, 0} { // XOFF, XON
			if err := b.send(pauseFrame(quanta)); err != nil {
				return err
			}
		}
		for _, n := range []int{10, 200, 500, 1000, 1400} {
			if err := b.send(ipv4(b.mac, mac, hostAddr, guestAddr, 253, make([]byte, n)),
				ipv4([6]byte{255, 255, 255, 255, 255, 255}, mac, hostAddr, netip.MustParseAddr("10.82.59.255"), 253, make([]byte, n)),
				ipv4([6]byte{1, 0, 0x5e, 0, 0, 1}, mac, hostAddr, netip.MustParseAddr("224.0.0.1"), 253, make([]byte, n))); err != nil {
				return err
			}
			if err := b.echo(hostAddr, n, b.patience); err != nil {
				return err
			}
		}
		c1, err := b.counts()
		if err != nil {
			return err
		}
		var s1 map[string]uint64
		for range 2 { // what is not cleared by the first shows in the second
			if s1, err = b.statistics(); err != nil {
				return err
			}
		}
		return compareCounts(s0, s1, c0, c1)
	})
}

// compareCounts compares two differences.
func compareCounts(s0, s1 map[string]uint64, c0, c1 nic82599.Counts) error {
	var bad []error
	for _, x := range []struct {
		name string
		of   func(c nic82599.Counts) uint64
	}{
		{"rx_pkts_nic", func(c nic82599.Counts) uint64 { return c.RxFrames }},
		{"rx_bytes_nic", func(c nic82599.Counts) uint64 { return c.RxBytes }},
		{"tx_pkts_nic", func(c nic82599.Counts) uint64 { return c.TxFrames - c.PauseSent }},
		{"tx_bytes_nic", func(c nic82599.Counts) uint64 { return c.TxBytes - 64*c.PauseSent }},
		{"broadcast", func(c nic82599.Counts) uint64 { return c.RxBroadcast }},
		{"multicast", func(c nic82599.Counts) uint64 { return c.RxMulticast }},
		{"rx_queues", func(c nic82599.Counts) (n uint64) {
			for _, k := range c.RxQueue {
				n += k
			}
			return n
		}},
		{"pauses", func(c nic82599.Counts) uint64 { return c.PauseSeen }},
	} {
		got, want := s1[x.name]-s0[x.name], x.of(c1)-x.of(c0)
		switch x.name {
		case "rx_queues":
			got = queuePackets(s1) - queuePackets(s0)
		case "pauses":
			const on, off = "rx_flow_control_xon", "rx_flow_control_xoff"
			if s1[on] == s0[on] || s1[off] == s0[off] {
				bad = append(bad, errors.New("XON and XOFF were sent, and the driver has not counted both"))
			}
			got = s1[on] + s1[off] - s0[on] - s0[off]
		}
		if got != want {
			bad = append(bad, fmt.Errorf("%s has risen by %d, the card counted %d", x.name, got, want))
		}
	}
	return errors.Join(bad...)
}

// checkLink pulls the cable and plugs it in again.
func (b *bench) checkLink() (err error) {
	if err := b.cable(false); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cable(true)) }()
	if err := b.waitLink(false, b.patience); err != nil {
		return err
	}
	if err := b.cable(true); err != nil {
		return err
	}
	if err := b.waitLink(true, b.patience); err != nil {
		return err
	}
	return b.eventually(b.patience, func() error { return b.echo(hostAddr, 100, b.patience/4) })
}

// checkModule reads what the SFP+ says of itself.
func (b *bench) checkModule() error {
	page, err := b.module(64)
	if err != nil {
		return err
	}
	if page[0] != 3 || page[3] != 0x10 || string(page[20:28]) != "Barewire" {
		return fmt.Errorf("the module says % x", page)
	}
	return nil
}

// checkEEPROM writes a word of the EEPROM, reads it, and puts back what was there.
func (b *bench) checkEEPROM() error {
	const at = 0x800 // bytes; no section is there
	old, err := b.eeprom(at, 4)
	if err != nil {
		return err
	}
	for _, want := range [][]byte{{0x12, 0x34, 0x56, 0x78}, bytes.Clone(old)} {
		if err := b.setEEPROM(at, want); err != nil {
			return err
		}
		got, err := b.eeprom(at, 4)
		if err != nil {
			return err
		}
		if err := equal(got, want); err != nil {
			return err
		}
	}
	return nil
}

// checkSwitches turns offloads off and on, and sees that the card then does not do them, and does them again.
func (b *bench) checkSwitches() (err error) {
	for _, x := range []struct {
		feature string
		use     func() error
		of      func(nic82599.Counts) uint64
	}{
		{"tx-tcp-segmentation", func() error { return b.streamOut(100_000) }, func(c nic82599.Counts) uint64 { return c.TxSegmented }},
		{"tx-checksum-ip-generic", func() error { return b.echo(hostAddr, 100, b.patience) }, func(c nic82599.Counts) uint64 { return c.TxL4Checksums }},
		{"tx-vlan-hw-insert", func() error { return b.echo(vlanHost, 100, b.patience) }, func(c nic82599.Counts) uint64 { return c.TxTagged }},
		{"rx-vlan-hw-parse", func() error { return b.echo(vlanHost, 100, b.patience) }, func(c nic82599.Counts) uint64 { return c.RxStripped }},
	} {
		defer func() { err = errors.Join(err, b.setFeature(x.feature, true)) }() // for the next check, whatever happens
		for _, on := range []bool{false, true} {
			if err := b.setFeature(x.feature, on); err != nil {
				return fmt.Errorf("%s: %w", x.feature, err)
			}
			if err := b.waitLink(true, b.patience); err != nil {
				return err
			}
			if is, err := b.features(); err != nil || is[x.feature] != on {
				return fmt.Errorf("%s is %v after it was set to %v (%v)", x.feature, is[x.feature], on, err)
			}
			before, err := b.counts()
			if err == nil {
				err = b.eventually(b.patience, x.use)
			}
			if err != nil {
				return fmt.Errorf("%s %v: %w", x.feature, on, err)
			}
			after, err := b.counts()
			if err != nil {
				return err
			}
			if did := x.of(after) > x.of(before); did != on {
				return fmt.Errorf("%s is %v, and the card has done it: %v", x.feature, on, did)
			}
		}
	}
	return nil
}
