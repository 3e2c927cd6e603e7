package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"bare.wire/sim/link"
	"bare.wire/sim/virtionet"
)

// answer answers one request about the devices on sockets.
func (o *outlets) answer(line []byte) answer {
	return desk{len(o.list), map[string]verb{
		"counts":   {"card", o.doCounts},
		"misuse":   {"card", o.doMisuse},
		"forget":   {"card", o.doForget},
		"dma":      {"card", o.doDMA},
		"remove":   {"card", o.doRemove},
		"link":     {"card up", o.doLink},
		"fault":    {"card name", o.doFault},
		"sessions": {"card", o.doSessions},
		"wire":     {"", o.doWire},
		"faults":   {"", o.doFaults},
	}}.answer(line)
}

// doCounts gives what a device has done since it was made.
func (o *outlets) doCounts(c int, _ *request) (answer, error) {
	return answer{"counts": o.list[c].dev.Counts()}, nil
}

func (o *outlets) doMisuse(c int, _ *request) (answer, error) {
	type entry struct {
		Kind    string `json:"kind"`
		Queue   int    `json:"queue"`
		Section string `json:"section"`
		Detail  string `json:"detail"`
		Count   int    `json:"count"`
		Text    string `json:"text"`
	}
	list := []entry{}
	for _, m := range o.list[c].dev.Misuse() {
		list = append(list, entry{m.Kind.String(), m.Queue, m.Section, m.Detail, m.Count, m.String()})
	}
	return answer{"misuse": list}, nil
}

func (o *outlets) doForget(c int, _ *request) (answer, error) {
	o.list[c].dev.ForgetMisuse()
	return answer{}, nil
}

// doDMA gives the latest accesses to the front end's memory.
func (o *outlets) doDMA(c int, _ *request) (answer, error) {
	type access struct {
		Kind  string `json:"kind"`
		Queue int    `json:"queue"`
		Bus   uint64 `json:"bus"`
		Len   int    `json:"len"`
		Ago   int64  `json:"ago_ns"`
	}
	now, last := o.clk.Nanos(), []access{}
	for _, d := range o.list[c].dev.DMALog() {
		last = append(last, access{d.Kind.String(), d.Queue, d.Bus, d.Len, now - d.At})
	}
	return answer{"log": last, "faults": o.list[c].back.Counts().Faults}, nil
}

func (o *outlets) doRemove(c int, _ *request) (answer, error) {
	o.list[c].dev.Remove()
	return answer{}, nil
}

func (o *outlets) doLink(c int, r *request) (answer, error) {
	o.list[c].dev.SetLink(*r.Up)
	return answer{}, nil
}

func (o *outlets) doFault(c int, r *request) (answer, error) {
	f, err := virtionet.FaultByName(*r.Name)
	if err != nil {
		return nil, err
	}
	o.list[c].dev.SetFaults(f)
	return answer{}, nil
}

func (o *outlets) doFaults(int, *request) (answer, error) {
	return answer{"faults": virtionet.FaultNames()}, nil
}

// doSessions gives what front ends there were.
func (o *outlets) doSessions(c int, _ *request) (answer, error) {
	b := o.list[c].back
	n := b.Counts()
	a := answer{"sessions": n.Sessions, "failed": n.Failed, "messages": n.Messages, "active": n.Active}
	if err := b.LastError(); err != nil {
		a["last_error"] = err.Error()
	}
	return a, nil
}

func (o *outlets) doWire(int, *request) (answer, error) {
	if o.kernel != nil {
		n := o.kernel.Counts()
		return answer{"tap": answer{
			"name": o.kernel.Name(), "from_kernel": n.FromKernel, "to_kernel": n.ToKernel, "refused": n.Refused, "stale": n.Stale,
		}}, nil
	}
	if o.cable.wire == nil {
		return nil, errors.New("there is no wire")
	}
	return o.cable.counts(o.world)
}

// vhostSummary is what is said at the end.
type vhostSummary struct {
	Wire    *wireSummary    `json:"wire,omitempty"`
	TAP     *tapSummary     `json:"tap,omitempty"`
	Devices []deviceSummary `json:"devices"`
}

