package vtop

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"bare.wire/hugepage"
)

// regionKeeper is told whose memory it maps.
type regionKeeper struct {
	*fakeMapper
	regions []*hugepage.Region
}

func (m *regionKeeper) MapRegion(r *hugepage.Region, va unsafe.Pointer, bus uint64, size int) error {
	m.regions = append(m.regions, r)
	return m.Map(va, bus, size)
}

func TestMapperThatAsksIsToldTheRegion(t *testing.T) {
	s := NewMapped()
	before := mustAdd(t, s, 1<<20)
	m := &regionKeeper{fakeMapper: newFake("keeper")}
	require.NoError(t, s.Attach(m))
	after := mustAdd(t, s, 1<<20)
	assert.Equal(t, []*hugepage.Region{before, after}, m.regions)
	assert.Len(t, m.has, 2)
	require.NoError(t, s.Detach(m))
	assert.Empty(t, m.has)
}
