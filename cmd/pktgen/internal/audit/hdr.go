package audit

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/big"
	"math/bits"
	"sort"
)

// tooLong is what the report counts as overflow, ns.
const tooLong = 10_000_000_000

// buckets are durations as an HDR histogram of three digits sees them: up to 2047 each value for itself, above that the
// upper 11 bits.
type buckets struct {
	values             []int64 // sorted
	counts             map[int64]uint64
	n                  int
	overflow, negative uint64
	min, max           int64
}

func newBuckets(values []int64) *buckets {
	b := &buckets{counts: map[int64]uint64{}}
	for _, v := range values {
		switch {
		case v < 0:
			b.negative++
			continue
		case v > tooLong:
			b.overflow++
			b.max = max(b.max, v)
			continue
		}
		b.values = append(b.values, v)
		lowest, _ := bucketOf(v)
		b.counts[lowest]++
		b.max = max(b.max, v)
	}
	sort.Slice(b.values, func(i, j int) bool { return b.values[i] < b.values[j] })
	if b.n = len(b.values); b.n > 0 {
		b.min = b.values[0]
	}
	return b
}

// bucketOf is the lowest value of v's bucket, and how many values it has.
func bucketOf(v int64) (lowest, width int64) {
	shift := max(bits.Len64(uint64(v))-11, 0)
	return v >> shift << shift, 1 << shift
}

// percentile is the value at rank ⌈p·n⌉, as the highest value of its bucket, but not outside what there was.
func (b *buckets) percentile(num, den int64) int64 {
	if b.n == 0 {
		return 0
	}
	rank := (int64(b.n)*num + den - 1) / den
	lowest, width := bucketOf(b.values[max(rank, 1)-1])
	return min(max(lowest+width-1, b.min), b.max)
}

// mean is exact, rounded to a nanosecond.
func (b *buckets) mean() int64 {
	if b.n == 0 {
		return 0
	}
	sum := new(big.Int)
	for _, v := range b.values {
		sum.Add(sum, big.NewInt(v))
	}
	n := big.NewInt(int64(b.n))
	sum.Add(sum.Mul(sum, big.NewInt(2)), n)
	return sum.Quo(sum, n.Mul(n, big.NewInt(2))).Int64()
}

// deviation is the standard deviation of the middles of the buckets.
func (b *buckets) deviation() int64 {
	if b.n == 0 || b.values[0] == b.values[b.n-1] {
		return 0
	}
	var middles []float64
	sum := 0.0
	for _, v := range b.values {
		lowest, width := bucketOf(v)
		middles = append(middles, float64(lowest+width/2))
		sum += middles[len(middles)-1]
	}
	mean, squares := sum/float64(b.n), 0.0
	for _, m := range middles {
		squares += (m - mean) * (m - mean)
	}
	return int64(math.Round(math.Sqrt(squares / float64(b.n))))
}

// differ says where other counts are not those of b.
func (b *buckets) differ(other map[int64]uint64) string {
	for v, n := range b.counts {
		if other[v] != n {
			return fmt.Sprintf("%d values from %d ns, want %d", other[v], v, n)
		}
	}
	for v, n := range other {
		if b.counts[v] != n {
			return fmt.Sprintf("%d values from %d ns, want %d", n, v, b.counts[v])
		}
	}
	return ""
}

// decodeHistogram reads the V2 compressed form of HDR histograms: base64 of cookie, length, and a zlib stream of a 40-byte
// head and the counts as zigzag LEB128, where a negative number is so many empty buckets.
func decodeHistogram(s string) (map[int64]uint64, error) {
	raw, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(raw) < 8 {
		return nil, fmt.Errorf("%d bytes, and %w", len(raw), err)
	}
	z, err := zlib.NewReader(bytes.NewReader(raw[8:]))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(z)
	if err != nil || len(plain) < 40 {
		return nil, fmt.Errorf("%d bytes of a histogram, and %w", len(plain), err)
	}
	if digits, lowest := binary.BigEndian.Uint32(plain[12:]), binary.BigEndian.Uint64(plain[16:]); digits != 3 || lowest != 1 {
		return nil, fmt.Errorf("%d digits from %d up, want 3 from 1", digits, lowest)
	}
	out := map[int64]uint64{}
	index := int64(0)
	for rest := plain[40:]; len(rest) > 0; {
		n, size := binary.Varint(rest) // zigzag LEB128; counts here are far below where HDR's ninth byte differs
		if size <= 0 {
			return nil, fmt.Errorf("a count is cut")
		}
		rest = rest[size:]
		if n < 0 {
			index -= n
			continue
		}
		if n > 0 {
			out[valueAt(index)] = uint64(n)
		}
		index++
	}
	return out, nil
}

// valueAt is the lowest value of the bucket with this index: 2048 single ones, then 1024 of each power of two.
func valueAt(index int64) int64 {
	if index < 2048 {
		return index
	}
	shift := index/1024 - 1
	return (index%1024 + 1024) << shift
}
