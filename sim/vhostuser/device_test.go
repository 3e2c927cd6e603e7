package vhostuser

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio/spec"
	"bare.wire/virtio/spec/vhost"
)

// TestADeviceOutlivesMemoryThatIsTakenAway has a real device find its rings gone in the middle of traffic, in each kind of ring and by
// each way to notice it, and then serve somebody else.
func TestADeviceOutlivesMemoryThatIsTakenAway(t *testing.T) {
	clk := clock.NewVirtual(time.Unix(0, 0))
	world := sim.NewWorld(clk)
	mem := &Memory{}
	dev, err := virtionet.New(virtionet.Config{Name: "device", Memory: mem, World: world, Net: noNet{}})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	r := serve(t, world, dev, mem)
	r.base = 0x8000 // of a packed ring: its beginning, on the first lap
	var sent uint64
	for _, packed := range []bool{false, true} {
		for way, notice := range map[string]func(kick int){
			"a kick": func(kick int) {
				_, err := unix.Write(kick, one)
				require.NoError(t, err)
			},
			"a message": func(int) {
				require.NoError(t, r.conn.Send(t.Context(), vhost.NewMessage(vhost.SetVringEnable, state(1, 0))))
				require.NoError(t, r.conn.Close())
			},
			"the end of the session": func(int) { require.NoError(t, r.conn.Close()) },
		} {
			features := spec.FeatureVersion1
			if packed {
				features |= spec.FeatureRingPacked
			}
			r.agree(features)
			fd := r.share(1 << 20)
			kick, _ := r.queue(1)
			require.False(t, r.tell(vhost.SetVringEnable, state(1, 1)))
			available(t, fd, packed)
			_, err := unix.Write(kick, one)
			require.NoError(t, err)
			for sent++; dev.Counts().TxFrames < sent; {
				step(clk, world)
			}
			// The frame is sent, and maybe not yet reported.
			require.NoError(t, unix.Ftruncate(fd, 0))
			notice(kick)
			for r.back.Counts().Active {
				step(clk, world)
			}
			require.Empty(t, dev.Misuse(), way)
			_ = r.conn.Close()
			r.connect()
		}
	}
	require.NotZero(t, r.number(vhost.GetFeatures), "the next is served")
}

// step lets everybody do something.
func step(clk *clock.Virtual, world *sim.World) {
	clk.Advance(100 * time.Nanosecond)
	world.Step()
	runtime.Gosched()
}

// available puts a frame into queue 1 of a rig.
func available(t *testing.T, fd int, packed bool) {
	t.Helper()
	const queue, frame, length = 4096, 0x8000, spec.HdrSize + 60
	le := binary.LittleEndian
	put := func(at int64, b []byte) {
		_, err := unix.Pwrite(fd, b, at)
		require.NoError(t, err)
	}
	put(frame, make([]byte, length))
	desc := le.AppendUint32(le.AppendUint64(nil, guestBase+frame), length)
	if packed {
		put(queue, le.AppendUint16(le.AppendUint16(desc, 0), spec.DescAvail))
		return
	}
	put(queue, le.AppendUint32(desc, 0))
	put(queue+256, []byte{0, 0, 1, 0, 0, 0})
}
