package vtop

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"bare.wire/hugepage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestPhysicalPagesThatFollowEachOtherAreOneRun(t *testing.T) {
	s, split, whole := fragmented(t)
	assert.True(t, s.Physical())
	assert.Equal(t, []Range{
		{10 * granule, 12*granule - 1}, {20 * granule, 21*granule - 1}, {5 * granule, 7*granule - 1},
	}, s.Regions()[0].Bus)
	assert.Equal(t, []Range{{12 * granule, 14*granule - 1}}, s.Regions()[1].Bus)

	assert.Equal(t, 2*granule, s.Contiguous(split.Base()))
	assert.Equal(t, 1, s.Contiguous(at(split, 2*granule-1)))
	assert.Equal(t, granule, s.Contiguous(at(split, 2*granule)))
	assert.Equal(t, 2*granule-5, s.Contiguous(at(split, 3*granule+5)))
	assert.Equal(t, 2*granule, s.Contiguous(whole.Base()))
}

func TestBufferAcrossADiscontinuityIsRefused(t *testing.T) {
	s, split, _ := fragmented(t)
	bus, err := s.Bus(split.Base(), 2*granule)
	require.NoError(t, err)
	assert.Equal(t, uint64(10*granule), bus)
	_, err = s.Bus(at(split, 2*granule-1), 2)
	require.ErrorIs(t, err, ErrSplit)
	require.ErrorContains(t, err, "after 1 bytes")
	_, err = s.Bus(split.Base(), 5*granule)
	require.ErrorIs(t, err, ErrSplit)
	_, err = s.Bus(split.Base(), 5*granule+1)
	require.ErrorIs(t, err, ErrOutside)
}

// Physical memory goes on into another region at 12: a device in software gets
// there in two steps.
func TestBytesEndWhereTheMemoryGoesOnElsewhere(t *testing.T) {
	s, split, whole := fragmented(t)
	b, err := s.Bytes(12*granule-10, 100)
	require.NoError(t, err)
	require.Len(t, b, 10)
	assert.Same(t, &split.Bytes()[2*granule-10], &b[0])
	b, err = s.Bytes(12*granule, 90)
	require.NoError(t, err)
	require.Len(t, b, 90)
	assert.Same(t, &whole.Bytes()[0], &b[0])
}

func TestPageMapIsNotBelieved(t *testing.T) {
	frames := uint64(granule / os.Getpagesize())
	for _, c := range []struct {
		name  string
		pages []uint64 // raw entries
		want  string
	}{
		{"frame number hidden", []uint64{entryPresent, entryPresent}, "CAP_SYS_ADMIN"},
		{"second hidden", []uint64{entryPresent | 7*frames, entryPresent}, "CAP_SYS_ADMIN"},
		{"not in memory", []uint64{7 * frames, 8 * frames}, "not in memory"},
		{"swapped", []uint64{1<<62 | 7*frames, 0}, "not in memory"},
		{"not aligned", []uint64{entryPresent | (7*frames + 1), entryPresent | 8*frames}, "not a multiple"},
		{"beyond the address bus", []uint64{entryPresent | entryFrame, entryPresent | 8*frames}, "beyond 52 bits"},
		{"first frame beyond", []uint64{entryPresent | maxPhysical/uint64(os.Getpagesize()), 0}, "beyond 52 bits"},
		{"one frame twice", []uint64{entryPresent | 7*frames, entryPresent | 7*frames}, "occurs twice"},
		{"of another region", []uint64{entryPresent | 99*frames, entryPresent | 100*frames}, "cannot be trusted"},
		{"end of file", []uint64{}, "page map: entry of address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakePhysical(t)
			if c.name == "of another region" {
				other := newRegion(t, granule)
				f.place(other, 100)
				require.NoError(t, f.Add(other))
			}
			r := newRegion(t, 2*granule)
			for i, e := range c.pages {
				f.set(r, i, e)
			}
			require.ErrorContains(t, f.Add(r), c.want)
			require.NoError(t, r.Close(), "not added, not pinned")
		})
	}
}

