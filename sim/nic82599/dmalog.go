package nic82599

import "bare.wire/sim"

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
type DMA = sim.DMA[DMAKind]

// EnableDMALog starts an empty log of the card's DMA; last bounds it to the latest entries, 0 keeps all.
func (c *Card) EnableDMALog(last int) {
	c.w.Lock()
	defer c.w.Unlock()
	c.dma = sim.NewDMALog[DMAKind](last)
}

// DMALog returns the log, oldest first.
func (c *Card) DMALog() []DMA {
	c.w.Lock()
	defer c.w.Unlock()
	return c.dma.List()
}

func (c *Card) logDMA(k DMAKind, q int, bus uint64, n int, at int64) {
	c.dma.Add(DMA{Kind: k, Queue: q, Bus: bus, Len: n, At: at})
}
