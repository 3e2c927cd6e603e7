package vhostuser

import (
	"errors"
	"fmt"

	"bare.wire/virtio/spec"
	"bare.wire/virtio/spec/vhost"
)

// protocolFeatures is what this back end can.
const protocolFeatures = vhost.ProtocolMQ | vhost.ProtocolReplyAck | vhost.ProtocolNetMTU | vhost.ProtocolConfig |
	vhost.ProtocolResetDevice | vhost.ProtocolConfigureMemSlots | vhost.ProtocolStatus

// minMTU and maxMTU bound NET_SET_MTU (VIRTIO §5.1.4.1).
const minMTU, maxMTU = 68, 65535

// handler does what a request asks for. A reply that is not nil is sent.
type handler struct {
	do    func(s *session, m vhost.Message, fds *descriptors) (reply []byte, err error)
	needs vhost.ProtocolFeatures
	fds   bool // descriptors come with it
}

var handlers = map[vhost.Request]handler{
	vhost.GetFeatures:         {do: (*session).getFeatures},
	vhost.SetFeatures:         {do: (*session).setFeatures},
	vhost.SetOwner:            {do: (*session).setOwner},
	vhost.ResetOwner:          {do: (*session).resetOwner},
	vhost.SetMemTable:         {do: (*session).setMemTable, fds: true},
	vhost.SetVringNum:         {do: (*session).setVringNum},
	vhost.SetVringAddr:        {do: (*session).setVringAddr},
	vhost.SetVringBase:        {do: (*session).setVringBase},
	vhost.GetVringBase:        {do: (*session).getVringBase},
	vhost.SetVringKick:        {do: (*session).setVringKick, fds: true},
	vhost.SetVringCall:        {do: (*session).setVringCall, fds: true},
	vhost.SetVringErr:         {do: (*session).setVringErr, fds: true},
	vhost.GetProtocolFeatures: {do: (*session).getProtocolFeatures},
	vhost.SetProtocolFeatures: {do: (*session).setProtocolFeatures},
	vhost.GetQueueNum:         {do: (*session).getQueueNum, needs: vhost.ProtocolMQ},
	vhost.SetVringEnable:      {do: (*session).setVringEnable},
	vhost.NetSetMTU:           {do: (*session).netSetMTU, needs: vhost.ProtocolNetMTU},
	vhost.GetConfig:           {do: (*session).getConfig, needs: vhost.ProtocolConfig},
	vhost.SetConfig:           {do: (*session).setConfig, needs: vhost.ProtocolConfig},
	vhost.ResetDevice:         {do: (*session).resetDevice, needs: vhost.ProtocolResetDevice},
	vhost.GetMaxMemSlots:      {do: (*session).getMaxMemSlots, needs: vhost.ProtocolConfigureMemSlots},
	vhost.AddMemReg:           {do: (*session).addMemReg, needs: vhost.ProtocolConfigureMemSlots, fds: true},
	vhost.RemMemReg:           {do: (*session).remMemReg, needs: vhost.ProtocolConfigureMemSlots, fds: true},
	vhost.SetStatus:           {do: (*session).setStatus, needs: vhost.ProtocolStatus},
	vhost.GetStatus:           {do: (*session).getStatus, needs: vhost.ProtocolStatus},
}

func (s *session) setOwner(vhost.Message, *descriptors) ([]byte, error) {
	if s.owned {
		return nil, errors.New("this session has an owner already")
	}
	s.owned = true
	return nil, nil
}

// notHere are features that take what a vhost-user back end does not have: a control queue, which is the front end's own, other
// notifications than descriptors, an IOMMU.
const notHere = spec.FeatureCtrlVQ | spec.FeatureCtrlRx | spec.FeatureCtrlVLAN | spec.FeatureCtrlRxExtra | spec.FeatureCtrlMACAddr |
	spec.FeatureCtrlGuestOffloads | spec.FeatureGuestAnnounce | spec.FeatureRSS | spec.FeatureHashReport | spec.FeatureRingReset |
	spec.FeatureNotificationData | spec.FeatureNotifConfigData | spec.FeatureAccessPlatform

