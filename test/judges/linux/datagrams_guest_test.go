//go:build guest

package linux

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"bare.wire/test/judges/internal/streams"
)

// echo sends a UDP datagram that may not be fragmented, and expects it back.
func (b *bench) echo(to netip.Addr, n int, patience time.Duration) error {
	c, err := net.Dial("udp4", netip.AddrPortFrom(to, portEcho).String())
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		return err
	}
	if err := errors.Join(raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	}), err); err != nil {
		return err
	}
	want := make([]byte, n)
	if _, err := io.ReadFull(streams.Bytes(uint64(n)), want); err != nil {
		return err
	}
	if _, err := c.Write(want); err != nil {
		return err
	}
	_ = c.SetReadDeadline(deadline(patience))
	got := make([]byte, n+1)
	k, err := c.Read(got)
	if err != nil {
		return fmt.Errorf("datagram of %d bytes to %v: %w", n, to, err)
	}
	return equal(got[:k], want)
}

// checkUDPSegments sends a block of bytes that the card cuts into datagrams (UDP_SEGMENT of udp(7)).
func (b *bench) checkUDPSegments() error {
	c, err := net.Dial("udp4", netip.AddrPortFrom(hostAddr, portEcho).String())
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		return err
	}
	const each = 1000
	if err := errors.Join(raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, each)
	}), err); err != nil {
		return err
	}
	before, err := b.counts()
	if err != nil {
		return err
	}
	want := make([]byte, 9*each+321)
	if _, err := io.ReadFull(streams.Bytes(uint64(len(want))), want); err != nil {
		return err
	}
	if _, err := c.Write(want); err != nil {
		return err
	}
	_ = c.SetReadDeadline(deadline(b.patience))
	got, part := []byte(nil), make([]byte, 2*each)
	for len(got) < len(want) {
		n, err := c.Read(part)
		if err != nil {
			return fmt.Errorf("%d bytes came back of %d: %w", len(got), len(want), err)
		}
		if last := len(want) % each; n != each && n != last {
			return fmt.Errorf("a datagram of %d bytes, want %d or %d", n, each, last)
		}
		got = append(got, part[:n]...)
	}
	if err := equal(got, want); err != nil {
		return err
	}
	after, err := b.counts()
	if n := after.TxSegments - before.TxSegments; err == nil && n != 10 {
		err = fmt.Errorf("the card has cut %d segments, want 10", n)
	}
	return err
}

// checkJumbo exchanges datagrams that fill frames of 9000 bytes.
func (b *bench) checkJumbo() (err error) {
	if err := b.setMTU(mtu); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.setMTU(1500), b.waitLink(true, b.patience)) }()
	if err := b.waitLink(true, b.patience); err != nil {
		return err
	}
	before, err := b.counts()
	if err != nil {
		return err
	}
	for _, n := range []int{mtu - 28, 100, 3000, mtu - 29} {
		if err := b.eventually(b.patience/2, func() error { return b.echo(hostAddr, n, b.patience/4) }); err != nil {
			return err
		}
	}
	after, err := b.counts()
	if err == nil && after.RxChained == before.RxChained {
		err = errors.New("no frame took more than one buffer")
	}
	return err
}

// checkVLAN exchanges datagrams in a VLAN, whose tags the card puts in and takes out.
func (b *bench) checkVLAN() error {
	before, err := b.counts()
	if err != nil {
		return err
	}
	for _, n := range []int{1, 1000, 1472} {
		if err := b.eventually(b.patience/2, func() error { return b.echo(vlanHost, n, b.patience/4) }); err != nil {
			return err
		}
	}
	after, err := b.counts()
	if err == nil && (after.TxTagged == before.TxTagged || after.RxStripped == before.RxStripped) {
		err = errors.New("the card has not put in tags and taken them out")
	}
	return err
}
