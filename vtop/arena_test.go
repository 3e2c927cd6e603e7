package vtop

import (
	"context"
	"os"
	"testing"
	"unsafe"

	"bare.wire/hugepage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newArenaOf(t *testing.T, s *Space, size int) *Arena {
	t.Helper()
	a, err := NewArena(s, ArenaConfig{Name: "dev rings", Node: hugepage.AnyNode, Size: size})
	require.NoError(t, err)
	return a
}

func TestArenaPiecesAreAlignedZeroedAndApart(t *testing.T) {
	s := NewMapped()
	a := newArenaOf(t, s, 16<<10)
	end := uint64(0)
	for _, c := range []struct{ size, align int }{{1, 1}, {100, 128}, {3, 4}, {5000, 4096}, {2, 2}} {
		p, bus, err := a.Cut(c.size, c.align)
		require.NoError(t, err)
		assert.Zero(t, bus%uint64(c.align), "%+v", c)
		assert.GreaterOrEqual(t, bus, end, "a piece begins behind the one before")
		end = bus + uint64(c.size)
		mem := unsafe.Slice((*byte)(p), c.size)
		assert.Equal(t, make([]byte, c.size), mem)
		seen, err := s.Bytes(bus, c.size)
		require.NoError(t, err)
		require.Len(t, seen, c.size)
		mem[0] = 42
		assert.Equal(t, byte(42), seen[0], "the device sees the same memory")
	}
	require.NoError(t, a.Free())
	require.Empty(t, s.Regions())
}

func TestArenaThatIsUsedUp(t *testing.T) {
	s := NewMapped()
	a := newArenaOf(t, s, 4096)
	size := a.region.Size()
	_, _, err := a.Cut(size, 4096)
	require.NoError(t, err, "all of it in one piece")
	_, _, err = a.Cut(1, 1)
	require.ErrorContains(t, err, "dev rings: 1 bytes: no contiguous memory left")
	for _, c := range []struct{ size, align int }{{0, 1}, {1, 0}, {1, 3}, {1, 8192}} {
		_, _, err = a.Cut(c.size, c.align)
		require.ErrorContains(t, err, "power of two", "%+v", c)
	}
	require.NoError(t, a.Free())
	require.NoError(t, (*Arena)(nil).Free())
}

// A piece that would lie across two physical pages which are not neighbours begins with the second.
func TestArenaPieceIsContiguousForTheDevice(t *testing.T) {
	f := newFakePhysical(t)
	r := newRegion(t, 2*granule)
	f.place(r, 10, 20)
	require.NoError(t, f.Add(r))
	unhold, err := f.Hold(r)
	require.NoError(t, err)
	a := &Arena{name: "dev rings", space: f.Space, region: r, unhold: unhold}
	_, bus, err := a.Cut(granule-100, 64)
	require.NoError(t, err)
	assert.EqualValues(t, 10*granule, bus)
	_, bus, err = a.Cut(200, 64)
	require.NoError(t, err)
	assert.EqualValues(t, 20*granule, bus)
	_, _, err = a.Cut(granule, 64)
	require.ErrorContains(t, err, "no contiguous memory left")
	require.NoError(t, a.Free())
}

func TestArenaIsHeldUntilFree(t *testing.T) {
	s := NewMapped()
	a := newArenaOf(t, s, 4096)
	now, cancel := context.WithCancel(context.Background())
	cancel()
	require.Error(t, s.Remove(now, a.region), "rings in use")
	release, err := s.Hold(a.region)
	if err == nil { // a region that is leaving takes no more holders
		release()
	}
	require.NoError(t, a.Free())
}

// Pages that are not neighbours have room for all pieces too, whatever is lost at their ends.
func TestArenaOfScatteredPagesHasRoomForAllPieces(t *testing.T) {
	for _, piece := range []int{granule / 2, granule/2 - 64, granule/3 + 64, 65664} {
		f := newFakePhysical(t)
		next := uint64(100)
		n := 5*granule/piece + 1
		a, err := newArena(f.Space, ArenaConfig{Name: "dev rings", Size: n * piece}, func(size int) (*hugepage.Region, error) {
			r := newRegion(t, (size+granule-1)/granule*granule)
			for page := range r.Size() / granule {
				f.set(r, page, entryPresent|next*hugepage.Page2M/uint64(os.Getpagesize()))
				next += 2
			}
			return r, nil
		})
		require.NoError(t, err)
		for i := range n {
			_, _, err := a.Cut(piece, 64)
			require.NoError(t, err, "piece %d of %d of %d bytes", i, n, piece)
		}
		require.NoError(t, a.Free())
		require.Empty(t, f.Regions())
	}
}

func TestArenaThatIsFreedHasNoMemory(t *testing.T) {
	a := newArenaOf(t, NewMapped(), 4096)
	require.NoError(t, a.Free())
	_, _, err := a.Cut(64, 64)
	require.ErrorContains(t, err, "dev rings")
	require.Error(t, a.Free(), "twice")
}
