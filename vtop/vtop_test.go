package vtop

import (
	"math"
	"sync"
	"testing"
	"unsafe"

	"bare.wire/hugepage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBothDirectionsAgree(t *testing.T) {
	s := NewMapped()
	for _, size := range []int{1, 4096, 3 << 20, 2 << 20} {
		r := mustAdd(t, s, size)
		for _, off := range []int{0, 1, r.Size() / 2, r.Size() - 1} {
			bus, err := s.Bus(at(r, off), r.Size()-off)
			require.NoError(t, err)
			b, err := s.Bytes(bus, r.Size()-off)
			require.NoError(t, err)
			assert.Len(t, b, r.Size()-off)
			assert.Same(t, &r.Bytes()[off], &b[0])
			assert.Equal(t, r.Size()-off, s.Contiguous(at(r, off)))
		}
	}
}

func TestAddressOutsideEveryRegionIsAnError(t *testing.T) {
	s := NewMapped()
	heap := new(int)
	_, err := s.Bus(unsafe.Pointer(heap), 1)
	require.ErrorIs(t, err, ErrOutside, "an empty space")
	_, err = s.Bytes(busFirst, 1)
	require.ErrorIs(t, err, ErrOutside)

	r := mustAdd(t, s, 4096)
	base := uint64(uintptr(r.Base()))
	bus := busOf(t, s, r)
	size := uint64(r.Size())
	for _, va := range []uint64{0, 1, base - 1, base + size, base + granule, base + granule - 1, math.MaxUint64} {
		_, err := s.bus(va, 1)
		assert.ErrorIs(t, err, ErrOutside, "%#x", va)
		assert.Zero(t, s.table.Load().contiguous(va))
	}
	for _, b := range []uint64{0, 1, bus - 1, bus + size, bus + granule, bus + granule - 1, math.MaxUint64} {
		_, err := s.Bytes(b, 1)
		assert.ErrorIs(t, err, ErrOutside, "%#x", b)
	}
	_, err = s.Bus(nil, 1)
	assert.ErrorIs(t, err, ErrOutside)
}

func TestRangeThatLeavesItsRegion(t *testing.T) {
	s := NewMapped()
	r := mustAdd(t, s, 8192)
	for _, n := range []int{r.Size() + 1, granule, 10 * granule, math.MaxInt} {
		_, err := s.Bus(r.Base(), n)
		assert.ErrorIs(t, err, ErrOutside, "%d", n)
	}
	_, err := s.Bus(at(r, r.Size()-1), 2)
	assert.ErrorIs(t, err, ErrOutside)
	_, err = s.Bus(at(r, r.Size()-1), 1)
	assert.NoError(t, err)

	b, err := s.Bytes(busOf(t, s, r), math.MaxInt)
	require.NoError(t, err)
	assert.Len(t, b, r.Size(), "as much as there is")
	b, err = s.Bytes(busOf(t, s, r), 10)
	require.NoError(t, err)
	assert.Equal(t, 10, cap(b), "append cannot reach what follows")
}

// Two regions side by side in memory are still two.
func TestRangeThatEndsInTheNextRegion(t *testing.T) {
	mem := newRegion(t, 2*granule).Bytes()
	va := uint64(uintptr(unsafe.Pointer(&mem[0])))
	var entries []*entry
	for i := range uint64(2) {
		r := &run{va: va + i*granule, bus: busFirst + i*granule, mem: mem[i*granule:][:granule], region: newRegion(t, 1)}
		entries = append(entries, &entry{region: r.region, runs: []*run{r}})
	}
	s := NewMapped()
	s.table.Store(newTable(entries))
	_, err := s.bus(va+granule-1, 2)
	assert.ErrorIs(t, err, ErrOutside)
	_, err = s.bus(va+granule, 2)
	assert.NoError(t, err)
}

func TestLengthsThatAreNoLengths(t *testing.T) {
	s := NewMapped()
	r := mustAdd(t, s, 4096)
	for _, n := range []int{0, -1, math.MinInt} {
		_, err := s.Bus(r.Base(), n)
		assert.ErrorContains(t, err, "at least 1 byte", "%d", n)
		_, err = s.Bytes(busOf(t, s, r), n)
		assert.ErrorContains(t, err, "at least 1 byte", "%d", n)
	}
}

