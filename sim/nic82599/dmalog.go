package nic82599

import "slices"

// DMAKind says what an access to memory was for.
type DMAKind uint8

// The kinds of DMA.
const (
	FetchTx   DMAKind = iota // transmit descriptors read
	ReadData                 // bytes of a frame read, to be sent
	ReportTx                 // status of a transmit descriptor, or the head, written
	FetchRx                  // receive descriptors read
	WriteData                // bytes of a received frame written
	ReportRx                 // receive descriptor written back
)

func (k DMAKind) String() string {
	return [...]string{"FetchTx", "ReadData", "ReportTx", "FetchRx", "WriteData", "ReportRx"}[k]
}

// DMA is one access of the card to memory.
type DMA struct {
	Kind  DMAKind
	Queue int
	Bus   uint64
	Len   int   // bytes
	At    int64 // ns of the world's clock
}

// dmaLog keeps accesses, all of them or the last so many.
type dmaLog struct {
	on   bool
	ring int // 0: all
	list []DMA
	next int
}

// EnableDMALog starts an empty log of the card's DMA; last bounds it to the latest entries, 0 keeps all.
func (c *Card) EnableDMALog(last int) {
	c.w.Lock()
	defer c.w.Unlock()
	c.dma = dmaLog{on: true, ring: last}
	if last > 0 {
		c.dma.list = make([]DMA, 0, last)
	}
}

// DMALog returns the log, oldest first.
func (c *Card) DMALog() []DMA {
	c.w.Lock()
	defer c.w.Unlock()
	l := &c.dma
	return append(slices.Clone(l.list[l.next:]), l.list[:l.next]...)
}

func (c *Card) logDMA(k DMAKind, q int, bus uint64, n int, at int64) {
	l := &c.dma
	e := DMA{Kind: k, Queue: q, Bus: bus, Len: n, At: at}
	if l.ring == 0 || len(l.list) < l.ring {
		l.list = append(l.list, e)
		return
	}
	l.list[l.next] = e
	if l.next++; l.next == l.ring {
		l.next = 0
	}
}
