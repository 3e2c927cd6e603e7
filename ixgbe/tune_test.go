package ixgbe

import (
	"fmt"
	"testing"
	"unsafe"

	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/vtop"
)

type tiny struct {
	p        *Port
	mem      []byte
	rx       []rxDesc
	tx       []txDesc
	rdh, tdh uint32
}

func newTiny(tb testing.TB) (*tiny, *mbuf.Pool) {
	space := vtop.NewMapped()
	pool, err := mbuf.NewPool(mbuf.Config{Space: space, Buffers: 4095})
	if err != nil {
		tb.Fatal(err)
	}
	t := &tiny{mem: make([]byte, reg.BARSize)}
	bar, err := pci.MapBAR(t.mem)
	if err != nil {
		tb.Fatal(err)
	}
	t.p = &Port{bar: bar, space: space, node: -1}
	t.p.cfg = nic.Config{RxQueues: 1, TxQueues: 1, RxDesc: 512, TxDesc: 512, MaxFrame: 1518, Pool: pool, RxPools: []*mbuf.Pool{pool}}
	if err := t.p.makeQueues(); err != nil {
		tb.Fatal(err)
	}
	t.rx, t.tx = t.p.rx[0].ring, t.p.tx[0].ring
	t.p.rx[0].refill()
	return t, pool
}

//go:noinline
func (t *tiny) rxstep(k int) {
	for k > 0 {
		run := t.rx[t.rdh:min(int(t.rdh)+k, len(t.rx))]
		for i := range run {
			d := &run[i]
			d.lo = 0
			d.hi = 60<<32 | 3
		}
		k -= len(run)
		t.rdh += uint32(len(run))
		if t.rdh == uint32(len(t.rx)) {
			t.rdh = 0
		}
	}
}

//go:noinline
func (t *tiny) txstep() {
	tail := *(*uint32)(unsafe.Pointer(&t.mem[reg.TDT(0)]))
	for t.tdh != tail {
		end := tail
		if tail < t.tdh {
			end = uint32(len(t.tx))
		}
		run := t.tx[t.tdh:end]
		for i := range run {
			d := &run[i]
			if d.hi&reg.TXD_RS != 0 {
				d.hi |= reg.TXD_DD
			}
		}
		t.tdh = end
		if t.tdh == uint32(len(t.tx)) {
			t.tdh = 0
		}
	}
}

//go:noinline
func (t *tiny) forward(rx nic.RxQueue, tx nic.TxQueue, bufs []*mbuf.Buf, n int) {
	for done := 0; done < n; {
		t.rxstep(len(bufs))
		got := rx.Recv(bufs)
		for _, b := range bufs[:got] {
			b.Bytes()[48]++
		}
		if s := tx.Send(bufs[:got]); s != got {
			panic("full")
		}
		t.txstep()
		done += got
	}
}

func BenchmarkTiny(b *testing.B) {
	for _, burst := range []int{1, 8, 32, 256} {
		b.Run(fmt.Sprint(burst), func(b *testing.B) {
			t, _ := newTiny(b)
			b.ReportAllocs()
			b.ResetTimer()
			t.forward(t.p.Rx(0), t.p.Tx(0), make([]*mbuf.Buf, burst), b.N)
		})
	}
}
