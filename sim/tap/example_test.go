package tap_test

import (
	"context"
	"fmt"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/tap"
)

// A wire whose B end is the host's interface tap0; a card takes the A end.
func ExampleOpen() {
	world := sim.NewWorld(clock.Real())
	wire, err := link.New(link.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	host, err := tap.Open(tap.Config{Name: "tap0", World: world, End: wire.B()})
	if err != nil {
		fmt.Println(err) // says what is to be done
		return
	}
	defer host.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_ = world.Run(ctx) // until ctx ends
}
