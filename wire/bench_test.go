package wire_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"bare.wire/wire"
)

// naiveSum is the checksum as RFC 1071 §4.1 writes it down: the yardstick for
// right and for fast.
func naiveSum(b []byte) wire.Sum {
	var sum uint64
	for len(b) > 1 {
		sum += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		sum += uint64(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return wire.Sum(sum)
}

var sumSink wire.Sum

// BenchmarkSum reports the time of the naive loop over the same bytes, divided
// by ours, as "x-naive".
func BenchmarkSum(b *testing.B) {
	for _, n := range []int{20, 40, 64, 1460, 9000, 65536} {
		buf := make([]byte, n)
		for i := range buf {
			buf[i] = byte(i * 7)
		}
		var naive float64
		b.Run(fmt.Sprintf("naive/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				sumSink = naiveSum(buf)
			}
			naive = perOp(b)
		})
		b.Run(fmt.Sprintf("ours/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				sumSink = wire.SumOf(buf)
			}
			b.ReportMetric(naive/perOp(b), "x-naive")
		})
	}
}

func perOp(b *testing.B) float64 { return float64(b.Elapsed().Nanoseconds()) / float64(b.N) }

var layersSink wire.Layers

func BenchmarkParse(b *testing.B) {
	for _, f := range goodFrames(b) {
		b.Run(f.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l, err := wire.Parse(f.data)
				if err != nil {
					b.Fatal(err)
				}
				layersSink = l
			}
		})
	}
}

func BenchmarkPutUDPFrame(b *testing.B) {
	room := make([]byte, 60)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := putUDP4(room, 18); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUpdateChecksum(b *testing.B) {
	var check uint16
	for b.Loop() {
		check = wire.UpdateChecksum(check, 0x1234, 0x4321)
	}
	sumSink = wire.Sum(check)
}

// BenchmarkParseLongWay is what Parse of a plain frame would cost without its
// short way.
func BenchmarkParseLongWay(b *testing.B) {
	f := frameNamed(b, "udp4")
	for b.Loop() {
		l, err := wire.ParseAny(f, len(f))
		if err != nil {
			b.Fatal(err)
		}
		layersSink = l
	}
}
