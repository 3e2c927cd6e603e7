package virtio_test

import (
	"context"
	"fmt"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/nic/nictest/soak"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// TestSoak has whatever goes wrong in the life of a device: the link flaps, it falls silent, lies, asks for a reset, is pulled out;
// pools of 64 buffers run dry, ports stop and start.
func TestSoak(t *testing.T) { soak.TestRounds(t, soakBed) }

func soakBed(r *soak.Round) *soak.Bed {
	s := &soakDevices{Round: r, space: vtop.NewMapped(), world: sim.NewWorld(r.Clock)}
	wire, err := link.New(link.Config{})
	if err != nil {
		r.Fatal(err)
	}
	s.world.Add(wire)
	for i, end := range []*link.End{wire.A(), wire.B()} {
		s.devs[i], err = virtionet.New(virtionet.Config{
			Name: fmt.Sprintf("device %d", i), Memory: s.space, World: s.world, Net: virtionet.OnWire(end), Seed: r.Seed*2 + uint64(i),
			MAC: [6]byte{2, 0, 0, 0, 1, byte(i)}, Pairs: 3, MaxStep: r.Rand.IntN(4) * 16, Order: virtionet.Order(r.Rand.IntN(2)),
		})
		if err != nil {
			r.Fatal(err)
		}
	}
	return &soak.Bed{
		Open: s.open,
		NewPool: func(cfg mbuf.Config) (*mbuf.Pool, error) {
			cfg.Space = s.space
			return mbuf.NewPool(cfg)
		},
		Misfortunes: []func(victim int){
			func(int) {}, // nothing goes wrong
			func(i int) { r.Flap(s.devs[i].SetLink) },
			func(i int) { s.devs[i].Remove() },
			func(i int) { s.devs[i].SetFaults(virtionet.Faults{TxSilent: true, RxSilent: true}) },
			func(i int) { s.devs[i].SetFaults(virtionet.Faults{NeedsReset: true}) },
			func(i int) { s.devs[i].SetFaults(virtionet.Faults{UsedID: true}) },
			func(i int) {
				s.devs[i].SetFaults(virtionet.Faults{NumBuffers: 1, GSOLie: true, CSumBeyond: true})
			},
			func(i int) { s.devs[i].SetFaults(virtionet.Faults{NoInterrupts: true, EventLie: true}) },
		},
		Heal: func() {
			for _, d := range s.devs {
				d.SetFaults(virtionet.Faults{})
				d.SetLink(true)
			}
		},
		Misuse: func() (out []string) {
			for i, d := range s.devs {
				for _, m := range d.Misuse() {
					out = append(out, fmt.Sprintf("device %d: %v", i, m))
				}
			}
			return out
		},
		End: soak.Work(s.world.Run),
	}
}

// soakDevices are the devices of a round.
type soakDevices struct {
	*soak.Round
	space *vtop.Space
	world *sim.World
	devs  [2]*virtionet.Device
}

func (s *soakDevices) open(i int) (nic.Port, error) {
	t, err := s.transport(i)
	if err != nil {
		return nil, err
	}
	return virtio.Open(context.Background(), t, virtio.Options{Space: s.space, Clock: s.Clock, Node: -1, Features: s.restriction()})
}

// transport is one of PCI's, or none.
func (s *soakDevices) transport(i int) (virtio.Transport, error) {
	if s.Rand.IntN(2) == 0 {
		return &seat{d: s.devs[i], w: s.world}, nil
	}
	f := virtionet.NewFunction(s.devs[i], virtionet.FunctionConfig{NoMSIX: s.Rand.IntN(4) == 0})
	return virtio.NewModern(context.Background(), &function{f}, virtio.TransportOptions{Clock: s.Clock})
}

// restriction takes out some of what makes rings differ.
func (s *soakDevices) restriction() (r spec.Restriction) {
	for _, f := range []spec.Features{packed, inOrder, mrg, indirect, eventIdx, spec.FeatureRSS} {
		if s.Rand.IntN(2) == 0 {
			r.Not |= f
		}
	}
	return r
}
