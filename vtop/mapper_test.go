package vtop

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDeviceReachesRegionsOfNowAndLater(t *testing.T) {
	s := NewMapped()
	before := mustAdd(t, s, 4096)
	m := newFake("dev")
	require.NoError(t, s.Attach(m))
	m.check(t, s, before)
	later := mustAdd(t, s, 3<<20)
	m.check(t, s, before, later)
	require.NoError(t, remove(s, before))
	m.check(t, s, later)
	require.NoError(t, s.Detach(m))
	m.check(t, s)
	busOf(t, s, later)
}

func TestAttachTwiceAndDetachTwice(t *testing.T) {
	s := NewMapped()
	m := newFake("dev")
	require.ErrorContains(t, s.Detach(m), "detach dev: it is not attached")
	require.NoError(t, s.Attach(m))
	require.ErrorContains(t, s.Attach(m), "attach dev: it is attached already")
	require.NoError(t, s.Detach(m))
	require.Error(t, s.Detach(m))
	require.NoError(t, s.Attach(m))
}

func TestAttachFailsHalfWay(t *testing.T) {
	f := newFakePhysical(t)
	a, b := newRegion(t, 3*granule), newRegion(t, 2*granule)
	f.place(a, 10, 20, 30)
	f.place(b, 40, 50)
	require.NoError(t, f.Add(a))
	require.NoError(t, f.Add(b))
	for n := range 5 {
		m := newFake("dev")
		m.mapLeft = n
		err := f.Attach(m)
		require.ErrorIs(t, err, errFake)
		require.ErrorContains(t, err, "attach dev: map region")
		m.check(t, f.Space)
		require.ErrorContains(t, f.Detach(m), "not attached")
	}
	m := newFake("dev")
	m.mapLeft = 5
	require.NoError(t, f.Attach(m))
	m.check(t, f.Space, a, b)
}

func TestDeviceThatCannotReachARegionIsNotAttached(t *testing.T) {
	s := NewMapped()
	first, second := mustAdd(t, s, 4096), mustAdd(t, s, 4096)
	bus := busOf(t, s, second)
	m := newFake("dev", Range{0, bus + 100}, Range{bus + 200, math.MaxUint64})
	err := s.Attach(m)
	require.ErrorContains(t, err, Range{bus, bus + 4095}.String(), "names the region's range")
	require.ErrorContains(t, err, "outside what the device can use")
	m.check(t, s)
	later := mustAdd(t, s, 4096)
	m.check(t, s)
	_, _ = first, later
}

func TestRangesThatTouchAreOne(t *testing.T) {
	for _, c := range []struct {
		name     string
		in, want []Range
	}{
		{"none: no limit", nil, []Range{{0, math.MaxUint64}}},
		{"sorted", []Range{{100, 200}, {0, 50}}, []Range{{0, 50}, {100, 200}}},
		{"touching", []Range{{51, 60}, {0, 50}}, []Range{{0, 60}}},
		{"inside", []Range{{0, 50}, {10, 20}, {30, 70}}, []Range{{0, 70}}},
		{"to the very end", []Range{{5, math.MaxUint64}, {7, 9}, {math.MaxUint64, math.MaxUint64}}, []Range{{5, math.MaxUint64}}},
		{"twice from 0", []Range{{0, 0}, {0, 0}}, []Range{{0, 0}}},
	} {
		got, err := normalise(c.in)
		require.NoError(t, err, c.name)
		assert.Equal(t, c.want, got, c.name)
	}
	require.ErrorContains(t, NewMapped().Attach(newFake("dev", Range{2, 1})), "ends before it begins")
}

