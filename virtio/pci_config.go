package virtio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/virtio/spec"
)

// window is a part of a BAR that holds a structure. Offsets into it count from its beginning.
type window struct {
	bar  pci.NarrowBAR
	off  uint32
	size uint32
}

// has says whether size bytes at off lie inside.
func (w *window) has(off, size int) bool {
	return off >= 0 && size >= 0 && uint64(off)+uint64(size) <= uint64(w.size)
}

func (w *window) read8(off uint32) uint8       { return w.bar.Read8(w.off + off) }
func (w *window) read16(off uint32) uint16     { return w.bar.Read16(w.off + off) }
func (w *window) read32(off uint32) uint32     { return w.bar.Read32(w.off + off) }
func (w *window) write16(off uint32, v uint16) { w.bar.Write16(w.off+off, v) }
func (w *window) write32(off uint32, v uint32) { w.bar.Write32(w.off+off, v) }

// write64 writes a field of 64 bits as two halves (§4.1.3.1).
func (w *window) write64(off uint32, v uint64) {
	w.write32(off, uint32(v))
	w.write32(off+4, uint32(v>>32))
}

// configFields are the fields of a network device's configuration that are wider than a byte (§5.1.4): each is accessed with
// its own width (§4.1.3.1).
var configFields = map[int]int{
	spec.NetStatus: 2, spec.NetMaxPairs: 2, spec.NetMTU: 2, spec.NetSpeed: 4, spec.NetRSSMaxTable: 2, spec.NetHashTypes: 4,
}

// width is that of the access for the field at off, of which left bytes are wanted.
func (w *window) width(off, left int) int {
	n := configFields[off]
	if n == 0 || n > left || (w.off+uint32(off))%uint32(n) != 0 {
		return 1
	}
	return n
}

// read reads fields of the device configuration.
func (w *window) read(off int, p []byte) {
	for len(p) > 0 {
		n := w.width(off, len(p))
		switch at := uint32(off); n {
		case 1:
			p[0] = w.read8(at)
		case 2:
			binary.LittleEndian.PutUint16(p, w.read16(at))
		case 4:
			binary.LittleEndian.PutUint32(p, w.read32(at))
		}
		off, p = off+n, p[n:]
	}
}

// write writes fields of the device configuration.
func (w *window) write(off int, p []byte) {
	for len(p) > 0 {
		n := w.width(off, len(p))
		switch at := uint32(off); n {
		case 1:
			w.bar.Write8(w.off+at, p[0])
		case 2:
			w.write16(at, binary.LittleEndian.Uint16(p))
		case 4:
			w.write32(at, binary.LittleEndian.Uint32(p))
		}
		off, p = off+n, p[n:]
	}
}

// readConfig reads the device configuration until settled says that it did not change meanwhile. begin is called before each
// try, and settled after it.
func (t *pciTransport) readConfig(w *window, off int, p []byte, begin func(), settled func() bool) error {
	if !w.has(off, len(p)) {
		return t.errorf("the device configuration has %d bytes: %d at %d are not there, although the features say so", w.size, len(p), off)
	}
	for range configTries {
		begin()
		w.read(off, p)
		if !settled() {
			continue
		}
		if !slices.ContainsFunc(p, func(b byte) bool { return b != math.MaxUint8 }) { // a field may well be all ones
			return t.gone("the device configuration")
		}
		return nil
	}
	if err := t.gone("the device configuration"); err != nil {
		return err
	}
	return t.errorf("the device configuration has changed during each of %d reads: the device, or what makes it, is broken", configTries)
}

// writeConfig writes to it.
func (t *pciTransport) writeConfig(w *window, off int, p []byte) error {
	if !w.has(off, len(p)) {
		return t.errorf("the device configuration has %d bytes: %d at %d are not there", w.size, len(p), off)
	}
	w.write(off, p)
	return nil
}

// configSpace is a function's configuration space, as far as it has been read. The whole is not: one of virtio's capabilities has
// a window in it, and a read of that is an access to a register somewhere (§4.1.4.9).
type configSpace struct {
	fn    pci.Function
	bytes [pci.ConfigSize]byte
	known [pci.ConfigSize / 4]bool
	list  []pci.Capability
}

// readConfigSpace reads the header and the list of capabilities. A list that makes no sense is an error beside what was found
// of it.
func readConfigSpace(fn pci.Function) (*configSpace, error) {
	s := &configSpace{fn: fn}
	if err := s.read(0, pci.ConfigHeaderSize); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(s.bytes[pci.ConfigClass:]) == math.MaxUint32 {
		return nil, fmt.Errorf("%s: configuration space reads all ones: %w (unplugged, or powered down)", fn.Name(), nic.ErrGone)
	}
	const pointer, header = 0x34, 4 // of the first capability; id, next, and two bytes of its own
	for at := int(s.bytes[pointer] &^ 3); at >= pci.ConfigHeaderSize && !s.known[at/4]; at = int(s.bytes[at+1] &^ 3) {
		if err := s.read(at, header); err != nil {
			return nil, err
		}
	}
	var err error
	if s.list, err = pci.Capabilities(s.bytes[:]); err != nil {
		err = fmt.Errorf("%s: %w", fn.Name(), err)
	}
	return s, err
}

// read reads what is not known yet of n bytes at off, words of 4 bytes, as far as there is configuration space.
func (s *configSpace) read(off, n int) error {
	for i := off / 4; i < min((off+n+3)/4, len(s.known)); i++ {
		if s.known[i] {
			continue
		}
		v, err := s.fn.ReadConfig(4*i, 4)
		if err != nil {
			return fmt.Errorf("%s: read configuration space: %w", s.fn.Name(), err)
		}
		binary.LittleEndian.PutUint32(s.bytes[4*i:], v)
		s.known[i] = true
	}
	return nil
}

// narrowBAR opens BAR n, whose registers are accessed with their own width.
func narrowBAR(fn pci.Function, n int) (pci.NarrowBAR, error) {
	bar, err := fn.BAR(n)
	if err != nil {
		return nil, err
	}
	narrow, ok := bar.(pci.NarrowBAR)
	if !ok {
		return nil, fmt.Errorf("%s: BAR %d can be accessed with 32 bits only: %w", fn.Name(), n, errors.ErrUnsupported)
	}
	return narrow, nil
}
