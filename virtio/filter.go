package virtio

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"bare.wire/nic"
	"bare.wire/virtio/spec"
)

const (
	vlanCount = 4096
	// tableMost is how many addresses of a kind the device is told exactly. With more, all of that kind are let in.
	tableMost = 256
)

// filterState is what is let in. It outlives a restart.
type filterState struct {
	promiscuous, allMulticast bool
	unicast, multicast        map[[6]byte]bool
	vlans                     map[uint16]bool

	// What the device has been told since its reset.
	device struct {
		known                                 bool // of the modes
		promiscuous, allMulticast, allUnicast bool
		uni, multi                            bool // the table has no room for all of a kind
		vlans                                 [vlanCount]bool
	}
	overflows uint64 // times that exact filters gave way to letting everything in
	open      bool   // they have
}

// initFilters tells a device that was reset all of the filter state. After a reset devices let in every address, and no VLAN.
func (p *Port) initFilters(ctx context.Context) error {
	f := &p.filters
	if f.vlans == nil {
		f.unicast, f.multicast, f.vlans = map[[6]byte]bool{}, map[[6]byte]bool{}, map[uint16]bool{}
	}
	f.promiscuous, f.allMulticast = p.cfg.Promiscuous, p.cfg.AllMulticast
	f.device.known = false
	clear(f.device.vlans[:])
	if p.Negotiated().Has(spec.FeatureCtrlRx) {
		if err := p.writeAddresses(ctx); err != nil {
			return err
		}
	}
	return p.writeVLANs(ctx)
}

// writeAddresses writes the table of addresses and the modes (§5.1.6.5.1, §5.1.6.5.2). Where addresses of a kind do not fit, the
// modes let all of that kind in. They are opened before the table changes, and closed after.
func (p *Port) writeAddresses(ctx context.Context) error {
	f := &p.filters
	uni, multi := len(f.unicast) > tableMost, len(f.multicast) > tableMost
	if d := &f.device; d.known {
		if err := p.letIn(ctx, uni || d.uni, multi || d.multi); err != nil {
			return err
		}
	}
	switch err := p.command(ctx, f.tableCommand(uni, multi)); {
	case errors.Is(err, errRefused):
		p.log.Warn("the table of addresses is refused", "err", err)
		uni, multi = true, true
	case err != nil:
		return err
	}
	if open := uni || multi; open != f.open {
		if f.open = open; open {
			f.overflows++
			p.log.Warn("more addresses than the device can tell apart: all are let in", "unicast", len(f.unicast), "multicast", len(f.multicast))
		}
	}
	return p.letIn(ctx, uni, multi)
}

// letIn sets the modes: those that are asked for, and whether all unicast and all multicast frames come in for want of room.
func (p *Port) letIn(ctx context.Context, uni, multi bool) error {
	f := &p.filters
	f.device.uni, f.device.multi = uni, multi
	if p.Negotiated().Has(spec.FeatureCtrlRxExtra) {
		return p.writeModes(ctx, f.promiscuous, f.allMulticast || multi, uni)
	}
	return p.writeModes(ctx, f.promiscuous || uni, f.allMulticast || multi, false)
}

// tableCommand sets the table of addresses; a kind that has too many is left out.
func (f *filterState) tableCommand(noUnicast, noMulticast bool) command {
	le := binary.LittleEndian
	var data []byte
	for _, part := range []struct {
		macs map[[6]byte]bool
		not  bool
	}{{f.unicast, noUnicast}, {f.multicast, noMulticast}} {
		if part.not {
			data = le.AppendUint32(data, 0)
			continue
		}
		data = le.AppendUint32(data, uint32(len(part.macs)))
		for mac := range part.macs {
			data = append(data, mac[0], mac[1], mac[2], mac[3], mac[4], mac[5])
		}
	}
	return command{spec.CtrlMAC, spec.CtrlMACTableSet, data}
}

// writeModes tells the device the receive modes that it does not have yet.
func (p *Port) writeModes(ctx context.Context, promiscuous, allMulticast, allUnicast bool) error {
	d := &p.filters.device
	for _, m := range []struct {
		cmd byte
		now *bool
		v   bool
	}{
		{spec.CtrlRxPromisc, &d.promiscuous, promiscuous},
		{spec.CtrlRxAllMulti, &d.allMulticast, allMulticast},
		{spec.CtrlRxAllUni, &d.allUnicast, allUnicast},
	} {
		if d.known && *m.now == m.v {
			continue
		}
		if m.cmd == spec.CtrlRxAllUni && !p.Negotiated().Has(spec.FeatureCtrlRxExtra) {
			continue
		}
		if err := p.command(ctx, flag(spec.CtrlRx, m.cmd, m.v)); err != nil {
			return err
		}
		*m.now = m.v
	}
	d.known = true
	return nil
}

