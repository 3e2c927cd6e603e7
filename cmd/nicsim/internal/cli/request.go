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
	do   func(c int, r *request) (answer, error)
}

// desk answers requests.
type desk struct {
	cards int             // how many there are
	verbs map[string]verb // what can be asked for, by name
}

// answer answers one request about the cards of a machine.
func (b *bench) answer(line []byte) answer { return b.desk().answer(line) }

func (b *bench) desk() desk {
	return desk{len(b.cards), map[string]verb{
		"stats":  {"card", b.doStats},
		"counts": {"card", b.doCounts},
		"misuse": {"card", b.doMisuse},
		"forget": {"card", b.doForget},
		"dma":    {"card", b.doDMA},
		"remove": {"card", b.doRemove},
		"link":   {"card up", b.doLink},
		"fault":  {"card name", b.doFault},
		"reg":    {"card off", b.doReg},
		"wire":   {"", b.doWire},
		"faults": {"", b.doFaults},
	}}
}

// answer answers one request.
func (d desk) answer(line []byte) answer {
	a, err := d.ask(line)
	if err != nil {
		return failure(err)
	}
	a["ok"] = true
	return a
}

func (d desk) ask(line []byte) (answer, error) {
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
	v, ok := d.verbs[r.Do]
	if !ok {
		names := make([]string, 0, len(d.verbs))
		for n := range d.verbs {
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
		if card = *r.Card; card < 0 || card >= d.cards {
			return nil, fmt.Errorf("card %d: there are %d, from 0", card, d.cards)
		}
	}
	return v.do(card, &r)
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
func (b *bench) doWire(int, *request) (answer, error) { return b.cable.counts(b.world) }
