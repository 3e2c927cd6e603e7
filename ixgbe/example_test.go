package ixgbe_test

import (
	"context"
	"fmt"
	"time"

	"bare.wire/clock"
	"bare.wire/ixgbe"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim"
	"bare.wire/sim/nic82599"
	"bare.wire/vtop"
)

// A card in loopback, here one in software: every frame that is sent comes back.
func Example() {
	ctx := context.Background()
	space, clk := vtop.NewMapped(), clock.NewVirtual(time.Unix(0, 0))
	world := sim.NewWorld(clk)
	card := nic82599.New(nic82599.Config{Name: "sim:a", Memory: space, World: world, MAC: [6]byte{2, 0, 0, 0, 0, 1}})

	port, err := ixgbe.Open(ctx, &function{Card: card}, ixgbe.Options{Space: space, Clock: clk, Node: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	pool, err := mbuf.NewPool(mbuf.Config{Space: space, Buffers: 1024})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := port.Start(ctx, nic.Config{Pool: pool, Loopback: true, Promiscuous: true}); err != nil {
		fmt.Println(err)
		return
	}

	cache := pool.NewCache()
	b := cache.Alloc() // the caller's …
	room, _ := b.Reserve(60)
	room[14] = 42
	port.Tx(0).Send([]*mbuf.Buf{b}) // … the driver's, until the card has sent it

	_ = clk.Sleep(ctx, time.Millisecond)
	world.Step()
	var got [32]*mbuf.Buf
	n := port.Rx(0).Recv(got[:])
	fmt.Println(n, "frame of", got[0].Len(), "bytes, the 15th is", got[0].Bytes()[14])
	got[0].Free() // the caller's again, who frees it

	cache.Close()
	fmt.Println(port.Close(), pool.Close(), len(card.Misuse()))
	// Output:
	// 1 frame of 60 bytes, the 15th is 42
	// <nil> <nil> 0
}
