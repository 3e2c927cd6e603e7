package capture

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
)

// blocks hands a pcapng file on block by block, and notes on the way when each packet was captured as the file says it.
//
// pcapgo converts stamps that count halves of a second (if_tsresol with its upper bit set) with a factor cut to a whole
// number: of 2⁻¹⁰ s it makes 256 ns too few in half a second, of 2⁻³² s 7 % too much. Those are converted here.
type blocks struct {
	from   *bufio.Reader
	order  binary.ByteOrder
	left   int64 // of the block that is being handed on
	broken bool  // the lengths make no sense: hand on what there is, pcapgo will say so

	interfaces int // that the section has described

	// units is the stamp of the latest packet block, in units of its interface's resolution since 1970. It belongs to the
	// packet that pcapgo returns next: it has no block beyond that one yet, because it asks for more only when it has
	// nothing left, and gets one block at most.
	units uint64
}

// Block types that are packets, and how a block begins.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockOld       = 2
	blockEnhanced  = 6

	blockHead   = 8  // type and length
	minBlock    = 12 // and the length again
	packetHead  = 20 // as far as the stamp
	sectionHead = 12 // as far as the byte order
)

const (
	// maxInterfaces is how many interfaces a section may describe: pcapgo keeps a KiB of each.
	maxInterfaces = 1 << 16
	// maxDecimal is the finest decimal resolution that pcapgo converts without an overflow, 10⁻¹⁹ s.
	maxDecimal = 19
)

var errInterfaces = fmt.Errorf("a section with more than %d interfaces", maxInterfaces)

// Read implements io.Reader; it returns bytes of one block at most.
func (b *blocks) Read(p []byte) (int, error) {
	if b.left == 0 && !b.broken {
		b.begin()
	}
	if b.interfaces > maxInterfaces {
		return 0, errInterfaces
	}
	if !b.broken {
		p = p[:min(int64(len(p)), b.left)]
	}
	n, err := b.from.Read(p)
	b.left -= int64(n)
	return n, err
}

// begin looks at the head of a block. What ends too early is left to pcapgo.
func (b *blocks) begin() {
	head, err := b.from.Peek(blockHead)
	if err != nil {
		b.left = int64(max(len(head), 1))
		return
	}
	kind := binary.LittleEndian.Uint32(head) // of a section the same in both orders
	if kind == blockSection {
		if head, _ = b.from.Peek(sectionHead); len(head) == sectionHead {
			b.order = binary.LittleEndian
			if head[8] == 0x1a {
				b.order = binary.BigEndian
			}
		}
	}
	if b.order == nil {
		b.broken = true
		return
	}
	kind, b.left = b.order.Uint32(head), int64(b.order.Uint32(head[4:]))
	if b.left < minBlock || b.left%4 != 0 {
		b.broken = true
	}
	switch kind {
	case blockSection:
		b.interfaces = 0
	case blockInterface:
		b.interfaces++
	case blockEnhanced, blockOld:
		head, _ = b.from.Peek(packetHead)
		if len(head) == packetHead {
			b.units = uint64(b.order.Uint32(head[12:]))<<32 | uint64(b.order.Uint32(head[16:]))
		}
	}
}

// binaryTime converts a stamp of an interface whose unit is 2⁻ᵏ s, rounded down to a nanosecond.
func binaryTime(units uint64, i pcapgo.NgInterface) time.Time {
	k := i.TimestampResolution.Exponent() // at most 63: pcapgo refuses more
	fraction := units & (1<<k - 1)
	hi, lo := bits.Mul64(fraction, 1e9)
	ns := lo >> k
	if k > 0 {
		ns |= hi << (64 - k)
	}
	return time.Unix(int64(units>>k+i.TimestampOffset), int64(ns)).UTC()
}

var _ io.Reader = (*blocks)(nil)
