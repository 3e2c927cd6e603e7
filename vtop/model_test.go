package vtop

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"bare.wire/hugepage"
	"github.com/stretchr/testify/require"
)

// TestRandomLivesOfRegionsAndDevices adds, removes, attaches and detaches in
// random order, with devices that fail now and then, and compares the space
// after each step with what a list would say. VTOP_SEED replays one run.
func TestRandomLivesOfRegionsAndDevices(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5}
	if text := os.Getenv("VTOP_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		seeds = []uint64{seed}
	}
	var regions []*hugepage.Region
	for i := range 12 {
		regions = append(regions, newRegion(t, 1+i*700_000))
	}
	for _, seed := range seeds {
		m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 0)), space: NewMapped(), in: map[*hugepage.Region]bool{}}
		for range 3 {
			m.devices = append(m.devices, &device{fakeMapper: newFake("dev")})
		}
		for step := range 400 {
			m.step(regions)
			m.check(regions)
			if t.Failed() {
				t.Fatalf("step %d; replay with VTOP_SEED=%d go test -run %s", step, seed, t.Name())
			}
		}
		m.end(regions)
	}
}

type device struct {
	*fakeMapper
	attached bool
}

type model struct {
	t       *testing.T
	rng     *rand.Rand
	space   *Space
	in      map[*hugepage.Region]bool
	devices []*device
}

func (m *model) step(regions []*hugepage.Region) {
	r := regions[m.rng.IntN(len(regions))]
	d := m.devices[m.rng.IntN(len(m.devices))]
	willFail := false
	for _, d := range m.devices {
		d.mapLeft = -1
		if m.rng.IntN(8) == 0 {
			d.mapLeft = m.rng.IntN(3)
		}
	}
	switch m.rng.IntN(4) {
	case 0, 1:
		if m.in[r] {
			require.NoError(m.t, remove(m.space, r))
			delete(m.in, r)
			return
		}
		for _, d := range m.devices {
			willFail = willFail || d.attached && d.mapLeft == 0
		}
		err := m.space.Add(r)
		require.Equal(m.t, willFail, err != nil, "%v", err)
		m.in[r] = m.in[r] || err == nil
		if err != nil {
			delete(m.in, r)
		}
	case 2:
		if d.attached {
			require.NoError(m.t, m.space.Detach(d.fakeMapper))
			d.attached = false
			return
		}
		willFail = d.mapLeft >= 0 && len(m.in) > d.mapLeft
		err := m.space.Attach(d.fakeMapper)
		require.Equal(m.t, willFail, err != nil, "%v", err)
		d.attached = err == nil
	case 3:
		if m.rng.IntN(20) == 0 {
			m.space.next = busLimit - granule // go round
		}
	}
}

func (m *model) check(regions []*hugepage.Region) {
	var used []Range
	in := slices.DeleteFunc(slices.Clone(regions), func(r *hugepage.Region) bool { return !m.in[r] })
	require.Len(m.t, m.space.Regions(), len(in))
	for _, r := range regions {
		off := m.rng.IntN(r.Size())
		bus, err := m.space.Bus(at(r, off), r.Size()-off)
		if !m.in[r] {
			require.ErrorIs(m.t, err, ErrOutside)
			continue
		}
		require.NoError(m.t, err)
		b, err := m.space.Bytes(bus, r.Size())
		require.NoError(m.t, err)
		require.Len(m.t, b, r.Size()-off)
		require.Same(m.t, &r.Bytes()[off], &b[0])
		start := bus - uint64(off)
		span := Range{start, start + uint64(r.Size()) - 1}
		require.True(m.t, Range{busFirst, busLimit - 1}.contains(span))
		for _, u := range used {
			require.False(m.t, u.overlaps(span), "%v and %v", u, span)
		}
		used = append(used, span)
	}
	for _, d := range m.devices {
		if d.attached {
			d.check(m.t, m.space, in...)
		} else {
			d.check(m.t, m.space)
		}
	}
	// Addresses that nobody asked for.
	bus := busFirst + m.rng.Uint64N(busLimit-busFirst)
	_, err := m.space.Bytes(bus, 1)
	known := slices.ContainsFunc(used, func(u Range) bool { return u.contains(Range{bus, bus}) })
	require.Equal(m.t, known, err == nil, "%#x", bus)
}

// end takes everything down, after which nothing is left anywhere.
func (m *model) end(regions []*hugepage.Region) {
	for r := range m.in {
		require.NoError(m.t, remove(m.space, r))
	}
	for _, d := range m.devices {
		d.check(m.t, m.space)
	}
	require.Empty(m.t, m.space.Regions())
	for _, r := range regions {
		unpin, err := r.Pin()
		require.NoError(m.t, err)
		require.ErrorContains(m.t, r.Close(), "still in 1 address space", "pins are balanced")
		unpin()
	}
}
