package vtop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"bare.wire/hugepage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newRegion gives ordinary memory that lives as long as the test.
func newRegion(t testing.TB, size int) *hugepage.Region {
	t.Helper()
	r, err := hugepage.Alloc(hugepage.Config{Size: size, PageSize: os.Getpagesize(), Node: hugepage.AnyNode, Name: fmt.Sprintf("r%d", size)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() }) // fails for what a test leaves in a space
	return r
}

// mustAdd adds a region to the space until the test ends.
func mustAdd(t testing.TB, s *Space, size int) *hugepage.Region {
	t.Helper()
	r := newRegion(t, size)
	require.NoError(t, s.Add(r))
	return r
}

func at(r *hugepage.Region, off int) unsafe.Pointer { return unsafe.Pointer(&r.Bytes()[off]) }

func busOf(t testing.TB, s *Space, r *hugepage.Region) uint64 {
	t.Helper()
	bus, err := s.Bus(r.Base(), 1)
	require.NoError(t, err)
	return bus
}

var errFake = errors.New("the IOMMU says no")

// fakeMapper is an IOMMU that keeps book, and fails when told to.
type fakeMapper struct {
	name     string
	ranges   []Range
	has      map[uint64][]byte // what Map did and Unmap has not undone, by bus address
	mapLeft  int               // Map fails after so many more; < 0: never
	unmapBad bool              // Unmap fails
	wrong    []string          // calls that break the contract
}

func newFake(name string, ranges ...Range) *fakeMapper {
	return &fakeMapper{name: name, ranges: ranges, has: map[uint64][]byte{}, mapLeft: -1}
}

func (m *fakeMapper) Name() string    { return m.name }
func (m *fakeMapper) Ranges() []Range { return m.ranges }

func (m *fakeMapper) Map(va unsafe.Pointer, bus uint64, size int) error {
	if m.mapLeft == 0 {
		return errFake
	}
	m.mapLeft--
	if m.has[bus] != nil || size == 0 {
		m.wrong = append(m.wrong, fmt.Sprintf("map %#x twice", bus))
	}
	m.has[bus] = unsafe.Slice((*byte)(va), size)
	return nil
}

func (m *fakeMapper) Unmap(bus uint64, size int) error {
	if len(m.has[bus]) != size {
		m.wrong = append(m.wrong, fmt.Sprintf("unmap %d bytes at %#x, mapped are %d", size, bus, len(m.has[bus])))
	}
	if m.unmapBad {
		return errFake
	}
	delete(m.has, bus)
	return nil
}

// check compares what the IOMMU maps with what the space says about regions.
func (m *fakeMapper) check(t testing.TB, s *Space, regions ...*hugepage.Region) {
	t.Helper()
	want := 0
	for _, i := range s.Regions() {
		for _, r := range regions {
			if i.Region != r {
				continue
			}
			mem := r.Bytes()
			for _, b := range i.Bus {
				size := int(b.Last - b.First + 1)
				require.Len(t, m.has[b.First], size, "%s at %v", m.name, b)
				require.Same(t, &mem[0], &m.has[b.First][0], "%s maps other memory at %v", m.name, b)
				mem = mem[size:]
				want++
			}
			require.Empty(t, mem)
		}
	}
	assert.Len(t, m.has, want, "%s maps more than it should", m.name)
	assert.Empty(t, m.wrong)
}

// fakePhysical is a physical space in which ordinary regions count as made of
// 2 MiB pages, and the page map is a file that set fills in.
type fakePhysical struct {
	*Space
	t    testing.TB
	file *os.File
}

func newFakePhysical(t testing.TB) *fakePhysical {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "pagemap"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	s := &Space{pagemap: f.Name(), pageOf: func(*hugepage.Region) (uint64, error) { return hugepage.Page2M, nil }}
	s.table.Store(newTable(nil))
	return &fakePhysical{Space: s, t: t, file: f}
}

// set writes the raw page map entry of the 2 MiB page at offset page*2 MiB.
func (f *fakePhysical) set(r *hugepage.Region, page int, entry uint64) {
	f.t.Helper()
	var raw [entrySize]byte
	binary.NativeEndian.PutUint64(raw[:], entry)
	va := uint64(uintptr(r.Base())) + uint64(page)*hugepage.Page2M
	_, err := f.file.WriteAt(raw[:], int64(va/uint64(os.Getpagesize())*entrySize))
	require.NoError(f.t, err)
}

// place says where the 2 MiB pages of r are, in units of 2 MiB.
func (f *fakePhysical) place(r *hugepage.Region, pages ...uint64) {
	f.t.Helper()
	for i, p := range pages {
		f.set(r, i, entryPresent|p*hugepage.Page2M/uint64(os.Getpagesize()))
	}
}

func remove(s *Space, r *hugepage.Region) error { return s.Remove(context.Background(), r) }
