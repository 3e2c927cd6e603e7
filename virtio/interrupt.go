package virtio

import (
	"context"
	"fmt"
)

// interruptible is a queue that hears of its interrupt.
type interruptible interface{ fired() }

// initInterrupts asks for a vector for each queue and one for the configuration, before queues are enabled (§4.1.5.1.2). Where
// there are fewer, queues share them. Queues ask the device for interrupts only while somebody sleeps on them.
func (p *Port) initInterrupts(context.Context) error {
	made := p.queues.Load()
	n, err := p.t.Interrupts(len(made.rx)+len(made.tx)+1, p.interrupt)
	if err != nil {
		return fmt.Errorf("interrupts: %w", err)
	}
	if n < 1 {
		return fmt.Errorf("%s: interrupts: the transport has %d", p.info.Name, n)
	}
	vectors := make([][]interruptible, n)
	assign := func(queue int, q interruptible) {
		v := vectorOf(queue, n)
		vectors[v] = append(vectors[v], q)
	}
	for i, q := range made.rx {
		assign(i, q)
	}
	for i, q := range made.tx {
		assign(len(made.rx)+i, q)
	}
	p.vectors.Store(&vectors) // an interrupt may come any time
	return nil
}

// vectorOf is the vector of a queue, the receive queues counted first.
func (p *Port) vectorOf(queue int) int { return vectorOf(queue, len(*p.vectors.Load())) }

// vectorOf is the vector of a queue where there are n: those that there are beside the last, which is for the configuration, are
// dealt out in turn; a single one is for everything.
func vectorOf(queue, n int) int {
	if n > 1 {
		return queue % (n - 1)
	}
	return 0
}

// interrupt is called, on any goroutine, when a vector fires.
func (p *Port) interrupt(n int) {
	vectors := p.vectors.Load()
	if vectors == nil || n < 0 || n >= len(*vectors) {
		return
	}
	for _, q := range (*vectors)[n] {
		q.fired()
	}
	if n == len(*vectors)-1 {
		p.configChanged.Store(true)
		p.lookAtConfig()
	}
}

// lookAtConfig looks at what has changed, if something has. An interrupt does not wait for mu, which may be held by whoever
// it interrupts: whoever holds it looks when giving it back.
func (p *Port) lookAtConfig() {
	for p.configChanged.Load() && p.mu.TryLock() {
		if p.configChanged.Swap(false) && p.started && p.Err() == nil && p.healthy() {
			p.updateLink()
		}
		p.mu.Unlock()
	}
}
