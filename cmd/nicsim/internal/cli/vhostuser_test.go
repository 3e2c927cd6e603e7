package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"bare.wire/clock"
	"bare.wire/virtio/spec"
	"bare.wire/virtio/spec/vhost"
)

// served is "nicsim vhost-user" as a test runs it.
type served struct {
	t    *testing.T
	path string
	log  sharedBuffer
	end  func() int
}

// serveVhost starts it with these arguments besides the socket, which is there when it returns.
func serveVhost(t *testing.T, args ...string) *served {
	t.Helper()
	s := &served{t: t, path: filepath.Join(t.TempDir(), "nic.sock")}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() {
		var out sharedBuffer
		done <- (&app{out: &out, log: &s.log}).main(ctx, append(append([]string{"vhost-user"}, args...), s.path))
	}()
	s.end = func() int {
		cancel()
		return <-done
	}
	t.Cleanup(cancel)
	return s
}

// dial waits for the socket.
func (s *served) dial(path string) net.Conn {
	s.t.Helper()
	clk := clock.Real()
	for range 10_000 {
		if c, err := net.Dial("unix", path); err == nil {
			return c
		}
		require.NoError(s.t, clk.Sleep(s.t.Context(), time.Millisecond))
	}
	s.t.Fatalf("%s is not there: %s", path, s.log.b.String())
	return nil
}

// features asks for the device's as a front end does.
func (s *served) features() spec.Features {
	s.t.Helper()
	c := vhost.NewConn(s.dial(s.path).(*net.UnixConn))
	defer c.Close()
	require.NoError(s.t, c.Send(s.t.Context(), vhost.NewMessage(vhost.GetFeatures, nil)))
	m, _, err := c.Receive(s.t.Context())
	require.NoError(s.t, err)
	f, err := m.U64()
	require.NoError(s.t, err)
	return spec.Features(f)
}

func TestASocketOffersADevice(t *testing.T) {
	ctl := filepath.Join(t.TempDir(), "ctl")
	s := serveVhost(t, "--features", "-mrg_rxbuf,-ring_packed", "--control", ctl, "--queues", "2")
	f := s.features()
	require.True(t, f.Has(spec.FeatureVersion1|spec.FeatureEventIdx|spec.FeatureMQ|vhost.FeatureProtocolFeatures), "%v", f)
	require.Zero(t, f&(spec.FeatureMrgRxBuf|spec.FeatureRingPacked|spec.FeatureAccessPlatform|spec.FeatureCtrlVQ), "%v", f)

	c := s.dial(ctl)
	defer c.Close()
	in := bufio.NewScanner(c)
	for request, want := range map[string]string{
		`{"do":"counts","card":0}`:                      `"TxFrames":0`,
		`{"do":"misuse","card":0}`:                      `"misuse":[]`,
		`{"do":"forget","card":0}`:                      `"ok":true`,
		`{"do":"dma","card":0}`:                         `"faults":0`,
		`{"do":"link","card":0,"up":false}`:             `"ok":true`,
		`{"do":"fault","card":0,"name":"needs-reset"}`:  `"ok":true`,
		`{"do":"fault","card":0,"name":"needs-a-rest"}`: `"ok":false`,
		`{"do":"faults"}`:                               `"used-id"`,
		`{"do":"sessions","card":0}`:                    `"sessions":1`,
		`{"do":"wire"}`:                                 `"a_to_b"`,
		`{"do":"counts","card":1}`:                      `there are 1`,
		`{"do":"reg","card":0,"off":0}`:                 `want one of counts, dma`,
		`{"do":"remove","card":0}`:                      `"ok":true`,
	} {
		_, err := c.Write([]byte(request + "\n"))
		require.NoError(t, err)
		require.True(t, in.Scan())
		require.Contains(t, in.Text(), want, request)
	}
	require.Zero(t, s.end())
	require.NoFileExists(t, s.path)
	require.NoFileExists(t, ctl)
	require.Contains(t, s.log.b.String(), "nicsim: device 0 ("+s.path+"): 1 front ends, 0 frames sent by them")
}

func TestItEndsAfterItsSessionsAndStrictlySo(t *testing.T) {
	other := filepath.Join(t.TempDir(), "b.sock")
	s := serveVhost(t, "--sessions", "1", "--strict", "--summary", "json", "--wire", "vhost-user:"+other+"?delay=1us")
	require.NotZero(t, s.features())
	c := s.dial(other)
	_, err := c.Write(make([]byte, vhost.HeaderSize)) // a header of version 0
	require.NoError(t, err)
	_, _ = c.Read(make([]byte, 1))
	require.NoError(t, c.Close())
	require.Equal(t, int(Misused), s.end())
	var sum vhostSummary
	require.NoError(t, json.Unmarshal([]byte(s.log.b.String()[strings.IndexByte(s.log.b.String(), '{'):]), &sum))
	require.Len(t, sum.Devices, 2)
	require.EqualValues(t, 0, sum.Devices[0].Failed)
	require.EqualValues(t, 1, sum.Devices[1].Failed)
	require.Contains(t, sum.Devices[1].LastError, "version 0")
}

func TestWrongVhostCommandLinesSayWhatWasMeant(t *testing.T) {
	for _, c := range []struct {
		args []string
		code Code
		want string
	}{
		{nil, Usage, "name one socket"},
		{[]string{"a", "b"}, Usage, "name one socket"},
		{[]string{"--queus", "2", "s"}, Usage, "did you mean --queues?"},
		{[]string{"--queues", "0", "s"}, Usage, "want 1 to 128"},
		{[]string{"--size", "100", "s"}, Usage, "power of two"},
		{[]string{"--mtu", "1", "s"}, Usage, "want 68 to 65535"},
		{[]string{"--sessions", "-1", "s"}, Usage, "want 0 or more"},
		{[]string{"--mac", "01:00:00:00:00:00", "s"}, Usage, "a unicast address"},
		{[]string{"--features", "speed", "s"}, Usage, "known are csum"},
		{[]string{"--features", "mq,-version_1", "s"}, Usage, "nothing is left to offer"},
		{[]string{"--fault", "speed", "s"}, Usage, "used-id"},
		{[]string{"--summary", "xml", "s"}, Usage, "text, json or none"},
		{[]string{"--wire", "pair", "s"}, Usage, "want none, echo, tap:NAME, pcap:FILE or vhost-user:SOCKET"},
		{[]string{"--wire", "vhost-user", "s"}, Usage, "the path of a socket is missing"},
		{[]string{"--wire", "echo:x", "s"}, Usage, "echo takes no name"},
		{[]string{"--wire", "echo?los=1", "s"}, Usage, "los"},
		{[]string{"/nowhere/s"}, Environment, "directory"},
		{[]string{"--wire", "tap:seventeen-letters", "s"}, Environment, "1 to 15 characters"},
		{[]string{"--control", "/nowhere/c", filepath.Join(t.TempDir(), "s")}, Environment, "control socket"},
	} {
		status, _, log := nicsim(t, append([]string{"vhost-user"}, c.args...)...)
		require.Equal(t, int(c.code), status, "%q: %s", c.args, log)
		require.Contains(t, log, c.want, "%q", c.args)
	}
	status, out, _ := nicsim(t, "vhost-user", "--fault", "list")
	require.Zero(t, status)
	require.Contains(t, out, "used-id\n")
}
