package audit

import (
	"encoding/base64"
	"testing"
)

func arrivals(seqs ...uint64) (out []arrival) {
	for _, s := range seqs {
		out = append(out, arrival{seq: s})
	}
	return out
}

// RFC 4737's definitions, worked by hand.
func TestExtentOfReorderedFrames(t *testing.T) {
	for _, c := range []struct {
		want uint64
		seqs []uint64
	}{{0, nil}, {0, []uint64{1, 2, 5, 6}}, {2, []uint64{1, 2, 5, 3, 4, 6}}, {1, []uint64{2, 1, 4, 3}}, {3, []uint64{7, 8, 9, 1}}, {4, []uint64{5, 1, 2, 3, 4}}} {
		if got := maxExtent(arrivals(c.seqs...)); got != c.want {
			t.Errorf("%v: %d, want %d", c.seqs, got, c.want)
		}
	}
}

func TestBucketsAndTheirIndices(t *testing.T) {
	for _, c := range []struct{ value, lowest, width int64 }{{0, 0, 1}, {1, 1, 1}, {2047, 2047, 1}, {2048, 2048, 2}, {2049, 2048, 2}, {4095, 4094, 2}, {4096, 4096, 4}, {1e9, 999817216, 524288}} {
		if l, w := bucketOf(c.value); l != c.lowest || w != c.width {
			t.Errorf("%d: from %d, %d values; want %d, %d", c.value, l, w, c.lowest, c.width)
		}
	}
	next := int64(0)
	for i := range int64(20_000) { // every bucket begins where the one before ends
		if valueAt(i) != next {
			t.Fatalf("bucket %d begins at %d, want %d", i, valueAt(i), next)
		}
		lowest, width := bucketOf(next)
		if lowest != next {
			t.Fatalf("%d is in the bucket of %d", next, lowest)
		}
		next += width
	}
}

func TestPercentilesByRank(t *testing.T) {
	b := newBuckets([]int64{40, 10, 30, 20, -5, tooLong + 1})
	for _, c := range []struct{ num, den, want int64 }{{1, 4, 10}, {1, 2, 20}, {51, 100, 30}, {999, 1000, 40}, {1, 1000, 10}} {
		if got := b.percentile(c.num, c.den); got != c.want {
			t.Errorf("%d/%d: %d, want %d", c.num, c.den, got, c.want)
		}
	}
	if b.n != 4 || b.overflow != 1 || b.negative != 1 || b.mean() != 25 || b.deviation() != 11 || b.max != tooLong+1 {
		t.Errorf("%+v, mean %d, deviation %d", b, b.mean(), b.deviation())
	}
}

func TestJitterOfTheRFC(t *testing.T) {
	// Transit 100, 116, 100: D is 16 twice, so 16/16 and a bit.
	list := []arrival{{at: 100}, {at: 1116, sent: 1000}, {at: 2100, sent: 2000}}
	if got := jitter(list, true); got != 1 {
		t.Errorf("%d", got)
	}
	if jitter(list, false) != 0 {
		t.Error("jitter without a measurement")
	}
}

func TestBrokenHistogramsAreRefused(t *testing.T) {
	for _, s := range []string{"", "!", base64.StdEncoding.EncodeToString([]byte{1, 2, 3}), base64.StdEncoding.EncodeToString(make([]byte, 100))} {
		if h, err := decodeHistogram(s); err == nil {
			t.Errorf("%q: %v", s, h)
		}
	}
}
