package vhostuser_test

import (
	"context"
	"fmt"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/vhostuser"
	"bare.wire/sim/virtionet"
)

// A device at one end of a wire, for whoever connects to the socket.
func ExampleNew() {
	world := sim.NewWorld(clock.Real())
	wire, err := link.New(link.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	memory := &vhostuser.Memory{} // the front end's, once there is one
	dev, err := virtionet.New(virtionet.Config{Name: "device", Memory: memory, World: world, Net: virtionet.OnWire(wire.A())})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	back, err := vhostuser.New(vhostuser.Config{Path: "/run/nic.sock", World: world, Device: dev, Memory: memory})
	if err != nil {
		fmt.Println(err) // says what is to be done
		return
	}
	defer back.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = world.Run(ctx) }()
	_ = back.Run(ctx) // until ctx ends
}
