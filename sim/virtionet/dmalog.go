package virtionet

import "slices"

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

// EnableDMALog starts an empty log of the device's DMA; last bounds it to the latest entries, 0 keeps all.
func (d *Device) EnableDMALog(last int) {
	d.w.Lock()
	defer d.w.Unlock()
	d.dma = dmaLog{on: true, ring: last}
	if last > 0 {
		d.dma.list = make([]DMA, 0, last)
	}
}

// DMALog returns the log, oldest first.
func (d *Device) DMALog() []DMA {
	d.w.Lock()
	defer d.w.Unlock()
	l := &d.dma
	return append(slices.Clone(l.list[l.next:]), l.list[:l.next]...)
}

func (d *Device) logDMA(k DMAKind, q int, bus uint64, n int) {
	l := &d.dma
	e := DMA{Kind: k, Queue: q, Bus: bus, Len: n, At: d.now}
	if l.ring == 0 || len(l.list) < l.ring {
		l.list = append(l.list, e)
		return
	}
	l.list[l.next] = e
	if l.next++; l.next == l.ring {
		l.next = 0
	}
}
