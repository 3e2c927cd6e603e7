package nic

import "sync/atomic"

// Counter is a total that one goroutine adds to and any may read. Adding is a plain store of the new total and not a
// locked add: 1 ns instead of 6, once a burst.
type Counter struct{ v uint64 }

// Add adds n. Only the owner calls it.
func (c *Counter) Add(n uint64) { publish(&c.v, c.v+n) }

// Load returns the total; any goroutine may call it.
func (c *Counter) Load() uint64 { return atomic.LoadUint64(&c.v) }
