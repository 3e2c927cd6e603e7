package device_test

import (
	"context"
	"fmt"
	"time"

	"bare.wire/device"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

// A frame goes from one software card to the other. The buffer that is received is the one that the card wrote, the one that
// is sent the one that was filled here.
func ExampleOpenSet() {
	ctx := context.Background()
	set, err := device.OpenSet(ctx, device.Options{}, "sim:?clock=virtual&delay=5us")
	if err != nil {
		fmt.Println(err)
		return
	}
	pool, err := mbuf.NewPool(mbuf.Config{Name: "example", Space: set.Space, Buffers: 2048})
	if err != nil {
		fmt.Println(err)
		return
	}
	a, b := set.Ports[0], set.Ports[1]
	for _, p := range set.Ports {
		if err := p.Start(ctx, nic.Config{Pool: pool, Promiscuous: true}); err != nil {
			fmt.Println(err)
			return
		}
	}
	for !a.Link().Up || !b.Link().Up { // the link takes a moment
		_ = set.Clock.Sleep(ctx, time.Millisecond)
		a.Housekeep(set.Clock.Now())
		b.Housekeep(set.Clock.Now())
	}

	cache := pool.NewCache()
	frame := cache.Alloc()
	room, err := frame.Reserve(60)
	if err != nil {
		fmt.Println(err)
		return
	}
	room[59] = 7
	fmt.Println("sent:", a.Tx(0).Send([]*mbuf.Buf{frame}))

	waiter, err := nic.NewWaiter(set.Clock)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer waiter.Close()
	var in [32]*mbuf.Buf
	n := b.Rx(0).Recv(in[:])
	for n == 0 {
		if b.Rx(0).Arm(waiter) {
			if woken, err := waiter.Wait(set.Clock.Nanos() + int64(time.Second)); !woken || err != nil {
				fmt.Println("nothing came:", err)
				return
			}
		}
		n = b.Rx(0).Recv(in[:])
	}
	fmt.Println("received:", n, "of", in[0].Len(), "bytes, the last", in[0].Bytes()[59])
	cache.FreeBulk(in[:n])

	cache.Close()
	fmt.Println("closed:", set.Close(), pool.Close())
	// Output:
	// sent: 1
	// received: 1 of 60 bytes, the last 7
	// closed: <nil> <nil>
}