// writeVLANs tells the device which VLANs have been added or removed (§5.1.6.5.3). It drops what it has not been told of, so that a
// filter that is off, or a port that is promiscuous, is one with all of them.
func (p *Port) writeVLANs(ctx context.Context) error {
	f := &p.filters
	if !p.Negotiated().Has(spec.FeatureCtrlVLAN) {
		return nil
	}
	all := len(f.vlans) == 0 || f.promiscuous
	var cmds []command
	for vid := range uint16(vlanCount) {
		want := all || f.vlans[vid]
		if want == f.device.vlans[vid] {
			continue
		}
		cmd := byte(spec.CtrlVLANAdd)
		if !want {
			cmd = spec.CtrlVLANDel
		}
		cmds = append(cmds, command{spec.CtrlVLAN, cmd, []byte{byte(vid), byte(vid >> 8)}})
	}
	if err := p.commands(ctx, cmds); err != nil {
		return err // some may have been obeyed: to say the same again does no harm
	}
	for vid := range uint16(vlanCount) {
		f.device.vlans[vid] = all || f.vlans[vid]
	}
	return nil
}

// Filters implements nic.Port. What the device has not agreed on (spec.FeatureCtrlRx, spec.FeatureCtrlVLAN) is
// errors.ErrUnsupported; it then lets everything in.
func (p *Port) Filters() nic.Filters { return (*filters)(p) }

// filters is the Port as nic.Filters.
type filters Port

// change runs do under the lock of a started port whose device has feature. What do has changed in the state is taken back by
// the function that it returns, when the device does not follow.
func (f *filters) change(what string, feature spec.Features, do func(s *filterState) (undo func(), err error)) error {
	p := (*Port)(f)
	p.mu.Lock()
	defer p.unlock()
	err := func() error {
		switch {
		case !p.started:
			return nic.ErrNotStarted
		case p.Err() != nil:
			return p.Err()
		case !p.Negotiated().Has(feature) && p.usableFeatures.Has(feature):
			return fmt.Errorf("the device would have to be told before: Start with Config.VLANFilter: %w", errors.ErrUnsupported)
		case !p.Negotiated().Has(feature):
			return fmt.Errorf("the device does not have %v: %w", feature, errors.ErrUnsupported)
		}
		undo, err := do(&p.filters)
		if err != nil {
			return err
		}
		write := p.writeAddresses
		if feature == spec.FeatureCtrlVLAN {
			write = p.writeVLANs
		}
		if err := write(context.Background()); err != nil {
			undo()
			return err
		}
		return nil
	}()
	if err != nil {
		return fmt.Errorf("%s: %s: %w", p.info.Name, what, err)
	}
	return nil
}

// SetPromiscuous lets every frame in, whatever its address or VLAN.
func (f *filters) SetPromiscuous(on bool) error {
	err := f.change("set promiscuous", spec.FeatureCtrlRx, func(s *filterState) (func(), error) {
		before := s.promiscuous
		s.promiscuous = on
		return func() { s.promiscuous = before }, nil
	})
	if err != nil || !(*Port)(f).Negotiated().Has(spec.FeatureCtrlVLAN) {
		return err
	}
	return f.change("set promiscuous", spec.FeatureCtrlVLAN, func(*filterState) (func(), error) { return func() {}, nil })
}

// SetAllMulticast lets every multicast frame in.
func (f *filters) SetAllMulticast(on bool) error {
	return f.change("set all-multicast", spec.FeatureCtrlRx, func(s *filterState) (func(), error) {
		before := s.allMulticast
		s.allMulticast = on
		return func() { s.allMulticast = before }, nil
	})
}

// AddMAC implements nic.Filters. It is never refused for want of room: the device lets everything in then.
func (f *filters) AddMAC(mac [6]byte) error { return f.setMAC("add MAC filter", mac, true) }

// RemoveMAC implements nic.Filters. The port's own address is in no table, and stays.
func (f *filters) RemoveMAC(mac [6]byte) error { return f.setMAC("remove MAC filter", mac, false) }

func (f *filters) setMAC(what string, mac [6]byte, on bool) error {
	return f.change(what, spec.FeatureCtrlRx, func(s *filterState) (func(), error) {
		table := s.unicast
		if mac[0]&1 != 0 {
			table = s.multicast
		}
		return put(table, mac, on), nil
	})
}

// AddVLAN implements nic.Filters.
func (f *filters) AddVLAN(vid uint16) error { return f.setVLAN("add VLAN filter", vid, true) }

// RemoveVLAN implements nic.Filters.
func (f *filters) RemoveVLAN(vid uint16) error { return f.setVLAN("remove VLAN filter", vid, false) }

func (f *filters) setVLAN(what string, vid uint16, on bool) error {
	return f.change(what, spec.FeatureCtrlVLAN, func(s *filterState) (func(), error) {
		if vid >= vlanCount {
			return nil, fmt.Errorf("VLAN id %d: want 0 to %d", vid, vlanCount-1)
		}
		return put(s.vlans, vid, on), nil
	})
}

// put puts k into a set or takes it out, and returns what takes that back.
func put[K comparable](set map[K]bool, k K, in bool) (undo func()) {
	write := func(in bool) {
		if in {
			set[k] = true
		} else {
			delete(set, k)
		}
	}
	before := set[k]
	write(in)
	return func() { write(before) }
}

// AddFlow implements nic.Filters; virtio has no such thing.
func (f *filters) AddFlow(nic.Flow) (nic.FlowID, error) {
	return 0, fmt.Errorf("%s: flow rules: %w", f.info.Name, errors.ErrUnsupported)
}

// RemoveFlow implements nic.Filters.
func (f *filters) RemoveFlow(nic.FlowID) error {
	return fmt.Errorf("%s: flow rules: %w", f.info.Name, errors.ErrUnsupported)
}
