package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"bare.wire/ixgbe/reg"
	"bare.wire/sim/link"
	"bare.wire/sim/nic82599"
)

// request is a line of the control socket. Fields that a request does not use must not be there.
type request struct {
	Do   string  `json:"do"`
	Card *int    `json:"card"`
	Name *string `json:"name"` // of a fault
	Up   *bool   `json:"up"`
	Off  *uint32 `json:"off"` // of a register
}

// answer is what a request gives; ok and error are added to it.
type answer map[string]any

func failure(err error) answer { return answer{"ok": false, "error": err.Error()} }

// verb is something that can be asked for.
type verb struct {
	uses string // the fields it takes besides "do"
	do   func(b *bench, c int, r *request) (answer, error)
}

// verbs are what can be asked for, by name.
var verbs = map[string]verb{
	"stats":  {"card", (*bench).doStats},
	"counts": {"card", (*bench).doCounts},
	"misuse": {"card", (*bench).doMisuse},
	"forget": {"card", (*bench).doForget},
	"dma":    {"card", (*bench).doDMA},
	"remove": {"card", (*bench).doRemove},
	"link":   {"card up", (*bench).doLink},
	"fault":  {"card name", (*bench).doFault},
	"reg":    {"card off", (*bench).doReg},
	"wire":   {"", (*bench).doWire},
	"faults": {"", (*bench).doFaults},
}

// answer answers one request.
func (b *bench) answer(line []byte) answer {
	a, err := b.ask(line)
	if err != nil {
		return failure(err)
	}
	a["ok"] = true
	return a
}

func (b *bench) ask(line []byte) (answer, error) {
	var r request
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) && kind.Field != "" {
			return nil, fmt.Errorf("request: %q cannot be %s", kind.Field, kind.Value)
		} else if errors.As(err, &kind) {
			return nil, fmt.Errorf("request: a JSON object is wanted, not %s", kind.Value)
		}
		return nil, fmt.Errorf("request: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("request: more than one object on the line")
	}
	v, ok := verbs[r.Do]
	if !ok {
		names := make([]string, 0, len(verbs))
		for n := range verbs {
			names = append(names, n)
		}
		slices.Sort(names)
		return nil, fmt.Errorf("do %q: want one of %s", r.Do, strings.Join(names, ", "))
	}
	for _, f := range []struct {
		name  string
		given bool
	}{{"card", r.Card != nil}, {"name", r.Name != nil}, {"up", r.Up != nil}, {"off", r.Off != nil}} {
		if used := slices.Contains(strings.Fields(v.uses), f.name); used != f.given {
			return nil, fmt.Errorf("do %q: takes %q besides, no more and no less", r.Do, v.uses)
		}
	}
	card := 0
	if r.Card != nil {
		if card = *r.Card; card < 0 || card >= len(b.cards) {
			return nil, fmt.Errorf("card %d: there are %d, from 0", card, len(b.cards))
		}
	}
	return v.do(b, card, &r)
}

// doStats gives the statistics registers as they are, without the effect of reading them, and what passed the seam.
func (b *bench) doStats(c int, _ *request) (answer, error) {
	regs := map[string]uint64{}
	for _, r := range reg.All() {
		if r.Mode != reg.RC && r.Mode != reg.RC36Lo || r.Name == "EICR" {
			continue
		}
		for n := range r.Count() {
			off, _ := r.Offset(n)
			if v := b.cards[c].Peek(off); v != 0 {
				regs[reg.Name(off)] = v
			}
		}
	}
	n := b.slots[c].Counts()
	return answer{"registers": regs, "accesses": n.Accesses, "odd": n.Odd, "interrupts": n.Interrupts}, nil
}

// doCounts gives what the card has done since it was made, whatever was reset or read since.
func (b *bench) doCounts(c int, _ *request) (answer, error) {
	return answer{"counts": b.cards[c].Counts()}, nil
}

