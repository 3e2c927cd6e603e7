package vhostuser

import (
	"errors"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"bare.wire/virtio/spec/vhost"
)

const pageLen = 4096

// memfd is a file of n bytes, each page of which begins with its number.
func memfd(t *testing.T, n int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Ftruncate(fd, n))
	for at := int64(0); at < min(n, 64*pageLen); at += pageLen {
		_, err = unix.Pwrite(fd, []byte{byte(at / pageLen)}, at)
		require.NoError(t, err)
	}
	return fd
}

func TestMemoryIsFoundByItsAddresses(t *testing.T) {
	var m Memory
	defer func() { require.NoError(t, m.clear()) }()
	fd := memfd(t, 8*pageLen)
	require.NoError(t, m.set([]vhost.Region{
		{Addr: 0x10000, Size: 2 * pageLen, UserAddr: 0x7f0000000000, Offset: 2 * pageLen},
		{Addr: 0x20000, Size: pageLen + 100, UserAddr: 0x7f0000100000, Offset: 4*pageLen + 10},
	}, []int{fd, fd}))
	b, err := m.Bytes(0x11000, 100)
	require.NoError(t, err)
	require.Len(t, b, 100)
	require.Equal(t, byte(3), b[0])
	b, err = m.Bytes(0x11fff, 100)
	require.NoError(t, err)
	require.Len(t, b, 1, "the region ends there")
	require.Equal(t, 1, cap(b))
	b, err = m.Bytes(0x20000+pageLen-10, 1<<30)
	require.NoError(t, err)
	require.Len(t, b, 110)
	require.Equal(t, byte(5), b[0])
	for _, hole := range []uint64{0, 0xffff, 0x12000, 0x1ffff, 0x20000 + pageLen + 100, math.MaxUint64} {
		_, err = m.Bytes(hole, 1)
		require.ErrorContains(t, err, "in none of the 2 regions", "%#x", hole)
	}
	require.EqualValues(t, 6, m.Faults())
	at, err := m.guest(0x7f0000000010, 16)
	require.NoError(t, err)
	require.EqualValues(t, 0x10010, at)
	_, err = m.guest(0x7f0000000010, 2*pageLen)
	require.ErrorContains(t, err, "run out of")
	_, err = m.guest(0x10000, 1)
	require.ErrorContains(t, err, "user address 0x10000")
}

func TestHostileTablesAreRefused(t *testing.T) {
	fd := memfd(t, 4*pageLen)
	sparse := memfd(t, maxMapped+pageLen)
	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	readOnly, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	require.NoError(t, err)
	defer readOnly.Close()
	disk, err := os.Open("/proc/self/exe") // a file whose pages come from elsewhere, when they come
	require.NoError(t, err)
	defer disk.Close()
	ok := vhost.Region{Addr: 0, Size: pageLen, UserAddr: 0}
	for _, c := range []struct {
		regions []vhost.Region
		fds     []int
		want    string
	}{
		{[]vhost.Region{{Addr: 0, Size: 0}}, []int{fd}, "empty"},
		{[]vhost.Region{{Addr: math.MaxUint64, Size: 2}}, []int{fd}, "over the end"},
		{[]vhost.Region{{UserAddr: math.MaxUint64, Size: 2}}, []int{fd}, "over the end"},
		{[]vhost.Region{{Offset: math.MaxUint64, Size: 2}}, []int{fd}, "over the end"},
		{[]vhost.Region{{Size: math.MaxUint64}}, []int{fd}, "GiB"},
		{[]vhost.Region{{Size: 5 * pageLen}}, []int{fd}, "its file has"},
		{[]vhost.Region{{Size: pageLen, Offset: 3*pageLen + 1}}, []int{fd}, "its file has"},
		{[]vhost.Region{{Size: maxMapped + 1}}, []int{sparse}, "GiB"},
		{[]vhost.Region{{Size: maxMapped}, {Addr: 1 << 50, UserAddr: 1 << 50, Size: pageLen}}, []int{sparse, fd}, "GiB"},
		{[]vhost.Region{{Size: pageLen}}, []int{pipe[0]}, "not in memory"},
		{[]vhost.Region{{Size: pageLen}}, []int{int(disk.Fd())}, "share a memfd"},
		{[]vhost.Region{{Size: pageLen}}, []int{-1}, "its file"},
		{[]vhost.Region{{Size: pageLen}}, []int{int(readOnly.Fd())}, "permission denied"},
		{[]vhost.Region{ok, {Addr: pageLen - 1, UserAddr: 1 << 20, Size: pageLen}}, []int{fd, fd}, "overlaps"},
		{[]vhost.Region{ok, {Addr: 1 << 20, UserAddr: pageLen - 1, Size: pageLen}}, []int{fd, fd}, "overlaps"},
		{[]vhost.Region{ok}, nil, "0 descriptors"},
		{make([]vhost.Region, 9), make([]int, 9), "at most 8"},
	} {
		var m Memory
		require.ErrorContains(t, m.set(c.regions, c.fds), c.want, "%v", c.regions)
		require.Empty(t, m.table)
	}
}

func TestRegionsComeAndGo(t *testing.T) {
	var m Memory
	fd := memfd(t, 4*pageLen)
	r := func(i uint64) vhost.Region {
		return vhost.Region{Addr: i << 20, Size: pageLen, UserAddr: i << 30, Offset: pageLen}
	}
	for i := range uint64(maxSlots) {
		require.NoError(t, m.add(r(i), fd))
	}
	require.ErrorContains(t, m.add(r(99), fd), "the most that there can be")
	require.NoError(t, m.remove(r(3)))
	require.ErrorContains(t, m.remove(r(3)), "there is none")
	_, err := m.Bytes(3<<20, 1)
	require.Error(t, err)
	require.NoError(t, m.set([]vhost.Region{r(3)}, []int{fd}))
	require.Len(t, m.table, 1)
	require.Error(t, m.set([]vhost.Region{r(4), r(4)}, []int{fd, fd}))
	b, err := m.Bytes(3<<20, 1)
	require.NoError(t, err, "a table that is refused leaves the old one")
	require.Equal(t, byte(1), b[0])
	require.NoError(t, m.clear())
}

// TestAFileThatIsCutIsAnError is what would otherwise be SIGBUS and the end of the process.
func TestAFileThatIsCutIsAnError(t *testing.T) {
	var m Memory
	defer func() { require.NoError(t, m.clear()) }()
	fd := memfd(t, 4*pageLen)
	require.NoError(t, m.set([]vhost.Region{{Size: 4 * pageLen}}, []int{fd}))
	require.NoError(t, unix.Ftruncate(fd, pageLen))
	b, err := m.Bytes(2*pageLen, 8)
	require.NoError(t, err)
	require.ErrorContains(t, guard(&m, func() error { b[0]++; return nil }), "made shorter")
	require.ErrorContains(t, guard(&m, func() error { _ = append([]byte(nil), b...); return nil }), "made shorter")
	require.NoError(t, guard(&m, func() error { return nil }))
	own := errors.New("own")
	require.ErrorIs(t, guard(&m, func() error { return own }), own)
	require.Panics(t, func() { _ = guard(&m, func() error { panic("ours") }) })
}