// offered is what the device has, and the bit that says that the protocol has features of its own.
func offered(d Device) spec.Features {
	return d.Features()&^notHere | vhost.FeatureProtocolFeatures
}

func (s *session) getFeatures(vhost.Message, *descriptors) ([]byte, error) {
	return vhost.AppendU64(nil, uint64(s.offered)), nil
}

func (s *session) setFeatures(m vhost.Message, _ *descriptors) ([]byte, error) {
	v, err := m.U64()
	if err != nil {
		return nil, err
	}
	f := spec.Features(v)
	return nil, s.locked(func() error {
		if not := f &^ s.offered; not != 0 {
			return fmt.Errorf("features that were not offered: %v", not)
		}
		if s.agreed && f == s.acked {
			return nil // QEMU says them again at each start
		}
		for _, r := range s.rings {
			if r.running {
				return fmt.Errorf("features %v, of which %v are new, while queue %d runs", f, f^s.acked, r.index)
			}
		}
		s.agreed = false
		// Several pairs need a control queue, which is not there; they are enabled one by one.
		if err := s.negotiate(f &^ vhost.FeatureProtocolFeatures &^ spec.FeatureMQ); err != nil {
			return err
		}
		s.acked, s.agreed = f, true
		return nil
	})
}

// negotiate tells the device, which begins anew for a front end that says no status (SET_STATUS), or says it but not that the device
// is to be reset, as DPDK 22.11's does when its port is configured once more.
func (s *session) negotiate(f spec.Features) error {
	if s.statusByHand && s.dev.Status()&spec.StatusFeaturesOK == 0 {
		return s.dev.SetFeatures(f)
	}
	s.dev.SetStatus(0)
	s.dev.UseLegacy(!f.Has(spec.FeatureVersion1))
	s.dev.SetStatus(spec.StatusAcknowledge | spec.StatusDriver)
	if err := s.dev.SetFeatures(f); err != nil {
		return err
	}
	s.dev.SetStatus(s.dev.Status() | spec.StatusFeaturesOK)
	if s.dev.Status()&spec.StatusFeaturesOK == 0 && f.Has(spec.FeatureVersion1) {
		return fmt.Errorf("the device does not take the features %v together", f)
	}
	return nil
}

func (s *session) getProtocolFeatures(vhost.Message, *descriptors) ([]byte, error) {
	return vhost.AppendU64(nil, uint64(protocolFeatures)), nil
}

func (s *session) setProtocolFeatures(m vhost.Message, _ *descriptors) ([]byte, error) {
	v, err := m.U64()
	if err != nil {
		return nil, err
	}
	f := vhost.ProtocolFeatures(v)
	if not := f &^ protocolFeatures; not != 0 {
		return nil, fmt.Errorf("protocol features that were not offered: %v", not)
	}
	s.protocol = f
	return nil, nil
}

// getQueueNum tells the pairs that there can be: DPDK and QEMU take the number so.
func (s *session) getQueueNum(vhost.Message, *descriptors) ([]byte, error) {
	return vhost.AppendU64(nil, uint64(max(1, len(s.rings)/2))), nil
}

func (s *session) setMemTable(m vhost.Message, fds *descriptors) ([]byte, error) {
	t, err := m.MemoryTable(fds.count())
	if err != nil {
		return nil, err
	}
	return nil, s.locked(func() error { return s.remap(func() error { return s.mem.set(t, fds.list) }) })
}

func (s *session) getMaxMemSlots(vhost.Message, *descriptors) ([]byte, error) {
	return vhost.AppendU64(nil, maxSlots), nil
}

func (s *session) addMemReg(m vhost.Message, fds *descriptors) ([]byte, error) {
	r, err := m.SingleRegion()
	if err != nil {
		return nil, err
	}
	if fds.count() != 1 {
		return nil, fmt.Errorf("%w: %d descriptors for one region", vhost.ErrMessage, fds.count())
	}
	return nil, s.locked(func() error { return s.mem.add(r.Region, fds.list[0]) })
}

