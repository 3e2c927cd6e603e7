//go:build guest

package netns

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"bare.wire/clock"
	"bare.wire/test/judges/internal/frames"
)

// plug opens the other side of a TAP interface, where a card would be.
func plug(t *testing.T, n *Namespace, name string) *os.File {
	t.Helper()
	var fd int
	require.NoError(t, n.Do(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		r, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, r)
	}))
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func network(t *testing.T) *Namespace {
	t.Helper()
	n, err := New()
	require.NoError(t, err)
	t.Cleanup(n.Close)
	require.NoError(t, n.AddTAP("tap0", net.HardwareAddr{2, 0, 0, 0, 0, 9}, 9000))
	return n
}

func testFrame(length int, tag ...byte) []byte {
	f := append([]byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8}, tag...)
	f = append(f, 0x88, 0xb5)
	for len(f) < length {
		f = append(f, byte(len(f)))
	}
	return f
}

func TestGuestHostFramesPassATAPByteByByte(t *testing.T) {
	n := network(t)
	wire := plug(t, n, "tap0")
	s, err := n.Packets("tap0")
	require.NoError(t, err)
	defer s.Close()
	for _, f := range [][]byte{
		testFrame(60), testFrame(1514), testFrame(9014), testFrame(64, 0x81, 0, 0x61, 0x23), testFrame(64, 0x88, 0xa8, 0, 5),
	} {
		_, err := wire.Write(f)
		require.NoError(t, err)
		got, err := s.Receive(t.Context())
		require.NoError(t, err)
		assert.Equal(t, f, got)

		require.NoError(t, s.Send(f))
		buf := make([]byte, 10000)
		k, err := wire.Read(buf)
		require.NoError(t, err)
		assert.Equal(t, f, buf[:k])
	}
	assert.Empty(t, s.Drain(), "frames that were sent, or that nobody sent")
}

func TestGuestHostKernelAnswersInTheNamespace(t *testing.T) {
	n := network(t)
	plug(t, n, "tap0") // without a carrier nothing is sent
	require.NoError(t, n.SetAddress("tap0", netip.MustParsePrefix("192.0.2.1/24")))
	s, err := n.Echoes(netip.MustParseAddr("192.0.2.1"))
	require.NoError(t, err)
	defer s.Close()
	request := []byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1} // echo, checksum, identifier 1, number 1
	require.NoError(t, s.Send(request))
	for {
		got, err := s.Receive(t.Context())
		require.NoError(t, err)
		if got[0] == 0 { // the socket sees the request as well
			assert.Equal(t, request[4:], got[4:])
			return
		}
	}
}

func TestGuestHostCommandsRunInTheNamespace(t *testing.T) {
	n := network(t)
	enter := append(n.Enter(), "cat", "/proc/net/dev")
	out, err := exec.Command(enter[0], enter[1:]...).Output()
	require.NoError(t, err)
	assert.True(t, bytes.Contains(out, []byte("tap0:")), "%s", out)
	_, err = net.InterfaceByName("tap0")
	assert.Error(t, err, "the machine's own network sees it")
}

func TestGuestHostFramesSayWhatIsLeftToBeDone(t *testing.T) {
	n := network(t)
	wire := plug(t, n, "tap0")
	s, err := n.PacketsWithHeader("tap0")
	require.NoError(t, err)
	defer s.Close()
	d := frames.Datagram{To: [6]byte{2, 0, 0, 0, 0, 8}, From: [6]byte{2, 0, 0, 0, 0, 9}, TCP: true, Src: [4]byte{192, 0, 2, 1}, Dst: [4]byte{192, 0, 2, 2}, Flags: frames.ACK}
	d.Payload = bytes.Repeat([]byte("seventeen bytes, "), 150)
	// The wire has no header, so that the kernel does what is left: sums, and 1000 bytes a segment.
	// For a moment after it has got its carrier the interface's queue swallows what is sent.
	go func() {
		for s.Send(append(d.Header(1000).Bytes(), d.Partial()...)) == nil && clock.Real().Sleep(t.Context(), 100*time.Millisecond) == nil {
		}
	}()
	var payload []byte
	for len(payload) < len(d.Payload) {
		buf := make([]byte, 10000)
		k, err := wire.Read(buf)
		require.NoError(t, err)
		got, wrong := frames.ParseTCP(buf[:k], true)
		require.Empty(t, wrong)
		assert.LessOrEqual(t, len(got.Payload), 1000)
		require.Equal(t, len(payload), int(got.Seq))
		payload = append(payload, got.Payload...)
	}
	assert.Equal(t, d.Payload, payload)
	whole := d
	whole.Payload = d.Payload[:100]
	_, err = wire.Write(whole.Whole())
	require.NoError(t, err)
	got, err := s.Receive(t.Context())
	require.NoError(t, err)
	assert.Equal(t, frames.Vnet{}, frames.ParseVnet(got))
	assert.Equal(t, whole.Whole(), got[VNetHeaderLen:])
}
