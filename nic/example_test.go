package nic_test

import (
	"fmt"
	"time"

	"bare.wire/clock"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

// A worker polls while there is traffic and sleeps when there is none; on a virtual clock sleeping lets time pass. A driver
// calls Wake; here a timer stands for it.
func ExampleWaiter() {
	clk := clock.NewVirtual(time.Unix(0, 0))
	waiter, err := nic.NewWaiter(clk)
	if err != nil {
		panic(err)
	}
	clk.At(3000, waiter.Wake) // a frame comes after 3 µs

	for range 2 {
		woken, err := waiter.Wait(10_000)
		fmt.Println(woken, err, clk.Nanos())
	}
	fmt.Println(waiter.Close())
	// Output:
	// true <nil> 3000
	// false <nil> 10000
	// <nil>
}

// receive is the loop of a worker that counts what it receives: frames are the caller's once Recv has returned them.
func receive(q nic.RxQueue, w *nic.Waiter, c *mbuf.Cache, until int64) (frames int, err error) {
	burst := make([]*mbuf.Buf, 32)
	for {
		if n := q.Recv(burst); n > 0 {
			frames += n
			c.FreeBulk(burst[:n])
			continue
		}
		if !q.Arm(w) {
			continue // something came in between
		}
		woken, err := w.Wait(until)
		if err != nil || !woken {
			return frames, err
		}
	}
}

// silent is a queue on which nothing is ever received.
type silent struct{}

func (silent) Recv([]*mbuf.Buf) int { return 0 }
func (silent) Arm(*nic.Waiter) bool { return true }

func ExampleRxQueue() {
	waiter, err := nic.NewWaiter(clock.NewVirtual(time.Unix(0, 0)))
	if err != nil {
		panic(err)
	}
	fmt.Println(receive(silent{}, waiter, nil, 1000))
	fmt.Println(waiter.Close())
	// Output:
	// 0 <nil>
	// <nil>
}

// ExampleIdle is a worker that polls while frames come, and sleeps after three rounds without any.
func ExampleIdle() {
	clk := clock.NewVirtual(time.Unix(0, 0))
	waiter, err := nic.NewWaiter(clk)
	if err != nil {
		panic(err)
	}
	clk.At(5000, waiter.Wake) // a frame comes after 5 µs

	idle := nic.NewIdle(waiter, 3 /* port.Rx(0), port.Tx(0) */)
	for _, frames := range []int{32, 7, 0, 0, 0, 0} {
		slept, err := idle.Round(frames, 10_000)
		fmt.Println(frames, slept, err, clk.Nanos())
	}
	fmt.Println(waiter.Close())
	// Output:
	// 32 false <nil> 0
	// 7 false <nil> 0
	// 0 false <nil> 0
	// 0 false <nil> 0
	// 0 false <nil> 0
	// 0 true <nil> 5000
	// <nil>
}
