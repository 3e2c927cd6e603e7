package virtio

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

const (
	// defaultMaxFrame is 1500 bytes of payload, an Ethernet header and one VLAN tag.
	defaultMaxFrame = 1518
	frameOverhead   = 18 // of MaxFrame beyond the MTU: header and one tag
	// mostFrame is the longest frame that is configured on a device that names no MTU: room for every jumbo frame there is.
	mostFrame = 16384
	// defaultDesc is the size of a ring where the device has that much.
	defaultDesc = 512
	// leastDesc is the shortest ring, where the device has that much: no frame may have more descriptors than its ring has, whatever
	// they lie in (§2.7.5.3.1).
	leastDesc = 64
	// minBuffer is the least room of a receive buffer. Larger ones save descriptors.
	minBuffer = 256
)

// deviceConfig is what the device configuration (§5.1.4) says that does not change.
type deviceConfig struct {
	mac       [6]byte
	pairs     int // at most
	mtu       int // 0: not told
	rssKey    int // longest, bytes
	rssTable  int // longest, entries
	hashTypes uint32
}

// readDeviceConfig reads the fields that the features give, and no others.
func (p *Port) readDeviceConfig(f spec.Features) (c deviceConfig, err error) {
	var raw [spec.NetConfigSize]byte
	for _, r := range []struct {
		f       spec.Features // any of these
		off, to int
	}{
		{spec.FeatureMAC, spec.NetMAC, spec.NetStatus},
		{spec.FeatureMQ | spec.FeatureRSS, spec.NetMaxPairs, spec.NetMTU},
		{spec.FeatureMTU, spec.NetMTU, spec.NetSpeed},
		{spec.FeatureRSS | spec.FeatureHashReport, spec.NetRSSMaxKey, spec.NetConfigSize},
	} {
		if f&r.f == 0 {
			continue
		}
		if err := p.t.ReadConfig(r.off, raw[r.off:r.to]); err != nil {
			return c, err
		}
	}
	le := binary.LittleEndian
	c.pairs = 1
	if f&(spec.FeatureMQ|spec.FeatureRSS) != 0 {
		c.pairs = int(le.Uint16(raw[spec.NetMaxPairs:]))
		if c.pairs < spec.MinPairs || c.pairs > spec.MaxPairs {
			return c, fmt.Errorf("%s: the device says that it has %d queue pairs: 1 to %d are possible; features=-mq,-rss does without", p.t.Name(), c.pairs, spec.MaxPairs)
		}
	}
	if f.Has(spec.FeatureMTU) {
		c.mtu = int(le.Uint16(raw[spec.NetMTU:]))
		if c.mtu < 68 { // RFC 791
			return c, fmt.Errorf("%s: the device says that its MTU is %d, less than IPv4 needs (68); features=-mtu ignores it", p.t.Name(), c.mtu)
		}
	}
	c.rssKey, c.rssTable = int(raw[spec.NetRSSMaxKey]), int(le.Uint16(raw[spec.NetRSSMaxTable:]))
	c.hashTypes = le.Uint32(raw[spec.NetHashTypes:])
	if c.mac, err = p.address(f, [6]byte(raw[spec.NetMAC:])); err != nil {
		return c, err
	}
	return c, nil
}

// address is the one that the port is to have: what Options asks for, the device's, or one that is made up.
func (p *Port) address(f spec.Features, device [6]byte) (mac [6]byte, err error) {
	has := f.Has(spec.FeatureMAC)
	switch want := p.opt.MAC; {
	case want != [6]byte{}:
		if want[0]&1 != 0 {
			return mac, fmt.Errorf("%s: Options.MAC %x is a multicast address", p.t.Name(), want)
		}
		if has && want != device && !f.Has(spec.FeatureCtrlMACAddr) && !p.t.Legacy() {
			return mac, fmt.Errorf("%s: Options.MAC is %x, the device has %x and cannot change it: %w", p.t.Name(), want, device, errors.ErrUnsupported)
		}
		return want, nil
	case has:
		if device == ([6]byte{}) || device[0]&1 != 0 {
			return mac, fmt.Errorf("%s: the device's MAC address %x is not one: give it another, or do without by features=-mac", p.t.Name(), device)
		}
		return device, nil
	}
	if _, err := rand.Read(mac[:]); err != nil {
		return mac, fmt.Errorf("%s: make up a MAC address: %w", p.t.Name(), err)
	}
	mac[0] = mac[0]&^1 | 2 // unicast, of nobody's
	return mac, nil
}

