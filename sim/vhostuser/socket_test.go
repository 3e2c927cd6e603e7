package vhostuser

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/virtio/spec/vhost"
)

// TestASocketIsTakenOverFromADeadProcessOnly is about the file that is left by one that was killed.
func TestASocketIsTakenOverFromADeadProcessOnly(t *testing.T) {
	r := newRig(t)
	_, err := New(Config{Path: r.path, World: r.world, Device: r.dev, Memory: r.dev.mem})
	require.ErrorContains(t, err, "in use by another process")
	dir := t.TempDir()
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/sock", Net: "unix"})
	require.NoError(t, err)
	dead.SetUnlinkOnClose(false)
	require.NoError(t, dead.Close())
	b, err := New(Config{Path: dir + "/sock", World: r.world, Device: r.dev, Memory: r.dev.mem})
	require.NoError(t, err)
	require.NoError(t, b.Close())
	_, err = New(Config{Path: dir, World: r.world, Device: r.dev, Memory: r.dev.mem})
	require.ErrorContains(t, err, "is no socket")
	other, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/datagrams", Net: "unixgram"})
	require.NoError(t, err)
	defer other.Close()
	_, err = New(Config{Path: dir + "/datagrams", World: r.world, Device: r.dev, Memory: r.dev.mem})
	require.ErrorContains(t, err, "in use by another process", "and does not speak to streams")
	require.FileExists(t, dir+"/datagrams")
	for _, path := range []string{"", "/" + strings.Repeat("x", 107)} {
		_, err = New(Config{Path: path, World: r.world, Device: r.dev, Memory: r.dev.mem})
		require.ErrorContains(t, err, "1 to 107 bytes")
	}
	_, err = New(Config{Path: dir + "/nowhere/sock", World: r.world, Device: r.dev, Memory: r.dev.mem})
	require.ErrorContains(t, err, "directory")
}

// TestAfterItsSessionsASocketRefuses has one more front end come than are served.
func TestAfterItsSessionsASocketRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	world := sim.NewWorld(clock.NewVirtual(time.Unix(0, 0)))
	b, err := New(Config{Path: path, World: world, Device: &fakeDevice{}, Memory: &Memory{}, Sessions: 1})
	require.NoError(t, err)
	c, err := net.Dial("unix", path)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, b.Run(t.Context()))
	_, err = net.Dial("unix", path)
	require.Error(t, err)
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
}

// TestABackEndThatCanNeverConnectSaysSo does not wait for what will not come.
func TestABackEndThatCanNeverConnectSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	other, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer other.Close()
	world := sim.NewWorld(clock.NewVirtual(time.Unix(0, 0)))
	b, err := New(Config{Path: path, Client: true, World: world, Device: &fakeDevice{}, Memory: &Memory{}})
	require.NoError(t, err)
	require.ErrorContains(t, b.Run(t.Context()), "stream socket")
	require.NoError(t, b.Close())
}

// TestABackEndThatConnectsWaitsForItsFrontEnd is the client mode.
func TestABackEndThatConnectsWaitsForItsFrontEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	world := sim.NewWorld(clock.NewVirtual(time.Unix(0, 0)))
	mem := &Memory{}
	b, err := New(Config{Path: path, Client: true, World: world, Device: &fakeDevice{}, Memory: mem})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	defer ln.Close()
	for range 2 {
		c, err := ln.AcceptUnix()
		require.NoError(t, err)
		r := &rig{t: t, conn: vhost.NewConn(c)}
		require.NotZero(t, r.number(vhost.GetFeatures))
		require.NoError(t, r.conn.Close())
	}
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, b.Close())
}