// Bits 55 to 62 say other things about the page, and not where it is.
func TestFlagsBesideTheFrameNumberAreIgnored(t *testing.T) {
	f := newFakePhysical(t)
	r := newRegion(t, granule)
	f.set(r, 0, 0xff<<55|entryPresent|10*granule/uint64(os.Getpagesize()))
	require.NoError(t, f.Add(r))
	assert.Equal(t, uint64(10*granule), busOf(t, f.Space, r))
}

func TestAddressesBelow52BitsAreFine(t *testing.T) {
	f := newFakePhysical(t)
	r := newRegion(t, granule)
	f.place(r, maxPhysical/granule-1)
	require.NoError(t, f.Add(r))
	assert.Equal(t, uint64(maxPhysical-granule), busOf(t, f.Space, r))
}

func TestPhysicalAddressesADeviceCannotReach(t *testing.T) {
	f := newFakePhysical(t)
	r := newRegion(t, 2*granule)
	f.place(r, 10, 3000)
	m := newFake("32-bit device", Range{0, math.MaxUint32})
	require.NoError(t, f.Attach(m))
	require.ErrorContains(t, f.Add(r), "outside what 32-bit device can use")
	m.check(t, f.Space)
	require.NoError(t, f.Detach(m))
	require.NoError(t, f.Add(r))
	require.ErrorContains(t, f.Attach(m), Range{3000 * granule, 3001*granule - 1}.String())
	m.check(t, f.Space)
}

func TestOrdinaryMemoryHasNoPhysicalAddresses(t *testing.T) {
	f := newFakePhysical(t)
	f.pageOf = hugePageOf
	r := newRegion(t, 5<<20)
	err := f.Add(r)
	require.ErrorIs(t, err, hugepage.ErrNoHugePages)
	require.ErrorContains(t, err, "sysctl -w vm.nr_hugepages=3")
	require.NoError(t, r.Close())
}

// fixedEntry is a page map that says the same of every page.
type fixedEntry []byte

func (e fixedEntry) ReadAt(b []byte, _ int64) (int, error) { return bytes.NewReader(e).ReadAt(b, 0) }

func TestProcessThatMayNotReadPhysicalAddresses(t *testing.T) {
	require.ErrorIs(t, probe(fixedEntry{7: 0x80}), errUnprivileged, "present, frame number 0")
	require.NoError(t, probe(fixedEntry{0: 5, 7: 0x80}))
	require.ErrorIs(t, probe(fixedEntry{1, 2, 3}), io.EOF, "a short read is an error")

	_, err := newPhysical(filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, errUnprivileged)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// The kernel itself, asked without CAP_SYS_ADMIN, whoever runs the test.
func TestKernelHidesPhysicalAddressesFromTheUnprivileged(t *testing.T) {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its privileges
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&hdr, &none[0]); err != nil {
			failed <- errors.Join(errors.New("cannot give up capabilities"), err)
			return
		}
		_, err := NewPhysical()
		failed <- err
	}()
	err := <-failed
	require.ErrorIs(t, err, errUnprivileged)
	require.ErrorContains(t, err, "CAP_SYS_ADMIN")
}

// Whatever this machine can do: real addresses, or the error that says what is
// missing.
func TestPhysicalAddressesOfThisMachine(t *testing.T) {
	s, err := NewPhysical()
	if err != nil {
		require.ErrorIs(t, err, errUnprivileged)
		return
	}
	r, err := hugepage.Alloc(hugepage.Config{Size: 3 * granule, Node: hugepage.AnyNode, Name: "physical-test"})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	err = s.Add(r)
	if !r.Huge() {
		require.ErrorIs(t, err, hugepage.ErrNoHugePages)
		require.ErrorContains(t, err, "nr_hugepages")
		return
	}
	require.NoError(t, err)
	for off := 0; off < r.Size(); off += 4096 {
		bus, err := s.Bus(at(r, off), 4096)
		require.NoError(t, err)
		require.Less(t, bus, uint64(maxPhysical))
		require.Equal(t, uint64(off%r.PageSize()), bus%uint64(r.PageSize()))
		b, err := s.Bytes(bus, 4096)
		require.NoError(t, err)
		require.Same(t, &r.Bytes()[off], &b[0])
	}
	require.NoError(t, remove(s, r))
}
