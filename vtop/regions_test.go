package vtop

import (
	"context"
	"os"
	"testing"
	"testing/synctest"

	"bare.wire/hugepage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRegionInASpaceCannotBeClosed(t *testing.T) {
	s := NewMapped()
	r := mustAdd(t, s, 4096)
	require.Error(t, r.Close())
	require.NoError(t, remove(s, r))
	require.NoError(t, r.Close())
	assert.ErrorIs(t, s.Add(r), os.ErrClosed)
}

func TestRemovedRegionIsNotTranslated(t *testing.T) {
	s := NewMapped()
	r := mustAdd(t, s, 4096)
	bus := busOf(t, s, r)
	require.NoError(t, remove(s, r))
	_, err := s.Bus(r.Base(), 1)
	assert.ErrorIs(t, err, ErrOutside)
	_, err = s.Bytes(bus, 1)
	assert.ErrorIs(t, err, ErrOutside)
	assert.Empty(t, s.Regions())
}

func TestAddTwiceAndRemoveTwice(t *testing.T) {
	s := NewMapped()
	r := mustAdd(t, s, 4096)
	require.ErrorContains(t, s.Add(r), "already")
	require.NoError(t, remove(s, r))
	require.ErrorContains(t, remove(s, r), "not in the space")
	_, err := s.Hold(r)
	require.ErrorContains(t, err, "not in the space")
	require.NoError(t, r.Close(), "one pin for one Add")
}

func TestOneRegionInTwoSpaces(t *testing.T) {
	a, b := NewMapped(), NewMapped()
	r := mustAdd(t, a, 4096)
	require.NoError(t, b.Add(r))
	require.NoError(t, remove(a, r))
	require.Error(t, r.Close())
	require.NoError(t, remove(b, r))
	require.NoError(t, r.Close())
}

func TestRemoveWaitsForHolders(t *testing.T) {
	s := NewMapped()
	r := mustAdd(t, s, 4096)
	synctest.Test(t, func(t *testing.T) {
		one, err := s.Hold(r)
		require.NoError(t, err)
		two, err := s.Hold(r)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- remove(s, r) }()
		synctest.Wait()
		require.Equal(t, Info{Region: r, Bus: s.Regions()[0].Bus, Holders: 2, Leaving: true}, s.Regions()[0])
		busOf(t, s, r) // its holders still find it

		_, err = s.Hold(r)
		require.ErrorContains(t, err, "being removed")
		require.ErrorContains(t, remove(s, r), "being removed already")

		one()
		one() // counts once
		synctest.Wait()
		require.Empty(t, done)
		two()
		require.NoError(t, <-done)
		two()
	})
	require.NoError(t, r.Close())
}

func TestRemoveThatIsGivenUpChangesNothing(t *testing.T) {
	s := NewMapped()
	m := newFake("iommu")
	require.NoError(t, s.Attach(m))
	r := mustAdd(t, s, 4096)
	release, err := s.Hold(r)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err = s.Remove(ctx, r)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "1 holder(s)")
	m.check(t, s, r)
	busOf(t, s, r)
	again, err := s.Hold(r)
	require.NoError(t, err, "it can be held as before")
	again()
	release()
	require.NoError(t, s.Remove(ctx, r), "nobody to wait for")
	m.check(t, s)
}

func TestAddressesAreWhereDevicesCanGo(t *testing.T) {
	s := NewMapped()
	var last uint64
	for range 20 {
		r := mustAdd(t, s, granule+4096)
		bus := busOf(t, s, r)
		assert.GreaterOrEqual(t, bus, uint64(4<<30))
		assert.Less(t, bus+uint64(r.Size()), uint64(1<<38))
		assert.Zero(t, bus%granule)
		if last != 0 {
			assert.GreaterOrEqual(t, bus, last+granule, "a gap behind each region, where devices fault")
		}
		last = bus + uint64(r.Size())
	}
}

func TestFreedAddressIsUsedAsLateAsPossible(t *testing.T) {
	s := NewMapped()
	r := mustAdd(t, s, 4096)
	old := busOf(t, s, r)
	for range 10 {
		require.NoError(t, remove(s, r))
		require.NoError(t, s.Add(r))
		require.Greater(t, busOf(t, s, r), old, "a device with a stale address must fault")
		old = busOf(t, s, r)
	}
	require.NoError(t, remove(s, r))
	s.next = busLimit
	require.NoError(t, s.Add(r))
	assert.Equal(t, uint64(busFirst), busOf(t, s, r), "round again")
}

func TestAddressesAreAlignedToPages(t *testing.T) {
	s := NewMapped()
	mustAdd(t, s, 4096)
	for _, align := range []uint64{4096, granule, hugepage.Page1G} {
		bus, err := s.choose(align, align)
		require.NoError(t, err)
		assert.Zero(t, bus%max(align, granule))
	}
	s.next = busFirst
	bus, err := s.choose(hugepage.Page1G, hugepage.Page1G)
	require.NoError(t, err)
	assert.Equal(t, uint64(5<<30), bus, "behind the small region, on the next GiB")
}

func TestAddressesRunOut(t *testing.T) {
	s := NewMapped()
	window := Range{busFirst + 4096, busFirst + 9*granule - 1} // eight whole granules
	require.NoError(t, s.Attach(newFake("narrow", window)))
	for i := range 8 {
		r := mustAdd(t, s, granule)
		bus := busOf(t, s, r)
		require.True(t, window.contains(Range{bus, bus + granule - 1}), "region %d at %#x", i, bus)
		require.Zero(t, bus%granule, "the window's own start is not")
	}
	err := s.Add(newRegion(t, 1))
	require.ErrorContains(t, err, "no 4096 free bus addresses")
	require.Len(t, s.Regions(), 8)
	require.NoError(t, remove(s, s.Regions()[3].Region))
	require.NoError(t, s.Add(newRegion(t, 1)), "the one that was given back")
	_, err = NewMapped().choose(busLimit, 1)
	require.Error(t, err)
	bus, err := NewMapped().choose(busLimit-busFirst, 1)
	require.NoError(t, err)
	assert.Equal(t, uint64(busFirst), bus, "everything at once")
}

func TestReservedRangesOfEveryDeviceAreAvoided(t *testing.T) {
	s := NewMapped()
	const hole = 64 << 20
	a := newFake("a", Range{0, busFirst + hole - 1}, Range{busFirst + 2*hole, 1 << 47})
	b := newFake("b", Range{busFirst + hole/2, busFirst + hole + hole/2}, Range{busFirst + 4*hole, 1 << 40})
	require.NoError(t, s.Attach(a))
	require.NoError(t, s.Attach(b))
	var regions []*hugepage.Region
	for range 20 {
		r := mustAdd(t, s, 5*granule)
		regions = append(regions, r)
		bus := busOf(t, s, r)
		used := Range{bus, bus + uint64(r.Size()) - 1}
		for _, m := range s.mappers {
			require.True(t, m.allows(used), "%v for %s", used, m.Name())
		}
	}
	a.check(t, s, regions...)
	b.check(t, s, regions...)
}