func TestAddFailsInTheSecondDevice(t *testing.T) {
	f := newFakePhysical(t)
	a, b, c := newFake("a"), newFake("b"), newFake("c")
	for _, m := range []*fakeMapper{a, b, c} {
		require.NoError(t, f.Attach(m))
	}
	r := newRegion(t, 3*granule)
	f.place(r, 10, 20, 30)
	b.mapLeft = 1
	err := f.Add(r)
	require.ErrorIs(t, err, errFake)
	require.ErrorContains(t, err, "into b")
	for _, m := range []*fakeMapper{a, b, c} {
		m.check(t, f.Space)
	}
	require.Empty(t, f.Regions())
	_, err = f.Bus(r.Base(), 1)
	require.ErrorIs(t, err, ErrOutside)

	b.mapLeft = -1
	require.NoError(t, f.Add(r))
	for _, m := range []*fakeMapper{a, b, c} {
		m.check(t, f.Space, r)
	}
	require.NoError(t, remove(f.Space, r))
	require.NoError(t, r.Close())
}

// A device that does not let go of memory keeps it from being used otherwise.
func TestDeviceThatDoesNotLetGo(t *testing.T) {
	t.Run("after a failed Add", func(t *testing.T) {
		s := NewMapped()
		a, b := newFake("a"), newFake("b")
		require.NoError(t, s.Attach(a))
		require.NoError(t, s.Attach(b))
		a.unmapBad, b.mapLeft = true, 0
		r := newRegion(t, 4096)
		err := s.Add(r)
		require.ErrorContains(t, err, "into b")
		require.ErrorContains(t, err, "from a")
		assertStuck(t, s, r.Close)
		_, err = s.Bus(r.Base(), 1)
		require.ErrorIs(t, err, ErrOutside)
		a.unmapBad = false
		require.NoError(t, remove(s, r))
		a.check(t, s)
		require.NoError(t, r.Close())
	})
	t.Run("at Remove", func(t *testing.T) {
		s := NewMapped()
		a, b := newFake("a"), newFake("b")
		require.NoError(t, s.Attach(a))
		require.NoError(t, s.Attach(b))
		r := mustAdd(t, s, 4096)
		bus := busOf(t, s, r)
		a.unmapBad = true
		require.ErrorIs(t, remove(s, r), errFake)
		b.check(t, s)
		assertStuck(t, s, r.Close)
		_, err := s.Bytes(bus, 1)
		require.ErrorIs(t, err, ErrOutside)
		s.next = busFirst
		other := mustAdd(t, s, 4096)
		require.NotEqual(t, bus, busOf(t, s, other), "its bus address is not given away")

		late := newFake("late", Range{bus + granule, math.MaxUint64})
		require.NoError(t, s.Attach(late), "what is leaving does not count")
		late.check(t, s, other)
		a.unmapBad = false
		require.NoError(t, remove(s, r))
		require.NoError(t, r.Close())
	})
	t.Run("at Detach", func(t *testing.T) {
		s := NewMapped()
		m := newFake("dev")
		require.NoError(t, s.Attach(m))
		r := mustAdd(t, s, 4096)
		m.unmapBad = true
		require.ErrorIs(t, s.Detach(m), errFake)
		later := mustAdd(t, s, 4096)
		m.check(t, s, r)
		m.unmapBad = false
		require.NoError(t, s.Detach(m), "again")
		m.check(t, s)
		_ = later
	})
	t.Run("after a failed Attach", func(t *testing.T) {
		s := NewMapped()
		r, q := mustAdd(t, s, 4096), mustAdd(t, s, 4096)
		m := newFake("dev")
		m.mapLeft, m.unmapBad = 1, true
		require.ErrorIs(t, s.Attach(m), errFake)
		m.check(t, s, r)
		require.ErrorIs(t, remove(s, r), errFake)
		m.mapLeft, m.unmapBad = -1, false
		require.NoError(t, remove(s, r))
		require.NoError(t, s.Attach(m))
		m.check(t, s, q)
	})
}

func assertStuck(t *testing.T, s *Space, closeRegion func() error) {
	t.Helper()
	require.NotEmpty(t, s.Regions())
	assert.True(t, s.Regions()[0].Leaving)
	_, err := s.Hold(s.Regions()[0].Region)
	assert.ErrorContains(t, err, "being removed")
	assert.Error(t, closeRegion(), "memory that a device may touch is never freed")
}
