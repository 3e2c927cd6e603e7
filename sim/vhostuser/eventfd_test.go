package vhostuser

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func eventfd(t *testing.T) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(t, err)
	return fd
}

func TestAKickIsHeardAndStops(t *testing.T) {
	mine := eventfd(t)
	defer unix.Close(mine)
	theirs, err := unix.Dup(mine)
	require.NoError(t, err)
	heard := make(chan struct{}, 10)
	k, err := newKick(theirs, func() { heard <- struct{}{} })
	require.NoError(t, err)
	for range 3 {
		_, err = unix.Write(mine, one)
		require.NoError(t, err)
		<-heard
	}
	k.stop()
	_, err = unix.Write(mine, one)
	require.NoError(t, err)
	require.Empty(t, heard)
}

// TestAKickWithoutNonblockDoesNotHang is about a front end that makes the descriptor, which it shares, block again.
func TestAKickWithoutNonblockDoesNotHang(t *testing.T) {
	mine := eventfd(t)
	defer unix.Close(mine)
	theirs, err := unix.Dup(mine)
	require.NoError(t, err)
	heard := make(chan struct{}, 10)
	k, err := newKick(theirs, func() { heard <- struct{}{} })
	require.NoError(t, err)
	require.NoError(t, unix.SetNonblock(mine, false))
	_, err = unix.Write(mine, one)
	require.NoError(t, err)
	<-heard
	k.stop()
}

func TestWhatIsNoEventDescriptorIsRefused(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer f.Close()
	fd, err := unix.Dup(int(f.Fd()))
	require.NoError(t, err)
	_, err = newKick(fd, func() {})
	require.ErrorContains(t, err, "want an eventfd")
	require.ErrorIs(t, unix.Close(fd), unix.EBADF, "it was closed")
	_, err = newCall(-1)
	require.ErrorContains(t, err, "call descriptor")
}

func TestACallIsHeard(t *testing.T) {
	mine := eventfd(t)
	defer unix.Close(mine)
	theirs, err := unix.Dup(mine)
	require.NoError(t, err)
	c, err := newCall(theirs)
	require.NoError(t, err)
	for range 3 {
		c.send()
		raised(t, mine)
	}
	c.close()
	c.send() // too late: it is nobody's
	require.ErrorIs(t, unix.Close(theirs), unix.EBADF)
}

func TestTheLastCallIsNotLost(t *testing.T) {
	mine := eventfd(t)
	defer unix.Close(mine)
	for range 50 { // which of the two it hears of first is a matter of luck
		theirs, err := unix.Dup(mine)
		require.NoError(t, err)
		c, err := newCall(theirs)
		require.NoError(t, err)
		c.send()
		c.close()
		require.NoError(t, takeEvent(mine))
	}
}

// raised waits until an eventfd has been written to.
func raised(t *testing.T, fd int) {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for n := 0; n == 0; {
		var err error
		if n, err = unix.Poll(p, -1); !errors.Is(err, unix.EINTR) {
			require.NoError(t, err)
		}
	}
	require.NoError(t, takeEvent(fd))
}

// TestACallThatBlocksStopsNobody is about a front end that fills the counter, and makes writes to it wait for room.
func TestACallThatBlocksStopsNobody(t *testing.T) {
	mine := eventfd(t)
	defer unix.Close(mine)
	theirs, err := unix.Dup(mine)
	require.NoError(t, err)
	c, err := newCall(theirs)
	require.NoError(t, err)
	require.NoError(t, unix.SetNonblock(mine, false))
	_, err = unix.Write(mine, binary.NativeEndian.AppendUint64(nil, math.MaxUint64-1))
	require.NoError(t, err)
	for range 3 {
		c.send()
	}
	c.close()
	require.ErrorIs(t, unix.Close(theirs), unix.EBADF)
}
