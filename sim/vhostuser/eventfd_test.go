package vhostuser

import (
	"encoding/binary"
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

func TestACallIsCounted(t *testing.T) {
	mine := eventfd(t)
	defer unix.Close(mine)
	theirs, err := unix.Dup(mine)
	require.NoError(t, err)
	c, err := newCall(theirs)
	require.NoError(t, err)
	c.send()
	c.send()
	var b [8]byte
	_, err = unix.Read(mine, b[:])
	require.NoError(t, err)
	require.EqualValues(t, 2, binary.NativeEndian.Uint64(b[:]))
	c.close()
	require.ErrorIs(t, unix.Close(theirs), unix.EBADF)
}
