package vhostuser

import (
	"encoding/binary"
	"fmt"

	"bare.wire/virtio/spec"
	"bare.wire/virtio/spec/vhost"
)

// ring is one virtqueue as the front end describes it, message by message. It runs, that is the device has it, while it is
// started (SET_VRING_KICK came) and enabled (SET_VRING_ENABLE, or never asked for).
type ring struct {
	index   int
	size    int
	addr    vhost.VringAddr
	placed  bool // addr was told
	base    uint32
	started bool
	enabled bool
	running bool
	kick    *kick // of the front end's, if it tells
	polled  bool  // it does not tell
	call    *call // nil: the front end does not want to hear
}

// stopKick ends the waiting for the front end. It is called without the world's lock, which the kick's goroutine takes.
func (r *ring) stopKick() {
	if r.kick != nil {
		r.kick.stop()
		r.kick = nil
	}
}

// closeCall is called without the world's lock, too.
func (r *ring) closeCall() {
	r.call.close()
	r.call = nil
}

// ring returns the ring that a message names.
func (s *session) ring(index uint32) (*ring, error) {
	if uint64(index) >= uint64(len(s.rings)) {
		return nil, fmt.Errorf("%w: queue %d: there are %d", vhost.ErrMessage, index, len(s.rings))
	}
	return s.rings[index], nil
}

// settle gives a ring to the device or takes it away, as the messages so far want it. The world is locked.
func (s *session) settle(r *ring) error {
	want := r.started && r.placed && r.size > 0 && (r.enabled || !s.acked.Has(vhost.FeatureProtocolFeatures))
	switch {
	case want && !r.running:
		return s.launch(r)
	case !want && r.running:
		s.halt(r)
	}
	return nil
}

// launch gives a ring to the device.
func (s *session) launch(r *ring) error {
	desc, driver, device, err := s.place(r)
	if err != nil {
		return err
	}
	if err := s.dev.SetQueue(r.index, r.size, desc, driver, device); err != nil {
		return fmt.Errorf("queue %d: %w", r.index, err)
	}
	if err := s.dev.SetQueueBase(r.index, s.position(r, device)); err != nil {
		return fmt.Errorf("queue %d: %w", r.index, err)
	}
	s.wanted(device)
	s.dev.OnCall(r.index, r.ring())
	s.dev.EnableQueue(r.index, true)
	r.running = true
	s.ready()
	s.pairs()
	s.poke(r) // there may be something in it
	return nil
}

// position is where the device goes on. A ring that is started has nothing under way, so the device goes on reporting where it goes
// on fetching: of a packed ring front ends tell the second only, or both. Of a split ring the used index, at the device's area, is
// right where the base is not: a front end that lost its back end, which could not say how far it was, tells the base of a new ring.
func (s *session) position(r *ring, device uint64) uint32 {
	if s.acked.Has(spec.FeatureRingPacked) {
		return r.base&0xffff | r.base<<16
	}
	b, err := s.mem.Bytes(device+usedIndex, 2)
	if err != nil || len(b) < 2 { // place has looked
		return r.base
	}
	used := uint32(binary.LittleEndian.Uint16(b))
	if used != r.base {
		s.log.Info("vhost-user: a ring goes on where it was left", "queue", r.index, "base", r.base, "used", used)
	}
	return used
}

// wanted says in the device's area that kicks are wanted: a back end that was killed while it looked by itself has left there that
// they are not. The device knows of rings only that they begin so.
func (s *session) wanted(device uint64) {
	if s.acked.Has(spec.FeatureRingPacked) {
		device += eventFlags
	}
	if b, err := s.mem.Bytes(device, 2); err == nil && len(b) == 2 {
		binary.LittleEndian.PutUint16(b, 0) // of both kinds of ring
	}
}

// eventFlags is where the flags are in the device's event suppression of a packed ring (VIRTIO §2.8.14).
const eventFlags = 2

// usedIndex is where the index is in a used ring (VIRTIO §2.7.8).
const usedIndex = 2

// poke has the device look at a ring.
func (s *session) poke(r *ring) {
	if r.running && s.live() {
		s.dev.Kick(r.index)
		s.world.Poke()
	}
}

// ring returns what tells the front end.
func (r *ring) ring() func() {
	if r.call == nil {
		return nil
	}
	return r.call.send
}

// halt takes a ring away from the device and keeps where it stood. It no longer runs even if its memory turns out to be gone.
func (s *session) halt(r *ring) {
	if !r.running {
		return
	}
	r.running = false
	r.base = s.dev.QueueBase(r.index)
	s.dev.EnableQueue(r.index, false)
	s.pairs()
}

// ready says DRIVER_OK for a front end that says no status.
func (s *session) ready() {
	if !s.statusByHand {
		s.dev.SetStatus(s.dev.Status() | spec.StatusDriverOK)
	}
}

// place translates the addresses of a ring and makes sure that all of it lies in memory.
func (s *session) place(r *ring) (desc, driver, device uint64, err error) {
	n := uint64(r.size)
	table, avail, used := spec.DescSize*n, 6+2*n, 6+8*n
	if s.acked.Has(spec.FeatureRingPacked) {
		avail, used = spec.EventSize, spec.EventSize
	}
	for _, part := range []struct {
		name string
		user uint64
		n    uint64
		to   *uint64
	}{{"descriptors", r.addr.Desc, table, &desc}, {"driver's area", r.addr.Avail, avail, &driver}, {"device's area", r.addr.Used, used, &device}} {
		if *part.to, err = s.mem.guest(part.user, part.n); err != nil {
			return 0, 0, 0, fmt.Errorf("queue %d of %d descriptors: its %s: %w", r.index, r.size, part.name, err)
		}
	}
	return desc, driver, device, nil
}

// remap runs change, after which addresses mean something else, with all rings taken away from the device meanwhile.
func (s *session) remap(change func() error) error {
	var running []*ring
	for _, r := range s.rings {
		if r.running {
			running = append(running, r)
			s.halt(r)
		}
	}
	err := change()
	s.dev.MemoryChanged()
	for _, r := range running {
		if lerr := s.launch(r); lerr != nil {
			return fmt.Errorf("%w: after a change of memory: %w", errGone, lerr)
		}
	}
	return err
}