// offloads are those that the features make possible.
func offloads(f spec.Features) nic.Offload {
	o := nic.RxScatter | nic.TxMultiSegment
	for _, r := range []struct {
		f spec.Features
		o nic.Offload
	}{
		{spec.FeatureCSum, nic.TxL4Checksum},
		{spec.FeatureHostTSO4 | spec.FeatureHostTSO6, nic.TxTSO},
		{spec.FeatureGuestCSum, nic.RxL4Checksum},
		{spec.FeatureGuestTSO4 | spec.FeatureGuestTSO6, nic.RxGSO},
		{spec.FeatureHashReport, nic.RxRSSHash},
	} {
		if f.Has(r.f) {
			o |= r.o
		}
	}
	return o
}

// complete fills in defaults and refuses what the device cannot do.
func (p *Port) complete(cfg *nic.Config) error {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&cfg.RxQueues, 1)
	def(&cfg.TxQueues, 1)
	def(&cfg.RxDesc, max(min(defaultDesc, p.info.MaxDesc), p.info.MinDesc))
	def(&cfg.TxDesc, max(min(defaultDesc, p.info.MaxDesc), p.info.MinDesc))
	def(&cfg.MaxFrame, min(defaultMaxFrame, p.info.MaxFrame))
	for _, c := range []struct {
		what      string
		v, lo, hi int
	}{
		{"RxQueues", cfg.RxQueues, 1, p.info.RxQueues},
		{"TxQueues", cfg.TxQueues, 1, p.info.TxQueues},
		{"RxDesc", cfg.RxDesc, p.info.MinDesc, p.info.MaxDesc},
		{"TxDesc", cfg.TxDesc, p.info.MinDesc, p.info.MaxDesc},
		{"MaxFrame", cfg.MaxFrame, 60, p.info.MaxFrame},
	} {
		if c.v < c.lo || c.v > c.hi {
			return fmt.Errorf("%s is %d: want %d to %d", c.what, c.v, c.lo, c.hi)
		}
	}
	for _, c := range []struct {
		what string
		set  bool
	}{
		{"InterruptInterval", cfg.InterruptInterval != 0},
		{"Loopback", cfg.Loopback},
		{"HonourPause", cfg.HonourPause},
		{"BlockWhenFull", cfg.BlockWhenFull},
		{fmt.Sprintf("Offloads %#x", cfg.Offloads&^p.info.Offloads), cfg.Offloads&^p.info.Offloads != 0},
	} {
		if c.set {
			return fmt.Errorf("%s: a virtio device, or this one, cannot do that: %w", c.what, errors.ErrUnsupported)
		}
	}
	if err := completePools(cfg, p.opt.Space); err != nil {
		return err
	}
	return p.completeRSS(cfg)
}

// completePools gives every receive queue a pool, and checks each.
func completePools(cfg *nic.Config, space *vtop.Space) error {
	if cfg.Pool == nil {
		return errors.New("Config.Pool is nil: make one with mbuf.NewPool in the Space that the port was opened with")
	}
	if len(cfg.RxPools) == 0 {
		for range cfg.RxQueues {
			cfg.RxPools = append(cfg.RxPools, cfg.Pool)
		}
	}
	if len(cfg.RxPools) != cfg.RxQueues {
		return fmt.Errorf("%d RxPools for %d queues: give each queue one", len(cfg.RxPools), cfg.RxQueues)
	}
	for i, pool := range append(cfg.RxPools[:len(cfg.RxPools):len(cfg.RxPools)], cfg.Pool) {
		if pool == nil {
			return fmt.Errorf("RxPools[%d] is nil", i)
		}
		if pool.Space() != space {
			return fmt.Errorf("pool %q lives in another address space than the device: make it with the Space that the port was opened with", pool.Name())
		}
		if err := checkBuffers(pool); err != nil {
			return err
		}
	}
	return nil
}

func checkBuffers(pool *mbuf.Pool) error {
	if pool.Size() < minBuffer {
		return fmt.Errorf("pool %q has %d bytes of room after the headroom: a receive buffer needs %d", pool.Name(), pool.Size(), minBuffer)
	}
	if pool.Headroom() < spec.HdrSizeHash {
		return fmt.Errorf("pool %q has %d bytes of headroom: the device puts a header of up to %d bytes in front of a frame", pool.Name(), pool.Headroom(), spec.HdrSizeHash)
	}
	return nil
}
