package virtionet

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"bare.wire/virtio/spec"
)

// TestFramesArriveWhole sends frames of many lengths through every kind of ring, ring sizes that wrap often, and orders.
func TestFramesArriveWhole(t *testing.T) {
	rings := []struct {
		name string
		f    spec.Features
		size int
	}{
		{"split", 0, 64}, {"split of 2", 0, 2}, {"split of 4", 0, 4}, {"split with events", spec.FeatureEventIdx, 16},
		{"split in order", spec.FeatureInOrder, 64}, {"packed in order", spec.FeatureRingPacked | spec.FeatureInOrder, 64},
		{"packed", spec.FeatureRingPacked, 64}, {"packed of 3", spec.FeatureRingPacked, 3}, {"packed of 7 with events", spec.FeatureRingPacked | spec.FeatureEventIdx, 7},
	}
	for i, ring := range rings {
		for j, mrg := range []spec.Features{0, spec.FeatureMrgRxBuf} {
			for k, order := range []Order{InOrder, Shuffled} {
				piece := (i + j + k) % 2 // memory that lies together, or in pages
				t.Run(fmt.Sprintf("%s/mergeable %t/order %d/pieces %d", ring.name, mrg != 0, order, piece), func(t *testing.T) {
					framesArrive(t, ring.f|mrg, ring.size, order, piece*4096)
				})
			}
		}
	}
}

func framesArrive(t *testing.T, f spec.Features, size int, order Order, piece int) {
	r := newRig(t, 7, func(c *Config) { c.Order = order })
	r.a.mem.piece, r.b.mem.piece = piece, piece
	r.a.start(f, size)
	r.b.start(f, size)
	const bufSize = 1600
	per := 1
	length := 1514
	if f&spec.FeatureMrgRxBuf != 0 && size >= 16 {
		length = 5000
	}
	r.b.fill(0, size, bufSize)
	next := 0
	for i := range 150 {
		pieces := 1 + i%min(3, size)
		n := 14 + (i*97)%(length-14)
		r.a.send(1, Header{}, frameTo(macB, n, i), pieces)
		r.run(30 * time.Microsecond)
		if got := r.a.sent(1); got != 1 {
			t.Fatalf("frame %d: %d frames came back", i, got)
		}
		for {
			_, raw, ok := r.b.recv(0)
			if !ok {
				break
			}
			want := frameTo(macB, max(14, 14+(next*97)%(length-14)), next)
			if len(want) < 60 {
				want = append(want, make([]byte, 60-len(want))...)
			}
			if !bytes.Equal(raw[r.b.hdr:], want) {
				t.Fatalf("frame %d is not what was sent", next)
			}
			next++
			per = (len(raw) + bufSize - 1) / bufSize
			r.b.fill(0, per, bufSize)
		}
	}
	if next != 150 {
		t.Errorf("%d frames arrived, of 150", next)
	}
	r.a.clean()
	r.b.clean()
}