// remMemReg may come with a descriptor (QEMU's does), which nobody needs.
func (s *session) remMemReg(m vhost.Message, _ *descriptors) ([]byte, error) {
	r, err := m.SingleRegion()
	if err != nil {
		return nil, err
	}
	return nil, s.locked(func() error { return s.remap(func() error { return s.mem.remove(r.Region) }) })
}

// vringState reads a message about one ring that the device does not have at the moment.
func (s *session) vringState(m vhost.Message) (*ring, uint32, error) {
	v, err := m.VringState()
	if err != nil {
		return nil, 0, err
	}
	r, err := s.ring(v.Index)
	return r, v.Num, err
}

func (s *session) setVringNum(m vhost.Message, _ *descriptors) ([]byte, error) {
	r, n, err := s.vringState(m)
	if err != nil {
		return nil, err
	}
	return nil, s.locked(func() error {
		if most := s.dev.QueueMax(r.index); n == 0 || uint64(n) > uint64(most) {
			return fmt.Errorf("queue %d of %d descriptors: want 1 to %d", r.index, n, most)
		}
		if r.running {
			return fmt.Errorf("queue %d runs: stop it first", r.index)
		}
		r.size = int(n)
		return nil
	})
}

func (s *session) setVringBase(m vhost.Message, _ *descriptors) ([]byte, error) {
	r, n, err := s.vringState(m)
	if err != nil {
		return nil, err
	}
	return nil, s.locked(func() error {
		if r.running {
			return fmt.Errorf("queue %d runs: stop it first", r.index)
		}
		r.base = n
		return nil
	})
}

func (s *session) setVringAddr(m vhost.Message, _ *descriptors) ([]byte, error) {
	a, err := m.VringAddr()
	if err != nil {
		return nil, err
	}
	r, err := s.ring(a.Index)
	if err != nil {
		return nil, err
	}
	if a.Flags&vhost.VringLog != 0 {
		return nil, fmt.Errorf("queue %d: a log of writes, which was not offered", a.Index)
	}
	return nil, s.locked(func() error {
		s.halt(r) // a ring may move while it runs
		r.addr, r.placed = a, true
		return s.settle(r)
	})
}

