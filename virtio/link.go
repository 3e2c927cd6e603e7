package virtio

import (
	"context"
	"encoding/binary"
	"errors"

	"bare.wire/nic"
	"bare.wire/virtio/spec"
)

// setLink notes the state of the link, and logs a change.
func (p *Port) setLink(now nic.Link, unless func() bool) {
	if now, changed := p.link.Update(func() (nic.Link, bool) { return now, !unless() }); changed {
		p.log.Info("link", "state", now.String())
	}
}

// lostLink is the state of a port that has stopped or is gone.
func (p *Port) lostLink() { p.setLink(nic.Link{}, func() bool { return false }) }

// updateLink reads the state of the link (§5.1.4), with mu locked, and does what else the device's status asks for.
func (p *Port) updateLink() {
	now, announce, err := p.readStatus()
	if err != nil {
		if errors.Is(err, nic.ErrGone) {
			p.fail(err)
			return
		}
		p.log.Warn("the state of the link cannot be read", "err", err)
		return
	}
	p.setLink(now, func() bool { return p.Err() != nil })
	if announce && !p.announcing {
		p.announcing = true
		go p.announce()
	}
}

// readStatus reads status and speed. A device without a status has a link that is up.
func (p *Port) readStatus() (l nic.Link, announce bool, err error) {
	f := p.Negotiated()
	l.Up = true
	if f.Has(spec.FeatureStatus) {
		var s [2]byte
		if err := p.t.ReadConfig(spec.NetStatus, s[:]); err != nil {
			return nic.Link{}, false, err
		}
		v := binary.LittleEndian.Uint16(s[:])
		l.Up = v&spec.NetStatusLinkUp != 0
		announce = v&spec.NetStatusAnnounce != 0 && f.Has(spec.FeatureGuestAnnounce)
	}
	if f.Has(spec.FeatureSpeedDuplex) && l.Up {
		var s [4]byte
		if err := p.t.ReadConfig(spec.NetSpeed, s[:]); err != nil {
			return nic.Link{}, false, err
		}
		if mbits := binary.LittleEndian.Uint32(s[:]); mbits <= 1<<31-1 { // more is spec.SpeedUnknown, or as good
			l.Speed = uint64(mbits) * 1e6
		}
	}
	return l, announce, nil
}

// announce tells the user to make the port's addresses known, and the device that this is being done (§5.1.6.5.4). An interrupt
// may not wait for an answer, so it has a goroutine.
func (p *Port) announce() {
	p.mu.Lock()
	p.announcing = false // by now the device may ask again
	acknowledged := p.started && p.Err() == nil
	if acknowledged {
		if err := p.command(context.Background(), command{spec.CtrlAnnounce, spec.CtrlAnnounceAck, nil}); err != nil {
			p.log.Warn("announcement", "err", err)
			acknowledged = false
		}
	}
	p.unlock()
	if acknowledged {
		p.opt.Announce()
	}
}
