package nic

import (
	"slices"
	"sync"
	"sync/atomic"
)

// LinkWatch is what a driver knows of its link, and who waits for that to change: Port.Link and Port.ArmLink. The zero value
// is a link that is down.
type LinkWatch struct {
	link    atomic.Pointer[Link] // written with mu locked
	mu      sync.Mutex
	waiters []*Waiter
	ended   bool
}

// Link is the state that was noted last.
func (l *LinkWatch) Link() Link {
	if now := l.link.Load(); now != nil {
		return *now
	}
	return Link{}
}

// Update notes what read says the state is now, unless it says that it does not know, and wakes whoever waits for another
// than it was. Interrupts and Housekeep may update at the same time: read runs locked, so that who reads last has the last word.
func (l *LinkWatch) Update(read func() (now Link, known bool)) (now Link, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, known := read()
	if !known {
		return l.Link(), false
	}
	if now == l.Link() {
		return now, false
	}
	l.link.Store(&now)
	l.wakeLocked(nil)
	return now, true
}

// Arm has w woken at the next change, if the state is still as seen. It returns false when it is not, or never will be another.
// A port that may be gone looks at that after Arm.
func (l *LinkWatch) Arm(w *Waiter, seen Link) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.Link() != seen {
		return false
	}
	if !slices.Contains(l.waiters, w) {
		l.waiters = append(l.waiters, w)
	}
	return true
}

// Wake wakes everybody who waits: the port stops. With an error, why it is gone, they are told that.
func (l *LinkWatch) Wake(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeLocked(err)
}

// End is Wake of a port that is closed: nobody can wait any more.
func (l *LinkWatch) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.wakeLocked(nil)
}

func (l *LinkWatch) wakeLocked(err error) {
	for _, w := range l.waiters {
		if err != nil {
			w.Fail(err)
		} else {
			w.Wake()
		}
	}
	l.waiters = nil
}
