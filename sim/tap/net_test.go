package tap

import (
	"bytes"
	"context"
	"encoding/binary"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/sim/tap/taptest"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio/spec"
	"bare.wire/wire"
)

// read is what was read from the kernel: a header and a frame, in a buffer with room.
func read(h virtionet.Header, frame []byte) []byte {
	b := make([]byte, spec.HdrSizeLegacy+len(frame), 256)
	h.Put(b)
	copy(b[spec.HdrSizeLegacy:], frame)
	return b
}

// udp is a datagram whose checksum field holds the sum of the pseudo-header.
func udp(t *testing.T, payload string) (frame []byte, h virtionet.Header) {
	t.Helper()
	frame = make([]byte, 14+20+8, 128)
	frame = append(frame, payload...)
	_, err := wire.PutEthernet(frame, wire.EthernetFields{Type: wire.EtherTypeIPv4})
	require.NoError(t, err)
	ip, err := wire.PutIPv4(frame[14:], wire.IPv4Fields{TTL: 1, Proto: wire.ProtoUDP, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}, PayloadLen: 8 + len(payload)})
	require.NoError(t, err)
	binary.BigEndian.PutUint16(frame[38:], uint16(8+len(payload)))
	binary.BigEndian.PutUint16(frame[40:], uint16(ip.PseudoSum(8+len(payload))))
	return frame, virtionet.Header{Flags: spec.HdrNeedsCSum, CSumStart: 34, CSumOffset: 6}
}

func TestAPartialChecksumIsCompletedForADriverThatTakesNone(t *testing.T) {
	frame, h := udp(t, "odd")
	n := &Net{}
	got, b, ok := n.take(read(h, frame))
	require.True(t, ok)
	require.Equal(t, virtionet.Header{}, got)
	require.Len(t, b, 60, "as short frames are on a wire")
	l, err := wire.Parse(b)
	require.NoError(t, err)
	require.True(t, l.IPv4(b).ChecksumOK())
	require.True(t, wire.SumOf(b[34:45]).Add(l.IPv4(b).PseudoSum(11)).OK(), "%x", b)

	n.takes = spec.FeatureGuestCSum
	got, b, ok = n.take(read(h, frame))
	require.True(t, ok)
	require.Equal(t, h, got)
	require.Equal(t, frame[40:42], b[40:42], "as it came")
}

func TestWhatADriverDoesNotTakeIsNotGivenToIt(t *testing.T) {
	frame, h := udp(t, "some bytes of payload, and a few more")
	for _, c := range []struct {
		takes spec.Features
		kind  uint8
		want  bool
	}{
		{spec.FeatureGuestCSum, spec.GSOTCPv4, false},
		{spec.FeatureGuestCSum | spec.FeatureGuestTSO4, spec.GSOTCPv4, true},
		{spec.FeatureGuestCSum | spec.FeatureGuestTSO4, spec.GSOTCPv6, false},
		{spec.FeatureGuestCSum | spec.FeatureGuestTSO6, spec.GSOTCPv6, true},
		{spec.FeatureGuestCSum | spec.FeatureGuestTSO4, spec.GSOTCPv4 | spec.GSOECN, false},
		{spec.FeatureGuestCSum | spec.FeatureGuestTSO4 | spec.FeatureGuestECN, spec.GSOTCPv4 | spec.GSOECN, true},
		{offloads, spec.GSOUDPL4, false},
		{offloads, spec.GSONone, true},
	} {
		h.GSOType, h.GSOSize = c.kind, 500
		_, _, ok := (&Net{takes: c.takes}).take(read(h, frame))
		require.Equal(t, c.want, ok, "%v %#x", c.takes, c.kind)
	}
	n := &Net{}
	_, _, ok := n.take(read(virtionet.Header{Flags: spec.HdrNeedsCSum, CSumStart: 80, CSumOffset: 6}, frame))
	require.False(t, ok, "a checksum beyond the frame")
	_, _, ok = n.take(make([]byte, spec.HdrSizeLegacy))
	require.False(t, ok, "a header alone")
}

func TestFramesAndTheLinkOfANet(t *testing.T) {
	if !taptest.OwnNetwork(t) {
		return
	}
	clk := clock.Real()
	world := sim.NewWorld(clk)
	n, err := OpenNet("pg%d", world)
	require.NoError(t, err)
	require.Equal(t, "pg0", n.Name())
	ctx, cancel := context.WithCancel(t.Context())
	var beside sync.WaitGroup
	beside.Go(func() { _ = world.Run(ctx) })
	defer func() {
		cancel()
		beside.Wait()
		require.NoError(t, n.Close())
		require.NoError(t, n.Close())
	}()
	locked := func(f func()) {
		world.Lock()
		defer world.Unlock()
		f()
	}
	await := func(what string, ok func() bool) {
		t.Helper()
		for range 30_000 {
			if ok() {
				return
			}
			require.NoError(t, clk.Sleep(t.Context(), time.Millisecond))
		}
		t.Fatalf("waited for %s", what)
	}
	var changes, arrivals atomic.Int32
	locked(func() {
		n.OnChange(func(bool) { changes.Add(1) })
		n.OnArrival(func(int64) { arrivals.Add(1) })
		require.False(t, n.Up(), "the interface is down")
	})
	taptest.Flags(t, "pg0", func(f uint16) uint16 { return f | unix.IFF_UP })
	await("a link", func() bool { return changes.Load() == 1 })
	// The kernel takes an interface that has just come up for running until it has looked at its carrier.
	await("no carrier: nobody is there", func() bool { return taptest.Flags(t, "pg0", nil)&unix.IFF_RUNNING == 0 })
	locked(func() { n.SetUp(true) })
	await("a carrier", func() bool { return taptest.Flags(t, "pg0", nil)&unix.IFF_RUNNING != 0 })

	s := packets(t, "pg0")
	for i := range 20 { // one after another, so that the goroutine that waits is asked again each time
		sent := frame(60+i*50, i)
		_, err = unix.Write(s, sent)
		require.NoError(t, err)
		var got []byte
		await("a frame", func() (ok bool) {
			locked(func() {
				var b []byte
				if _, b, ok = n.Receive(clk.Nanos()); ok {
					got = bytes.Clone(b)
				}
			})
			return ok
		})
		require.Equal(t, sent, got)
		locked(func() { n.Send(virtionet.Header{}, sent, 0) })
		back := make([]byte, 4096)
		k, err := unix.Read(s, back)
		require.NoError(t, err)
		require.Equal(t, sent, back[:k])
	}
	require.Equal(t, NetCounts{FromKernel: 20, ToKernel: 20}, n.Counts())
	require.Positive(t, arrivals.Load())
	locked(func() {
		n.Send(virtionet.Header{Flags: spec.HdrNeedsCSum, CSumStart: 5000, CSumOffset: 16}, frame(60, 1), 0)
	})
	require.EqualValues(t, 1, n.Counts().Refused, "the kernel looks at headers")

	require.NoError(t, exec.Command("ip", "link", "del", "pg0").Run())
	await("the end of the interface", func() (down bool) {
		locked(func() {
			_, _, _ = n.Receive(clk.Nanos())
			down = !n.Up()
		})
		return down
	})
}
