package ixgbe_test

import (
	"context"
	"fmt"
	"testing"

	"bare.wire/ixgbe"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/nic/nictest/soak"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/nic82599"
	"bare.wire/vtop"
)

// TestSoak has whatever goes wrong in the life of a card: the link flaps, DMA stops, a queue does not stop, the card is pulled out,
// pools of 64 buffers run dry, ports stop and start.
func TestSoak(t *testing.T) { soak.TestRounds(t, soakBed) }

func soakBed(r *soak.Round) *soak.Bed {
	space, world := vtop.NewMapped(), sim.NewWorld(r.Clock)
	wire, err := link.New(link.Config{})
	if err != nil {
		r.Fatal(err)
	}
	world.Add(wire)
	var cards [2]*nic82599.Card
	for i, end := range []*link.End{wire.A(), wire.B()} {
		cards[i] = nic82599.New(nic82599.Config{
			Name: fmt.Sprintf("card %d", i), Memory: space, World: world, End: end, LAN: i, Seed: r.Seed*2 + uint64(i),
			MAC: [6]byte{2, 0, 0, 0, 1, byte(i)}, Watch: true, MaxStep: r.Rand.IntN(4) * 16,
		})
	}
	return &soak.Bed{
		Open: func(i int) (nic.Port, error) {
			return ixgbe.Open(context.Background(), &function{Card: cards[i]}, ixgbe.Options{Space: space, Clock: r.Clock, Node: -1})
		},
		NewPool: func(cfg mbuf.Config) (*mbuf.Pool, error) {
			cfg.Space = space
			return mbuf.NewPool(cfg)
		},
		Vary: func(cfg *nic.Config) { cfg.BlockWhenFull = r.Rand.IntN(2) == 0 },
		Misfortunes: []func(victim int){
			func(int) {}, // nothing goes wrong
			func(i int) { r.Flap(cards[i].SetCable) },
			func(i int) { cards[i].Remove() },
			func(i int) { cards[i].SetFaults(nic82599.Faults{DMAStops: 1}) },
			func(i int) { cards[i].SetFaults(nic82599.Faults{NoWriteBack: true}) },
			func(i int) { cards[i].SetFaults(nic82599.Faults{DisableNever: 3}) },
		},
		Heal: func() {
			for _, c := range cards {
				c.SetFaults(nic82599.Faults{})
			}
		},
		Misuse: func() (out []string) {
			for i, c := range cards {
				for _, m := range c.Misuse() {
					out = append(out, fmt.Sprintf("card %d: %v", i, m))
				}
			}
			return out
		},
		End: soak.Work(world.Run),
	}
}
