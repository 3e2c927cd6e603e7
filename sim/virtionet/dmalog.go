package virtionet

import "bare.wire/sim"

// DMAKind says what an access to memory was for.
type DMAKind uint8

// The kinds of DMA.
const (
	FetchRing  DMAKind = iota // descriptors read
	ReadData                  // header and frame read, to be sent, or a command
	WriteData                 // header and frame written, or the answer to a command
	ReportUsed                // used entries or descriptors written; Len is their number
)

func (k DMAKind) String() string {
	return [...]string{"FetchRing", "ReadData", "WriteData", "ReportUsed"}[k]
}

// DMA is one access of the device to memory.
type DMA = sim.DMA[DMAKind]

// EnableDMALog starts an empty log of the device's DMA; last bounds it to the latest entries, 0 keeps all.
func (d *Device) EnableDMALog(last int) {
	d.w.Lock()
	defer d.w.Unlock()
	d.dma = sim.NewDMALog[DMAKind](last)
}

// DMALog returns the log, oldest first.
func (d *Device) DMALog() []DMA {
	d.w.Lock()
	defer d.w.Unlock()
	return d.dma.List()
}

func (d *Device) logDMA(k DMAKind, q int, bus uint64, n int) {
	d.dma.Add(DMA{Kind: k, Queue: q, Bus: bus, Len: n, At: d.now})
}
