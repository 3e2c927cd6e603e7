package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"bare.wire/sim/link"
)

// summary is what is said when the machine has ended.
type summary struct {
	Wire  *wireSummary  `json:"wire,omitempty"`
	Cards []cardSummary `json:"cards"`
}

type wireSummary struct {
	AToB dirSummary `json:"a_to_b"` // from the first card
	BToA dirSummary `json:"b_to_a"` // to the first card
}

type dirSummary struct {
	Frames    uint64 `json:"frames"`
	Delivered uint64 `json:"delivered"`
	Lost      uint64 `json:"lost"`
}

type cardSummary struct {
	Name       string   `json:"name"`
	Accesses   uint64   `json:"accesses"`
	Odd        uint64   `json:"odd_accesses"`
	Interrupts uint64   `json:"interrupts"`
	DMAReads   uint64   `json:"dma_reads"`
	DMAWrites  uint64   `json:"dma_writes"`
	DMAFaults  uint64   `json:"dma_faults"`
	LastFault  string   `json:"last_dma_fault,omitempty"`
	Misuse     []string `json:"misuse"`
}

func direction(w *link.Wire, d link.Direction) dirSummary {
	c := w.Counts(d)
	return dirSummary{Frames: c.Offered, Delivered: c.Delivered, Lost: c.Lost()}
}

func (b *bench) summarise() summary {
	var s summary
	if w := b.cable.wire; w != nil {
		b.world.Lock()
		s.Wire = &wireSummary{direction(w, link.AToB), direction(w, link.BToA)}
		b.world.Unlock()
	}
	for i, c := range b.cards {
		n, d := b.slots[i].Counts(), b.slots[i].Memory().Counts()
		cs := cardSummary{
			Name: c.Name(), Accesses: n.Accesses, Odd: n.Odd, Interrupts: n.Interrupts,
			DMAReads: d.Reads, DMAWrites: d.Writes, DMAFaults: d.Faults, Misuse: []string{},
		}
		if d.LastFault != nil {
			cs.LastFault = d.LastFault.Error()
		}
		for _, m := range c.Misuse() {
			cs.Misuse = append(cs.Misuse, m.String())
		}
		s.Cards = append(s.Cards, cs)
	}
	return s
}

func (s summary) misused() bool {
	for _, c := range s.Cards {
		if len(c.Misuse) > 0 || c.DMAFaults > 0 {
			return true
		}
	}
	return false
}

// print writes the summary as text or json, or not at all.
func (s summary) print(to io.Writer, form string) error {
	switch form {
	case "none":
		return nil
	case "json":
		return json.NewEncoder(to).Encode(s)
	}
	if w := s.Wire; w != nil {
		fmt.Fprintf(to, "nicsim: wire: %d frames from the first card (%d lost), %d to it (%d lost)\n", w.AToB.Frames, w.AToB.Lost, w.BToA.Frames, w.BToA.Lost)
	}
	for _, c := range s.Cards {
		fmt.Fprintf(to, "nicsim: %s: %d register accesses, %d interrupts, DMA %d reads %d writes\n", c.Name, c.Accesses, c.Interrupts, c.DMAReads, c.DMAWrites)
		if c.Odd > 0 {
			fmt.Fprintf(to, "nicsim: %s: %d accesses of a size or at an address that the card does not understand\n", c.Name, c.Odd)
		}
		if c.DMAFaults > 0 {
			fmt.Fprintf(to, "nicsim: %s: %d DMA faults, the last: %s\n", c.Name, c.DMAFaults, c.LastFault)
		}
		for _, m := range c.Misuse {
			fmt.Fprintf(to, "nicsim: %s: misuse: %s\n", c.Name, m)
		}
	}
	return nil
}
