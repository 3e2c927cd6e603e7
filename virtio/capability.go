package virtio

import (
	"encoding/binary"
	"fmt"
	"strings"

	"bare.wire/pci"
	"bare.wire/virtio/spec"
)

// structures are the parts of the modern interface (§4.1.4), where a device has put them.
type structures struct {
	common, notify, isr, device window
	multiplier                  uint32 // notify_off_multiplier
}

// structure is a kind of structure, and what one has to be like to be used.
type structure struct {
	kind   uint8
	name   string
	at     func(*structures) *window
	align  uint32
	least  uint32 // bytes
	needed bool
}

var structureKinds = []structure{
	{spec.CapCommon, "common configuration", func(s *structures) *window { return &s.common }, 4, spec.CommonSize, true},
	{spec.CapNotify, "notification", func(s *structures) *window { return &s.notify }, 2, 2, true},
	{spec.CapISR, "interrupt status", func(s *structures) *window { return &s.isr }, 1, 1, true},
	{spec.CapDevice, "device configuration", func(s *structures) *window { return &s.device }, 4, 1, false},
}

// findStructures walks a function's capabilities and takes the first of each kind that can be used: a device may offer several,
// in the order of its preference (§4.1.4). What cannot be used is told in the error, should none be left.
func findStructures(fn pci.Function) (*structures, error) {
	space, listErr := readConfigSpace(fn)
	if space == nil {
		return nil, listErr
	}
	s := &structures{}
	var ignored []string
	for _, c := range space.list {
		if c.ID != pci.CapVendor {
			continue
		}
		why, err := s.take(fn, space, c.Offset)
		if err != nil {
			return nil, err
		}
		if why != "" {
			ignored = append(ignored, fmt.Sprintf("the one at %#x: %s", c.Offset, why))
		}
	}
	if listErr != nil {
		ignored = append(ignored, listErr.Error())
	}
	for _, k := range structureKinds {
		if k.needed && k.at(s).bar == nil {
			if len(ignored) == 0 {
				ignored = []string{"there is none"}
			}
			return nil, fmt.Errorf("%s: no capability for a %s structure that can be used: %s", fn.Name(), k.name, strings.Join(ignored, "; "))
		}
	}
	return s, nil
}

// take looks at the capability at off. It returns why that is not used, "" when it is, or when one before it is, or when its
// kind is not needed.
func (s *structures) take(fn pci.Function, space *configSpace, off int) (ignored string, err error) {
	c := space.bytes[off:]
	if len(c) < spec.CapSize || c[spec.CapLen] < spec.CapSize {
		return "too short", nil
	}
	for _, k := range structureKinds {
		if k.kind != c[spec.CapType] {
			continue
		}
		to := k.at(s)
		if to.bar != nil {
			return "", nil
		}
		if err := space.read(off, min(int(c[spec.CapLen]), spec.CapNotifySize)); err != nil {
			return "", err
		}
		w, err := k.window(fn, c)
		if err == nil && k.kind == spec.CapNotify {
			s.multiplier, err = notifyMultiplier(c)
		}
		if err != nil {
			return k.name + ": " + err.Error(), nil
		}
		*to = w
		return "", nil
	}
	return "", nil
}

// window is where a capability says that the structure lies, checked against the BAR.
func (k *structure) window(fn pci.Function, c []byte) (window, error) {
	n, off, size := int(c[spec.CapBAR]), binary.LittleEndian.Uint32(c[spec.CapOffset:]), binary.LittleEndian.Uint32(c[spec.CapLength:])
	if n > 5 {
		return window{}, fmt.Errorf("BAR %d is reserved", n)
	}
	if off%k.align != 0 {
		return window{}, fmt.Errorf("its offset %#x is not a multiple of %d", off, k.align)
	}
	if size < k.least {
		return window{}, fmt.Errorf("it has %d bytes, %d are needed", size, k.least)
	}
	bar, err := narrowBAR(fn, n)
	if err != nil {
		return window{}, err
	}
	if uint64(off)+uint64(size) > uint64(bar.Size()) {
		return window{}, fmt.Errorf("%#x bytes at %#x are not within BAR %d, which has %#x", size, off, n, bar.Size())
	}
	return window{bar, off, size}, nil
}

// notifyMultiplier is what a queue's notify offset is multiplied with: 0, or a power of two that keeps 16-bit registers aligned
// (§4.1.4.4).
func notifyMultiplier(c []byte) (uint32, error) {
	if len(c) < spec.CapNotifySize || c[spec.CapLen] < spec.CapNotifySize {
		return 0, fmt.Errorf("it has %d bytes, %d are needed", min(int(c[spec.CapLen]), len(c)), spec.CapNotifySize)
	}
	m := binary.LittleEndian.Uint32(c[spec.CapMultiplier:])
	if m&(m-1) != 0 || m == 1 {
		return 0, fmt.Errorf("its multiplier is %d: 0 or an even power of two is possible", m)
	}
	return m, nil
}
