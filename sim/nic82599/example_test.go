package nic82599_test

import (
	"fmt"
	"time"

	"bare.wire/clock"
	"bare.wire/ixgbe/reg"
	"bare.wire/sim"
	"bare.wire/sim/nic82599"
)

// A card is a set of registers. What a driver must not do is kept, with the section of the datasheet that says so.
func Example() {
	world := sim.NewWorld(clock.NewVirtual(time.Unix(0, 0)))
	card := nic82599.New(nic82599.Config{Name: "sim:a", World: world})

	fmt.Printf("STATUS %08X\n", card.Read32(reg.STATUS))
	card.Write32(reg.TDT(3), 32) // the doorbell of a queue that is not enabled
	for _, m := range card.Misuse() {
		fmt.Println(m.Kind, "on queue", m.Queue, "see", m.Section)
	}
	// Output:
	// STATUS 00080000
	// TailBeforeEnable on queue 3 see §4.6.7
}
