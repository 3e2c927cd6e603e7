package mbuf

import (
	"fmt"
	"testing"
)

func benchmarkPool(b *testing.B) (*Pool, *Cache) {
	p := newTestPool(b, Config{Buffers: 4095})
	c := p.NewCache()
	b.Cleanup(func() {
		c.Close()
		closePool(b, p)
	})
	b.ReportAllocs()
	return p, c
}

func BenchmarkAllocFree(b *testing.B) {
	_, c := benchmarkPool(b)
	for b.Loop() {
		c.Free(c.Alloc())
	}
}

// BenchmarkBulk is one operation a burst.
func BenchmarkBulk(b *testing.B) {
	for _, burst := range []int{1, 8, 32, 256} {
		b.Run(fmt.Sprint(burst), func(b *testing.B) {
			_, c := benchmarkPool(b)
			bufs := make([]*Buf, burst)
			for b.Loop() {
				c.FreeBulk(bufs[:c.AllocBulk(bufs)])
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*burst), "ns/buf")
		})
	}
}

// BenchmarkBulkBetweenCaches has every buffer go through the depot: allocated here, freed there.
func BenchmarkBulkBetweenCaches(b *testing.B) {
	p, c := benchmarkPool(b)
	other := p.NewCache()
	b.Cleanup(other.Close)
	bufs := make([]*Buf, 32)
	for b.Loop() {
		other.FreeBulk(bufs[:c.AllocBulk(bufs)])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(bufs)), "ns/buf")
}

func BenchmarkFreeFromAnywhere(b *testing.B) {
	_, c := benchmarkPool(b)
	for b.Loop() {
		c.Alloc().Free()
	}
}

func BenchmarkClone(b *testing.B) {
	_, c := benchmarkPool(b)
	x := c.Alloc()
	for b.Loop() {
		c.Free(x.Clone(c))
	}
	c.Free(x)
}

func BenchmarkCloneFromAnywhere(b *testing.B) {
	_, c := benchmarkPool(b)
	x := c.Alloc()
	for b.Loop() {
		x.Clone(c).Free()
	}
	c.Free(x)
}

func BenchmarkCopy(b *testing.B) {
	for _, n := range []int{64, 1500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p, _ := benchmarkPool(b)
			site := &Site{"bench"}
			dst, src := make([]byte, n), make([]byte, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				Copy(p, site, dst, src)
			}
		})
	}
}

func BenchmarkSplit(b *testing.B) {
	_, c := benchmarkPool(b)
	for b.Loop() {
		var q Chain
		_, _ = q.Reserve(c, 1000)
		front, _ := q.Split(c, 500)
		front.AppendChain(&q)
		c.Free(front.Take())
	}
}
