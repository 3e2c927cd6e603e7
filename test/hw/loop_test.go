package hw

import (
	"context"

	"bare.wire/nic"
)

// loop is one port in MAC loopback that looks like two at the ends of a wire.
type loop struct {
	port  nic.Port
	sides [2]side
}

// The sides.
const (
	sending = iota
	receiving
)

// side is one of the two: the port with half of its queues and half of its counts.
type side struct {
	nic.Port
	l   *loop
	is  int
	on  bool // started, and not stopped
	cfg nic.Config
}

func newLoop(p nic.Port) *loop {
	l := &loop{port: p}
	for i := range l.sides {
		s := &l.sides[i]
		s.Port, s.l, s.is = p, l, i
	}
	return l
}

// Start starts the port with what both sides have asked for so far.
func (s *side) Start(ctx context.Context, cfg nic.Config) error {
	other := &s.l.sides[1-s.is]
	if !s.on && other.on { // it runs with what the other side wants alone
		if err := s.l.port.Stop(); err != nil {
			return err
		}
		tx, rx := cfg, other.cfg
		if s.is == receiving {
			tx, rx = rx, tx
		}
		if err := s.l.port.Start(ctx, both(tx, rx)); err != nil {
			return err
		}
	} else {
		alone := cfg
		alone.Loopback = true
		if err := s.l.port.Start(ctx, alone); err != nil {
			return err
		}
	}
	s.on, s.cfg = true, cfg
	return nil
}

// both is the configuration of a port that sends as one configuration says, and receives as the other.
func both(tx, rx nic.Config) nic.Config {
	const onSending = nic.TxIPChecksum | nic.TxL4Checksum | nic.TxTSO | nic.TxVLANInsert | nic.TxMultiSegment
	cfg := rx
	cfg.Loopback = true
	cfg.TxQueues, cfg.TxDesc = tx.TxQueues, tx.TxDesc
	cfg.Offloads = tx.Offloads&onSending | rx.Offloads&^onSending
	return cfg
}

// Stop stops the port: there is one.
func (s *side) Stop() error {
	s.on = false
	return s.l.port.Stop()
}

// Stats are those of the side's direction.
func (s *side) Stats() nic.Stats {
	all := s.l.port.Stats()
	out := all
	if s.is == sending {
		out = nic.Stats{TxPackets: all.TxPackets, TxBytes: all.TxBytes, TxErrors: all.TxErrors, TxFull: all.TxFull, TxDropped: all.TxDropped}
	} else {
		out.TxPackets, out.TxBytes, out.TxErrors, out.TxFull, out.TxDropped = 0, 0, 0, 0, nic.Stats{}.TxDropped
	}
	out.Queues = make([]nic.QueueStats, len(all.Queues))
	for i, q := range all.Queues {
		if s.is == sending {
			out.Queues[i] = nic.QueueStats{TxPackets: q.TxPackets, TxBytes: q.TxBytes, TxFull: q.TxFull}
		} else {
			out.Queues[i] = nic.QueueStats{RxPackets: q.RxPackets, RxBytes: q.RxBytes, RxNoDesc: q.RxNoDesc, RxNoBuf: q.RxNoBuf}
		}
	}
	return out
}