func (b *bench) doMisuse(c int, _ *request) (answer, error) {
	type entry struct {
		Kind    string `json:"kind"`
		Queue   int    `json:"queue"`
		Section string `json:"section"`
		Detail  string `json:"detail"`
		Count   int    `json:"count"`
		Text    string `json:"text"`
	}
	list := []entry{}
	for _, m := range b.cards[c].Misuse() {
		list = append(list, entry{m.Kind.String(), m.Queue, m.Section, m.Detail, m.Count, m.String()})
	}
	return answer{"misuse": list}, nil
}

func (b *bench) doForget(c int, _ *request) (answer, error) {
	b.cards[c].ForgetMisuse()
	return answer{}, nil
}

func (b *bench) doDMA(c int, _ *request) (answer, error) {
	type access struct {
		Kind  string `json:"kind"`
		Queue int    `json:"queue"`
		Bus   uint64 `json:"bus"`
		Len   int    `json:"len"`
		Ago   int64  `json:"ago_ns"`
	}
	n := b.slots[c].Memory().Counts()
	now := b.clk.Nanos()
	last := []access{}
	for _, d := range b.cards[c].DMALog() {
		last = append(last, access{d.Kind.String(), d.Queue, d.Bus, d.Len, now - d.At})
	}
	a := answer{"reads": n.Reads, "writes": n.Writes, "faults": n.Faults, "log": last}
	if n.Reads+n.Writes > 0 {
		a["last"], a["ago_ns"] = n.LastBus, now-n.LastAt
	}
	if n.LastFault != nil {
		a["last_fault"] = n.LastFault.Error()
	}
	return a, nil
}

func (b *bench) doRemove(c int, _ *request) (answer, error) {
	b.cards[c].Remove()
	return answer{}, nil
}

func (b *bench) doLink(c int, r *request) (answer, error) {
	b.cards[c].SetCable(*r.Up)
	return answer{}, nil
}

func (b *bench) doFault(c int, r *request) (answer, error) {
	f, err := nic82599.FaultByName(*r.Name)
	if err != nil {
		return nil, err
	}
	b.cards[c].SetFaults(f)
	return answer{}, nil
}

func (b *bench) doFaults(int, *request) (answer, error) {
	return answer{"faults": nic82599.FaultNames()}, nil
}

func (b *bench) doReg(c int, r *request) (answer, error) {
	row, n, ok := reg.Lookup(*r.Off)
	if !ok {
		return nil, fmt.Errorf("no register at %#x (docs/registers.md)", *r.Off)
	}
	off, _ := row.Offset(n)
	return answer{"name": reg.Name(off), "value": b.cards[c].Peek(off)}, nil
}

// doWire counts the frames of the wire: a to b is from the first card.
func (b *bench) doWire(int, *request) (answer, error) {
	w := b.cable.wire
	if w == nil {
		return nil, errors.New("there is no wire (--wire none)")
	}
	b.world.Lock()
	defer b.world.Unlock()
	count := func(d link.Direction) answer {
		n := w.Counts(d)
		lost := answer{}
		for c := link.CauseLength; c <= link.CauseLoss; c++ {
			lost[c.String()] = n.Dropped(c)
		}
		return answer{
			"frames": n.Offered, "delivered": n.Delivered, "in_flight": n.InFlight, "copies": n.Copies,
			"reordered": n.Reordered, "corrupted": n.Corrupted, "lost": lost,
		}
	}
	a := answer{"a_to_b": count(link.AToB), "b_to_a": count(link.BToA), "up": w.A().Up()}
	if t := b.cable.tap; t != nil {
		n := t.Counts()
		a["tap"] = answer{
			"name": t.Name(), "from_kernel": n.FromKernel, "to_kernel": n.ToKernel, "queue_full": n.QueueFull,
			"refused": n.Refused, "bad_fcs": n.BadFCS,
		}
	}
	return a, nil
}
