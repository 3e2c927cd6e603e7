package virtio_test

import (
	"context"
	"fmt"
	"time"

	"bare.wire/clock"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// Two software devices on a wire, each behind a PCI function. What is agreed on can be restricted, and is printed.
func Example() {
	ctx := context.Background()
	space, clk := vtop.NewMapped(), clock.NewVirtual(time.Unix(0, 0))
	world := sim.NewWorld(clk)
	wire, err := link.New(link.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	world.Add(wire)
	restriction, err := spec.ParseRestriction("mac,status,mrg_rxbuf,event_idx,ring_packed")
	if err != nil {
		fmt.Println(err)
		return
	}
	var ports []*virtio.Port
	for i, end := range []*link.End{wire.A(), wire.B()} {
		device, err := virtionet.New(virtionet.Config{Name: fmt.Sprint("sim:", i), Memory: space, World: world, Net: virtionet.OnWire(end), MAC: [6]byte{2, 5: byte(i)}})
		if err != nil {
			fmt.Println(err)
			return
		}
		transport, err := virtio.NewPCI(ctx, &function{virtionet.NewFunction(device, virtionet.FunctionConfig{})}, virtio.TransportOptions{Clock: clk})
		if err != nil {
			fmt.Println(err)
			return
		}
		port, err := virtio.Open(ctx, transport, virtio.Options{Space: space, Clock: clk, Node: -1, Features: restriction})
		if err != nil {
			fmt.Println(err)
			return
		}
		ports = append(ports, port)
	}
	pool, err := mbuf.NewPool(mbuf.Config{Space: space, Buffers: 2048})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, port := range ports {
		if err := port.Start(ctx, nic.Config{Pool: pool}); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(ports[0].Negotiated())

	cache := pool.NewCache()
	b := cache.Alloc() // the caller's …
	room, _ := b.Reserve(60)
	room[5], room[14] = 1, 42
	room[0] = 2
	ports[0].Tx(0).Send([]*mbuf.Buf{b}) // … the driver's, until the device has sent it

	var got [32]*mbuf.Buf
	for n := 0; n == 0; n = ports[1].Rx(0).Recv(got[:]) {
		_ = clk.Sleep(ctx, time.Microsecond)
		world.Step()
	}
	fmt.Println("a frame of", got[0].Len(), "bytes, the 15th is", got[0].Bytes()[14])
	got[0].Free() // the caller's again, who frees it

	cache.Close()
	fmt.Println(ports[0].Close(), ports[1].Close(), pool.Close())
	// Output:
	// mac,mrg_rxbuf,status,event_idx,version_1,ring_packed
	// a frame of 60 bytes, the 15th is 42
	// <nil> <nil> <nil>
}