func TestTranslationAllocatesNothing(t *testing.T) {
	s := NewMapped()
	for range 5 {
		mustAdd(t, s, 1<<20)
	}
	r := mustAdd(t, s, 1<<20)
	bus := busOf(t, s, r)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		_, _ = s.Bus(r.Base(), 2048)
		_, _ = s.Bytes(bus, 2048)
		_ = s.Contiguous(r.Base())
	}))
}

// Translations run while regions come and go: each gives the right address or
// ErrOutside.
func TestTranslationBesideAddAndRemove(t *testing.T) {
	s := NewMapped()
	stays, moves := mustAdd(t, s, 1<<20), newRegion(t, 1<<20)
	want := busOf(t, s, stays)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if bus, err := s.Bus(at(stays, 5), 10); err != nil || bus != want+5 {
					t.Errorf("the region that stays: %#x, %v", bus, err)
					return
				}
				bus, err := s.Bus(at(moves, 5), 10)
				if err != nil {
					continue
				}
				if b, err := s.Bytes(bus, 10); err == nil && &b[0] != &moves.Bytes()[5] {
					t.Errorf("bus address %#x leads elsewhere", bus)
					return
				}
			}
		})
	}
	for range 300 {
		require.NoError(t, s.Add(moves))
		require.NoError(t, remove(s, moves))
	}
	close(stop)
	readers.Wait()
}

// fragmented gives a space with a region of five pages in three runs, and one
// that is contiguous. In units of 2 MiB: 10 11 | 20 | 5 6, and 12 13.
func fragmented(t testing.TB) (s *Space, split, whole *hugepage.Region) {
	f := newFakePhysical(t)
	split, whole = newRegion(t, 5*granule), newRegion(t, 2*granule)
	f.place(split, 10, 11, 20, 5, 6)
	f.place(whole, 12, 13)
	require.NoError(t, f.Add(split))
	require.NoError(t, f.Add(whole))
	return f.Space, split, whole
}

func FuzzTranslate(f *testing.F) {
	s, split, whole := fragmented(f)
	regions := []*hugepage.Region{split, whole}
	for _, n := range []int{1, 2, granule, granule + 1, 5 * granule, math.MaxInt, 0, -1} {
		f.Add(uint64(0), n, true)
		f.Add(uint64(2*granule-1), n, true)
		f.Add(uint64(10*granule), n, false)
		f.Add(uint64(14*granule-1), n, false)
		f.Add(uint64(math.MaxUint64), n, false)
		f.Add(uint64(math.MaxUint64), n, true)
	}
	f.Fuzz(func(t *testing.T, x uint64, n int, relative bool) {
		// The same question, answered by looking at every run.
		base := uint64(uintptr(split.Base()))
		va := x
		if relative {
			va += base
		}
		var runs []*run
		for _, e := range s.entries {
			runs = append(runs, e.runs...)
		}
		var busWant uint64
		var memWant []byte
		for _, r := range runs {
			if va >= r.va && va-r.va < r.size() && n > 0 && uint64(n) <= r.size()-(va-r.va) {
				busWant = r.bus + va - r.va
			}
			if x >= r.bus && x-r.bus < r.size() && n > 0 {
				memWant = r.mem[x-r.bus:]
			}
		}
		bus, err := s.bus(va, n)
		if (err == nil) != (busWant != 0) || bus != busWant {
			t.Fatalf("bus address of %d bytes at %#x (regions %v): %#x, %v; want %#x", n, va, regions, bus, err, busWant)
		}
		mem, err := s.Bytes(x, n)
		if (err == nil) != (memWant != nil) {
			t.Fatalf("%d bytes at bus address %#x: %v", n, x, err)
		}
		if err == nil && (&mem[0] != &memWant[0] || len(mem) != min(n, len(memWant))) {
			t.Fatalf("%d bytes at bus address %#x: %d bytes of other memory", n, x, len(mem))
		}
	})
}

func BenchmarkBus(b *testing.B) {
	s := NewMapped()
	for range 7 {
		mustAdd(b, s, 4<<20)
	}
	r := mustAdd(b, s, 4<<20)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := s.Bus(at(r, i*2112%(4<<20-2048)), 2048); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBytes(b *testing.B) {
	s := NewMapped()
	for range 7 {
		mustAdd(b, s, 4<<20)
	}
	bus := busOf(b, s, mustAdd(b, s, 4<<20))
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		if _, err := s.Bytes(bus+i*2112%(4<<20-2048), 2048); err != nil {
			b.Fatal(err)
		}
	}
}
