//go:build interop

package backend

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"bare.wire/test/judges/internal/testpmd"
	"bare.wire/virtio/spec"
)

// perCell is how many frames go through a cell, long through the long one of the whole matrix.
const perCell, long = 1_000_000, 100_000_000

// full says whether all cells are tried, or pairwise ones.
func full() bool { return os.Getenv("BAREWIRE_FULL") != "" }

// cell is a way of using the ring.
type cell struct {
	name   string
	vdev   string
	queues int
	mode   string // of testpmd
	has    spec.Features
	not    spec.Features
	length func(int) int
	total  int // frames; 0: perCell
}

func small(int) int   { return 64 }
func mixed(i int) int { return 60 + i*37%1455 }
func largest(int) int { return 1514 }

var pairwise = []cell{
	{"split", ",packed_vq=0,in_order=0,mrg_rxbuf=1", 1, "io", spec.FeatureMrgRxBuf, spec.FeatureRingPacked | spec.FeatureInOrder, mixed, 0},
	{"split plain", ",packed_vq=0,in_order=0,mrg_rxbuf=0", 1, "macswap", 0, spec.FeatureRingPacked | spec.FeatureInOrder | spec.FeatureMrgRxBuf, small, 0},
	{"split in order", ",packed_vq=0,in_order=1,mrg_rxbuf=1", 1, "io", spec.FeatureInOrder, spec.FeatureRingPacked, largest, 0},
	{"split 4 queues", ",packed_vq=0,in_order=0,mrg_rxbuf=0", 4, "io", 0, spec.FeatureRingPacked, mixed, 0},
	{"packed", ",packed_vq=1,in_order=0,mrg_rxbuf=1", 1, "macswap", spec.FeatureRingPacked | spec.FeatureMrgRxBuf, spec.FeatureInOrder, mixed, 0},
	{"packed plain", ",packed_vq=1,in_order=0,mrg_rxbuf=0", 1, "io", spec.FeatureRingPacked, spec.FeatureMrgRxBuf, small, 0},
	{"packed in order 4 queues", ",packed_vq=1,in_order=1,mrg_rxbuf=1", 4, "macswap", spec.FeatureRingPacked | spec.FeatureInOrder, 0, mixed, 0},
}

// all is every way of using the ring with every other, and one of them for long.
func all() (list []cell) {
	for n := range 16 {
		c := cell{queues: 1, mode: "io", length: mixed}
		for i, o := range []struct {
			name, arg string
			feature   spec.Features
		}{{"packed", "packed_vq", spec.FeatureRingPacked}, {"in order", "in_order", spec.FeatureInOrder}, {"merged", "mrg_rxbuf", spec.FeatureMrgRxBuf}} {
			on := n >> i & 1
			c.vdev += fmt.Sprintf(",%s=%d", o.arg, on)
			if on == 1 {
				c.name += o.name + " "
				c.has |= o.feature
			} else {
				c.not |= o.feature
			}
		}
		if n>>3 == 1 {
			c.queues, c.mode = 4, "macswap"
		}
		c.name += fmt.Sprintf("%d queues", c.queues)
		list = append(list, c)
	}
	return append(list, cell{
		name: "long", vdev: ",packed_vq=1,in_order=0,mrg_rxbuf=1", queues: 1, mode: "io", has: spec.FeatureRingPacked, length: small, total: long,
	})
}

// TestInteropEveryFrameComesBack sends frames through testpmd and back, in each kind of ring.
func TestInteropEveryFrameComesBack(t *testing.T) {
	cells := pairwise
	if full() {
		cells = all()
	}
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) {
			total := max(c.total, perCell)
			src := &source{window: 200, length: c.length, flows: 64, swapped: c.mode == "macswap"}
			b := newBackEnd(t, filepath.Join(t.TempDir(), "sock"), false, c.queues, src)
			s := frontEnd(t, b.path, c.vdev, c.queues, "--forward-mode="+c.mode)
			do(t, s, "start")
			b.run(total)
			for n := perCell; n <= total; n += perCell { // patience is for so many
				b.await("the frames to come back", func(s *source) bool { return s.back >= n })
			}
			b.world.Lock()
			agreed := b.dev.Agreed()
			b.world.Unlock()
			require.True(t, agreed.Has(c.has), "%v", agreed)
			require.Zero(t, agreed&c.not, "%v", agreed)
			stats, err := testpmd.ParsePortStats(do(t, s, "show port stats 0"))
			require.NoError(t, err)
			n := b.dev.Counts()
			require.EqualValues(t, total, n.RxFrames)
			require.EqualValues(t, total, n.TxFrames)
			require.EqualValues(t, total, stats.RxPackets)
			require.EqualValues(t, total, stats.TxPackets)
			require.Equal(t, n.RxBytes, stats.RxBytes)
			require.Equal(t, n.TxBytes, stats.TxBytes)
			do(t, s, "stop")
			quit(t, s)
			b.clean(total)
			t.Logf("%d frames, %d kicks, %d calls, features %v", total, n.Kicks, n.Calls, agreed)
		})
	}

}
