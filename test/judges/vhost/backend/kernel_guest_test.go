//go:build guest

package backend

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"bare.wire/clock"
	"bare.wire/sim/tap/taptest"
	"bare.wire/test/guest"
	"bare.wire/test/judges/internal/netns"
	"bare.wire/test/judges/internal/streams"
	"bare.wire/wire"
)

const (
	cardSlot   = "0000:00:04.0"
	streamPort = 5001
)

var (
	hostIP  = netip.MustParseAddr("10.82.61.1")
	guestIP = [4]byte{10, 82, 61, 2}
)

// real is the time that kernels live by.
var real = clock.Real()

// socket is a nicsim vhost-user, in a network of its own, whose wire is that network's kernel.
type socket struct {
	path string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// startNicsim starts it and waits for its socket. What it says at its end is looked at when the test ends.
func startNicsim(t *testing.T) *socket {
	t.Helper()
	ns, err := netns.New()
	require.NoError(t, err)
	t.Cleanup(ns.Close)
	require.NoError(t, ns.AddTAP("tap0", net.HardwareAddr{2, 0, 0, 0, 0, 0x61}, 1500))
	require.NoError(t, ns.SetAddress("tap0", netip.PrefixFrom(hostIP, 24)))
	require.NoError(t, ns.Do(func() error {
		l, err := net.Listen("tcp4", fmt.Sprintf(":%d", streamPort))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		go streams.Serve(l)
		return nil
	}))
	s := &socket{path: filepath.Join(t.TempDir(), "nic.sock")}
	line := append(ns.Enter(), guest.Nicsim(t), "vhost-user", "--wire", "tap:tap0", "--summary", "json", s.path)
	s.cmd = exec.Command(line[0], line[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, s.cmd.Start())
	for range 1000 {
		c, err := net.Dial("unix", s.path)
		if err == nil {
			require.NoError(t, c.Close())
			break
		}
		require.NoError(t, real.Sleep(t.Context(), 10*time.Millisecond))
	}
	t.Cleanup(func() { s.stop(t) })
	return s
}

// stop ends nicsim and holds what it says against what has to have happened.
func (s *socket) stop(t *testing.T) {
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.cmd.Wait(), s.log.String())
	var sum struct {
		Devices []struct {
			Sessions, Kicks, Lost uint64
			Failed                uint64 `json:"failed_sessions"`
			TxFrames              uint64 `json:"tx_frames"`
			RxFrames              uint64 `json:"rx_frames"`
			TxBytes               uint64 `json:"tx_bytes"`
			RxBytes               uint64 `json:"rx_bytes"`
			Misuse                []string
		}
	}
	text := s.log.String()
	require.NoError(t, json.Unmarshal([]byte(text[strings.IndexByte(text, '{'):]), &sum), text)
	require.Len(t, sum.Devices, 1)
	d := sum.Devices[0]
	require.Zero(t, d.Failed, text)
	require.Empty(t, d.Misuse)
	require.Greater(t, d.TxBytes, uint64(streamLen))
	require.Greater(t, d.RxBytes, uint64(streamLen))
	require.Less(t, d.TxFrames, uint64(streamLen/1460), "segments longer than a frame have come")
	t.Logf("%+v", d)
}

// streamLen is how long a stream is, bytes.
const streamLen = 4 << 20

// TestGuestVhostUser has the driver of a guest's kernel drive the device that nicsim offers to QEMU, with the host's kernel behind it:
// pings and streams, with checksums and segments left to the other side.
func TestGuestVhostUser(t *testing.T) {
	for name, options := range map[string]string{"split": "", "packed": ",packed=on"} {
		t.Run(name, func(t *testing.T) {
			m := guest.Machine{ShareRAM: true, Modules: []string{"virtio_net"}, Timeout: 4 * time.Minute}
			if !guest.Inside() {
				s := startNicsim(t)
				m.QEMU = []string{
					"-chardev", "socket,id=c0,path=" + s.path, "-netdev", "vhost-user,id=h0,chardev=c0",
					"-device", "virtio-net-pci,netdev=h0,addr=4,disable-legacy=on,vectors=0" + options,
				}
			}
			guest.Run(t, m, inGuest)
		})
	}
}

func inGuest(t *testing.T) {
	names := guest.Interfaces(cardSlot)
	if len(names) != 1 {
		t.Fatalf("driver %q of %s has made interfaces %q", guest.Driver(cardSlot), cardSlot, names)
	}
	taptest.Up(t, names[0], guestIP)
	for i := range 5 {
		if err := ping(i); err != nil {
			t.Errorf("ping %d: %v", i, err)
		}
	}
	for _, direction := range []byte{streams.TowardsServer, streams.TowardsClient} {
		if err := stream(direction, streamLen); err != nil {
			t.Errorf("stream %d: %v", direction, err)
		}
	}
}

// ping asks the host for an echo, a few times: the link may just have come up.
func ping(i int) error {
	c, err := net.ListenPacket("ip4:icmp", "")
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 400)
	for k := range b[wire.ICMPLen:] {
		b[wire.ICMPLen+k] = byte(k * (i + 3))
	}
	h, err := wire.PutICMP(b, wire.ICMPFields{Type: wire.ICMPEcho, Rest: wire.EchoRest(uint16(i), 1)})
	if err != nil {
		return err
	}
	h.FillChecksum(wire.SumOf(b[wire.ICMPLen:]))
	in := make([]byte, 2000)
	for range 30 {
		if _, err = c.WriteTo(b, &net.IPAddr{IP: hostIP.AsSlice()}); err == nil {
			_ = c.SetReadDeadline(real.Now().Add(time.Second))
			var n int
			for err == nil {
				if n, _, err = c.ReadFrom(in); err == nil && bytes.Equal(in[wire.ICMPLen:max(n, wire.ICMPLen)], b[wire.ICMPLen:]) && in[0] == byte(wire.ICMPEchoReply) {
					return nil
				}
			}
		}
		_ = real.Sleep(context.Background(), 50*time.Millisecond)
	}
	return errors.Join(errors.New("the host does not answer"), err)
}

// stream exchanges n bytes with the host's kernel, and compares what both have.
func stream(direction byte, n uint64) error {
	c, err := net.Dial("tcp4", netip.AddrPortFrom(hostIP, streamPort).String())
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(real.Now().Add(2 * time.Minute))
	if _, err := c.Write(streams.Header(direction, n)); err != nil {
		return err
	}
	ours := sha256.New()
	if direction == streams.TowardsServer {
		_, err = io.Copy(io.MultiWriter(c, ours), streams.Bytes(n))
	} else {
		_, err = io.CopyN(ours, c, int64(n))
	}
	if err != nil {
		return err
	}
	theirs := make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, theirs); err != nil {
		return err
	}
	if !bytes.Equal(ours.Sum(nil), theirs) {
		return errors.New("the host's kernel has other bytes")
	}
	return nil
}
