package sim

import "slices"

// DMA is one access of a device to memory. K is the device's kinds of access.
type DMA[K any] struct {
	Kind  K
	Queue int
	Bus   uint64
	Len   int   // bytes
	At    int64 // ns of the world's clock
}

// DMALog keeps accesses, all of them or the last so many. The zero value is off. Its device locks it.
type DMALog[K any] struct {
	On   bool // devices look here before they call Add
	ring int  // 0: all
	list []DMA[K]
	next int
}

// NewDMALog returns an empty log that is on; last bounds it to the latest entries, 0 keeps all.
func NewDMALog[K any](last int) DMALog[K] {
	l := DMALog[K]{On: true, ring: last}
	if last > 0 {
		l.list = make([]DMA[K], 0, last)
	}
	return l
}

// Add logs an access, whether the log is on or not.
func (l *DMALog[K]) Add(e DMA[K]) {
	if l.ring == 0 || len(l.list) < l.ring {
		l.list = append(l.list, e)
		return
	}
	l.list[l.next] = e
	if l.next++; l.next == l.ring {
		l.next = 0
	}
}

// List returns a copy of the log, oldest first.
func (l *DMALog[K]) List() []DMA[K] {
	return append(slices.Clone(l.list[l.next:]), l.list[:l.next]...)
}