type tapSummary struct {
	Name       string `json:"name"`
	FromKernel uint64 `json:"from_kernel"`
	ToKernel   uint64 `json:"to_kernel"`
	Lost       uint64 `json:"lost"`
}

type deviceSummary struct {
	Name      string   `json:"name"`
	Sessions  uint64   `json:"sessions"`
	Failed    uint64   `json:"failed_sessions"`
	LastError string   `json:"last_error,omitempty"`
	TxFrames  uint64   `json:"tx_frames"` // by the driver
	TxBytes   uint64   `json:"tx_bytes"`
	RxFrames  uint64   `json:"rx_frames"`
	RxBytes   uint64   `json:"rx_bytes"`
	Lost      uint64   `json:"lost"` // frames that the driver had no room for, or that arrived while there was none
	Kicks     uint64   `json:"kicks"`
	Calls     uint64   `json:"calls"`
	DMAFaults uint64   `json:"dma_faults"`
	Misuse    []string `json:"misuse"`
}

func (o *outlets) summarise() vhostSummary {
	var s vhostSummary
	if w := o.cable.wire; w != nil {
		o.world.Lock()
		s.Wire = &wireSummary{direction(w, link.AToB), direction(w, link.BToA)}
		o.world.Unlock()
	}
	if o.kernel != nil {
		n := o.kernel.Counts()
		s.TAP = &tapSummary{o.kernel.Name(), n.FromKernel, n.ToKernel, n.Refused + n.Stale}
	}
	for _, out := range o.list {
		n, c := out.back.Counts(), out.dev.Counts()
		d := deviceSummary{
			Name: out.name, Sessions: n.Sessions, Failed: n.Failed, TxFrames: c.TxFrames, TxBytes: c.TxBytes, RxFrames: c.RxFrames, RxBytes: c.RxBytes,
			Lost: c.RxNoBuffer + c.RxUnready + c.RxTooLong, Kicks: c.Kicks, Calls: c.Calls, DMAFaults: c.DMAFaults, Misuse: []string{},
		}
		if err := out.back.LastError(); err != nil {
			d.LastError = err.Error()
		}
		for _, m := range out.dev.Misuse() {
			d.Misuse = append(d.Misuse, m.String())
		}
		s.Devices = append(s.Devices, d)
	}
	return s
}

func (s vhostSummary) misused() bool {
	for _, d := range s.Devices {
		if len(d.Misuse) > 0 || d.DMAFaults > 0 || d.Failed > 0 {
			return true
		}
	}
	return false
}

// print writes the summary as text or json, or not at all.
func (s vhostSummary) print(to io.Writer, form string) error {
	switch form {
	case "none":
		return nil
	case "json":
		return json.NewEncoder(to).Encode(s)
	}
	if w := s.Wire; w != nil {
		fmt.Fprintf(to, "nicsim: wire: %d frames from the first device (%d lost), %d to it (%d lost)\n", w.AToB.Frames, w.AToB.Lost, w.BToA.Frames, w.BToA.Lost)
	}
	if t := s.TAP; t != nil {
		fmt.Fprintf(to, "nicsim: %s: %d frames to the kernel, %d from it (%d lost)\n", t.Name, t.ToKernel, t.FromKernel, t.Lost)
	}
	for _, d := range s.Devices {
		fmt.Fprintf(to, "nicsim: %s: %d front ends, %d frames sent by them, %d received (%d lost), %d kicks, %d calls\n",
			d.Name, d.Sessions, d.TxFrames, d.RxFrames, d.Lost, d.Kicks, d.Calls)
		if d.Failed > 0 {
			fmt.Fprintf(to, "nicsim: %s: %d front ends broke the protocol, the last: %s\n", d.Name, d.Failed, d.LastError)
		}
		if d.DMAFaults > 0 {
			fmt.Fprintf(to, "nicsim: %s: %d accesses to addresses that are not the front end's memory\n", d.Name, d.DMAFaults)
		}
		for _, m := range d.Misuse {
			fmt.Fprintf(to, "nicsim: %s: misuse: %s\n", d.Name, m)
		}
	}
	return nil
}
