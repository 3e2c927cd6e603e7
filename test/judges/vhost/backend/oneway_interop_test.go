//go:build interop

package backend

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"bare.wire/sim/virtionet"
	"bare.wire/test/judges/internal/frames"
	"bare.wire/test/judges/internal/testpmd"
	"bare.wire/virtio/spec"
)

// oneWay are the rings in which traffic goes one way only.
var oneWay = map[string]string{"split": ",packed_vq=0", "packed": ",packed_vq=1,in_order=1"}

// TestInteropTestpmdReceives sends frames that testpmd only counts.
func TestInteropTestpmdReceives(t *testing.T) {
	for name, vdev := range oneWay {
		t.Run(name, func(t *testing.T) {
			total := perCell
			b := newBackEnd(t, filepath.Join(t.TempDir(), "sock"), false, 1, &source{length: small, swallow: true})
			s := frontEnd(t, b.path, vdev, 1, "--forward-mode=rxonly")
			do(t, s, "start")
			b.run(total)
			var stats testpmd.PortStats
			b.await("testpmd to count them", func(*source) bool { return b.fetched(s, &stats) && stats.RxPackets >= uint64(total) })
			require.EqualValues(t, total, stats.RxPackets)
			require.EqualValues(t, 64*total, stats.RxBytes)
			require.EqualValues(t, total, b.dev.Counts().RxFrames)
			quit(t, s)
			b.with(func(s *source) { s.back = s.sent })
			b.clean(total)
		})
	}
}

// TestInteropTestpmdSends has testpmd send UDP datagrams as fast as it can, and checks each.
func TestInteropTestpmdSends(t *testing.T) {
	for name, vdev := range oneWay {
		t.Run(name, func(t *testing.T) {
			total := perCell
			src := &source{}
			src.judge = func(_ virtionet.Header, f []byte) {
				src.back++
				ip := f[14:34]
				switch {
				case len(f) != 128 || f[12] != 8 || ip[0] != 0x45 || ip[9] != 17 || binary.BigEndian.Uint16(ip[2:]) != 114:
					src.fault("frame of %d bytes: %x", len(f), f[:min(len(f), 42)])
				case frames.Sum16(ip, 0) != 0xffff:
					src.fault("IPv4 checksum: %x", ip)
				}
			}
			b := newBackEnd(t, filepath.Join(t.TempDir(), "sock"), false, 1, src)
			s := frontEnd(t, b.path, vdev, 1, "--forward-mode=txonly", "--txpkts=128")
			do(t, s, "start")
			b.await("frames", func(s *source) bool { return s.back >= total })
			do(t, s, "stop")
			var stats testpmd.PortStats
			b.await("what is under way", func(src *source) bool { return b.fetched(s, &stats) && stats.TxPackets == uint64(src.back) })
			require.EqualValues(t, stats.TxBytes, b.dev.Counts().TxBytes)
			quit(t, s)
			b.with(func(s *source) { s.sent = s.back; total = s.back })
			b.clean(total)
		})
	}
}

// TestInteropTestpmdLeavesSegmentsToUs has testpmd ask for segmentation and checksums: what it sends has to say where its headers
// end, and to hold the sums of pseudo-headers.
func TestInteropTestpmdLeavesSegmentsToUs(t *testing.T) {
	const mss, payload, total = 500, 1400, 100_000
	for name, vdev := range oneWay {
		t.Run(name, func(t *testing.T) {
			src := &source{window: 200, length: func(int) int { return 54 + payload }, tcp: true, offload: spec.FeatureCSum | spec.FeatureHostTSO4 | spec.FeatureHostTSO6}
			src.judge = func(h virtionet.Header, f []byte) {
				src.back++
				if len(f) != 54+payload {
					src.fault("a frame of %d bytes", len(f))
					return
				}
				want := virtionet.Header{Flags: spec.HdrNeedsCSum, GSOType: spec.GSOTCPv4, HdrLen: 54, GSOSize: mss, CSumStart: 34, CSumOffset: 16}
				if h != want {
					src.fault("header %+v, want %+v", h, want)
				}
				// The pseudo-header's sum, with the length.
				sum := frames.Sum16(f[26:34], uint32(6+20+payload))
				if got := binary.BigEndian.Uint16(f[50:]); got != sum {
					src.fault("checksum field %#04x, want the pseudo-header's %#04x", got, sum)
				}
				number := int(binary.BigEndian.Uint32(f[54:]))
				room := make([]byte, payload)
				src.pattern(room, number)
				if string(room) != string(f[54:]) {
					src.fault("contents of frame %d", number)
				}
				if src.sent < src.total {
					src.arrival(0)
				}
			}
			b := newBackEnd(t, filepath.Join(t.TempDir(), "sock"), false, 1, src)
			s := frontEnd(t, b.path, vdev, 1, "--forward-mode=csum")
			for _, c := range []string{"port stop 0", "csum set tcp hw 0", "tso set 500 0", "port start 0", "start"} {
				do(t, s, c)
			}
			b.run(total)
			b.await("the frames to come back", func(s *source) bool { return s.back >= total })
			quit(t, s)
			b.clean(total)
		})
	}
}
