//go:build interop

package frontend

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/test/judges/internal/frames"
	"bare.wire/test/judges/internal/testpmd"
	"bare.wire/virtio/spec"
)

// everyOffload is what the driver can do for frames.
const everyOffload = nic.TxL4Checksum | nic.TxTSO | nic.RxL4Checksum | nic.RxGSO

// datagram is number i of a kind of its own.
func datagram(i, payload int) frames.Datagram {
	d := frames.Datagram{
		To: other, From: station, V6: i&1 != 0, TCP: i&2 != 0, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2},
		SrcPort: uint16(1000 + i), DstPort: 9, Seq: uint32(i) * 77, Flags: frames.ACK | frames.PSH, Payload: make([]byte, payload),
	}
	if i%5 == 4 && d.TCP {
		d.Options = []byte{1, 1, 1, 1}
	}
	for j := range d.Payload {
		d.Payload[j] = byte(j*7 + i + j>>8)
	}
	return d
}

// ask makes a buffer of a frame whose checksum is to be done, and which is to be cut if there is an mss.
func (f *frontEnd) ask(d frames.Datagram, mss int) *mbuf.Buf {
	f.t.Helper()
	var head, last *mbuf.Buf
	for left := d.Partial(); len(left) > 0; {
		b := f.cache.Alloc()
		require.NotNil(f.t, b)
		room, err := b.Reserve(min(len(left), 1500))
		require.NoError(f.t, err)
		left = left[copy(room, left):]
		if head == nil {
			head = b
		} else {
			last.SetNext(b)
		}
		last = b
	}
	flags := mbuf.TxL4Sum
	if mss > 0 {
		flags |= mbuf.TxTSO
	}
	if d.V6 {
		flags |= mbuf.TxIPv6
	}
	if !d.TCP {
		flags |= mbuf.TxUDP
	}
	head.SetTxFlags(flags)
	head.L2Len, head.L3Len, head.L4Len, head.MSS = frames.EthernetLen, uint16(d.L3Len()), uint8(d.L4Len()), uint16(mss)
	return head
}

// roundTrip sends a frame and sleeps until one comes.
func (f *frontEnd) roundTrip(b *mbuf.Buf) *mbuf.Buf {
	f.t.Helper()
	var in [1]*mbuf.Buf
	require.Equal(f.t, 1, f.Tx(0).Send([]*mbuf.Buf{b}))
	for f.Rx(0).Recv(in[:]) == 0 {
		if !f.Rx(0).Arm(f.wait) {
			continue
		}
		woken, err := f.wait.Wait(f.clock.Nanos() + int64(patience))
		require.NoError(f.t, err)
		require.True(f.t, woken, "nothing comes: %+v", f.Stats())
	}
	f.Tx(0).Reclaim()
	return in[0]
}

// TestInteropChecksumsAreLeftToDPDK sends frames whose checksum net_vhost completes, and looks at the sums that come back.
func TestInteropChecksumsAreLeftToDPDK(t *testing.T) {
	b := newBackEnd(t, filepath.Join(t.TempDir(), "s"), "", 1)
	b.do("set fwd io", "start")
	for _, features := range []string{"-ring_packed", ""} {
		f := newFrontEnd(t, b.path, setup{features: features, pairs: 1, offloads: nic.TxL4Checksum})
		require.True(t, f.Negotiated().Has(spec.FeatureCSum), "%v", f.Negotiated())
		for i := range 400 {
			d := datagram(i, 1+i*3)
			in := f.roundTrip(f.ask(d, 0))
			x := exchange{scratch: make([]byte, 0, 4096)}
			if got, want := x.gather(in), d.Whole(); !bytes.Equal(got, want) {
				t.Fatalf("%s of %d bytes: %s", d.Kind(), len(d.Payload), frames.Difference(got, want))
			}
			f.cache.Free(in)
		}
		f.end()
	}
	b.quit()
}

