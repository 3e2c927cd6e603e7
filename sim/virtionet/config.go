package virtionet

import (
	"encoding/binary"

	"bare.wire/virtio/spec"
)

// hashTypes are those that the device computes.
const hashTypes = spec.HashIPv4 | spec.HashTCPv4 | spec.HashUDPv4 | spec.HashIPv6 | spec.HashTCPv6 | spec.HashUDPv6

// fillConfig writes the device configuration (§5.1.4) as it is now, with a generation of its own if it is another (§2.5.2).
// A field without its feature is 0.
func (d *Device) fillConfig() {
	before := d.conf
	le := binary.LittleEndian
	c := &d.conf
	clear(c[:])
	has := func(f spec.Features) bool { return d.Features()&f != 0 }
	if has(spec.FeatureMAC) {
		copy(c[spec.NetMAC:], d.filter.mac[:])
	}
	if has(spec.FeatureStatus) {
		var s uint16
		if d.linkUp() {
			s |= spec.NetStatusLinkUp
		}
		if d.announce {
			s |= spec.NetStatusAnnounce
		}
		le.PutUint16(c[spec.NetStatus:], s)
	}
	if has(spec.FeatureMQ | spec.FeatureRSS) {
		le.PutUint16(c[spec.NetMaxPairs:], uint16(d.cfg.Pairs))
	}
	if has(spec.FeatureMTU) {
		le.PutUint16(c[spec.NetMTU:], uint16(d.cfg.MTU))
	}
	if has(spec.FeatureSpeedDuplex) {
		le.PutUint32(c[spec.NetSpeed:], uint32(min(d.cfg.Speed/1e6, 1<<31-1)))
		c[spec.NetDuplex] = 1
	}
	if has(spec.FeatureRSS | spec.FeatureHashReport) {
		c[spec.NetRSSMaxKey] = spec.RSSMinKey
		le.PutUint32(c[spec.NetHashTypes:], hashTypes)
	}
	if has(spec.FeatureRSS) {
		le.PutUint16(c[spec.NetRSSMaxTable:], spec.RSSTable)
	}
	d.cfg.Faults.bendConfig(c[:])
	if before != d.conf {
		d.generation++
	}
}

// ConfigSize is the length of the device configuration, bytes.
func (d *Device) ConfigSize() int { return len(d.conf) }

// ReadConfig reads len(p) bytes of the device configuration from off on; what is beyond it reads as 0.
func (d *Device) ReadConfig(off int, p []byte) {
	clear(p)
	if off < 0 || off+len(p) > len(d.conf) {
		d.wrong(ConfigBeyond, -1, "%d bytes read at %d", len(p), off)
	}
	if off >= 0 && off < len(d.conf) {
		copy(p, d.conf[off:])
	}
	if d.cfg.Faults.Churn != 0 {
		d.churn()
	}
}

// churn changes the configuration behind the reader's back: its generation, and a byte that it may just be reading.
func (d *Device) churn() {
	if d.cfg.Faults.Churn > 0 {
		d.cfg.Faults.Churn--
	}
	d.generation++
	d.conf[spec.NetMAC+int(d.generation)%6] ^= 0x40 // 6 is behind the multicast and local bits
	if d.cfg.Faults.Churn == 0 {
		d.fillConfig()
	}
}

// WriteConfig writes to the device configuration: the MAC address, and that only by a driver that has no better way.
func (d *Device) WriteConfig(off int, p []byte) {
	if off < 0 || off+len(p) > 6 || d.agreed&spec.FeatureVersion1 != 0 || d.agreed&spec.FeatureCtrlMACAddr != 0 {
		d.wrong(ConfigReadOnly, -1, "%d bytes written at %d", len(p), off)
		return
	}
	copy(d.filter.mac[off:], p)
	d.fillConfig()
}

// Generation changes whenever the configuration has.
func (d *Device) Generation() uint8 { return d.generation }

// OnConfigChange names what is called, with the lock held, when the configuration has changed or the device needs a reset.
func (d *Device) OnConfigChange(f func()) { d.changed = f }

// linkUp is what the driver is told of the link.
func (d *Device) linkUp() bool { return !d.linkOff && !d.gone && d.net.Up() }

// linkChanged tells the driver if the link is not any more as it was told.
func (d *Device) linkChanged() {
	was := d.conf[spec.NetStatus] & spec.NetStatusLinkUp
	now := uint8(0)
	if d.linkUp() {
		now = spec.NetStatusLinkUp
	}
	if was != now {
		d.configChanged()
	}
}

// configChanged is a change of configuration that the driver is told of.
func (d *Device) configChanged() {
	before := d.conf
	d.fillConfig()
	if before == d.conf {
		return
	}
	if d.status&spec.StatusDriverOK != 0 && d.changed != nil && !d.gone {
		d.changed()
	}
}

// Announce asks the driver to tell the network where it is now, as after a migration (§5.1.6.5.4).
func (d *Device) Announce() {
	d.w.Lock()
	defer d.w.Unlock()
	if d.agreed&spec.FeatureGuestAnnounce == 0 {
		return
	}
	d.announce = true
	d.configChanged()
}
