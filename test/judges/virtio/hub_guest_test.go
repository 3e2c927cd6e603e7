//go:build guest

package virtio

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bare.wire/device"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/nic/nictest"
	"bare.wire/test/guest"
	"bare.wire/test/judges/internal/streams"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// wakeTime is how late an interrupt may come, through an emulated machine that others keep from the processor.
const wakeTime = 5 * time.Second

// settleTime is long for a hub, and for a machine that is behind.
const settleTime = 30 * time.Millisecond

// suite are the situations of the conformance suite that are looked at here, with false those that only the long run sees. What is not
// in the list needs a device that counts what it drops, a wire that stops a sender, or bursts of more than a ring: a hub keeps frames for
// who has no buffers, and when there are some again it lets what waits at the sender overtake what waits at the receiver.
var suite = map[string]bool{
	"InfoMakesSense": true, "FramesOfEveryLength": true, "RingSizesThatAreRefused": true,
	"ConfigurationsThatAreRefused": true, "OneFrameThenIdle": true, "FramesThatCanNeverBeSent": true,
	"RequestsThatMakeNoSense": true, "OffloadsThatAreOff": true, "GatherOfManySegments": true, "SharedBuffersAreSent": true,
	"ScatterOverSmallBuffers": true, "JumboFrames": true, "LongBuffers": false, "StopWithFramesInFlight": true,
	"StartStopManyTimes": false, "RestartWithAnotherConfiguration": true, "CallsInTheWrongState": true, "StatisticsNeverGoBack": false,
	"AddressFilters": true, "MulticastFilters": true, "VLANFilters": true, "TooManyAddresses": false, "FiltersOutliveRestart": true,
	"ArmAndWait": true, "ArmSeesWhatIsThere": true, "ArmForSending": true, "NoWakeIsLost": true, "IdleWorkers": false,
	"LinkChangesWake": true, "LinkDownAndUp": true, "NothingIsAllocated": true,
}

// testSuite runs the conformance suite for drivers over two cards, one with a packed and one with a split ring, on one hub.
func testSuite(t *testing.T, a, b card) {
	uris := []string{a.address(1), b.address(1)}
	a.bind(t, uris[0])
	b.bind(t, uris[1])
	open := func(t testing.TB, _ uint64) *nictest.Bench {
		set, err := device.OpenSet(context.Background(), device.Options{}, uris...)
		if err != nil {
			t.Fatal(err)
		}
		link := func(up bool) {
			a.cable(t, up)
			b.cable(t, up)
		}
		link(true) // a test that failed may have left it
		return nictest.InRealTime(&nictest.Bench{
			A: set.Ports[0], B: set.Ports[1], Clock: realTime, Late: wakeTime,
			NewPool: func(cfg mbuf.Config) (*mbuf.Pool, error) {
				cfg.Space = set.Space
				return mbuf.NewPool(cfg)
			},
			ForeignPool: func(cfg mbuf.Config) (*mbuf.Pool, error) {
				cfg.Space = vtop.NewMapped()
				return mbuf.NewPool(cfg)
			},
			Settle:  func() { pause(settleTime) },
			Lost:    func(nic.Port) uint64 { return 0 },
			SetLink: link,
			Close:   set.Close,
		})
	}
	nictest.TestSome(t, open, func(situation string) bool {
		always, listed := suite[situation]
		return listed && (always || full())
	})
}

// testKernelPeer has the kernel's own driver, and its TCP, at the other end: nothing is left to be done to a frame on a hub, so the kernel
// looks at every checksum.
func testKernelPeer(t *testing.T, c, kernel card) {
	if err := guest.LoadModule("virtio_net"); err != nil {
		t.Fatal(err)
	}
	names := guest.Interfaces(kernel.address(1))
	if len(names) != 1 {
		t.Fatalf("the kernel's card has interfaces %q", names)
	}
	if err := bringUp(names[0], c.hostIP()); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", netip.AddrPortFrom(netip.AddrFrom4(c.hostIP()), portStream).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go streams.Serve(l)
	addr := c.address(1)
	c.bind(t, addr)
	c.peer = kernel.mac()
	s := open(t, c, addr, spec.Restriction{})
	s.start(s.everything())
	if offloads&s.port.Info().Offloads&^(nic.RxScatter|nic.TxMultiSegment) != 0 {
		t.Errorf("a card on a hub has offloads %#x", s.port.Info().Offloads)
	}
	s.testStream(25000, uint64(times(1<<18, 1<<20)))
	s.close()
}

// bringUp gives an interface an address, and brings it up.
func bringUp(name string, ip [4]byte) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for _, step := range []struct {
		request uint
		set     func(r *unix.Ifreq) error
	}{
		{unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(ip[:]) }},
		{unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }},
		{unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }},
	} {
		r, err := unix.NewIfreq(name)
		if err == nil {
			err = errors.Join(step.set(r), unix.IoctlIfreq(fd, step.request, r))
		}
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
	}
	return nil
}
