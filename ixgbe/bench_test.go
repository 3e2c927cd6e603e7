package ixgbe_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"bare.wire/clock"
	"bare.wire/ixgbe"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/sim/nullnic"
	"bare.wire/vtop"
)

// The benchmarks measure the driver on a card that only sets DD, in the same goroutine. They report processor time of the
// thread (cpu-ns/op), for one packet, which a busy machine disturbs less than the wall clock; compare them with
// BenchmarkYardstick of the same run. The exact figure is the number of instructions: `make cost`.

var bursts = []int{1, 8, 32, 256}

const benchFrame = 60

// benchRig is a started port on the null card.
type benchRig struct {
	card  *nullnic.NIC
	rx    nic.RxQueue
	tx    nic.TxQueue
	cache *mbuf.Cache
}

type benchFunction struct{ *nullnic.NIC }

func (f benchFunction) BAR(int) (pci.BAR, error) { return pci.MapBAR(f.Mem()) }

func newBenchRig(b *testing.B) *benchRig {
	b.Helper()
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	ctx := context.Background()
	space := vtop.NewMapped()
	card, err := nullnic.New(nullnic.Config{Name: "null", Memory: space})
	check(err)
	port, err := ixgbe.Open(ctx, benchFunction{card}, ixgbe.Options{Space: space, Clock: card.Clock(clock.Real()), Node: -1})
	check(err)
	pool, err := mbuf.NewPool(mbuf.Config{Name: "bench", Space: space, Buffers: 4095})
	check(err)
	check(port.Start(ctx, nic.Config{Pool: pool}))
	check(card.Attach())
	r := &benchRig{card: card, rx: port.Rx(0), tx: port.Tx(0), cache: pool.NewCache()}
	b.Cleanup(func() {
		r.cache.Close()
		check(port.Close())
		check(pool.Close())
	})
	return r
}

// perPacket runs step, which moves up to k packets and says how many, until b.N packets have been moved.
func perPacket(b *testing.B, k int, step func(bufs []*mbuf.Buf) int) {
	bufs := make([]*mbuf.Buf, k)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.ReportAllocs()
	b.ResetTimer()
	start := threadCPU(b)
	for n := 0; n < b.N; {
		moved := step(bufs)
		if moved == 0 {
			b.Fatalf("stands still after %d packets", n)
		}
		n += moved
	}
	b.ReportMetric(float64(threadCPU(b)-start)/float64(b.N), "cpu-ns/op")
}

func threadCPU(b *testing.B) int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return t.Nano()
}

func BenchmarkRecv(b *testing.B) {
	for _, k := range bursts {
		b.Run(fmt.Sprint(k), func(b *testing.B) {
			r := newBenchRig(b)
			perPacket(b, k, func(bufs []*mbuf.Buf) int {
				r.card.RxStep(len(bufs))
				n := r.rx.Recv(bufs)
				r.cache.FreeBulk(bufs[:n])
				return n
			})
		})
	}
}

func BenchmarkSend(b *testing.B) {
	for _, k := range bursts {
		b.Run(fmt.Sprint(k), func(b *testing.B) {
			r := newBenchRig(b)
			perPacket(b, k, func(bufs []*mbuf.Buf) int {
				n := r.cache.AllocBulk(bufs)
				for _, m := range bufs[:n] {
					if m.SetLen(benchFrame) != nil {
						return 0
					}
				}
				sent := r.tx.Send(bufs[:n])
				r.cache.FreeBulk(bufs[sent:n])
				r.card.TxStep()
				return sent
			})
		})
	}
}

func BenchmarkForward(b *testing.B) {
	for _, k := range bursts {
		b.Run(fmt.Sprint(k), func(b *testing.B) {
			r := newBenchRig(b)
			perPacket(b, k, func(bufs []*mbuf.Buf) int {
				r.card.RxStep(len(bufs))
				n := r.rx.Recv(bufs)
				for _, m := range bufs[:n] {
					m.Bytes()[48]++
				}
				sent := r.tx.Send(bufs[:n])
				r.cache.FreeBulk(bufs[sent:n])
				r.card.TxStep()
				return sent
			})
		})
	}
}

// BenchmarkYardstick is what the machine needs for the least that any driver does: 16-byte descriptors and 64 bytes of
// payload, written and read again, in one thread.
func BenchmarkYardstick(b *testing.B) {
	type desc struct{ addr, status uint64 }
	for _, k := range bursts {
		b.Run(fmt.Sprint(k), func(b *testing.B) {
			ring := make([]desc, 512)
			payload := make([][8]uint64, 512)
			var at int
			var sum uint64
			perPacket(b, k, func(bufs []*mbuf.Buf) int {
				for i := range len(bufs) {
					n := (at + i) & 511
					p := &payload[n]
					for w := range p {
						p[w] = uint64(i)
					}
					ring[n] = desc{uint64(n), 60<<32 | 1}
				}
				for i := range len(bufs) {
					n := (at + i) & 511
					for _, w := range &payload[n] {
						sum += w
					}
					sum += ring[n].status
				}
				at += len(bufs)
				return len(bufs)
			})
			if sum == 0 {
				b.Fatal("nothing was read")
			}
		})
	}
}
