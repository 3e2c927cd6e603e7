package qemu

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"bare.wire/clock"
)

const (
	// maxQueued bounds the interrupts on their way; equal messages are one, so a guest would have to program that many.
	maxQueued = 4096
	// fallWait is how long an access of the guest waits for its pin to fall.
	fallWait = 200 * time.Millisecond
)

// item is something to be sent: a message, or (pin > 0) the present level of a pin.
type item struct {
	pin  int
	addr uint64
	data uint32
}

// pin is an input of the I/O APIC, which functions share: it is high while one of them drives it.
type pin struct {
	drivers uint64 // bit n: function n
	high    bool   // what QEMU was told last
	queued  bool
	low     []chan struct{} // closed when QEMU has been told of the next level
}

// interrupts carries interrupts to QEMU from a goroutine of its own, in order.
type interrupts struct {
	test *qtest
	clk  clock.Clock
	log  *slog.Logger
	wake chan struct{}

	mu      sync.Mutex
	queue   []item
	pins    map[int]*pin
	sent    uint64 // messages and changes of pins
	dropped uint64
}

func newInterrupts(test *qtest, clk clock.Clock, log *slog.Logger) *interrupts {
	return &interrupts{test: test, clk: clk, log: log, wake: make(chan struct{}, 1), pins: map[int]*pin{}}
}

// push queues i, unless the same is on its way already. The caller holds mu.
func (s *interrupts) push(i item) {
	for _, q := range s.queue {
		if q == i {
			return // edges that nobody has seen are one
		}
	}
	if len(s.queue) == maxQueued {
		s.dropped++
		return
	}
	s.queue = append(s.queue, i)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// message queues an MSI message.
func (s *interrupts) message(addr uint64, data uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.push(item{addr: addr, data: data})
}

// drive says whether function id drives pin n. The channel that is returned, if any, is closed when QEMU knows that the pin
// has fallen: an access that made it fall should not be answered before, or the guest would see the interrupt again.
func (s *interrupts) drive(n, id int, high bool) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pins[n]
	if p == nil {
		p = &pin{}
		s.pins[n] = p
	}
	was := p.drivers
	p.drivers &^= 1 << id
	if high {
		p.drivers |= 1 << id
	}
	if was == p.drivers {
		return nil
	}
	if up := p.drivers != 0; up != p.high && !p.queued {
		p.queued = true
		s.push(item{pin: n})
	}
	if high || p.drivers != 0 || !p.queued {
		return nil
	}
	done := make(chan struct{})
	p.low = append(p.low, done)
	return done
}

// wait waits for a channel that drive returned.
func (s *interrupts) wait(done <-chan struct{}) {
	if done != nil && !within(s.clk, fallWait, done) {
		s.log.Warn("QEMU has not taken the fall of an interrupt pin in time", "limit", fallWait)
	}
}

// within waits until done is closed, at most d, and says whether it was. Whatever an access of the guest waits for has such a
// bound: QEMU's main loop may be waiting for that access, to stop the guest.
func within(clk clock.Clock, d time.Duration, done <-chan struct{}) bool {
	select {
	case <-done: // mostly
		return true
	default:
	}
	late := make(chan struct{})
	t := clk.At(clk.Nanos()+int64(d), func() { close(late) })
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-late:
		return false
	}
}

// run sends until ctx ends.
func (s *interrupts) run(ctx context.Context, unit *vtd) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for {
			i, ok := s.pop()
			if !ok {
				break
			}
			if err := s.send(i, unit); err != nil && ctx.Err() == nil {
				s.log.Warn("interrupt lost", "error", err)
			}
		}
	}
}

func (s *interrupts) pop() (item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return item{}, false
	}
	i := s.queue[0]
	s.queue = append(s.queue[:0], s.queue[1:]...)
	s.sent++
	return i, true
}

func (s *interrupts) send(i item, unit *vtd) error {
	if i.pin > 0 {
		return s.sendPin(i.pin)
	}
	if i.addr&msiRemapped == 0 {
		return s.test.message(i.addr, i.data)
	}
	addr, data, err := unit.remap(i.addr, i.data)
	if err != nil {
		return err
	}
	return s.test.message(addr, data)
}

// sendPin brings the level of a pin up to date.
func (s *interrupts) sendPin(n int) error {
	s.mu.Lock()
	p := s.pins[n]
	p.queued = false
	up, low := p.drivers != 0, p.low
	change := up != p.high
	p.high, p.low = up, nil
	s.mu.Unlock()
	var err error
	if change {
		err = s.test.pin(n, up)
	}
	for _, done := range low {
		close(done)
	}
	return err
}

// counts are how many interrupts were sent, and how many had no room.
func (s *interrupts) counts() (sent, dropped uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent, s.dropped
}
