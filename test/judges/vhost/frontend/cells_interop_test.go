//go:build interop

package frontend

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"bare.wire/virtio/spec"
)

// perCell is how many frames go through a cell.
const perCell = 1_000_000

// cell is a way of using the rings. What is in has must have been agreed on, and nothing of not.
type cell struct {
	name     string
	mode     string // of testpmd
	setup    setup
	has, not spec.Features
	length   func(uint64) int
}

// The features that cells differ in.
const (
	packed   = spec.FeatureRingPacked
	inOrder  = spec.FeatureInOrder
	mrg      = spec.FeatureMrgRxBuf
	eventIdx = spec.FeatureEventIdx
	indirect = spec.FeatureIndirectDesc
)

// cells are such that every pair of choices of two features is in one of them, with each mode of testpmd.
var cells = []cell{
	{"split", "io", setup{features: "-ring_packed,-in_order", pairs: 1, smallRx: true}, mrg | eventIdx | indirect, packed | inOrder, mixed},
	{"split, in order, 4 queues", "macswap", setup{features: "-ring_packed,-mrg_rxbuf,-event_idx", pairs: 4}, inOrder | indirect, packed | mrg | eventIdx, some},
	{"split, plain", "macswap", setup{features: "-ring_packed,-in_order,-mrg_rxbuf,-event_idx,-indirect_desc", pairs: 1, desc: 256}, 0, packed | inOrder | mrg | eventIdx | indirect, small},
	{"split, in order", "io", setup{features: "-ring_packed,-indirect_desc", pairs: 1, desc: 1024}, inOrder | mrg | eventIdx, packed | indirect, largest},
	{"packed", "macswap", setup{features: "-in_order", pairs: 1, smallRx: true}, packed | mrg | eventIdx | indirect, inOrder, mixed},
	{"packed, in order, 4 queues", "io", setup{features: "-mrg_rxbuf", pairs: 4}, packed | inOrder | eventIdx | indirect, mrg, some},
	{"packed, plain", "io", setup{features: "-in_order,-mrg_rxbuf,-event_idx,-indirect_desc", pairs: 1, desc: 255}, packed, inOrder | mrg | eventIdx | indirect, small},
	{"packed, in order", "macswap", setup{features: "-event_idx,-indirect_desc", pairs: 1, desc: 1000, smallRx: true}, packed | inOrder | mrg, eventIdx | indirect, some},
	{"packed, 4 queues, all", "rxonly", setup{pairs: 4}, packed | inOrder | mrg | eventIdx | indirect, 0, some},
	{"split, received only", "rxonly", setup{features: "-ring_packed,-in_order,-event_idx", pairs: 1}, mrg | indirect, packed | inOrder | eventIdx, mixed},
}

// TestInteropEveryFrameComesBack sends frames through testpmd and back, in each kind of ring. testpmd stays, and has a new front end
// for each.
func TestInteropEveryFrameComesBack(t *testing.T) {
	b := newBackEnd(t, filepath.Join(t.TempDir(), "s"), "", 4)
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) { c.judge(t, b, perCell) })
	}
	b.quit()
}

// TestInteropLongCell is one cell for a long time.
func TestInteropLongCell(t *testing.T) {
	n := uint64(perCell)
	if full {
		n = 100 * perCell
	}
	b := newBackEnd(t, filepath.Join(t.TempDir(), "s"), "", 1)
	c := cell{"long", "io", setup{pairs: 1, desc: 1024}, packed | inOrder, 0, small}
	c.judge(t, b, n)
	b.quit()
}

func (c *cell) judge(t *testing.T, b *backEnd, n uint64) {
	b.t = t
	f := newFrontEnd(t, b.path, c.setup)
	agreed := f.Negotiated()
	require.True(t, agreed.Has(c.has), "%v", agreed)
	require.Zero(t, agreed&c.not, "%v", agreed)

	b.do("clear port stats all", "set fwd "+c.mode, "start")
	echo := c.mode != "rxonly"
	x := newExchange(f, n, echo, c.mode == "macswap", c.length)
	err := x.run()
	if err == nil {
		err = b.received(n)
	}
	forward, stats := b.stop()
	require.NoError(t, err, "%+v %+v", forward, stats)
	require.NoError(t, x.drain())

	sent, got, bytes := x.totals()
	ours := f.Stats()
	require.EqualValues(t, n, sent)
	require.EqualValues(t, n, ours.TxPackets)
	require.Equal(t, bytes, ours.TxBytes)
	require.EqualValues(t, n, stats.RxPackets)
	require.Equal(t, bytes, stats.RxBytes)
	require.EqualValues(t, n, forward.RxPackets)
	require.Zero(t, forward.RxDropped+forward.TxDropped+stats.RxErrors+stats.TxErrors+stats.RxMissed)
	require.Zero(t, ours.TxErrors+ours.RxErrors+ours.RxNoBuf, "%+v", ours)
	require.Equal(t, ours.RxPackets, got)
	if echo {
		require.EqualValues(t, n, got)
		require.EqualValues(t, n, stats.TxPackets)
		require.Equal(t, bytes, ours.RxBytes)
		require.Equal(t, bytes, stats.TxBytes)
	}
	f.end()
	t.Logf("%d frames, %d bytes, features %v", n, bytes, agreed)
}
