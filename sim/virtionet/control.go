package virtionet

import (
	"encoding/binary"

	"bare.wire/sim/offload"
	"bare.wire/virtio/spec"
)

// maxCommand bounds the bytes of a command that are read: a table of addresses is far below.
const maxCommand = 64 << 10

// runControl answers commands.
func (d *Device) runControl(q *queue) {
	q.view()
	if d.cfg.Faults.ControlSilent {
		return
	}
	for range d.budget(q) {
		if !q.fetch(&d.chain) {
			if d.broken || q.rest() {
				return
			}
			continue
		}
		if !d.command(q, &d.chain) {
			return
		}
	}
	q.due = d.now + 1
}

// command does what one chain of the control queue says, and answers (§5.1.6.5); false: the driver has broken a rule.
func (d *Device) command(q *queue, c *chain) bool {
	if c.read < 2 || c.write < 1 || c.read > maxCommand {
		q.breaks(ControlForm, "%d bytes to be read, %d to be written", c.read, c.write)
		return false
	}
	b, ok := q.gather(d.buf[:0], c, 0, c.read)
	d.buf = b[:0]
	if !ok {
		return false
	}
	d.count.Commands++
	answer := [1]byte{spec.CtrlOK}
	if !d.obey(b[0], b[1], b[2:]) {
		d.wrong(ControlValue, q.i, "class %d, command %d, %d bytes", b[0], b[1], len(b)-2)
		answer[0] = spec.CtrlErr
	}
	if d.cfg.Faults.ControlAnswer != 0 {
		answer[0] = d.cfg.Faults.ControlAnswer
	}
	if _, _, ok = q.scatter(c, answer[:], nil); !ok {
		return false
	}
	q.complete(c, 1)
	return true
}

// obey does a command; false: it is none, or makes no sense.
func (d *Device) obey(class, cmd uint8, data []byte) bool {
	has := func(f spec.Features) bool { return d.agreed&f != 0 }
	switch class {
	case spec.CtrlRx:
		return d.receiveMode(cmd, data)
	case spec.CtrlMAC:
		switch {
		case cmd == spec.CtrlMACTableSet && has(spec.FeatureCtrlRx):
			return d.filter.setTable(data)
		case cmd == spec.CtrlMACAddrSet && has(spec.FeatureCtrlMACAddr) && len(data) == 6:
			d.filter.mac = [6]byte(data)
			d.fillConfig()
			return true
		}
	case spec.CtrlVLAN:
		if !has(spec.FeatureCtrlVLAN) || len(data) != 2 || cmd > spec.CtrlVLANDel {
			return false
		}
		vid := binary.LittleEndian.Uint16(data)
		if vid > 0xFFF {
			return false
		}
		if d.filter.vlans[vid/64] |= 1 << (vid % 64); cmd == spec.CtrlVLANDel {
			d.filter.vlans[vid/64] &^= 1 << (vid % 64)
		}
		return true
	case spec.CtrlAnnounce:
		if !has(spec.FeatureGuestAnnounce) || cmd != spec.CtrlAnnounceAck || len(data) != 0 {
			return false
		}
		d.announce = false
		d.count.Announced++
		d.fillConfig()
		return true
	case spec.CtrlMQ:
		return d.spread(cmd, data)
	case spec.CtrlGuestOffloads:
		if !has(spec.FeatureCtrlGuestOffloads) || cmd != spec.CtrlGuestOffloadsSet || len(data) != 8 {
			return false
		}
		f := spec.Features(binary.LittleEndian.Uint64(data))
		if _, left := f.Consistent(); f&^(d.agreed&guestFeatures) != 0 || left != 0 {
			return false
		}
		d.setGuest(f)
		return true
	}
	return false
}

// receiveMode is a command of class CtrlRx.
func (d *Device) receiveMode(cmd uint8, data []byte) bool {
	f := &d.filter
	modes := [...]*bool{
		spec.CtrlRxPromisc: &f.promisc, spec.CtrlRxAllMulti: &f.allMulti, spec.CtrlRxAllUni: &f.allUni,
		spec.CtrlRxNoMulti: &f.noMulti, spec.CtrlRxNoUni: &f.noUni, spec.CtrlRxNoBcast: &f.noBcast,
	}
	needs := spec.FeatureCtrlRx
	if cmd >= spec.CtrlRxAllUni {
		needs = spec.FeatureCtrlRxExtra
	}
	if int(cmd) >= len(modes) || d.agreed&needs == 0 || len(data) != 1 || data[0] > 1 {
		return false
	}
	*modes[cmd] = data[0] == 1
	return true
}