// TestInteropSegmentsStayJoined sends frames that are to be cut, and others whose checksum is to be done, through a net_vhost that hands
// on what is left to be done: both come back as they were sent.
func TestInteropSegmentsStayJoined(t *testing.T) {
	b := newBackEnd(t, filepath.Join(t.TempDir(), "s"), ",tso=1,legacy-ol-flags=1", 1)
	b.do("set fwd io", "start")
	for _, features := range []string{"-ring_packed", "", "-mrg_rxbuf", "-ring_packed,-mrg_rxbuf,-in_order", "-indirect_desc"} {
		t.Run("features "+features, func(t *testing.T) {
			b.t = t
			f := newFrontEnd(t, b.path, setup{features: features, pairs: 1, offloads: everyOffload})
			require.True(t, f.Negotiated().Has(spec.FeatureHostTSO4|spec.FeatureGuestTSO6), "%v", f.Negotiated())
			for i := range 300 {
				mss := 0
				d := datagram(i, 1+i*4)
				if d.TCP && i%3 != 0 {
					mss = 536 + i
					d.Payload = datagram(i, (i*211)%58000+mss+1).Payload
				}
				in := f.roundTrip(f.ask(d, mss))
				if wrong := joined(in, d, mss); wrong != "" {
					t.Fatalf("frame %d, %s of %d bytes, mss %d: %s", i, d.Kind(), len(d.Payload), mss, wrong)
				}
				f.cache.Free(in)
			}
			f.end()
		})
	}
	b.quit()
}

// joined says what is wrong with a frame that comes back with the same left to be done, "" if nothing.
func joined(in *mbuf.Buf, d frames.Datagram, mss int) string {
	x := exchange{scratch: make([]byte, 0, 1<<17)}
	partial, gso := in.Flags()&mbuf.RxL4Partial != 0, in.Flags()&mbuf.RxGSO != 0
	switch {
	case !partial:
		return fmt.Sprintf("flags %#x do not say that the checksum is left to be done", in.Flags())
	case gso != (mss > 0) || gso && int(in.MSS) != mss:
		return fmt.Sprintf("flags %#x, mss %d", in.Flags(), in.MSS)
	}
	got, want := x.gather(in), d.Partial()
	if gso {
		// DPDK writes its own sum of the pseudo-header, without the length, as it does for cards that want it so.
		binary.BigEndian.PutUint16(want[frames.EthernetLen+d.L3Len()+d.SumOffset():], d.Pseudo(0))
	}
	if !bytes.Equal(got, want) {
		return frames.Difference(got, want)
	}
	return ""
}

// TestInteropChecksumsAreLeftToUs has testpmd's csum engine leave the sums of frames to whoever sends them on, which is what is said of
// them when they come.
func TestInteropChecksumsAreLeftToUs(t *testing.T) {
	b := newBackEnd(t, filepath.Join(t.TempDir(), "s"), "", 1, "--forward-mode=csum")
	b.do("port stop 0", "csum set tcp hw 0", "csum set udp hw 0", "csum set ip sw 0", "port start 0", "start")
	f := newFrontEnd(t, b.path, setup{pairs: 1, offloads: nic.RxL4Checksum})
	const n = 400
	x := exchange{scratch: make([]byte, 0, 4096)}
	for i := range n {
		d := datagram(i, 20+i)
		out := f.cache.Alloc()
		whole := d.Whole()
		room, err := out.Reserve(len(whole))
		require.NoError(t, err)
		copy(room, whole)
		in := f.roundTrip(out)
		require.NotZero(t, in.Flags()&mbuf.RxL4Partial, "frame %d: flags %#x", i, in.Flags())
		// The engine swaps addresses.
		if got, want := x.gather(in)[12:], d.Partial()[12:]; !bytes.Equal(got, want) {
			t.Fatalf("%s of %d bytes: %s", d.Kind(), len(d.Payload), frames.Difference(got, want))
		}
		f.cache.Free(in)
	}
	counts, err := testpmd.ParseForward(b.do("stop"))
	require.NoError(t, err)
	require.EqualValues(t, n, counts[0].TxPackets)
	f.end()
	b.quit()
}
