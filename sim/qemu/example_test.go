package qemu_test

import (
	"context"
	"fmt"
	"os"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/sim/nic82599"
	"bare.wire/sim/qemu"
	"bare.wire/sim/qemu/qemutest"
)

// A machine with one card, from its command line to its exit status. Here this test passes for QEMU; otherwise the command is
// qemu-system-x86_64 and its arguments.
func Example() {
	_ = os.Setenv(qemutest.Env, "1")
	defer os.Unsetenv(qemutest.Env)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	m, err := qemu.New(ctx, qemu.Config{Command: []string{os.Args[0], "-name", qemutest.Obedient, "-m", "512M"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	slot, err := m.Add(qemu.Slot{Slot: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	world := sim.NewWorld(clock.Real())
	card := nic82599.New(nic82599.Config{Name: "card", World: world, Memory: slot.Memory(), MAC: [6]byte{2, 0, 0, 0, 0, 1}})
	defer card.Close()
	if err := slot.Attach(card); err != nil {
		fmt.Println(err)
		return
	}
	stepped := make(chan struct{})
	go func() {
		defer close(stepped)
		_ = world.Run(ctx) // the card works beside the machine, until ctx ends
	}()
	status, err := m.Run(ctx)
	cancel()
	<-stepped // no DMA from here on: the guest's memory may go
	fmt.Println(status, err, card.Misuse()[0].Kind)
	// Output: 7 <nil> UndefinedRegister
}