// setTable takes two lists of addresses, unicast and multicast.
func (f *filter) setTable(data []byte) bool {
	var lists [2][]byte
	for i := range lists {
		if len(data) < 4 {
			return false
		}
		n := binary.LittleEndian.Uint32(data)
		data = data[4:]
		if uint64(n)*6 > uint64(len(data)) {
			return false
		}
		lists[i], data = data[:n*6], data[n*6:]
	}
	if len(data) != 0 {
		return false
	}
	f.uni, f.uniAll = fill(f.uni[:0], lists[0])
	f.multi, f.multiAll = fill(f.multi[:0], lists[1])
	return true
}

// fill reads addresses; all: there are more than the table holds.
func fill(to [][6]byte, from []byte) (list [][6]byte, all bool) {
	if len(from) > 6*maxTable {
		return to, true
	}
	for ; len(from) > 0; from = from[6:] {
		to = append(to, [6]byte(from))
	}
	return to, false
}

// spread is a command of class CtrlMQ: how many pairs, and which frame goes to which.
func (d *Device) spread(cmd uint8, data []byte) bool {
	le := binary.LittleEndian
	switch {
	case cmd == spec.CtrlMQPairsSet && d.agreed&spec.FeatureMQ != 0 && len(data) == 2:
		n := int(le.Uint16(data))
		if n < 1 || n > d.cfg.Pairs {
			return false
		}
		d.pairs = n
		d.steer.rss = false
		return true
	case cmd == spec.CtrlMQRSSConfig && d.agreed&spec.FeatureRSS != 0:
		return d.setRSS(data)
	case cmd == spec.CtrlMQHashConfig && d.agreed&spec.FeatureHashReport != 0:
		// hash_types u32, four reserved u16, key length u8, key
		if len(data) < 13 || !d.steer.setKey(le.Uint32(data), data[12:]) {
			return false
		}
		d.steer.report = true
		return true
	}
	return false
}

// setRSS is VIRTIO_NET_CTRL_MQ_RSS_CONFIG: hash_types u32, mask u16, unclassified u16, mask+1 × u16, max_tx_vq u16, key length
// u8, key (§5.1.6.5.7.1).
func (d *Device) setRSS(data []byte) bool {
	le := binary.LittleEndian
	if len(data) < 8 {
		return false
	}
	types, mask, unclassified := le.Uint32(data), int(le.Uint16(data[4:])), le.Uint16(data[6:])
	table := data[8:]
	if mask&(mask+1) != 0 || mask+1 > spec.RSSTable || len(table) < 2*(mask+1)+3 {
		return false
	}
	rest := table[2*(mask+1):]
	pairs := int(le.Uint16(rest))
	if pairs < 1 || pairs > d.cfg.Pairs || int(unclassified) >= d.cfg.Pairs {
		return false
	}
	for i := range mask + 1 {
		if int(le.Uint16(table[2*i:])) >= d.cfg.Pairs {
			return false
		}
	}
	s := &d.steer
	if !s.setKey(types, rest[2:]) {
		return false
	}
	for i := range mask + 1 {
		s.table[i] = le.Uint16(table[2*i:])
	}
	s.mask, s.unclassified, s.rss = uint16(mask), unclassified, true
	s.report = d.agreed&spec.FeatureHashReport != 0
	d.pairs = pairs
	return true
}

// setKey takes types of hashes and the key, whose length stands before it.
func (s *steering) setKey(types uint32, b []byte) bool {
	if types&^hashTypes != 0 || int(b[0]) != len(b)-1 || b[0] > offload.KeyLen || types != 0 && b[0] < offload.KeyLen {
		return false
	}
	if len(b) > offload.KeyLen {
		s.key.SetKey((*[offload.KeyLen]byte)(b[1:]))
	}
	s.types = types
	return true
}
