package cli

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"bare.wire/cmd/pktgen/internal/capture"
	"bare.wire/cmd/pktgen/internal/frame"
	"bare.wire/cmd/pktgen/internal/pace"
	"bare.wire/cmd/pktgen/internal/report"
	"bare.wire/cmd/pktgen/internal/sig"
	"bare.wire/cmd/pktgen/internal/units"
)

const (
	dryShown = 3       // frames printed
	dryFile  = 100_000 // frames written to a file at most
)

// dryEpoch is the wall time of frame 0 in the file: a fixed day, so that two dry runs are the same.
var dryEpoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// dry builds frames and schedule and shows them. Addresses that would be the devices' own are stand-ins.
func (a *app) dry(p *plan) error {
	s := p.cfg.Frame
	s.Run = sig.RunOf(p.cfg.Seed)
	if s.SrcMAC == [6]byte{} {
		s.SrcMAC = [6]byte{2, 0, 0, 0, 0, 1}
	}
	if s.DstMAC == [6]byte{} {
		s.DstMAC = [6]byte{2, 0, 0, 0, 0, 2}
	}
	b, err := frame.New(s)
	if err != nil {
		return &exitError{Usage, err}
	}
	schedule, total, err := p.schedule()
	if err != nil {
		return &exitError{Usage, err}
	}
	if p.dryRun != dryRunText {
		return a.dryToFile(p, b, schedule, total)
	}
	return a.dryToText(p, b, schedule, total)
}

// schedule is when the frames are due, from 0, and how many there are; no schedule at max, no total without an end.
func (p *plan) schedule() (*pace.Schedule, uint64, error) {
	total := uint64(math.MaxUint64)
	if p.cfg.Count > 0 {
		total = p.cfg.Count
	}
	if p.cfg.Rate.Kind == units.Max {
		return nil, total, nil
	}
	num, den, err := p.cfg.Rate.PerSecond(p.cfg.Frame.Size, 0)
	if err != nil {
		return nil, 0, err
	}
	s, err := pace.NewSchedule(0, num, den)
	if err != nil {
		return nil, 0, err
	}
	if p.cfg.Duration > 0 {
		total = min(total, s.Before(int64(p.cfg.Duration)))
	}
	return &s, total, nil
}

func due(s *pace.Schedule, i uint64) int64 {
	if s == nil {
		return 0
	}
	return s.Due(i)
}

func (a *app) dryToText(p *plan, b *frame.Builder, s *pace.Schedule, total uint64) error {
	var text strings.Builder
	c := p.cfg
	fmt.Fprintf(&text, "dry run: %s %d B, %s, nothing is sent\n", c.Frame.Proto, c.Frame.Size, report.Flows(c.Frame.Flows))
	switch {
	case s == nil:
		fmt.Fprintf(&text, "rate max\n")
	default:
		pps, size := float64(s.Num)/float64(s.Den), float64(c.Frame.Size)
		fmt.Fprintf(&text, "rate %spps = %sb/s L2 = %sb/s L1\n", report.SI(pps, 3), report.SI(pps*size*8, 1), report.SI(pps*(size+units.L1Overhead)*8, 1))
	}
	switch {
	case total == math.MaxUint64:
		fmt.Fprintf(&text, "frames without end\n")
	case s != nil && total > 0:
		fmt.Fprintf(&text, "%s frames, the last one due at %d ns\n", report.Commas(total), s.Due(total-1))
	default:
		fmt.Fprintf(&text, "%s frames\n", report.Commas(total))
	}
	room := bytes.Clone(b.Template())
	for i := range min(total, dryShown) {
		at := due(s, i)
		b.Stamp(room, i, at)
		fmt.Fprintf(&text, "\nframe %d, due at %d ns, %d bytes without FCS\n%s", i, at, b.Len(), hex.Dump(room))
	}
	return a.print("%s", text.String())
}

func (a *app) dryToFile(p *plan, b *frame.Builder, s *pace.Schedule, total uint64) error {
	f, err := capture.Create(p.dryRun)
	if err != nil {
		return &exitError{Environment, err}
	}
	room := bytes.Clone(b.Template())
	n := min(total, dryFile)
	for i := range n {
		at := due(s, i)
		b.Stamp(room, i, at)
		if err := f.Bytes(room, dryEpoch.Add(time.Duration(at))); err != nil {
			_ = f.Close() // the same error
			return &exitError{Device, err}
		}
	}
	if err := f.Close(); err != nil {
		return &exitError{Device, err}
	}
	more := ""
	if n < total {
		more = ", the first of the run"
	}
	return a.print("%s: %s frames%s\n", p.dryRun, report.Commas(n), more)
}