// getVringBase stops a ring. Its descriptors are given back, too: the front end sends new ones.
func (s *session) getVringBase(m vhost.Message, _ *descriptors) ([]byte, error) {
	r, _, err := s.vringState(m)
	if err != nil {
		return nil, err
	}
	err = s.locked(func() error {
		s.halt(r)
		r.started, r.polled = false, false
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.stopKick()
	s.world.Lock()
	s.dev.OnCall(r.index, nil)
	s.world.Unlock()
	r.closeCall()
	return vhost.VringState{Index: uint32(r.index), Num: r.base}.Append(nil), nil
}

// setVringKick starts a ring.
func (s *session) setVringKick(m vhost.Message, fds *descriptors) ([]byte, error) {
	v, err := m.VringFD(fds.count())
	if err != nil {
		return nil, err
	}
	r, err := s.ring(uint32(v.Index))
	if err != nil {
		return nil, err
	}
	r.stopKick()
	if !v.NoFD {
		if r.kick, err = newKick(fds.take(), func() { s.kicked(r.index) }); err != nil {
			return nil, err
		}
	}
	return nil, s.locked(func() error {
		r.started, r.polled = true, v.NoFD
		return s.settle(r)
	})
}

// kicked is called by the goroutine of a kick.
func (s *session) kicked(i int) {
	err := s.locked(func() error {
		r := s.rings[i]
		s.poke(r)
		if s.busy = s.world.Clock().Nanos(); !s.polling && r.running {
			s.polling = true
			s.dev.Poll(true)
		}
		return nil
	})
	if err != nil {
		s.fail(err)
	}
}

func (s *session) setVringCall(m vhost.Message, fds *descriptors) ([]byte, error) {
	v, err := m.VringFD(fds.count())
	if err != nil {
		return nil, err
	}
	r, err := s.ring(uint32(v.Index))
	if err != nil {
		return nil, err
	}
	var c *call
	if !v.NoFD {
		if c, err = newCall(fds.take()); err != nil {
			return nil, err
		}
	}
	old := r.call
	r.call = c
	err = s.locked(func() error {
		if r.running {
			s.dev.OnCall(r.index, r.ring())
		}
		return nil
	})
	old.close()
	return nil, err
}

// setVringErr takes a descriptor that nobody here writes to: an error ends the session, which the front end sees.
func (s *session) setVringErr(m vhost.Message, fds *descriptors) ([]byte, error) {
	v, err := m.VringFD(fds.count())
	if err == nil {
		_, err = s.ring(uint32(v.Index))
	}
	return nil, err
}

func (s *session) setVringEnable(m vhost.Message, _ *descriptors) ([]byte, error) {
	r, n, err := s.vringState(m)
	if err != nil {
		return nil, err
	}
	if n > 1 {
		return nil, fmt.Errorf("%w: queue %d enabled by %d: want 0 or 1", vhost.ErrMessage, r.index, n)
	}
	return nil, s.locked(func() error {
		r.enabled = n == 1
		return s.settle(r)
	})
}

func (s *session) netSetMTU(m vhost.Message, _ *descriptors) ([]byte, error) {
	v, err := m.U64()
	if err != nil {
		return nil, err
	}
	if v < minMTU || v > maxMTU {
		return nil, fmt.Errorf("MTU %d: want %d to %d", v, minMTU, maxMTU)
	}
	return nil, nil // looked at and not kept: the limit of the device stays its Config.MTU
}

func (s *session) getConfig(m vhost.Message, _ *descriptors) ([]byte, error) {
	c, err := m.Config()
	if err != nil {
		return nil, err
	}
	data := make([]byte, len(c.Data))
	if int(c.Offset) < spec.NetConfigSize {
		s.world.Lock()
		defer s.world.Unlock()
		s.dev.ReadConfig(int(c.Offset), data[:min(len(data), spec.NetConfigSize-int(c.Offset))])
	}
	c.Data = data
	return c.Append(nil), nil
}

func (s *session) setConfig(m vhost.Message, _ *descriptors) ([]byte, error) {
	c, err := m.Config()
	if err != nil {
		return nil, err
	}
	if int(c.Offset)+len(c.Data) > spec.NetConfigSize {
		return nil, fmt.Errorf("%d bytes of configuration from %d on: there are %d", len(c.Data), c.Offset, spec.NetConfigSize)
	}
	s.world.Lock()
	defer s.world.Unlock()
	s.dev.WriteConfig(int(c.Offset), c.Data)
	return nil, nil
}

// resetOwner is what front ends said before there was RESET_DEVICE, and begin anew after.
func (s *session) resetOwner(m vhost.Message, fds *descriptors) ([]byte, error) {
	s.owned = false
	return s.resetDevice(m, fds)
}

// resetDevice takes all rings away; the front end begins anew with SET_FEATURES.
func (s *session) resetDevice(vhost.Message, *descriptors) ([]byte, error) {
	err := s.locked(func() error { s.reset(); return nil })
	for _, r := range s.rings {
		r.stopKick()
	}
	return nil, err
}

// reset is called with the world locked.
func (s *session) reset() {
	for _, r := range s.rings {
		s.halt(r)
		r.started, r.polled, r.enabled, r.placed, r.size, r.base = false, false, false, false, 0, 0
	}
	s.dev.SetStatus(0)
	s.acked, s.agreed, s.statusByHand = 0, false, false
}

func (s *session) setStatus(m vhost.Message, _ *descriptors) ([]byte, error) {
	v, err := m.U64()
	if err != nil {
		return nil, err
	}
	if v > 0xff {
		return nil, fmt.Errorf("%w: status %#x", vhost.ErrMessage, v)
	}
	return nil, s.locked(func() error {
		if v == 0 {
			s.reset()
			s.statusByHand = true
			return nil
		}
		s.statusByHand = true
		s.dev.SetStatus(uint8(v))
		if v&spec.StatusDriverOK != 0 {
			s.pairs()
			for _, r := range s.rings {
				s.poke(r)
			}
		}
		return nil
	})
}

func (s *session) getStatus(vhost.Message, *descriptors) ([]byte, error) {
	s.world.Lock()
	defer s.world.Unlock()
	return vhost.AppendU64(nil, uint64(s.dev.Status())), nil
}
