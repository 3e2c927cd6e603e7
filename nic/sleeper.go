package nic

import "sync/atomic"

// Sleeper is a queue's place for the Waiter that is to be woken: the half of Arm that is the same for all drivers. A driver
// notes who wants to sleep, lets the interrupt through, and then looks at its ring once more, since what came in between
// raised none.
type Sleeper struct{ waiter atomic.Pointer[Waiter] }

// Note keeps w for the next Fire, in place of whom it had.
func (s *Sleeper) Note(w *Waiter) { s.waiter.Store(w) }

// Noted says whether there is somebody to wake.
func (s *Sleeper) Noted() bool { return s.waiter.Load() != nil }

// Fire wakes who was noted, once; with an error (see Waiter.Fail), for good.
func (s *Sleeper) Fire(err error) {
	w := s.waiter.Swap(nil)
	switch {
	case w == nil:
	case err != nil:
		w.Fail(err)
	default:
		w.Wake()
	}
}
